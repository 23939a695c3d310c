// A dense B of 16-bit elements along n, of so few columns that one tile has them all: its rows begin anywhere, but those of a
// step of k are one stretch of memory. That is copied to a slot of shared memory as it lies, and unpacked from there
// into the stage, as TMA would have written it (WgmmaOperand).
//
// Copies in bulk begin and end at multiples of 16 bytes. A stretch is copied from the multiple before its begin on; as all
// stretches are whole multiples long, what stands before it in the slot is as long for all of a batch. The last bytes of
// B, fewer than 16, are copied one element each, for what lies behind B must not be read.

namespace kt {

// What is copied of the rows of one step, and from where.
struct WgmmaStretch {
  unsigned long long first;  // a multiple of 16: where the slot's first byte comes from
  int whole;                 // bytes from there on that are copied in bulk
  int rest, end;             // the bytes behind them that belong to the step

  // `left` rows, of which at most `rows` belong to the step, begin at `begin`.
  __host__ __device__ static constexpr WgmmaStretch of(unsigned long long begin, int columns, int left, int rows) {
    const long long row_bytes = 2 * (long long)columns, before = (long long)(begin % 16);
    const long long end = before + min_of(left, rows) * row_bytes, last = (before + left * row_bytes) / 16 * 16;
    const long long whole = min_of((end + 15) / 16 * 16, last);
    return {begin - (unsigned long long)before, int(whole), int(max_of(whole, before)), int(end)};
  }
};

// Slots of stretches, each of BLOCK_K rows, and how a row leaves its slot for the stage. `Operand` is B's.
template <class Operand, int BLOCK_N, int BLOCK_K>
struct WgmmaSlots {
  static constexpr int kSlots = BLOCK_K <= 64 ? 6 : 4;
  static constexpr int kSlotBytes = BLOCK_K * BLOCK_N * 2, kBytes = kSlots * kSlotBytes;
  static constexpr int kChunks = BLOCK_N / 8;  // of 16 bytes of a row of the stage
  static constexpr int kAtOnce = cdiv(kChunks, cdiv(kChunks, 4));  // these are in registers together

  // Rows have fewer than BLOCK_N columns. So what is read behind the last row, of whole chunks and of what begins
  // behind a multiple of 16 bytes, lies within the slot as well.
  static_assert(BLOCK_N % 8 == 0 && BLOCK_N <= 64, "few columns, whole chunks");
  static_assert(kSlotBytes % 128 == 0, "where bulk copies begin");

  // Where in the stage chunk `chunk` of a row lies.
  __host__ __device__ static constexpr unsigned place_of(int row, int chunk) {
    const int byte = chunk * 16, swizzle = row * Operand::kRowBytes / 128 % (Operand::kRowBytes / 16) * 16;
    return unsigned(byte / Operand::kRowBytes * Operand::kPanelBytes + row * Operand::kRowBytes +
                    (byte % Operand::kRowBytes ^ swizzle));
  }

  // Row `row`, which begins at `from` in its slot, or zeros behind the last row of B. Columns that C does not have may hold anything.
  __device__ __forceinline__ static void unpack(unsigned from, unsigned stage, int row, int columns, bool inside) {
    const unsigned selector = from % 4 == 0 ? 0x3210 : 0x5432;
    from -= from % 4;
    unsigned before = ptx::load_shared_word(from);
#pragma unroll
    for (int first = 0; first < kChunks; first += kAtOnce) {
      int words[kAtOnce * 4];
#pragma unroll
      for (int i = 0; i < kAtOnce * 4; ++i) {
        if (first * 4 + i >= kChunks * 4) continue;
        const unsigned word = ptx::load_shared_word(from + (first * 4 + i + 1) * 4);
        words[i] = int(inside ? __byte_perm(before, word, selector) : 0);
        before = word;
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i >= kChunks || (first + i) * 8 >= columns) continue;
        const int chunk[4] = {words[4 * i], words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]};
        ptx::store_shared(stage + place_of(row, first + i), chunk);
      }
    }
  }
};

// Of kernels that have none.
struct WgmmaNoSlots {
  static constexpr int kSlots = 0, kBytes = 0;
};

}  // namespace kt
