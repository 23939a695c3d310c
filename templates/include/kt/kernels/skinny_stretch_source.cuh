// Stretches: the rows of the streamed operand that a warp multiplies at once, over all of a short k, on their way
// through shared memory of the warp's own. A stretch is 8 LANE_ROWS rows; chunks and lanes are those of
// skinny_streamed.cuh.

namespace kt {

// Zeros behind the first `valid` bytes of a piece: what follows there belongs to the next row.
__device__ __forceinline__ void cut_piece(unsigned (&words)[4], int valid) {
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const int left = valid - 4 * word;
    if (left < 4) words[word] &= left <= 0 ? 0u : (1u << 8 * left) - 1;
  }
}

// A piece of 16 bytes that begins at a multiple of ALIGN bytes.
template <int ALIGN>
__device__ __forceinline__ void read_piece(unsigned (&words)[4], unsigned address) {
  if constexpr (ALIGN >= 16) {
    ptx::load_shared(words, address);
  } else if constexpr (ALIGN >= 4) {
#pragma unroll
    for (int word = 0; word < 4; ++word) words[word] = ptx::load_shared_word(address + 4 * word);
  } else {
    unsigned read[5];
#pragma unroll
    for (int word = 0; word < 5; ++word) read[word] = ptx::load_shared_word((address & ~3u) + 4 * word);
#pragma unroll
    for (int word = 0; word < 4; ++word) words[word] = __funnelshift_r(read[word], read[word + 1], address % 4 * 8);
  }
}

// Dense rows along k follow each other: whatever k is, the stretch begins at a multiple of 16 bytes if the operand
// does, and is copied in accesses of 16 bytes. Where rows begin at odd elements, pieces are read with shifts.
// ROW_ALIGN: bytes to which rows are aligned.
template <class T, int LANE_ROWS, int ROW_ALIGN>
struct RowStretch {
  static constexpr int kSize = int(sizeof(T)), kRows = 8 * LANE_ROWS;
  static constexpr int kPastEnd = 96;  // bytes that lanes read past the last row
  const char* streamed;
  int extent, row_bytes, chunks;
  bool aligned;
  static_assert(kRows * kSize % 16 == 0, "stretches begin at multiples of 16 bytes");

  __device__ __forceinline__ RowStretch(const T* streamed, long long, int extent, int k)
      : streamed(reinterpret_cast<const char*>(streamed)), extent(extent), row_bytes(k * kSize),
        chunks(cdiv(k, kLanesAlongK * kPieceBytes / kSize)),
        aligned(reinterpret_cast<unsigned long long>(streamed) % 16 == 0) {}

  __device__ __forceinline__ int buffer_bytes() const { return cdiv(kRows * row_bytes, 16) * 16 + kPastEnd; }
  __device__ __forceinline__ void prepare(unsigned) const {}

  __device__ __forceinline__ static int lane_row() { return int(threadIdx.x) % 32 / kLanesAlongK; }
  __host__ __device__ static constexpr int row_of(int slot) { return 8 * slot; }

  // Starts the copies of the stretch that begins with row `first`.
  __device__ __forceinline__ void copy(unsigned buffer, long long first) const {
    const int bytes = int(min_of((long long)kRows, extent - first)) * row_bytes, lane = int(threadIdx.x) % 32;
    const char* const source = streamed + first * row_bytes;
    if (aligned) {
#pragma unroll 4
      for (int at = lane * 16; at < bytes; at += 32 * 16) {
        ptx::cp_async_part(buffer + at, source + at, min_of(16, bytes - at));
      }
    } else {
      copy_elements(buffer, source, bytes);
    }
  }

  __device__ __forceinline__ static void copy_elements(unsigned buffer, const char* source, int bytes) {
    constexpr int kAccess = min_of(4, kSize);
#pragma unroll 1
    for (int at = int(threadIdx.x) % 32 * 4; at < bytes; at += 32 * 4) {
      ptx::store_shared(buffer + at, ptx::read_only_row<4, kAccess>(source + at, bytes - at).at[0]);
    }
  }

  __device__ __forceinline__ void read(unsigned (&rows)[LANE_ROWS][4], unsigned buffer, int chunk) const {
    const int begin = chunk * (kLanesAlongK * kPieceBytes) + int(threadIdx.x) % kLanesAlongK * kPieceBytes;
    const unsigned first = buffer + lane_row() * row_bytes + begin;
#pragma unroll
    for (int slot = 0; slot < LANE_ROWS; ++slot) {
      read_piece<ROW_ALIGN>(rows[slot], first + row_of(slot) * row_bytes);
      if (chunk + 1 == chunks) cut_piece(rows[slot], row_bytes - begin);
    }
  }
};

// Rows that lie across: a stretch is a piece of each of k lines of memory, and is turned in registers. Copies and reads
// are those of one step of `StreamedOperand`, with as many chunks as k has.
template <class T, int LANE_ROWS, int LOAD_BYTES>
struct LineStretch {
  using Lines = StreamedOperand<T, LANE_ROWS, false, LOAD_BYTES, 1, 1>;
  static constexpr int kRows = 8 * LANE_ROWS, kAtOnce = Lines::kLinesAtOnce;
  const T* streamed;
  long long pitch;
  int extent, k, chunks;

  __device__ __forceinline__ LineStretch(const T* streamed, long long pitch, int extent, int k)
      : streamed(streamed), pitch(pitch), extent(extent), k(k), chunks(cdiv(k, Lines::kChunk)) {}

  __device__ __forceinline__ int buffer_bytes() const { return chunks * Lines::kStageBytes; }

  __device__ __forceinline__ static int lane_row() { return Lines::lane_row(); }
  __host__ __device__ static constexpr int row_of(int slot) { return Lines::row_of(slot); }

  // Lines past k are zero, once and for all.
  __device__ __forceinline__ void prepare(unsigned buffer) const {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll 1
    for (int line = lane / Lines::kUnits; line < chunks * Lines::kChunk; line += kAtOnce) {
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        if (line >= k) ptx::store_shared(buffer + Lines::place(line, lane % Lines::kUnits) + 4 * word, 0);
      }
    }
  }

  __device__ __forceinline__ void copy(unsigned buffer, long long first) const {
    const int lane = int(threadIdx.x) % 32, unit = lane % Lines::kUnits;
    const int left = int(min_of((long long)kRows, extent - first)) - unit * Lines::kElements;
    const T* source = streamed + (first + unit * Lines::kElements + lane / Lines::kUnits * pitch);
#pragma unroll 4
    for (int line = lane / Lines::kUnits; line < k; line += kAtOnce) {
      Lines::copy_piece(buffer + Lines::place(line, unit), source, left);
      source += kAtOnce * pitch;
    }
  }

  __device__ __forceinline__ void read(unsigned (&rows)[LANE_ROWS][4], unsigned buffer, int chunk) const {
    Lines::read_lines(rows, buffer + chunk * Lines::kStageBytes);
  }
};

}  // namespace kt
