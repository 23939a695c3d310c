// Runs, on the CPU, what multiplies a B whose rows are read in classes: the copy of A, what tensor maps show of B, and the
// sums of a warp that move between classes. Elements are floats' upper halves; what no product may use is NaN.
inline float __shfl_sync(unsigned, float value, int from) {
  return float(cpu::meet_warp({value})[cpu::running / 32 * 32 + unsigned(from)][0]);
}
static Index blockDim;
typedef unsigned long long cuuint64_t;

namespace kt {
struct TensorMap {};
}
namespace kt::ptx {
inline void prefetch(const TensorMap&) {}
}  // namespace kt::ptx
// headers

using Element = unsigned short;
inline float as_float(Element value) { return __uint_as_float(unsigned(value) << 16); }
inline Element as_element(float value) { unsigned bits; std::memcpy(&bits, &value, 4); return Element(bits >> 16); }
constexpr Element kNan = 0x7fff;

// A matrix in an allocation of NaN that begins a whole access before it; `shift` elements behind a multiple of 16 bytes.
struct Matrix {
  int rows, columns, pitch;
  std::vector<Element> memory;
  Element* base;
  Matrix(int rows, int columns, int gap, int shift, int seed) : rows(rows), columns(columns), pitch(columns + gap) {
    memory.assign(rows * pitch + 64, kNan);
    base = reinterpret_cast<Element*>((reinterpret_cast<unsigned long long>(memory.data()) + 47) / 16 * 16) + shift;
    for (int row = 0; row < rows; ++row)
      for (int i = 0; i < columns; ++i) base[row * pitch + i] = as_element(float((row * 5 + i * 3 + seed) % 7 - 3));
  }
};

// What a tensor map shows of rows of B.
struct Shown {
  const Element* begin;
  cuuint64_t extents[3], strides[2];
  float at(long long row, long long column) const {
    const bool inside = row < (long long)extents[1] && column < (long long)extents[0];
    return inside ? as_float(begin[row * (long long)(strides[0] / 2) + column]) : 0.0f;
  }
};

inline Shown shown(const Matrix& b, int classes, int number) {
  Shown map{nullptr, {cuuint64_t(b.columns), cuuint64_t(b.rows), 1}, {cuuint64_t(b.pitch) * 2, 0}};
  map.begin = static_cast<const Element*>(show_class(b.base, map.extents, map.strides, 2, classes, number));
  if (map.begin == nullptr) cpu::fail("rows have no such class");
  if (reinterpret_cast<unsigned long long>(map.begin) % 16 || map.strides[0] % 16) cpu::fail("TMA cannot read the class");
  const Element* const end = b.base + (b.rows - 1) * b.pitch + b.columns;
  if (map.begin + (map.extents[1] - 1) * (map.strides[0] / 2) + map.extents[0] > end) cpu::fail("a class ends behind B");
  return map;
}

// The sums of a warp for 16 rows from `row` on and the tile's columns from `n0` on, which must be those of the product.
template <int CLASSES, int COLUMNS, int BLOCK_K>
void check_tile(const Matrix& a, const Matrix& b, const std::vector<Element>& copy, const std::vector<Shown>& maps, int row,
                int n0) {
  using Classes = kt::WgmmaClasses<CLASSES>;
  const int extent = Classes::template steps<BLOCK_K>(a.columns) * BLOCK_K, pitch = extent * CLASSES;
  cpu::run_cluster(0, 1, 32, [&] {
    const int lane = int(threadIdx.x), g = lane / 4, t = lane % 4;
    float sum[COLUMNS / 2] = {};
    for (int number = 0; number < CLASSES; ++number) {
      if (number > 0) Classes::template move<COLUMNS>(sum, lane);
      for (int i = 0; i < COLUMNS / 2; ++i) {
        const int column = i / 4 * 8 + 2 * t + i % 2, of_a = row + g + i % 4 / 2 * 8;
        if (of_a >= a.rows) continue;
        for (int k = 0; k < extent; ++k)
          sum[i] += as_float(copy[of_a * pitch + number * extent + k]) * maps[number].at(k, n0 + column);
      }
    }
    for (int i = 0; i < COLUMNS / 2; ++i) {
      const int at = i / 4 * 8 + 2 * t + i % 2 - Classes::kFirst, of_a = row + g + i % 4 / 2 * 8;
      if (of_a >= a.rows || at < 0 || at >= COLUMNS - Classes::kLost || n0 + at >= b.columns) continue;
      float want = 0;
      for (int k = 0; k < a.columns; ++k) want += as_float(a.base[of_a * a.pitch + k]) * as_float(b.base[k * b.pitch + n0 + at]);
      if (!(sum[i] == want)) cpu::fail("a sum is not that of the product");
    }
  });
}

// ALIGN: bytes to which rows of A are aligned; `gap`s and `shift`s are elements.
template <int CLASSES, int ALIGN, int COLUMNS, int BLOCK_K>
void multiplied(int m, int n, int k, int gap_a, int shift_a, int gap_b, int shift_b) {
  const Matrix a(m, k, gap_a, shift_a, 1), b(k, n, gap_b, shift_b, 2);
  using Classes = kt::WgmmaClasses<CLASSES>;
  const int pitch = Classes::template steps<BLOCK_K>(k) * BLOCK_K * CLASSES;
  kt::GemmArguments args{};
  args.a = a.base;
  args.b = b.base;
  args.lda = a.pitch;
  args.ldb = b.pitch;
  args.m = m;
  args.k = k;
  cpu::readable.assign(1, {reinterpret_cast<const char*>(a.base), reinterpret_cast<const char*>(a.base + (m - 1) * a.pitch + k)});
  std::vector<uint4> memory(m * pitch / 8, uint4{~0u, ~0u, ~0u, ~0u});
  gridDim.x = 2;
  blockDim.x = 64;
  for (unsigned block = 0; block < 2; ++block) {
    cpu::run_cluster(block, 1, 64, [&] {
      kt::copy_classes<CLASSES, ALIGN, BLOCK_K>(args, reinterpret_cast<Element*>(memory.data()), pitch);
    });
  }
  std::vector<Element> copy(m * pitch);
  std::memcpy(copy.data(), memory.data(), copy.size() * 2);
  std::vector<Shown> maps;
  for (int number = 0; number < CLASSES; ++number) maps.push_back(shown(b, CLASSES, number));
  for (int row = 0; row < m; row += 16)
    for (int n0 = 0; n0 < n; n0 += COLUMNS - Classes::kLost) check_tile<CLASSES, COLUMNS, BLOCK_K>(a, b, copy, maps, row, n0);
}
