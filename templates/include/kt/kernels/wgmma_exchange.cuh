// The slices of k of a cluster: each block sums some steps of the same tile, then each gets the sums of all for its part
// of the tile's columns, through the cluster's shared memory, and writes that part. No workspace, no second kernel.
//
// Every block sends each part to the block that writes it, its own part too, word by word as accumulators lie in
// registers, to a place of its own. Who writes adds up what has come in the order of the blocks: two runs give the same
// bits. The places are those of stages: nothing is sent before all warps of all blocks have multiplied their last one.

namespace kt {

template <class TAcc, int STRIPS, int WARPS, int BLOCK_N, int PARTS>
struct WgmmaExchange {
  static constexpr int kColumns = BLOCK_N / PARTS;  // of a part
  static constexpr int kWords = kColumns / 8;       // of a lane in a strip, 16 bytes each
  static constexpr int kStripBytes = kWords * 32 * 16;
  static constexpr int kWarpBytes = STRIPS * kStripBytes;
  static constexpr int kBlockBytes = WARPS * kWarpBytes;  // from one block to another
  static constexpr int kBytes = PARTS * kBlockBytes;      // that come to a block

  static_assert(sizeof(TAcc) == 4 && BLOCK_N % (8 * PARTS) == 0, "whole words");

  // One warp's share of what comes to a block, and of what it sends. Shared memory is named by the same address in every block.
  unsigned places;   // for all that comes
  unsigned ready;    // a barrier: all warps of all blocks have multiplied
  unsigned arrived;  // a barrier: all bytes have come
  int warp, rank;    // of WARPS, of PARTS
  int first_block;   // of the cluster's blocks; the others that slice this tile follow every `stride`
  int stride;

  // Of the two barriers; one thread, before others use them.
  __device__ __forceinline__ static void make_barriers(unsigned ready, unsigned arrived) {
    ptx::mbarrier_init(ready, PARTS * WARPS);
    ptx::mbarrier_init(arrived, 1);
    ptx::mbarrier_init_fence();
    ptx::mbarrier_expect(arrived, kBytes);
  }

  __device__ __forceinline__ void send(const TAcc (&sum)[STRIPS][BLOCK_N / 2]) const {
    const int lane = lane_here();
    if (lane < PARTS) ptx::mbarrier_arrive_at(ready, first_block + lane * stride);
    ptx::mbarrier_wait(ready, 0);
    const unsigned mine = places + rank * kBlockBytes + warp * kWarpBytes + lane * 16;
#pragma unroll
    for (int part = 0; part < PARTS; ++part) {
      const unsigned there = ptx::address_in(mine, first_block + part * stride);
      const unsigned barrier = ptx::address_in(arrived, first_block + part * stride);
#pragma unroll
      for (int i = 0; i < STRIPS; ++i) {
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          ptx::store_in_cluster(there + i * kStripBytes + word * (32 * 16), sum[i] + 4 * (part * kWords + word), barrier);
        }
      }
    }
  }

  __device__ __forceinline__ void receive(TAcc (&part)[STRIPS][kColumns / 2]) const {
    ptx::mbarrier_wait(arrived, 0);
    const unsigned mine = places + warp * kWarpBytes + lane_here() * 16;
#pragma unroll
    for (int block = 0; block < PARTS; ++block) {
#pragma unroll
      for (int i = 0; i < STRIPS; ++i) {
#pragma unroll
        for (int word = 0; word < kWords; ++word) {
          unsigned bits[4];
          ptx::load_shared(bits, mine + block * kBlockBytes + i * kStripBytes + word * (32 * 16));
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            TAcc& sum = part[i][4 * word + j];
            const TAcc value = reinterpret_cast<const TAcc&>(bits[j]);
            sum = block == 0 ? value : sum + value;
          }
        }
      }
      compiler_fence();  // the sums of all blocks at once would take registers that are not there
    }
  }
};

}  // namespace kt
