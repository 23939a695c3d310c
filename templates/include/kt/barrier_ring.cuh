// Rings of stages in shared memory that copies fill by themselves: each stage has an mbarrier (ptx/mbarrier.cuh), whose phase
// ends when the stage has arrived. The barriers of a ring lie side by side.
//
// Who fills a ring and who reads it walk it alike, each with a place of its own. All begin at the first stage, in phase 0.

namespace kt {

// Barriers of so many arrivals each, the first one at `first`. By one thread; ptx::mbarrier_init_fence must follow.
template <int COUNT>
__device__ __forceinline__ void init_barriers(unsigned first, int arrivals) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) ptx::mbarrier_init(first + i * ptx::kMbarrierBytes, arrivals);
}

// A place by the number of its stage, and the parity of the phase that ends when the stage is full.
template <int STAGES>
struct RingPlace {
  int stage = 0;
  unsigned phase = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) {
      stage = 0;
      phase ^= 1;
    }
  }
  __device__ __forceinline__ void skip(int stages) {
    const unsigned place = unsigned(stage) + unsigned(stages);
    phase ^= place / STAGES & 1;
    stage = int(place % STAGES);
  }
};

// The same by the address of its barrier, for loops that count all addresses.
template <int STAGES>
struct RingBarrier {
  unsigned first, barrier;  // of the first stage, and of this one
  unsigned phase = 0;

  __device__ __forceinline__ explicit RingBarrier(unsigned first) : first(first), barrier(first) {}

  __device__ __forceinline__ void advance() {
    barrier += ptx::kMbarrierBytes;
    if (barrier == first + STAGES * ptx::kMbarrierBytes) {
      barrier = first;
      phase ^= 1;
    }
  }
};

}  // namespace kt
