// One operand's tile of a pipeline stage: TMA writes it to shared memory, wgmma reads it there.
//
// The tile is cut into panels, whose rows TMA swizzles within 128 bytes (or 64 or 32, where the tile is that narrow).
// K_MAJOR, where k is contiguous in memory: rows of a panel lie along mn (m or n), and panels follow each other along k.
// Otherwise rows lie along k, and panels follow each other along mn; the last one may reach beyond the tile. wgmma reads
// 16-bit formats alone that way; 4-byte elements are taken from there into registers (wgmma_fragments.cuh).

namespace kt {

// Bytes of a panel's row of a tile that is so many bytes wide.
__host__ __device__ constexpr int wgmma_row_bytes(int bytes) { return bytes > 64 ? 128 : bytes > 32 ? 64 : 32; }

template <int EXTENT, int BLOCK_K, int ELEMENT_BYTES, bool K_MAJOR, int SHARERS>
struct WgmmaOperand {
  static constexpr int kRowBytes = K_MAJOR ? 128 : wgmma_row_bytes(EXTENT * ELEMENT_BYTES);
  static constexpr int kRowElements = kRowBytes / ELEMENT_BYTES;
  static constexpr int kRows = K_MAJOR ? EXTENT : BLOCK_K;
  static constexpr int kPanels = cdiv(K_MAJOR ? BLOCK_K : EXTENT, kRowElements);
  static constexpr int kPanelBytes = kRows * kRowBytes;
  static constexpr int kBytes = kPanels * kPanelBytes;
  // Of each panel, each of the SHARERS blocks of the cluster that need this tile loads as many rows for all of them.
  static constexpr int kShareRows = kRows / SHARERS;
  static constexpr int kBoxes = cdiv(kShareRows, 256);
  static constexpr int kBoxRows = kShareRows / kBoxes;
  // One wgmma takes 32 bytes of k.
  static constexpr int kStepK = 32 / ELEMENT_BYTES;
  static constexpr int kSteps = BLOCK_K / kStepK;

  static_assert(!K_MAJOR || EXTENT % 8 == 0, "8 rows swizzle together");
  static_assert(K_MAJOR || ELEMENT_BYTES != 1, "bytes are read along k");
  static_assert(!K_MAJOR || BLOCK_K % kRowElements == 0, "whole panels along k");
  static_assert(kBoxRows * kBoxes * SHARERS == kRows && kBoxRows % 8 == 0, "boxes are whole groups of 8 rows");
  static_assert(kBytes % 1024 == 0, "what follows must be aligned as well");

  // Loads share number `share` to the same place in all `blocks` (a mask); the bytes count at their `barrier`. What no
  // other block needs may have a policy of L2.
  template <class... Policy>
  __device__ __forceinline__ static void load(const TensorMap& map, unsigned shared, unsigned barrier, int mn, int k,
                                              int batch, int share, unsigned blocks, Policy... policy) {
    static_assert(SHARERS == 1 || sizeof...(Policy) == 0, "what blocks share has the usual policy");
    const int column = K_MAJOR ? k : mn, row = (K_MAJOR ? mn : k) + share * kShareRows;
    const unsigned target = shared + share * (kShareRows * kRowBytes);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
#pragma unroll
      for (int box = 0; box < kBoxes; ++box) {
        const unsigned box_target = target + panel * kPanelBytes + box * (kBoxRows * kRowBytes);
        const int box_column = column + panel * kRowElements, box_row = row + box * kBoxRows;
        if constexpr (SHARERS == 1) {
          ptx::tma_load(map, box_target, barrier, box_column, box_row, batch, policy...);
        } else {
          ptx::tma_load_multicast(map, box_target, barrier, box_column, box_row, batch, (unsigned short)blocks);
        }
      }
    }
  }

  __host__ __device__ static constexpr unsigned long long descriptor(unsigned shared) {
    return ptx::wgmma_descriptor<kRowBytes>(shared, 8 * kRowBytes, K_MAJOR ? 16 : kPanelBytes);
  }

  // What to add to a descriptor to move on, in its units of 16 bytes: along k by steps of wgmma, along mn by elements.
  __host__ __device__ static constexpr int after_steps(int steps) {
    const int bytes = 32 * steps;
    return (K_MAJOR ? bytes / 128 * kPanelBytes + bytes % 128 : steps * kStepK * kRowBytes) >> 4;
  }
  __host__ __device__ static constexpr int after_elements(int elements) {
    return (K_MAJOR ? elements * kRowBytes : elements / kRowElements * kPanelBytes) >> 4;
  }
};

}  // namespace kt
