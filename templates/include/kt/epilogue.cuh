// What happens to the accumulated product on its way to memory.

namespace kt {

// One matrix in memory that results are written to: C, or a slice of the workspace.
// out = alpha * product + beta * out. With beta = 0 it is never read, so that NaN in it does not survive. READS: beta is
// known not to be 0.
template <class TAcc, class TOut, int STORE_BYTES, bool READS = false>
struct Output {
  TOut* base;       // element (0, 0)
  long long pitch;  // elements between rows
  int m, n;         // extents
  TAcc alpha, beta;

  using Element = TOut;
  static constexpr int kWidest = max_of(1, STORE_BYTES / int(sizeof(TOut)));  // elements of the widest access

  __device__ __forceinline__ bool reads() const { return READS || beta != TAcc(0); }
  __device__ __forceinline__ TOut* at(int row, int column) const { return base + row * pitch + column; }

  __device__ __forceinline__ TOut result(TAcc product, const TOut* before) const {
    const TAcc scaled = alpha * product;
    return convert<TOut>(reads() ? scaled + beta * convert<TAcc>(*before) : scaled);
  }

  __device__ __forceinline__ void write(TOut* target, TAcc product) const { *target = result(product, target); }

  // Writes `COUNT` neighbouring elements of one row, of which `valid` lie inside the matrix.
  template <int COUNT>
  __device__ __forceinline__ void write_group(TOut* target, const TAcc* products, int valid) const {
    constexpr int kWidth = min_of(COUNT, kWidest);
    using Access = Vector<TOut, kWidth>;
#pragma unroll
    for (int i = 0; i < COUNT; i += kWidth) {
      if (i >= valid) return;  // rows consist of whole accesses
      Access out;
      if (reads()) out = *reinterpret_cast<const Access*>(target + i);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out.at[j] = result(products[i + j], &out.at[j]);
      *reinterpret_cast<Access*>(target + i) = out;
    }
  }
};

// C itself.
template <class TAcc, class TOut, int STORE_BYTES, bool READS = false>
__device__ __forceinline__ Output<TAcc, TOut, STORE_BYTES, READS> output_c(const GemmArguments& args, int batch) {
  return {static_cast<TOut*>(args.c) + batch * args.stride_c, args.ldc, args.m, args.n, TAcc(args.alpha), TAcc(args.beta)};
}

// A slice of split-K in the workspace, as it was summed. Its rows are as long as those of C, so they are as well aligned.
template <class TAcc, class TOut, int STORE_BYTES>
using SliceOutput = Output<TAcc, TAcc, min_of(16, STORE_BYTES / int(sizeof(TOut)) * int(sizeof(TAcc)))>;

}  // namespace kt
