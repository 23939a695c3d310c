// The tile of one operand, MN (m or n) by k, on its way from global to shared memory.
//
// It keeps the order of global memory: rows along k where k is contiguous, else along mn. Rows lie one behind the other
// without padding. The unit of placement is 16 bytes: unit u of a row goes to unit u ^ swizzle(row), which lets both
// the copies (neighbouring units of one row) and the fragment reads (one unit of 8 rows) hit every bank once.

namespace kt {

// In which place of shared memory a row lies. Where fragment reads want rows together that are not neighbours, a
// permutation of the bits of the row makes them so.
//   kPlain      rows in their order
//   kBytePairs  rows 0, 1, 4, 5, 8, 9, 12, 13 of each 16, then 2, 3, 6, 7, ...: the order in which ldmatrix reads bytes
//   kFourApart  rows 0, 4, 1, 5, 2, 6, 3, 7 of each 8: 32 bytes of rows 0 to 3 are read at once, and of rows 4 to 7
enum class RowOrder { kPlain, kBytePairs, kFourApart };

template <RowOrder ORDER>
__host__ __device__ constexpr int row_place(int row) {
  if constexpr (ORDER == RowOrder::kBytePairs) {
    return row / 16 * 16 + row / 2 % 2 * 8 + row / 4 % 4 * 2 + row % 2;
  } else if constexpr (ORDER == RowOrder::kFourApart) {
    return row / 8 * 8 + row % 4 * 2 + row / 4 % 2;
  } else {
    return row;
  }
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
// whose places differ by 8 / 2^a begin at the same bank, and the swizzle tells them apart by the low a bits of the
// unit.
template <int ROW_BYTES, RowOrder ORDER>
struct TilePlaces {
  static constexpr int kUnit = 16;
  static constexpr int kSwizzles = power_of_two_in(ROW_BYTES / kUnit, 8);
  static_assert(ROW_BYTES % kUnit == 0, "rows are whole units");

  static constexpr __device__ int swizzle(int place) { return place / (8 / kSwizzles) % kSwizzles; }
  static constexpr __device__ int offset_at(int place, int byte) {
    return place * ROW_BYTES + (byte / kUnit ^ swizzle(place)) * kUnit + byte % kUnit;
  }
  static constexpr __device__ int offset(int row, int byte) { return offset_at(row_place<ORDER>(row), byte); }
};

// Panels of 128 bytes along mn, one behind the other, each with all rows of k: so TMA writes a box of 128 bytes a row.
template <int ROWS>
struct PanelPlaces {
  static constexpr int kPanelBytes = 128;
  using Panel = TilePlaces<kPanelBytes, RowOrder::kPlain>;

  static constexpr __device__ int offset(int row, int byte) {
    return byte / kPanelBytes * (ROWS * kPanelBytes) + Panel::offset(row, byte % kPanelBytes);
  }
};

// A piece of `kLanes` neighbouring threads moves neighbouring chunks of one row, as many as possible; the other threads
// take the rows below, and where rows are few the next piece of the same rows. All passes of a thread are constant
// steps from its first chunk.
//
// Chunks of 4 bytes and more go by cp.async. Rows that begin or end in the middle of 4 bytes go through registers:
// loads of LOAD_BYTES put together to chunks of 4 bytes, neighbouring ones by neighbouring threads.
template <class T, int BLOCK_MN, int BLOCK_K, bool K_CONTIGUOUS_, int LOAD_BYTES, int THREADS, RowOrder ORDER>
struct MmaOperand {
  static constexpr bool K_CONTIGUOUS = K_CONTIGUOUS_;
  static constexpr int kRows = K_CONTIGUOUS ? BLOCK_MN : BLOCK_K;
  static constexpr int kRowBytes = (K_CONTIGUOUS ? BLOCK_K : BLOCK_MN) * int(sizeof(T));
  static constexpr int kBytes = kRows * kRowBytes;
  static constexpr bool kNarrow = LOAD_BYTES < 4;
  static constexpr int kChunk = max_of(LOAD_BYTES, 4);  // bytes that a thread moves at once
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
                                 kLanes * kRowStep * kPieceStep == THREADS;  // every thread moves a chunk in each pass

  static_assert(kChunk == 4 || kChunk == 8 || kChunk == 16, "cp.async moves 4, 8 or 16 bytes");
  static_assert(LOAD_BYTES % int(sizeof(T)) == 0 && kRowBytes % kChunk == 0, "rows are whole chunks of whole elements");

  const char* source;  // this thread's first chunk of the tile that is copied next
  long long row_step;  // bytes between row passes
  long long advance;   // bytes between tiles
  int row_left;        // rows from this thread's first one to the end of the operand, or along k of the block's work
  int column_left;     // likewise the elements of a row
  int row, piece;      // this thread's first chunk in the tile
  int offset;          // and in shared memory

  // `base` is the element (mn = 0, k = 0) of this batch, `pitch` the elements between its rows; k ends at `end_k`.
  __device__ __forceinline__ MmaOperand(const T* base, long long pitch, int first_mn, int end_mn, int first_k,
                                        int end_k) {
    const int lane = int(threadIdx.x) % kLanes;
    row = int(threadIdx.x) / kLanes % kRowStep;
    piece = int(threadIdx.x) / (kLanes * kRowStep);
    const int byte = piece * kPieceBytes + lane * kChunk;
    const int first_row = (K_CONTIGUOUS ? first_mn : first_k) + row;
    const int first_column = (K_CONTIGUOUS ? first_k : first_mn) + byte / int(sizeof(T));
    row_left = (K_CONTIGUOUS ? end_mn : end_k) - first_row;
    column_left = (K_CONTIGUOUS ? end_k : end_mn) - first_column;
    source = reinterpret_cast<const char*>(base + (first_row * pitch + first_column));
    row_step = kRowStep * pitch * int(sizeof(T));
    advance = (K_CONTIGUOUS ? 1 : pitch) * (BLOCK_K * int(sizeof(T)));
    offset = Places::offset(row, byte);
  }

  // Whether this thread moves anything in the pass.
  __device__ __forceinline__ bool active(int row_pass, int piece_pass) const {
    return kWhole || (row + row_pass * kRowStep < kRows && piece < kPieceStep &&
                      piece + piece_pass * kPieceStep < kPieces);
  }

  // Whether the chunk from its byte `byte` on lies inside the operand. Rows begin and end with whole loads.
  __device__ __forceinline__ bool valid(int row_pass, int piece_pass, int byte) const {
    const int column = (piece_pass * kPieceStep * kPieceBytes + byte) / int(sizeof(T));
    return (column_left > column ? row_left : 0) > row_pass * kRowStep;
  }

  __device__ __forceinline__ const char* chunk(int row_pass, int piece_pass) const {
    long long step = row_step;
    // Many passes: their steps are computed when they are needed, instead of being kept in registers.
    if constexpr (kNarrow || kRowPasses > 8) step = ptx::computed_here(step);
    return source + row_pass * step + piece_pass * (kPieceStep * kPieceBytes);
  }

  // Row and row pass have no bits in common, and places and swizzles are made of bits of the row.
  __device__ __forceinline__ int offset_of(int row_pass, int piece_pass) const {
    const int place = row_place<ORDER>(row_pass * kRowStep), columns = piece_pass * kPieceStep * kPieceBytes;
    return (offset ^ Places::swizzle(place) * Places::kUnit) + place * kRowBytes + columns;
  }

  // What waits in registers between the halves of the PART-th of PARTS parts.
  template <int PART, int PARTS>
  static constexpr int kFirst = kPasses * PART / PARTS;
  static constexpr int kLoads = 4 / min_of(LOAD_BYTES, 4);
  template <int PARTS>
  struct Staged {
    unsigned at[kNarrow ? cdiv(kPasses, PARTS) : 1][kLoads];
  };

  // Starts a part of the copies of the next tile to the shared address `stage`. What lies outside the operand is zero.
  template <int PART, int PARTS>
  __device__ __forceinline__ void start(Staged<PARTS>& staged, unsigned stage) const {
#pragma unroll
    for (int pass = kFirst<PART, PARTS>; pass < kFirst<PART + 1, PARTS>; ++pass) {
      const int row_pass = pass % kRowPasses, piece_pass = pass / kRowPasses;
      if constexpr (kNarrow) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) {
          const bool inside = active(row_pass, piece_pass) && valid(row_pass, piece_pass, i * LOAD_BYTES);
          staged.at[pass - kFirst<PART, PARTS>][i] =
              ptx::load_or_zero<LOAD_BYTES>(chunk(row_pass, piece_pass) + i * LOAD_BYTES, inside);
        }
      } else if (active(row_pass, piece_pass)) {
        ptx::cp_async_zfill<kChunk>(stage + offset_of(row_pass, piece_pass), chunk(row_pass, piece_pass),
                                    valid(row_pass, piece_pass, 0));
      }
    }
  }

  // Ends the part: what came through registers is written.
  template <int PART, int PARTS>
  __device__ __forceinline__ void finish(const Staged<PARTS>& staged, unsigned stage) const {
    if constexpr (kNarrow) {
#pragma unroll
      for (int pass = kFirst<PART, PARTS>; pass < kFirst<PART + 1, PARTS>; ++pass) {
        const int row_pass = pass % kRowPasses, piece_pass = pass / kRowPasses;
        unsigned chunk = 0;
#pragma unroll
        for (int i = 0; i < kLoads; ++i) chunk |= staged.at[pass - kFirst<PART, PARTS>][i] << 8 * LOAD_BYTES * i;
        if (active(row_pass, piece_pass)) ptx::store_shared(stage + offset_of(row_pass, piece_pass), chunk);
      }
    }
  }

  __device__ __forceinline__ void next() {
    source += advance;
    (K_CONTIGUOUS ? column_left : row_left) -= BLOCK_K;
  }
};

}  // namespace kt
