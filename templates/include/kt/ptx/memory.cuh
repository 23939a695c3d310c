// Loads and stores that the compiler leaves where they stand: it would move them away from their place in a pipeline,
// into registers that are not there.

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
__device__ __forceinline__ float computed_here(float value) {
  asm volatile("" : "+f"(value));
  return value;
}

// `BYTES` (1 or 2) bytes of global memory that nobody writes meanwhile, or zero where `valid` is false.
template <int BYTES>
__device__ __forceinline__ unsigned load_or_zero(const void* global, bool valid) {
  unsigned value;
  if constexpr (BYTES == 1) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.u32 %0, 0;\n@p ld.global.nc.u8 %0, [%1];\n}\n"
        : "=r"(value)
        : "l"(global), "r"(int(valid)));
  } else {
    static_assert(BYTES == 2);
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.u32 %0, 0;\n@p ld.global.nc.u16 %0, [%1];\n}\n"
        : "=r"(value)
        : "l"(global), "r"(int(valid)));
  }
  return value;
}

__device__ __forceinline__ void store_shared(unsigned shared, unsigned value) {
  asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(shared), "r"(value));
}
__device__ __forceinline__ void store_shared(unsigned shared, const unsigned (&words)[2]) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};\n" ::"r"(shared), "r"(words[0]), "r"(words[1]));
}

// 4, 8 or 16 bytes of global memory as one access. The compiler would make four of it where it sees no alignment.
__device__ __forceinline__ void store_global(void* global, const unsigned (&words)[1]) {
  asm volatile("st.global.u32 [%0], %1;\n" ::"l"(global), "r"(words[0]));
}
__device__ __forceinline__ void store_global(void* global, const unsigned (&words)[2]) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};\n" ::"l"(global), "r"(words[0]), "r"(words[1]));
}
__device__ __forceinline__ void store_global(void* global, const unsigned (&words)[4]) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};\n" ::"l"(global), "r"(words[0]), "r"(words[1]), "r"(words[2]),
               "r"(words[3]));
}

__device__ __forceinline__ void store_global(void* global, double first, double second) {
  asm volatile("st.global.v2.f64 [%0], {%1, %2};\n" ::"l"(global), "d"(first), "d"(second));
}

__device__ __forceinline__ void load_shared(unsigned (&word)[1], unsigned shared) {
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(word[0]) : "r"(shared));
}
__device__ __forceinline__ void load_shared(unsigned (&words)[2], unsigned shared) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];\n" : "=r"(words[0]), "=r"(words[1]) : "r"(shared));
}
__device__ __forceinline__ void load_shared(unsigned (&words)[4], unsigned shared) {
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(shared));
}

__device__ __forceinline__ void load_shared(double& number, unsigned shared) {
  asm volatile("ld.shared.f64 %0, [%1];\n" : "=d"(number) : "r"(shared));
}

}  // namespace kt::ptx
