// Tiled GEMM on the plain arithmetic units: any layout, size, leading dimension and alignment.
//
// A thread block computes BLOCK_M x BLOCK_N of C and walks k in steps of BLOCK_K through a ring of tiles in shared
// memory. A warp covers LANES_M x LANES_N threads, each with a THREAD_M x THREAD_N piece of C in registers.
//
// Shared memory delivers 128 bytes a clock to a multiprocessor that multiplies 128 pairs in it, so a thread must use
// every value it reads at least four times over: the reads, not the multiplications, bound small thread tiles.
//
// With SLICES > 1 that many groups of warps hold the same tile of C, and each multiplies its part of every step of k: small
// tiles then have warps enough to hide each other's waits. Their sums meet in shared memory at the end.

namespace kt {

// Stream-K: leaves a tile that another block ends, and collects what others have left. Slice 0 has the sums of all slices; the
// others keep step with it.
template <class Traits>
struct Parking {
  using TAcc = typename Traits::TAcc;
  TAcc* parked;
  unsigned* flags;

  __device__ __forceinline__ explicit Parking(const typename Traits::Space& workspace)
      : parked(workspace.template parked<TAcc>()), flags(workspace.flags()) {}

  __device__ __forceinline__ TAcc* tile(int block) const {
    return parked + (long long)block * (Traits::BLOCK_M * Traits::BLOCK_N);
  }

  __device__ __forceinline__ void leave(const SimtAccumulator<Traits>& accumulator) const {
    if (accumulator.slice() == 0) accumulator.park(tile(int(blockIdx.x)));
    __syncthreads();
    if (threadIdx.x == 0) ptx::store_release(flags + blockIdx.x, 1u);
  }

  // Adds what the blocks before this one have of the tile, in their order: two runs give the same bits.
  __device__ __forceinline__ void collect(SimtAccumulator<Traits>& accumulator, int first_block) const {
    for (int block = first_block; block < int(blockIdx.x); ++block) {
      if (threadIdx.x == 0) {
        while (ptx::load_acquire(flags + block) == 0u) {
        }
      }
      __syncthreads();
      if (accumulator.slice() == 0) accumulator.add_parked(tile(block));
    }
  }
};

// Writes a tile, by the threads that have the sums of all slices.
template <class Traits>
__device__ __forceinline__ void write_tile(const GemmArguments& args, SimtAccumulator<Traits>& accumulator,
                                           const Work& work, unsigned shared) {
  if (accumulator.slice() != 0) return;
  using TAcc = typename Traits::TAcc;
  using TOut = typename Traits::TOut;
  const int block_m = work.tile_m * Traits::BLOCK_M, block_n = work.tile_n * Traits::BLOCK_N;
  using ToC = Output<TAcc, TOut, Traits::STORE>;
  using ToSlice = SliceOutput<TAcc, TOut, Traits::STORE>;
  const long long slice = (long long)work.slice * args.batch + work.batch;
  const ToSlice to_slice{typename Traits::Space(args).template slices<TAcc>() + slice * args.m * args.n, args.n, args.m,
                         args.n, TAcc(1), TAcc(0)};
  const ToC to_c = output_c<TAcc, TOut, Traits::STORE>(args, work.batch);
  if constexpr (is_same<ToC, ToSlice>) {
    accumulator.write(args.split_k == 1 ? to_c : to_slice, block_m, block_n, shared);
  } else if (args.split_k == 1) {
    accumulator.write(to_c, block_m, block_n, shared);
  } else {
    accumulator.write(to_slice, block_m, block_n, shared);
  }
}

// The pieces of a block.
template <class Traits, bool STREAM_K = Traits::STREAM_K>
class Pieces : public Scheduler<false> {
 public:
  __device__ __forceinline__ explicit Pieces(const GemmArguments& args)
      : Scheduler<false>(args, Traits::BLOCK_M, Traits::BLOCK_N, Traits::BLOCK_K) {}
};

// With stream-K no more than their number is kept in registers while one is multiplied: the place of a piece is found out
// anew when it ends.
template <class Traits>
class Pieces<Traits, true> {
 public:
  __device__ __forceinline__ explicit Pieces(const GemmArguments&) {}

  __device__ __forceinline__ bool next(const GemmArguments& args, Work& work) {
    ++index_;
    Scheduler<true> scheduler = made_anew(args);
    steps_ = scheduler.steps();
    return scheduler.piece(args, index_, work);
  }

  // Of a whole tile, after `next`.
  __device__ __forceinline__ int steps() const { return steps_; }

  // The piece that `next` gave last, and which block has its tile's first step.
  __device__ __forceinline__ Work find_again(const GemmArguments& args, int& first_block) const {
    Scheduler<true> scheduler = made_anew(args);
    Work work;
    scheduler.piece(args, index_, work);
    first_block = scheduler.first_block(work);
    return work;
  }

 private:
  __device__ __forceinline__ static Scheduler<true> made_anew(const GemmArguments& args) {
    return {args, ptx::computed_here(Traits::BLOCK_M), ptx::computed_here(Traits::BLOCK_N), ptx::computed_here(Traits::BLOCK_K)};
  }

  int index_ = -1, steps_;
};

// The sums of slices meet, and the tile is written. Stream-K: a tile that another block ends is left, and what others have of
// one that this block ends is collected.
template <class Traits>
__device__ __forceinline__ void end_piece(const GemmArguments& args, const Pieces<Traits>& pieces, const Work& work,
                                          SimtAccumulator<Traits>& accumulator, unsigned shared) {
  if constexpr (Traits::SLICES > 1) accumulator.add_slices(shared);
  if constexpr (Traits::STREAM_K) {
    int first_block;
    const Work again = pieces.find_again(args, first_block);
    const Parking<Traits> parking{typename Traits::Space(args)};
    if (!again.ends) {
      parking.leave(accumulator);
      return;
    }
    if (!again.begins) parking.collect(accumulator, first_block);
    write_tile<Traits>(args, accumulator, again, shared);
  } else {
    write_tile<Traits>(args, accumulator, work, shared);
  }
}

template <class Traits>
__device__ __forceinline__ void gemm_simt(const GemmArguments& args) {
  using TIn = typename Traits::TIn;
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  auto* const shared = reinterpret_cast<typename Traits::TShared*>(shared_bytes);
  const unsigned address = ptx::held_shared_address(shared_bytes);
  const typename Traits::Space workspace(args);
  Pieces<Traits> pieces(args);
  SimtAccumulator<Traits> accumulator;
  for (Work work; pieces.next(args, work);) {
    // The steps end with k, so that the first of them, not the last, may be cut: only the prologue checks k.
    const int first_k = args.k - (pieces.steps() - work.first_step) * Traits::BLOCK_K;
    const TIn* base_a = static_cast<const TIn*>(args.a) + work.batch * args.stride_a;
    const TIn* base_b = static_cast<const TIn*>(args.b) + work.batch * args.stride_b;
    long long pitch_a = args.lda, pitch_b = args.ldb;
    if constexpr (Traits::PACK_A) {
      pitch_a = packed_pitch<TIn>(args.m);
      base_a = workspace.packed_a() + work.batch * (pitch_a * args.k);
    }
    if constexpr (Traits::PACK_B) {
      pitch_b = packed_pitch<TIn>(args.n);
      base_b = workspace.packed_b() + work.batch * (pitch_b * args.k);
    }
    typename Traits::TileA a(base_a, pitch_a, work.tile_m * Traits::BLOCK_M, args.m, first_k);
    const int first_n = work.tile_n * Traits::BLOCK_N;
    const int end_n = Traits::kSpanN == Traits::BLOCK_N ? args.n : first_n + min_of(args.n - first_n, Traits::BLOCK_N);
    typename Traits::TileB b(base_b, pitch_b, first_n, end_n, first_k);
    accumulator.clear();
    if constexpr (Traits::STREAM_K) __syncthreads();  // the tile before may still be read
    if constexpr (Traits::ASYNC) {
      simt_loop_async<Traits>(accumulator, a, b, address, work.steps);
    } else {
      simt_loop_staged<Traits>(accumulator, a, b, shared, address, work.steps);
    }
    end_piece<Traits>(args, pieces, work, accumulator, address);
  }
}

}  // namespace kt
