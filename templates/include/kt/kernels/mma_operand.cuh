// The tile of one operand, MN (m or n) by k, on its way from global to shared memory.
//
// It keeps the order of global memory: rows along k where k is contiguous, else along mn. Rows lie one behind the other
// without padding. The unit of placement is 16 bytes: unit u of a row goes to unit u ^ swizzle(row), which lets both the
// copies (neighbouring units of one row) and the fragment reads (one unit of 8 rows) hit every bank once.

namespace kt {

// In which place of shared memory a row lies: where 8 rows that are read at once are not neighbours, a permutation of
// the bits of the row makes them so.
enum class RowOrder { kPlain };

template <RowOrder ORDER>
__host__ __device__ constexpr int row_place(int row) {
  return row;
}

// The largest power of two that divides `value`, at most `most`.
__host__ __device__ constexpr int power_of_two_in(int value, int most) {
  int power = 1;
  while (power < most && value % (2 * power) == 0) power *= 2;
  return power;
}

__host__ __device__ constexpr int floor_power_of_two(int value) {
  int power = 1;
  while (2 * power <= value) power *= 2;
  return power;
}

// Row r and byte x of a tile with rows of ROW_BYTES. With 2^a the power of two in the units of a row (8 at most), rows
// whose places differ by 8 / 2^a begin at the same bank, and the swizzle tells them apart by the low a bits of the unit.
template <int ROW_BYTES, RowOrder ORDER>
struct TilePlaces {
  static constexpr int kUnit = 16;
  static constexpr int kSwizzles = power_of_two_in(ROW_BYTES / kUnit, 8);
  static_assert(ROW_BYTES % kUnit == 0, "rows are whole units");

  static constexpr __device__ int swizzle(int place) { return place / (8 / kSwizzles) % kSwizzles; }
  static constexpr __device__ int offset(int row, int byte) {
    const int place = row_place<ORDER>(row);
    return place * ROW_BYTES + (byte / kUnit ^ swizzle(place)) * kUnit + byte % kUnit;
  }
};

// A piece of `kLanes` neighbouring threads moves neighbouring chunks of one row, as many as possible; the other threads
// take the rows below, and where rows are few the next piece of the same rows. All passes of a thread are constant steps
// from its first chunk.
template <class T, int BLOCK_MN, int BLOCK_K, bool K_CONTIGUOUS_, int LOAD_BYTES, int THREADS, RowOrder ORDER>
struct MmaOperand {
  static constexpr bool K_CONTIGUOUS = K_CONTIGUOUS_;
  static constexpr int kRows = K_CONTIGUOUS ? BLOCK_MN : BLOCK_K;
  static constexpr int kRowBytes = (K_CONTIGUOUS ? BLOCK_K : BLOCK_MN) * int(sizeof(T));
  static constexpr int kBytes = kRows * kRowBytes;
  static constexpr int kChunk = LOAD_BYTES;  // bytes that a thread copies at once
  using Places = TilePlaces<kRowBytes, ORDER>;

  static constexpr int kLanes = power_of_two_in(kRowBytes / kChunk, 32);
  static constexpr int kPieces = kRowBytes / (kLanes * kChunk);
  static constexpr int kRowStep = floor_power_of_two(min_of(kRows, THREADS / kLanes));  // rows of one pass
  static constexpr int kRowPasses = cdiv(kRows, kRowStep);
  static constexpr int kPieceStep = min_of(kPieces, THREADS / (kLanes * kRowStep));  // pieces of one pass
  static constexpr int kPiecePasses = cdiv(kPieces, kPieceStep);
  static constexpr int kPasses = kRowPasses * kPiecePasses;
  static constexpr int kPieceBytes = kLanes * kChunk;
  static constexpr bool kWhole = kRows % kRowStep == 0 && kPieces % kPieceStep == 0 &&
                                 kLanes * kRowStep * kPieceStep == THREADS;  // no thread has nothing to do in a pass

  static_assert(kChunk == 4 || kChunk == 8 || kChunk == 16, "cp.async moves 4, 8 or 16 bytes");
  static_assert(kRowBytes % kChunk == 0, "rows are whole chunks");

  const char* source;   // this thread's first chunk of the tile that is copied next
  long long row_step;   // bytes between row passes
  long long advance;    // bytes between tiles
  int row_left;         // rows from this thread's first one to the end of the operand, k's end being that of the work
  int column_left;      // likewise the elements of a row
  int row, piece;       // this thread's first chunk in the tile
  int offset;           // and in shared memory

  // `base` is the element (mn = 0, k = 0) of this batch, `pitch` the elements between its rows; k ends at `end_k`.
  __device__ __forceinline__ MmaOperand(const T* base, long long pitch, int first_mn, int end_mn, int first_k, int end_k) {
    const int lane = int(threadIdx.x) % kLanes;
    row = int(threadIdx.x) / kLanes % kRowStep;
    piece = int(threadIdx.x) / (kLanes * kRowStep);
    const int byte = piece * kPieceBytes + lane * kChunk, column = byte / int(sizeof(T));
    const int first_row = (K_CONTIGUOUS ? first_mn : first_k) + row, first_column = (K_CONTIGUOUS ? first_k : first_mn) + column;
    row_left = (K_CONTIGUOUS ? end_mn : end_k) - first_row;
    column_left = (K_CONTIGUOUS ? end_k : end_mn) - first_column;
    source = reinterpret_cast<const char*>(base + (first_row * pitch + first_column));
    row_step = kRowStep * pitch * int(sizeof(T));
    advance = (K_CONTIGUOUS ? 1 : pitch) * (BLOCK_K * int(sizeof(T)));
    offset = Places::offset(row, byte);
  }

  // Whether this thread moves anything in the pass.
  __device__ __forceinline__ bool active(int row_pass, int piece_pass) const {
    return kWhole || (row + row_pass * kRowStep < kRows && piece + piece_pass * kPieceStep < kPieces && piece < kPieceStep);
  }

  // Rows and their ends are whole chunks, so a chunk lies inside the operand or outside it.
  __device__ __forceinline__ bool valid(int row_pass, int piece_pass) const {
    const int rows = column_left > piece_pass * kPieceStep * kPieceBytes / int(sizeof(T)) ? row_left : 0;
    return rows > row_pass * kRowStep;
  }

  // Row and row pass have no bits in common, and places and swizzles are made of bits of the row.
  __device__ __forceinline__ int offset_of(int row_pass, int piece_pass) const {
    const int place = row_place<ORDER>(row_pass * kRowStep);
    return (offset ^ Places::swizzle(place) * Places::kUnit) + place * kRowBytes + piece_pass * kPieceStep * kPieceBytes;
  }

  // Starts the PART-th of PARTS parts of the copies of the next tile to the shared address `stage`. What lies outside the
  // operand becomes zero.
  template <int PART, int PARTS>
  __device__ __forceinline__ void copy(unsigned stage) const {
#pragma unroll
    for (int pass = kPasses * PART / PARTS; pass < kPasses * (PART + 1) / PARTS; ++pass) {
      const int row_pass = pass % kRowPasses, piece_pass = pass / kRowPasses;
      if (active(row_pass, piece_pass)) {
        ptx::cp_async_zfill<kChunk>(stage + offset_of(row_pass, piece_pass),
                                    source + row_pass * row_step + piece_pass * (kPieceStep * kPieceBytes),
                                    valid(row_pass, piece_pass));
      }
    }
  }

  __device__ __forceinline__ void next() {
    source += advance;
    (K_CONTIGUOUS ? column_left : row_left) -= BLOCK_K;
  }
};

}  // namespace kt
