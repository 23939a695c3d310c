// Persistent GEMM on Hopper's tensor cores. One warp of the first warpgroup has TMA fill a ring of stages in shared
// memory; the other warpgroups, the consumers, multiply what has arrived and write C while the next tile is on its way.
//
// Cooperative: the consumers share a tile, each some of its rows. Ping-pong: each of two consumers has a tile of its own,
// and they take turns, so that one multiplies while the other writes C.

namespace kt {

constexpr int kWarpgroup = 128;

// Shared memory that the blocks of a multiprocessor of sm_90 have between them, and what the system takes of each.
constexpr int kSharedOfSm = 233472, kSharedOfSystem = 1024;
// Of a block besides stages and what C is staged in: up to 1008 bytes of alignment, and barriers.
constexpr int kSharedBesides = 2048;

// Of a panel of C. Odd multiples of 16 bytes have a last panel that reaches beyond the tile.
__host__ __device__ constexpr int wgmma_store_row_bytes(int tile_row_bytes) {
  if (tile_row_bytes % 32 != 0) return wgmma_row_bytes(tile_row_bytes);
  return tile_row_bytes % 128 == 0 ? 128 : tile_row_bytes % 64 == 0 ? 64 : 32;
}

// How many panels of C are staged at once: as many as there is room for, up to four, in whole rounds.
__host__ __device__ constexpr int wgmma_store_slots(int panels, int slot_bytes, int room) {
  for (int slots = 4; slots > 1; --slots) {
    if (panels % slots == 0 && slots * slot_bytes <= room) return slots;
  }
  return 1;
}

// What one kernel is compiled for: in one layout, or in several (wgmma_forms.cuh).
template <class... Traits>
struct WgmmaForms {};

template <class TIn_, class TAcc_, class TOut_, bool OUT_BF16_, class Multiply_, class Space_, int BLOCK_M_, int BLOCK_N_, int BLOCK_K_,
          int LOADED_M_, int STAGES_, int CONSUMERS_, bool PING_PONG_, int CLUSTER_M_, int CLUSTER_N_, int MIN_BLOCKS_,
          bool A_K_MAJOR_, bool B_K_MAJOR_, int A_LOAD_, int B_LOAD_, int STORE_, bool PROMOTED_ = false, int CLASSES_ = 1,
          int A_CLASSES_ = 1>
struct WgmmaTraits {
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  using Multiply = Multiply_;
  static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, BLOCK_K = BLOCK_K_, STAGES = STAGES_;
  static constexpr int CONSUMERS = CONSUMERS_, CLUSTER_M = CLUSTER_M_, CLUSTER_N = CLUSTER_N_, STORE = STORE_;
  static constexpr bool PING_PONG = PING_PONG_;
  // Where C has a few rows, only so many of A's are loaded. wgmma takes what follows them in the stage for the others,
  // whose results are not written.
  static constexpr int LOADED_M = LOADED_M_;
  // Rows of A in classes come to wgmma from registers, shifted there: see wgmma_shifted.cuh.
  static constexpr int A_CLASSES = A_CLASSES_;
  static constexpr bool kShifted = A_CLASSES > 1;
  using ShiftedRows = WgmmaShiftedRows<LOADED_M, BLOCK_K, A_CLASSES>;
  using PlainA = WgmmaOperand<LOADED_M, BLOCK_K, int(sizeof(TIn)), A_K_MAJOR_, CLUSTER_N>;
  using A = typename Select<kShifted, ShiftedRows, PlainA>::type;
  using B = WgmmaOperand<BLOCK_N, BLOCK_K, int(sizeof(TIn)), B_K_MAJOR_, CLUSTER_M>;
  // Operands whose rows begin at multiples of LOAD bytes, less than 16, are copied by the producer's threads.
  static constexpr bool A_K_MAJOR = A_K_MAJOR_, B_K_MAJOR = B_K_MAJOR_;
  static constexpr bool kFedA = A_LOAD_ < 16, kFedB = B_LOAD_ < 16, kFed = kFedA || kFedB;
  // One operand is read as it lies, the other from a copy that the grid before makes, and may be making still: the first
  // steps of the former are asked for meanwhile. One block takes a whole multiprocessor.
  static constexpr bool kMayBeEarly = MIN_BLOCKS_ == 1 && !kFed;
  static constexpr bool kEarlyA = kMayBeEarly && !Space_::PACK_A && Space_::PACK_B;
  static constexpr bool kEarlyB = kMayBeEarly && Space_::PACK_A && !Space_::PACK_B;
  static constexpr bool kEarly = kEarlyA || kEarlyB;
  using FeedA = WgmmaFeed<A, (A_K_MAJOR ? BLOCK_K : LOADED_M) * int(sizeof(TIn)), min_of(A_LOAD_, 8), kWarpgroup>;
  using FeedB = WgmmaFeed<B, (B_K_MAJOR ? BLOCK_K : BLOCK_N) * int(sizeof(TIn)), min_of(B_LOAD_, 8), kWarpgroup>;
  // Rows of B in classes: see wgmma_classes.cuh. A tile then has fewer columns of C than of sums.
  static constexpr int CLASSES = CLASSES_;
  using Classes = WgmmaClasses<CLASSES>;
  static constexpr int kWidth = BLOCK_N - Classes::kLost;
  using Walk = WgmmaWalk<BLOCK_M, kWidth, BLOCK_K, CLUSTER_M, CLUSTER_N, CLASSES>;
  // Where one row of tiles is all of C, B is read once: L2 is told that it may leave before all else. Kernels that are
  // for many rows, or have more than one consumer, have no such policy, and no register for it.
  static constexpr bool kMayStreamB = BLOCK_M == 64 && CONSUMERS == 1 && CLUSTER_M == 1 && CLASSES == 1;

  // wgmma takes rows of one operand and columns of the other. 4-byte elements that lie along mn come to it as rows, from
  // registers: those of B by computing the transpose of C, so that its rows are C's columns.
  static constexpr bool kExchanged = !B_K_MAJOR && sizeof(TIn) == 4;
  static constexpr bool kFromRegisters = kExchanged || (!A_K_MAJOR && sizeof(TIn) == 4);
  using Rows = typename Select<kExchanged, B, A>::type;
  using Columns = typename Select<kExchanged, A, B>::type;
  static constexpr int kRows = kExchanged ? BLOCK_N : BLOCK_M, kColumns = kExchanged ? BLOCK_M : BLOCK_N;

  static constexpr int kThreads = kWarpgroup * (1 + CONSUMERS);
  static constexpr int kSharers = PING_PONG ? 1 : CONSUMERS;           // consumers that read one stage
  static constexpr int kTilesM = kRows / (64 * kSharers);              // wgmmas of one consumer along the rows
  static constexpr int kPeers = CLUSTER_M + CLUSTER_N - 1;             // blocks whose copies this block shares, and itself
  static constexpr int kStageBytes = A::kBytes + B::kBytes;
  static constexpr int kBytesOfTma = (kFedA ? 0 : A::kBytes) + (kFedB ? 0 : B::kBytes);

  // Without TMA, C is staged in any number of columns: 32 for each slot.
  static constexpr bool kWholePanels = STORE == 16 || kFromRegisters;
  static constexpr int kStoreRowBytes = kWholePanels ? wgmma_store_row_bytes(kColumns * int(sizeof(TOut))) : 128;
  static constexpr int kStorePanels = kWholePanels ? cdiv(kColumns * int(sizeof(TOut)), kStoreRowBytes) : 4;
  static constexpr int kRoom = kSharedOfSm / MIN_BLOCKS_ - kSharedOfSystem - kSharedBesides - STAGES * kStageBytes;
  static constexpr int kStoreSlots = wgmma_store_slots(kStorePanels, CONSUMERS * 64 * kStoreRowBytes, kRoom);
  static constexpr int kStagedBytes = kStoreSlots * 16 * kStoreRowBytes;  // of a warp
  // Registers of a thread at launch; if consumers need more, the producer gives up what it can do without.
  static constexpr int kSums = kTilesM * kColumns / 2;
  using Sums = TAcc[kTilesM][kColumns / 2];
  // Of 8-bit floats, the tensor cores keep 14 bits of a sum: those of kPromotedEvery elements of k are added up in fp32.
  static constexpr bool PROMOTED = PROMOTED_;
  static constexpr int kPromotedEvery = 128, kStepsOfSum = kPromotedEvery * int(sizeof(TIn)) / 32;
  static constexpr int kRegistersAtLaunch = min_of(255, 65536 / (kThreads * MIN_BLOCKS_) / 8 * 8);
  static constexpr bool kMoveRegisters = kRegistersAtLaunch < 224;
  static constexpr int kProducerRegisters = kFed ? 64 : CONSUMERS >= 3 ? 32 : kSums > 128 || STORE < 16 ? 24 : 40;
  static constexpr int kConsumerRegisters =
      !kMoveRegisters ? kRegistersAtLaunch
                      : min_of(240, (kRegistersAtLaunch * (1 + CONSUMERS) - kProducerRegisters) / CONSUMERS / 8 * 8);

  using TmaStore = WgmmaTmaStore<TAcc, TOut, OUT_BF16_, kColumns, kStoreRowBytes, kStoreSlots>;
  // A tile that ends soon is written by the threads themselves, and so are rows that are no neighbours.
  using StripRows = WgmmaStripRows<A_CLASSES>;
  static constexpr bool kDirect = STORE == 16 && (CONSUMERS == 1 || kShifted) && !kFromRegisters;
  static constexpr bool kTmaStores = STORE == 16 && !kDirect;
  using DirectStore = WgmmaDirectStore<TmaStore, TAcc, TOut, BLOCK_N, kStoreRowBytes, kStoreSlots, StripRows>;
  using RowStore = WgmmaRowStore<TAcc, kTilesM, BLOCK_N, kStagedBytes / kStripRows / int(sizeof(TAcc)),
                                 kConsumerRegisters - kSums, StripRows>;
  // Rows of C that begin anywhere.
  using WindowStore = typename Select<sizeof(TOut) == 2,
                                      WgmmaWindowStore<TAcc, OUT_BF16_, (STORE < 4), kTilesM, BLOCK_N, kConsumerRegisters - kSums,
                                                       Classes::kFirst, kWidth, StripRows>,
                                      WgmmaPairStore<TAcc, (STORE < 8), kTilesM, BLOCK_N, StripRows>>::type;
  using Strips = WgmmaStrips<TAcc, kRows, kColumns>;
  using Fragments = WgmmaFragments<Rows>;
  using PanelStore = WgmmaPanelStore<Fragments, TAcc, TOut, kColumns, kStoreSlots, kExchanged>;
  using Space = Space_;
  // The loops over k, and the ways into C, of which a launch takes one each; how operands are loaded.
  static constexpr bool kShares = false;
  using Loops = WgmmaForms<WgmmaTraits>;
  using Stores = WgmmaForms<WgmmaTraits>;
  template <class... Where>
  __device__ __forceinline__ static void load_a(const GemmArguments&, const Where&... where) { A::load(where...); }
  template <class... Where>
  __device__ __forceinline__ static void load_b(const GemmArguments&, const Where&... where) { B::load(where...); }

  // Slice s of batch b may as well be called batch s * batches + b: nobody asks for the batch of a slice. Which form leaves
  // registers to spare was found by compiling.
  static constexpr bool kSlicesAreBatches =
      kFed || (PING_PONG && B_K_MAJOR && STORE < 16 && !Space_::PACK_A && !Space_::PACK_B);

  static_assert(kRows % (64 * kSharers) == 0, "a consumer multiplies whole 64 rows");
  static_assert(LOADED_M == BLOCK_M || (LOADED_M < 64 && BLOCK_M == 64), "rows of one wgmma");
  static_assert(LOADED_M == BLOCK_M || (A_K_MAJOR && !kFromRegisters), "rows of A follow each other");
  static_assert(LOADED_M == BLOCK_M || LOADED_M * 128 + B::kBytes >= BLOCK_M * 128, "wgmma reads within the stage");
  static_assert(!PING_PONG || CONSUMERS == 2, "two consumers take turns");
  static_assert(BLOCK_N % 16 == 0 || (BLOCK_N % 8 == 0 && CONSUMERS == 1), "TMA writes whole panels of C");
  static_assert(A_K_MAJOR || B_K_MAJOR || !kFromRegisters, "one operand comes from registers");
  static_assert(!kFromRegisters || kStoreRowBytes == 128, "two warps write panels of 32 x 32");
  static_assert(kSums * (PROMOTED ? 2 : 1) <= (kFed ? 128 : 192), "accumulators must fit the registers");
  static_assert(!PROMOTED || (sizeof(TIn) == 1 && !PING_PONG && BLOCK_K % kPromotedEvery == 0), "whole stages are added up");
  static_assert(!kFed || CLUSTER_M * CLUSTER_N == 1, "each block feeds itself");
  static_assert(CLASSES == 1 || (A_K_MAJOR && !B_K_MAJOR && !kFed && !PROMOTED && !kFromRegisters), "rows of B along k");
  static_assert(CLASSES == 1 || (STORE < 16 && sizeof(TOut) == 2), "windows write parts of a tile");
  static_assert(!kShifted || (A_K_MAJOR && sizeof(TIn) == 2 && !kFedB && CLASSES == 1 && CLUSTER_N == 1), "rows of A along k");
  static_assert(!kShifted || LOADED_M == BLOCK_M, "whole classes");
  static_assert(A_CLASSES < 8 || kTilesM % 2 == 0 || kTilesM == 1, "strips of eight classes are those of 128 rows");
  static_assert(CONSUMERS * 64 * kStoreRowBytes <= kRoom, "stages and C must fit shared memory");
  static_assert(kPeers <= 4, "one warp of a consumer for each block that it signals");
};

constexpr int kTilesAhead = 4;  // that the producer may be ahead of the consumers

// Where everything lies in a block's shared memory.
template <class Traits>
struct WgmmaShared {
  unsigned base;  // a multiple of 1024

  static constexpr int kStaging = Traits::STAGES * Traits::kStageBytes;
  static constexpr int kTiles = kStaging + Traits::CONSUMERS * 4 * Traits::kStagedBytes;
  static constexpr int kBarriers = kTiles + kTilesAhead * int(sizeof(WgmmaTile));

  __device__ __forceinline__ unsigned a(int stage) const { return base + stage * Traits::kStageBytes; }
  __device__ __forceinline__ unsigned b(int stage) const { return a(stage) + Traits::A::kBytes; }
  __device__ __forceinline__ WgmmaTile* tile(int place) const {
    return static_cast<WgmmaTile*>(__cvta_shared_to_generic(base + kTiles)) + place;
  }
  __device__ __forceinline__ unsigned staging(int warp) const { return base + kStaging + warp * Traits::kStagedBytes; }
  // A stage has arrived; it may be overwritten; the next tile is known; all consumers know it; a consumer's turn has come.
  __device__ __forceinline__ unsigned full(int stage) const { return base + kBarriers + stage * ptx::kMbarrierBytes; }
  __device__ __forceinline__ unsigned empty(int stage) const { return full(Traits::STAGES + stage); }
  __device__ __forceinline__ unsigned told(int place) const { return full(2 * Traits::STAGES + place); }
  __device__ __forceinline__ unsigned known(int place) const { return told(kTilesAhead + place); }
  __device__ __forceinline__ unsigned turn(int consumer) const { return told(2 * kTilesAhead + consumer); }

  // Each warp but the producer makes some of the barriers, one behind the other: the address and the value of one that is
  // made must be the warp's.
  __device__ __forceinline__ void make_barriers(int warp) const {
    if (threadIdx.x % 32 != 0) return;
    if (warp == 1) make<Traits::STAGES>(full(0), Traits::kFed ? 1 + kWarpgroup : 1);
    if (warp == 2) make<Traits::STAGES>(empty(0), Traits::kSharers * Traits::kPeers);
    if (warp == 3) {
      make<kTilesAhead>(told(0), 1);
      make<kTilesAhead>(known(0), 4 * Traits::CONSUMERS);
    }
    if (Traits::PING_PONG && warp == 4) make<2>(turn(0), 4);
    ptx::mbarrier_init_fence();
  }

 private:
  template <int COUNT>
  __device__ __forceinline__ static void make(unsigned first, int arrivals) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) ptx::mbarrier_init(first + i * ptx::kMbarrierBytes, arrivals);
  }
};

// What is the same in all lanes, so that the compiler knows it and keeps it in a register of the warp.
__device__ __forceinline__ int same(int value) { return int(__reduce_or_sync(~0u, unsigned(value))); }

// A place in the ring of stages, and the parity of the phase that ends when the stage is full.
template <int STAGES>
struct WgmmaRing {
  int stage = 0;
  unsigned phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ void skip(int steps) {
    const unsigned place = unsigned(stage) + unsigned(steps);
    phase ^= place / STAGES & 1;
    stage = int(place % STAGES);
  }
};

// Every warp, once: until the barriers are made. It is no fixed place in the program, so that each can prepare its own task.
template <class Traits>
__device__ __forceinline__ void wgmma_start() {
  if constexpr (Traits::CLUSTER_M * Traits::CLUSTER_N > 1) {
    ptx::cluster_start();
  } else {
    asm volatile("barrier.sync 0;\n" ::: "memory");
  }
}

// Of rows of B in CLASSES (wgmma_classes.cuh): which class a step of k belongs to. Without classes it has no members and
// computes nothing: a producer has few registers.
template <int CLASSES, int BLOCK_K>
class WgmmaClassOfStep {
 public:
  __device__ __forceinline__ explicit WgmmaClassOfStep(int k)
      : by_class_(unsigned(max_of(WgmmaClasses<CLASSES>::template steps<BLOCK_K>(k), 1))) {}

  // Of the `step`-th step; `k` becomes its first row of the class.
  __device__ __forceinline__ int of(int step, int& k) const {
    unsigned within = unsigned(step);
    const unsigned number = by_class_.divide(within, within);
    k = int(within) * BLOCK_K;
    return int(number);
  }

 private:
  Divisor by_class_;  // the steps of one
};

template <int BLOCK_K>
class WgmmaClassOfStep<1, BLOCK_K> {
 public:
  __device__ __forceinline__ explicit WgmmaClassOfStep(int) {}
  __device__ __forceinline__ int of(int, int&) const { return 0; }
};

// One warp: asks for all of A and B that this block multiplies, or for its share of what the cluster shares, and tells the
// consumers which tiles come. All lanes walk alike, so that their registers are the warp's; the first one asks and tells.
// Where TMA cannot read an operand, four warps do so, walk alike, and each thread copies some of it.
template <class Traits>
class WgmmaProducer {
 public:
  static constexpr int CLUSTER_M = Traits::CLUSTER_M, CLUSTER_N = Traits::CLUSTER_N;

  using MapsA = WgmmaMaps<Traits::A_CLASSES>;
  using Maps = WgmmaMaps<Traits::CLASSES>;

  __device__ __forceinline__ WgmmaProducer(const WgmmaShared<Traits>& shared, const MapsA& maps_a, const Maps& maps_b,
                                           const GemmArguments& args)
      : shared_(shared), maps_a_(maps_a), maps_b_(maps_b), class_(args.k),
        first_lane_(threadIdx.x % (Traits::kFed ? kWarpgroup : 32) == 0) {
    if constexpr (Traits::kMayStreamB) policy_b_ = ptx::cache_policy(Traits::Walk::one_row(args));
  }

  // A tile's first step is asked for before anybody hears of the tile: the copy takes longer than the news.
  __device__ __forceinline__ void run(const GemmArguments& args) {
    typename Traits::Walk walk(args);
    WgmmaTile tile;
    bool more = walk.next(tile);
    wgmma_start<Traits>();
    int asked = 0;
    if constexpr (Traits::kEarly) asked = ask_early(args, tile, more ? min_of(tile.steps, Traits::STAGES) : 0);
    WgmmaRing<kTilesAhead> places;
    for (; more; places.advance()) {
      if (asked == 0 && tile.steps > 0) ask(args, tile, asked++);
      tell(tile, places);
#pragma unroll 1
      for (int step = asked; step < tile.steps; ++step) ask(args, tile, step);
      more = walk.next(tile);
      asked = 0;
    }
    tile.steps = -1;
    tell(tile, places);
    if constexpr (CLUSTER_M * CLUSTER_N > 1) wait_for_signals();
  }

 private:
  // For one step of a tile, once the next place of the ring is free.
  __device__ __forceinline__ void ask(const GemmArguments& args, const WgmmaTile& tile, int step) {
    const int k = (tile.first_step + step) * Traits::BLOCK_K, m = same(tile.m), n = same(tile.n), batch = same(tile.batch);
    ptx::mbarrier_wait(shared_.empty(ring_.stage), ring_.phase ^ 1);
    if (first_lane_) {
      ptx::mbarrier_expect(shared_.full(ring_.stage), Traits::kBytesOfTma);
      if constexpr (!Traits::kFedA) load_a(args, ring_.stage, m, k, batch);
      if constexpr (!Traits::kFedB) load_b(args, ring_.stage, n, k, tile.first_step + step, batch);
    }
    if constexpr (Traits::kFed) feed(args, m, n, k, batch);
    ring_.advance();
  }

  // For the first `steps` steps of the first tile: the operand that is not copied, then, when the copy is complete, the
  // other one. All stages are free.
  __device__ __forceinline__ int ask_early(const GemmArguments& args, const WgmmaTile& tile, int steps) {
    const int first_k = tile.first_step * Traits::BLOCK_K, m = same(tile.m), n = same(tile.n), batch = same(tile.batch);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      if (!first_lane_) continue;
      ptx::mbarrier_expect(shared_.full(step), Traits::kBytesOfTma);
      if constexpr (Traits::kEarlyA) load_a(args, step, m, first_k + step * Traits::BLOCK_K, batch);
      if constexpr (Traits::kEarlyB) load_b(args, step, n, first_k + step * Traits::BLOCK_K, tile.first_step + step, batch);
    }
    wait_for_earlier_grids();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      if (!first_lane_) continue;
      if constexpr (!Traits::kEarlyA) load_a(args, step, m, first_k + step * Traits::BLOCK_K, batch);
      if constexpr (!Traits::kEarlyB) load_b(args, step, n, first_k + step * Traits::BLOCK_K, tile.first_step + step, batch);
    }
    ring_.skip(steps);
    return steps;
  }

  // Blocks of the same rows share A: every CLUSTER_M-th; of the same columns B: CLUSTER_M neighbours.
  __device__ __forceinline__ void load_a(const GemmArguments& args, int stage, int m, int k, int batch) const {
    const int rank = int(blockIdx.x) % (CLUSTER_M * CLUSTER_N);
    unsigned same_rows = 0;
#pragma unroll
    for (int i = 0; i < CLUSTER_N; ++i) same_rows |= 1u << (i * CLUSTER_M);
    if constexpr (Traits::kShifted) {
      Traits::A::load(maps_a_, shared_.a(stage), shared_.full(stage), m, k, batch);
    } else {
      Traits::load_a(args, *maps_a_.of[0], shared_.a(stage), shared_.full(stage), m, k, batch, rank / CLUSTER_M,
                     same_rows << rank % CLUSTER_M);
    }
  }
  // The `step`-th one of all, which begins at `k`.
  __device__ __forceinline__ void load_b(const GemmArguments& args, int stage, int n, int k, int step, int batch) const {
    const int number = class_.of(step, k);
    const int rank = int(blockIdx.x) % (CLUSTER_M * CLUSTER_N);
    const unsigned same_columns = ((1u << CLUSTER_M) - 1) << (rank / CLUSTER_M * CLUSTER_M);
    const TensorMap& map = maps_b_.at(number);
    const unsigned target = shared_.b(stage), full = shared_.full(stage);
    if constexpr (Traits::kMayStreamB) {
      Traits::load_b(args, map, target, full, n, k, batch, rank % CLUSTER_M, same_columns, policy_b_);
    } else {
      Traits::load_b(args, map, target, full, n, k, batch, rank % CLUSTER_M, same_columns);
    }
  }

  // This thread's part of what TMA does not copy.
  __device__ __forceinline__ void feed(const GemmArguments& args, int m, int n, int k, int batch) const {
    using T = typename Traits::TIn;
    if constexpr (Traits::kFedA) {
      const auto part = wgmma_part<T, Traits::A_K_MAJOR>(args.a, args.lda, args.stride_a, args.m, args.k, m, k, batch);
      Traits::FeedA::copy(part, shared_.a(ring_.stage), int(threadIdx.x));
    }
    if constexpr (Traits::kFedB) {
      const auto part = wgmma_part<T, Traits::B_K_MAJOR>(args.b, args.ldb, args.stride_b, args.n, args.k, n, k, batch);
      Traits::FeedB::copy(part, shared_.b(ring_.stage), int(threadIdx.x));
    }
    ptx::cp_async_arrive(shared_.full(ring_.stage));
  }

  __device__ __forceinline__ void tell(const WgmmaTile& tile, const WgmmaRing<kTilesAhead>& places) const {
    if (Traits::kFed && threadIdx.x >= 32) return;
    ptx::mbarrier_wait(shared_.known(places.stage), places.phase ^ 1);
    if (!first_lane_) return;
    *shared_.tile(places.stage) = tile;
    ptx::mbarrier_arrive(shared_.told(places.stage));
  }

  // Other blocks still signal this one's barriers: it must not end before.
  __device__ __forceinline__ void wait_for_signals() {
    for (int stage = 0; stage < Traits::STAGES; ++stage) {
      ptx::mbarrier_wait(shared_.empty(ring_.stage), ring_.phase ^ 1);
      ring_.advance();
    }
  }

  WgmmaShared<Traits> shared_;
  MapsA maps_a_;
  Maps maps_b_;
  WgmmaClassOfStep<Traits::CLASSES, Traits::BLOCK_K> class_;
  bool first_lane_;
  WgmmaRing<Traits::STAGES> ring_;
  unsigned long long policy_b_;  // of kernels that may stream B; as a member in another place it moves registers of others
};

// One warpgroup: multiplies, and writes C.
template <class Traits>
class WgmmaConsumer {
 public:
  using TAcc = typename Traits::TAcc;
  using TOut = typename Traits::TOut;
  using Strips = typename Traits::Strips;

  // What is computed of doubles is computed before there is anything to wait for.
  __device__ __forceinline__ WgmmaConsumer(const GemmArguments& args, const WgmmaShared<Traits>& shared, int consumer)
      : shared_(shared), consumer_(consumer), warp_(__shfl_sync(~0u, int(threadIdx.x) / 32 % 4, 0)),
        by_tma_(ptx::computed_here(int(args.beta == 0 && args.split_k == 1))),
        alpha_(ptx::computed_here(TAcc(args.alpha))) {}

  __device__ __forceinline__ void run(const GemmArguments& args, const TensorMap& map_c) {
    wgmma_start<Traits>();
    if constexpr (Traits::kEarly) wait_for_earlier_grids();
    WgmmaRing<Traits::STAGES> ring;
    WgmmaRing<kTilesAhead> places;
    for (int number = 0;; ++number, places.advance()) {
      const WgmmaTile& told = *shared_.tile(places.stage);
      ptx::mbarrier_wait(shared_.told(places.stage), places.phase);
      const int steps = same(told.steps);
      if (steps < 0) break;
      WgmmaTile tile{steps, same(told.m), same(told.n), same(told.batch), same(told.slice), 0,
                     same(told.first_block), same(told.ends)};
      if constexpr (Traits::kSlicesAreBatches) {
        tile.batch += tile.slice * args.batch;
        tile.slice = 0;
      }
      know(places.stage);
      if (Traits::PING_PONG && number % 2 != consumer_) {
        ring.skip(steps);
        continue;
      }
      typename Traits::Sums sum;
      if constexpr (Traits::kShares) clear(sum);  // else each loop would define them, and ptxas wait for every product
      if constexpr (Traits::PING_PONG) ptx::mbarrier_wait(shared_.turn(consumer_), (number / 2 + 1 + consumer_) % 2);
      if constexpr (Traits::CLASSES > 1) {
        multiply_classes(sum, ring, Traits::Classes::template steps<Traits::BLOCK_K>(args.k));
      } else if constexpr (Traits::kShifted) {
        multiply_shifted(args, sum, ring, steps);
      } else if constexpr (Traits::PROMOTED) {
        multiply_promoted(sum, ring, steps);
      } else {
        multiply_in(typename Traits::Loops{}, args, sum, ring, steps);
      }
      if (Traits::CLASSES > 1 || Traits::kShifted) {  // no steps are shared: collecting pieces would take registers
        write(args, map_c, sum, tile);
      } else if (tile.ends) {
        collect(args, sum, tile.first_block);
        write(args, map_c, sum, tile);
      } else {
        park(args, sum);
      }
    }
    if constexpr (Traits::kTmaStores) Traits::TmaStore::finish();
  }

 private:
  // The warp has read what it was told of a tile.
  __device__ __forceinline__ void know(int place) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.known(place));
  }

  // By the loop for the operands as this launch has them.
  template <class Loop, class... Others>
  __device__ __forceinline__ void multiply_in(WgmmaForms<Loop, Others...>, const GemmArguments& args, typename Traits::Sums& sum,
                                              WgmmaRing<Traits::STAGES>& ring, int steps) {
    if constexpr (sizeof...(Others) == 0) {
      multiply<Loop>(sum, ring, steps);
    } else if (Loop::is_of(args)) {
      multiply<Loop>(sum, ring, steps);
    } else {
      multiply_in(WgmmaForms<Others...>{}, args, sum, ring, steps);
    }
  }

  // Adds up all steps of a tile, one batch of wgmmas behind the other; a stage is given back once the next batch is on
  // its way.
  template <class Loop>
  __device__ __forceinline__ void multiply(typename Traits::Sums& sum,
                                           WgmmaRing<Traits::STAGES>& ring, int steps) {
    int before = 0;
    const unsigned lane_place = place_of_lane();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(shared_.full(ring.stage), ring.phase);
      // What threads have copied must be seen by wgmma, which reads shared memory as TMA does.
      if constexpr (Traits::kFed) ptx::fence_async_proxy();
      if constexpr (Traits::kFromRegisters) {
        multiply_from_registers(sum, ring.stage, lane_place, step, before);
      } else {
        ptx::wgmma_fence();
        multiply_stage<Loop, 0, Traits::A::kSteps>(sum, ring.stage, step > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (step > 0) give_back(before);
      }
      before = ring.stage;
      ring.advance();
    }
    if constexpr (Traits::PING_PONG) {
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.turn(consumer_ ^ 1));
    }
    ptx::wgmma_wait<0>();
    if (steps > 0) give_back(before);
    if (!Traits::kShares && steps == 0) clear(sum);
  }

  // The same class by class, each of which has steps, with sums that move between them.
  __device__ __forceinline__ void multiply_classes(typename Traits::Sums& sum, WgmmaRing<Traits::STAGES>& ring,
                                                   int steps_of_class) {
    add_class(sum, ring, steps_of_class, 0, false);
    int number = 1;
#pragma unroll 1
    do {
      move(sum);
      add_class(sum, ring, steps_of_class, 1, number + 1 == Traits::CLASSES);
    } while (++number < Traits::CLASSES);
  }

  __device__ __forceinline__ static void move(typename Traits::Sums& sum) {
    const int lane = lane_here();
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i) {
      // Not before the last product has been waited for, and back into floating-point registers here: the compiler would
      // carry words through the loop of products, and copy them into accumulators there, which ptxas waits for.
      computed_here(sum[i]);
      Traits::Classes::template move<Traits::BLOCK_N>(sum[i], lane);
      computed_here(sum[i]);
    }
  }

  template <int COUNT>
  __device__ __forceinline__ static void computed_here(TAcc (&sum)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] = ptx::computed_here(sum[i]);
  }

  // The steps of a class. No path leads around them, on which `sum` would have to be copied, and `add` says whether it
  // has a value before.
  __device__ __forceinline__ void add_class(typename Traits::Sums& sum, WgmmaRing<Traits::STAGES>& ring, int steps, int add,
                                            bool last) {
    int before = 0, step = 0;
#pragma unroll 1
    do {
      ptx::mbarrier_wait(shared_.full(ring.stage), ring.phase);
      ptx::wgmma_fence();
      multiply_stage<Traits, 0, Traits::A::kSteps>(sum, ring.stage, add | (step > 0));
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (step > 0) give_back(before);
      before = ring.stage;
      ring.advance();
    } while (++step < steps);
    if (Traits::PING_PONG && last && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.turn(consumer_ ^ 1));
    ptx::wgmma_wait<0>();
    give_back(before);
  }

  // The same where wgmma's own sums are short: each is added to `sum` when it is done, while another consumer, or another
  // block of the multiprocessor, multiplies.
  __device__ __forceinline__ void multiply_promoted(typename Traits::Sums& sum, WgmmaRing<Traits::STAGES>& ring, int steps) {
    constexpr int kSteps = Traits::kStepsOfSum, kParts = Traits::A::kSteps / kSteps;
    clear(sum);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(shared_.full(ring.stage), ring.phase);
      if constexpr (Traits::kFed) ptx::fence_async_proxy();
      add_part<0, kSteps>(sum, ring.stage);
      if constexpr (kParts == 2) add_part<kSteps, kSteps>(sum, ring.stage);
      ring.advance();
    }
  }

  // Steps of a stage, which is given back with the last one.
  template <int FIRST, int COUNT>
  __device__ __forceinline__ void add_part(typename Traits::Sums& sum, int stage) {
    typename Traits::Sums part;
    ptx::wgmma_fence();
    multiply_stage<Traits, FIRST, COUNT>(part, stage, 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    if constexpr (FIRST + COUNT == Traits::A::kSteps) give_back(stage);
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < Traits::kColumns / 2; ++j) sum[i][j] += part[i][j];
  }

  // Some steps of k, from FIRST on, of a stage; `add`: to what is in `sum`.
  template <class Loop, int FIRST, int COUNT>
  __device__ __forceinline__ void multiply_stage(typename Traits::Sums& sum, int stage, int add) {
    using A = typename Loop::A;
    using B = typename Loop::B;
    constexpr int kRowsBytes = A::after_elements(64 * Traits::kTilesM) * 16;
    const unsigned rows = Traits::PING_PONG ? 0 : consumer_ * kRowsBytes;
    const unsigned long long a = A::descriptor(shared_.a(stage) + rows), b = B::descriptor(shared_.b(stage));
#pragma unroll
    for (int step = FIRST; step < FIRST + COUNT; ++step) {
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) {
        Loop::Multiply::template add<B>(sum[i], a + (A::after_steps(step) + A::after_elements(64 * i)),
                                          b + B::after_steps(step), step > FIRST ? 1 : add);
      }
    }
  }

  // Where in a tile of rows this lane's first ones lie, if it takes them into registers.
  __device__ __forceinline__ unsigned place_of_lane() const {
    if constexpr (Traits::kFromRegisters) {
      constexpr int kRowsBytes = Traits::kTilesM * 2 * Traits::Rows::kPanelBytes;
      return (Traits::PING_PONG ? 0 : consumer_ * kRowsBytes) + Traits::Fragments::place_of(warp_, lane_here());
    } else {
      return 0;
    }
  }

  // The same for rows from registers. Those of a step of k are loaded while the steps before are multiplied, into
  // registers that the last step but kSets has left; with them goes what reads the stage before.
  __device__ __forceinline__ void multiply_from_registers(typename Traits::Sums& sum, int stage, unsigned lane_place, int step,
                                                          int before) {
    using Fragments = typename Traits::Fragments;
    using Columns = typename Traits::Columns;
    const unsigned place = (Traits::kExchanged ? shared_.b(stage) : shared_.a(stage)) + lane_place;
    const unsigned long long columns = Columns::descriptor(Traits::kExchanged ? shared_.a(stage) : shared_.b(stage));
    unsigned words[Fragments::kSets][Traits::kTilesM][4];
#pragma unroll
    for (int part = 0; part < Columns::kSteps; ++part) {
      auto& loaded = words[part % Fragments::kSets];
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) Fragments::load(loaded[i], place, i, part);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) {
        Traits::Multiply::template add<Columns>(sum[i], loaded[i], columns + Columns::after_steps(part),
                                                part > 0 ? 1 : int(step > 0));
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<Fragments::kSets - 1>();
      if (part == Fragments::kSets - 2 && step > 0) give_back(before);
    }
  }

  // The same for rows that are shifted in registers.
  __device__ __forceinline__ void multiply_shifted(const GemmArguments& args, typename Traits::Sums& sum,
                                                   WgmmaRing<Traits::STAGES>& ring, int steps) {
    using Rows = typename Traits::ShiftedRows;
    using B = typename Traits::B;
    typename Rows::Lane lanes[Traits::kTilesM];
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i) lanes[i] = typename Rows::Lane(args, first_row() / kStripRows + 4 * i);
    unsigned further[Traits::kTilesM][4] = {};
    int before = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(shared_.full(ring.stage), ring.phase);
      const unsigned long long b = B::descriptor(shared_.b(ring.stage));
      unsigned words[Rows::kSets][Traits::kTilesM][4];
#pragma unroll
      for (int part = 0; part < Rows::kSteps; ++part) {
        auto& loaded = words[part % Rows::kSets];
#pragma unroll
        for (int i = 0; i < Traits::kTilesM; ++i) Rows::load(loaded[i], further[i], lanes[i], shared_.a(ring.stage), part);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < Traits::kTilesM; ++i) {
          Traits::Multiply::template add<B>(sum[i], loaded[i], b + B::after_steps(part), part > 0 ? 1 : int(step > 0));
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<Rows::kSets - 1>();
        if (part == Rows::kSets - 2 && step > 0) give_back(before);
      }
      before = ring.stage;
      ring.advance();
    }
    if constexpr (Traits::PING_PONG) {
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.turn(consumer_ ^ 1));
    }
    ptx::wgmma_wait<0>();
    if (steps > 0) give_back(before);
    if (steps == 0) clear(sum);
  }

  // Lets the blocks that copy into this stage overwrite it: a lane of another warp signals each of them.
  __device__ __forceinline__ void give_back(int stage) const {
    constexpr int CLUSTER_M = Traits::CLUSTER_M, CLUSTER_N = Traits::CLUSTER_N;
    if (warp_ >= Traits::kPeers || threadIdx.x % 32 != 0) return;
    if constexpr (Traits::kPeers == 1) {
      ptx::mbarrier_arrive(shared_.empty(stage));
    } else {
      const int rank = int(blockIdx.x) % (CLUSTER_M * CLUSTER_N), rank_m = rank % CLUSTER_M;
      // The blocks of the same rows, this one among them, then the others of the same columns.
      const int block = warp_ < CLUSTER_N ? rank_m + warp_ * CLUSTER_M
                                          : rank - rank_m + (rank_m + warp_ - CLUSTER_N + 1) % CLUSTER_M;
      ptx::mbarrier_arrive_at(shared_.empty(stage), block);
    }
  }

  // The fence keeps it a branch, which costs nothing where there are steps: choosing each sum would take as long as a step.
  __device__ __forceinline__ static void clear(typename Traits::Sums& sum) {
    compiler_fence();
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < Traits::kColumns / 2; ++j) sum[i][j] = TAcc(0);
  }

  // Stream-K: leaves the piece of a tile that a later block ends. Each warp has a flag and waits for its like only.
  __device__ __forceinline__ void park(const GemmArguments& args,
                                       const typename Traits::Sums& sum) const {
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i) Strips::store(parked(args, int(blockIdx.x), i), sum[i]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::store_release(flag(args, int(blockIdx.x)), 1u);
  }

  // Adds what the blocks of the same rank before this one have of the tile, in their order: two runs give the same bits.
  __device__ __forceinline__ void collect(const GemmArguments& args, typename Traits::Sums& sum,
                                          int first_block) const {
#pragma unroll 1
    for (int block = first_block; block < int(blockIdx.x); block += Traits::CLUSTER_M * Traits::CLUSTER_N) {
      // All lanes ask. If one did, the compiler would take the loop over tiles for one in which lanes part, and keep what
      // wgmma and TMA want in registers of the warp in those of each lane.
      while (ptx::load_acquire(flag(args, block)) == 0u) {
      }
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) {
        Strips::template add<Traits::kConsumerRegisters - Traits::kSums>(parked(args, block, i), sum[i]);
      }
    }
  }

  // Of this warp: its first row within a tile, by the order of strips and by that of rows; where a block has parked its
  // i-th strip, and the block's flag for that.
  __device__ __forceinline__ int first_row() const {
    return (Traits::PING_PONG ? 0 : consumer_ * (64 * Traits::kTilesM)) + warp_ * kStripRows;
  }
  __device__ __forceinline__ int first_written_row() const {
    return Traits::kShifted ? Traits::StripRows::first(first_row() / kStripRows) : first_row();
  }
  __device__ __forceinline__ typename Strips::Word* parked(const GemmArguments& args, int block, int i) const {
    const long long strip = (long long)block * Strips::kOfTile + first_row() / kStripRows + 4 * i;
    return Strips::at(typename Traits::Space(args).template parked<TAcc>(), strip);
  }
  __device__ __forceinline__ unsigned* flag(const GemmArguments& args, int block) const {
    return typename Traits::Space(args).flags() + block * (4 * Traits::kSharers) + (Traits::PING_PONG ? 0 : consumer_ * 4) + warp_;
  }

  __device__ __forceinline__ void write(const GemmArguments& args, const TensorMap& map_c, const typename Traits::Sums& sum,
                                        const WgmmaTile& tile) const {
    if constexpr (Traits::kFromRegisters) {
      write_panels(args, map_c, sum, tile);
    } else {
      write_strips(typename Traits::Stores{}, args, map_c, sum, tile);
    }
  }

  // C may be aligned, or not.
  template <class Narrow, class Aligned>
  __device__ __forceinline__ void write_strips(WgmmaForms<Narrow, Aligned>, const GemmArguments& args, const TensorMap& map_c,
                                               const typename Traits::Sums& sum, const WgmmaTile& tile) const {
    if (Aligned::is_of(args)) {
      write_strips(WgmmaForms<Aligned>{}, args, map_c, sum, tile);
    } else {
      write_strips(WgmmaForms<Narrow>{}, args, map_c, sum, tile);
    }
  }

  // Rows came from registers: two warps have 32 of them, or of C's columns, between them.
  __device__ __forceinline__ void write_panels(const GemmArguments& args, const TensorMap& map_c,
                                               const typename Traits::Sums& sum, const WgmmaTile& tile) const {
    const int pair = consumer_ * 2 + warp_ / 2;
    const int first = (Traits::PING_PONG ? 0 : consumer_ * (64 * Traits::kTilesM)) + warp_ / 2 * 32;
    const typename Traits::PanelStore panels{shared_.staging(2 * pair), 1 + pair, warp_};
    auto output = output_c<TAcc, TOut, Traits::STORE>(args, tile.batch);
    output.alpha = alpha_;
    if (args.split_k > 1) {  // a slice is a matrix like C, and its rows are as long
      const long long part = (long long)tile.slice * args.batch + tile.batch;
      output.base = typename Traits::Space(args).template slices<TOut>() + part * args.m * args.n;
      output.pitch = args.n;
      output.alpha = TAcc(1);
      output.beta = TAcc(0);
    }
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i) {
      const int row = tile.m + (Traits::kExchanged ? 0 : first + 64 * i);
      const int column = tile.n + (Traits::kExchanged ? first + 64 * i : 0);
      panels.store(output, map_c, Traits::STORE == 16 && by_tma_, sum[i], row, column, tile.batch,
                   c_policy<TOut>(args.m, args.n, args.batch));
    }
  }

  template <class Store>
  __device__ __forceinline__ void write_strips(WgmmaForms<Store>, const GemmArguments& args, const TensorMap& map_c,
                                               const typename Traits::Sums& sum, const WgmmaTile& tile) const {
    const int place = consumer_ * 4 + warp_, row = tile.m + first_written_row();
    if constexpr (Store::STORE == 16) {
      if (by_tma_) {
#pragma unroll
        for (int i = 0; i < Traits::kTilesM; ++i) {
          const unsigned staging = shared_.staging(place);
          if constexpr (Store::kDirect) {
            Store::DirectStore::store(args, staging, sum[i], alpha_, row + Traits::StripRows::after(i), tile.n, tile.batch);
          } else {
            Store::TmaStore::store(args, map_c, staging, sum[i], alpha_, row + 64 * i, tile.n, tile.batch);
          }
        }
        return;
      }
    }
    if (Traits::CLASSES == 1 && args.split_k > 1) {
      if (tile.m >= args.m || tile.n >= args.n) return;  // a cluster's tiles may lie outside
      void* const slices = typename Traits::Space(args).template slices<TAcc>();
      const long long part = (long long)tile.slice * args.batch + tile.batch;
      const long long strip = part * Strips::of_slice(args) + Strips::in_slice(args, tile.m + first_row(), tile.n);
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) Strips::store(Strips::at(slices, strip + 4 * i), sum[i]);
      return;
    }
    TAcc* const staged = static_cast<TAcc*>(__cvta_shared_to_generic(shared_.staging(place)));
    const auto to_c = output_c<TAcc, TOut, Store::STORE>(args, tile.batch);
    if constexpr (Store::STORE < 16) {
      Store::WindowStore::store(to_c, sum, row, tile.n - Traits::Classes::kFirst);
    } else {
      Store::RowStore::store(to_c, staged, sum, row, tile.n);
    }
  }

  WgmmaShared<Traits> shared_;
  int consumer_;
  int warp_;    // of the consumer
  int by_tma_;  // C is written by TMA, if its rows allow it
  TAcc alpha_;
};

template <class Traits>
__device__ __forceinline__ void gemm_wgmma(const GemmArguments& args, const WgmmaMaps<Traits::A_CLASSES>& maps_a,
                                           const WgmmaMaps<Traits::CLASSES>& maps_b, const TensorMap& map_c) {
  extern __shared__ unsigned char shared_bytes[];
  const WgmmaShared<Traits> shared{(ptx::shared_address(shared_bytes) + 1023) / 1024 * 1024};
  // The same in every lane: what follows from it need not be computed by each.
  const int warp = int(__reduce_or_sync(~0u, threadIdx.x / 32));
  if (warp == 0) {
    if constexpr (!Traits::kFedA) maps_a.prefetch();
    if constexpr (!Traits::kFedB) maps_b.prefetch();
  } else {
    shared.make_barriers(warp);
  }
  if constexpr (!Traits::kEarly) wait_for_earlier_grids();
  if (warp < 4) {
    if constexpr (Traits::kMoveRegisters) ptx::give_registers<Traits::kProducerRegisters>();
    if (warp == 0 || Traits::kFed) {
      WgmmaProducer<Traits>(shared, maps_a, maps_b, args).run(args);
    } else {
      if constexpr (Traits::kTmaStores) {
        if (warp == 1) ptx::prefetch(map_c);
      }
      wgmma_start<Traits>();
    }
  } else {
    if constexpr (Traits::kMoveRegisters) ptx::take_registers<Traits::kConsumerRegisters>();
    WgmmaConsumer<Traits>(args, shared, warp / 4 - 1).run(args, map_c);
  }
}

}  // namespace kt
