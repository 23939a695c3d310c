// How L2 treats what is read or written: lines leave it in the usual order, or before all others (sm_80).

namespace kt::ptx {

__device__ __forceinline__ unsigned long long cache_policy(bool leaves_first) {
  unsigned long long usual, first;
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;\n" : "=l"(usual));
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;\n" : "=l"(first));
  return leaves_first ? first : usual;
}

// 16 bytes that nobody writes meanwhile.
__device__ __forceinline__ uint4 load_by_policy(const void* global, unsigned long long policy) {
  uint4 value;
  asm("ld.global.nc.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;\n"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "l"(global), "l"(policy));
  return value;
}

}  // namespace kt::ptx
