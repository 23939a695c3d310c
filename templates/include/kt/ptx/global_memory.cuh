// Accesses to global memory that the compiler leaves where they stand: it would move them away from their place in a pipeline,
// into registers that are not there.

namespace kt::ptx {

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

}  // namespace kt::ptx
