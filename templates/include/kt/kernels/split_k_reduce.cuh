// Second pass of split-K: sums the slices in a fixed order, so that two runs give the same bits, and applies the
// epilogue. The partial products lie in the workspace as [split_k][batch][m][n].

namespace kt {

constexpr int kReduceThreads = 256;
constexpr int kReduceLanes = 8;         // threads that share one element when there are many slices
constexpr int kManySlices = 16;         // from here on

template <class TAcc>
__device__ __forceinline__ TAcc sum_slices(const TAcc* partial, long long stride, int first, int step, int count) {
  constexpr int kInFlight = 4;
  TAcc sum = TAcc(0);
  int slice = first;
  for (; slice + (kInFlight - 1) * step < count; slice += kInFlight * step) {
    TAcc loaded[kInFlight];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) loaded[i] = partial[(slice + i * step) * stride];
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) sum += loaded[i];
  }
  for (; slice < count; slice += step) sum += partial[slice * stride];
  return sum;
}

template <class TAcc, class TOut>
__device__ __forceinline__ void finish_element(const GemmArguments& args, long long element, TAcc sum) {
  const long long per_batch = (long long)args.m * args.n;
  const int batch = int(element / per_batch);
  const long long inside = element - batch * per_batch;
  const int row = int(inside / args.n);
  const auto output = output_c<TAcc, TOut, int(sizeof(TOut))>(args, batch);
  output.write(output.at(row, int(inside - (long long)row * args.n)), sum);
}

template <class TAcc, class TOut>
__device__ void reduce_split_k(const GemmArguments& args, const TAcc* partial) {
  const long long elements = (long long)args.batch * args.m * args.n;
  if (args.split_k < kManySlices) {
    const long long element = (long long)blockIdx.x * kReduceThreads + threadIdx.x;
    if (element >= elements) return;
    finish_element<TAcc, TOut>(args, element, sum_slices(partial + element, elements, 0, 1, args.split_k));
    return;
  }
  constexpr int kElements = kReduceThreads / kReduceLanes;
  __shared__ TAcc lanes[kReduceLanes][kElements];
  const int lane = threadIdx.x / kElements, column = threadIdx.x % kElements;
  const long long element = (long long)blockIdx.x * kElements + column;
  if (element < elements) {
    lanes[lane][column] = sum_slices(partial + element, elements, lane, kReduceLanes, args.split_k);
  }
  __syncthreads();
  if (lane != 0 || element >= elements) return;
  TAcc sum = lanes[0][column];
#pragma unroll
  for (int i = 1; i < kReduceLanes; ++i) sum += lanes[i][column];
  finish_element<TAcc, TOut>(args, element, sum);
}

}  // namespace kt
