// Runs, on the CPU, how rows of A that begin anywhere come to wgmma: the boxes of all classes, and what lanes load and shift.
// Elements, of 16 or 32 bits, are their own numbers; what no product may use has all bits set.
typedef unsigned long long cuuint64_t;

namespace kt {
constexpr int kStripRows = 16;
inline int lane_here() { return int(threadIdx.x) % 32; }

struct TensorMap {
  const char* begin;
  cuuint64_t extents[3], strides[2];
  int columns, rows;  // of a box
  int element_bytes;
};
}  // namespace kt

namespace cpu {
static std::vector<unsigned> loads[32];  // addresses, of each lane
}

namespace kt::ptx {
inline void prefetch(const TensorMap&) {}

inline void tma_load(const TensorMap& map, unsigned target, unsigned, int column, int row, int) {
  const int bytes = map.element_bytes;
  if (target % 128 || column * bytes % 16) cpu::fail("TMA takes no such box");
  for (int i = 0; i < map.rows; ++i) {
    for (int j = 0; j < map.columns; ++j, target += bytes) {
      const bool inside = row + i < (long long)map.extents[1] && column + j < (long long)map.extents[0];
      std::memset(shared + target, 0, bytes);
      if (inside) std::memcpy(shared + target, map.begin + (row + i) * (long long)map.strides[0] + (column + j) * bytes, bytes);
    }
  }
}

inline void load_shared(unsigned (&word)[1], unsigned source) {
  word[0] = load_shared_word(source);
  cpu::loads[threadIdx.x].push_back(source);
}
inline void load_shared_if(unsigned& word, unsigned source, unsigned wanted) {
  if (!wanted) return;
  word = load_shared_word(source);
  cpu::loads[threadIdx.x].push_back(source);
}
}  // namespace kt::ptx
// headers

// Rows of `k` elements, `pitch` apart, `shift` elements behind a multiple of 16 bytes; between them is what no product may use.
template <class Element>
struct Matrix {
  int rows, k, pitch;
  std::vector<Element> memory;
  Element* base;
  Matrix(int rows, int k, int gap, int shift) : rows(rows), k(k), pitch(k + gap) {
    memory.assign(rows * pitch + 64, Element(-1));
    base = reinterpret_cast<Element*>((reinterpret_cast<unsigned long long>(memory.data()) + 47) / 16 * 16) + shift;
    for (int row = 0; row < rows; ++row)
      for (int i = 0; i < k; ++i) base[row * pitch + i] = number(row, i);
  }
  static Element number(int row, int i) { return Element((row * 521 + i * 7 + 1) % 65521); }
  Element at(int row, int i) const { return row < rows && i < k ? number(row, i) : 0; }
};

// No bank is asked for two words by one load.
inline void check_banks() {
  for (std::size_t i = 0; i < cpu::loads[0].size(); ++i) {
    int words[32];
    std::fill(words, words + 32, -1);
    for (const auto& of_lane : cpu::loads) {
      const int word = int(of_lane[i] / 4), bank = word % 32;
      if (words[bank] != -1 && words[bank] != word) cpu::fail("a bank is hit twice");
      words[bank] = word;
    }
  }
}

// Every step of every tile of A: each register of each lane of each strip, as the PTX document wants them.
template <class Element, int EXTENT, int BLOCK_K, int CLASSES>
void shifted(int m, int k, int gap, int shift) {
  constexpr int kBytes = sizeof(Element), kOfWord = 4 / kBytes;  // elements
  using Rows = kt::WgmmaShiftedRows<EXTENT, BLOCK_K, kBytes, CLASSES>;
  using Order = kt::WgmmaStripRows<CLASSES>;
  const Matrix<Element> a(m, k, gap, shift);
  kt::GemmArguments args{};
  args.a = a.base;
  args.lda = a.pitch;
  kt::TensorMap maps[CLASSES];
  kt::WgmmaMaps<CLASSES> of;
  for (int number = 0; number < CLASSES; ++number) {
    kt::TensorMap& map = maps[number];
    map = {nullptr, {cuuint64_t(k), cuuint64_t(m), 1}, {cuuint64_t(a.pitch) * kBytes, 0}, BLOCK_K + 16 / kBytes, EXTENT / CLASSES, kBytes};
    map.begin = static_cast<const char*>(show_class(a.base, map.extents, map.strides, kBytes, CLASSES, number));
    if (map.begin == nullptr) cpu::fail("rows have no such class");
    if (reinterpret_cast<unsigned long long>(map.begin) % 16 || map.strides[0] % 16) cpu::fail("TMA cannot read the class");
    of.of[number] = &map;
  }
  for (int first = 0; first < m; first += EXTENT) {
    for (int k0 = 0; k0 < k; k0 += BLOCK_K) {
      std::memset(kt::shared, 0xff, sizeof(kt::shared));
      Rows::load(of, 0, 0, first, k0, 0);
      for (int i = Rows::kBytes; i < Rows::kBytes + 128; ++i)
        if (kt::shared[i] != 0xff) cpu::fail("boxes are larger than their area");
      std::vector<int> seen(EXTENT, 0);
      for (int strip = 0; strip < EXTENT / 16; ++strip) {
        for (unsigned lane = 0; lane < 32; ++lane) {
          threadIdx.x = lane;
          cpu::loads[lane].clear();
          const typename Rows::Lane of_lane(args, strip);
          unsigned words[4], further[4] = {};
          for (int step = 0; step < Rows::kSteps; ++step) {
            Rows::load(words, further, of_lane, 0, step);
            for (int i = 0; i < 4 * kOfWord; ++i) {
              const int word = i / kOfWord, row = Order::first(strip) + (int(lane) / 4 + word % 2 * 8) * CLASSES;
              const int column = (step * 8 + int(lane) % 4 + word / 2 * 4) * kOfWord + i % kOfWord;
              const Element found = Element(words[word] >> 16 * (i % kOfWord));
              if (found != a.at(first + row, k0 + column)) cpu::fail("an element is another one's");
              if (step == 0 && lane % 4 == 0 && i % kOfWord == 0 && word / 2 == 0) ++seen[row];
            }
          }
        }
        check_banks();
      }
      for (int one : seen) if (one != 1) cpu::fail("strips are not all rows, once");
    }
  }
}

// Strips that one warp has of the tile of a consumer of TILES wgmmas, by the first one and by how far the others are.
template <int APART, int TILES>
void same_warp() {
  using Order = kt::WgmmaStripRows<APART>;
  for (int consumer = 0; consumer < 2; ++consumer)
    for (int warp = 0; warp < 4; ++warp)
      for (int i = 0; i < TILES; ++i) {
        const int strip = consumer * 4 * TILES + warp;
        if (Order::first(strip) + Order::after(i) != Order::first(strip + 4 * i)) cpu::fail("a strip begins elsewhere");
      }
}
