// How gemm_simt_turning is launched.
template <class Of>
struct Tiles : Of {
  static constexpr bool kStretch = false, STREAMED_A = false;
};

template <int CLASSES>
struct Maps {
  kt::TensorMap made[CLASSES];
  kt::ClassMaps<CLASSES> maps;
};

template <class Box, int CLASSES>
void make(Maps<CLASSES>& made, const void* data, int mn, int k, int batch, long long pitch, long long stride, int block_mn) {
  for (int i = 0; i < CLASSES; ++i) {
    made.made[i] = map_of(data, k, mn, batch, pitch, stride, Box::kBoxPitch, block_mn / CLASSES, CLASSES, i);
    made.maps.of[i] = &made.made[i];
  }
}

template <class Traits>
void launch(const kt::GemmArguments& args) {
  kt::GemmArguments grouped = args;
  grouped.raster_group = 2;
  Maps<Traits::BOXED_A> a;
  Maps<Traits::BOXED_B> b;
  make<typename Traits::BoxA>(a, args.a, args.m, args.k, args.batch, args.lda, args.stride_a, Traits::BLOCK_M);
  make<typename Traits::BoxB>(b, args.b, args.n, args.k, args.batch, args.ldb, args.stride_b, Traits::kSpanN);
  const long long tiles = (long long)kt::cdiv(args.m, Traits::BLOCK_M) * kt::cdiv(args.n, Traits::BLOCK_N);
  const unsigned blocks = Traits::STREAM_K ? 5u : unsigned(tiles * args.split_k * args.batch);
  if (Traits::STREAM_K) gridDim.x = blocks;
  for (unsigned i = 0; i < blocks; i += Traits::STREAM_K ? blocks : 1) {
    cpu::barriers.clear();
    cpu::run_cluster(i, Traits::STREAM_K ? blocks : 1, Traits::kThreads,
                     [&] { kt::gemm_simt_turning<Traits>(grouped, a.maps, b.maps); });
  }
}

// The lanes of a warp read words of all banks once, and eight lanes at a time store 16 bytes to all of them.
template <class Box>
void check_banks() {
  for (unsigned warp = 0; warp < unsigned(Box::kWarps); ++warp) {
    unsigned read = 0, stored[4] = {};
    for (unsigned lane = 0; lane < 32; ++lane) {
      threadIdx.x = warp * 32 + lane;
      read |= 1u << Box::source() / 4 % 32;
      stored[lane / 8] |= 1u << Box::target() / 16 % 8;
    }
    if (read != 0xffffffffu) cpu::fail("lanes read words of one bank");
    for (const unsigned banks : stored) {
      if (banks != 0xff) cpu::fail("lanes store to one bank");
    }
  }
}
