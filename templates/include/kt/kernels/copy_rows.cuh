// Copies operands into the workspace, their order kept and their rows padded with zeros to whole 16-byte accesses; from
// one row to the next there may be more. It costs one read and one write of the operand; the multiplication then needs no
// narrow accesses.

namespace kt {

constexpr int kCopyThreads = 256;
// 16 bytes each, of a thread: its loads are under way together.
constexpr int kChunksOfThread = 2;
constexpr unsigned kFewCopyBlocks = 64;  // fewer than multiprocessors
// Operands that L2 (50 MB and more, where these copies count) holds beside their copies leave it before them: each is read once.
constexpr unsigned kChunksLeftFirst = 48u << 16;

// Chunk `index` of the copy, whose rows lie multiples of ROW_BYTES apart.
template <int ROW_BYTES>
class CopiedChunk {
 public:
  __device__ __forceinline__ void load(const StoredRows& from, const char* end, unsigned index, unsigned long long policy) {
    const unsigned each = from.chunks_of_row(), row_and_batch = index / each;
    const unsigned batch = row_and_batch / unsigned(from.rows), row = row_and_batch - batch * unsigned(from.rows);
    chunk_.load(from, end, from.base + batch * from.stride + row * from.pitch, (index - row_and_batch * each) * 16ll, policy);
    constexpr unsigned kOfRow = ROW_BYTES / 16;
    const unsigned long long gaps = row_and_batch * (unsigned long long)((each + kOfRow - 1) / kOfRow * kOfRow - each);
    place_ = index + (kOfRow > 1 ? gaps : 0);
  }

  __device__ __forceinline__ void store(uint4* to) const { to[place_] = chunk_.at(0); }

 private:
  RowChunks<1, 1> chunk_;
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
  const char* const end = from.end();
  const unsigned chunks = second ? chunks_b : chunks_a;
  const unsigned first = (blockIdx.x - (second ? blocks_a : 0)) * kOfBlock + threadIdx.x;
  CopiedChunk<Space::kRowBytes> copied[kChunksOfThread];
#pragma unroll
  for (unsigned i = 0; i < kChunksOfThread; ++i) {
    const unsigned index = first + i * kCopyThreads;
    if (index >= first && index < chunks) copied[i].load(from, end, index, policy);
  }
  uint4* const to = reinterpret_cast<uint4*>(second ? space.packed_b() : space.packed_a());
#pragma unroll
  for (unsigned i = 0; i < kChunksOfThread; ++i) {
    const unsigned index = first + i * kCopyThreads;
    if (index >= first && index < chunks) copied[i].store(to);
  }
}

}  // namespace kt
