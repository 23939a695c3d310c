// mma.sync: a warp multiplies a 16-row fragment of A with an 8-column fragment of B on the tensor cores (sm_80 and later).

namespace kt {

enum class Format { kFp16, kBf16 };

namespace ptx {

// Lane l, with g = l / 4 and t = l % 4, holds of A rows g (words 0, 2) and g + 8 (words 1, 3), of B column g, and of the
// sum columns 2 t and 2 t + 1 of rows g (0, 1) and g + 8 (2, 3). A word is 4 bytes along k: words 0, 1 of A and word 0 of
// B the t-th of the first 16 bytes, the others the t-th of the next 16.
template <Format FORMAT>
__device__ __forceinline__ void mma(float (&sum)[4], const unsigned* a, const unsigned* b) {
#define KT_MMA(SHAPE_AND_FORMATS)                                                                       \
  asm volatile("mma.sync.aligned." SHAPE_AND_FORMATS " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "           \
      "{%0, %1, %2, %3};\n"                                                                             \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])                                          \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
  if constexpr (FORMAT == Format::kFp16) {
    KT_MMA("m16n8k16.row.col.f32.f16.f16.f32");
  } else {
    static_assert(FORMAT == Format::kBf16);
    KT_MMA("m16n8k16.row.col.f32.bf16.bf16.f32");
  }
#undef KT_MMA
}

// fp16 sums: word 0 holds columns 2 t and 2 t + 1 of row g, word 1 of row g + 8.
template <Format FORMAT>
__device__ __forceinline__ void mma(unsigned (&sum)[2], const unsigned* a, const unsigned* b) {
  static_assert(FORMAT == Format::kFp16);
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\n"
      : "+r"(sum[0]), "+r"(sum[1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

}  // namespace ptx
}  // namespace kt
