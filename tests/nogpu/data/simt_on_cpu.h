// How gemm_simt is launched.
template <class Of>
struct Tiles : Of {
  static constexpr bool kStretch = false, STREAMED_A = false;
};

template <class Traits>
void launch(const kt::GemmArguments& args) {
  kt::GemmArguments grouped = args;
  grouped.raster_group = 2;
  if constexpr (Traits::STREAM_K) {
    gridDim.x = 5;
    cpu::run_cluster(0, gridDim.x, Traits::kThreads, [&] { kt::gemm_simt<Traits>(grouped); });
    return;
  }
  const long long tiles = (long long)kt::cdiv(args.m, Traits::BLOCK_M) * kt::cdiv(args.n, Traits::BLOCK_N);
  for (unsigned i = 0; i < tiles * args.split_k * args.batch; ++i) {
    cpu::run_cluster(i, 1, Traits::kThreads, [&] { kt::gemm_simt<Traits>(grouped); });
  }
}
