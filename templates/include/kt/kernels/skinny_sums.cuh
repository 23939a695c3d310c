// The sums of a warp of a skinny GEMM: products of its rows of the streamed operand with those of the held one.
//
// Both kinds are used alike: `hold` begins to read the held pieces of a chunk, `multiply` adds the chunk's products,
// `finish` ends the sums. Then each lane that is an `owner` has, of each of its streamed rows, `kOwned` sums, with the
// held rows `row_of`. Held pieces have registers for AHEAD chunks, and are asked for so many chunks before their turn.

namespace kt {

// By mma.sync: 16 streamed rows, 8 held ones. A piece of 16 bytes along k is what two multiplications take, or one of
// doubles.
template <Format FORMAT, class TAcc, int LANE_ROWS, class Held_, int AHEAD = 1>
struct TensorSums {
  using Held = Held_;
  static constexpr bool kTurned = false;
  static constexpr int kAhead = AHEAD;
  static constexpr int kPairs = LANE_ROWS / 2, kOctets = Held::kOctets, kOwned = 2 * kOctets;
  static_assert(LANE_ROWS % 2 == 0, "mma takes rows in pairs");

  TAcc at[kPairs][kOctets][4];
  typename Held::Pieces pieces[AHEAD];

  __device__ __forceinline__ TensorSums() { clear(); }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kPairs; ++i)
#pragma unroll
      for (int j = 0; j < kOctets; ++j)
#pragma unroll
        for (int x = 0; x < 4; ++x) at[i][j][x] = TAcc(0);
  }

  __device__ __forceinline__ void hold(const Held& held, int chunk) { held.read(pieces[chunk % AHEAD], chunk, 0); }

  // PARTS: halves of the pieces that are multiplied.
  template <int PARTS = 2>
  __device__ __forceinline__ void multiply(unsigned (&rows)[LANE_ROWS][4], const Held&, int chunk) {
    prepare<PARTS>(rows);
    prepare<PARTS>(pieces[chunk % AHEAD]);
#pragma unroll
    for (int j = 0; j < kOctets; ++j) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i) multiply_pair<PARTS>(at[i][j], rows[2 * i], rows[2 * i + 1], pieces[chunk % AHEAD][j]);
    }
  }

  __device__ __forceinline__ void finish() {}
  __device__ __forceinline__ static bool owner() { return true; }
  __device__ __forceinline__ static int row_of(int owned) {
    return Held::row_of(owned / 2, int(threadIdx.x) % kLanesAlongK * 2 + owned % 2);
  }
  __device__ __forceinline__ TAcc sum(int slot, int owned) const { return at[slot / 2][owned / 2][slot % 2 * 2 + owned % 2]; }

  // Rounds the words of pieces to what mma takes.
  template <int PARTS, int COUNT>
  __device__ __forceinline__ static void prepare(unsigned (&pieces)[COUNT][4]) {
    if constexpr (FORMAT == Format::kTf32) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i)
#pragma unroll
        for (int word = 0; word < 2 * PARTS; ++word) pieces[i][word] = ptx::round_to_tf32(pieces[i][word]);
    }
  }

  // Rows `low` and `high` of 16, times 8 columns.
  template <int PARTS>
  __device__ __forceinline__ static void multiply_pair(TAcc (&sum)[4], const unsigned (&low)[4],
                                                       const unsigned (&high)[4], const unsigned (&column)[4]) {
    if constexpr (FORMAT == Format::kFp64) {
      static_assert(PARTS == 2, "a piece has two numbers");
      const double a[4] = {number(low), number(high), number(low + 2), number(high + 2)};
      const double b[2] = {number(column), number(column + 2)};
      ptx::mma_eight<FORMAT>(sum, a, b);
    } else if constexpr (ptx::kWidens<FORMAT>) {
#pragma unroll
      for (int word = 0; word < 2 * PARTS; ++word) {
        const unsigned a[4] = {ptx::widened<FORMAT>(low[word], 0), ptx::widened<FORMAT>(high[word], 0),
                               ptx::widened<FORMAT>(low[word], 1), ptx::widened<FORMAT>(high[word], 1)};
        const unsigned b[2] = {ptx::widened<FORMAT>(column[word], 0), ptx::widened<FORMAT>(column[word], 1)};
        ptx::mma<Format::kFp16>(sum, a, b);
      }
    } else {
#pragma unroll
      for (int half = 0; half < PARTS; ++half) {
        const unsigned a[4] = {low[2 * half], high[2 * half], low[2 * half + 1], high[2 * half + 1]};
        const unsigned b[2] = {column[2 * half], column[2 * half + 1]};
        ptx::mma<FORMAT>(sum, a, b);
      }
    }
  }

 private:
  __device__ __forceinline__ static double number(const unsigned* words) {
    return __hiloint2double(int(words[1]), int(words[0]));
  }
};

// By the plain units, fp32: a lane multiplies its piece of k of its rows with all held ones. The four lanes that share
// rows add their sums at the end, and each keeps a part of them.
template <int LANE_ROWS, int TILE_S, class Held_, int AHEAD = 1>
struct ThreadSums {
  using Held = Held_;
  static constexpr bool kTurned = false;
  static constexpr int kAhead = AHEAD;
  static constexpr int kGroup = Held::kGroup, kGroups = TILE_S / kGroup;
  static constexpr int kOwned = max_of(1, TILE_S / kLanesAlongK);
  static_assert(AHEAD == 1 || kGroups == 1, "groups of rows take turns in the registers of one chunk");

  float at[LANE_ROWS][TILE_S];
  typename Held::Pieces pieces[AHEAD];

  __device__ __forceinline__ ThreadSums() { clear(); }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i)
#pragma unroll
      for (int j = 0; j < TILE_S; ++j) at[i][j] = 0.0f;
  }

  __device__ __forceinline__ void hold(const Held& held, int chunk) { held.read(pieces[chunk % AHEAD], chunk, 0); }

  template <int PARTS = 2>
  __device__ __forceinline__ void multiply(const unsigned (&rows)[LANE_ROWS][4], const Held& held, int chunk) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      if (group > 0) held.read(pieces[chunk % AHEAD], chunk, group * kGroup);
#pragma unroll
      for (int k = 0; k < 2 * PARTS; ++k)
#pragma unroll
        for (int j = 0; j < kGroup; ++j)
#pragma unroll
          for (int i = 0; i < LANE_ROWS; ++i) {
            float& sum = at[i][group * kGroup + j];
            sum = __fmaf_rn(__uint_as_float(rows[i][k]), __uint_as_float(pieces[chunk % AHEAD][j][k]), sum);
          }
    }
  }

  __device__ __forceinline__ void finish() {
    meet<TILE_S, 2>();
    meet<(TILE_S + 1) / 2, 1>();
  }
  // Of 1 or 2 held rows some lanes have copies.
  __device__ __forceinline__ static bool owner() {
    const int t = int(threadIdx.x) % kLanesAlongK;
    return TILE_S >= 4 || (TILE_S == 2 ? t % 2 == 0 : t == 0);
  }
  __device__ __forceinline__ static int row_of(int owned) {
    const int t = int(threadIdx.x) % kLanesAlongK;
    return TILE_S >= 4 ? t * kOwned + owned : t / 2 * (TILE_S - 1);
  }
  __device__ __forceinline__ float sum(int slot, int owned) const { return at[slot][owned]; }

 private:
  // Two lanes that differ in `MASK` add the first `COUNT` sums of each row: each keeps half of them, or both keep one.
  template <int COUNT, int MASK>
  __device__ __forceinline__ void meet() {
    const bool upper = (int(threadIdx.x) & MASK) != 0;
    constexpr int kKept = (COUNT + 1) / 2;
#pragma unroll
    for (int i = 0; i < LANE_ROWS; ++i) {
#pragma unroll
      for (int j = 0; j < kKept; ++j) {
        const float low = at[i][j], high = at[i][COUNT == 1 ? j : j + kKept];
        const float other = __shfl_xor_sync(0xffffffffu, upper ? low : high, MASK);
        at[i][j] = (upper ? high : low) + other;
      }
    }
  }
};

}  // namespace kt
