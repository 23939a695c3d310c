// The streamed operand of a skinny GEMM: the long one, whose every element is read once and multiplied with a few.
//
// It is seen as rows (index l) along k, wherever memory has it contiguous. A chunk is 64 bytes of k. Of a chunk, lane
// `lane` with g = lane / 4 and t = lane % 4 has the 16 bytes of k that begin with 16 t, of LANE_ROWS rows. The held
// operand is read in the same order, so that it does not matter which k the tensor cores take them for.
//
// A thread copies its pieces of 16 bytes by cp.async into slots of shared memory of its own, stages ahead, and reads
// back what it has copied itself: no barrier, no registers for what is under way.

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
template <class T, int LANE_ROWS, bool K_CONTIGUOUS, int LOAD_BYTES, int CHUNKS, int THREADS>
struct StreamedOperand {
  static constexpr int kSize = int(sizeof(T));
  static constexpr int kElements = kPieceBytes / kSize;       // of a piece
  static constexpr int kChunk = kLanesAlongK * kElements;     // elements of k
  static constexpr int kStep = CHUNKS * kChunk;
  // Not contiguous along k: vectors of kVector neighbouring rows, one for each k of a piece, are turned in registers.
  static constexpr int kVector = K_CONTIGUOUS ? 1 : min_of(LANE_ROWS, kElements);
  static constexpr int kVectorBytes = kVector * kSize;
  static constexpr int kSlotBytes = THREADS * kPieceBytes;
  static constexpr int kStageBytes = CHUNKS * LANE_ROWS * kSlotBytes;
  static constexpr int kCopyBytes = K_CONTIGUOUS ? kPieceBytes : kVectorBytes;
  static constexpr int kAccess = min_of(LOAD_BYTES, kCopyBytes);
  static_assert(K_CONTIGUOUS || (LANE_ROWS % kVector == 0 && kVectorBytes >= 4), "vectors are whole words");

  const T* cursor;      // this thread's first element of the step that is copied next
  long long pitch;      // elements between rows of memory
  long long advance;    // elements from one step of this warp to its next
  int k_left, k_advance;  // elements of k from there to the end of the slice
  int rows_left;        // rows from this thread's first one to the end of the operand
  unsigned slots;       // this thread's first slot

  // `first_row` and `first_k`: of the warp; `k_stride`: from one step of this warp to its next.
  __device__ __forceinline__ StreamedOperand(const T* base, long long pitch, long long first_row, int rows, int first_k,
                                             int end_k, int k_stride, unsigned shared)
      : pitch(pitch), k_advance(k_stride), slots(shared + threadIdx.x * kPieceBytes) {
    const int lane = int(threadIdx.x) % 32, k = lane % kLanesAlongK * kElements;
    const int row = lane_row();
    rows_left = rows - row;
    k_left = end_k - first_k - k;
    const long long k_position = (long long)first_k + k, l_position = first_row + row;
    cursor = base + (K_CONTIGUOUS ? l_position * pitch + k_position : k_position * pitch + l_position);
    advance = K_CONTIGUOUS ? (long long)k_stride : k_stride * pitch;
  }

  // The row of slot `slot` of this thread is `lane_row() + row_of(slot)`.
  __device__ __forceinline__ static int lane_row() {
    return int(threadIdx.x) % 32 / kLanesAlongK * kVector;
  }
  __host__ __device__ static constexpr int row_of(int slot) {
    return slot / kVector * (8 * kVector) + slot % kVector;
  }

  // Copies what lies side by side, of which the first `valid` elements are there (whole accesses).
  __device__ __forceinline__ static void copy_row(unsigned target, const T* source, int valid) {
    if constexpr (kAccess >= 4) {
#pragma unroll
      for (int i = 0; i < kCopyBytes / kAccess; ++i) {
        ptx::cp_async_zfill<kAccess>(target + i * kAccess, source + i * (kAccess / kSize), i * (kAccess / kSize) < valid);
      }
    } else {
      const auto bits = ptx::read_only_row<kCopyBytes, kAccess>(source, valid * kSize);
#pragma unroll
      for (int word = 0; word < kCopyBytes / 4; ++word) ptx::store_shared(target + 4 * word, bits.at[word]);
    }
  }

  // Starts the copies of the next step into a stage.
  __device__ __forceinline__ void copy(unsigned stage) {
#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; ++chunk) {
      const unsigned target = slots + stage + chunk * LANE_ROWS * kSlotBytes;
      if constexpr (K_CONTIGUOUS) {
#pragma unroll
        for (int slot = 0; slot < LANE_ROWS; ++slot) {
          const int left = row_of(slot) < rows_left ? k_left - chunk * kChunk : 0;
          copy_row(target + slot * kSlotBytes, cursor + (row_of(slot) * pitch + chunk * kChunk), left);
        }
      } else {
#pragma unroll
        for (int vector = 0; vector < LANE_ROWS / kVector * kElements; ++vector) {
          const int k = chunk * kChunk + vector % kElements, row = row_of(vector / kElements * kVector);
          const int place = vector * kVectorBytes;  // slots hold one or more of them
          copy_row(target + place / kPieceBytes * kSlotBytes + place % kPieceBytes, cursor + (k * pitch + row),
                   k < k_left ? rows_left - row : 0);
        }
      }
    }
    cursor += advance;
    k_left -= k_advance;
  }

  // The pieces of this thread's rows in a chunk that has arrived.
  __device__ __forceinline__ void read(unsigned (&rows)[LANE_ROWS][4], unsigned stage, int chunk) const {
    const unsigned first = slots + stage + chunk * LANE_ROWS * kSlotBytes;
    unsigned read[LANE_ROWS][4];
#pragma unroll
    for (int slot = 0; slot < LANE_ROWS; ++slot) ptx::load_shared(read[slot], first + slot * kSlotBytes);
    if constexpr (K_CONTIGUOUS) {
#pragma unroll
      for (int slot = 0; slot < LANE_ROWS; ++slot)
#pragma unroll
        for (int word = 0; word < 4; ++word) rows[slot][word] = read[slot][word];
    } else {
#pragma unroll
      for (int unit = 0; unit < LANE_ROWS / kVector; ++unit) {
        ptx::Bits<kVectorBytes> vectors[kElements];
        unsigned turned[kVector][4];
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
#pragma unroll
          for (int word = 0; word < kVectorBytes / 4; ++word) {
            const int place = (unit * kElements + k) * (kVectorBytes / 4) + word;
            vectors[k].at[word] = read[place / 4][place % 4];
          }
        }
        turn<kSize, kVector>(vectors, turned);
#pragma unroll
        for (int row = 0; row < kVector; ++row)
#pragma unroll
          for (int word = 0; word < 4; ++word) rows[unit * kVector + row][word] = turned[row][word];
      }
    }
  }
};

}  // namespace kt
