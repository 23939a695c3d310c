// Which tiles a persistent block computes, one after the other. Producer and consumers walk alike.

namespace kt {

// Some steps of k of one tile of C, by its first row and column.
struct WgmmaTile {
  int m, n, batch;
  int slice;  // split-K: which slice; else 0
  int first_step, steps;
};

// The tiles of a cluster, CLUSTER_M x CLUSTER_N neighbours, are dealt out together: one of each to its blocks. Clusters
// walk all tiles of a slice, then of the next slice, then the next batch.
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int CLUSTER_M, int CLUSTER_N>
class WgmmaWalk {
 public:
  static constexpr unsigned kBlocks = CLUSTER_M * CLUSTER_N;

  __device__ __forceinline__ explicit WgmmaWalk(const GemmArguments& args)
      : rows_(count(args.m, BLOCK_M * CLUSTER_M)), columns_(count(args.n, BLOCK_N * CLUSTER_N)),
        steps_(int(count(args.k, BLOCK_K))), next_(blockIdx.x / kBlocks) {
    per_slice_ = args.split_k == 1 ? steps_ : int(count(steps_, args.split_k));
    end_ = rows_ * columns_ * unsigned(args.split_k) * unsigned(args.batch);
  }

  // The next tile, or false.
  __device__ __forceinline__ bool next(const GemmArguments& args, WgmmaTile& tile) {
    if (next_ >= end_) return false;
    const unsigned in_slice = rows_ * columns_, outer = next_ / in_slice;
    const unsigned batch = args.split_k == 1 ? outer : outer / unsigned(args.split_k);
    tile.batch = int(batch);
    tile.slice = int(outer - batch * unsigned(args.split_k));
    tile.first_step = min_of(tile.slice * per_slice_, steps_);
    tile.steps = min_of(per_slice_, steps_ - tile.first_step);
    place(args, next_ - outer * in_slice, tile);
    next_ += gridDim.x / kBlocks;
    return true;
  }

 private:
  __device__ __forceinline__ static unsigned count(int extent, int block) {
    return unsigned(extent) / unsigned(block) + (unsigned(extent) % unsigned(block) != 0);
  }

  // Groups of `raster_group` rows of clusters: down the rows inside a group first, then across the columns, so that
  // what runs together shares rows of A and columns of B in the L2 cache.
  __device__ __forceinline__ void place(const GemmArguments& args, unsigned index, WgmmaTile& tile) const {
    const unsigned height = unsigned(args.raster_group), group = index / (height * columns_);
    const unsigned inside = index - group * height * columns_, first = group * height;
    const unsigned rows = min_of(rows_ - first, height), column = inside / rows;
    const unsigned row = first + inside - column * rows, rank = blockIdx.x % kBlocks;
    tile.m = int((row * CLUSTER_M + rank % CLUSTER_M) * BLOCK_M);
    tile.n = int((column * CLUSTER_N + rank / CLUSTER_M) * BLOCK_N);
  }

  unsigned rows_, columns_;  // of clusters
  int steps_, per_slice_;
  unsigned next_, end_;
};

}  // namespace kt
