// Tiles of `simt` that the tensor memory accelerator copies (sm_90): two instructions of one thread for each step.
//
// For operands of 4-byte elements that lie in memory as they do in shared memory, rows along m or n. Copies by all threads
// take 3 to 4% of the issue slots, most of it for addresses.

namespace kt {

// As simt_loop_async, over all tiles of a block. The phases of its barriers go on from tile to tile.
template <class Traits>
class TmaRing {
 public:
  // By all threads of the block. The barriers lie behind the stages.
  __device__ __forceinline__ TmaRing(unsigned shared, const TensorMap& map_a, const TensorMap& map_b)
      : map_a_(map_a), map_b_(map_b), shared_(shared) {
    if (threadIdx.x == 0) {
      ptx::prefetch(map_a_);
      ptx::prefetch(map_b_);
      init_barriers<Traits::STAGES>(barrier(0), 1);
      ptx::mbarrier_init_fence();
    }
    __syncthreads();
  }

  // Adds `steps` steps from `k` on of the tile at (m, n). Rows before k = 0 and all outside the operands arrive as zeros.
  __device__ __forceinline__ void multiply(SimtAccumulator<Traits>& accumulator, int m, int n, int k, int batch, int steps) {
    constexpr int kAhead = Traits::STAGES - 1;
    const bool copies = threadIdx.x == 0;
    if (copies) ptx::fence_async_proxy();  // results of the tile before may have gone through these stages
    int fill = drain_;
#pragma unroll
    for (int step = 0; step < kAhead; ++step) {
      if (copies && step < steps) copy(fill, m, n, k, batch);
      k += Traits::BLOCK_K;
      fill = next(fill);
    }
    for (int step = 0; step < steps; ++step) {
      __syncthreads();  // all have multiplied the stage that is filled now
      if (copies && step + kAhead < steps) copy(fill, m, n, k, batch);
      k += Traits::BLOCK_K;
      fill = next(fill);
      ptx::mbarrier_wait(barrier(drain_), parity_);
      accumulator.multiply(stage(drain_));
      drain_ = next(drain_);
      if (drain_ == 0) parity_ ^= 1u;
    }
  }

 private:
  __device__ __forceinline__ void copy(int to, int m, int n, int k, int batch) const {
    ptx::mbarrier_expect(barrier(to), Traits::kStageBytes);
    ptx::tma_load(map_a_, stage(to), barrier(to), m, k, batch);
    ptx::tma_load(map_b_, stage(to) + Traits::kTileABytes, barrier(to), n, k, batch);
  }

  __device__ __forceinline__ unsigned stage(int index) const { return shared_ + unsigned(index * Traits::kStageBytes); }
  __device__ __forceinline__ unsigned barrier(int index) const {
    return shared_ + unsigned(Traits::kRingBytes + index * ptx::kMbarrierBytes);
  }
  __device__ __forceinline__ static int next(int index) { return index + 1 == Traits::STAGES ? 0 : index + 1; }

  const TensorMap& map_a_;
  const TensorMap& map_b_;
  unsigned shared_;
  // No RingPlace: with one, the compiler orders the registers of the loop differently.
  int drain_ = 0;        // stage to be read
  unsigned parity_ = 0;  // of the phase of its barrier that is awaited
};

template <class Traits>
__device__ __forceinline__ void gemm_simt_tma(const GemmArguments& args, const TensorMap& map_a, const TensorMap& map_b) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const unsigned address = ptx::held_shared_address(shared_bytes);
  Pieces<Traits> pieces(args);
  SimtAccumulator<Traits> accumulator;
  TmaRing<Traits> ring(address, map_a, map_b);
  for (Work work; pieces.next(args, work);) {
    const int first_k = args.k - (pieces.steps() - work.first_step) * Traits::BLOCK_K;
    accumulator.clear();
    if constexpr (Traits::STREAM_K) __syncthreads();  // the tile before may still be read
    ring.multiply(accumulator, work.tile_m * Traits::BLOCK_M, work.tile_n * Traits::BLOCK_N, first_k, work.batch, work.steps);
    end_piece<Traits>(args, pieces, work, accumulator, address);
  }
}

}  // namespace kt
