// How accumulators become rows of C that begin anywhere: 32-bit results, without shared memory.
//
// As in wgmma_windows.cuh, but a window is 8 bytes, two columns, and so wide as what a lane has of each 8 columns. Where a
// row begins at an odd element, a window's first column is the last one of the lane before, of lane 3 that of the columns
// before. Four lanes write 32 bytes of a row, eight rows at once.

namespace kt {

// STRIPS strips. ODD: rows may begin at odd elements.
template <class TAcc, bool ODD, int STRIPS, int BLOCK_N, class Rows = WgmmaStripRows<1>>
struct WgmmaPairStore {
  static constexpr int kColumns = 32;  // of a piece
  static constexpr int kPairs = kColumns / 8, kPieces = cdiv(BLOCK_N, kColumns), kRows = 2 * STRIPS;

  template <class Target>
  __device__ __forceinline__ static void store(const Target& output, const TAcc (&sum)[STRIPS][BLOCK_N / 2], int row,
                                               int column) {
    static_assert(sizeof(typename Target::Element) == 4, "two results in 8 bytes");
    const int end = min_of(BLOCK_N, output.n - column);
    if (end <= 0) return;
#pragma unroll 1
    for (int i = 0; i < kRows; ++i) {
      const int own_row = row + Rows::after(i / 2) + i % 2 * (8 * Rows::kApart) + lane_here() / 4 * Rows::kApart;
      store_row(output, output.at(own_row, column), own_row < output.m, sum, i, end);
    }
  }

 private:
  // One row of each four lanes, from left to right.
  template <class Target, class TOut>
  __device__ __forceinline__ static void store_row(const Target& output, TOut* target, bool inside,
                                                   const TAcc (&sum)[STRIPS][BLOCK_N / 2], int number, int end) {
    const int lane = lane_here(), in_row = lane & 3, turn = lane - in_row + ((in_row + 3) & 3);
    const int shift = ODD ? int(reinterpret_cast<unsigned long long>(target) / sizeof(TOut) % 2) : 0;
    const int last = end - (end + shift & 1);  // from here on, and before `shift`, columns are alone
    TOut before = TOut(0);
#pragma unroll 1
    for (int i = 0; i < kPieces; ++i) {
      TAcc pairs[kPairs][2] = {};
      choose(pairs, sum, number * kPieces + i, output.alpha);
      if (output.reads() && inside) add_before(pairs, output, target, i * kColumns + 2 * in_row, end);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int column = i * kColumns + 8 * j + 2 * in_row;
        const TOut own[2] = {TOut(pairs[j][0]), TOut(pairs[j][1])};
        TOut first = own[0], second = own[1];
        if constexpr (ODD) {
          const TOut turned = __shfl_sync(~0u, second, turn);
          second = shift ? first : second;
          first = shift ? in_row == 0 ? before : turned : first;
          before = turned;
        }
        TOut* const place = target + column;
        if (inside && column >= shift && column - shift + 2 <= end) {
          *reinterpret_cast<Vector<TOut, 2>*>(place - shift) = {{first, second}};
        }
        if (inside && (column < shift || (column >= last && column < end))) place[0] = own[0];
        if (inside && column + 1 >= last && column + 1 < end) place[1] = own[1];
      }
    }
  }

  // Adds beta times what C held before; the first pair is column `first` of the tile's row.
  template <class Target, class TOut>
  __device__ __forceinline__ static void add_before(TAcc (&pairs)[kPairs][2], const Target& output, const TOut* target,
                                                    int first, int end) {
#pragma unroll
    for (int i = 0; i < 2 * kPairs; ++i) {
      const int column = first + i / 2 * 8 + i % 2;
      if (column < end) pairs[i / 2][i % 2] += output.beta * convert<TAcc>(target[column]);
    }
  }

  // alpha times the sums of piece `number`, counted over all rows. What is unrolled is this choice only: it compiles
  // quickly.
  __device__ __forceinline__ static void choose(TAcc (&pairs)[kPairs][2], const TAcc (&sum)[STRIPS][BLOCK_N / 2], int number,
                                                TAcc alpha) {
    constexpr int kAtOnce = 4, kNumbers = kRows * kPieces;
#pragma unroll
    for (int first = 0; first < kNumbers; first += kAtOnce) {
      if (number / kAtOnce != first / kAtOnce) continue;
#pragma unroll
      for (int i = first; i < min_of(first + kAtOnce, kNumbers); ++i) {
        const int row = i / kPieces;
        const TAcc* const of_piece = sum[row / 2] + i % kPieces * (kColumns / 2) + row % 2 * 2;
        if (i == number) scale(pairs, of_piece, BLOCK_N - i % kPieces * kColumns, alpha);
      }
    }
  }

  __device__ __forceinline__ static void scale(TAcc (&pairs)[kPairs][2], const TAcc* sum, int columns, TAcc alpha) {
    alpha = ptx::computed_here(alpha);  // else all pieces would be made before the loop, in registers that are not there
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      if (8 * j >= columns) continue;
      pairs[j][0] = alpha * sum[4 * j];
      pairs[j][1] = alpha * sum[4 * j + 1];
    }
  }
};

}  // namespace kt
