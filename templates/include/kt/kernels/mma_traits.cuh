// What one kernel of `mma` is compiled for, and the types that follow from it.

namespace kt {

// mma_tma.cuh
template <class T, int BLOCK_MN, int BLOCK_K, bool K_CONTIGUOUS, int STAGES, int THREADS, int FIRST_WARP>
struct TmaOperand;
template <int STAGES, int BOXES>
class TmaArrivals;

// The arrival of stages that cp.async fills, each with one group of copies.
struct CopyGroups {
  __device__ __forceinline__ explicit CopyGroups(unsigned) {}
  __device__ __forceinline__ void end() const { ptx::cp_async_commit(); }
  // Waits for the next stage; the copies of the latest `UNDER_WAY` stages may go on.
  template <int UNDER_WAY>
  __device__ __forceinline__ void await() {
    ptx::cp_async_wait<UNDER_WAY>();
  }
  __device__ __forceinline__ void await_all() { ptx::cp_async_wait<0>(); }
};

template <Format FORMAT_, class TIn_, class TAcc_, class TOut_, int BLOCK_M_, int BLOCK_N_, int BLOCK_K_, int WARP_M_,
          int WARP_N_, int STAGES_, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, bool EARLY_, bool STREAM_K_, bool PACK_A,
          bool PACK_B, int LOAD_A, int LOAD_B, int STORE_, bool DIRECT_, bool HELD_, bool TMA_>
struct MmaTraits {
  static constexpr Format FORMAT = FORMAT_;
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  static constexpr bool TMA = TMA_;  // copies tiles, in place of cp.async
  using Form = MmaForm<FORMAT, TAcc, TMA>;
  static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, BLOCK_K = BLOCK_K_;
  static constexpr int WARP_M = WARP_M_, WARP_N = WARP_N_, STAGES = STAGES_, STORE = STORE_;
  static constexpr bool STREAM_K = STREAM_K_, EARLY = EARLY_;
  static constexpr bool DIRECT = DIRECT_;  // C from registers, not through shared memory
  static constexpr bool HELD = HELD_;      // all k of the tile's columns of B stay in shared memory, behind the ring
  using Space = RowSpace<TIn, PACK_A, PACK_B, A_K_CONTIGUOUS, B_K_CONTIGUOUS>;
  static constexpr int kWarpsN = BLOCK_N / WARP_N;
  static constexpr int kThreads = 32 * (BLOCK_M / WARP_M) * kWarpsN;
  static constexpr int kSteps = BLOCK_K * int(sizeof(TIn)) / Form::kDepthBytes;  // k steps of a tile

  // Boxes of TMA: those of A, and those of A and B.
  template <int BLOCK_MN, bool K_CONTIGUOUS>
  static constexpr int kBoxes = K_CONTIGUOUS ? 1 : cdiv(BLOCK_MN * int(sizeof(TIn)), 128);
  static constexpr int kBoxesA = kBoxes<BLOCK_M, A_K_CONTIGUOUS>, kBoxesOfBoth = kBoxesA + kBoxes<BLOCK_N, B_K_CONTIGUOUS>;
  template <int BLOCK_MN, bool K_CONTIGUOUS, int LOAD, int FIRST_WARP>
  using Tile = typename Select<TMA, TmaOperand<TIn, BLOCK_MN, BLOCK_K, K_CONTIGUOUS, STAGES, kThreads, FIRST_WARP>,
                               MmaOperand<TIn, BLOCK_MN, BLOCK_K, K_CONTIGUOUS, LOAD, kThreads,
                                          Form::template kOrder<K_CONTIGUOUS>>>::type;
  using TileA = Tile<BLOCK_M, A_K_CONTIGUOUS, PACK_A ? 16 : LOAD_A, 0>;
  using TileB = Tile<BLOCK_N, B_K_CONTIGUOUS, PACK_B ? 16 : LOAD_B, kBoxesA>;
  using Arrivals = typename Select<TMA, TmaArrivals<STAGES, kBoxesOfBoth>, CopyGroups>::type;
  using ReaderA = typename Form::template Reader<TileA, Side::kA, WARP_M>;
  using ReaderB = typename Form::template Reader<TileB, Side::kB, WARP_N>;
  using FragmentA = Fragment<Form, Side::kA, WARP_M / 8>;
  using FragmentB = Fragment<Form, Side::kB, WARP_N / 8>;
  static constexpr int kStageBytes = TileA::kBytes + (HELD ? 0 : TileB::kBytes);

  static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps tile the block");
  static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp reads 16 rows or columns at once");
  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(STAGES >= 2, "one tile is read while the next arrives");
  static_assert(kSteps >= 2 || Form::kByStrips, "copies end before the last k step");
  static_assert(!HELD || (DIRECT && !STREAM_K), "where columns stay, there is no room for strips of results");
  static_assert(!TMA || (!HELD && !STREAM_K && !DIRECT && !Form::kByStrips), "TMA's barriers serve one piece of work a block");
  static_assert(!EARLY || (STAGES >= 3 && !Form::kByStrips), "an early barrier needs a stage more and a k step ahead");
};

}  // namespace kt
