// Values that the compiler makes where they stand: it would make them earlier, and keep them in registers that are not there.

namespace kt::ptx {

// threadIdx.x, read anew: what is made of it is not kept in registers from an earlier place.
__device__ __forceinline__ int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;\n" : "=r"(index));
  return index;
}

// A value of which the compiler does not know that it is always the same: it is computed here, and what is made of it
// stays where it is made.
__device__ __forceinline__ long long computed_here(long long value) {
  asm volatile("" : "+l"(value));
  return value;
}
__device__ __forceinline__ int computed_here(int value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ unsigned computed_here(unsigned value) {
  asm volatile("" : "+r"(value));
  return value;
}
__device__ __forceinline__ float computed_here(float value) {
  asm volatile("" : "+f"(value));
  return value;
}

}  // namespace kt::ptx
