// Persistent GEMM on Hopper's tensor cores. One warp of the first warpgroup has TMA fill a ring of stages in shared
// memory; the other warpgroups, the consumers, multiply what has arrived and write C while the next tile is on its way.
//
// Cooperative: the consumers share a tile, each some of its rows. Ping-pong: each of two consumers has a tile of its own,
// and they take turns, so that one multiplies while the other writes C.

namespace kt {

template <class Traits>
__device__ __forceinline__ void gemm_wgmma(const GemmArguments& args, const WgmmaMaps<Traits::A_CLASSES>& maps_a,
                                           const WgmmaMaps<Traits::CLASSES>& maps_b, const TensorMap& map_c) {
  extern __shared__ unsigned char shared_bytes[];
  const WgmmaShared<Traits> shared{(ptx::shared_address(shared_bytes) + 1023) / 1024 * 1024};
  // The same in every lane: what follows from it need not be computed by each.
  const int warp = int(__reduce_or_sync(~0u, threadIdx.x / 32));
  if (warp == 0) {
    if constexpr (!Traits::kFedA) maps_a.prefetch();
    if constexpr (Traits::kTmaB) maps_b.prefetch();
  } else {
    shared.make_barriers(warp);
  }
  if constexpr (!Traits::kEarly) wait_for_earlier_grids();
  if (warp < 4) {
    if constexpr (Traits::kMoveRegisters) ptx::give_registers<Traits::kProducerRegisters>();
    if (warp == 0 || Traits::kFed) {
      WgmmaProducer<Traits>(shared, maps_a, maps_b, args).run(args);
    } else {
      if constexpr (Traits::kTmaStores) {
        if (warp == 1) ptx::prefetch(map_c);
      }
      if constexpr (!Traits::kStretches) {
        wgmma_start<Traits>();
      } else if (warp == 1) {
        WgmmaUnpacker<Traits>(shared).ask(args);
      } else {
        WgmmaUnpacker<Traits>(shared).unpack(args, warp - 2);
      }
    }
  } else {
    if constexpr (Traits::kMoveRegisters) ptx::take_registers<Traits::kConsumerRegisters>();
    WgmmaConsumer<Traits>(args, shared, warp / 4 - 1).run(args, map_c);
  }
}

}  // namespace kt
