// Copies operands into the workspace, their order kept and their rows padded with zeros to whole 16-byte accesses; from
// one row to the next there may be more. It
// costs one read and one write of the operand; the multiplication then needs no narrow accesses.

namespace kt {

constexpr int kCopyThreads = 256;
// 16 bytes each, of a thread: its loads are under way together.
constexpr int kChunksOfThread = 2;
constexpr unsigned kFewCopyBlocks = 64;  // fewer than multiprocessors
// Operands that L2 (50 MB and more, where these copies count) holds beside their copies leave it before them: each is read once.
constexpr unsigned kChunksLeftFirst = 48u << 16;

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

// The 16 bytes at `address`, a multiple of 16, as far as they lie in [begin, end); the others are zero.
__device__ __forceinline__ uint4 load_edge(const char* address, const char* begin, const char* end) {
  unsigned words[4] = {0u, 0u, 0u, 0u};
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    const char* const byte = address + i;
    const unsigned value = byte >= begin && byte < end ? __ldg(reinterpret_cast<const unsigned char*>(byte)) : 0u;
#pragma unroll
    for (int j = 0; j < 4; ++j) words[j] |= i / 4 == j ? value << 8 * (i % 4) : 0u;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
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

// Chunk `index` of the copy, whose rows lie multiples of ROW_BYTES apart. It is put together from the two aligned 16-byte
// pieces of memory that it lies in: their neighbours read them too, so half of the loads are answered by the L1 cache.
// A piece may reach into the rows beside, but where it would leave the operand its bytes are read one by one.
template <int ROW_BYTES>
class CopiedChunk {
 public:
  __device__ __forceinline__ void load(const StoredRows& from, unsigned index, unsigned long long policy) {
    const unsigned each = from.chunks_of_row(), row_and_batch = index / each;
    const unsigned batch = row_and_batch / unsigned(from.rows), row = row_and_batch - batch * unsigned(from.rows);
    const char* const end =
        from.base + (from.batch - 1) * from.stride + (from.rows - 1) * from.pitch + from.row_bytes;
    const long long column = (index - row_and_batch * each) * 16ll;
    const char* const source = from.base + batch * from.stride + row * from.pitch + column;
    shift_ = int(reinterpret_cast<unsigned long long>(source) % 16);
    const char* const aligned = source - shift_;
    if (aligned >= from.base && aligned + 32 <= end) {
      low_ = ptx::load_by_policy(aligned, policy);
      high_ = ptx::load_by_policy(aligned + 16, policy);
    } else {
      low_ = load_edge(aligned, from.base, end);
      high_ = load_edge(aligned + 16, from.base, end);
    }
    constexpr unsigned kOfRow = ROW_BYTES / 16;
    const unsigned long long gaps = row_and_batch * (unsigned long long)((each + kOfRow - 1) / kOfRow * kOfRow - each);
    place_ = index + (kOfRow > 1 ? gaps : 0);
    bytes_ = int(min_of(from.row_bytes - column, 16ll));
  }

  __device__ __forceinline__ void store(uint4* to) const {
    to[place_] = first_bytes(shifted(low_, high_, shift_), bytes_);
  }

 private:
  uint4 low_, high_;
  int shift_, bytes_;
  unsigned long long place_;
};

// Blocks walk the chunks of A, then those of B; an operand that is not copied has none.
template <class Space>
__device__ __forceinline__ void copy_rows(const StoredRows& a, const StoredRows& b, const Space& space) {
  constexpr unsigned kOfBlock = kCopyThreads * kChunksOfThread;
  const unsigned chunks_a = Space::PACK_A ? a.chunks() : 0, chunks_b = Space::PACK_B ? b.chunks() : 0;
  const unsigned blocks_a = unsigned((chunks_a + (kOfBlock - 1ull)) / kOfBlock);
  const unsigned long long policy = ptx::cache_policy(chunks_a + (unsigned long long)chunks_b <= kChunksLeftFirst);
  const bool second = blockIdx.x >= blocks_a;
  const StoredRows from = second ? b : a;  // a copy: a reference would keep both in local memory
  const unsigned chunks = second ? chunks_b : chunks_a;
  const unsigned first = (blockIdx.x - (second ? blocks_a : 0)) * kOfBlock + threadIdx.x;
  CopiedChunk<Space::kRowBytes> copied[kChunksOfThread];
#pragma unroll
  for (unsigned i = 0; i < kChunksOfThread; ++i) {
    const unsigned index = first + i * kCopyThreads;
    if (index >= first && index < chunks) copied[i].load(from, index, policy);
  }
  uint4* const to = reinterpret_cast<uint4*>(second ? space.packed_b() : space.packed_a());
#pragma unroll
  for (unsigned i = 0; i < kChunksOfThread; ++i) {
    const unsigned index = first + i * kCopyThreads;
    if (index >= first && index < chunks) copied[i].store(to);
  }
}

// The workspace: copied A, copied B, then slices of split-K, or flags and parked tiles of stream-K. Rows of copies begin at
// multiples of ROW_BYTES.
template <class T, bool PACK_A_, bool PACK_B_, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, int ROW_BYTES = 16>
struct RowSpace : Workspace<T, PACK_A_, PACK_B_> {
  static constexpr int kRowBytes = ROW_BYTES;
  static constexpr bool PACK_A = PACK_A_, PACK_B = PACK_B_;
  long long pitch_a, pitch_b;  // elements between rows of the copies

  __device__ __forceinline__ explicit RowSpace(const GemmArguments& args) : Workspace<T, PACK_A, PACK_B>(args) {
    const int columns_a = A_K_CONTIGUOUS ? args.k : args.m, columns_b = B_K_CONTIGUOUS ? args.k : args.n;
    const int rows_a = A_K_CONTIGUOUS ? args.m : args.k, rows_b = B_K_CONTIGUOUS ? args.n : args.k;
    pitch_a = packed_pitch<T, ROW_BYTES>(columns_a);
    pitch_b = packed_pitch<T, ROW_BYTES>(columns_b);
    this->bytes_a = PACK_A ? packed_bytes<T, ROW_BYTES>(columns_a, rows_a, args.batch) : 0;
    this->bytes_b = PACK_B ? packed_bytes<T, ROW_BYTES>(columns_b, rows_b, args.batch) : 0;
  }
};

}  // namespace kt
