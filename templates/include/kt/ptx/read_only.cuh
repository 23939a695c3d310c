// Reads of global memory that nobody writes meanwhile, as many bytes as one access has, through the L1 cache.

namespace kt::ptx {

// The bytes as words; of less than a word the other bytes are zero.
template <int BYTES>
struct Bits {
  unsigned at[BYTES < 4 ? 1 : BYTES / 4];
};

// Reads `BYTES` (1 to 16), or nothing where `valid` is false: the words are zero then. The compiler leaves it where it
// stands, before a wait for something else.
template <int BYTES>
__device__ __forceinline__ Bits<BYTES> read_only(const void* global, bool valid) {
  Bits<BYTES> bits;
  if constexpr (BYTES == 16) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %5, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
        "@p ld.global.nc.v4.u32 {%0, %1, %2, %3}, [%4];\n}\n"
        : "=&r"(bits.at[0]), "=&r"(bits.at[1]), "=&r"(bits.at[2]), "=&r"(bits.at[3])
        : "l"(global), "r"(int(valid)));
  } else if constexpr (BYTES == 8) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %3, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\n"
        "@p ld.global.nc.v2.u32 {%0, %1}, [%2];\n}\n"
        : "=&r"(bits.at[0]), "=&r"(bits.at[1])
        : "l"(global), "r"(int(valid)));
  } else if constexpr (BYTES == 4) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\nmov.u32 %0, 0;\n@p ld.global.nc.u32 %0, [%1];\n}\n"
        : "=&r"(bits.at[0])
        : "l"(global), "r"(int(valid)));
  } else {
    bits.at[0] = load_or_zero<BYTES>(global, valid);
  }
  return bits;
}

// `BYTES` in a row, read in accesses of `ACCESS` bytes, of which the first `valid` bytes (whole accesses) are there.
template <int BYTES, int ACCESS>
__device__ __forceinline__ Bits<BYTES> read_only_row(const void* global, int valid) {
  Bits<BYTES> bits;
  if constexpr (ACCESS >= 4) {
#pragma unroll
    for (int i = 0; i < BYTES / ACCESS; ++i) {
      const auto part = read_only<ACCESS>(static_cast<const char*>(global) + i * ACCESS, i * ACCESS < valid);
#pragma unroll
      for (int word = 0; word < ACCESS / 4; ++word) bits.at[i * (ACCESS / 4) + word] = part.at[word];
    }
  } else {
#pragma unroll
    for (int word = 0; word < (BYTES + 3) / 4; ++word) bits.at[word] = 0;
#pragma unroll
    for (int i = 0; i < BYTES / ACCESS; ++i) {
      const auto part = read_only<ACCESS>(static_cast<const char*>(global) + i * ACCESS, i * ACCESS < valid);
      bits.at[i * ACCESS / 4] |= part.at[0] << i * ACCESS % 4 * 8;
    }
  }
  return bits;
}

}  // namespace kt::ptx
