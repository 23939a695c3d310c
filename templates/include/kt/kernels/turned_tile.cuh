// The tile of one operand, MN (m or n) by k, that lies along k in global memory and is turned in registers.
//
// A thread loads a unit, `kGroup` rows by `kWidth` neighbours along k, before a step of k is multiplied, and stores it after
// that, each k of it in 16 bytes. The loads of a warp take whole lines where a step of k has them; its stores hit all banks
// equally, since 16 bytes follow each unit along k (more where fewer than eight lanes lie along k).
// Copies of single elements to their places (cp.async) need no registers, but 12 clocks of a multiprocessor a warp.

namespace kt {

template <class T, int BLOCK_MN, int BLOCK_K, int LOAD_BYTES, int THREADS, int FIRST_THREAD>
struct TurnedTile {
  static constexpr int kGroup = 16 / int(sizeof(T));  // rows of a unit
  // Units are as wide as rows are aligned, unless threads would then have nothing to do.
  static constexpr int kWidth =
      min_of(LOAD_BYTES / int(sizeof(T)), max_of(1, BLOCK_MN * BLOCK_K / (kGroup * THREADS)));
  static constexpr int kLanes = BLOCK_K / kWidth;  // units side by side along k
  static constexpr int kUnits = BLOCK_MN / kGroup * kLanes;
  static constexpr int kPasses = cdiv(kUnits, THREADS);
  static constexpr int kRowStep = THREADS / kLanes * kGroup;  // rows between passes
  static constexpr int kPad = kGroup * max_of(1, 8 / kLanes);  // elements after each kWidth of k
  static constexpr int kPitch = BLOCK_MN;
  static constexpr int kElements = BLOCK_MN * BLOCK_K + kLanes * kPad;

  static_assert(BLOCK_MN % kGroup == 0 && THREADS % kLanes == 0, "units tile the block, passes whole columns of units");

  using Staged = Vector<T, kWidth>[kPasses][kGroup];

  const T* cursor;     // this thread's first element of the tile that is fetched next
  long long row;       // elements between rows
  int k;               // this thread's first k in the tile that is fetched next; negative before the operand
  int mn_left;         // rows from this thread's first one to the end of the problem
  int offset;          // this thread's first element in shared memory

  // `base` is the element (mn = 0, k = 0) of this batch, `pitch` the elements between its rows.
  __device__ __forceinline__ TurnedTile(const T* base, long long pitch, int first_mn, int extent, int first_k) {
    const int column = thread() % kLanes * kWidth, mn = thread() / kLanes * kGroup;
    k = first_k + column;
    mn_left = extent - (first_mn + mn);
    offset = column * kPitch + padding_of_k(column) + mn;
    cursor = base + ((first_mn + mn) * pitch + k);
    row = pitch;
  }

  // Threads that have no unit of one operand have those of the other.
  __device__ __forceinline__ static int thread() { return (int(threadIdx.x) + THREADS - FIRST_THREAD) % THREADS; }
  __device__ __forceinline__ static bool active() { return kUnits >= THREADS || thread() < kUnits; }

  // One k begins at k * kPitch and what has been left free before.
  static constexpr __device__ int padding_of_k(int k) { return k / kWidth * kPad; }

  // Loads this thread's part of the next tile; elements outside the operand become zero. Only the first tile begins before
  // k = 0, and it does so by whole units.
  template <bool FIRST>
  __device__ __forceinline__ void fetch(Staged& staged) {
    if (active()) {
      if (!FIRST && (kPasses - 1) * kRowStep + kGroup <= mn_left) {
        load<false>(staged, mn_left);
      } else {
        load<true>(staged, FIRST && k < 0 ? 0 : mn_left);
      }
    }
    compiler_fence();  // what follows is multiplied while these are on their way
    cursor += BLOCK_K;
    k += BLOCK_K;
  }

  template <bool CHECKED>
  __device__ __forceinline__ void load(Staged& staged, int rows) const {
    const T* source = cursor;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (CHECKED) staged[pass][i] = Vector<T, kWidth>{};
        if (!CHECKED || pass * kRowStep + i < rows) {
          staged[pass][i] = *reinterpret_cast<const Vector<T, kWidth>*>(source);
        }
        source += row;
      }
      source += (kRowStep - kGroup) * row;
    }
  }

  // Stores it to the tile at the address `shared`.
  __device__ __forceinline__ void commit(const Staged& staged, unsigned shared) const {
    if (!active()) return;
    const unsigned target = shared + unsigned(offset * int(sizeof(T)));
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
      for (int x = 0; x < kWidth; ++x) {
        T group[kGroup];
#pragma unroll
        for (int i = 0; i < kGroup; ++i) group[i] = staged[pass][i].at[x];
        ptx::store_shared(target + unsigned((pass * kRowStep + x * BLOCK_MN) * int(sizeof(T))), group);
      }
    }
  }
};

// In place of one where no operand is turned in registers.
struct NotTurned {
  struct Staged {};
  static constexpr int kUnits = 0;
};

}  // namespace kt
