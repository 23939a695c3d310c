// The producer of `wgmma`: one warp that asks for what the consumers multiply.

namespace kt {

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
    RingPlace<kTilesAhead> places;
    for (; more; places.advance()) {
      if (asked == 0 && tile.steps > 0) ask(args, tile, asked++);
      tell(args, tile, places);
#pragma unroll 1
      for (int step = asked; step < tile.steps; ++step) ask(args, tile, step);
      more = walk.next(tile);
      asked = 0;
    }
    tile.steps = -1;
    tell(args, tile, places);
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
      if constexpr (Traits::kTmaB) load_b(args, ring_.stage, n, k, tile.first_step + step, batch);
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

  __device__ __forceinline__ void tell(const GemmArguments& args, const WgmmaTile& tile,
                                       const RingPlace<kTilesAhead>& places) const {
    if (Traits::kFed && threadIdx.x >= 32) return;
    ptx::mbarrier_wait(shared_.known(places.stage), places.phase ^ 1);
    if (!first_lane_) return;
    WgmmaTile told = tile;
    if constexpr (Traits::kSlicesAreBatches) told.batch += tile.slice * args.batch;
    *shared_.tile(places.stage) = told;
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
  RingPlace<Traits::STAGES> ring_;
  unsigned long long policy_b_;  // of kernels that may stream B; as a member in another place it moves registers of others
};

}  // namespace kt
