// Stretches: the rows of the streamed operand that a warp multiplies at once, over all of a short k, on their way
// through shared memory of the warp's own. A stretch is 8 LANE_ROWS rows; chunks and lanes are those of
// skinny_streamed.cuh, but that a last chunk of up to 32 bytes is a half one: lane t has 8 bytes of it, from 8 t on.

namespace kt {

constexpr int kChunkBytes = kLanesAlongK * kPieceBytes;

// k in chunks: whole ones, and perhaps a half one. HALVES: the sums take half chunks.
template <int SIZE, bool HALVES>
struct Chunks {
  int whole, half;
  __device__ __forceinline__ explicit Chunks(int k) {
    const int rest = k * SIZE % kChunkBytes;
    half = HALVES && rest > 0 && rest <= kChunkBytes / 2;
    whole = k * SIZE / kChunkBytes + (rest > 0 && !half);
  }
  __device__ __forceinline__ int all() const { return whole + half; }
};

// Which rows of a stretch are whose: slot `slot` of a lane has row `lane_row() + row_of(slot)`. Lanes are (g, t) = (lane /
// 4, lane % 4); those of one g have the same rows.
__device__ __forceinline__ int lane_across() { return int(threadIdx.x) % 32 / kLanesAlongK; }

// The rows of an octet are neighbours.
struct RowsApart {
  __device__ __forceinline__ static int lane_row() { return lane_across(); }
  __host__ __device__ static constexpr int row_of(int slot) { return 8 * slot; }
};

// COUNT rows of a lane are neighbours.
template <int COUNT>
struct RowsTogether {
  static constexpr int kCount = COUNT;
  static constexpr bool kPairs = false;
  __device__ __forceinline__ static int lane_row() { return lane_across() * COUNT; }
  __host__ __device__ static constexpr int row_of(int slot) { return slot / COUNT * (8 * COUNT) + slot % COUNT; }
};

// Columns 2 t and 2 t + 1 of COUNT / 2 octets are neighbours: what lane t has of the products if the streamed rows are
// their columns. COUNT neighbours are those of two lanes, which take every other one.
template <int COUNT>
struct RowsInPairs {
  static constexpr int kCount = COUNT;
  static constexpr bool kPairs = true;
  __device__ __forceinline__ static int lane_row() { return lane_across() / 2 * COUNT + lane_across() % 2; }
  __host__ __device__ static constexpr int row_of(int slot) {
    return slot / (COUNT / 2) * (4 * COUNT) + slot % (COUNT / 2) * 2;
  }
};

// Zeros behind the first `valid` bytes of a piece: what follows there belongs to the next row.
__device__ __forceinline__ void cut_piece(unsigned (&words)[4], int valid) {
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const int left = valid - 4 * word;
    if (left < 4) words[word] &= left <= 0 ? 0u : (1u << 8 * left) - 1;
  }
}

// The first WORDS words of a piece that begins at a multiple of ALIGN bytes; `address % 4` is that of `alike`.
template <int ALIGN, int WORDS>
__device__ __forceinline__ void read_piece(unsigned (&words)[4], unsigned address, unsigned alike) {
  if constexpr (ALIGN >= 8) {
    constexpr int kBytes = min_of(ALIGN, 4 * WORDS);
#pragma unroll
    for (int at = 0; at < 4 * WORDS; at += kBytes) {
      ptx::Bits<kBytes> part;
      ptx::load_shared(part.at, address + at);
#pragma unroll
      for (int word = 0; word < kBytes / 4; ++word) words[at / 4 + word] = part.at[word];
    }
  } else if constexpr (ALIGN >= 4) {
#pragma unroll
    for (int word = 0; word < WORDS; ++word) words[word] = ptx::load_shared_word(address + 4 * word);
  } else {
    unsigned read[WORDS + 1];
#pragma unroll
    for (int word = 0; word <= WORDS; ++word) read[word] = ptx::load_shared_word((address & ~3u) + 4 * word);
#pragma unroll
    for (int word = 0; word < WORDS; ++word) words[word] = __funnelshift_r(read[word], read[word + 1], alike % 4 * 8);
  }
}

// Dense rows along k follow each other: whatever k is, the stretch begins at a multiple of 16 bytes if the operand
// does, and is copied in accesses of 16 bytes. Where rows begin at odd elements, pieces are read with shifts.
// ROW_ALIGN: bytes to which rows are aligned.
template <class T, int LANE_ROWS, int ROW_ALIGN, class Order_, bool HALVES>
struct RowStretch {
  using Order = Order_;
  static constexpr bool kHalves = HALVES;
  static constexpr int kSize = int(sizeof(T)), kRows = 8 * LANE_ROWS;
  static constexpr int kPastEnd = 96;  // bytes that lanes read past the last row
  const char* streamed;
  int extent, row_bytes;
  Chunks<kSize, HALVES> chunks;
  unsigned masks[4];  // of this lane's piece of the last chunk: ones where k goes on
  bool aligned;
  static_assert(kRows * kSize % 16 == 0, "stretches begin at multiples of 16 bytes");

  __device__ __forceinline__ RowStretch(const T* streamed, long long, int extent, int k)
      : streamed(reinterpret_cast<const char*>(streamed)), extent(extent), row_bytes(k * kSize), chunks(k),
        aligned(reinterpret_cast<unsigned long long>(streamed) % 16 == 0) {
#pragma unroll
    for (int word = 0; word < 4; ++word) masks[word] = ~0u;
    const int last = chunks.all() - 1;
    cut_piece(masks, row_bytes - (chunks.half ? begin_of<1>(last) : begin_of<2>(last)));
  }

  __device__ __forceinline__ int buffer_bytes() const { return cdiv(kRows * row_bytes, 16) * 16 + kPastEnd; }
  __device__ __forceinline__ void prepare(unsigned) const {}

  // Starts the copies of the stretch that begins with row `first`.
  __device__ __forceinline__ void copy(unsigned buffer, long long first) const {
    const char* const source = streamed + first * row_bytes;
    const int bytes = int(min_of((long long)kRows, extent - first)) * row_bytes, whole = aligned ? bytes / 16 * 16 : 0;
#pragma unroll 1
    for (int at = int(threadIdx.x) % 32 * 16; at < whole; at += 4 * 32 * 16) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (at + i * 512 < whole) ptx::cp_async_whole(buffer + at + i * 512, source + at + i * 512);
      }
    }
    if (whole < bytes) copy_elements(buffer + whole, source + whole, bytes - whole);
  }

  // What no whole access is left for: an operand that begins elsewhere, and the last bytes of one that ends elsewhere.
  __device__ __forceinline__ static void copy_elements(unsigned buffer, const char* source, int bytes) {
    constexpr int kAccess = min_of(4, kSize);
#pragma unroll 1
    for (int at = int(threadIdx.x) % 32 * 4; at < bytes; at += 32 * 4) {
      ptx::store_shared(buffer + at, ptx::read_only_row<4, kAccess>(source + at, bytes - at).at[0]);
    }
  }

  // The first PARTS halves of the pieces of a chunk, of COUNT slots from `slot` on.
  template <int PARTS, int COUNT>
  __device__ __forceinline__ void read(unsigned (&rows)[COUNT][4], int slot, unsigned buffer, int chunk) const {
    const unsigned first = buffer + Order::lane_row() * row_bytes + begin_of<PARTS>(chunk);
    const bool last = chunk + 1 == chunks.all();
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int row = Order::row_of(slot + i);
      const unsigned address = first + row * row_bytes;
      read_piece<ROW_ALIGN, 2 * PARTS>(rows[i], address, row * kSize % 4 == 0 ? first : address);
#pragma unroll
      for (int word = 0; word < 2 * PARTS; ++word) {
        if (last) rows[i][word] &= masks[word];
      }
    }
  }

 private:
  // Bytes into a row of this lane's part of a chunk.
  template <int PARTS>
  __device__ __forceinline__ static int begin_of(int chunk) {
    return chunk * kChunkBytes + int(threadIdx.x) % kLanesAlongK * (8 * PARTS);
  }
};

// Rows that lie across: a stretch is a piece of each of k lines of memory, and is turned in registers.
template <class T, int LANE_ROWS, int LOAD_BYTES, class Order_, bool HALVES>
struct LineStretch {
  using Order = Order_;
  static constexpr bool kHalves = HALVES;
  using Lines = StreamedOperand<T, LANE_ROWS, false, LOAD_BYTES, 1, 1>;
  static constexpr int kSize = int(sizeof(T)), kRows = 8 * LANE_ROWS, kAtOnce = Lines::kLinesAtOnce;
  static constexpr int kLine = Lines::kLine, kUnits = Lines::kUnits;
  static constexpr int kVectorBytes = Order::kCount * kSize;
  const T* streamed;
  long long pitch;
  int extent, k;
  Chunks<kSize, HALVES> chunks;
  static_assert(kVectorBytes >= 4 && kVectorBytes <= 16, "vectors are whole words");

  __device__ __forceinline__ LineStretch(const T* streamed, long long pitch, int extent, int k)
      : streamed(streamed), pitch(pitch), extent(extent), k(k), chunks(k) {}

  __device__ __forceinline__ int lines() const { return (2 * chunks.whole + chunks.half) * (Lines::kChunk / 2); }
  __device__ __forceinline__ int buffer_bytes() const { return lines() * kLine; }

  // The 16 bytes of a line change places with others by an XOR of this. Lines that lanes read together lie in other banks:
  // those from which they read pieces are 16 bytes of k apart, or 8 in a half chunk.
  __host__ __device__ static constexpr int turn_of(int line) {
    constexpr int kEach = Lines::kElements;
    const int turn = line / kEach % 2 * 4 + (line / (2 * kEach) + 2 * line / kEach) % 2 * 2;
    return turn & (min_of(kUnits, 8) - 1);
  }
  __device__ __forceinline__ static unsigned place(int line, int unit) {
    return line * kLine + (unit ^ turn_of(line)) * kPieceBytes;
  }

  // Lines past k are zero, once and for all.
  __device__ __forceinline__ void prepare(unsigned buffer) const {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll 1
    for (int line = k + lane / kUnits; line < lines(); line += kAtOnce) {
#pragma unroll
      for (int word = 0; word < 4; ++word) ptx::store_shared(buffer + place(line, lane % kUnits) + 4 * word, 0);
    }
  }

  __device__ __forceinline__ void copy(unsigned buffer, long long first) const {
    const int lane = int(threadIdx.x) % 32, unit = lane % kUnits;
    const int left = int(min_of((long long)kRows, extent - first)) - unit * Lines::kElements;
    const T* source = streamed + (first + unit * Lines::kElements + lane / kUnits * pitch);
#pragma unroll 1
    for (int line = lane / kUnits; line < k; line += 4 * kAtOnce) {
      const int turned = unit ^ turn_of(line);
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // lines of which a few bits differ: their turns differ by an XOR
        const unsigned to = buffer + (line + i * kAtOnce) * kLine + (turned ^ turn_of(i * kAtOnce)) * kPieceBytes;
        if (line + i * kAtOnce < k) Lines::copy_piece(to, source, left);
        source += kAtOnce * pitch;
      }
    }
  }

  // The first PARTS halves of the pieces of a chunk, of COUNT slots from `slot` on: as many as come from one vector, or all.
  template <int PARTS, int COUNT>
  __device__ __forceinline__ void read(unsigned (&rows)[COUNT][4], int slot, unsigned buffer, int chunk) const {
    constexpr int kSlots = Order::kPairs ? Order::kCount / 2 : Order::kCount;  // of a vector
    constexpr int kPart = Lines::kElements / 2;
    const int line = chunk * Lines::kChunk + int(threadIdx.x) % kLanesAlongK * (kPart * PARTS);
    const int across = lane_across() / (Order::kPairs ? 2 : 1);
#pragma unroll
    for (int i = 0; i < COUNT; i += kSlots) {
      const int bytes = Order::row_of(slot + i) * kSize + across * kVectorBytes;
#pragma unroll
      for (int part = 0; part < PARTS; ++part) {
        const unsigned from = buffer + place(line + part * kPart, bytes / kPieceBytes) + bytes % kPieceBytes;
        ptx::Bits<kVectorBytes> vectors[kPart];
#pragma unroll
        for (int x = 0; x < kPart; ++x) ptx::load_shared(vectors[x].at, from + x * kLine);
#pragma unroll
        for (int row = 0; row < kSlots; ++row) {
#pragma unroll
          for (int word = 0; word < 2; ++word) rows[i + row][2 * part + word] = gathered_word(vectors, word, row);
        }
      }
    }
  }

 private:
  // Word `word` of the half piece along k of the vectors' slot `row`. Of the two neighbours of a pair one is this lane's.
  template <class Vectors>
  __device__ __forceinline__ static unsigned gathered_word(const Vectors& vectors, int word, int row) {
    const int first = word * 4 / kSize;  // vector
    if constexpr (!Order::kPairs) {
      if constexpr (kSize == 8) return vectors[word / 2].at[2 * row + word % 2];
      else return gathered<kSize>(vectors, first, row);
    } else {
      const bool odd = lane_across() % 2;
      if constexpr (kSize == 8) {
        return odd ? vectors[word / 2].at[4 * row + 2 + word % 2] : vectors[word / 2].at[4 * row + word % 2];
      } else if constexpr (kSize == 4) {
        return odd ? vectors[first].at[2 * row + 1] : vectors[first].at[2 * row];
      } else if constexpr (kSize == 2) {
        return __byte_perm(vectors[first].at[row], vectors[first + 1].at[row], odd ? 0x7632 : 0x5410);
      } else {
        const unsigned pair = (row % 2 ? 0x62 : 0x40) + (odd ? 0x11 : 0);
        const unsigned low = __byte_perm(vectors[first].at[row / 2], vectors[first + 1].at[row / 2], pair);
        const unsigned high = __byte_perm(vectors[first + 2].at[row / 2], vectors[first + 3].at[row / 2], pair);
        return __byte_perm(low, high, 0x5410);
      }
    }
  }
};

}  // namespace kt
