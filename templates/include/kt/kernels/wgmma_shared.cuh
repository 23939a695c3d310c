// What the warps of a block of `wgmma` have in common: its shared memory, and the barriers in it.

namespace kt {

constexpr int kTilesAhead = 4;  // that the producer may be ahead of the consumers

// Where everything lies in a block's shared memory.
template <class Traits>
struct WgmmaShared {
  unsigned base;  // a multiple of 1024

  static constexpr int kSlots = Traits::STAGES * Traits::kStageBytes;
  static constexpr int kStaging = kSlots + Traits::Slots::kBytes;
  static constexpr int kTiles = kStaging + Traits::CONSUMERS * 4 * Traits::kStagedBytes;
  static constexpr int kBarriers = kTiles + kTilesAhead * int(sizeof(WgmmaTile));

  __device__ __forceinline__ unsigned a(int stage) const { return base + stage * Traits::kStageBytes; }
  __device__ __forceinline__ unsigned b(int stage) const { return a(stage) + Traits::A::kBytes; }
  __device__ __forceinline__ unsigned slot(int number) const { return base + kSlots + number * Traits::Slots::kSlotBytes; }
  __device__ __forceinline__ WgmmaTile* tile(int place) const {
    return static_cast<WgmmaTile*>(__cvta_shared_to_generic(base + kTiles)) + place;
  }
  __device__ __forceinline__ unsigned staging(int warp) const { return base + kStaging + warp * Traits::kStagedBytes; }
  // A stage has arrived; it may be overwritten; the next tile is known; all consumers know it; a consumer's turn has come.
  __device__ __forceinline__ unsigned full(int stage) const { return base + kBarriers + stage * ptx::kMbarrierBytes; }
  __device__ __forceinline__ unsigned empty(int stage) const { return full(Traits::STAGES + stage); }
  __device__ __forceinline__ unsigned told(int place) const { return full(2 * Traits::STAGES + place); }
  __device__ __forceinline__ unsigned known(int place) const { return told(kTilesAhead + place); }
  __device__ __forceinline__ unsigned turn(int consumer) const { return told(2 * kTilesAhead + consumer); }
  // A slot's stretch has arrived; it has been unpacked.
  __device__ __forceinline__ unsigned arrived(int slot) const { return turn(2 + slot); }
  __device__ __forceinline__ unsigned unpacked(int slot) const { return arrived(Traits::Slots::kSlots + slot); }

  // Each warp but the producer makes some of the barriers, one behind the other: the address and the value of one that is
  // made must be the warp's.
  __device__ __forceinline__ void make_barriers(int warp) const {
    if (threadIdx.x % 32 != 0) return;
    if (warp == 1) init_barriers<Traits::STAGES>(full(0), Traits::kFed ? 1 + kWarpgroup : 1 + Traits::kUnpackers);
    if (warp == 2) init_barriers<Traits::STAGES>(empty(0), Traits::kSharers * Traits::kPeers);
    if (warp == 3) {
      init_barriers<kTilesAhead>(told(0), 1);
      init_barriers<kTilesAhead>(known(0), 4 * Traits::CONSUMERS);
      init_barriers<Traits::Slots::kSlots>(arrived(0), 1);
      init_barriers<Traits::Slots::kSlots>(unpacked(0), Traits::kUnpackers);
    }
    if (Traits::PING_PONG && warp == 4) init_barriers<2>(turn(0), 4);
    ptx::mbarrier_init_fence();
  }
};

// What is the same in all lanes, so that the compiler knows it and keeps it in a register of the warp.
__device__ __forceinline__ int same(int value) { return int(__reduce_or_sync(~0u, unsigned(value))); }

// Every warp, once: until the barriers are made. It is no fixed place in the program, so that each can prepare its own task.
template <class Traits>
__device__ __forceinline__ void wgmma_start() {
  if constexpr (Traits::CLUSTER_M * Traits::CLUSTER_N > 1) {
    ptx::cluster_start();
  } else {
    ptx::meet();
  }
}

}  // namespace kt
