// Barriers of some of a block's warps: numbers 1 to 15 (0 is that of the whole block).

namespace kt::ptx {

// Until `threads` threads, whole warps, have come to barrier `number`; what they have written is seen by all of them.
__device__ __forceinline__ void meet_at(int number, int threads) {
  asm volatile("barrier.sync %0, %1;\n" ::"r"(number), "r"(threads) : "memory");
}

}  // namespace kt::ptx
