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

// From Hopper on, data-centre GPUs have no mma.sync of 8-bit floats: these are widened to fp16 first, which halves the rate.
// (The compiler would do so for each `mma` alone, with additions in between.) So are they on Ada, whose sums of them are
// short, for KT_LONG_SUMS.
#if (__CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200) || (defined(KT_LONG_SUMS) && __CUDA_ARCH__ < 900)
template <Format FORMAT>
constexpr bool kWidens = FORMAT == Format::kFp8E4m3 || FORMAT == Format::kFp8E5m2;
#else
template <Format FORMAT>
constexpr bool kWidens = false;
#endif

// The two 8-bit floats in the lower (0) or upper (1) half of a word as two of fp16, which hold them exactly.
#define KT_WIDEN(FORMAT, HALF)                                                                                \
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %1;\ncvt.rn.f16x2." FORMAT " %0, " HALF ";\n}\n" \
               : "=r"(pair)                                                                                   \
               : "r"(word))

template <Format FORMAT>
__device__ __forceinline__ unsigned widened(unsigned word, int half) {
  static_assert(FORMAT == Format::kFp8E4m3 || FORMAT == Format::kFp8E5m2);
  constexpr bool kE4m3 = FORMAT == Format::kFp8E4m3;
  unsigned pair;
  if (kE4m3 && half == 0) KT_WIDEN("e4m3x2", "low");
  if (kE4m3 && half == 1) KT_WIDEN("e4m3x2", "high");
  if (!kE4m3 && half == 0) KT_WIDEN("e5m2x2", "low");
  if (!kE4m3 && half == 1) KT_WIDEN("e5m2x2", "high");
  return pair;
}
#undef KT_WIDEN

// A word is one number here, and a step has 16 of k: words 2 q and 2 q + 1 of A and q of B belong to k = t + 4 q. (So
// says `mma`; as long as A and B agree, a word may be of any k.) m8n8k4 has half the rate of m16n8k16 on sm_90, and
// m16n8k8 takes 2% longer.
template <Format FORMAT>
__device__ __forceinline__ void mma(double (&sum)[4], const double* a, const double* b) {
  static_assert(FORMAT == Format::kFp64);
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5, %6, %7, %8, %9, %10, %11}, "
      "{%12, %13, %14, %15}, {%0, %1, %2, %3};\n"
      : "+d"(sum[0]), "+d"(sum[1]), "+d"(sum[2]), "+d"(sum[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
        "d"(b[2]), "d"(b[3]));
#else
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};\n"
                 : "+d"(sum[i % 2 * 2]), "+d"(sum[i % 2 * 2 + 1])
                 : "d"(a[i]), "d"(b[i / 2]));
  }
#endif
}

// The same of 8 of k: of A words 0 and 1 and of B word 0 belong to k = t, the others to k = t + 4. The arrays have their
// sizes here, for a fragment of 8 passes for one of 16 otherwise.
template <Format FORMAT>
__device__ __forceinline__ void mma_eight(double (&sum)[4], const double (&a)[4], const double (&b)[2]) {
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

// To the nearest number of tf32: `mma` itself would cut the bits that it has not. From sm_90 on it is one conversion,
// ties to even. Before, half a unit of the last place that tf32 has is added (ties away from zero), by one logical
// operation and one FFMA: what cvt.rna.tf32 becomes keeps the integer unit busy for longer than the multiplication
// takes. Infinities and NaN stay; there denormal numbers are cut.
__device__ __forceinline__ unsigned round_to_tf32(unsigned fp32) {
  unsigned rounded;
#if __CUDA_ARCH__ >= 900
  asm volatile("cvt.rn.tf32.f32 %0, %1;\n" : "=r"(rounded) : "f"(__uint_as_float(fp32)));
#else
  asm volatile(
      "{\n.reg .b32 power;\nand.b32 power, %1, 0xff800000;\nfma.rn.f32 %0, power, 0f3a000000, %1;\n}\n"
      : "=r"(rounded)
      : "r"(fp32));
#endif
  return rounded;
}

// `__byte_perm` that stays where it stands.
template <unsigned SELECTOR>
__device__ __forceinline__ unsigned permuted(unsigned first, unsigned second) {
  unsigned word;
  asm volatile("prmt.b32 %0, %1, %2, %3;\n" : "=r"(word) : "r"(first), "r"(second), "n"(SELECTOR));
  return word;
}

}  // namespace ptx
}  // namespace kt
