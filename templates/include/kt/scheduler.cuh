// Which part of the problem a thread block computes.

namespace kt {

struct Tile {
  int m, n;     // tile coordinates
  int split;    // which slice of k
  int batch;
};

// Walks the tiles in groups of `raster_group` tile rows: inside a group down the rows first, then across the columns,
// so that blocks that run together share rows of A and columns of B in the L2 cache. Slices of k come next, batches
// last.
__device__ __forceinline__ Tile schedule(const GemmArguments& args, int tiles_m, int tiles_n) {
  const unsigned tiles = unsigned(tiles_m) * unsigned(tiles_n);
  const unsigned slice = blockIdx.x / tiles;
  const unsigned tile = blockIdx.x - slice * tiles;
  const unsigned group_size = unsigned(args.raster_group) * unsigned(tiles_n);
  const unsigned group = tile / group_size;
  const unsigned first_row = group * unsigned(args.raster_group);
  const unsigned rows = min_of(unsigned(tiles_m) - first_row, unsigned(args.raster_group));
  const unsigned inside = tile - group * group_size;
  const unsigned column = inside / rows;
  Tile result;
  result.m = int(first_row + inside - column * rows);
  result.n = int(column);
  result.batch = int(slice / unsigned(args.split_k));
  result.split = int(slice - unsigned(result.batch) * unsigned(args.split_k));
  return result;
}

}  // namespace kt
