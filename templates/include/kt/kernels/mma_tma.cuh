// Tiles of `mma` that the tensor memory accelerator copies (sm_90): boxes of them, each by one instruction of one thread.
//
// Copies by all threads take one issue slot in twelve of the loop, and registers for their addresses. Of tf32 operands TMA
// rounds the elements as well (to nearest, ties to even), which in registers is an instruction for each word and warp.

namespace kt {

// As MmaOperand. Warps take turns in asking for boxes, the first of them warp FIRST_WARP: so none falls behind the others.
// Each box counts as one arrival, and its bytes, at the barrier of its stage; barriers lie side by side.
template <class T, int BLOCK_MN, int BLOCK_K, bool K_CONTIGUOUS_, int STAGES, int THREADS, int FIRST_WARP>
struct TmaOperand {
  static constexpr bool K_CONTIGUOUS = K_CONTIGUOUS_;
  static constexpr int kWarps = THREADS / 32;
  static constexpr int kRows = K_CONTIGUOUS ? BLOCK_MN : BLOCK_K;
  static constexpr int kRowBytes = K_CONTIGUOUS ? BLOCK_K * int(sizeof(T)) : PanelPlaces<kRows>::kPanelBytes;
  static constexpr int kBytes = BLOCK_MN * BLOCK_K * int(sizeof(T));
  static constexpr int kBoxBytes = kRows * kRowBytes, kBoxes = kBytes / kBoxBytes;
  static constexpr int kBoxColumns = kRowBytes / int(sizeof(T));
  // Where rows are 64 or 128 bytes, TMA's swizzle is that of TilePlaces.
  using Places = typename Select<K_CONTIGUOUS, TilePlaces<kRowBytes, RowOrder::kPlain>, PanelPlaces<kRows>>::type;
  static_assert(kRowBytes == 64 || kRowBytes == 128, "rows are as long as a swizzle reaches");
  static_assert(kBoxes * kBoxBytes == kBytes && kBoxBytes % (8 * kRowBytes) == 0, "whole panels, whole patterns of a swizzle");
  // Of a coordinate along k that no operand reaches, TMA writes zeros and reads nothing.
  static constexpr int kNowhere = 1 << 30;

  const TensorMap& map;
  int mn, k, end_k, batch;
  RingBarrier<STAGES> full;  // of the stage that is filled next

  __device__ __forceinline__ TmaOperand(const TensorMap& map, unsigned barriers, int mn, int k, int end_k, int batch)
      : map(map), mn(mn), k(k), end_k(end_k), batch(batch), full(barriers) {}

  template <int PARTS>
  struct Staged {};

  // Starts the copy of the next tile to the shared address `stage`, with the first part. Beyond `end_k` it is zero.
  template <int PART, int PARTS>
  __device__ __forceinline__ void start(Staged<PARTS>&, unsigned stage) const {
    if (PART > 0 || threadIdx.x % 32 != 0) return;
    const int at = k < end_k ? k : kNowhere;
#pragma unroll 1
    for (int box = (int(threadIdx.x) / 32 + kWarps - FIRST_WARP % kWarps) % kWarps; box < kBoxes; box += kWarps) {
      ptx::mbarrier_expect(full.barrier, kBoxBytes);
      const int column = K_CONTIGUOUS ? at : mn + box * kBoxColumns;
      ptx::tma_load(map, stage + box * kBoxBytes, full.barrier, column, K_CONTIGUOUS ? mn : at, batch);
    }
  }
  template <int PART, int PARTS>
  __device__ __forceinline__ void finish(const Staged<PARTS>&, unsigned) const {}

  __device__ __forceinline__ void next() {
    k += BLOCK_K;
    full.advance();
  }
};

// As CopyGroups: the arrival of stages, in their order, at barriers that BOXES boxes arrive at. STAGES - 1 stages are under
// way before the first is awaited, and another one for each that is.
template <int STAGES, int BOXES>
class TmaArrivals {
 public:
  __device__ __forceinline__ explicit TmaArrivals(unsigned barriers) : full_(barriers) {}

  // By one thread, before all others go on.
  __device__ __forceinline__ static void make(unsigned barriers) {
    init_barriers<STAGES>(barriers, BOXES);
    ptx::mbarrier_init_fence();
  }

  __device__ __forceinline__ void end() const {}
  template <int UNDER_WAY>
  __device__ __forceinline__ void await() {
    ptx::mbarrier_wait(full_.barrier, full_.phase);
    full_.advance();
  }
  __device__ __forceinline__ void await_all() {
#pragma unroll 1
    for (int stage = 0; stage < STAGES - 2; ++stage) await<0>();
  }

 private:
  RingBarrier<STAGES> full_;  // of the stage that is awaited next
};

// One piece of work a block, its stages from the next multiple of 1024 bytes on, as swizzles want it.
template <class Traits>
__device__ __forceinline__ void gemm_mma_tma(const GemmArguments& args, const TensorMap& map_a, const TensorMap& map_b) {
  extern __shared__ __align__(128) unsigned char shared_bytes[];
  const unsigned dynamic = ptx::shared_address(shared_bytes), stages = (dynamic + 1023) / 1024 * 1024;
  const unsigned barriers = stages + Traits::STAGES * Traits::kStageBytes;
  if (threadIdx.x == 0) {
    ptx::prefetch(map_a);
    ptx::prefetch(map_b);
    Traits::Arrivals::make(barriers);
  }
  __syncthreads();
  Scheduler<false> scheduler(args, Traits::BLOCK_M, Traits::BLOCK_N, Traits::BLOCK_K);
  MmaSums<Traits> sums;
  Work work;
  scheduler.next(args, work);
  const int first_k = work.first_step * Traits::BLOCK_K;
  const int end_k = min_of((long long)args.k, first_k + (long long)work.steps * Traits::BLOCK_K);
  typename Traits::TileA a(map_a, barriers, work.tile_m * Traits::BLOCK_M, first_k, end_k, work.batch);
  typename Traits::TileB b(map_b, barriers, work.tile_n * Traits::BLOCK_N, first_k, end_k, work.batch);
  sums.clear();
  MmaPipeline<Traits> pipeline(a, b, stages, sums);
  pipeline.fill_stages();
  pipeline.run(sums, work.steps);
  write_tile<Traits>(args, sums, work, shared_bytes + (stages - dynamic));
}

}  // namespace kt
