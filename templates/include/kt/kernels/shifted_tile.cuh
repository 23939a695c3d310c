// As TurnedTile, where rows along k begin at any element: loads are wide all the same, from multiples of their width on.
//
// By how much a row begins behind such a multiple is its shift. `kWidth` rows apart the shift is the same, whatever the
// leading dimension, so a unit is `kGroup` rows `kWidth` apart, of one chunk of `kWidth` elements: element x of chunk c is
// k = c * kWidth + x - shift of the step. Of the first chunk the elements before k = 0 of the step are dropped; as many come
// from one further chunk of every row.
//
// Rows of a unit lie side by side in shared memory, which makes its stores those of TurnedTile: the place of a row is its
// index with the bits rotated. Whoever multiplies the tile has rows in the order of places (`row_of`).

namespace kt {

// Elements of a load of a tile whose rows are shifted: as many rows of a unit's apart must lie in it.
template <class T>
__host__ __device__ constexpr int shifted_width(int block_mn, int block_k, int threads, int vector_bytes) {
  return min_of(block_mn * int(sizeof(T)) / 16, turned_width<T>(block_mn, block_k, threads, vector_bytes));
}

template <class T, int BLOCK_MN, int BLOCK_K, int VECTOR_BYTES, int THREADS, int FIRST_THREAD, int FIRST_FURTHER>
struct ShiftedTile {
  static constexpr int kGroup = 16 / int(sizeof(T));  // rows of a unit
  static constexpr int kWidth = shifted_width<T>(BLOCK_MN, BLOCK_K, THREADS, VECTOR_BYTES);
  static constexpr int kUnitRows = kGroup * kWidth;  // of neighbouring rows as many units as a chunk has elements
  static constexpr int kLanes = BLOCK_K / kWidth;    // chunks side by side along k
  static constexpr int kUnits = BLOCK_MN / kGroup * kLanes;
  static constexpr int kPasses = cdiv(kUnits, THREADS);
  static constexpr int kRowStep = THREADS / kLanes * kGroup;  // rows between passes
  static constexpr int kFurtherRows = BLOCK_MN;               // each has one further chunk
  static constexpr int kFurtherPasses = cdiv(BLOCK_MN, THREADS);
  static constexpr int kPad = kGroup * max_of(1, 8 / kLanes);  // elements after each kWidth of k
  static constexpr int kPitch = BLOCK_MN;
  static constexpr int kElements = BLOCK_MN * BLOCK_K + kLanes * kPad;

  static_assert(kWidth > 1 && kWidth <= kGroup && BLOCK_MN % kUnitRows == 0, "rows of equal shifts fill units");
  static_assert(THREADS % kLanes == 0 && (kPasses == 1 || kRowStep % kUnitRows == 0), "passes are whole rows of units");

  using Chunk = Vector<T, kWidth>;
  struct Staged {
    Chunk unit[kPasses][kGroup];
    Chunk further[kFurtherPasses];
  };

  const T* cursor;     // this thread's first chunk of the tile that is fetched next
  const T* further;    // and its further chunk
  long long row;       // elements between rows of a unit
  int k, end_k;        // where the tile that is fetched next begins, negative before the operand; where the operand ends
  int column;          // this thread's first element in the tile, negative if it is dropped
  int mn_left;         // rows from the tile's first one to the end of the problem
  int target[kWidth];  // places of the chunk's elements in shared memory; negative if they are dropped
  int count;           // elements of the further chunk that belong to the tile
  int further_target;  // the place of the first of these

  // `base` is the element (mn = 0, k = 0) of this batch, `pitch` the elements between its rows.
  __device__ __forceinline__ ShiftedTile(const T* base, long long pitch, int first_mn, int extent, int first_k, int end_k)
      : row(kWidth * pitch), k(first_k), end_k(end_k), mn_left(extent - first_mn) {
    const T* const corner = base + (first_mn * pitch + first_k);
    const T* const begin = corner + first_row() * pitch;
    const int shift = shift_of(begin);
    column = thread() % kLanes * kWidth - shift;
    cursor = begin + column;
#pragma unroll
    for (int x = 0; x < kWidth; ++x) {
      const int to = column + x;
      target[x] = to < 0 ? -1 : to * kPitch + padding_of_k(to) + place();
    }
    const T* const end = corner + (row_of(further_place()) * pitch + BLOCK_K);
    count = further_place() < BLOCK_MN ? shift_of(end) : 0;
    further = end - count;
    further_target = (BLOCK_K - count) * kPitch + padding_of_k(BLOCK_K - 1) + further_place();
  }

  // The row at a place of shared memory. The bits of sums whose summands share none move one by one.
  static constexpr __device__ int row_of(int place) {
    return place / kUnitRows * kUnitRows + place / kGroup % kWidth + place % kGroup * kWidth;
  }

  // Elements from the multiple of a chunk before it.
  __device__ __forceinline__ static int shift_of(const T* element) {
    return int(reinterpret_cast<unsigned long long>(element) / sizeof(T) % kWidth);
  }

  // Threads that have no unit, or further chunk, of one operand have those of the other.
  __device__ __forceinline__ static int thread() { return (int(threadIdx.x) + THREADS - FIRST_THREAD) % THREADS; }
  __device__ __forceinline__ static int place() { return thread() / kLanes * kGroup; }
  __device__ __forceinline__ static int first_row() { return row_of(place()); }
  __device__ __forceinline__ static int further_place() { return (int(threadIdx.x) + THREADS - FIRST_FURTHER) % THREADS; }
  __device__ __forceinline__ static bool active() { return kUnits >= THREADS || thread() < kUnits; }

  // One k begins at k * kPitch and what has been left free before.
  static constexpr __device__ int padding_of_k(int k) { return k / kWidth * kPad; }

  // Loads this thread's part of the next tile; elements outside the operand become zero. Chunks lie within their rows, but
  // for those that begin before k = 0, and further ones that reach beyond its end. Those are read element by element, as
  // what lies there may be no part of the operand.
  template <bool FIRST>
  __device__ __forceinline__ void fetch(Staged& staged) {
    const bool plain = !FIRST && mn_left >= BLOCK_MN && k >= kWidth && k <= end_k - BLOCK_K - kWidth;
    if (plain) {
      load<false>(staged);
    } else {
      load<true>(staged);
    }
    compiler_fence();  // what follows is multiplied while these are on their way
    cursor += BLOCK_K;
    further += BLOCK_K;
    k += BLOCK_K;
  }

  template <bool CHECKED>
  __device__ __forceinline__ void load(Staged& staged) const {
    const T* source = cursor;
    if (active()) {
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
          const int in_tile = first_row() + pass * kRowStep + i * kWidth;
          load_chunk<CHECKED>(staged.unit[pass][i], source, in_tile, k + column, k + column + kWidth);
          source += row;
        }
        source += (kRowStep / kWidth - kGroup) * row;
      }
    }
    if (count == 0) return;
    source = further;
#pragma unroll
    for (int pass = 0; pass < kFurtherPasses; ++pass) {
      const int in_tile = row_of(further_place()) + pass * THREADS, first = k + BLOCK_K - count;
      load_chunk<CHECKED>(staged.further[pass], source, in_tile, first, first + count);
      source += THREADS / kWidth * row;
    }
  }

  // Loads the chunk at `source` of a row of the tile. It begins at k = `first`, and is of use up to `end`.
  template <bool CHECKED>
  __device__ __forceinline__ void load_chunk(Chunk& chunk, const T* source, int in_tile, int first, int end) const {
    if (CHECKED) chunk = Chunk{};
    if (!CHECKED || (in_tile < mn_left && first >= 0 && first + kWidth <= end_k)) {
      chunk = *reinterpret_cast<const Chunk*>(source);
    } else if (in_tile < mn_left) {
#pragma unroll
      for (int x = 0; x < kWidth; ++x) {
        if (first + x >= 0 && first + x < end) {
          chunk.at[x] = reinterpret_cast<const Vector<T, 1>*>(source + x)->at[0];
        }
      }
    }
  }

  // Stores it to the tile at the address `shared`.
  __device__ __forceinline__ void commit(const Staged& staged, unsigned shared) const {
    if (active()) {
#pragma unroll
      for (int x = 0; x < kWidth; ++x) {
        if (x < kWidth - 1 && target[x] < 0) continue;
#pragma unroll
        for (int pass = 0; pass < kPasses; ++pass) {
          T group[kGroup];
#pragma unroll
          for (int i = 0; i < kGroup; ++i) group[i] = staged.unit[pass][i].at[x];
          ptx::store_shared(shared + unsigned((target[x] + pass * kRowStep) * int(sizeof(T))), group);
        }
      }
    }
#pragma unroll
    for (int x = 0; x < kWidth - 1; ++x) {
      if (x >= count) break;
#pragma unroll
      for (int pass = 0; pass < kFurtherPasses; ++pass) {
        const T element[1] = {staged.further[pass].at[x]};
        ptx::store_shared(shared + unsigned((further_target + x * kPitch + pass * THREADS) * int(sizeof(T))), element);
      }
    }
  }
};

// Columns in the order of places, of which a thread has GROUP neighbours, become columns in their own order: lanes exchange
// the upper bits of their columns for those of the lane.
template <int WIDTH, int GROUP, class T>
__device__ __forceinline__ void restore_order(T* group) {
  const int lane = int(threadIdx.x) % 32;
#pragma unroll
  for (int mask = 1; mask < WIDTH; mask *= 2) {
    const bool upper = (lane & mask) != 0;
    const int apart = GROUP / WIDTH * mask;
#pragma unroll
    for (int low = 0; low < GROUP; ++low) {
      if (low & apart) continue;
      const T got = __shfl_xor_sync(0xffffffffu, upper ? group[low] : group[low + apart], mask);
      if (upper) {
        group[low] = got;
      } else {
        group[low + apart] = got;
      }
    }
  }
  T before[GROUP];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) before[i] = group[i];
#pragma unroll
  for (int i = 0; i < GROUP; ++i) group[i] = before[i % WIDTH * (GROUP / WIDTH) + i / WIDTH];
}

}  // namespace kt
