// A B whose rows, which lie along k, begin elsewhere than at multiples of 16 bytes, read by TMA all the same.
//
// With rows 16 / CLASSES bytes off such a multiple, every CLASSES-th row lies equally far from one: rows fall into CLASSES
// classes, and a tensor map shows those of one class, from the multiple of 16 bytes before each row's begin on. What it
// shows before the row belongs to the row before, and reaches sums only that are written nowhere.
//
// k is walked class by class, in the order of that distance: 0, kApart, 2 kApart … columns. A is copied in this order
// (copy_classes.cuh). Boxes begin at multiples of 16 bytes too, so that a tile's column j of the second class is one
// kApart columns to the left of column j of the first. Before the products of a class, the sums so far therefore move
// kApart columns to the right. In the end a tile's first column stands at kFirst, and 8 columns fewer than there are sums
// count: tiles are kLost columns closer together than they are wide.

namespace kt {

template <int CLASSES>
struct WgmmaClasses {
  static_assert(CLASSES == 1 || CLASSES == 2 || CLASSES == 4, "sums of neighbours move together");

  static constexpr int kApart = 8 / CLASSES, kLost = CLASSES > 1 ? 8 : 0, kFirst = kLost > 0 ? 8 - kApart : 0;

  // Steps of k of each class; the last one of a class may reach beyond its rows, where A's copy and TMA give zeros.
  template <int BLOCK_K>
  __host__ __device__ __forceinline__ static constexpr int steps(int k) {
    const unsigned rows = unsigned(k) / CLASSES + (unsigned(k) % CLASSES != 0);
    return int(rows / BLOCK_K + (rows % BLOCK_K != 0));
  }

  // Moves COLUMNS columns of sums by kApart to the right; what becomes of the first ones is of no interest. A lane has of
  // each 8 columns two neighbours (see wgmma_epilogue.cuh), so that sums change lanes, and at the end of 8 the group.
  template <int COLUMNS, class TAcc>
  __device__ __forceinline__ static void move(TAcc (&sum)[COLUMNS / 2], int lane) {
    constexpr int kLanes = kApart / 2;  // by which a pair moves
    const int part = lane & 3, from = (lane & ~3) + ((part - kLanes) & 3);
    const bool within = part >= kLanes;
#pragma unroll
    for (int row = 0; row < 4; row += 2) {
      TAcc before[2] = {TAcc(0), TAcc(0)};
#pragma unroll
      for (int j = row; j < COLUMNS / 2; j += 4) {
        const TAcc second = __shfl_sync(~0u, sum[j + 1], from), first = __shfl_sync(~0u, sum[j], from);
        sum[j] = within ? first : before[0];
        sum[j + 1] = within ? second : before[1];
        before[0] = first;
        before[1] = second;
      }
    }
  }
};

// The maps of B: of each class one, or a single one.
template <int CLASSES>
struct WgmmaMaps {
  const TensorMap* of[CLASSES];

  // By choices: an array with a changing index would lie in memory.
  __device__ __forceinline__ const TensorMap& at(int number) const {
    const TensorMap* map = of[0];
#pragma unroll
    for (int i = 1; i < CLASSES; ++i) map = number == i ? of[i] : map;
    return *map;
  }

  __device__ __forceinline__ void prefetch() const {
#pragma unroll
    for (int i = 0; i < CLASSES; ++i) ptx::prefetch(*of[i]);
  }
};

}  // namespace kt
