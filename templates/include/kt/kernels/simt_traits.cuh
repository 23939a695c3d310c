// What one kernel of `simt` is compiled for, and the types that follow from it.

namespace kt {

// Operands that lie along k are turned in registers where a thread needs no more of these and tiles have two buffers, else on
// their way by cp.async. Loads to registers run one step ahead: who asks for more stages wants copies that run further.
constexpr int kTurnedWords = 32;

// In which order a thread multiplies its fragments. It decides how often the register file's operand cache hits: the
// outer index holds one operand still, and the inner one turns back at each end so that the other is kept as well.
enum FmaOrder { kRowsOuter, kColumnsOuter };

// Operands along k that TMA copies as they lie: boxed_tile.cuh.
template <class T, int BLOCK_MN, int BLOCK_K, int CLASSES, int THREADS>
struct BoxedTile;
struct NotBoxed {
  static constexpr int kBoxBytes = 0;
};

// Registers of a thread for its part of a tile of an operand that is turned; tiles of few rows count as too many.
template <class T>
__host__ __device__ constexpr int turned_words(bool turned, int block_mn, int block_k, int threads) {
  if (!turned) return 0;
  return block_mn < 8 ? kTurnedWords + 1 : max_of(4, cdiv(block_mn * block_k * int(sizeof(T)) / 4, threads));
}

// Columns of a tile in shared memory: of 48 and 96 the next power of two, so that passes of copies do not mix bits. What
// lies beyond the block's own columns arrives as zeros, or as the next block's, and is not read.
__host__ __device__ constexpr int span_of(int columns) { return columns % 3 ? columns : columns / 3 * 4; }

template <class TIn_, class TAcc_, class TOut_, int BLOCK_M_, int BLOCK_N_, int BLOCK_K_, int THREAD_M_, int THREAD_N_,
          int LANES_M_, int SLICES_, int STAGES_, int UNROLL_, FmaOrder ORDER_, bool A_K_CONTIGUOUS_,
          bool B_K_CONTIGUOUS_, bool STREAM_K_, bool PACK_A_, bool PACK_B_, int LOAD_A_, int LOAD_B_, int STORE_,
          bool ASYNC_, int BOXED_A_ = 0, int BOXED_B_ = 0>
struct SimtTraits {
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  using TShared = typename Select<ASYNC_, TIn_, TAcc_>::type;
  static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, BLOCK_K = BLOCK_K_;
  static constexpr int THREAD_M = THREAD_M_, THREAD_N = THREAD_N_, LANES_M = LANES_M_, LANES_N = 32 / LANES_M_;
  static constexpr int SLICES = SLICES_, STAGES = STAGES_, UNROLL = UNROLL_, STORE = STORE_;
  static constexpr FmaOrder ORDER = ORDER_;
  static constexpr bool ASYNC = ASYNC_, PACK_A = PACK_A_, PACK_B = PACK_B_, STREAM_K = STREAM_K_;
  using Space = Workspace<TIn, PACK_A, PACK_B>;
  static constexpr int kSliceThreads = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);  // that hold a tile of C together
  static constexpr int kThreads = SLICES * kSliceThreads;
  static constexpr int kSliceK = BLOCK_K / SLICES;  // of each step of k
  static constexpr int kWarpsN = BLOCK_N / (LANES_N * THREAD_N);
  static constexpr int kSpanN = span_of(BLOCK_N);
  static constexpr int kGroup = 16 / int(sizeof(TShared));  // elements of a 16-byte access to shared memory
  static constexpr int kGroupM = min_of(THREAD_M, kGroup), kGroupN = min_of(THREAD_N, kGroup);

  // Into how many classes the rows of operands fall that TMA copies as they lie. 0: it does not.
  static constexpr int BOXED_A = BOXED_A_, BOXED_B = BOXED_B_;
  static constexpr bool kBoxed = BOXED_A > 0;
  using BoxA = typename Select<kBoxed, BoxedTile<TIn, BLOCK_M, BLOCK_K, max_of(BOXED_A, 1), kThreads>, NotBoxed>::type;
  using BoxB = typename Select<kBoxed, BoxedTile<TIn, kSpanN, BLOCK_K, max_of(BOXED_B, 1), kThreads>, NotBoxed>::type;
  static constexpr int kSlotBytes = BoxA::kBoxBytes + BoxB::kBoxBytes;

  // Registers in which a thread holds its part of a turned tile.
  static constexpr int kWordsA = turned_words<TIn>(A_K_CONTIGUOUS_ && !PACK_A, BLOCK_M, BLOCK_K, kThreads);
  static constexpr int kWordsB = turned_words<TIn>(B_K_CONTIGUOUS_ && !PACK_B, kSpanN, BLOCK_K, kThreads);
  static constexpr bool kRegisters = ASYNC && !kBoxed && STAGES == 2 && kWordsA + kWordsB <= kTurnedWords;
  static constexpr bool kTurnsA = kRegisters && kWordsA > 0, kTurnsB = kRegisters && kWordsB > 0;
  using TurnedA = typename Select<kTurnsA, TurnedTile<TIn, BLOCK_M, BLOCK_K, LOAD_A_, kThreads, 0>, NotTurned>::type;
  using TurnedB = typename Select<kTurnsB, TurnedTile<TIn, kSpanN, BLOCK_K, LOAD_B_, kThreads, TurnedA::kUnits % kThreads>,
                                  NotTurned>::type;
  using CopiedA = typename Select<kBoxed, BoxA, SimtOperand<TIn, TShared, BLOCK_M, BLOCK_K, A_K_CONTIGUOUS_ && !PACK_A,
                                                                   PACK_A ? 16 : LOAD_A_, kThreads>>::type;
  using CopiedB = typename Select<kBoxed, BoxB, SimtOperand<TIn, TShared, kSpanN, BLOCK_K, B_K_CONTIGUOUS_ && !PACK_B,
                                                                   PACK_B ? 16 : LOAD_B_, kThreads>>::type;
  using TileA = typename Select<kTurnsA, TurnedA, CopiedA>::type;
  using TileB = typename Select<kTurnsB, TurnedB, CopiedB>::type;
  static constexpr int kStageElements = TileA::kElements + TileB::kElements;
  static constexpr int kTileABytes = TileA::kElements * int(sizeof(TShared));
  static constexpr int kStageBytes = kStageElements * int(sizeof(TShared));
  static constexpr int kTileBytes = BLOCK_M * BLOCK_N * int(sizeof(TAcc));  // of C
  // Sums of half of the slices, and rows of C on their way out, lie where the stages were.
  static constexpr int kSumsBytes = max_of(SLICES / 2 * kTileBytes, THREAD_N * kSliceThreads * int(sizeof(TAcc)));
  static constexpr int kRingBytes = max_of(kBoxed ? 2 * kStageBytes + (STAGES - 1) * kSlotBytes : STAGES * kStageBytes, kSumsBytes);

  static_assert(kSliceThreads % 32 == 0 && kThreads <= 1024, "slices have whole warps, a block at most 1024 threads");
  static_assert((SLICES & (SLICES - 1)) == 0, "the number of slices is a power of two");
  static_assert(BLOCK_M % (LANES_M * THREAD_M) == 0 && BLOCK_N % (LANES_N * THREAD_N) == 0, "warps tile the block");
  static_assert(THREAD_M % kGroupM == 0 && THREAD_N % kGroupN == 0, "thread tiles are whole groups");
  static_assert(!ASYNC || is_same<TIn, TShared>, "cp.async cannot convert");
  static_assert(ASYNC || STAGES == 2, "copies through registers use two buffers");
  static_assert((BOXED_A > 0) == (BOXED_B > 0), "both operands lie along k, or none is copied so");
  static_assert(UNROLL % 4 == 0 && kSliceK % UNROLL == 0, "two register fragments alternate");
};

}  // namespace kt
