// A consumer of `wgmma`: one warpgroup that multiplies, and writes C.

namespace kt {

template <class Traits>
class WgmmaConsumer {
 public:
  using TAcc = typename Traits::TAcc;
  using TOut = typename Traits::TOut;
  using Strips = typename Traits::Strips;

  // What is computed of doubles is computed before there is anything to wait for.
  __device__ __forceinline__ WgmmaConsumer(const GemmArguments& args, const WgmmaShared<Traits>& shared, int consumer)
      : shared_(shared), consumer_(consumer), warp_(__shfl_sync(~0u, int(threadIdx.x) / 32 % 4, 0)),
        by_tma_(Traits::kAlignedC ? kept(int(TAcc(args.beta) == TAcc(0) && args.split_k == 1)) : 0),
        alpha_(ptx::computed_here(TAcc(args.alpha))) {}

  __device__ __forceinline__ void run(const GemmArguments& args, const TensorMap& map_c) {
    wgmma_start<Traits>();
    if constexpr (Traits::kEarly) wait_for_earlier_grids();
    RingPlace<Traits::STAGES> ring;
    RingPlace<kTilesAhead> places;
    typename Traits::Sums held;
    if constexpr (kOldPtxas) clear(held);
    for (int number = 0;; ++number, places.advance()) {
      const WgmmaTile& told = *shared_.tile(places.stage);
      ptx::mbarrier_wait(shared_.told(places.stage), places.phase);
      const int steps = same(told.steps);
      if (steps < 0) break;
      const WgmmaTile tile{steps, same(told.m), same(told.n), same(told.batch), Traits::kSlicesAreBatches ? 0 : same(told.slice), 0,
                           same(told.first_block), same(told.ends)};
      know(places.stage);
      if (Traits::PING_PONG && number % 2 != consumer_) {
        ring.skip(steps);
        continue;
      }
      typename Traits::Sums fresh;
      auto& sum = kOldPtxas ? held : fresh;
      if constexpr (Traits::kShares) clear(sum);  // else each loop would define them, and ptxas wait for every product
      if constexpr (Traits::PING_PONG) ptx::mbarrier_wait(shared_.turn(consumer_), (number / 2 + 1 + consumer_) % 2);
      if constexpr (Traits::CLASSES > 1) {
        multiply_classes(sum, ring, Traits::Classes::template steps<Traits::BLOCK_K>(args.k));
      } else if constexpr (Traits::kShifted) {
        multiply_shifted(args, sum, ring, steps);
      } else if constexpr (Traits::PROMOTED) {
        multiply_promoted(sum, ring, steps);
      } else {
        multiply_in(typename Traits::Loops{}, args, sum, ring, steps);
      }
      // No steps are shared of these: collecting pieces would take registers, and parked strips are those of whole tiles.
      if (Traits::CLASSES > 1 || Traits::kShifted || Traits::kCut) {
        write(args, map_c, sum, tile);
      } else if (tile.ends) {
        collect(args, sum, tile.first_block);
        write(args, map_c, sum, tile);
      } else {
        park(args, sum);
      }
    }
    if constexpr (Traits::kTmaStores) Traits::TmaStore::finish();
  }

 private:
  // In a register of the warp, where lanes have none for it beside the sums of large tiles.
  __device__ __forceinline__ static int kept(int flag) {
    return Traits::kSlicesAreBatches ? same(flag) : ptx::computed_here(flag);
  }

  // The warp has read what it was told of a tile.
  __device__ __forceinline__ void know(int place) const {
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.known(place));
  }

  // By the loop for the operands as this launch has them.
  template <class Loop, class... Others>
  __device__ __forceinline__ void multiply_in(WgmmaForms<Loop, Others...>, const GemmArguments& args, typename Traits::Sums& sum,
                                              RingPlace<Traits::STAGES>& ring, int steps) {
    if constexpr (sizeof...(Others) == 0) {
      multiply<Loop>(sum, ring, steps);
    } else if (Loop::is_of(args)) {
      multiply<Loop>(sum, ring, steps);
    } else {
      multiply_in(WgmmaForms<Others...>{}, args, sum, ring, steps);
    }
  }

  // Adds up all steps of a tile, one batch of wgmmas behind the other; a stage is given back once the next batch is on
  // its way.
  template <class Loop>
  __device__ __forceinline__ void multiply(typename Traits::Sums& sum,
                                           RingPlace<Traits::STAGES>& ring, int steps) {
    int before = 0;
    const unsigned lane_place = place_of_lane();
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(shared_.full(ring.stage), ring.phase);
      // What threads have copied must be seen by wgmma, which reads shared memory as TMA does.
      if constexpr (Traits::kFed) ptx::fence_async_proxy();
      if constexpr (Traits::kFromRegisters) {
        multiply_from_registers(sum, ring.stage, lane_place, step, before);
      } else {
        ptx::wgmma_fence();
        multiply_stage<Loop, 0, Traits::A::kSteps>(sum, ring.stage, step > 0);
        ptx::wgmma_commit();
        ptx::wgmma_wait<1>();
        if (step > 0) give_back(before);
      }
      before = ring.stage;
      ring.advance();
    }
    end_product(sum, before, steps);
  }

  // The same class by class, each of which has steps, with sums that move between them.
  __device__ __forceinline__ void multiply_classes(typename Traits::Sums& sum, RingPlace<Traits::STAGES>& ring,
                                                   int steps_of_class) {
    add_class(sum, ring, steps_of_class, 0, false);
    int number = 1;
#pragma unroll 1
    do {
      move(sum);
      add_class(sum, ring, steps_of_class, 1, number + 1 == Traits::CLASSES);
    } while (++number < Traits::CLASSES);
  }

  __device__ __forceinline__ static void move(typename Traits::Sums& sum) {
    const int lane = lane_here();
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i) {
      // Not before the last product has been waited for, and back into floating-point registers here: the compiler would
      // carry words through the loop of products, and copy them into accumulators there, which ptxas waits for.
      computed_here(sum[i]);
      Traits::Classes::template move<Traits::BLOCK_N>(sum[i], lane);
      computed_here(sum[i]);
    }
  }

  template <int COUNT>
  __device__ __forceinline__ static void computed_here(TAcc (&sum)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] = ptx::computed_here(sum[i]);
  }

  // The steps of a class. No path leads around them, on which `sum` would have to be copied, and `add` says whether it
  // has a value before.
  __device__ __forceinline__ void add_class(typename Traits::Sums& sum, RingPlace<Traits::STAGES>& ring, int steps, int add,
                                            bool last) {
    int before = 0, step = 0;
#pragma unroll 1
    do {
      ptx::mbarrier_wait(shared_.full(ring.stage), ring.phase);
      ptx::wgmma_fence();
      multiply_stage<Traits, 0, Traits::A::kSteps>(sum, ring.stage, add | (step > 0));
      ptx::wgmma_commit();
      ptx::wgmma_wait<1>();
      if (step > 0) give_back(before);
      before = ring.stage;
      ring.advance();
    } while (++step < steps);
    if (Traits::PING_PONG && last && threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.turn(consumer_ ^ 1));
    ptx::wgmma_wait<0>();
    give_back(before);
  }

  // The same where wgmma's own sums are short: each is added to `sum` when it is done, while another consumer, or another
  // block of the multiprocessor, multiplies.
  __device__ __forceinline__ void multiply_promoted(typename Traits::Sums& sum, RingPlace<Traits::STAGES>& ring, int steps) {
    constexpr int kSteps = Traits::kStepsOfSum, kParts = Traits::A::kSteps / kSteps;
    clear(sum);
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(shared_.full(ring.stage), ring.phase);
      if constexpr (Traits::kFed) ptx::fence_async_proxy();
      add_part<0, kSteps>(sum, ring.stage);
      if constexpr (kParts == 2) add_part<kSteps, kSteps>(sum, ring.stage);
      ring.advance();
    }
  }

  // Steps of a stage, which is given back with the last one.
  template <int FIRST, int COUNT>
  __device__ __forceinline__ void add_part(typename Traits::Sums& sum, int stage) {
    typename Traits::Sums part;
    ptx::wgmma_fence();
    multiply_stage<Traits, FIRST, COUNT>(part, stage, 0);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    if constexpr (FIRST + COUNT == Traits::A::kSteps) give_back(stage);
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < Traits::kColumns / 2; ++j) sum[i][j] += part[i][j];
  }

  // Some steps of k, from FIRST on, of a stage; `add`: to what is in `sum`.
  template <class Loop, int FIRST, int COUNT>
  __device__ __forceinline__ void multiply_stage(typename Traits::Sums& sum, int stage, int add) {
    using A = typename Loop::A;
    using B = typename Loop::B;
    constexpr int kRowsBytes = A::after_elements(64 * Traits::kTilesM) * 16;
    const unsigned rows = Traits::PING_PONG ? 0 : consumer_ * kRowsBytes;
    const unsigned long long a = A::descriptor(shared_.a(stage) + rows), b = B::descriptor(shared_.b(stage));
#pragma unroll
    for (int step = FIRST; step < FIRST + COUNT; ++step) {
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) {
        Loop::Multiply::template add<B>(sum[i], a + (A::after_steps(step) + A::after_elements(64 * i)),
                                          b + B::after_steps(step), step > FIRST ? 1 : add);
      }
    }
  }

  // Where in a tile of rows this lane's first ones lie, if it takes them into registers.
  __device__ __forceinline__ unsigned place_of_lane() const {
    if constexpr (Traits::kFromRegisters) {
      constexpr int kRowsBytes = Traits::kTilesM * 2 * Traits::Rows::kPanelBytes;
      return (Traits::PING_PONG ? 0 : consumer_ * kRowsBytes) + Traits::Fragments::place_of(warp_, lane_here());
    } else {
      return 0;
    }
  }

  // The same for rows from registers. Those of a step of k are loaded while the steps before are multiplied, into
  // registers that the last step but kSets has left; with them goes what reads the stage before.
  __device__ __forceinline__ void multiply_from_registers(typename Traits::Sums& sum, int stage, unsigned lane_place, int step,
                                                          int before) {
    using Fragments = typename Traits::Fragments;
    using Columns = typename Traits::Columns;
    const unsigned place = (Traits::kExchanged ? shared_.b(stage) : shared_.a(stage)) + lane_place;
    const unsigned long long columns = Columns::descriptor(Traits::kExchanged ? shared_.a(stage) : shared_.b(stage));
    unsigned words[Fragments::kSets][Traits::kTilesM][4];
#pragma unroll
    for (int part = 0; part < Columns::kSteps; ++part) {
      auto& loaded = words[part % Fragments::kSets];
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) Fragments::load(loaded[i], place, i, part);
      ptx::wgmma_fence();
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) {
        Traits::Multiply::template add<Columns>(sum[i], loaded[i], columns + Columns::after_steps(part),
                                                part > 0 ? 1 : int(step > 0));
      }
      ptx::wgmma_commit();
      ptx::wgmma_wait<Fragments::kSets - 1>();
      if (part == Fragments::kSets - 2 && step > 0) give_back(before);
    }
  }

  // The same for rows that are shifted in registers.
  __device__ __forceinline__ void multiply_shifted(const GemmArguments& args, typename Traits::Sums& sum,
                                                   RingPlace<Traits::STAGES>& ring, int steps) {
    using Rows = typename Traits::ShiftedRows;
    using B = typename Traits::B;
    typename Rows::Lane lanes[Traits::kTilesM];
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i) lanes[i] = typename Rows::Lane(args, first_row() / kStripRows + 4 * i);
    unsigned further[Traits::kTilesM][4] = {};
    int before = 0;
#pragma unroll 1
    for (int step = 0; step < steps; ++step) {
      ptx::mbarrier_wait(shared_.full(ring.stage), ring.phase);
      const unsigned long long b = B::descriptor(shared_.b(ring.stage));
      unsigned words[Rows::kSets][Traits::kTilesM][4];
#pragma unroll
      for (int part = 0; part < Rows::kSteps; ++part) {
        auto& loaded = words[part % Rows::kSets];
#pragma unroll
        for (int i = 0; i < Traits::kTilesM; ++i) Rows::load(loaded[i], further[i], lanes[i], shared_.a(ring.stage), part);
        ptx::wgmma_fence();
#pragma unroll
        for (int i = 0; i < Traits::kTilesM; ++i) {
          Traits::Multiply::template add<B>(sum[i], loaded[i], b + B::after_steps(part), part > 0 ? 1 : int(step > 0));
        }
        ptx::wgmma_commit();
        ptx::wgmma_wait<Rows::kSets - 1>();
        if (part == Rows::kSets - 2 && step > 0) give_back(before);
      }
      before = ring.stage;
      ring.advance();
    }
    end_product(sum, before, steps);
  }

  // All of a tile's steps have been asked for, the last one from stage `before`.
  __device__ __forceinline__ void end_product(typename Traits::Sums& sum, int before, int steps) const {
    if constexpr (Traits::PING_PONG) {
      if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(shared_.turn(consumer_ ^ 1));
    }
    ptx::wgmma_wait<0>();
    if (steps > 0) give_back(before);
    if (!Traits::kShares && steps == 0) clear(sum);
  }

  // Lets the blocks that copy into this stage overwrite it: a lane of another warp signals each of them.
  __device__ __forceinline__ void give_back(int stage) const {
    constexpr int CLUSTER_M = Traits::CLUSTER_M, CLUSTER_N = Traits::CLUSTER_N;
    if (warp_ >= Traits::kPeers || threadIdx.x % 32 != 0) return;
    if constexpr (Traits::kPeers == 1) {
      ptx::mbarrier_arrive(shared_.empty(stage));
    } else {
      const int rank = int(blockIdx.x) % (CLUSTER_M * CLUSTER_N), rank_m = rank % CLUSTER_M;
      // The blocks of the same rows, this one among them, then the others of the same columns.
      const int block = warp_ < CLUSTER_N ? rank_m + warp_ * CLUSTER_M
                                          : rank - rank_m + (rank_m + warp_ - CLUSTER_N + 1) % CLUSTER_M;
      ptx::mbarrier_arrive_at(shared_.empty(stage), block);
    }
  }

  // The fence keeps it a branch, which costs nothing where there are steps: choosing each sum would take as long as a step.
  __device__ __forceinline__ static void clear(typename Traits::Sums& sum) {
    compiler_fence();
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i)
#pragma unroll
      for (int j = 0; j < Traits::kColumns / 2; ++j) sum[i][j] = TAcc(0);
  }

  // Stream-K: leaves the piece of a tile that a later block ends. Each warp has a flag and waits for its like only.
  __device__ __forceinline__ void park(const GemmArguments& args,
                                       const typename Traits::Sums& sum) const {
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i) Strips::store(parked(args, int(blockIdx.x), i), sum[i]);
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::store_release(flag(args, int(blockIdx.x)), 1u);
  }

  // Adds what the blocks of the same rank before this one have of the tile, in their order: two runs give the same bits.
  __device__ __forceinline__ void collect(const GemmArguments& args, typename Traits::Sums& sum,
                                          int first_block) const {
#pragma unroll 1
    for (int block = first_block; block < int(blockIdx.x); block += Traits::CLUSTER_M * Traits::CLUSTER_N) {
      // All lanes ask. If one did, the compiler would take the loop over tiles for one in which lanes part, and keep what
      // wgmma and TMA want in registers of the warp in those of each lane.
      while (ptx::load_acquire(flag(args, block)) == 0u) {
      }
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) {
        Strips::template add<Traits::kConsumerRegisters - Traits::kSums>(parked(args, block, i), sum[i]);
      }
    }
  }

  // Of this warp: its first row within a tile, by the order of strips and by that of rows; where a block has parked its
  // i-th strip, and the block's flag for that.
  __device__ __forceinline__ int first_row() const {
    return (Traits::PING_PONG ? 0 : consumer_ * (64 * Traits::kTilesM)) + warp_ * kStripRows;
  }
  // Whether this warp's i-th strip is of the tile, or lies behind its last row.
  __device__ __forceinline__ bool is_of_tile(int i) const { return first_row() + 64 * i < Traits::kHeight; }
  __device__ __forceinline__ int first_written_row() const {
    return Traits::kShifted ? Traits::StripRows::first(first_row() / kStripRows) : first_row();
  }
  __device__ __forceinline__ typename Strips::Word* parked(const GemmArguments& args, int block, int i) const {
    const long long strip = (long long)block * Strips::kOfTile + first_row() / kStripRows + 4 * i;
    return Strips::at(typename Traits::Space(args).template parked<TAcc>(), strip);
  }
  __device__ __forceinline__ unsigned* flag(const GemmArguments& args, int block) const {
    return typename Traits::Space(args).flags() + block * (4 * Traits::kSharers) + (Traits::PING_PONG ? 0 : consumer_ * 4) + warp_;
  }

  __device__ __forceinline__ void write(const GemmArguments& args, const TensorMap& map_c, const typename Traits::Sums& sum,
                                        const WgmmaTile& tile) const {
    if constexpr (Traits::kFromRegisters) {
      write_panels(args, map_c, sum, tile);
    } else {
      write_strips(typename Traits::Stores{}, args, map_c, sum, tile);
    }
  }

  // C may be aligned, or not.
  template <class Narrow, class Aligned>
  __device__ __forceinline__ void write_strips(WgmmaForms<Narrow, Aligned>, const GemmArguments& args, const TensorMap& map_c,
                                               const typename Traits::Sums& sum, const WgmmaTile& tile) const {
    if (Aligned::is_of(args)) {
      write_strips(WgmmaForms<Aligned>{}, args, map_c, sum, tile);
    } else {
      write_strips(WgmmaForms<Narrow>{}, args, map_c, sum, tile);
    }
  }

  // Rows came from registers: two warps have 32 of them, or of C's columns, between them.
  __device__ __forceinline__ void write_panels(const GemmArguments& args, const TensorMap& map_c,
                                               const typename Traits::Sums& sum, const WgmmaTile& tile) const {
    const int pair = consumer_ * 2 + warp_ / 2;
    const int first = (Traits::PING_PONG ? 0 : consumer_ * (64 * Traits::kTilesM)) + warp_ / 2 * 32;
    const typename Traits::PanelStore panels{shared_.staging(2 * pair), 1 + pair, warp_};
    auto output = output_c<TAcc, TOut, Traits::STORE>(args, tile.batch);
    output.alpha = alpha_;
    if (args.split_k > 1) {  // a slice is a matrix like C, and its rows are as long
      const long long part = (long long)tile.slice * args.batch + tile.batch;
      output.base = typename Traits::Space(args).template slices<TOut>() + part * args.m * args.n;
      output.pitch = args.n;
      output.alpha = TAcc(1);
      output.beta = TAcc(0);
    }
#pragma unroll
    for (int i = 0; i < Traits::kTilesM; ++i) {
      const int row = tile.m + (Traits::kExchanged ? 0 : first + 64 * i);
      const int column = tile.n + (Traits::kExchanged ? first + 64 * i : 0);
      panels.store(output, map_c, Traits::STORE == 16 && by_tma_, sum[i], row, column, tile.batch,
                   c_policy<TOut>(args.m, args.n, args.batch));
    }
  }

  template <class Store>
  __device__ __forceinline__ void write_strips(WgmmaForms<Store>, const GemmArguments& args, const TensorMap& map_c,
                                               const typename Traits::Sums& sum, const WgmmaTile& tile) const {
    const int place = consumer_ * 4 + warp_, row = tile.m + first_written_row();
    if constexpr (Traits::kCut) {
      if (!is_of_tile(0)) return;
    }
    if constexpr (Store::STORE == 16) {
      if (by_tma_) {
#pragma unroll
        for (int i = 0; i < Traits::kTilesM; ++i) {
          if constexpr (Traits::kCut) {
            if (!is_of_tile(i)) continue;
          }
          const unsigned staging = shared_.staging(place);
          if constexpr (Store::kDirect) {
            Store::DirectStore::store(args, staging, sum[i], alpha_, row + Traits::StripRows::after(i), tile.n, tile.batch);
          } else {
            Store::TmaStore::store(args, map_c, staging, sum[i], alpha_, row + 64 * i, tile.n, tile.batch);
          }
        }
        return;
      }
    }
    if (Traits::CLASSES == 1 && !Traits::kCut && args.split_k > 1) {
      if (tile.m >= args.m || tile.n >= args.n) return;  // a cluster's tiles may lie outside
      void* const slices = typename Traits::Space(args).template slices<TAcc>();
      const long long part = (long long)tile.slice * args.batch + tile.batch;
      const long long strip = part * Strips::of_slice(args) + Strips::in_slice(args, tile.m + first_row(), tile.n);
#pragma unroll
      for (int i = 0; i < Traits::kTilesM; ++i) Strips::store(Strips::at(slices, strip + 4 * i), sum[i]);
      return;
    }
    TAcc* const staged = static_cast<TAcc*>(__cvta_shared_to_generic(shared_.staging(place)));
    // What TMA could write comes here only to have beta times C added.
    auto to_c = output_c<TAcc, TOut, Store::STORE, Store::STORE == 16>(args, tile.batch);
    if constexpr (Traits::kCut) to_c.m = min_of(to_c.m, tile.m + Traits::kHeight);
    if constexpr (Store::STORE < 16) {
      Store::WindowStore::store(to_c, sum, row, tile.n - Traits::Classes::kFirst);
    } else {
      Store::RowStore::store(to_c, staged, sum, row, tile.n);
    }
  }

  WgmmaShared<Traits> shared_;
  int consumer_;
  int warp_;    // of the consumer
  int by_tma_;  // C is written by TMA, if its rows allow it
  TAcc alpha_;
};

}  // namespace kt
