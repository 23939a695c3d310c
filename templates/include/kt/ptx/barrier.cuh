// Barriers of a block's warps: number 0 is that of all of them, numbers 1 to 15 are those of some.

namespace kt::ptx {

// As __syncthreads, but warps may come to it from different places of the program.
__device__ __forceinline__ void meet() { asm volatile("barrier.sync 0;\n" ::: "memory"); }

// Until `threads` threads, whole warps, have come to barrier `number`; what they have written is seen by all of them.
__device__ __forceinline__ void meet_at(int number, int threads) {
  asm volatile("barrier.sync %0, %1;\n" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace kt::ptx
