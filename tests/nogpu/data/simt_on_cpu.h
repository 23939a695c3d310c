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

// How many elements the loads of operands have that are turned in registers; 0 for one that is not.
template <class Traits, bool, bool>
void expect_loads(int of_a, int of_b) {
  int a = 0, b = 0;
  if constexpr (Traits::kTurnsA) a = Traits::TileA::kWidth;
  if constexpr (Traits::kTurnsB) b = Traits::TileB::kWidth;
  if (a != of_a || b != of_b) cpu::fail("loads of another width");
}

// Registers for one further chunk of each row.
template <class Tile, bool SHIFTS>
constexpr int further_words() {
  if constexpr (SHIFTS) return int(sizeof(typename Tile::Staged{}.further)) / 4;
  return 0;
}

// What the search space says of the kernel: shared memory but for barriers, registers of operands, widths of loads.
template <class Traits>
void expect(int bytes, int words, int of_a, int of_b) {
  constexpr int kFurther = further_words<typename Traits::TileA, Traits::kShiftsA>() +
                           further_words<typename Traits::TileB, Traits::kShiftsB>();
  const int turned = Traits::kRegisters ? Traits::kWordsA + Traits::kWordsB + kFurther : 0;
  if (Traits::kRingBytes != bytes || turned != words) {
    std::printf("%d bytes, %d words, not %d, %d\n", Traits::kRingBytes, turned, bytes, words);
    std::exit(1);
  }
  expect_loads<Traits, false, false>(of_a, of_b);
}
