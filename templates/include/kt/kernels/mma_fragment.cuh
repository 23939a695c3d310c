// Fragments of one operand: from shared memory to the registers of a warp.
//
// Both operands are seen alike: as octets of 8 rows of A or 8 columns of B. `mma` takes two octets of A and one of B, and
// lane l holds index g = l / 4 of each octet. Which m or n that is, the map `octet_position` tells: readers may spread an
// octet, and only the epilogue needs to know.

namespace kt {

enum class Side { kA, kB };

// The m or n of index g of an octet: SPREAD octets share 8 * SPREAD neighbours and take turns.
template <int SPREAD>
__host__ __device__ constexpr int octet_position(int octet, int g) {
  return octet / SPREAD * (8 * SPREAD) + g * SPREAD + octet % SPREAD;
}

// The words of one k step, two an octet: for A in the order in which `mma` takes two octets, for B octet by octet.
template <class Word, Side SIDE, int OCTETS>
struct Fragment {
  Word at[2 * OCTETS];
};

// Reads the fragments of a warp. `Tile` is the operand's tile, WARP_MN the extent of the warp in it.
//
// k contiguous: 16 bytes along k of 8 rows are one matrix of ldmatrix as it is, whatever the format.
template <class Tile, Side SIDE, int WARP_MN>
struct RowReader {
  static constexpr int kSpread = 1;
  static constexpr int kGroups = WARP_MN / 16;  // one ldmatrix reads 16 rows by 32 bytes
  int offset;

  __device__ __forceinline__ explicit RowReader(int first_mn) {
    const int lane = int(threadIdx.x) % 32, matrix = lane / 8;
    const int octet = SIDE == Side::kA ? matrix % 2 : matrix / 2, half = SIDE == Side::kA ? matrix / 2 : matrix % 2;
    offset = Tile::Places::offset(first_mn + octet * 8 + lane % 8, half * 16);
  }

  template <class Fragment>
  __device__ __forceinline__ void read(Fragment& fragment, unsigned stage, int k_step) const {
    // The warp starts at k = 0, so that the bits of the k step are free in the unit, and survive the swizzle as they are.
    const unsigned address = stage + (offset ^ k_step * 32);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      ptx::ldmatrix_x4<false>(fragment.at + 4 * group, address + group * 16 * Tile::kRowBytes);
    }
  }
};

// mn contiguous, 2-byte elements: ldmatrix transposes.
template <class Tile, Side SIDE, int WARP_MN>
struct TransposingReader {
  static constexpr int kSpread = 1;
  static constexpr int kGroups = WARP_MN / 16;
  static constexpr int kDepth = 16;  // rows of a k step
  int offsets[kGroups];

  __device__ __forceinline__ explicit TransposingReader(int first_mn) {
    const int lane = int(threadIdx.x) % 32, matrix = lane / 8;
    const int octet = SIDE == Side::kA ? matrix % 2 : matrix / 2, half = SIDE == Side::kA ? matrix / 2 : matrix % 2;
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      offsets[group] = Tile::Places::offset(half * 8 + lane % 8, (first_mn + group * 16 + octet * 8) * 2);
    }
  }

  template <class Fragment>
  __device__ __forceinline__ void read(Fragment& fragment, unsigned stage, int k_step) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      ptx::ldmatrix_x4<true>(fragment.at + 4 * group, stage + offsets[group] + k_step * kDepth * Tile::kRowBytes);
    }
  }
};

}  // namespace kt
