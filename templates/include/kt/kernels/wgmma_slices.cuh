// Accumulators in the workspace: slices of split-K with the second kernel that sums them, and parked pieces of stream-K.
// They lie there strip by strip, each as the accumulators of a warp lie in registers, so that 16 bytes of a lane lie
// beside those of the next.

namespace kt {

template <class TAcc, int BLOCK_M, int BLOCK_N>
struct WgmmaStrips {
  using Word = Vector<TAcc, 4>;
  static constexpr int kWords = BLOCK_N / 8;  // of a lane in a strip
  static constexpr int kOfTile = BLOCK_M / kStripRows;

  // This lane's first word of strip `number`; the others follow every 32 words.
  __device__ __forceinline__ static Word* at(void* memory, long long number) {
    return static_cast<Word*>(memory) + number * (kWords * 32) + lane_here();
  }

  __device__ __forceinline__ static void store(Word* words, const TAcc* sum) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i * 32] = {{sum[4 * i], sum[4 * i + 1], sum[4 * i + 2], sum[4 * i + 3]}};
  }

  // Past the L1 cache, for other blocks write them meanwhile. A round trip to L2 takes as long as a step of k, so as many
  // words are asked for at once as there are REGISTERS for besides the accumulators; the fences keep the compiler to that.
  template <int REGISTERS>
  __device__ __forceinline__ static void add(const Word* words, TAcc* sum) {
    constexpr int kAtOnce = REGISTERS >= 96 ? 12 : REGISTERS >= 72 ? 6 : 3;
#pragma unroll
    for (int first = 0; first < kWords; first += kAtOnce) {
      uint4 bits[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce && first + i < kWords; ++i) {
        bits[i] = __ldcg(reinterpret_cast<const uint4*>(words + (first + i) * 32));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce && first + i < kWords; ++i) {
        const Word word = reinterpret_cast<const Word&>(bits[i]);
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[4 * (first + i) + j] += word.at[j];
      }
      compiler_fence();
    }
  }

  // Split-K: how many strips a slice has in each batch, and which of them begins at (row, column).
  __device__ __forceinline__ static long long of_slice(const GemmArguments& args) {
    return (long long)cdiv(args.m, BLOCK_M) * cdiv(args.n, BLOCK_N) * kOfTile;
  }
  __device__ __forceinline__ static long long in_slice(const GemmArguments& args, int row, int column) {
    const unsigned tile = unsigned(row) / BLOCK_M * unsigned(cdiv(args.n, BLOCK_N)) + unsigned(column) / BLOCK_N;
    return (long long)tile * kOfTile + unsigned(row) % BLOCK_M / kStripRows;
  }
};

constexpr int kSumThreads = 256;
constexpr int kSumWarps = kSumThreads / 32;
constexpr int kManyParts = 16;  // from here on, the warps of a block share the slices of one piece

// A warp sums a piece of a strip, in the order of the slices, so that two runs give the same bits.
template <class TAcc, class TOut, int BLOCK_M, int BLOCK_N, int STORE, class Rows = WgmmaStripRows<1>>
__device__ __forceinline__ void sum_wgmma_slices(const GemmArguments& args, void* memory) {
  constexpr int kColumns = BLOCK_N % 32 == 0 ? 32 : BLOCK_N % 16 == 0 ? 16 : 8;
  constexpr int kPieces = BLOCK_N / kColumns, kWords = kColumns / 8;
  using Strips = WgmmaStrips<TAcc, BLOCK_M, BLOCK_N>;
  __shared__ __align__(16) TAcc staged[kSumWarps][kStripRows * kColumns];
  const long long strips = Strips::of_slice(args);
  const unsigned columns = unsigned(cdiv(args.n, BLOCK_N));
  const bool many = args.split_k >= kManyParts;
  const int warp = int(threadIdx.x) / 32;
  const long long number = many ? (long long)blockIdx.x : (long long)blockIdx.x * kSumWarps + warp;
  const long long strip_of_batch = number / kPieces;
  const int piece = int(number - strip_of_batch * kPieces);
  const unsigned batch = unsigned(strip_of_batch / strips);
  const unsigned strip = unsigned(strip_of_batch - batch * strips), tile = strip / Strips::kOfTile;
  const int row = int(tile / columns * BLOCK_M + Rows::first(strip % Strips::kOfTile));
  const int column = int(tile % columns) * BLOCK_N + piece * kColumns;
  if (batch >= unsigned(args.batch) || row >= args.m || column >= args.n) return;

  TAcc sums[1][4 * kWords] = {};
  TAcc(&sum)[4 * kWords] = sums[0];
  const int first = many ? warp : 0, step = many ? kSumWarps : 1;
#pragma unroll 4
  for (int slice = first; slice < args.split_k; slice += step) {
    const long long part = (long long)slice * args.batch + batch;
    const auto* const words = Strips::at(memory, part * strips + strip) + piece * (kWords * 32);
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
  WgmmaRowStore<TAcc, 1, kColumns, kColumns, 128, Rows>::store(output, staged[warp], sums, row, column);
}

}  // namespace kt
