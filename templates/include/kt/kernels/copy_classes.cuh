// Copies an A whose rows lie along k, with k in the order of the classes of B's rows (wgmma_classes.cuh): all k of a class
// in a row, padded with zeros to whole steps.

namespace kt {

// k of one class in the copy.
template <int CLASSES, int BLOCK_K>
__host__ __device__ __forceinline__ constexpr int extent_of_class(int k) {
  return WgmmaClasses<CLASSES>::template steps<BLOCK_K>(k) * BLOCK_K;
}

// The workspace where A is copied so.
template <class T, int CLASSES, int BLOCK_K, int ROW_BYTES>
struct ClassSpace : RowSpace<T, true, false, true, false, ROW_BYTES> {
  __device__ __forceinline__ explicit ClassSpace(const GemmArguments& args)
      : RowSpace<T, true, false, true, false, ROW_BYTES>(args) {
    this->pitch_a = (long long)extent_of_class<CLASSES, BLOCK_K>(args.k) * CLASSES;
    this->bytes_a = packed_bytes<T, ROW_BYTES>(this->pitch_a, args.m, args.batch);
  }
};

// From COUNT chunks of 16 bytes, of elements of 2 bytes, every COUNT-th element, from `first` on: 8 of them.
template <int COUNT>
__device__ __forceinline__ uint4 every_nth(const uint4 (&chunks)[COUNT], int first) {
  unsigned words[4 * COUNT], picked[4];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    words[4 * i] = chunks[i].x;
    words[4 * i + 1] = chunks[i].y;
    words[4 * i + 2] = chunks[i].z;
    words[4 * i + 3] = chunks[i].w;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int low = COUNT * i + first / 2;
    picked[i] = __byte_perm(words[low], words[low + COUNT / 2], first % 2 == 0 ? 0x5410 : 0x7632);
  }
  return make_uint4(picked[0], picked[1], picked[2], picked[3]);
}

// COUNT chunks of 16 bytes of a row from `column` on (in bytes); beyond the row's end they are zeros. ALIGN: bytes to which
// rows are aligned. Other rows are put together from aligned pieces, which may reach into the rows beside.
template <int COUNT, int ALIGN>
__device__ __forceinline__ void load_chunks(uint4 (&chunks)[COUNT], const StoredRows& from, int row, long long column,
                                            unsigned long long policy) {
  const char* const source = from.base + row * from.pitch + column;
  const char* const end = from.base + (from.rows - 1) * from.pitch + from.row_bytes;
  const int shift = ALIGN == 16 ? 0 : int(reinterpret_cast<unsigned long long>(source) % 16);
  const char* const aligned = source - shift;
  constexpr int kPieces = COUNT + (ALIGN < 16);
  uint4 pieces[COUNT + 1];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) {
    const char* const piece = aligned + 16 * i;
    const bool needed = column + 16 * i - shift < from.row_bytes;
    if (!needed) {
      pieces[i] = make_uint4(0u, 0u, 0u, 0u);
    } else if (piece >= from.base && piece + 16 <= end) {
      pieces[i] = ptx::load_by_policy(piece, policy);
    } else {
      pieces[i] = load_edge(piece, from.base, end);
    }
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    const uint4 chunk = ALIGN == 16 ? pieces[i] : shifted(pieces[i], pieces[i + 1], shift);
    chunks[i] = first_bytes(chunk, int(max_of(min_of(from.row_bytes - column - 16 * i, 16ll), 0ll)));
  }
}

// A thread copies chunks of 8 elements, one of each class. Row `first` of B belongs to the class of that number whose rows
// begin so many times 16 / CLASSES bytes behind multiples of 16.
template <int CLASSES, int ALIGN, int BLOCK_K, class T>
__device__ __forceinline__ void copy_classes(const GemmArguments& args, T* copy, long long pitch) {
  const StoredRows from = stored_rows<T>(args.a, args.lda, args.stride_a, args.m, args.k, 1);
  const int extent = extent_of_class<CLASSES, BLOCK_K>(args.k);
  const unsigned each = unsigned(extent) / 8, all = each * unsigned(args.m);
  const unsigned begin = unsigned(reinterpret_cast<unsigned long long>(args.b) % 16), apart = unsigned(args.ldb % 8 * 2);
  const unsigned long long policy = ptx::cache_policy(true);
  for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < all; index += gridDim.x * blockDim.x) {
    const unsigned row = index / each, place = index - row * each;
    uint4 chunks[CLASSES];
    load_chunks<CLASSES, ALIGN>(chunks, from, int(row), place * (16ll * CLASSES), policy);
    T* const to = copy + row * pitch + place * 8;
#pragma unroll
    for (int first = 0; first < CLASSES; ++first) {
      const unsigned number = (begin + first * apart) % 16 / (16 / CLASSES);
      *reinterpret_cast<uint4*>(to + number * extent) = every_nth(chunks, first);
    }
  }
}

}  // namespace kt
