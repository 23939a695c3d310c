// The tile of one operand, MN (m or n) by k, on its way from global to shared memory.
//
// Global memory has it in rows along mn, or along k if K_CONTIGUOUS; it is stored as [k][mn] either way, a K_CONTIGUOUS
// one turned round element by element. (Keeping its order and reading it along k was slower: docs/perf-log.md.)
// The tile is cut into units of `kWidth` neighbouring elements. Unit u = lane + kLanes * (row + kRows * chunk) is moved
// by thread u % THREADS in pass u / THREADS. All extents are powers of two, so the bits of the thread and of the pass
// do not mix: every pass is the thread's first unit plus a constant.

namespace kt {

template <class T, class TShared, int BLOCK_MN, int BLOCK_K, bool K_CONTIGUOUS, int LOAD_BYTES, int THREADS>
struct SimtOperand {
  static constexpr int kGroup = 16 / int(sizeof(TShared));  // elements in 16 bytes of shared memory
  static constexpr int kRows = K_CONTIGUOUS ? BLOCK_MN : BLOCK_K;
  static constexpr int kColumns = K_CONTIGUOUS ? BLOCK_K : BLOCK_MN;
  static constexpr int kWidth = K_CONTIGUOUS ? 1 : min_of(kColumns, LOAD_BYTES / int(sizeof(T)));
  // Rows of a turned tile are padded by 16 bytes: the writes of a warp, 8 k by 4 mn, then hit all banks once.
  static constexpr int kPad = K_CONTIGUOUS ? kGroup : 0;
  static constexpr int kPitch = BLOCK_MN + kPad;
  static constexpr int kElements = kPitch * BLOCK_K;

  // Threads side by side along a row: all of it, or a 32-byte sector of fp32 where the tile is turned.
  static constexpr int kLanes = K_CONTIGUOUS ? min_of(kColumns, 8) : kColumns / kWidth;
  static constexpr int kChunks = K_CONTIGUOUS ? kColumns / kLanes : 1;
  static constexpr int kUnits = kLanes * kRows * kChunks;
  static constexpr int kPasses = cdiv(kUnits, THREADS);
  static constexpr int kColumnPasses =
      K_CONTIGUOUS ? min_of(kPasses, max_of(1, kUnits / max_of(THREADS, kLanes * kRows))) : max_of(1, kLanes / THREADS);
  static constexpr int kRowPasses = kPasses / kColumnPasses;
  static constexpr int kRowStep = max_of(1, THREADS / kLanes);  // rows between row passes
  static constexpr int kColumnStep = K_CONTIGUOUS ? kLanes * max_of(1, THREADS / (kLanes * kRows)) : THREADS * kWidth;

  static_assert((BLOCK_MN & (BLOCK_MN - 1)) == 0 && (BLOCK_K & (BLOCK_K - 1)) == 0, "tiles are powers of two");
  static_assert((THREADS & (THREADS - 1)) == 0, "the number of threads is a power of two");
  static_assert(kRowPasses * kColumnPasses == kPasses, "passes form a rectangle");

  const T* cursor;     // this thread's first element of the tile that is copied next
  long long row_step;  // elements between row passes
  long long advance;   // elements between tiles
  int k;               // this thread's first k in the tile that is copied next; negative before the operand
  int mn_left;         // elements along mn from this thread's first one to the end of the problem
  int offset;          // this thread's first element in shared memory

  // `base` is the element (mn = 0, k = 0) of this batch, `pitch` the elements between its rows.
  __device__ __forceinline__ SimtOperand(const T* base, long long pitch, int first_mn, int extent, int first_k) {
    const int lane = int(threadIdx.x) % kLanes, row = int(threadIdx.x) / kLanes % kRows;
    const int column = K_CONTIGUOUS ? lane + int(threadIdx.x) / (kLanes * kRows) * kLanes : lane * kWidth;
    const int mn = K_CONTIGUOUS ? row : column;
    k = first_k + (K_CONTIGUOUS ? column : row);
    mn_left = extent - (first_mn + mn);
    offset = shared_at(row, column);
    const long long global_row = K_CONTIGUOUS ? first_mn + row : k;
    cursor = base + (global_row * pitch + (K_CONTIGUOUS ? k : first_mn + column));
    row_step = kRowStep * pitch;
    advance = K_CONTIGUOUS ? (long long)BLOCK_K : BLOCK_K * pitch;
  }

  static constexpr __device__ int shared_at(int row, int column) {
    return K_CONTIGUOUS ? column * kPitch + row : row * kPitch + column;
  }
  static constexpr __device__ int shared_of(int row_pass, int column_pass) {
    return shared_at(row_pass * kRowStep, column_pass * kColumnStep);
  }

  __device__ __forceinline__ static bool active() { return kUnits >= THREADS || int(threadIdx.x) < kUnits; }

  // Whether a pass lies inside the operand: rows consist of whole units, and only the first tile begins before k = 0.
  template <bool FIRST>
  __device__ __forceinline__ bool valid(int row_pass, int column_pass) const {
    const int row = row_pass * kRowStep, column = column_pass * kColumnStep;
    return (K_CONTIGUOUS ? row : column) < mn_left && (!FIRST || k + (K_CONTIGUOUS ? column : row) >= 0);
  }

  __device__ __forceinline__ void next() {
    cursor += advance;
    k += BLOCK_K;
  }

  // Starts the copies of the next tile to the address `shared`; elements outside the operand become zero.
  template <bool FIRST>
  __device__ __forceinline__ void copy_async(unsigned shared) {
    constexpr int kBytes = kWidth * int(sizeof(T));
    if (active()) {
      const unsigned target = shared + unsigned(offset) * unsigned(sizeof(TShared));
      const T* source = cursor;
#pragma unroll
      for (int row = 0; row < kRowPasses; ++row) {
#pragma unroll
        for (int column = 0; column < kColumnPasses; ++column) {
          ptx::cp_async_zfill<kBytes>(target + shared_of(row, column) * int(sizeof(T)), source + column * kColumnStep,
                                      valid<FIRST>(row, column));
        }
        source += row_step;
      }
    }
    next();
  }

  // The same in two halves, through registers: for elements that need a conversion, and before sm_80.
  using Staged = Vector<T, kWidth>[kRowPasses][kColumnPasses];

  template <bool FIRST>
  __device__ __forceinline__ void fetch(Staged& staged) {
    const T* source = cursor;
#pragma unroll
    for (int row = 0; row < kRowPasses; ++row) {
#pragma unroll
      for (int column = 0; column < kColumnPasses; ++column) {
        if (active() && valid<FIRST>(row, column)) {
          staged[row][column] = *reinterpret_cast<const Vector<T, kWidth>*>(source + column * kColumnStep);
        } else {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) staged[row][column].at[i] = convert<T>(0.0f);
        }
      }
      source += row_step;
    }
    next();
  }

  __device__ __forceinline__ void commit(const Staged& staged, TShared* shared) const {
    constexpr int kStore = min_of(kWidth, kGroup);
    if (!active()) return;
#pragma unroll
    for (int row = 0; row < kRowPasses; ++row) {
#pragma unroll
      for (int column = 0; column < kColumnPasses; ++column) {
#pragma unroll
        for (int i = 0; i < kWidth; i += kStore) {
          Vector<TShared, kStore> group;
#pragma unroll
          for (int j = 0; j < kStore; ++j) group.at[j] = convert<TShared>(staged[row][column].at[i + j]);
          *reinterpret_cast<Vector<TShared, kStore>*>(shared + offset + shared_of(row, column) + i) = group;
        }
      }
    }
  }
};

}  // namespace kt
