// Rows of a tile in the registers from which wgmma takes its first operand: for formats that it reads in shared memory
// along k only (tf32), of operands that lie along mn. So they need not be copied with k contiguous before.
//
// One wgmma takes 64 rows by 8 of k. Lane l of warp w, with g = l / 4 and t = l % 4, has of the rows 16 w + g and
// 16 w + g + 8 (`half` 0 and 1) the elements t and t + 4 along k. Which rows of the tile these are is free, as long as C is
// written accordingly: both rows of a lane are neighbours, so that it loads 8 bytes at once, and rows 16 apart meet in half
// a warp, for TMA has swizzled the tile such that these lie in other banks: no bank is hit twice.

namespace kt {

template <class Operand>
struct WgmmaFragments {
  // Registers of so many wgmmas, one step of k each, are in use at once.
  static constexpr int kSets = 4;

  static_assert(Operand::kRowBytes == 128 && Operand::kStepK == 8, "panels of 32 rows of 4-byte elements");
  static_assert(Operand::kSteps % kSets == 0, "a step has the same registers in every stage");

  // The row, of each 64 of the tile, of a warp's group of four lanes.
  __host__ __device__ static constexpr unsigned row_of(unsigned warp, unsigned group, unsigned half) {
    return warp / 2 * 32 + group / 2 % 2 * 16 + warp % 2 * 8 + group / 4 * 4 + group % 2 * 2 + half;
  }

  // Where the lane's first two elements lie: both rows of its first k.
  __host__ __device__ static constexpr unsigned place_of(unsigned warp, unsigned lane) {
    const unsigned row = row_of(warp, lane / 4, 0), k = lane % 4;
    return row / 32 * Operand::kPanelBytes + k * 128 + ((row % 32 / 4) ^ k) * 16 + row % 4 * 4;
  }

  // From there, the elements of step `step` and the i-th 64 rows; `further` ones are those 4 further along k, where the
  // swizzle has changed one bit.
  __host__ __device__ static constexpr unsigned at(unsigned place, int i, int step, bool further) {
    return (further ? (place ^ 64u) + 512u : place) + step * 1024 + i * 2 * Operand::kPanelBytes;
  }

  __device__ __forceinline__ static void load(unsigned (&words)[4], unsigned place, int i, int step) {
#pragma unroll
    for (int j = 0; j < 4; j += 2) {
      unsigned both[2];
      ptx::load_shared(both, at(place, i, step, j > 0));
      words[j] = both[0];
      words[j + 1] = both[1];
    }
  }
};

}  // namespace kt
