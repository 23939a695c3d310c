// Skinny GEMM: one side of C is short, and the long operand passes once from memory through the multiprocessors.
//
// A warp has 8 LANE_ROWS rows of the streamed operand (skinny_streamed.cuh) and all rows of the held one
// (skinny_held.cuh). WARPS_L warps of a block lie side by side; WARPS_K of them share k, and are dealt its steps in
// turn, so that together they read whole lines. Their sums meet in shared memory, in a fixed order. CLUSTER_K blocks of a
// cluster have a slice of k each, and add their sums through each other's shared memory.
// STREAMED_A: A is the long one, else B. Either may be contiguous along k or not.

namespace kt {

template <class TIn_, class TAcc_, class TOut_, bool STREAMED_A_, int TILE_S_, int LANE_ROWS_, int WARPS_L_,
          int WARPS_K_, int CHUNKS_, int STAGES_, int CLUSTER_K_, bool STREAMED_K_, int STREAMED_LOAD_, int STORE_, class Sums_>
struct SkinnyTraits {
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  using Sums = Sums_;
  static constexpr bool STREAMED_A = STREAMED_A_;
  static constexpr int TILE_S = TILE_S_, LANE_ROWS = LANE_ROWS_, WARPS_L = WARPS_L_, WARPS_K = WARPS_K_;
  static constexpr int CHUNKS = CHUNKS_, STAGES = STAGES_, CLUSTER_K = CLUSTER_K_, STORE = STORE_;
  static constexpr bool kStretch = false;
  static constexpr int kThreads = 32 * WARPS_L * WARPS_K;
  using Streamed = StreamedOperand<TIn, LANE_ROWS, STREAMED_K_, STREAMED_LOAD_, CHUNKS, STAGES>;
  static constexpr int kWarpRows = 8 * LANE_ROWS, kTileL = kWarpRows * WARPS_L;

  // The block's sums in shared memory lie as C does: neighbours in a row of C are neighbours.
  static constexpr int kOuter = STREAMED_A ? kTileL : TILE_S, kInner = STREAMED_A ? TILE_S : kTileL;
  static constexpr int kPitch = kInner + 4, kPartial = kOuter * kPitch;

  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(CHUNKS % Sums::kAhead == 0, "a chunk's pieces have the same registers in all steps");
  static_assert(STAGES >= 2, "one stage is multiplied while the next arrives");
};

// What a block computes: rows `first_row` ... of the streamed operand, and steps of one slice of k.
struct SkinnyWork {
  long long first_row;
  int rows;  // from there to the end of the operand
  int slice, batch;
  int first_step, steps;
};

// Divisions take longer than anything else before the first copy: they are left out where there is nothing to divide.
template <class Traits>
__device__ __forceinline__ SkinnyWork skinny_work(const GemmArguments& args) {
  const unsigned extent = unsigned(Traits::STREAMED_A ? args.m : args.n);
  unsigned tile = blockIdx.x / Traits::CLUSTER_K;
  SkinnyWork work{};
  work.steps = int(cdiv(unsigned(args.k), unsigned(Traits::Streamed::kStep)));
  work.slice = int(blockIdx.x % Traits::CLUSTER_K);  // of those that a cluster has
  int slices = Traits::CLUSTER_K;
  if (args.split_k > 1 || args.batch > 1) {
    const unsigned tiles = cdiv(extent, unsigned(Traits::kTileL)), outer = tile / tiles;
    tile -= outer * tiles;
    work.batch = int(outer / unsigned(args.split_k));
    work.slice += int(outer - unsigned(work.batch) * unsigned(args.split_k)) * Traits::CLUSTER_K;
    slices *= args.split_k;
  }
  if (slices > 1) {
    const int steps = work.steps, per_slice = steps / slices + (steps % slices != 0);
    work.first_step = int(min_of((long long)work.slice * per_slice, (long long)steps));
    work.steps = min_of(per_slice, steps - work.first_step);
  }
  work.first_row = (long long)tile * Traits::kTileL;
  work.rows = int(extent - unsigned(work.first_row));
  return work;
}

// Adds the products of this warp's steps.
template <class Traits>
__device__ __forceinline__ void stream(const GemmArguments& args, const SkinnyWork& work, typename Traits::Sums& sums,
                                       unsigned shared) {
  using TIn = typename Traits::TIn;
  using Streamed = typename Traits::Streamed;
  const int warp = int(threadIdx.x) / 32, warp_k = warp % Traits::WARPS_K;
  const int warp_row = warp / Traits::WARPS_K * Traits::kWarpRows;
  const long long end = (long long)(work.first_step + work.steps) * Streamed::kStep;
  const int end_k = int(min_of((long long)args.k, end));
  const int first_k = int(min_of((long long)(work.first_step + warp_k) * Streamed::kStep, (long long)end_k));
  constexpr int kStride = Traits::WARPS_K * Streamed::kStep;
  const TIn* const a = static_cast<const TIn*>(args.a) + work.batch * args.stride_a;
  const TIn* const b = static_cast<const TIn*>(args.b) + work.batch * args.stride_b;

  Streamed streamed(Traits::STREAMED_A ? a : b, Traits::STREAMED_A ? args.lda : args.ldb, work.first_row + warp_row,
                    work.rows - warp_row, first_k, end_k, kStride, shared);
  typename Traits::Sums::Held held(Traits::STREAMED_A ? b : a, Traits::STREAMED_A ? args.ldb : args.lda,
                                   Traits::STREAMED_A ? args.n : args.m, first_k, end_k, kStride);
  constexpr unsigned kEnd = Traits::STAGES * Streamed::kStageBytes;
#pragma unroll 1
  for (unsigned stage = 0; stage + Streamed::kStageBytes < kEnd; stage += Streamed::kStageBytes) {
    streamed.copy(stage);
    ptx::cp_async_commit();
  }
  unsigned fill = kEnd - Streamed::kStageBytes, drain = 0;
  constexpr int kAhead = Traits::Sums::kAhead;
#pragma unroll
  for (int chunk = 0; chunk < kAhead; ++chunk) sums.hold(held, chunk);
#pragma unroll 1
  for (int step = warp_k; step < work.steps; step += Traits::WARPS_K) {
    ptx::cp_async_wait<Traits::STAGES - 2>();
    __syncwarp();  // all copies of the warp have arrived, and what it read in the step before may be overwritten
#pragma unroll
    for (int chunk = 0; chunk < Traits::CHUNKS; ++chunk) {
      unsigned rows[Traits::LANE_ROWS][4];
      streamed.read(rows, drain, chunk);
      if (chunk == 0) {
        streamed.copy(fill);
        ptx::cp_async_commit();
      }
      sums.multiply(rows, held, chunk);
      // The held pieces of a later chunk arrive while this warp waits for the streamed ones.
      const int later = (chunk + kAhead) % Traits::CHUNKS;
      if (later == 0) held.next();
      sums.hold(held, later);
    }
    fill = drain;
    drain = drain + Streamed::kStageBytes == kEnd ? 0 : drain + Streamed::kStageBytes;
  }
  ptx::cp_async_wait<0>();
}

// Adds COUNT neighbouring sums of the warps that share k.
template <class Traits, int COUNT>
__device__ __forceinline__ void add_warps(typename Traits::TAcc (&sums)[COUNT], const typename Traits::TAcc* partial) {
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = partial[i];
#pragma unroll
  for (int warp = 1; warp < Traits::WARPS_K; ++warp) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sums[i] += partial[warp * Traits::kPartial + i];
  }
}

// Adds COUNT neighbouring sums of the blocks of the cluster.
template <class Traits, int COUNT>
__device__ __forceinline__ void add_blocks(typename Traits::TAcc (&sums)[COUNT], const typename Traits::TAcc* total) {
  const unsigned here = ptx::shared_address(total);
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sums[i] = typename Traits::TAcc(0);
#pragma unroll
  for (int rank = 0; rank < Traits::CLUSTER_K; ++rank) {
    const unsigned there = ptx::address_in_cluster(here, rank);
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      typename Traits::TAcc sum;
      ptx::load_cluster(sum, there + i * int(sizeof(sum)));
      sums[i] += sum;
    }
  }
}

// The sums of the warps that share k, where those of the first lie, for the other blocks of the cluster to read.
template <class Traits>
__device__ __forceinline__ void total_skinny(typename Traits::TAcc* partial) {
  if constexpr (Traits::WARPS_K > 1) {
#pragma unroll 1
    for (int index = int(threadIdx.x); index < Traits::kOuter * Traits::kInner; index += Traits::kThreads) {
      const int place = index / Traits::kInner * Traits::kPitch + index % Traits::kInner;
      typename Traits::TAcc sum[1];
      add_warps<Traits>(sum, partial + place);
      partial[place] = sum[0];
    }
  }
  ptx::cluster_sync();
}

// Adds the sums that belong together, and writes the tile, or this block's part of it.
template <class Traits, class Output>
__device__ __forceinline__ void write_skinny(const Output& output, const SkinnyWork& work,
                                             const typename Traits::TAcc* partial) {
  using TAcc = typename Traits::TAcc;
  constexpr bool kShared = Traits::CLUSTER_K > 1;
  // Blocks that share a tile have little of it each: short groups keep more threads busy.
  constexpr int kWidest = max_of(1, (kShared ? 4 : 16) / int(sizeof(typename Output::Element)));
  constexpr int kGroup = min_of(Traits::kInner, kWidest), kGroups = Traits::kInner / kGroup;
  const int outer_left = Traits::STREAMED_A ? work.rows : output.m, inner_left = Traits::STREAMED_A ? output.n : work.rows;
  const int first = (kShared ? int(blockIdx.x % Traits::CLUSTER_K) * Traits::kThreads : 0) + int(threadIdx.x);
#pragma unroll 1
  for (int index = first; index < Traits::kOuter * kGroups; index += Traits::kThreads * Traits::CLUSTER_K) {
    const int outer = index / kGroups, inner = index % kGroups * kGroup;
    if (outer >= outer_left || inner >= inner_left) continue;
    TAcc sums[kGroup];
    if constexpr (kShared) {
      add_blocks<Traits>(sums, partial + outer * Traits::kPitch + inner);
    } else {
      add_warps<Traits>(sums, partial + outer * Traits::kPitch + inner);
    }
    auto* const row = output.base + (Traits::STREAMED_A ? (work.first_row + outer) * output.pitch : outer * output.pitch);
    output.template write_group<kGroup>(row + (Traits::STREAMED_A ? inner : work.first_row + inner), sums,
                                        inner_left - inner);
  }
}

template <class Traits>
__device__ __forceinline__ void gemm_skinny(const GemmArguments& args) {
  using TAcc = typename Traits::TAcc;
  using TOut = typename Traits::TOut;
  extern __shared__ __align__(16) unsigned char shared[];
  const SkinnyWork work = skinny_work<Traits>(args);
  typename Traits::Sums sums;
  stream<Traits>(args, work, sums, ptx::shared_address(shared));

  __syncthreads();  // stages become room for sums
  TAcc* const partial = reinterpret_cast<TAcc*>(shared);
  const int warp = int(threadIdx.x) / 32;
  const int first = warp / Traits::WARPS_K * Traits::kWarpRows + Traits::Streamed::lane_row();
  TAcc* const mine = partial + warp % Traits::WARPS_K * Traits::kPartial;
  sums.finish();
#pragma unroll
  for (int slot = 0; slot < Traits::LANE_ROWS; ++slot) {
#pragma unroll
    for (int owned = 0; owned < Traits::Sums::kOwned; ++owned) {
      const int row = first + Traits::Streamed::row_of(slot), held = Traits::Sums::row_of(owned);
      const int place = Traits::STREAMED_A ? row * Traits::kPitch + held : held * Traits::kPitch + row;
      if (Traits::Sums::owner()) mine[place] = sums.sum(slot, owned);
    }
  }
  __syncthreads();
  if constexpr (Traits::CLUSTER_K > 1) total_skinny<Traits>(partial);
  if (args.split_k == 1) {
    write_skinny<Traits>(output_c<TAcc, TOut, Traits::STORE>(args, work.batch), work, partial);
  } else {
    TAcc* const slices = static_cast<TAcc*>(args.workspace);
    const long long slice = (long long)(work.slice / Traits::CLUSTER_K) * args.batch + work.batch;
    const SliceOutput<TAcc, TOut, Traits::STORE> output{slices + slice * args.m * args.n, args.n, args.m, args.n,
                                                        TAcc(1), TAcc(0)};
    write_skinny<Traits>(output, work, partial);
  }
  if constexpr (Traits::CLUSTER_K > 1) ptx::cluster_sync();  // no block ends while others read its sums
}

}  // namespace kt
