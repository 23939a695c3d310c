// Tiled GEMM on the tensor cores through mma.sync: any layout, size and leading dimension (sm_80 and later).
//
// A thread block computes BLOCK_M x BLOCK_N of C and walks k in steps of BLOCK_K (mma_pipeline.cuh). Which tiles, or pieces of
// tiles, a block has, and where their sums go, is here.

namespace kt {

template <class Traits>
__device__ __forceinline__ void write_tile(const GemmArguments& args, const MmaSums<Traits>& sums, const Work& work,
                                           unsigned char* shared) {
  using TAcc = typename Traits::TAcc;
  using TOut = typename Traits::TOut;
  const int block_m = work.tile_m * Traits::BLOCK_M, block_n = work.tile_n * Traits::BLOCK_N;
  using ToC = Output<TAcc, TOut, Traits::STORE>;
  using ToSlice = SliceOutput<TAcc, TOut, Traits::STORE>;
  const long long slice = (long long)work.slice * args.batch + work.batch;
  TAcc* const slices = typename Traits::Space(args).template slices<TAcc>();
  const ToSlice to_slice{slices + slice * args.m * args.n, args.n, args.m, args.n, TAcc(1), TAcc(0)};
  const ToC to_c = output_c<TAcc, TOut, Traits::STORE>(args, work.batch);
  if constexpr (is_same<ToC, ToSlice>) {
    ToC output = to_slice;
    if (Traits::STREAM_K || args.split_k == 1) output = to_c;
    write_sums(sums, output, block_m, block_n, shared);
  } else if (Traits::STREAM_K || args.split_k == 1) {
    write_sums(sums, to_c, block_m, block_n, shared);
  } else {
    write_sums(sums, to_slice, block_m, block_n, shared);
  }
}

// The tiles of both operands at the beginning of a piece of work.
template <class Traits>
struct MmaTiles {
  typename Traits::TileA a;
  typename Traits::TileB b;
};

template <class Traits>
__device__ __forceinline__ MmaTiles<Traits> tiles_of(const GemmArguments& args, const Work& work,
                                                     const typename Traits::Space& space) {
  using TIn = typename Traits::TIn;
  const int first_k = work.first_step * Traits::BLOCK_K;
  const int end_k = min_of((long long)args.k, first_k + (long long)work.steps * Traits::BLOCK_K);
  const TIn* base_a = static_cast<const TIn*>(args.a) + work.batch * args.stride_a;
  const TIn* base_b = static_cast<const TIn*>(args.b) + work.batch * args.stride_b;
  long long pitch_a = args.lda, pitch_b = args.ldb;
  if constexpr (Traits::Space::PACK_A) {
    pitch_a = space.pitch_a;
    base_a = space.packed_a() + work.batch * (pitch_a * (Traits::TileA::K_CONTIGUOUS ? args.m : args.k));
  }
  if constexpr (Traits::Space::PACK_B) {
    pitch_b = space.pitch_b;
    base_b = space.packed_b() + work.batch * (pitch_b * (Traits::TileB::K_CONTIGUOUS ? args.n : args.k));
  }
  return {typename Traits::TileA(base_a, pitch_a, work.tile_m * Traits::BLOCK_M, args.m, first_k, end_k),
          typename Traits::TileB(base_b, pitch_b, work.tile_n * Traits::BLOCK_N, args.n, first_k, end_k)};
}

// The steps of k of one piece of work.
template <class Traits>
__device__ __forceinline__ void multiply_tile(const GemmArguments& args, MmaSums<Traits>& sums, const Work& work,
                                              const typename Traits::Space& space, unsigned char* shared) {
  MmaTiles<Traits> tiles = tiles_of<Traits>(args, work, space);
  sums.clear();
  MmaPipeline<Traits> pipeline(tiles.a, tiles.b, ptx::shared_address(shared), sums);
  pipeline.fill_stages();
  pipeline.run(sums, work.steps);
}

// One piece of work a block.
template <class Traits>
__device__ __forceinline__ void gemm_of_tiles(const GemmArguments& args, unsigned char* shared) {
  Scheduler<false> scheduler(args, Traits::BLOCK_M, Traits::BLOCK_N, Traits::BLOCK_K);
  MmaSums<Traits> sums;
  Work work;
  scheduler.next(args, work);
  multiply_tile<Traits>(args, sums, work, typename Traits::Space(args), shared);
  write_tile<Traits>(args, sums, work, shared);
}

// Stream-K: a tile that another block ends is left; what others have of one that this block ends is collected, and it is
// written.
template <class Traits>
__device__ __forceinline__ void end_piece(const GemmArguments& args, MmaSums<Traits>& sums, const Work& work,
                                          const Scheduler<true>& scheduler, const typename Traits::Space& space,
                                          unsigned char* shared) {
  using Word = typename MmaSums<Traits>::Word;
  const ParkingPlaces<MmaSums<Traits>> parking{space.template parked<Word>(), space.flags()};
  if (!work.ends) {
    parking.leave(sums);
  } else {
    if (!work.begins) parking.collect(sums, scheduler.first_block(work));
    write_tile<Traits>(args, sums, work, shared);
  }
}

// Stream-K's pieces. One thread schedules, in shared memory: the registers are needed for the sums.
template <class Traits>
__device__ __forceinline__ void gemm_of_streams(const GemmArguments& args, unsigned char* shared) {
  __shared__ Work work;
  __shared__ bool more;
  __shared__ __align__(16) unsigned char scheduler_bytes[sizeof(Scheduler<true>)];
  auto& scheduler = *reinterpret_cast<Scheduler<true>*>(scheduler_bytes);
  if (threadIdx.x == 0) scheduler = Scheduler<true>(args, Traits::BLOCK_M, Traits::BLOCK_N, Traits::BLOCK_K);
  MmaSums<Traits> sums;
#pragma unroll 1
  for (;;) {
    __syncthreads();  // the last piece is done with `work`, and with the sums in `shared`
    if (threadIdx.x == 0) more = scheduler.next(args, work);
    __syncthreads();
    if (!more) break;
    const typename Traits::Space space(args);
    multiply_tile<Traits>(args, sums, work, space, shared);
    end_piece<Traits>(args, sums, work, scheduler, space, shared);
  }
}

// The same where results need no shared memory: the copies of the next piece start before these results are written.
template <class Traits>
__device__ __forceinline__ void gemm_of_streams_ahead(const GemmArguments& args, unsigned char* shared) {
  __shared__ Work works[2];
  __shared__ bool more[2];
  __shared__ __align__(16) unsigned char scheduler_bytes[sizeof(Scheduler<true>)];
  auto& scheduler = *reinterpret_cast<Scheduler<true>*>(scheduler_bytes);
  if (threadIdx.x == 0) {
    scheduler = Scheduler<true>(args, Traits::BLOCK_M, Traits::BLOCK_N, Traits::BLOCK_K);
    more[0] = scheduler.next(args, works[0]);
  }
  __syncthreads();
  if (!more[0]) return;
  const typename Traits::Space space(args);
  MmaSums<Traits> sums;
  MmaTiles<Traits> tiles = tiles_of<Traits>(args, works[0], space);
  MmaPipeline<Traits> pipeline(tiles.a, tiles.b, ptx::shared_address(shared), sums);
  pipeline.fill_stages();
  int now = 0;
#pragma unroll 1
  for (;;) {
    const Work& work = works[now];
    const int next = now ^ 1;
    // Read by all behind the barriers of the pipeline.
    if (threadIdx.x == 0) more[next] = scheduler.next(args, works[next]);
    sums.clear();
    pipeline.run(sums, work.steps);
    const bool goes_on = more[next];
    if (goes_on) {
      tiles = tiles_of<Traits>(args, works[next], space);
      pipeline.fill_stages();
    }
    end_piece<Traits>(args, sums, work, scheduler, space, shared);
    if (!goes_on) break;
    __syncthreads();  // all are done with the piece whose place the next one but one takes
    now = next;
  }
}

// The rows of A that a walk down the columns asks for: behind the last step of a tile the first one of the next.
template <class Traits>
struct RowsBelow {
  const GemmArguments& args;
  const typename Traits::Space& space;
  ColumnWalk walk;
  int left;  // steps of the tile that is copied

  __device__ __forceinline__ void copied(typename Traits::TileA& a) {
    if (--left > 0) return;
    Work work;
    if (walk.next(work)) {
      a = tiles_of<Traits>(args, work, space).a;
      left = work.steps;
    }
  }
};

// Short k: the block's columns of B stay in shared memory while it walks down the rows of C. The ring goes on from tile
// to tile: rows of A for the next ones are under way while results are written.
template <class Traits>
__device__ __forceinline__ void gemm_of_columns(const GemmArguments& args, unsigned char* shared) {
  ColumnWalk walk(args, Traits::BLOCK_M, Traits::BLOCK_N, Traits::BLOCK_K);
  Work work;
  ColumnWalk ahead = walk;
  if (!ahead.next(work)) return;
  const typename Traits::Space space(args);
  MmaSums<Traits> sums;
  MmaTiles<Traits> tiles = tiles_of<Traits>(args, work, space);
  MmaPipeline<Traits, RowsBelow<Traits>> pipeline(tiles.a, tiles.b, ptx::shared_address(shared), sums,
                                                  {args, space, ahead, work.steps});
  pipeline.hold(work.steps);
  pipeline.fill_stages();
  walk.next(work);
  pipeline.begin();
#pragma unroll 1
  for (;;) {
    sums.clear();
    pipeline.run_on(sums, work.steps);
    write_tile<Traits>(args, sums, work, shared);
    if (!walk.next(work)) break;
    if (walk.turned()) {
      __syncthreads();  // all have read the columns before
      tiles.b = tiles_of<Traits>(args, work, space).b;
      pipeline.hold(work.steps);
      pipeline.template begin<0>();
    }
  }
  ptx::cp_async_wait<0>();
}

template <class Traits>
__device__ __forceinline__ void gemm_mma(const GemmArguments& args) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  if constexpr (Traits::HELD) {
    gemm_of_columns<Traits>(args, shared_bytes);
  } else if constexpr (Traits::STREAM_K && Traits::DIRECT) {
    gemm_of_streams_ahead<Traits>(args, shared_bytes);
  } else if constexpr (Traits::STREAM_K) {
    gemm_of_streams<Traits>(args, shared_bytes);
  } else {
    gemm_of_tiles<Traits>(args, shared_bytes);
  }
}

}  // namespace kt
