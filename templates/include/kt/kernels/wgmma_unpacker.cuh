// Who brings the stretches of a dense, narrow B (wgmma_stretch.cuh): the producer's warps that have nothing to ask TMA for. One
// asks for stretches, as far ahead as there are slots; two unpack what has arrived. All walk the tiles by themselves, so that
// none of them holds up what the first warp asks for of A.

namespace kt {

template <class Traits>
class WgmmaUnpacker {
 public:
  using Slots = typename Traits::Slots;
  static constexpr int BLOCK_K = Traits::BLOCK_K, kWarps = Traits::kUnpackers;

  __device__ __forceinline__ explicit WgmmaUnpacker(const WgmmaShared<Traits>& shared) : shared_(shared) {}

  // One warp.
  __device__ __forceinline__ void ask(const GemmArguments& args) const {
    typename Traits::Walk walk(args);
    wgmma_start<Traits>();
    RingPlace<Slots::kSlots> ring;
    for (WgmmaTile tile; walk.next(tile);) {
      const unsigned long long matrix = matrix_of(args, tile.batch);
#pragma unroll 1
      for (int step = 0; step < tile.steps; ++step) {
        const int k = (tile.first_step + step) * BLOCK_K;
        const unsigned long long begin = matrix + 2 * ((unsigned long long)k * unsigned(args.n));
        ptx::mbarrier_wait(shared_.unpacked(ring.stage), ring.phase ^ 1);
        load(WgmmaStretch::of(begin, args.n, args.k - k, BLOCK_K), ring.stage);
        ring.advance();
      }
    }
  }

  // Warp `warp` of kWarps. Its lanes have neighbouring rows, the swizzle of which keeps them from each other's banks.
  __device__ __forceinline__ void unpack(const GemmArguments& args, int warp) const {
    typename Traits::Walk walk(args);
    wgmma_start<Traits>();
    RingPlace<Slots::kSlots> slots;
    RingPlace<Traits::STAGES> ring;
    const int first_row = warp * 32 + lane_here();
    for (WgmmaTile tile; walk.next(tile);) {
      const unsigned before = unsigned(matrix_of(args, tile.batch) % 16);
#pragma unroll 1
      for (int step = 0; step < tile.steps; ++step) {
        const int left = args.k - (tile.first_step + step) * BLOCK_K;
        ptx::mbarrier_wait(shared_.empty(ring.stage), ring.phase ^ 1);
        ptx::mbarrier_wait(shared_.arrived(slots.stage), slots.phase);
        const unsigned slot = shared_.slot(slots.stage) + before, stage = shared_.b(ring.stage);
#pragma unroll 1
        for (int row = first_row; row < BLOCK_K; row += kWarps * 32) {
          Slots::unpack(slot + row * (2 * args.n), stage, row, args.n, row < left);
        }
        ptx::fence_async_proxy();
        __syncwarp();
        if (lane_here() == 0) {
          ptx::mbarrier_arrive(shared_.full(ring.stage));
          ptx::mbarrier_arrive(shared_.unpacked(slots.stage));
        }
        slots.advance();
        ring.advance();
      }
    }
  }

 private:
  __device__ __forceinline__ static unsigned long long matrix_of(const GemmArguments& args, int batch) {
    return reinterpret_cast<unsigned long long>(args.b) + 2ull * (unsigned long long)(batch * args.stride_b);
  }

  __device__ __forceinline__ void load(const WgmmaStretch& stretch, int slot) const {
    const unsigned target = shared_.slot(slot), arrived = shared_.arrived(slot);
    const int lane = lane_here();
    if (lane == 0 && stretch.whole > 0) {
      ptx::mbarrier_announce(arrived, stretch.whole);
      ptx::bulk_load(target, stretch.first, stretch.whole, arrived);
    }
    if (stretch.rest < stretch.end) {
      const int at = stretch.rest + 2 * lane;
      if (at < stretch.end) ptx::store_shared_half_word(target + at, ptx::load_half_word(stretch.first + at));
      ptx::fence_async_proxy();  // before a later stretch is copied there
      __syncwarp();
    }
    if (lane == 0) ptx::mbarrier_arrive(arrived);
  }

  WgmmaShared<Traits> shared_;
};

}  // namespace kt
