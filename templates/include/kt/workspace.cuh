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

}  // namespace kt
