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

// A thread copies chunks of 8 elements, one of each class. Row `first` of B belongs to the class of that number whose rows
// begin so many times 16 / CLASSES bytes behind multiples of 16.
template <int CLASSES, int ALIGN, int BLOCK_K, class T>
__device__ __forceinline__ void copy_classes(const GemmArguments& args, T* copy, long long pitch) {
  const StoredRows from = stored_rows<T>(args.a, args.lda, args.stride_a, args.m, args.k, 1);
  const int extent = extent_of_class<CLASSES, BLOCK_K>(args.k);
  const unsigned each = unsigned(extent) / 8, all = each * unsigned(args.m);
  const unsigned begin = unsigned(reinterpret_cast<unsigned long long>(args.b) % 16), apart = unsigned(args.ldb % 8 * 2);
  const unsigned long long policy = ptx::cache_policy(true);
  const char* const end = from.end();
  for (unsigned index = blockIdx.x * blockDim.x + threadIdx.x; index < all; index += gridDim.x * blockDim.x) {
    const unsigned row = index / each, place = index - row * each;
    RowChunks<CLASSES, ALIGN> loaded;
    loaded.load(from, end, from.base + row * from.pitch, place * (16ll * CLASSES), policy);
    uint4 chunks[CLASSES];
#pragma unroll
    for (int i = 0; i < CLASSES; ++i) chunks[i] = loaded.at(i);
    T* const to = copy + row * pitch + place * 8;
#pragma unroll
    for (int first = 0; first < CLASSES; ++first) {
      const unsigned number = (begin + first * apart) % 16 / (16 / CLASSES);
      *reinterpret_cast<uint4*>(to + number * extent) = every_nth(chunks, first);
    }
  }
}

}  // namespace kt
