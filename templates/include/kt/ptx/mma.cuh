// mma.sync: a warp multiplies a 16-row fragment of A with an 8-column fragment of B on the tensor cores (since sm_80).

namespace kt {

enum class Format { kFp16, kBf16, kTf32, kInt8, kFp8E4m3, kFp8E5m2, kFp64 };

namespace ptx {

// Lane l, with g = l / 4 and t = l % 4, holds of A rows g (words 0, 2) and g + 8 (words 1, 3), of B column g, and of
// the sums columns 2 t and 2 t + 1 of rows g (0, 1) and g + 8 (2, 3). A word is 4 bytes along k: words 0, 1 of A and
// word 0 of B are the t-th of the first 16 bytes, the others the t-th of the next 16.
#define KT_MMA(SUM, SHAPE_AND_FORMATS)                                                                        \
  asm volatile("mma.sync.aligned." SHAPE_AND_FORMATS " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "        \
               "{%0, %1, %2, %3};\n"                                                                          \
               : "+" SUM(sum[0]), "+" SUM(sum[1]), "+" SUM(sum[2]), "+" SUM(sum[3])                           \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))

template <Format FORMAT>
__device__ __forceinline__ void mma(float (&sum)[4], const unsigned* a, const unsigned* b) {
  if constexpr (FORMAT == Format::kFp16) {
    KT_MMA("f", "m16n8k16.row.col.f32.f16.f16.f32");
  } else if constexpr (FORMAT == Format::kBf16) {
    KT_MMA("f", "m16n8k16.row.col.f32.bf16.bf16.f32");
  } else if constexpr (FORMAT == Format::kTf32) {
    KT_MMA("f", "m16n8k8.row.col.f32.tf32.tf32.f32");
  } else if constexpr (FORMAT == Format::kFp8E4m3) {
    KT_MMA("f", "m16n8k32.row.col.f32.e4m3.e4m3.f32");
  } else {
    static_assert(FORMAT == Format::kFp8E5m2);
    KT_MMA("f", "m16n8k32.row.col.f32.e5m2.e5m2.f32");
  }
}

template <Format FORMAT>
__device__ __forceinline__ void mma(int (&sum)[4], const unsigned* a, const unsigned* b) {
  static_assert(FORMAT == Format::kInt8);
  KT_MMA("r", "m16n8k32.row.col.s32.s8.s8.s32");
}
#undef KT_MMA

// fp16 sums: word 0 holds columns 2 t and 2 t + 1 of row g, word 1 of row g + 8.
template <Format FORMAT>
__device__ __forceinline__ void mma(unsigned (&sum)[2], const unsigned* a, const unsigned* b) {
  static_assert(FORMAT == Format::kFp16);
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};\n"
               : "+r"(sum[0]), "+r"(sum[1])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

// Four 8-bit floats become two words of two fp16 each, which hold them exactly.
template <Format FORMAT>
__device__ __forceinline__ void widen(unsigned (&pairs)[2], unsigned word) {
  if constexpr (FORMAT == Format::kFp8E4m3) {
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e4m3x2 %0, low;\n"
        "cvt.rn.f16x2.e4m3x2 %1, high;\n}\n"
        : "=r"(pairs[0]), "=r"(pairs[1])
        : "r"(word));
  } else {
    static_assert(FORMAT == Format::kFp8E5m2);
    asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\ncvt.rn.f16x2.e5m2x2 %0, low;\n"
        "cvt.rn.f16x2.e5m2x2 %1, high;\n}\n"
        : "=r"(pairs[0]), "=r"(pairs[1])
        : "r"(word));
  }
}

// A word is one number here: words 0, 1 of A and 0 of B belong to k = t, the others to k = t + 4. (So says `mma`; as
// long as A and B agree, a word may be of any k.) m8n8k4 has half the rate of m16n8k8 on sm_90.
template <Format FORMAT>
__device__ __forceinline__ void mma(double (&sum)[4], const double* a, const double* b) {
  static_assert(FORMAT == Format::kFp64);
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};\n"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};\n"
                 : "+d"(sum[i % 2 * 2]), "+d"(sum[i % 2 * 2 + 1])
                 : "d"(a[i]), "d"(b[i / 2]));
  }
#endif
}

// To nearest, ties away from zero, as cvt.rna.tf32 does: half a unit of the last place that tf32 has is added, and `mma`
// cuts the bits that it has not. Infinities and NaN stay; denormal numbers are cut. One logical operation and one FFMA
// a word: what the conversion becomes on sm_90 keeps the integer unit busy for longer than the multiplication takes.
__device__ __forceinline__ unsigned round_to_tf32(unsigned fp32) {
  const float power_of_two = __uint_as_float(fp32 & 0xff800000u);  // with the number's sign and exponent
  return __float_as_uint(__fmaf_rn(power_of_two, 0x1p-11f, __uint_as_float(fp32)));
}

}  // namespace ptx
}  // namespace kt
