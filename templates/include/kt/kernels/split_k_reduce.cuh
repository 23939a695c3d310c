// Second pass of split-K: sums the slices in a fixed order, so that two runs give the same bits, and applies the
// epilogue. The partial products lie in the workspace as [split_k][batch][m][n] in the accumulator's format.

namespace kt {

// Writes the accumulators of one block as slice `tile.split` of the workspace.
template <int GROUP, class Accumulator>
__device__ __forceinline__ void store_partial(const Accumulator& accumulator, const GemmArguments& args,
                                              const Tile& tile, int block_m, int block_n) {
  using TAcc = typename Accumulator::TAcc;
  const PartialEpilogue<TAcc> epilogue;
  const long long slice = (long long)tile.split * args.batch + tile.batch;
  TAcc* const partial = static_cast<TAcc*>(args.workspace) + slice * args.m * args.n;
  const bool aligned = args.n % GROUP == 0;
  accumulator.for_each_group(block_m, block_n, args.m, args.n,
                             [&](int row, int column, const TAcc* products, int valid) {
                               TAcc* const target = partial + (long long)row * args.n + column;
                               if (aligned) {
                                 store_row<16, GROUP>(epilogue, target, products, valid);
                               } else {
                                 store_row<int(sizeof(TAcc)), GROUP>(epilogue, target, products, valid);
                               }
                             });
}

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
  const LinearEpilogue<TAcc, TOut> epilogue(args);
  const long long per_batch = (long long)args.m * args.n;
  const long long batch = element / per_batch;
  const long long inside = element - batch * per_batch;
  const long long row = inside / args.n;
  TOut* c = static_cast<TOut*>(args.c) + batch * args.stride_c + row * args.ldc + (inside - row * args.n);
  *c = epilogue.reads_c() ? epilogue(sum, *c) : epilogue(sum);
}

template <class TAcc, class TOut>
__device__ void reduce_split_k(const GemmArguments& args) {
  const long long elements = (long long)args.batch * args.m * args.n;
  const TAcc* partial = static_cast<const TAcc*>(args.workspace);
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
