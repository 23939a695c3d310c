// What happens to the accumulated product on its way to C.

namespace kt {

// C = alpha * AB + beta * C. With beta = 0, C is never read, so that NaN in it does not survive.
template <class TAcc, class TOut>
struct LinearEpilogue {
  TAcc alpha, beta;

  __device__ explicit LinearEpilogue(const GemmArguments& args) : alpha(TAcc(args.alpha)), beta(TAcc(args.beta)) {}

  __device__ __forceinline__ bool reads_c() const { return beta != TAcc(0); }

  __device__ __forceinline__ TOut operator()(TAcc product) const { return convert<TOut>(alpha * product); }

  __device__ __forceinline__ TOut operator()(TAcc product, TOut before) const {
    return convert<TOut>(alpha * product + beta * convert<TAcc>(before));
  }
};

// A slice of split-K goes to the workspace as it is.
template <class TAcc>
struct PartialEpilogue {
  __device__ __forceinline__ bool reads_c() const { return false; }
  __device__ __forceinline__ TAcc operator()(TAcc product) const { return product; }
  __device__ __forceinline__ TAcc operator()(TAcc product, TAcc) const { return product; }
};

// Writes `COUNT` neighbouring elements of one row, of which `valid` lie inside it, in accesses of up to
// `STORE_BYTES`, to which `row` is aligned; where the row ends among them, one by one.
template <int STORE_BYTES, int COUNT, class Epilogue, class TAcc, class TOut>
__device__ __forceinline__ void store_row(const Epilogue& epilogue, TOut* row, const TAcc* products, int valid) {
  constexpr int kWidth = max_of(1, min_of(COUNT, STORE_BYTES / int(sizeof(TOut))));
  using Access = Vector<TOut, kWidth>;
  if (valid >= COUNT) {
#pragma unroll
    for (int i = 0; i < COUNT; i += kWidth) {
      Access out;
      if (epilogue.reads_c()) {
        const Access before = *reinterpret_cast<const Access*>(row + i);
#pragma unroll
        for (int j = 0; j < kWidth; ++j) out.at[j] = epilogue(products[i + j], before.at[j]);
      } else {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) out.at[j] = epilogue(products[i + j]);
      }
      *reinterpret_cast<Access*>(row + i) = out;
    }
  } else {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (i < valid) row[i] = epilogue.reads_c() ? epilogue(products[i], row[i]) : epilogue(products[i]);
    }
  }
}

}  // namespace kt
