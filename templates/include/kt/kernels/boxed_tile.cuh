// The tile of one operand, MN (m or n) by k, that lies along k in global memory, copied as it lies by TMA and turned in shared
// memory from there.
//
// TMA leaves rows of kBoxPitch elements. A warp takes units of four rows by 32 k (or twice four rows by 16 k): a lane reads its
// k of each row, all banks once, and stores the four neighbours along mn in 16 bytes. Rows of the turned tile are 16 bytes
// longer than the tile, so that lanes side by side store to all banks.
//
// TMA reads from multiples of 16 bytes on only. Rows that begin elsewhere fall into CLASSES classes by what they begin behind one:
// every CLASSES-th row is of one class, and has a tensor map of its own (see RowClass in search_spaces/space.py). Rows of a class
// lie in an area of their own, all shifted alike; boxes are 16 bytes wider than the tile, so that they have all of its k.

namespace kt {

template <class T, int BLOCK_MN, int BLOCK_K, int CLASSES, int THREADS>
struct BoxedTile {
  static constexpr int kBytes = int(sizeof(T)), kGroup = 16 / kBytes;
  static constexpr int kPitch = BLOCK_MN + kGroup, kElements = kPitch * BLOCK_K;
  // With 16 k, rows one unit apart must lie in other banks: 16 bytes follow them as well.
  static constexpr int kBoxPitch = BLOCK_K + (CLASSES > 1 || BLOCK_K == 16 ? kGroup : 0);
  static constexpr int kBoxBytes = BLOCK_MN * kBoxPitch * kBytes, kAreaBytes = kBoxBytes / CLASSES;
  static constexpr int kWarps = THREADS / 32, kLanes = min_of(BLOCK_K, 32);
  static constexpr int kPasses = BLOCK_MN / kGroup * BLOCK_K / THREADS;

  static_assert(kBytes == 4 && (BLOCK_K == 16 || BLOCK_K == 32 || BLOCK_K == 64), "lanes lie along k");
  static_assert(kPasses > 0 && BLOCK_MN / kGroup * BLOCK_K % THREADS == 0, "every thread has as much to turn");
  static_assert(BLOCK_K != 16 || (BLOCK_MN % (8 * CLASSES) == 0 && kWarps % CLASSES == 0), "halves of a warp lie CLASSES units apart");
  static_assert(BLOCK_K != 64 || kWarps % 2 == 0, "passes of a thread have the same k");
  static_assert(kAreaBytes % 128 == 0, "where TMA writes boxes to");

  // Of the unit `number` of a warp: the first of its groups of rows, and its first k.
  static constexpr __device__ int group_of(int number) {
    return BLOCK_K == 16 ? number / CLASSES * (2 * CLASSES) + number % CLASSES : number * 32 / BLOCK_K;
  }
  static constexpr __device__ int k_of(int number) { return number * 32 % max_of(BLOCK_K, 32); }

  // From one pass of a thread to the next.
  static constexpr int kSourceStep = group_of(kWarps) * (kGroup / CLASSES) * kBoxPitch * kBytes;
  static constexpr int kTargetStep = group_of(kWarps) * kGroup * kBytes;

  // This thread's first element in the boxes and in the turned tile, in bytes; shifts apart.
  __device__ __forceinline__ static int group() {
    return group_of(int(threadIdx.x) / 32) + int(threadIdx.x) % 32 / kLanes * CLASSES;
  }
  __device__ __forceinline__ static int k() { return k_of(int(threadIdx.x) / 32) + int(threadIdx.x) % kLanes; }
  __device__ __forceinline__ static unsigned source() {
    return unsigned((group() * (kGroup / CLASSES) * kBoxPitch + k()) * kBytes);
  }
  __device__ __forceinline__ static unsigned target() { return unsigned((k() * kPitch + group() * kGroup) * kBytes); }

  // Which rows are shifted by how much.
  struct Shifts {
    unsigned bytes[CLASSES];  // of every CLASSES-th row
    unsigned first, step;     // classes of the first two rows: the first one's, and from it to the second one's

    Shifts() = default;
    __device__ __forceinline__ Shifts(const void* base, long long pitch) {
      if constexpr (CLASSES > 1) {
        const unsigned begin = unsigned(reinterpret_cast<unsigned long long>(base)), row = unsigned(pitch) * unsigned(kBytes);
#pragma unroll
        for (int i = 0; i < CLASSES; ++i) bytes[i] = (begin + i * row) % 16;
        first = begin % 16 / (16 / CLASSES);
        step = row % 16 / (16 / CLASSES);
      }
    }

    // The first row of the class `number`, counted from the tile's. `step` is odd, and its own inverse by 4.
    __device__ __forceinline__ unsigned row_of(unsigned number) const { return (number - first) * step % CLASSES; }
    __device__ __forceinline__ unsigned of(int row) const { return CLASSES > 1 ? bytes[row % CLASSES] : 0u; }
  };

  __device__ __forceinline__ static void load(T (&group)[kGroup], const Shifts& shifts, unsigned from) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      T word[1];
      ptx::load_shared(word, from + shifts.of(i) + unsigned(i % CLASSES * kAreaBytes + i / CLASSES * kBoxPitch * kBytes));
      group[i] = word[0];
    }
  }
};

}  // namespace kt
