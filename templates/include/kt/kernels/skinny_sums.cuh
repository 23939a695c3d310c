// The sums of a warp of a skinny GEMM: products of its rows of the streamed operand with those of the held one.
//
// Both kinds are used alike: `hold` begins to read the held operand of a chunk, `multiply` adds the chunk's products,
// `for_each` hands out the results of a thread with their places.

namespace kt {

// By mma.sync: 16 streamed rows, 8 held ones. A piece of 16 bytes along k is what two multiplications take, or one of
// doubles.
template <Format FORMAT, class TIn, class TAcc, int LANE_ROWS, int TILE_S, bool STREAMED_K, bool HELD_K, int HELD_LOAD>
struct TensorSums {
  using Held = HeldOctets<TIn, TILE_S, HELD_K, HELD_LOAD>;
  static constexpr int kPairs = LANE_ROWS / 2, kOctets = TILE_S / 8;
  // From Hopper on, data-centre GPUs have no mma.sync of 8-bit floats: they are widened to fp16.
#if __CUDA_ARCH__ >= 900 && __CUDA_ARCH__ < 1200
  static constexpr bool kWidened = FORMAT == Format::kFp8E4m3 || FORMAT == Format::kFp8E5m2;
#else
  static constexpr bool kWidened = false;
#endif
  static_assert(LANE_ROWS % 2 == 0, "mma takes rows in pairs");

  TAcc at[kPairs][kOctets][4];
  typename Held::Pieces pieces;

  __device__ __forceinline__ TensorSums() {
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
#pragma unroll
      for (int j = 0; j < kOctets; ++j)
#pragma unroll
        for (int x = 0; x < 4; ++x) at[i][j][x] = TAcc(0);
  }

  __device__ __forceinline__ void hold(const Held& held, int chunk) { held.read(pieces, chunk); }

  __device__ __forceinline__ void multiply(const unsigned (&rows)[LANE_ROWS][4], const Held&, int) {
#pragma unroll
    for (int j = 0; j < kOctets; ++j) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) multiply_pair(at[i][j], rows[2 * i], rows[2 * i + 1], pieces[j]);
    }
  }

  // Calls `take(slot, held row, sum)`.
  template <class Take>
  __device__ __forceinline__ void for_each(const Take& take) {
    const int t = int(threadIdx.x) % kLanesAlongK;
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
#pragma unroll
      for (int j = 0; j < kOctets; ++j)
#pragma unroll
        for (int x = 0; x < 4; ++x) take(2 * i + x / 2, Held::row_of(j, 2 * t + x % 2), at[i][j][x]);
  }

 private:
  __device__ __forceinline__ static unsigned prepared(unsigned word) {
    if constexpr (FORMAT == Format::kTf32) word = ptx::round_to_tf32(word);
    return word;
  }
  __device__ __forceinline__ static double number(const unsigned* words) {
    return __hiloint2double(int(words[1]), int(words[0]));
  }

  __device__ __forceinline__ static void multiply_pair(TAcc (&sum)[4], const unsigned (&low)[4],
                                                       const unsigned (&high)[4], const unsigned (&held)[4]) {
    if constexpr (FORMAT == Format::kFp64) {
      const double a[4] = {number(low), number(high), number(low + 2), number(high + 2)};
      const double b[2] = {number(held), number(held + 2)};
      ptx::mma<FORMAT>(sum, a, b);
    } else if constexpr (kWidened) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        unsigned of_low[2], of_high[2], b[2];
        ptx::widen<FORMAT>(of_low, low[word]);
        ptx::widen<FORMAT>(of_high, high[word]);
        ptx::widen<FORMAT>(b, held[word]);
        const unsigned a[4] = {of_low[0], of_high[0], of_low[1], of_high[1]};
        ptx::mma<Format::kFp16>(sum, a, b);
      }
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const unsigned a[4] = {prepared(low[2 * half]), prepared(high[2 * half]), prepared(low[2 * half + 1]),
                               prepared(high[2 * half + 1])};
        const unsigned b[2] = {prepared(held[2 * half]), prepared(held[2 * half + 1])};
        ptx::mma<FORMAT>(sum, a, b);
      }
    }
  }
};

// By the plain units, fp32: a lane multiplies its piece of k of its rows with all held ones. Lanes that share rows add
// their sums at the end.
template <int LANE_ROWS, int TILE_S, bool STREAMED_K, bool HELD_K, int HELD_LOAD>
struct ThreadSums {
  static constexpr int kGroup = TILE_S < 16 ? TILE_S : 4, kGroups = TILE_S / kGroup;  // held rows at a time
  using Held = HeldRows<float, kGroup, HELD_K, HELD_LOAD>;

  float at[LANE_ROWS][TILE_S];
  typename Held::Pieces pieces;

  __device__ __forceinline__ ThreadSums() {
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i)
#pragma unroll
      for (int j = 0; j < TILE_S; ++j) at[i][j] = 0.0f;
  }

  __device__ __forceinline__ void hold(const Held& held, int chunk) { held.read(pieces, chunk, 0); }

  __device__ __forceinline__ void multiply(const unsigned (&rows)[LANE_ROWS][4], const Held& held, int chunk) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group > 0) held.read(pieces, chunk, group * kGroup);
#pragma unroll
      for (int k = 0; k < 4; ++k)
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
#pragma unroll
          for (int i = 0; i < LANE_ROWS; ++i) {
            at[i][group * kGroup + j] = __fmaf_rn(__uint_as_float(rows[i][k]), pieces[j][k], at[i][group * kGroup + j]);
          }
    }
  }

  template <class Take>
  __device__ __forceinline__ void for_each(const Take& take) {
    const int t = int(threadIdx.x) % kLanesAlongK;
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
#pragma unroll
      for (int j = 0; j < TILE_S; ++j) {
        float sum = at[i][j];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (j % kLanesAlongK == t) take(i, j, sum);
      }
    }
  }
};

}  // namespace kt
