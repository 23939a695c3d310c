// Rows of an operand as they lie in memory, from any address on, read by 16-byte accesses for the kernels that copy them.

namespace kt {

// `rows` rows of `row_bytes` bytes in each of `batch` batches.
struct StoredRows {
  const char* base;
  long long pitch, stride;  // bytes between rows and between batches
  int rows, batch;
  long long row_bytes;

  __host__ __device__ unsigned chunks_of_row() const { return unsigned((row_bytes + 15) / 16); }
  __host__ __device__ unsigned chunks() const { return chunks_of_row() * unsigned(rows) * unsigned(batch); }
  __host__ __device__ const char* end() const { return base + (batch - 1) * stride + (rows - 1) * pitch + row_bytes; }
};

template <class T>
__device__ __forceinline__ StoredRows stored_rows(const void* base, long long ld, long long stride, int rows, int columns,
                                                  int batch) {
  constexpr long long kSize = sizeof(T);
  return {static_cast<const char*>(base), ld * kSize, stride * kSize, rows, batch, columns * kSize};
}

// The next byte of a piece of 16 that is put together from its first one on.
__device__ __forceinline__ void append_byte(uint4& piece, unsigned byte) {
  piece.x = __funnelshift_r(piece.x, piece.y, 8);
  piece.y = __funnelshift_r(piece.y, piece.z, 8);
  piece.z = __funnelshift_r(piece.z, piece.w, 8);
  piece.w = __funnelshift_r(piece.w, byte, 8);
}

// The 16 * COUNT bytes at `address` as far as they lie in [begin, end); the others are zero. Pieces side by side: their
// loads are under way together.
template <int COUNT>
__device__ __forceinline__ void load_edge(uint4 (&pieces)[COUNT], const char* address, const char* begin, const char* end) {
  const long long before = begin - address, left = end - address;
  const int first = int(max_of(before, 0ll)), last = int(max_of(min_of(left, 16ll * COUNT), 0ll));
#pragma unroll
  for (int j = 0; j < COUNT; ++j) pieces[j] = make_uint4(0u, 0u, 0u, 0u);
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    unsigned bytes[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
      const int at = i + 16 * j;
      bytes[j] = at >= first && at < last ? __ldg(reinterpret_cast<const unsigned char*>(address + at)) : 0u;
    }
#pragma unroll
    for (int j = 0; j < COUNT; ++j) append_byte(pieces[j], bytes[j]);
  }
}

// Of two values, not of two places: a choice of array elements would put the array into local memory.
__device__ __forceinline__ unsigned select(bool condition, unsigned yes, unsigned no) { return condition ? yes : no; }

// The 16 bytes that begin `shift` bytes after the first of 32.
__device__ __forceinline__ uint4 shifted(const uint4& low, const uint4& high, int shift) {
  const unsigned words[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
  unsigned by_two[6], by_one[5];
#pragma unroll
  for (int i = 0; i < 6; ++i) by_two[i] = select(shift & 8, words[i + 2], words[i]);
#pragma unroll
  for (int i = 0; i < 5; ++i) by_one[i] = select(shift & 4, by_two[i + 1], by_two[i]);
  const unsigned bits = 8u * unsigned(shift & 3);
  return make_uint4(__funnelshift_r(by_one[0], by_one[1], bits), __funnelshift_r(by_one[1], by_one[2], bits),
                    __funnelshift_r(by_one[2], by_one[3], bits), __funnelshift_r(by_one[3], by_one[4], bits));
}

// The first `count` bytes of 16; the others become zero.
__device__ __forceinline__ uint4 first_bytes(const uint4& chunk, int count) {
  const unsigned words[4] = {chunk.x, chunk.y, chunk.z, chunk.w};
  unsigned kept[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int bytes = count - 4 * i;
    kept[i] = bytes >= 4 ? words[i] : bytes <= 0 ? 0u : words[i] & (1u << 8 * bytes) - 1u;
  }
  return make_uint4(kept[0], kept[1], kept[2], kept[3]);
}

// COUNT neighbouring chunks of 16 bytes of a row that begins at a multiple of ALIGN bytes. They are put together from the
// aligned 16-byte pieces of memory that they lie in: their neighbours read these too, so half of the loads of single
// chunks are answered by the L1 cache. A piece may reach into the rows beside, but what would leave the operand is read
// byte by byte.
template <int COUNT, int ALIGN>
class RowChunks {
 public:
  // From `column` on, in bytes, of the row at `row`. `end` is that of the operand.
  __device__ __forceinline__ void load(const StoredRows& from, const char* end, const char* row, long long column,
                                       unsigned long long policy) {
    const char* const source = row + column;
    shift_ = ALIGN == 16 ? 0 : int(reinterpret_cast<unsigned long long>(source) % 16);
    bytes_ = int(max_of(min_of(from.row_bytes - column, 16ll * COUNT), 0ll));
    const char* const aligned = source - shift_;
    if (aligned >= from.base && aligned + 16 * kPieces <= end) {
#pragma unroll
      for (int i = 0; i < kPieces; ++i) pieces_[i] = ptx::load_by_policy(aligned + 16 * i, policy);
    } else {
      load_edge(pieces_, aligned, from.base, end);
    }
  }

  // What lies beyond the row's end is zero.
  __device__ __forceinline__ uint4 at(int i) const {
    return first_bytes(ALIGN == 16 ? pieces_[i] : shifted(pieces_[i], pieces_[i + (ALIGN < 16)], shift_), bytes_ - 16 * i);
  }

 private:
  static constexpr int kPieces = COUNT + (ALIGN < 16);
  uint4 pieces_[kPieces];
  int shift_, bytes_;  // before the first chunk; of the row, from there on
};

}  // namespace kt
