// Which parts of the problem a thread block computes.

namespace kt {

// Some steps of k of one tile of C. A tile is whole, a slice of split-K, or a segment of stream-K.
struct Work {
  int tile_m, tile_n, batch;
  int first_step, steps;
  int slice;           // split-K: which slice; else 0
  long long tile;      // stream-K: index of the tile in walking order
  bool begins, ends;   // the tile's first and last step are among these
};

// Hands a block its work, piece by piece.
//
// Without stream-K a block has one piece: blocks walk the tiles of a slice, then of the next slice, then the next batch.
// With stream-K (Osama et al., PPoPP 2023) as many blocks run as fit at once. Whole rounds of tiles are dealt out one
// each; the steps of the last one to two rounds are shared evenly, so that all blocks end together. A block walks its
// share backwards: the tile that it begins and another block ends comes first, so that the other finds it ready, and
// nobody waits for a block with a higher index.
template <bool STREAM_K>
class Scheduler {
 public:
  __device__ __forceinline__ Scheduler(const GemmArguments& args, int block_m, int block_n, int block_k)
      : tiles_m_(cdiv(args.m, block_m)), tiles_n_(cdiv(args.n, block_n)), next_(blockIdx.x) {
    steps_ = args.k / block_k + (args.k % block_k != 0);
    if constexpr (STREAM_K) {
      const long long tiles = (long long)tiles_m_ * tiles_n_ * args.batch, blocks = gridDim.x;
      dealt_ = max_of(tiles / blocks - 1, 0ll) * blocks;
      shared_steps_ = (tiles - dealt_) * steps_;
      begin_ = share_begin(blockIdx.x);
      end_ = share_begin(blockIdx.x + 1ll);
    }
  }

  __device__ __forceinline__ int steps() const { return steps_; }

  // The next piece, or false.
  __device__ __forceinline__ bool next(const GemmArguments& args, Work& work) {
    work.slice = 0;
    work.begins = work.ends = true;
    if constexpr (!STREAM_K) {
      if (next_ < 0) return false;
      work.tile = next_;
      next_ = -1;
      work.slice = locate_slice(args, work.tile);
      const int per_slice = steps_ / args.split_k + (steps_ % args.split_k != 0);
      work.first_step = min_of(work.slice * per_slice, steps_);
      work.steps = min_of(per_slice, steps_ - work.first_step);
    } else if (next_ < dealt_) {
      work.tile = next_;
      next_ += gridDim.x;
      work.first_step = 0;
      work.steps = steps_;
    } else if (begin_ < end_) {
      const long long tile = (end_ - 1) / steps_, tile_begin = tile * steps_;
      const long long from = max_of(begin_, tile_begin);
      work.tile = dealt_ + tile;
      work.first_step = int(from - tile_begin);
      work.steps = int(end_ - from);
      work.begins = from == tile_begin;
      work.ends = end_ == tile_begin + steps_;
      end_ = from;
    } else {
      return false;
    }
    locate(args, work);
    return true;
  }

  // Stream-K, instead of `next`: the piece before which the block has `index` others, or false. Who asks anew needs to keep no
  // more than its index.
  __device__ __forceinline__ bool piece(const GemmArguments& args, int index, Work& work) {
    const int dealt = int(dealt_ / gridDim.x);
    next_ += (long long)min_of(index, dealt) * gridDim.x;
    for (int i = dealt; i < index && begin_ < end_; ++i) end_ = max_of(begin_, (end_ - 1) / steps_ * steps_);
    return next(args, work);
  }

  // Stream-K: the block whose share holds the first step of the tile.
  __device__ __forceinline__ int first_block(const Work& work) const {
    const long long step = (work.tile - dealt_) * steps_;
    return int(((step + 1) * gridDim.x - 1) / shared_steps_);
  }

 private:
  __device__ __forceinline__ long long share_begin(long long block) const { return block * shared_steps_ / gridDim.x; }

  // Takes the slice out of a block index; what is left counts tiles, batches outermost.
  __device__ __forceinline__ int locate_slice(const GemmArguments& args, long long& tile) const {
    const unsigned tiles = unsigned(tiles_m_) * unsigned(tiles_n_);
    const unsigned outer = unsigned(tile) / tiles;
    const unsigned batch = outer / unsigned(args.split_k);
    tile = (long long)batch * tiles + (unsigned(tile) - outer * tiles);
    return int(outer - batch * unsigned(args.split_k));
  }

  // Walks the tiles in groups of `raster_group` tile rows: inside a group down the rows first, then across the columns, so
  // that blocks that run together share rows of A and columns of B in the L2 cache.
  __device__ __forceinline__ void locate(const GemmArguments& args, Work& work) const {
    const unsigned tiles = unsigned(tiles_m_) * unsigned(tiles_n_);
    const unsigned batch = unsigned(work.tile / tiles);
    const unsigned tile = unsigned(work.tile - (long long)batch * tiles);
    const unsigned group_size = unsigned(args.raster_group) * unsigned(tiles_n_);
    const unsigned group = tile / group_size;
    const unsigned first_row = group * unsigned(args.raster_group);
    const unsigned rows = min_of(unsigned(tiles_m_) - first_row, unsigned(args.raster_group));
    const unsigned inside = tile - group * group_size;
    const unsigned column = inside / rows;
    work.batch = int(batch);
    work.tile_m = int(first_row + inside - column * rows);
    work.tile_n = int(column);
  }

  int tiles_m_, tiles_n_, steps_;
  long long next_;                                // the tile that is dealt out next
  long long dealt_, shared_steps_, begin_, end_;  // stream-K: tiles dealt out; shared steps, and this block's of them
};

// Walks down the columns of tiles. Every block takes an even share of all tiles, one below the other, and goes on at the
// top of the next column, then in the next batch.
class ColumnWalk {
 public:
  __device__ __forceinline__ ColumnWalk(const GemmArguments& args, int block_m, int block_n, int block_k)
      : tiles_m_(cdiv(args.m, block_m)), tiles_n_(cdiv(args.n, block_n)), steps_(cdiv(args.k, block_k)) {
    const long long tiles = (long long)tiles_m_ * tiles_n_ * args.batch;
    const long long first = tiles * blockIdx.x / gridDim.x;
    left_ = int(tiles * (blockIdx.x + 1ll) / gridDim.x - first);
    const long long column = first / tiles_m_;
    row_ = int(first - column * tiles_m_);
    batch_ = int(column / tiles_n_);
    column_ = int(column - (long long)batch_ * tiles_n_);
  }

  // The next tile, or false.
  __device__ __forceinline__ bool next(Work& work) {
    if (left_ == 0) return false;
    --left_;
    work = {row_, column_, batch_, 0, steps_, 0, 0, true, true};
    turned_ = row_ == 0;
    if (++row_ == tiles_m_) {
      row_ = 0;
      if (++column_ == tiles_n_) {
        column_ = 0;
        ++batch_;
      }
    }
    return true;
  }

  // Whether the tile that `next` gave is the first of its column.
  __device__ __forceinline__ bool turned() const { return turned_; }

 private:
  int tiles_m_, tiles_n_, steps_;
  int row_, column_, batch_, left_;  // the tile that comes next, and how many are left
  bool turned_ = false;
};

}  // namespace kt
