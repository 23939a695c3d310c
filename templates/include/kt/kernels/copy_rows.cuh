// Copies operands into the workspace, their order kept and their rows padded with zeros to whole 16-byte accesses. It
// costs one read and one write of the operand; the multiplication then needs no narrow accesses.

namespace kt {

constexpr int kCopyThreads = 256;

// An operand as it lies in memory: `rows` rows of `row_bytes` bytes in each of `batch` batches.
struct StoredRows {
  const char* base;
  long long pitch, stride;  // bytes between rows and between batches
  int rows, batch;
  long long row_bytes;

  __host__ __device__ unsigned chunks_of_row() const { return unsigned((row_bytes + 15) / 16); }
  __host__ __device__ unsigned chunks() const { return chunks_of_row() * unsigned(rows) * unsigned(batch); }
};

template <class T>
__device__ __forceinline__ StoredRows stored_rows(const void* base, long long ld, long long stride, int rows, int columns,
                                                  int batch) {
  constexpr long long kSize = sizeof(T);
  return {static_cast<const char*>(base), ld * kSize, stride * kSize, rows, batch, columns * kSize};
}

// The 4 bytes at `word`, which is a multiple of 4, as far as they lie in [begin, end); the others are zero.
__device__ __forceinline__ unsigned load_word(const char* word, const char* begin, const char* end) {
  if (word >= begin && word + 4 <= end) return __ldg(reinterpret_cast<const unsigned*>(word));
  unsigned value = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (word + i >= begin && word + i < end) value |= unsigned(__ldg(reinterpret_cast<const unsigned char*>(word + i))) << 8 * i;
  }
  return value;
}

// Chunk `index` of the copy, whose rows follow each other without gaps. Loads are aligned to 4 bytes wherever rows begin;
// they never touch what lies outside the row.
__device__ __forceinline__ void copy_chunk(const StoredRows& from, uint4* to, unsigned index) {
  const unsigned each = from.chunks_of_row(), row_and_batch = index / each;
  const unsigned batch = row_and_batch / unsigned(from.rows), row = row_and_batch - batch * unsigned(from.rows);
  const char* const begin = from.base + batch * from.stride + row * from.pitch;
  const char* const end = begin + from.row_bytes;
  const char* const source = begin + (index - row_and_batch * each) * 16ll;
  const int shift = int(reinterpret_cast<unsigned long long>(source) % 4);
  unsigned words[5];
#pragma unroll
  for (int i = 0; i < 5; ++i) words[i] = i < 4 || shift ? load_word(source - shift + 4 * i, begin, end) : 0u;
  uint4 chunk;
  chunk.x = __funnelshift_r(words[0], words[1], 8 * shift);
  chunk.y = __funnelshift_r(words[1], words[2], 8 * shift);
  chunk.z = __funnelshift_r(words[2], words[3], 8 * shift);
  chunk.w = __funnelshift_r(words[3], words[4], 8 * shift);
  to[index] = chunk;
}

// Blocks walk the chunks of A, then those of B; an operand that is not copied has none.
template <class Space>
__device__ __forceinline__ void copy_rows(const StoredRows& a, const StoredRows& b, const Space& space) {
  const unsigned blocks_a = Space::PACK_A ? unsigned((a.chunks() + (kCopyThreads - 1ull)) / kCopyThreads) : 0;
  const bool second = blockIdx.x >= blocks_a;
  const StoredRows& from = second ? b : a;
  const unsigned index = (blockIdx.x - (second ? blocks_a : 0)) * kCopyThreads + threadIdx.x;
  if (index >= from.chunks()) return;
  copy_chunk(from, reinterpret_cast<uint4*>(second ? space.packed_b() : space.packed_a()), index);
}

// The workspace: copied A, copied B, then slices of split-K, or flags and parked tiles of stream-K.
template <class T, bool PACK_A_, bool PACK_B_, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
struct RowSpace : Workspace<T, PACK_A_, PACK_B_> {
  static constexpr bool PACK_A = PACK_A_, PACK_B = PACK_B_;
  long long pitch_a, pitch_b;  // elements between rows of the copies

  __device__ __forceinline__ explicit RowSpace(const GemmArguments& args) : Workspace<T, PACK_A, PACK_B>(args) {
    const int columns_a = A_K_CONTIGUOUS ? args.k : args.m, columns_b = B_K_CONTIGUOUS ? args.k : args.n;
    const int rows_a = A_K_CONTIGUOUS ? args.m : args.k, rows_b = B_K_CONTIGUOUS ? args.n : args.k;
    pitch_a = packed_pitch<T>(columns_a);
    pitch_b = packed_pitch<T>(columns_b);
    this->bytes_a = PACK_A ? packed_bytes<T>(columns_a, rows_a, args.batch) : 0;
    this->bytes_b = PACK_B ? packed_bytes<T>(columns_b, rows_b, args.batch) : 0;
  }
};

}  // namespace kt
