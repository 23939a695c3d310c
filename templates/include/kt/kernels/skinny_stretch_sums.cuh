// The sums of a stretch whose rows are columns of C: the held rows are the 16 rows of mma.sync, the streamed ones its 8
// columns. So a lane's results are neighbours in a row of C, as many as one access writes.

namespace kt {

// COUNT: neighbours, the streamed rows being in the order of `RowsInPairs<COUNT>`.
template <Format FORMAT, class TAcc, int LANE_ROWS, class Held_, int COUNT>
struct TurnedSums {
  using Held = Held_;
  using Products = TensorSums<FORMAT, TAcc, 2, Held>;
  static constexpr bool kTurned = true;
  static constexpr int kOctets = Held::kOctets, kBlocks = (kOctets + 1) / 2;
  static constexpr int kSlots = COUNT / 2;  // that are multiplied at once
  static_assert(LANE_ROWS % kSlots == 0, "whole runs of neighbours");

  TAcc at[kBlocks][LANE_ROWS][4];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block)
#pragma unroll
      for (int slot = 0; slot < LANE_ROWS; ++slot)
#pragma unroll
        for (int x = 0; x < 4; ++x) at[block][slot][x] = TAcc(0);
  }

  // Adds the first PARTS halves of a chunk's products.
  template <int PARTS, class Source>
  __device__ __forceinline__ void add(const Source& source, unsigned buffer, const Held& held, int chunk) {
    typename Held::Pieces pieces;
    held.read(pieces, chunk, 0);
    Products::template prepare<PARTS>(pieces);
#pragma unroll
    for (int first = 0; first < LANE_ROWS; first += kSlots) {
      unsigned rows[kSlots][4];
      source.template read<PARTS>(rows, first, buffer, chunk);
      Products::template prepare<PARTS>(rows);
#pragma unroll
      for (int slot = 0; slot < kSlots; ++slot) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          TAcc(&sum)[4] = at[block][first + slot];
          if constexpr (kOctets == 1) {
            const unsigned none[4] = {0, 0, 0, 0};
            Products::template multiply_pair<PARTS>(sum, pieces[0], none, rows[slot]);
          } else {
            Products::template multiply_pair<PARTS>(sum, pieces[2 * block], pieces[2 * block + 1], rows[slot]);
          }
        }
      }
    }
  }

  __device__ __forceinline__ void finish() {}
  __device__ __forceinline__ static bool owner() { return true; }
};

}  // namespace kt
