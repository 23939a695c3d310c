// Slices of split-K in the workspace, and the second kernel that sums them. They lie there strip by strip, each as the
// accumulators of a warp lie in registers, so that both kernels move 16 bytes a lane, side by side.

namespace kt {

template <class TAcc, int BLOCK_M, int BLOCK_N>
struct WgmmaSlices {
  using Word = Vector<TAcc, 4>;
  static constexpr int kWords = BLOCK_N / 8;  // of a lane in a strip
  static constexpr int kStrips = BLOCK_M / kStripRows;

  Word* base;
  unsigned columns;  // of tiles
  long long strips;  // of one slice and batch

  __device__ __forceinline__ WgmmaSlices(const GemmArguments& args, void* memory)
      : base(static_cast<Word*>(memory)), columns(unsigned(cdiv(args.n, BLOCK_N))),
        strips((long long)cdiv(args.m, BLOCK_M) * columns * kStrips) {}

  // This lane's first word of a strip; `part` counts batches of slices.
  __device__ __forceinline__ Word* at(long long part, long long strip) const {
    return base + (part * strips + strip) * (kWords * 32) + threadIdx.x % 32;
  }

  // The strip at (row, column).
  __device__ __forceinline__ void store(const TAcc* sum, long long part, int row, int column) const {
    const unsigned tile = unsigned(row) / BLOCK_M * columns + unsigned(column) / BLOCK_N;
    Word* const words = at(part, (long long)tile * kStrips + unsigned(row) % BLOCK_M / kStripRows);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i * 32] = {{sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]}};
  }
};

constexpr int kSumThreads = 256;
constexpr int kSumWarps = kSumThreads / 32;
constexpr int kManyParts = 16;  // from here on, the warps of a block share the slices of one piece

// A warp sums a piece of a strip, in the order of the slices, so that two runs give the same bits.
template <class TAcc, class TOut, int BLOCK_M, int BLOCK_N, int STORE>
__device__ __forceinline__ void sum_wgmma_slices(const GemmArguments& args, void* memory) {
  constexpr int kColumns = BLOCK_N % 32 == 0 ? 32 : 16, kPieces = BLOCK_N / kColumns, kWords = kColumns / 8;
  using Slices = WgmmaSlices<TAcc, BLOCK_M, BLOCK_N>;
  __shared__ __align__(16) TAcc staged[kSumWarps][kStripRows * kColumns];
  const Slices slices(args, memory);
  const bool many = args.split_k >= kManyParts;
  const int warp = int(threadIdx.x) / 32;
  const long long number = many ? (long long)blockIdx.x : (long long)blockIdx.x * kSumWarps + warp;
  const long long strip_of_batch = number / kPieces;
  const int piece = int(number - strip_of_batch * kPieces);
  const unsigned batch = unsigned(strip_of_batch / slices.strips);
  const unsigned strip = unsigned(strip_of_batch - batch * slices.strips), tile = strip / Slices::kStrips;
  const int row = int(tile / slices.columns * BLOCK_M + strip % Slices::kStrips * kStripRows);
  const int column = int(tile % slices.columns) * BLOCK_N + piece * kColumns;
  if (batch >= unsigned(args.batch) || row >= args.m || column >= args.n) return;

  TAcc sums[1][4 * kWords] = {};
  TAcc(&sum)[4 * kWords] = sums[0];
  const int first = many ? warp : 0, step = many ? kSumWarps : 1;
#pragma unroll 4
  for (int slice = first; slice < args.split_k; slice += step) {
    const auto* const words = slices.at((long long)slice * args.batch + batch, strip) + piece * (kWords * 32);
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const auto word = words[i * 32];
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[4 * i + j] += word.at[j];
    }
  }
  if (many) {
    TAcc* const mine = staged[warp] + threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < 4 * kWords; ++i) mine[i * 32] = sum[i];
    __syncthreads();
    if (warp != 0) return;
#pragma unroll
    for (int other = 1; other < kSumWarps; ++other) {
#pragma unroll
      for (int i = 0; i < 4 * kWords; ++i) sum[i] += staged[other][i * 32 + threadIdx.x % 32];
    }
  }
  const auto output = output_c<TAcc, TOut, STORE>(args, int(batch));
  WgmmaRowStore<TAcc, 1, kColumns, kColumns>::store(output, staged[warp], sums, row, column);
}

}  // namespace kt
