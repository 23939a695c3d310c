// How accumulators become rows of C that begin anywhere: 32-bit results, for beta = 0, without shared memory.
//
// As in wgmma_windows.cuh, but a window is 8 bytes, two columns, and so wide as what a lane has of each 8 columns. Where a
// row begins at an odd element, a window's first column is the last one of the lane before, of lane 3 that of the columns
// before. Four lanes write 32 bytes of a row, eight rows at once.

namespace kt {

// STRIPS strips, 64 rows apart. ODD: rows may begin at odd elements.
template <class TAcc, bool ODD, int STRIPS, int BLOCK_N>
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
      const int own_row = row + i / 2 * 64 + i % 2 * 8 + lane_here() / 4;
      store_row(output.at(own_row, column), own_row < output.m, output.alpha, sum, i, end);
    }
  }

 private:
  // One row of each four lanes, from left to right.
  template <class TOut>
  __device__ __forceinline__ static void store_row(TOut* target, bool inside, TAcc alpha,
                                                   const TAcc (&sum)[STRIPS][BLOCK_N / 2], int number, int end) {
    const int lane = lane_here(), in_row = lane & 3, turn = lane - in_row + ((in_row + 3) & 3);
    const int shift = ODD ? int(reinterpret_cast<unsigned long long>(target) / sizeof(TOut) % 2) : 0;
    const int last = end - (end + shift & 1);  // from here on, and before `shift`, columns are alone
    TOut before = TOut(0);
#pragma unroll 1
    for (int i = 0; i < kPieces; ++i) {
      TOut pairs[kPairs][2] = {};
      choose(pairs, sum, number * kPieces + i, alpha);
#pragma unroll
      for (int j = 0; j < kPairs; ++j) {
        const int column = i * kColumns + 8 * j + 2 * in_row;
        TOut first = pairs[j][0], second = pairs[j][1];
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
        if (inside && (column < shift || (column >= last && column < end))) place[0] = pairs[j][0];
        if (inside && column + 1 >= last && column + 1 < end) place[1] = pairs[j][1];
      }
    }
  }

  // The results of piece `number`, counted over all rows. What is unrolled is this choice only: it compiles quickly.
  template <class TOut>
  __device__ __forceinline__ static void choose(TOut (&pairs)[kPairs][2], const TAcc (&sum)[STRIPS][BLOCK_N / 2], int number,
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

  template <class TOut>
  __device__ __forceinline__ static void scale(TOut (&pairs)[kPairs][2], const TAcc* sum, int columns, TAcc alpha) {
    alpha = ptx::computed_here(alpha);  // else all pieces would be made before the loop, in registers that are not there
#pragma unroll
    for (int j = 0; j < kPairs; ++j) {
      if (8 * j >= columns) continue;
      pairs[j][0] = TOut(alpha * sum[4 * j]);
      pairs[j][1] = TOut(alpha * sum[4 * j + 1]);
    }
  }
};

}  // namespace kt
