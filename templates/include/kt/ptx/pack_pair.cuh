// Two sums become two 16-bit elements of an output, by one conversion.

namespace kt::ptx {

// The neighbours `low` and `high` in one word.
template <bool BF16>
__device__ __forceinline__ unsigned pack_pair(float low, float high) {
  unsigned pair;
  if constexpr (BF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

}  // namespace kt::ptx
