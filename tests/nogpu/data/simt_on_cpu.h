// How gemm_simt is launched.
template <class Of>
struct Tiles : Of {
  static constexpr bool kStretch = false, STREAMED_A = false;
};

template <class Traits>
void launch(const kt::GemmArguments& args) {
  kt::GemmArguments grouped = args;
  grouped.raster_group = 2;
  const long long tiles = (long long)kt::cdiv(args.m, Traits::BLOCK_M) * kt::cdiv(args.n, Traits::BLOCK_N);
  for (unsigned i = 0; i < tiles * args.split_k * args.batch; ++i) {
    cpu::run_cluster(i, 1, Traits::kThreads, [&] { kt::gemm_simt<Traits>(grouped); });
  }
}
