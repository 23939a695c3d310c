// Fragments of one operand: from shared memory to the registers of a warp.
//
// Both operands are seen alike: as octets of 8 rows of A or 8 columns of B. `mma` takes two octets of A and one of B,
// and lane l holds index g = l / 4 of each octet. Which m or n that is, the map `octet_position` tells: readers may
// spread an octet, and only the epilogue needs to know.

namespace kt {

enum class Side { kA, kB };

// The m or n of index g of an octet: SPREAD octets share 8 * SPREAD neighbours and take turns.
template <int SPREAD>
__host__ __device__ constexpr int octet_position(int octet, int g) {
  return octet / SPREAD * (8 * SPREAD) + g * SPREAD + octet % SPREAD;
}

// The words of one multiplication, `kParts` an octet (part by part of the k step): for A in the order in which `mma`
// takes two octets, for B octet by octet.
template <class Form, Side SIDE, int OCTETS>
struct Fragment {
  using Word = typename Form::Word;
  static constexpr int kParts = Form::kDoubles ? 4 : 2;
  Word at[kParts * OCTETS];

  __device__ __forceinline__ void set(int octet, int part, Word word) {
    at[SIDE == Side::kA ? (octet / 2 * kParts + part) * 2 + octet % 2 : octet * kParts + part] = word;
  }
  // What one instruction takes: strip `i` of A, octet `i` of B.
  __device__ __forceinline__ const Word* of(int i) const { return at + (SIDE == Side::kA ? 2 : 1) * kParts * i; }
};

// Of 16 neighbours, ldmatrix brings words in the order of the fragment: a matrix is of this octet and half.
template <Side SIDE>
__host__ __device__ constexpr int octet_of(int matrix) {
  return SIDE == Side::kA ? matrix % 2 : matrix / 2;
}
template <Side SIDE>
__host__ __device__ constexpr int half_of(int matrix) {
  return SIDE == Side::kA ? matrix / 2 : matrix % 2;
}

// Readers read the fragments of a warp, in two halves: `read` starts the loads of a k step into raw words; once they
// have arrived, `arrange` makes of one of their `kPieces` what a multiplication takes. Where bytes are widened, a k
// step has two multiplications: part 0 takes bytes 0 and 1 of each word of A and B, part 1 bytes 2 and 3. `Tile` is the
// operand's tile, WARP_MN the extent of the warp in it.

// What ldmatrix reads of k contiguous or of 2-byte elements: a piece is a word as it is, but for what the format asks.
template <Side SIDE, int GROUPS>
struct MatrixWords {
  using Raw = unsigned[GROUPS][4];
  static constexpr int kPieces = GROUPS * 4;

  template <class Form>
  __device__ __forceinline__ static void arrange(Fragment<Form, SIDE, 2 * GROUPS>& fragment, const Raw& raw, int part,
                                                 int piece) {
    const int group = piece / 4, matrix = piece % 4;
    fragment.set(2 * group + octet_of<SIDE>(matrix), half_of<SIDE>(matrix), Form::prepared(raw[group][matrix], part));
  }
};

// Doubles, a piece each.
template <Side SIDE, int OCTETS>
struct SingleDoubles {
  using Raw = double[OCTETS][4];
  static constexpr int kPieces = OCTETS * 4;

  template <class Form>
  __device__ __forceinline__ static void arrange(Fragment<Form, SIDE, OCTETS>& fragment, const Raw& raw, int,
                                                 int piece) {
    fragment.set(piece / 4, piece % 4, raw[piece / 4][piece % 4]);
  }
};

// k contiguous: 16 bytes along k of 8 rows are one matrix of ldmatrix as it is, whatever the format.
template <class Tile, Side SIDE, int WARP_MN>
struct RowReader : MatrixWords<SIDE, WARP_MN / 16> {
  static constexpr int kSpread = 1;
  static constexpr int kGroups = WARP_MN / 16;  // one ldmatrix reads 16 rows by 32 bytes
  static constexpr int kOctets = WARP_MN / 8;
  using Raw = typename MatrixWords<SIDE, WARP_MN / 16>::Raw;
  int offset;

  __device__ __forceinline__ explicit RowReader(int first_mn) {
    const int lane = int(threadIdx.x) % 32, matrix = lane / 8;
    const int octet = octet_of<SIDE>(matrix), half = half_of<SIDE>(matrix);
    offset = Tile::Places::offset(first_mn + octet * 8 + lane % 8, half * 16);
  }

  __device__ __forceinline__ void read(Raw& raw, unsigned stage, int k_step) const {
    // A row starts with k = 0, so the bits of the k step are free in the offset, and the swizzle goes with them.
    const unsigned address = stage + (offset ^ k_step * 32);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      ptx::ldmatrix_x4<false>(raw[group], address + group * 16 * Tile::kRowBytes);
    }
  }
};

// mn contiguous, 2-byte elements: ldmatrix transposes.
template <class Tile, Side SIDE, int WARP_MN>
struct TransposingReader : MatrixWords<SIDE, WARP_MN / 16> {
  static constexpr int kSpread = 1;
  static constexpr int kGroups = WARP_MN / 16;
  static constexpr int kOctets = WARP_MN / 8;
  static constexpr int kDepth = 16;  // rows of a k step
  using Raw = typename MatrixWords<SIDE, WARP_MN / 16>::Raw;
  int offsets[kGroups];

  __device__ __forceinline__ explicit TransposingReader(int first_mn) {
    const int lane = int(threadIdx.x) % 32, matrix = lane / 8;
    const int octet = octet_of<SIDE>(matrix), half = half_of<SIDE>(matrix);
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      offsets[group] = Tile::Places::offset(half * 8 + lane % 8, (first_mn + group * 16 + octet * 8) * 2);
    }
  }

  __device__ __forceinline__ void read(Raw& raw, unsigned stage, int k_step) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      ptx::ldmatrix_x4<true>(raw[group], stage + offsets[group] + k_step * kDepth * Tile::kRowBytes);
    }
  }
};

// mn contiguous, bytes: ldmatrix transposes pairs of bytes. With t = lane % 4 and g = lane / 4, matrices 2 h and 2 h +
// 1 of 16 neighbours bring k = 16 h + 4 t, + 1 and + 2, + 3 of neighbours 2 g and 2 g + 1; a permutation of the bytes
// makes one word of each neighbour. So the two octets of the 16 neighbours take turns.
template <class Tile, Side SIDE, int WARP_MN>
struct BytePairReader {
  static constexpr int kSpread = 2;
  static constexpr int kGroups = WARP_MN / 16;
  static constexpr int kOctets = WARP_MN / 8;
  static constexpr int kDepth = 32;
  using Raw = unsigned[kGroups][4];
  int offsets[kGroups];

  __device__ __forceinline__ explicit BytePairReader(int first_mn) {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      offsets[group] = Tile::Places::offset_at(int(threadIdx.x) % 32, first_mn + group * 16);
    }
  }

  __device__ __forceinline__ void read(Raw& raw, unsigned stage, int k_step) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      ptx::ldmatrix_x4<true>(raw[group], stage + offsets[group] + k_step * kDepth * Tile::kRowBytes);
    }
  }

  // A piece is a pair of matrices. Of bytes that are widened, part `part` takes one of them, which has both neighbours.
  static constexpr int kPieces = 2 * kGroups;
  template <class Form>
  __device__ __forceinline__ static void arrange(Fragment<Form, SIDE, kOctets>& fragment, const Raw& raw, int part,
                                                 int piece) {
    const int group = piece / 2, half = piece % 2;
    if constexpr (Form::kWidened) {
      const unsigned matrix = raw[group][2 * half + part], word = ptx::permuted<0x3120>(matrix, matrix);
      fragment.set(2 * group, half, Form::prepared(word, 0));
      fragment.set(2 * group + 1, half, Form::prepared(word, 1));
    } else {
      const unsigned first = raw[group][2 * half], second = raw[group][2 * half + 1];
      fragment.set(2 * group, half, ptx::permuted<0x6420>(first, second));
      fragment.set(2 * group + 1, half, ptx::permuted<0x7531>(first, second));
    }
  }
};

// mn contiguous, 4-byte elements. Rows t and t + 4 are the halves. A lane reads as many neighbours at once as words
// stand side by side in the registers that `mma` takes: of A 2 g and 2 g + 1, so that two octets take turns, of B one.
// (16 bytes at once would be fewer instructions, but bring words that belong to different registers, and moves between
// them.)
template <class Tile, Side SIDE, int WARP_MN>
struct WordReader {
  static constexpr int kSpread = SIDE == Side::kA ? 2 : 1;
  static constexpr int kGroups = WARP_MN / (8 * kSpread);
  static constexpr int kOctets = WARP_MN / 8;
  static constexpr int kDepth = 8;
  static constexpr int kBytes = kSpread * 4;
  static constexpr int kOffsets = 128 / (8 * kBytes);  // groups that differ in the unit
  using Raw = unsigned[kGroups][2][kSpread];
  int offsets[kOffsets][2];

  __device__ __forceinline__ explicit WordReader(int first_mn) {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int group = 0; group < kOffsets; ++group) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        offsets[group][half] =
            Tile::Places::offset(half * 4 + lane % 4, first_mn * 4 + (group * 8 + lane / 4) * kBytes);
      }
    }
  }

  __device__ __forceinline__ void read(Raw& raw, unsigned stage, int k_step) const {
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        ptx::load_shared(raw[group][half], stage + offsets[group % kOffsets][half] +
                                               (group / kOffsets * 128 + k_step * kDepth * Tile::kRowBytes));
      }
    }
  }

  // A piece is a word.
  static constexpr int kPieces = 2 * kOctets;
  template <class Form>
  __device__ __forceinline__ static void arrange(Fragment<Form, SIDE, kOctets>& fragment, const Raw& raw, int,
                                                 int piece) {
    const int group = piece / (2 * kSpread), half = piece / kSpread % 2, word = piece % kSpread;
    fragment.set(group * kSpread + word, half, Form::prepared(raw[group][half][word], 0));
  }
};

// fp64, k contiguous: a lane reads k = t, t + 4, t + 8 and t + 12 of one row. (16 bytes at once would bring numbers
// that `mma` does not take from neighbouring registers.)
template <class Tile, Side SIDE, int WARP_MN>
struct DoubleRowReader : SingleDoubles<SIDE, WARP_MN / 8> {
  static constexpr int kSpread = 1;
  static constexpr int kOctets = WARP_MN / 8;
  using Raw = typename SingleDoubles<SIDE, WARP_MN / 8>::Raw;
  int offset;

  __device__ __forceinline__ explicit DoubleRowReader(int first_mn) {
    const int lane = int(threadIdx.x) % 32;
    offset = Tile::Places::offset(first_mn + lane / 4, lane % 4 * 8);
  }

  template <int COUNT = kOctets>
  __device__ __forceinline__ void read(Raw& raw, unsigned stage, int k_step, int first = 0) const {
#pragma unroll
    for (int part = 0; part < 4; ++part) {
      const unsigned address = stage + (offset ^ (k_step * 128 + part * 32));
#pragma unroll
      for (int octet = first; octet < first + COUNT; ++octet) {
        ptx::load_shared(raw[octet][part], address + octet * 8 * Tile::kRowBytes);
      }
    }
  }
};

// fp64, mn contiguous: likewise, of rows t, t + 4, t + 8 and t + 12. A group of 16 neighbours is 128 bytes: its octets
// differ in the unit, groups do not, nor do rows 8 apart.
template <class Tile, Side SIDE, int WARP_MN>
struct DoubleColumnReader : SingleDoubles<SIDE, WARP_MN / 8> {
  static constexpr int kSpread = 1;
  static constexpr int kOctets = WARP_MN / 8;
  static constexpr int kDepth = 16;
  using Raw = typename SingleDoubles<SIDE, WARP_MN / 8>::Raw;
  int offsets[2][2];

  __device__ __forceinline__ explicit DoubleColumnReader(int first_mn) {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int octet = 0; octet < 2; ++octet) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        offsets[octet][half] = Tile::Places::offset(half * 4 + lane % 4, (first_mn + octet * 8 + lane / 4) * 8);
      }
    }
  }

  template <int COUNT = kOctets>
  __device__ __forceinline__ void read(Raw& raw, unsigned stage, int k_step, int first = 0) const {
#pragma unroll
    for (int octet = first; octet < first + COUNT; ++octet) {
#pragma unroll
      for (int part = 0; part < 4; ++part) {
        ptx::load_shared(raw[octet][part], stage + offsets[octet % 2][part % 2] +
                                               (octet / 2 * 128 + (k_step * kDepth + part / 2 * 8) * Tile::kRowBytes));
      }
    }
  }
};

}  // namespace kt
