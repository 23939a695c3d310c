// How accumulators become rows of C that begin anywhere: 16-bit results, without shared memory.
//
// A row of C is cut into windows: the 16 bytes, 8 columns, at each multiple of 16 bytes. A tile's row begins `shift` columns
// behind a multiple, so that window w has the tile's columns from 8 w - shift on. Whole windows are written by one access
// each; what is left at both ends of the tile's row, and at the end of C's, column by column.
//
// The four lanes of a row have of each 8 columns j two each, a word (see wgmma_epilogue.cuh). Three steps make windows:
//   - Where the shift is odd, a word takes its first column from the lane before: of lane 3, that of the columns j - 1.
//   - By shift / 2 words, the last lanes' words of columns j - 1 belong to window j. So a window has a word of each lane,
//     and lane t has word t + shift / 2, modulo 4: that is its `part`.
//   - Four windows are transposed: each lane gets all the words of the window whose number is its part.
// Rows 8 apart begin whole windows apart, so that both rows of a lane have the same shift.

namespace kt {

// STRIPS strips, of which WIDTH columns from FIRST on are written. ODD: shifts may be odd. A lane's two rows pass together if there are REGISTERS for both.
template <class TAcc, bool BF16, bool ODD, int STRIPS, int BLOCK_N, int REGISTERS, int FIRST = 0, int WIDTH = BLOCK_N,
          class Rows = WgmmaStripRows<1>>
struct WgmmaWindowStore {
  static constexpr int kColumns = BLOCK_N % 64 == 0 && REGISTERS >= 64 ? 64 : 32;  // of a piece: what is independent hides what is slow
  static constexpr int kWords = kColumns / 8, kPieces = cdiv(BLOCK_N, kColumns);
  static constexpr int kRows = REGISTERS >= 120 ? 2 : 1, kPasses = 2 / kRows * STRIPS;

  template <class Target>
  __device__ __forceinline__ static void store(const Target& output, const TAcc (&sum)[STRIPS][BLOCK_N / 2], int row,
                                               int column) {
    static_assert(sizeof(typename Target::Element) == 2, "two results in a word");
    const int end = min_of(FIRST + WIDTH, output.n - column);
    if (end <= FIRST) return;
    Lane lane(output.at(row + lane_here() / 4 * Rows::kApart, column), end);
#pragma unroll 1
    for (int pass = 0; pass < kPasses; ++pass) {
      const int first_row = row + Rows::after(pass * kRows / 2) + (pass * kRows % 2 * 8 + lane.number / 4) * Rows::kApart;
      // Strips of one warp are multiples of 8 rows apart, or else begin behind another shift.
      if constexpr (STRIPS > 1 && Rows::after(1) % 8 != 0) lane = Lane(output.at(first_row, column), end);
      store_rows(output, lane, sum, pass, first_row, column);
    }
  }

 private:
  // What a lane does with the words of each row: it depends on where rows begin.
  struct Lane {
    int number, part, shift, end;
    bool late, late_or_first;          // its word of the columns before belongs to the window; to its word
    int turn, neighbour, far;          // lanes that words come from
    unsigned selector;

    template <class TOut>
    __device__ __forceinline__ Lane(const TOut* row, int end) : number(lane_here()), end(end) {
      shift = int(reinterpret_cast<unsigned long long>(row) / sizeof(TOut) % 8);
      const int in_row = number & 3, words = shift / 2, row_lanes = number - in_row;
      part = (in_row + words) & 3;
      late = in_row + words >= 4;
      late_or_first = late || in_row == 0;
      turn = row_lanes + ((in_row + 3) & 3);
      neighbour = row_lanes + ((part ^ 1) - words & 3);
      far = row_lanes + ((part ^ 2) - words & 3);
      selector = shift % 2 == 0 ? 0x7654 : 0x5432;
    }

    // This lane's words of the piece's windows. `before` and `turned_before` are what it leaves for the next piece.
    __device__ __forceinline__ void shift_words(const unsigned (&words)[kWords], unsigned& before, unsigned& turned_before,
                                                unsigned (&windows)[kWords]) const {
#pragma unroll
      for (int j = 0; j < kWords; ++j) {
        windows[j] = late ? before : words[j];
        before = words[j];
        if constexpr (ODD) {
          const unsigned turned = __shfl_sync(~0u, words[j], turn);
          windows[j] = __byte_perm(late_or_first ? turned_before : turned, windows[j], selector);
          turned_before = turned;
        }
      }
    }

    // From the same word of four windows to the four words of one: lanes change pairs of windows, then of words.
    __device__ __forceinline__ void transpose(unsigned* windows) const {
      const bool second = part % 2 != 0, last = part / 2 != 0;
      unsigned low[2], high[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const unsigned got = __shfl_sync(~0u, second ? windows[2 * i] : windows[2 * i + 1], neighbour);
        low[i] = second ? got : windows[2 * i];
        high[i] = second ? windows[2 * i + 1] : got;
      }
      const unsigned got_low = __shfl_sync(~0u, last ? low[0] : low[1], far);
      const unsigned got_high = __shfl_sync(~0u, last ? high[0] : high[1], far);
      windows[0] = last ? got_low : low[0];
      windows[1] = last ? got_high : high[0];
      windows[2] = last ? low[1] : got_low;
      windows[3] = last ? high[1] : got_high;
    }

    // Of the two columns of a word, those that belong to no whole window. `target` is column `piece` of the tile's row.
    template <class TOut>
    __device__ __forceinline__ void write_ends(TOut* target, bool inside, unsigned word, int piece, int columns) const {
      const int begin = FIRST + (-(shift + FIRST) & 7), last = end - (end + shift & 7);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = columns + (number & 3) * 2 + i, column = piece + at;
        if (inside && column >= FIRST && column < end && (column < begin || column >= last)) {
          reinterpret_cast<unsigned short*>(target)[at] = (unsigned short)(word >> 16 * i);
        }
      }
    }
  };

  // A lane's rows `row` and the one 8 rows of the strip further, or the first of these, from left to right.
  template <class Target>
  __device__ __forceinline__ static void store_rows(const Target& output, const Lane& lane,
                                                    const TAcc (&sum)[STRIPS][BLOCK_N / 2], int pass, int row, int column) {
    auto* target = output.at(row, column);
    const long long next = 8 * Rows::kApart * output.pitch;
    const bool inside[2] = {row < output.m, row + 8 * Rows::kApart < output.m};
    unsigned before[kRows] = {}, turned_before[kRows] = {};
#pragma unroll 1
    for (int number = 0; number < kPieces; ++number) {
      const int piece = number * kColumns;
      TAcc scaled[kRows][2 * kWords] = {};
      choose(scaled, sum, pass * kPieces + number, output.alpha);
      if (output.reads()) {
#pragma unroll
        for (int i = 0; i < kRows; ++i) {
          if (inside[i]) add_before(scaled[i], output, target + i * next, lane, piece);
        }
      }
      unsigned words[kRows][kWords];
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
#pragma unroll
        for (int j = 0; j < kWords; ++j) words[i][j] = ptx::pack_pair<BF16>(scaled[i][2 * j], scaled[i][2 * j + 1]);
      }
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        unsigned windows[kWords];
        lane.shift_words(words[i], before[i], turned_before[i], windows);
#pragma unroll
        for (int j = 0; j < kWords; j += 4) {
          lane.transpose(windows + j);
          const int first = 8 * (j + lane.part) - lane.shift;  // column of this lane's window
          if (inside[i] && piece + first >= FIRST && piece + first + 8 <= lane.end) {
            write_window(target + i * next + first, windows + j);
          }
        }
      }
      // Ends lie in the first 8 columns from FIRST on and in the last 7: those of at most two words each.
      const int last = (lane.end - 1 - piece) / 8;
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        constexpr int kOfBegin = FIRST > 0 ? 2 : 1;
#pragma unroll
        for (int j = 0; j < kOfBegin; ++j) {
          if (piece == 0) lane.write_ends(target + i * next, inside[i], words[i][j], piece, 8 * j);
        }
#pragma unroll 1
        for (int j = max_of(last - 1, piece == 0 ? kOfBegin : 0); j < min_of(last + 1, kWords); ++j) {
          lane.write_ends(target + i * next, inside[i], word_at(words[i], j), piece, 8 * j);
        }
      }
      target += kColumns;
    }
  }

  // alpha times the sums of piece `number`, counted over all passes. What is unrolled is this choice only: it compiles
  // quickly.
  __device__ __forceinline__ static void choose(TAcc (&scaled)[kRows][2 * kWords], const TAcc (&sum)[STRIPS][BLOCK_N / 2],
                                                int number, TAcc alpha) {
    constexpr int kAtOnce = 4, kNumbers = kPasses * kPieces;
#pragma unroll
    for (int first = 0; first < kNumbers; first += kAtOnce) {
      if (number / kAtOnce != first / kAtOnce) continue;
#pragma unroll
      for (int i = first; i < min_of(first + kAtOnce, kNumbers); ++i) {
        const int row = i / kPieces * kRows;  // of all rows of a lane
        if (i == number) scale(scaled, sum[row / 2], i % kPieces * kColumns, row % 2, alpha);
      }
    }
  }

  __device__ __forceinline__ static void scale(TAcc (&scaled)[kRows][2 * kWords], const TAcc* sum, int piece,
                                               int first_half, TAcc alpha) {
    alpha = ptx::computed_here(alpha);  // else all pieces would be scaled before the loop, in registers that are not there
#pragma unroll
    for (int j = 0; j < kWords; ++j) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        if (piece + 8 * j >= BLOCK_N) continue;
        const TAcc* const pair = sum + (piece / 2 + 4 * j + 2 * (first_half + i));
        scaled[i][2 * j] = alpha * pair[0];
        scaled[i][2 * j + 1] = alpha * pair[1];
      }
    }
  }

  // Adds beta times what C held before. `target` is column `piece` of the tile's row.
  template <class Target>
  __device__ __forceinline__ static void add_before(TAcc (&scaled)[2 * kWords], const Target& output,
                                                    const typename Target::Element* target, const Lane& lane, int piece) {
#pragma unroll
    for (int i = 0; i < 2 * kWords; ++i) {
      const int at = i / 2 * 8 + (lane.number & 3) * 2 + i % 2;
      if (piece + at >= FIRST && piece + at < lane.end) scaled[i] += output.beta * convert<TAcc>(target[at]);
    }
  }

  // By choices: an array with changing indices would lie in memory.
  __device__ __forceinline__ static unsigned word_at(const unsigned (&words)[kWords], int index) {
    unsigned word = words[0];
#pragma unroll
    for (int i = 1; i < kWords; ++i) word = i == index ? words[i] : word;
    return word;
  }

  template <class TOut>
  __device__ __forceinline__ static void write_window(TOut* target, const unsigned* words) {
    ptx::store_global(target, {words[0], words[1], words[2], words[3]});
  }
};

}  // namespace kt
