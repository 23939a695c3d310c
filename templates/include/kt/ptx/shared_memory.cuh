// Numbers read from shared memory and written to it, 4, 8 or 16 bytes at once, where the accesses stand: the compiler would move
// them away from their place in a pipeline, into registers that are not there.

namespace kt::ptx {

// The address of shared memory, held in a register: the compilers would otherwise make it anew inside loops, each its way.
__device__ __forceinline__ unsigned held_shared_address(const void* pointer) {
  return computed_here(shared_address(pointer));
}

__device__ __forceinline__ unsigned load_shared_word(unsigned shared) {
  unsigned word;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(word) : "r"(shared));
  return word;
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

__device__ __forceinline__ void load_shared(float (&to)[1], unsigned shared) {
  asm volatile("ld.shared.f32 %0, [%1];\n" : "=f"(to[0]) : "r"(shared));
}
__device__ __forceinline__ void load_shared(float (&to)[2], unsigned shared) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];\n" : "=f"(to[0]), "=f"(to[1]) : "r"(shared));
}
__device__ __forceinline__ void load_shared(float (&to)[4], unsigned shared) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];\n"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(shared));
}

__device__ __forceinline__ void load_shared(int (&to)[1], unsigned shared) {
  asm volatile("ld.shared.s32 %0, [%1];\n" : "=r"(to[0]) : "r"(shared));
}
__device__ __forceinline__ void load_shared(int (&to)[2], unsigned shared) {
  asm volatile("ld.shared.v2.s32 {%0, %1}, [%2];\n" : "=r"(to[0]), "=r"(to[1]) : "r"(shared));
}
__device__ __forceinline__ void load_shared(int (&to)[4], unsigned shared) {
  asm volatile("ld.shared.v4.s32 {%0, %1, %2, %3}, [%4];\n"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(shared));
}

__device__ __forceinline__ void load_shared(double (&to)[1], unsigned shared) {
  asm volatile("ld.shared.f64 %0, [%1];\n" : "=d"(to[0]) : "r"(shared));
}
__device__ __forceinline__ void load_shared(double (&to)[2], unsigned shared) {
  asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];\n" : "=d"(to[0]), "=d"(to[1]) : "r"(shared));
}

__device__ __forceinline__ void store_shared(unsigned shared, unsigned value) {
  asm volatile("st.shared.u32 [%0], %1;\n" ::"r"(shared), "r"(value));
}
__device__ __forceinline__ void store_shared(unsigned shared, const unsigned (&words)[2]) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};\n" ::"r"(shared), "r"(words[0]), "r"(words[1]));
}

__device__ __forceinline__ void store_shared(unsigned shared, const float (&from)[1]) {
  asm volatile("st.shared.f32 [%0], %1;\n" ::"r"(shared), "f"(from[0]));
}
__device__ __forceinline__ void store_shared(unsigned shared, const float (&from)[2]) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};\n" ::"r"(shared), "f"(from[0]), "f"(from[1]));
}
__device__ __forceinline__ void store_shared(unsigned shared, const float (&from)[4]) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};\n" ::"r"(shared), "f"(from[0]), "f"(from[1]), "f"(from[2]),
               "f"(from[3]));
}

__device__ __forceinline__ void store_shared(unsigned shared, const int (&from)[1]) {
  asm volatile("st.shared.s32 [%0], %1;\n" ::"r"(shared), "r"(from[0]));
}
__device__ __forceinline__ void store_shared(unsigned shared, const int (&from)[2]) {
  asm volatile("st.shared.v2.s32 [%0], {%1, %2};\n" ::"r"(shared), "r"(from[0]), "r"(from[1]));
}
__device__ __forceinline__ void store_shared(unsigned shared, const int (&from)[4]) {
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};\n" ::"r"(shared), "r"(from[0]), "r"(from[1]), "r"(from[2]),
               "r"(from[3]));
}

__device__ __forceinline__ void store_shared(unsigned shared, const double (&from)[1]) {
  asm volatile("st.shared.f64 [%0], %1;\n" ::"r"(shared), "d"(from[0]));
}
__device__ __forceinline__ void store_shared(unsigned shared, const double (&from)[2]) {
  asm volatile("st.shared.v2.f64 [%0], {%1, %2};\n" ::"r"(shared), "d"(from[0]), "d"(from[1]));
}

}  // namespace kt::ptx
