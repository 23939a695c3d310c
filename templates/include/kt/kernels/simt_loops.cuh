// The steps of k of `simt`: a ring of tiles in shared memory, which cp.async fills ahead, or two buffers that are filled
// through registers. By TMA: simt_tma.cuh.

namespace kt {

// What a thread of the block copies of the steps of k, in their order: by cp.async, and turned through registers.
template <class Traits>
struct Copies {
  typename Traits::TileA& a;
  typename Traits::TileB& b;
  typename Traits::TurnedA::Staged staged_a;
  typename Traits::TurnedB::Staged staged_b;

  __device__ __forceinline__ Copies(typename Traits::TileA& a, typename Traits::TileB& b) : a(a), b(b) {}

  template <bool FIRST>
  __device__ __forceinline__ void start(unsigned stage) {
    if constexpr (!Traits::kTurnsA) a.template copy_async<FIRST>(stage);
    if constexpr (!Traits::kTurnsB) b.template copy_async<FIRST>(stage + Traits::kTileABytes);
  }
  template <bool FIRST>
  __device__ __forceinline__ void fetch() {
    if constexpr (Traits::kTurnsA) a.template fetch<FIRST>(staged_a);
    if constexpr (Traits::kTurnsB) b.template fetch<FIRST>(staged_b);
  }
  __device__ __forceinline__ void commit(unsigned stage) const {
    if constexpr (Traits::kTurnsA) a.commit(staged_a, stage);
    if constexpr (Traits::kTurnsB) b.commit(staged_b, stage + Traits::kTileABytes);
  }
};

// Copies run `STAGES - 1` steps ahead of the multiplications, those through registers one step; one barrier a step.
template <class Traits>
__device__ __forceinline__ void simt_loop_async(SimtAccumulator<Traits>& accumulator, typename Traits::TileA& a,
                                                typename Traits::TileB& b, unsigned shared, int steps) {
  constexpr int kAhead = Traits::STAGES - 1;
  Copies<Traits> copies(a, b);
#pragma unroll
  for (int step = 0; step < kAhead; ++step) {
    if (step < steps) copies.template start<true>(shared + unsigned(step * Traits::kStageBytes));
    ptx::cp_async_commit();
  }
  if (steps > 0) {
    copies.template fetch<true>();
    copies.commit(shared);
  }
  int fill = kAhead, drain = 0;  // stage to be filled and stage to be read
  for (int step = 0; step < steps; ++step) {
    ptx::cp_async_wait<kAhead - 1>();
    __syncthreads();
    if (step + kAhead < steps) copies.template start<false>(shared + unsigned(fill * Traits::kStageBytes));
    ptx::cp_async_commit();
    const bool more = step + 1 < steps;
    if (more) copies.template fetch<false>();
    accumulator.multiply(shared + unsigned(drain * Traits::kStageBytes));
    fill = fill + 1 == Traits::STAGES ? 0 : fill + 1;
    drain = drain + 1 == Traits::STAGES ? 0 : drain + 1;
    if (more) copies.commit(shared + unsigned(drain * Traits::kStageBytes));
  }
}

// Two buffers: the next tile waits in registers while the present one is multiplied.
template <class Traits>
__device__ __forceinline__ void simt_loop_staged(SimtAccumulator<Traits>& accumulator, typename Traits::TileA& a,
                                                 typename Traits::TileB& b, typename Traits::TShared* shared,
                                                 unsigned address, int steps) {
  using TShared = typename Traits::TShared;
  typename Traits::TileA::Staged staged_a;
  typename Traits::TileB::Staged staged_b;
  if (steps > 0) {
    a.template fetch<true>(staged_a);
    b.template fetch<true>(staged_b);
    a.commit(staged_a, shared);
    b.commit(staged_b, shared + Traits::TileA::kElements);
  }
  __syncthreads();
  for (int step = 0; step < steps; ++step) {
    const bool more = step + 1 < steps;
    if (more) {
      a.template fetch<false>(staged_a);
      b.template fetch<false>(staged_b);
    }
    accumulator.multiply(address + unsigned(step % 2 * Traits::kStageBytes));
    if (more) {
      TShared* const other = shared + (step + 1) % 2 * Traits::kStageElements;
      a.commit(staged_a, other);
      b.commit(staged_b, other + Traits::TileA::kElements);
    }
    __syncthreads();
  }
}

}  // namespace kt
