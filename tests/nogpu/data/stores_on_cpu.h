// Runs, on the CPU, what consumers of wgmma do with accumulators of a tile of 128 rows: by rows through shared memory, by
// threads directly, by windows and by pairs. Results are floats' upper halves, or floats, and each element another one.
inline float __shfl_sync(unsigned, float value, int from) {
  return float(cpu::meet_warp({value})[cpu::running / 32 * 32 + unsigned(from)][0]);
}
inline unsigned __shfl_sync(unsigned, unsigned value, int from) {
  return unsigned(cpu::meet_warp({double(value)})[cpu::running / 32 * 32 + unsigned(from)][0]);
}
inline uint4 __ldcg(const uint4* words) { return *words; }
inline void* __cvta_shared_to_generic(unsigned address) { return kt::shared + address; }

namespace kt {
struct TensorMap {};
}
namespace kt::ptx {
inline float computed_here(float value) { return value; }
inline void fence_async_proxy() {}
template <int PENDING>
inline void tma_store_wait_read() {}
inline void tma_store_commit() {}
inline void tma_store(const TensorMap&, unsigned, int, int, int, unsigned long long) { cpu::fail("no store by TMA here"); }

// Lane l has the address of row l % 8 of matrix l / 8; lane 4 r + c has word c of row r of each.
inline void stmatrix_x4(unsigned address, unsigned a, unsigned b, unsigned c, unsigned d) {
  const unsigned lane = threadIdx.x % 32, first = cpu::running / 32 * 32;
  auto all = cpu::meet_warp({double(a), double(b), double(c), double(d)});
  for (unsigned word = 0; word < 4; ++word) store_shared(address + 4 * word, unsigned(all[first + lane % 8 * 4 + word][lane / 8]));
}
inline void store_words(void* target, const unsigned* words) {
  if (reinterpret_cast<unsigned long long>(target) % 16) cpu::fail("misaligned store");
  std::memcpy(target, words, 16);
}
}  // namespace kt::ptx
// headers

struct Half {
  unsigned short bits;
  Half() = default;
  Half(float value) { unsigned all; std::memcpy(&all, &value, 4); bits = (unsigned short)(all >> 16); }
  operator float() const { return __uint_as_float(unsigned(bits) << 16); }
};

constexpr int kRows = 128, kColumns = 128;
// Rows of a tile, from which on those that have been multiplied are written nowhere.
int height = kRows;
// Of a tile's element: a normal number, which neither a product with 1 nor its upper half changes.
inline float element(int row, int column) { return __uint_as_float(unsigned(0x1000 + row * kColumns + column) << 16); }

template <class Out>
void check(const Out* c, int m, int n, int gap, int row, int column);

// `store` writes the tile from (row, column) of an m x n matrix on, whose rows are `gap` elements longer.
template <class Out, int STORE_BYTES, int APART, int TILES, class Store>
void stored(int m, int n, int gap, int row, int column, Store store) {
  using Order = kt::WgmmaStripRows<APART>;
  const int pitch = n + gap;
  std::vector<Out> memory(m * pitch + 32, Out(0.0f));
  Out* const c = reinterpret_cast<Out*>((reinterpret_cast<unsigned long long>(memory.data()) + 15) / 16 * 16);
  kt::GemmArguments args{};
  args.c = c;
  args.ldc = pitch;
  args.m = m;
  args.n = n;
  args.alpha = 1;
  cpu::run_cluster(0, 1, 256 / TILES, [&] {
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    const int strip = warp / 4 * 4 * TILES + warp % 4;
    float sum[TILES][kColumns / 2];
    for (int i = 0; i < TILES; ++i)
      for (int j = 0; j < kColumns / 2; ++j)
        sum[i][j] = element(Order::first(strip + 4 * i) + (lane / 4 + j % 4 / 2 * 8) * APART, j / 4 * 8 + lane % 4 * 2 + j % 2);
    if (Order::first(strip) >= height) return;
    auto output = kt::output_c<float, Out, STORE_BYTES>(args, 0);
    output.m = kt::min_of(m, row + height);
    store(args, output, sum, warp, row + Order::first(strip));
  });
  check(c, m, n, gap, row, column);
}

template <class Out>
void check(const Out* c, int m, int n, int gap, int row, int column) {
  const int pitch = n + gap;
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < pitch; ++j) {
      const bool inside = i >= row && i < row + height && j >= column && j < column + kColumns && j < n;
      const float wanted = inside ? element(i - row, j - column) : 0.0f;
      if (float(c[i * pitch + j]) != wanted) {
        std::printf("row %d column %d of %d x %d: ", i, j, m, n);
        cpu::fail("another element stands here");
      }
    }
}

template <int APART, int TILES, class Out = Half>
void by_rows(int m, int n, int gap, int row, int column) {
  using Store = kt::WgmmaRowStore<float, TILES, kColumns, 32, 64, kt::WgmmaStripRows<APART>>;
  stored<Out, 16, APART, TILES>(m, n, gap, row, column, [&](auto&, auto output, auto& sum, int warp, int first) {
    Store::store(output, reinterpret_cast<float*>(kt::shared) + warp * 512, sum, first, column);
  });
}

template <int APART, int TILES, class Out = Half>
void directly(int m, int n, int gap, int row, int column) {
  using Tma = kt::WgmmaTmaStore<float, Out, true, kColumns, 128, 2>;
  using Order = kt::WgmmaStripRows<APART>;
  using Store = kt::WgmmaDirectStore<Tma, float, Out, kColumns, 128, 2, Order>;
  stored<Out, 16, APART, TILES>(m, n, gap, row, column, [&](auto& args, auto, auto& sum, int warp, int first) {
    for (int i = 0; i < TILES; ++i) Store::store(args, unsigned(warp * 4096), sum[i], 1.0f, first + Order::after(i), column, 0);
  });
}

template <int APART, int TILES, int REGISTERS>
void by_windows(int m, int n, int gap, int row, int column) {
  using Order = kt::WgmmaStripRows<APART>;
  using Store = kt::WgmmaWindowStore<float, true, true, TILES, kColumns, REGISTERS, 0, kColumns, Order>;
  stored<Half, 2, APART, TILES>(m, n, gap, row, column, [&](auto&, auto output, auto& sum, int, int first) {
    Store::store(output, sum, first, column);
  });
}

template <int APART, int TILES>
void by_pairs(int m, int n, int gap, int row, int column) {
  using Store = kt::WgmmaPairStore<float, true, TILES, kColumns, kt::WgmmaStripRows<APART>>;
  stored<float, 4, APART, TILES>(m, n, gap, row, column, [&](auto&, auto output, auto& sum, int, int first) {
    Store::store(output, sum, first, column);
  });
}

// Slices of split-K, the first one with half of each element and the others with what is left in equal parts, and the kernel that sums them.
template <int APART>
void in_slices(int m, int n, int gap, int slices) {
  using Order = kt::WgmmaStripRows<APART>;
  using Strips = kt::WgmmaStrips<float, kRows, kColumns>;
  std::vector<Half> memory(m * (n + gap) + 32, Half(0.0f));
  kt::GemmArguments args{};
  args.c = reinterpret_cast<Half*>((reinterpret_cast<unsigned long long>(memory.data()) + 15) / 16 * 16);
  args.ldc = n + gap;
  args.m = m;
  args.n = n;
  args.batch = 1;
  args.split_k = slices;
  args.alpha = 1;
  const long long strips = Strips::of_slice(args);
  std::vector<Strips::Word> workspace(strips * slices * kColumns / 8 * 32);
  for (int slice = 0; slice < slices; ++slice)
    for (int strip = 0; strip < kRows / 16; ++strip)
      for (unsigned lane = 0; lane < 32; ++lane) {
        threadIdx.x = lane;
        float sum[kColumns / 2];
        for (int j = 0; j < kColumns / 2; ++j) {
          const int row = Order::first(strip) + int(lane / 4 + j % 4 / 2 * 8) * APART;
          sum[j] = element(row, j / 4 * 8 + int(lane) % 4 * 2 + j % 2) * (slice == 0 ? 0.5f : 0.5f / (slices - 1));
        }
        Strips::store(Strips::at(workspace.data(), slice * strips + Strips::in_slice(args, 16 * strip, 0)), sum);
      }
  for (unsigned block = 0; block < strips * (kColumns / 32) / 8; ++block) {
    cpu::run_cluster(block, 1, kt::kSumThreads, [&] {
      kt::sum_wgmma_slices<float, Half, kRows, kColumns, 2, Order>(args, workspace.data());
    });
  }
  check(static_cast<const Half*>(args.c), m, n, gap, 0, 0);
}
