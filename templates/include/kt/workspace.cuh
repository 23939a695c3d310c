// How the workspace is laid out: packed A, packed B, then slices of split-K, or flags and parked tiles of stream-K.
// Each part starts at a multiple of 256 bytes. The search space computes the same sizes (search_spaces/gemm/simt.yaml).

namespace kt {

constexpr long long kPartAlignment = 256;

__host__ __device__ constexpr long long aligned_part(long long bytes) {
  return (bytes + kPartAlignment - 1) / kPartAlignment * kPartAlignment;
}

// Rows of a packed operand are padded to multiples of ROW_BYTES: whole accesses, or whole lines of the caches.
template <class T, int ROW_BYTES = 16>
__host__ __device__ constexpr long long packed_pitch(long long extent) {
  constexpr long long kWidth = ROW_BYTES / sizeof(T);
  return (extent + kWidth - 1) / kWidth * kWidth;
}

template <class T, int ROW_BYTES = 16>
__host__ __device__ constexpr long long packed_bytes(long long extent, long long k, long long batch) {
  return aligned_part(packed_pitch<T, ROW_BYTES>(extent) * k * batch * (long long)sizeof(T));
}

// Stream-K: one flag a block, at most this many blocks.
constexpr int kFlags = 4096;

template <class T, bool PACK_A, bool PACK_B>
struct Workspace {
  char* base;
  long long bytes_a, bytes_b;

  __device__ __forceinline__ explicit Workspace(const GemmArguments& args)
      : base(static_cast<char*>(args.workspace)),
        bytes_a(PACK_A ? packed_bytes<T>(args.m, args.k, args.batch) : 0),
        bytes_b(PACK_B ? packed_bytes<T>(args.n, args.k, args.batch) : 0) {}

  __device__ __forceinline__ T* packed_a() const { return reinterpret_cast<T*>(base); }
  __device__ __forceinline__ T* packed_b() const { return reinterpret_cast<T*>(base + bytes_a); }
  template <class TAcc>
  __device__ __forceinline__ TAcc* slices() const {
    return reinterpret_cast<TAcc*>(base + bytes_a + bytes_b);
  }
  __device__ __forceinline__ unsigned* flags() const { return reinterpret_cast<unsigned*>(base + bytes_a + bytes_b); }
  template <class TAcc>
  __device__ __forceinline__ TAcc* parked() const {
    return reinterpret_cast<TAcc*>(flags() + kFlags);
  }
};

// The same where copies keep the operands' order (copy_rows.cuh): their rows begin at multiples of ROW_BYTES.
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
