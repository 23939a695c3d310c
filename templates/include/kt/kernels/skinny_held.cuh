// The held operand of a skinny GEMM: the short one, whose few rows (index s) every warp reads through the L1 cache.

namespace kt {

// For tensor cores: of TILE_S rows, eight at a time are the columns of a product. Lane (g, t) has the piece of k that
// begins with 16 t bytes of a row for each octet.
template <class T, int TILE_S, bool K_CONTIGUOUS, int LOAD_BYTES>
struct HeldOctets {
  static constexpr int kSize = int(sizeof(T));
  static constexpr int kElements = kPieceBytes / kSize;
  static constexpr int kOctets = TILE_S / 8;
  // Rows that are contiguous in memory are read side by side: lane g has rows kOctets g ...
  static constexpr int kAccess = min_of(LOAD_BYTES, K_CONTIGUOUS ? kPieceBytes : min_of(16, kOctets * kSize));
  using Pieces = unsigned[kOctets][4];
  static_assert(TILE_S % 8 == 0 && (kOctets & (kOctets - 1)) == 0, "octets are dealt out to eight lanes");

  const T* cursor;
  long long pitch, advance;
  int k_left, k_advance, rows_left;

  __device__ __forceinline__ HeldOctets(const T* base, long long pitch, int rows, int first_k, int end_k, int k_stride)
      : pitch(pitch), k_advance(k_stride) {
    const int lane = int(threadIdx.x) % 32, k = lane % kLanesAlongK * kElements;
    const int row = row_of(0, lane / kLanesAlongK);
    rows_left = rows - row;
    k_left = end_k - first_k - k;
    const long long k_position = (long long)first_k + k;
    cursor = base + (K_CONTIGUOUS ? row * pitch + k_position : k_position * pitch + row);
    advance = K_CONTIGUOUS ? (long long)k_stride : k_stride * pitch;
  }

  // The row that is column `column` of an octet.
  __host__ __device__ static constexpr int row_of(int octet, int column) {
    return K_CONTIGUOUS ? 8 * octet + column : kOctets * column + octet;
  }

  __device__ __forceinline__ void read(Pieces& pieces, int chunk, int) const {
    const int k_first = chunk * kLanesAlongK * kElements;
    if constexpr (K_CONTIGUOUS) {
#pragma unroll
      for (int octet = 0; octet < kOctets; ++octet) {
        const int left = 8 * octet < rows_left ? k_left - k_first : 0;
        const auto bits =
            ptx::read_only_row<kPieceBytes, kAccess>(cursor + (8 * octet * pitch + k_first), left * kSize);
#pragma unroll
        for (int word = 0; word < 4; ++word) pieces[octet][word] = bits.at[word];
      }
    } else {
      ptx::Bits<kOctets * kSize> vectors[kElements];
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        const int left = k_first + k < k_left ? rows_left : 0;
        vectors[k] = ptx::read_only_row<kOctets * kSize, kAccess>(cursor + (k_first + k) * pitch, left * kSize);
      }
      turn<kSize, kOctets>(vectors, pieces);
    }
  }

  __device__ __forceinline__ void next() {
    cursor += advance;
    k_left -= k_advance;
  }
};

// Rows that the plain units multiply at a time: those of many have to take turns in the registers.
__host__ __device__ constexpr int held_at_once(int rows) { return rows < 16 ? rows : 4; }

// For the plain units: every lane needs its piece of k of all rows, a few of them at a time.
template <class T, int TILE_S, bool K_CONTIGUOUS, int LOAD_BYTES>
struct HeldRows {
  static_assert(sizeof(T) == 4, "fp32");
  static constexpr int kElements = 4, kGroup = held_at_once(TILE_S);
  static constexpr int kAccess = min_of(LOAD_BYTES, K_CONTIGUOUS ? kPieceBytes : min_of(16, kGroup * 4));
  using Pieces = unsigned[kGroup][4];

  const T* cursor;
  long long pitch, advance;
  int k_left, k_advance, rows;

  __device__ __forceinline__ HeldRows(const T* base, long long pitch, int rows, int first_k, int end_k, int k_stride)
      : pitch(pitch), k_advance(k_stride), rows(rows) {
    const int k = int(threadIdx.x) % kLanesAlongK * kElements;
    k_left = end_k - first_k - k;
    const long long k_position = (long long)first_k + k;
    cursor = base + (K_CONTIGUOUS ? k_position : k_position * pitch);
    advance = K_CONTIGUOUS ? (long long)k_stride : k_stride * pitch;
  }

  // Rows `first` ... of a chunk.
  __device__ __forceinline__ void read(Pieces& pieces, int chunk, int first) const {
    const int k_first = chunk * kLanesAlongK * kElements;
    if constexpr (K_CONTIGUOUS) {
#pragma unroll
      for (int row = 0; row < kGroup; ++row) {
        const int left = first + row < rows ? k_left - k_first : 0;
        const auto bits = ptx::read_only_row<kPieceBytes, kAccess>(cursor + ((first + row) * pitch + k_first), left * 4);
#pragma unroll
        for (int word = 0; word < 4; ++word) pieces[row][word] = bits.at[word];
      }
    } else {
#pragma unroll
      for (int k = 0; k < kElements; ++k) {
        const int left = k_first + k < k_left ? rows - first : 0;
        const auto bits = ptx::read_only_row<kGroup * 4, kAccess>(cursor + ((k_first + k) * pitch + first), left * 4);
#pragma unroll
        for (int row = 0; row < kGroup; ++row) pieces[row][k] = bits.at[row];
      }
    }
  }

  __device__ __forceinline__ void next() {
    cursor += advance;
    k_left -= k_advance;
  }
};

}  // namespace kt
