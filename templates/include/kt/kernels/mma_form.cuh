// What a number format means for `mma`: the bytes along k of a k step, the sums of 16 x 8 results in one thread, how
// rows along mn lie in shared memory and who reads them.

namespace kt {

// The sums of 16 x 8 results in one thread.
template <class TAcc>
struct PlainSums {
  using Sum = TAcc;
  static constexpr int kSums = 4;
  // Results 2 t and 2 t + 1 of row g (half 0) or g + 8 (half 1).
  static __device__ __forceinline__ Sum sum_of(const Sum (&sums)[kSums], int half, int x) { return sums[2 * half + x]; }
  static __device__ __forceinline__ Sum added(Sum a, Sum b) { return a + b; }
};

#ifdef KT_HALF_SUMS
// Two results of one row in a word.
template <>
struct PlainSums<__half> {
  using Sum = unsigned;
  static constexpr int kSums = 2;
  static __device__ __forceinline__ __half sum_of(const Sum (&sums)[kSums], int half, int x) {
    return half_of(sums[half], x);
  }
  static __device__ __forceinline__ Sum added(Sum a, Sum b) {
    return word_of(half_of(a, 0) + half_of(b, 0)) | word_of(half_of(a, 1) + half_of(b, 1)) << 16;
  }

 private:
  static __device__ __forceinline__ __half half_of(unsigned word, int x) {
    return __ushort_as_half((unsigned short)(word >> 16 * x));
  }
  static __device__ __forceinline__ unsigned word_of(__half value) { return __half_as_ushort(value); }
};
#endif

// ROUNDED: elements of tf32 are rounded before they come to shared memory.
template <Format FORMAT, class TAcc, bool ROUNDED>
struct MmaForm : PlainSums<TAcc> {
  static constexpr bool kBytes = FORMAT == Format::kInt8 || FORMAT == Format::kFp8E4m3 || FORMAT == Format::kFp8E5m2;
  static constexpr bool kWords = FORMAT == Format::kTf32, kDoubles = FORMAT == Format::kFp64;
  using Word = typename Select<kDoubles, double, unsigned>::type;
  static constexpr bool kWidened = ptx::kWidens<FORMAT>;
  static constexpr int kMultiplications = kWidened ? 2 : 1;
  static constexpr Format kMultiplied = kWidened ? Format::kFp16 : FORMAT;
  static constexpr int kDepthBytes = kDoubles ? 128 : 32;
  // The next fragments are read while the present ones multiply. Of fp64, whose instructions are long and whose sums
  // need the registers, only the next strip of A is there, and B's next octets during the last strip of a k step.
  static constexpr bool kByStrips = kDoubles;
  static constexpr RowOrder kOrderAlongMn = kBytes               ? RowOrder::kBytePairs
                                            : kWords || kDoubles ? RowOrder::kFourApart
                                                                 : RowOrder::kPlain;
  static constexpr RowOrder kOrderAlongK = kDoubles ? RowOrder::kFourApart : RowOrder::kPlain;
  template <bool K_CONTIGUOUS>
  static constexpr RowOrder kOrder = K_CONTIGUOUS ? kOrderAlongK : kOrderAlongMn;

  template <bool CONDITION, class A, class B>
  using Either = typename Select<CONDITION, A, B>::type;
  template <class Tile, Side SIDE, int WARP_MN>
  using ReaderAlongK = Either<kDoubles, DoubleRowReader<Tile, SIDE, WARP_MN>, RowReader<Tile, SIDE, WARP_MN>>;
  template <class Tile, Side SIDE, int WARP_MN>
  using ReaderAlongMn =
      Either<kDoubles, DoubleColumnReader<Tile, SIDE, WARP_MN>,
             Either<kBytes, BytePairReader<Tile, SIDE, WARP_MN>,
                    Either<kWords, WordReader<Tile, SIDE, WARP_MN>, TransposingReader<Tile, SIDE, WARP_MN>>>>;
  template <class Tile, Side SIDE, int WARP_MN>
  using Reader = Either<Tile::K_CONTIGUOUS, ReaderAlongK<Tile, SIDE, WARP_MN>, ReaderAlongMn<Tile, SIDE, WARP_MN>>;

  // What multiplication `part` of a k step takes of a word.
  static __device__ __forceinline__ Word prepared(Word word, int part) {
    if constexpr (FORMAT == Format::kTf32 && !ROUNDED) word = ptx::round_to_tf32(word);
    if constexpr (kWidened) word = ptx::widened<FORMAT>(word, part);
    return word;
  }
};

}  // namespace kt
