// Runs the copies of operands thread by thread, compares the copy with its source, and checks each read.
#undef __shared__
#define __shared__ static  // one block at a time

namespace kt {
struct Operand64 { static constexpr int kRows = 64, kRowBytes = 128, kPanelBytes = 64 * 128; };
}  // namespace kt
// headers

// Rows of an operand in an allocation that ends with the last element; `shift` bytes behind a multiple of 16.
struct Rows {
  int rows, row_bytes, pitch, batch, stride;
  std::vector<char> memory;
  char* base;
  Rows(int rows, int row_bytes, int gap, int batch, int stride, int shift)
      : rows(rows), row_bytes(row_bytes), pitch(row_bytes + gap), batch(batch), stride(stride) {
    const int size = (batch - 1) * stride + (rows - 1) * pitch + row_bytes;
    memory.resize(size + 32);
    base = reinterpret_cast<char*>((reinterpret_cast<unsigned long long>(memory.data()) + 15) / 16 * 16) + shift;
    for (int i = 0; i < size; ++i) base[i] = char(i * 7 % 251 + 1);
    cpu::readable.assign(1, {base, base + size});
  }
  const char* at(int b, int row) const { return base + b * stride + row * pitch; }
};

template <int ROW_BYTES>
struct CopyOfA {
  static constexpr bool PACK_A = true, PACK_B = false;
  static constexpr int kRowBytes = ROW_BYTES;
  uint4* to;
  uint4* packed_a() const { return to; }
  uint4* packed_b() const { return nullptr; }
};

template <int ROW_BYTES>
void copied(int rows, int row_bytes, int gap, int batch, int stride, int shift) {
  const Rows from(rows, row_bytes, gap, batch, stride ? stride : rows * (row_bytes + gap), shift);
  const kt::StoredRows stored{from.base, from.pitch, from.stride, rows, batch, row_bytes};
  const int to_pitch = kt::cdiv(row_bytes, ROW_BYTES) * ROW_BYTES, whole = kt::cdiv(row_bytes, 16) * 16;
  std::vector<uint4> to(batch * rows * to_pitch / 16);
  const CopyOfA<ROW_BYTES> space{to.data()};
  const unsigned blocks = kt::cdiv(stored.chunks(), unsigned(kt::kCopyThreads * kt::kChunksOfThread));
  for (unsigned block = 0; block < blocks; ++block) {
    cpu::run_cluster(block, 1, kt::kCopyThreads, [&] { kt::copy_rows(stored, stored, space); });
  }
  const char* const copy = reinterpret_cast<const char*>(to.data());
  for (int row = 0; row < batch * rows; ++row)
    for (int i = 0; i < whole; ++i) {
      const char want = i < row_bytes ? from.at(row / rows, row % rows)[i] : 0;
      if (copy[row * to_pitch + i] != want) cpu::fail("a byte of the copy is wrong");
    }
}

template <class T, int ALIGN>
void turned(int k, int mn, int gap, int batch, int shift) {
  const int size = sizeof(T), stride = k * (mn + gap), to_pitch = kt::cdiv(k * size, 16) * 16 / size;
  const Rows from(k, mn * size, gap * size, batch, stride * size, shift);
  std::vector<uint4> to(batch * mn * to_pitch * size / 16);
  T* const target = reinterpret_cast<T*>(to.data());
  const kt::TurnedOperand<T> operand{reinterpret_cast<const T*>(from.base), mn + gap, stride, target, to_pitch, k, mn, batch};
  for (unsigned tile = 0; tile < operand.tiles(); ++tile) {
    cpu::run_cluster(tile, 1, kt::kTurnThreads, [&] { kt::turn_tile<T, ALIGN>(operand, blockIdx.x); });
  }
  for (int b = 0; b < batch; ++b)
    for (int row = 0; row < mn; ++row)
      for (int x = 0; x < to_pitch; ++x) {
        const T got = target[(b * mn + row) * to_pitch + x];
        const T want = x < k ? reinterpret_cast<const T*>(from.at(b, x))[row] : T(0);
        if (got != want) cpu::fail("an element of the turned copy is wrong");
      }
}

// Of the tile at (row, column) of a matrix: what was copied, and zeros.
template <int ACCESS>
void fed(int rows, int row_bytes, int gap, int row, int column, int shift) {
  using Operand = kt::Operand64;
  const Rows from(rows, row_bytes, gap, 1, 0, shift);
  const auto part = kt::wgmma_part<char, true>(from.base, from.pitch, 0, rows, row_bytes, row, column, 0);
  cpu::run_cluster(0, 1, 128, [&] {
    kt::WgmmaFeed<Operand, 128, ACCESS, 128>::copy(part, 0, int(threadIdx.x));
    kt::ptx::cp_async_commit();
    kt::ptx::cp_async_wait<0>();
    __syncthreads();
    const int i = int(threadIdx.x);
    for (int r = 0; r < Operand::kRows; ++r) {
      const bool inside = row + r < rows && column + i < row_bytes;
      const char want = inside ? from.at(0, row + r)[column + i] : 0;
      if (char(kt::shared[r * 128 + (i ^ r % 8 * 16)]) != want) cpu::fail("a byte of the tile is wrong");
    }
  });
}
