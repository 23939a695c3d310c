// How gemm_skinny and gemm_stretches are launched.
// Of stretches as few blocks as make warps go from one to the next.
template <class Traits>
void launch(const kt::GemmArguments& args) {
  const long long extent = Traits::STREAMED_A ? args.m : args.n;
  if constexpr (Traits::kStretch) {
    gridDim.x = 2;
    for (unsigned i = 0; i < 2; ++i) cpu::run_cluster(i, 1, Traits::kThreads, [&] { kt::gemm_stretches<Traits>(args); });
  } else {
    const long long clusters = kt::cdiv(extent, (long long)Traits::kTileL) * args.split_k * args.batch;
    for (unsigned i = 0; i < clusters; ++i) {
      cpu::run_cluster(i * Traits::CLUSTER_K, Traits::CLUSTER_K, Traits::kThreads, [&] { kt::gemm_skinny<Traits>(args); });
    }
  }
}
