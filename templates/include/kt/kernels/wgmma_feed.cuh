// An operand whose rows begin at multiples of 4 or 8 bytes only: the producer's four warps copy its tiles by cp.async,
// for TMA takes multiples of 16. They write what TMA would have written, see WgmmaOperand.

namespace kt {

__host__ __device__ constexpr int next_power_of_two(int value) {
  int power = 1;
  while (power < value) power *= 2;
  return power;
}

// Which part of an operand's matrix, as it is stored, a tile is: `rows` and `row_bytes` lie within the matrix from
// `first` on, the element at the tile's corner.
struct WgmmaPart {
  const char* first;
  long long pitch;  // bytes between rows
  int rows;
  long long row_bytes;
};

template <class T, bool K_MAJOR>
__device__ __forceinline__ WgmmaPart wgmma_part(const void* base, long long ld, long long stride, int extent_mn,
                                                int extent_k, int mn, int k, int batch) {
  const int row = K_MAJOR ? mn : k, column = K_MAJOR ? k : mn;
  const T* const first = static_cast<const T*>(base) + batch * stride + row * ld + column;
  return {reinterpret_cast<const char*>(first), ld * (long long)sizeof(T), (K_MAJOR ? extent_mn : extent_k) - row,
          ((K_MAJOR ? extent_k : extent_mn) - column) * (long long)sizeof(T)};
}

// THREADS copy a tile of `Operand`, ACCESS bytes at once; ROW_BYTES are those of a tile's row, all panels together.
template <class Operand, int ROW_BYTES, int ACCESS, int THREADS>
struct WgmmaFeed {
  static constexpr int kOfRow = ROW_BYTES / ACCESS, kLanes = next_power_of_two(kOfRow);
  static constexpr int kRowsAtOnce = THREADS / kLanes, kTimes = Operand::kRows / kRowsAtOnce;

  static_assert(ACCESS == 4 || ACCESS == 8, "other alignments are no business of cp.async");
  static_assert(kOfRow * ACCESS == ROW_BYTES && kLanes <= THREADS, "a thread has one place in all rows");
  static_assert(kTimes * kRowsAtOnce == Operand::kRows, "all threads copy as many rows");

  // What lies outside the matrix becomes zero. Rows have their ends at multiples of ACCESS too.
  __device__ __forceinline__ static void copy(const WgmmaPart& part, unsigned shared, int thread) {
    const int place = thread % kLanes * ACCESS, row = thread / kLanes;
    if (kLanes > kOfRow && place >= ROW_BYTES) return;
    const bool inside = place < part.row_bytes;
    const unsigned target = shared + place / Operand::kRowBytes * Operand::kPanelBytes + row * Operand::kRowBytes +
                            (unsigned(place % Operand::kRowBytes) ^ swizzle_of(row));
    const char* from = part.first + row * part.pitch + place;
#pragma unroll
    for (int i = 0; i < kTimes; ++i) {
      // No bit of `row` is one of the steps, so that the swizzle of the sum is the XOR of both.
      const int step = i * kRowsAtOnce;
      ptx::cp_async_zfill<ACCESS>((target ^ swizzle_of(step)) + step * Operand::kRowBytes, from,
                                  inside && row + step < part.rows);
      from += kRowsAtOnce * part.pitch;
    }
  }

 private:
  // Bits from 4 on of a place in a panel's row are XORed with the row's number within the swizzle.
  __device__ __forceinline__ static constexpr unsigned swizzle_of(int row) {
    return unsigned(row * Operand::kRowBytes / 128 % (Operand::kRowBytes / 16)) << 4;
  }
};

}  // namespace kt
