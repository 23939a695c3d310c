// The streamed operand of a skinny GEMM: the long one, whose every element is read once and multiplied with a few.
//
// It is seen as rows (index l) along k, wherever memory has it contiguous. A chunk is 64 bytes of k. Of a chunk, lane
// `lane` with g = lane / 4 and t = lane % 4 has the 16 bytes of k that begin with 16 t, of LANE_ROWS rows. The held
// operand is read in the same order, so that it does not matter which k the tensor cores take them for.
//
// A warp copies its rows by cp.async into shared memory of its own, stages ahead: eight neighbouring lanes take 128
// bytes in a row wherever they can, which is one request to L2. No barrier, and no registers for what is under way.

namespace kt {

constexpr int kPieceBytes = 16;
constexpr int kLanesAlongK = 4;

// Element `index` of each of the vectors `vectors[first]` ...: as many as one word holds.
template <int SIZE, class Vectors>
__device__ __forceinline__ unsigned gathered(const Vectors& vectors, int first, int index) {
  if constexpr (SIZE == 4) {
    return vectors[first].at[index];
  } else if constexpr (SIZE == 2) {
    return __byte_perm(vectors[first].at[index / 2], vectors[first + 1].at[index / 2], index % 2 ? 0x7632 : 0x5410);
  } else {
    static_assert(SIZE == 1);
    const unsigned pair = (4 + index % 4) << 4 | index % 4;
    const unsigned low = __byte_perm(vectors[first].at[index / 4], vectors[first + 1].at[index / 4], pair);
    const unsigned high = __byte_perm(vectors[first + 2].at[index / 4], vectors[first + 3].at[index / 4], pair);
    return __byte_perm(low, high, 0x5410);
  }
}

// Vectors of COUNT elements of neighbouring rows, one for each k of a piece, become a piece along k for each row.
template <int SIZE, int COUNT, class Vectors>
__device__ __forceinline__ void turn(const Vectors& vectors, unsigned (&pieces)[COUNT][4]) {
#pragma unroll
  for (int row = 0; row < COUNT; ++row) {
#pragma unroll
    for (int word = 0; word < 4; ++word) {
      if constexpr (SIZE == 8) {
        pieces[row][word] = vectors[word / 2].at[2 * row + word % 2];
      } else {
        pieces[row][word] = gathered<SIZE>(vectors, word * (4 / SIZE), row);
      }
    }
  }
}

// LOAD_BYTES: rows of memory begin and end at multiples of it.
template <class T, int LANE_ROWS, bool K_CONTIGUOUS, int LOAD_BYTES, int CHUNKS, int STAGES>
struct StreamedOperand {
  static constexpr int kSize = int(sizeof(T));
  static constexpr int kElements = kPieceBytes / kSize;    // of a piece
  static constexpr int kChunk = kLanesAlongK * kElements;  // elements of k
  static constexpr int kStep = CHUNKS * kChunk;
  static constexpr int kCopies = LANE_ROWS * CHUNKS;  // of 16 bytes by each lane, in a step
  static constexpr int kStageBytes = kCopies * 32 * kPieceBytes;  // of a warp
  static constexpr int kWarpBytes = STAGES * kStageBytes;
  static constexpr int kAccess = min_of(LOAD_BYTES, kPieceBytes);
  // A line of the stage: a row's bytes of k, or the rows' bytes of one k.
  static constexpr int kLine = K_CONTIGUOUS ? CHUNKS * kLanesAlongK * kPieceBytes : 8 * LANE_ROWS * kSize;
  static constexpr int kUnits = kLine / kPieceBytes;  // pieces, which neighbouring lanes copy
  static constexpr int kLinesAtOnce = 32 / kUnits;
  // Not contiguous along k: vectors of kVector neighbouring rows, one for each k of a piece, are turned in registers.
  static constexpr int kVector = K_CONTIGUOUS ? 1 : min_of(LANE_ROWS, kElements);
  static constexpr int kVectorBytes = kVector * kSize;
  static_assert(kUnits >= 1 && kUnits <= 32, "a copy of a warp is of whole lines");
  static_assert(!K_CONTIGUOUS || CHUNKS <= 4, "the place of a lane's copies is the same in all lines");
  static_assert(K_CONTIGUOUS || (LANE_ROWS % kVector == 0 && kVectorBytes >= 4), "vectors are whole words");

  const T* cursor;        // this lane's first element of the step that is copied next
  long long pitch;        // elements between rows of memory
  long long advance;      // elements from one step of this warp to its next
  int k_left, k_advance;  // elements of k from there to the end of the slice
  int rows_left;          // rows from this lane's first one to the end of the operand
  unsigned stages;        // of this warp, in shared memory
  unsigned target;        // where this lane's first copy goes, in a stage

  // `first_row` and `first_k`: of the warp; `k_stride`: from one step of this warp to its next.
  __device__ __forceinline__ StreamedOperand(const T* base, long long pitch, long long first_row, int rows, int first_k,
                                             int end_k, int k_stride, unsigned shared)
      : pitch(pitch), k_advance(k_stride), stages(shared + threadIdx.x / 32 * kWarpBytes) {
    const int lane = int(threadIdx.x) % 32, line = lane / kUnits, unit = lane % kUnits;
    const int row = K_CONTIGUOUS ? line : unit * kElements, k = K_CONTIGUOUS ? unit * kElements : line;
    target = place(line, unit);
    rows_left = rows - row;
    k_left = end_k - first_k - k;
    const long long k_position = (long long)first_k + k, l_position = first_row + row;
    cursor = base + (K_CONTIGUOUS ? l_position * pitch + k_position : k_position * pitch + l_position);
    advance = K_CONTIGUOUS ? (long long)k_stride : k_stride * pitch;
  }

  // Bytes into a stage of a piece. Lines that are read together lie in other banks: units change places.
  __device__ __forceinline__ static int place(int line, int unit) {
    int turned = unit;
    if constexpr (K_CONTIGUOUS) {
      if constexpr (CHUNKS > 1) turned = unit ^ line % 2 * kLanesAlongK;
    } else {
      turned = unit ^ (line / kElements * 2 & (min_of(kUnits, 8) - 1));
    }
    return line * kLine + turned * kPieceBytes;
  }

  // The row of slot `slot` of this lane is `lane_row() + row_of(slot)`.
  __device__ __forceinline__ static int lane_row() { return int(threadIdx.x) % 32 / kLanesAlongK * kVector; }
  __host__ __device__ static constexpr int row_of(int slot) {
    return slot / kVector * (8 * kVector) + slot % kVector;
  }

  // Copies one piece, of which the first `valid` elements are there (whole accesses).
  __device__ __forceinline__ static void copy_piece(unsigned shared, const T* source, int valid) {
    if constexpr (kAccess >= 4) {
#pragma unroll
      for (int i = 0; i < kPieceBytes / kAccess; ++i) {
        ptx::cp_async_zfill<kAccess>(shared + i * kAccess, source + i * (kAccess / kSize), i * (kAccess / kSize) < valid);
      }
    } else {
      const auto bits = ptx::read_only_row<kPieceBytes, kAccess>(source, valid * kSize);
#pragma unroll
      for (int word = 0; word < 4; ++word) ptx::store_shared(shared + 4 * word, bits.at[word]);
    }
  }

  // Starts the copies of the next step into a stage.
  __device__ __forceinline__ void copy(unsigned stage) {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const int line = i * kLinesAtOnce;
      const T* const source = cursor + line * pitch;
      if constexpr (K_CONTIGUOUS) {
        copy_piece(stages + stage + target + line * kLine, source, line < rows_left ? k_left : 0);
      } else {
        const int lane = int(threadIdx.x) % 32, to = place(lane / kUnits + line, lane % kUnits);
        copy_piece(stages + stage + to, source, line < k_left ? rows_left : 0);
      }
    }
    cursor += advance;
    k_left -= k_advance;
  }

  // The pieces of this lane's rows in a chunk that has arrived.
  __device__ __forceinline__ void read(unsigned (&rows)[LANE_ROWS][4], unsigned stage, int chunk) const {
    if constexpr (K_CONTIGUOUS) {
      const int g = int(threadIdx.x) % 32 / kLanesAlongK, t = int(threadIdx.x) % kLanesAlongK;
      const unsigned first = stages + stage + place(g, chunk * kLanesAlongK + t);
#pragma unroll
      for (int slot = 0; slot < LANE_ROWS; ++slot) ptx::load_shared(rows[slot], first + slot * 8 * kLine);
    } else {
      read_lines(rows, stages + stage + chunk * (kChunk * kLine));
    }
  }

  // The lines of a chunk begin at `from`: vectors of neighbouring rows, turned.
  __device__ __forceinline__ static void read_lines(unsigned (&rows)[LANE_ROWS][4], unsigned from) {
    const int g = int(threadIdx.x) % 32 / kLanesAlongK, t = int(threadIdx.x) % kLanesAlongK;
#pragma unroll
    for (int block = 0; block < LANE_ROWS / kVector; ++block) {
      const int bytes = (block * 8 + g) * kVectorBytes;
      const unsigned first = from + place(t * kElements, bytes / kPieceBytes) + bytes % kPieceBytes;
      ptx::Bits<kVectorBytes> vectors[kElements];
      unsigned turned[kVector][4];
#pragma unroll
      for (int k = 0; k < kElements; ++k) ptx::load_shared(vectors[k].at, first + k * kLine);
      turn<kSize, kVector>(vectors, turned);
#pragma unroll
      for (int row = 0; row < kVector; ++row)
#pragma unroll
        for (int word = 0; word < 4; ++word) rows[block * kVector + row][word] = turned[row][word];
    }
  }
};

}  // namespace kt
