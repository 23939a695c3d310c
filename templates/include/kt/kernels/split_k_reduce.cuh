// Second pass of split-K: sums the slices in a fixed order, so that two runs give the same bits, and applies the
// epilogue. The partial products lie in the workspace as [split_k][batch][m][n].

namespace kt {

constexpr int kReduceThreads = 256;
constexpr int kReduceColumns = 32;
constexpr int kReduceRows = kReduceThreads / kReduceColumns;
constexpr int kManySlices = 16;  // from here on, threads in a column share the slices of one row instead of the rows

// Slices of a thread that are read before the first of them is added: one wait for L2, not many.
constexpr int kSlicesAtOnce = 16;

template <class TAcc>
__device__ __forceinline__ TAcc sum_slices(const TAcc* partial, long long stride, int first, int step, int count) {
  TAcc sum = TAcc(0);
#pragma unroll 1
  for (int from = first; from < count; from += kSlicesAtOnce * step) {
    const TAcc* const slices = partial + from * stride;
    const long long apart = step * stride;
    TAcc read[kSlicesAtOnce];
#pragma unroll
    for (int i = 0; i < kSlicesAtOnce; ++i) {
      if (from + i * step < count) read[i] = slices[i * apart];
    }
#pragma unroll
    for (int i = 0; i < kSlicesAtOnce; ++i) {
      if (from + i * step < count) sum += read[i];
    }
  }
  return sum;
}

template <class TAcc, class TOut>
__device__ __forceinline__ void reduce_split_k(const GemmArguments& args, const TAcc* partial) {
  __shared__ TAcc sums[kReduceRows][kReduceColumns];
  const bool many = args.split_k >= kManySlices;
  const int lane = int(threadIdx.x) / kReduceColumns, inside = int(threadIdx.x) % kReduceColumns;
  const unsigned tiles_n = cdiv(args.n, kReduceColumns), tiles_m = many ? args.m : cdiv(args.m, kReduceRows);
  const unsigned rest = blockIdx.x / tiles_n, batch = rest / tiles_m;
  const int column = int(blockIdx.x - rest * tiles_n) * kReduceColumns + inside;
  const int tile_m = int(rest - batch * tiles_m);
  const int row = many ? tile_m : tile_m * kReduceRows + lane;
  const bool valid = row < args.m && column < args.n;

  TAcc sum = TAcc(0);
  if (valid) {
    const long long offset = ((long long)batch * args.m + row) * args.n + column;
    const long long stride = (long long)args.batch * args.m * args.n;
    sum = sum_slices(partial + offset, stride, many ? lane : 0, many ? kReduceRows : 1, args.split_k);
  }
  if (many) {
    sums[lane][inside] = sum;
    __syncthreads();
    if (lane != 0) return;
#pragma unroll
    for (int i = 1; i < kReduceRows; ++i) sum += sums[i][inside];
  }
  if (!valid) return;
  const auto output = output_c<TAcc, TOut, int(sizeof(TOut))>(args, int(batch));
  output.write(output.at(row, column), sum);
}

}  // namespace kt
