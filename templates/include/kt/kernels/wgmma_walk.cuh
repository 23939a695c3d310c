// Which tiles a persistent block computes, one after the other. Producer and consumers walk alike.

namespace kt {

// Some steps of k of one tile of C, by its first row and column.
struct WgmmaTile {
  int m, n, batch;
  int slice;  // split-K: which slice; else 0
  int first_step, steps;
};

// Divides numbers below 2^31 by one that is known early: between two tiles there is no time for divisions.
class Divisor {
 public:
  Divisor() = default;
  __device__ __forceinline__ explicit Divisor(unsigned value) : value_(value), inverse_(~0u / value) {}

  // `rest` becomes what remains of `number`. The first guess is at most one too small.
  __device__ __forceinline__ unsigned divide(unsigned number, unsigned& rest) const {
    const unsigned guess = __umulhi(number, inverse_), left = number - guess * value_;
    const bool more = left >= value_;
    rest = more ? left - value_ : left;
    return more ? guess + 1 : guess;
  }

 private:
  unsigned value_, inverse_;
};

// The tiles of a cluster, CLUSTER_M x CLUSTER_N neighbours, are dealt out together: one of each to its blocks. Clusters
// walk all tiles of a slice, then of the next slice, then the next batch.
//
// Within a slice, groups of `raster_group` rows of clusters are walked down the rows first, then across the columns, so
// that what runs together shares rows of A and columns of B in the L2 cache.
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int CLUSTER_M, int CLUSTER_N>
class WgmmaWalk {
 public:
  static constexpr unsigned kBlocks = CLUSTER_M * CLUSTER_N;

  __device__ __forceinline__ explicit WgmmaWalk(const GemmArguments& args)
      : rows_(count(args.m, BLOCK_M * CLUSTER_M)), steps_(int(count(args.k, BLOCK_K))), per_slice_(steps_),
        height_(min_of(unsigned(args.raster_group), rows_)), next_(blockIdx.x / kBlocks) {
    const unsigned columns = count(args.n, BLOCK_N * CLUSTER_N), tiles = rows_ * columns;
    one_slice_ = args.split_k == 1 && args.batch == 1;
    end_ = tiles;
    by_height_ = Divisor(height_);
    if (height_ < rows_) {
      by_group_ = Divisor(height_ * columns);
      by_rest_ = Divisor(max_of(rows_ % height_, 1u));
    }
    if (!one_slice_) {
      end_ *= unsigned(args.split_k) * unsigned(args.batch);
      by_tiles_ = Divisor(tiles);
      by_slices_ = Divisor(unsigned(args.split_k));
      per_slice_ = int(count(steps_, args.split_k));
    }
  }

  // The next tile, or false.
  __device__ __forceinline__ bool next(WgmmaTile& tile) {
    if (next_ >= end_) return false;
    unsigned inside = next_, slice = 0, batch = 0;
    if (!one_slice_) batch = by_slices_.divide(by_tiles_.divide(next_, inside), slice);
    tile.batch = int(batch);
    tile.slice = int(slice);
    tile.first_step = min_of(tile.slice * per_slice_, steps_);
    tile.steps = min_of(per_slice_, steps_ - tile.first_step);

    unsigned row, first = 0;
    if (height_ < rows_) first = by_group_.divide(inside, inside) * height_;
    const Divisor& by_rows = rows_ - first < height_ ? by_rest_ : by_height_;
    const unsigned column = by_rows.divide(inside, row), rank = blockIdx.x % kBlocks;
    tile.m = int(((first + row) * CLUSTER_M + rank % CLUSTER_M) * BLOCK_M);
    tile.n = int((column * CLUSTER_N + rank / CLUSTER_M) * BLOCK_N);
    next_ += gridDim.x / kBlocks;
    return true;
  }

 private:
  __device__ __forceinline__ static unsigned count(int extent, int block) {
    return unsigned(extent) / unsigned(block) + (unsigned(extent) % unsigned(block) != 0);
  }

  unsigned rows_;  // of clusters
  int steps_, per_slice_;
  unsigned height_;  // rows of a group, but of the last one
  bool one_slice_;
  unsigned next_, end_;
  Divisor by_height_, by_group_, by_rest_, by_tiles_, by_slices_;
};

}  // namespace kt
