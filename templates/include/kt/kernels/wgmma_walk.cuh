// Which tiles a persistent block computes, one after the other. The producer walks, and tells the consumers.

namespace kt {

// Some steps of k of one tile of C: a whole tile, a slice of split-K, or a piece of stream-K.
struct alignas(16) WgmmaTile {
  int steps;  // first, for it is all that a consumer must know to begin
  int m, n, batch;      // first row and column
  int slice;            // split-K: which slice; else 0
  int first_step;
  int first_block;      // stream-K: the block, of the same rank in its cluster, that has the tile's first step
  int ends;             // stream-K: the tile's last step is among these
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
//
// With stream-K (Osama et al., PPoPP 2023) whole rounds of tiles are dealt out one each; the steps of the last one to two
// rounds are shared evenly, so that all clusters end together. A cluster begins with its share: while it multiplies the
// tiles of whole rounds, what is added up and written of the share is on its way. It walks the share backwards: the tile
// that it begins and another one ends comes first, so that the other finds it ready, and nobody waits for a higher index.
//
// Rows of B in CLASSES (wgmma_classes.cuh): k is walked class by class, each in whole steps.
template <int BLOCK_M, int BLOCK_N, int BLOCK_K, int CLUSTER_M, int CLUSTER_N, int CLASSES = 1>
class WgmmaWalk {
 public:
  static constexpr unsigned kBlocks = CLUSTER_M * CLUSTER_N;

  // Whether one row of tiles is all of C, so that no two tiles need the same of B.
  __host__ __device__ static constexpr bool one_row(const GemmArguments& args) { return args.m <= BLOCK_M; }

  __device__ __forceinline__ explicit WgmmaWalk(const GemmArguments& args)
      : rows_(count(args.m, BLOCK_M * CLUSTER_M)), steps_(int(count(int(count(args.k, CLASSES)), BLOCK_K)) * CLASSES),
        per_slice_(steps_), height_(min_of(unsigned(args.raster_group), rows_)), next_(blockIdx.x / kBlocks) {
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
    if (args.stream_k) share_rest();
  }

  // The next tile, or false.
  __device__ __forceinline__ bool next(WgmmaTile& tile) {
    unsigned inside = next_, slice = 0, batch = 0;
    const bool whole = share_begin_ >= share_end_;
    if (whole && next_ >= end_) return false;
    if (!whole) inside = end_ + take_piece(tile);
    if (!one_slice_) batch = by_slices_.divide(by_tiles_.divide(inside, inside), slice);
    tile.batch = int(batch);
    tile.slice = int(slice);
    if (whole) {
      next_ += clusters();
      tile.first_step = min_of(tile.slice * per_slice_, steps_);
      tile.steps = min_of(per_slice_, steps_ - tile.first_step);
      tile.first_block = int(blockIdx.x);
      tile.ends = 1;
    }
    unsigned row, first = 0;
    if (height_ < rows_) first = by_group_.divide(inside, inside) * height_;
    const Divisor& by_rows = rows_ - first < height_ ? by_rest_ : by_height_;
    const unsigned column = by_rows.divide(inside, row), rank = blockIdx.x % kBlocks;
    tile.m = int(((first + row) * CLUSTER_M + rank % CLUSTER_M) * BLOCK_M);
    tile.n = int((column * CLUSTER_N + rank / CLUSTER_M) * BLOCK_N);
    return true;
  }

 private:
  __device__ __forceinline__ static unsigned count(int extent, int block) {
    return unsigned(extent) / unsigned(block) + (unsigned(extent) % unsigned(block) != 0);
  }
  __device__ __forceinline__ static unsigned clusters() { return gridDim.x / kBlocks; }

  // Deals out whole rounds only; of the steps of the other tiles each cluster gets as many, some one more.
  __device__ __forceinline__ void share_rest() {
    const unsigned rounds = end_ / clusters(), dealt = (rounds > 1 ? rounds - 1 : 0) * clusters();
    const unsigned steps = (end_ - dealt) * unsigned(steps_), cluster = blockIdx.x / kBlocks;
    per_cluster_ = steps / clusters();
    longer_ = steps % clusters();
    share_begin_ = cluster * per_cluster_ + min_of(cluster, longer_);
    share_end_ = share_begin_ + per_cluster_ + (cluster < longer_);
    end_ = dealt;
    by_steps_ = Divisor(unsigned(steps_));
  }

  // The last piece of this cluster's share; returns the tile's number among those that are shared.
  __device__ __forceinline__ unsigned take_piece(WgmmaTile& tile) {
    unsigned last;
    const unsigned number = by_steps_.divide(share_end_ - 1, last), tile_begin = share_end_ - 1 - last;
    const unsigned from = max_of(share_begin_, tile_begin);
    tile.first_step = int(from - tile_begin);
    tile.steps = int(share_end_ - from);
    tile.first_block = from == tile_begin ? int(blockIdx.x) : int(owner(tile_begin) * kBlocks + blockIdx.x % kBlocks);
    tile.ends = int(last) + 1 == steps_;
    share_end_ = from;
    return number;
  }

  // The cluster whose share has this step.
  __device__ __forceinline__ unsigned owner(unsigned step) const {
    const unsigned longer = longer_ * (per_cluster_ + 1);
    return step < longer ? step / (per_cluster_ + 1) : longer_ + (step - longer) / per_cluster_;
  }

  unsigned rows_;  // of clusters
  int steps_, per_slice_;
  unsigned height_;  // rows of a group, but of the last one
  bool one_slice_;
  unsigned next_, end_;
  Divisor by_height_, by_group_, by_rest_, by_tiles_, by_slices_;
  // Stream-K: this cluster's steps among those that are shared; steps of a cluster, and how many clusters have one more.
  unsigned share_begin_ = 0, share_end_ = 0, per_cluster_, longer_;
  Divisor by_steps_;
};

}  // namespace kt
