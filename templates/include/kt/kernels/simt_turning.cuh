// The steps of k of `simt` where TMA copies operands along k as they lie, and threads turn them in shared memory (sm_90).
//
// Copies arrive in a ring of STAGES - 1 slots. While a step is multiplied, the threads turn the next one into the other of two
// tiles [k][mn], a few words between the products of two k: that takes four registers for a moment, where turning on the way
// from global memory (turned_tile.cuh) holds a thread's part of a tile for a whole step. So there is room for thread tiles
// of 8x16, which leave shared memory the time for it.
//
// Steps begin at k = 0, so that rows of a class are always shifted alike; what lies beyond the last k arrives as zeros.

namespace kt {

// What a thread turns between the products of a step.
template <class Traits>
struct Turning {
  using BoxA = typename Traits::BoxA;
  using BoxB = typename Traits::BoxB;
  static constexpr int kRounds = Traits::kSliceK / Traits::UNROLL;
  static constexpr int kOfA = BoxA::kPasses / kRounds, kUnits = kOfA + BoxB::kPasses / kRounds;  // of a round
  // With a single slot, the next step is on its way during the first half of the present one.
  static constexpr int kFrom = Traits::STAGES == 2 ? Traits::UNROLL / 2 : 0;
  static constexpr int kAtOnce = cdiv(kUnits, Traits::UNROLL - kFrom);

  static_assert(BoxA::kPasses % kRounds == 0 && BoxB::kPasses % kRounds == 0, "rounds are alike");
  static_assert(Traits::STAGES > 2 || kRounds == 1, "the second half of a step is one of straight code");

  unsigned source_a, target_a, source_b, target_b;
  const typename Traits::BoxA::Shifts& shifts_a;
  const typename Traits::BoxB::Shifts& shifts_b;
  unsigned barrier, parity;  // of the next step
  bool more;                 // there is one
  typename Traits::TIn held[kAtOnce][4];

  // Units that are turned before the products of k number `j` of a round.
  static constexpr __device__ int before(int j) { return max_of(j - kFrom, 0) * kUnits / (Traits::UNROLL - kFrom); }

  __device__ __forceinline__ void wait() const {
    if (more) ptx::mbarrier_wait(barrier, parity);
  }

  __device__ __forceinline__ void load(int round, int j) {
    if (Traits::STAGES == 2 && j == kFrom) wait();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int unit = before(j) + i;
      if (unit < before(j + 1)) load_unit(held[i], round, unit);
    }
  }
  __device__ __forceinline__ void store(int round, int j) const {
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int unit = before(j) + i;
      if (unit < before(j + 1)) store_unit(held[i], round, unit);
    }
  }

  __device__ __forceinline__ void load_unit(typename Traits::TIn (&group)[4], int round, int unit) const {
    if (unit < kOfA) {
      BoxA::load(group, shifts_a, source_a + unsigned((round * kOfA + unit) * BoxA::kSourceStep));
    } else {
      BoxB::load(group, shifts_b, source_b + unsigned((round * (kUnits - kOfA) + unit - kOfA) * BoxB::kSourceStep));
    }
  }
  __device__ __forceinline__ void store_unit(const typename Traits::TIn (&group)[4], int round, int unit) const {
    if (unit < kOfA) {
      ptx::store_shared(target_a + unsigned((round * kOfA + unit) * BoxA::kTargetStep), group);
    } else {
      ptx::store_shared(target_b + unsigned((round * (kUnits - kOfA) + unit - kOfA) * BoxB::kTargetStep), group);
    }
  }

  // All at once.
  __device__ __forceinline__ void turn() {
    wait();
#pragma unroll 1
    for (int round = 0; round < kRounds; ++round) {
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        load_unit(held[0], round, unit);
        store_unit(held[0], round, unit);
      }
    }
  }
};

// The ring, over all tiles of a block. The phases of its barriers go on from tile to tile.
template <class Traits>
class TurningRing {
  using MapsA = ClassMaps<Traits::BOXED_A>;
  using MapsB = ClassMaps<Traits::BOXED_B>;
  using BoxA = typename Traits::BoxA;
  using BoxB = typename Traits::BoxB;
  static constexpr int kSlots = Traits::STAGES - 1;

 public:
  // By all threads of the block. The slots lie behind the two tiles, the barriers behind these.
  __device__ __forceinline__ TurningRing(unsigned shared, const GemmArguments& args, const MapsA& maps_a, const MapsB& maps_b)
      : maps_a_(maps_a), maps_b_(maps_b), shared_(shared), shifts_a_(args.a, args.lda), shifts_b_(args.b, args.ldb) {
    if (threadIdx.x == 0) {
      maps_a_.prefetch();
      maps_b_.prefetch();
      init_barriers<kSlots>(barrier(0), 2);
      ptx::mbarrier_init_fence();
    }
    __syncthreads();
  }

  // Adds `steps` steps from `k` on of the tile at (m, n). All outside the operands arrives as zeros.
  __device__ __forceinline__ void multiply(SimtAccumulator<Traits>& accumulator, int m, int n, int k, int batch, int steps) {
    if (steps == 0) return;
    if (asks_a() || asks_b()) ptx::fence_async_proxy();  // results of the tile before may have gone through this memory
    int fill = slot_;
#pragma unroll
    for (int step = 0; step < kSlots; ++step) {
      if (step < steps) ask(fill, m, n, k + step * Traits::BLOCK_K, batch);
      fill = next(fill);
    }
    turning(tile(0), true).turn();
    advance();
    for (int step = 0; step < steps; ++step) {
      __syncthreads();  // the tile is complete; all have multiplied the one before, and turned what came in the next slot to fill
      if (step + kSlots < steps) ask(fill, m, n, k + kSlots * Traits::BLOCK_K, batch);
      fill = next(fill);
      k += Traits::BLOCK_K;
      const bool more = step + 1 < steps;
      const unsigned present = tile(step % 2), other = tile((step + 1) % 2);
      // After the last step what lies in a slot is turned once more, which costs less than code that does not.
      Turning<Traits> meanwhile = turning(other, more);
      if constexpr (Traits::STAGES > 2) meanwhile.wait();
      accumulator.multiply(present, present + unsigned(Traits::kTileABytes), meanwhile);
      if (more) advance();
    }
  }

 private:
  // One thread asks for A and one for B.
  __device__ __forceinline__ static bool asks_a() { return threadIdx.x == 0; }
  __device__ __forceinline__ static bool asks_b() { return threadIdx.x == (Traits::kThreads > 32 ? 32 : 0); }

  __device__ __forceinline__ void ask(int to, int m, int n, int k, int batch) const {
    if (asks_a()) ask<BoxA, Traits::BOXED_A>(maps_a_, shifts_a_, slot(to), barrier(to), m, k, batch);
    if (asks_b()) ask<BoxB, Traits::BOXED_B>(maps_b_, shifts_b_, slot(to) + BoxA::kBoxBytes, barrier(to), n, k, batch);
  }
  template <class Box, int CLASSES>
  __device__ __forceinline__ static void ask(const ClassMaps<CLASSES>& maps, const typename Box::Shifts& shifts, unsigned to,
                                             unsigned barrier, int mn, int k, int batch) {
    ptx::mbarrier_expect(barrier, Box::kBoxBytes);
#pragma unroll
    for (int i = 0; i < CLASSES; ++i) {
      const unsigned area = CLASSES > 1 ? shifts.row_of(unsigned(i)) * unsigned(Box::kAreaBytes) : 0u;
      ptx::tma_load(*maps.of[i], to + area, barrier, k, mn / CLASSES, batch);
    }
  }

  // Of what lies in the present slot.
  __device__ __forceinline__ Turning<Traits> turning(unsigned to, bool more) const {
    const unsigned source_a = slot(slot_) + BoxA::source(), target_a = to + BoxA::target();
    const unsigned source_b = slot(slot_) + BoxA::kBoxBytes + BoxB::source();
    const unsigned target_b = to + unsigned(Traits::kTileABytes) + BoxB::target();
    return {source_a, target_a, source_b, target_b, shifts_a_, shifts_b_, barrier(slot_), parity_, more};
  }

  __device__ __forceinline__ void advance() {
    slot_ = next(slot_);
    if (slot_ == 0) parity_ ^= 1u;
  }

  __device__ __forceinline__ unsigned tile(int index) const { return shared_ + unsigned(index * Traits::kStageBytes); }
  __device__ __forceinline__ unsigned slot(int index) const {
    return shared_ + unsigned(2 * Traits::kStageBytes + index * Traits::kSlotBytes);
  }
  __device__ __forceinline__ unsigned barrier(int index) const {
    return shared_ + unsigned(Traits::kRingBytes + index * ptx::kMbarrierBytes);
  }
  __device__ __forceinline__ static int next(int index) { return index + 1 == kSlots ? 0 : index + 1; }

  const MapsA& maps_a_;
  const MapsB& maps_b_;
  unsigned shared_;
  typename Traits::BoxA::Shifts shifts_a_;
  typename Traits::BoxB::Shifts shifts_b_;
  int slot_ = 0;         // to be turned
  unsigned parity_ = 0;  // of the phase of its barrier that is awaited
};

template <class Traits>
__device__ __forceinline__ void gemm_simt_turning(const GemmArguments& args, const ClassMaps<Traits::BOXED_A>& maps_a,
                                                  const ClassMaps<Traits::BOXED_B>& maps_b) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const unsigned address = ptx::held_shared_address(shared_bytes);
  Pieces<Traits> pieces(args);
  SimtAccumulator<Traits> accumulator;
  TurningRing<Traits> ring(address, args, maps_a, maps_b);
  for (Work work; pieces.next(args, work);) {
    accumulator.clear();
    if constexpr (Traits::STREAM_K) __syncthreads();  // the tile before may still be read
    ring.multiply(accumulator, work.tile_m * Traits::BLOCK_M, work.tile_n * Traits::BLOCK_N, work.first_step * Traits::BLOCK_K,
                  work.batch, work.steps);
    end_piece<Traits>(args, pieces, work, accumulator, address);
  }
}

}  // namespace kt
