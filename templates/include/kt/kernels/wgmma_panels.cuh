// How accumulators become C where a tile's rows came from registers (wgmma_fragments.cuh): by panels of 32 x 32 elements
// in shared memory, each made by two warps, which have its rows between them. TURNED: what wgmma takes for rows are columns
// of C, for the operands have changed roles; then a panel is turned round as it is written.
//
// A panel's rows are rows of C, 128 bytes, swizzled as TMA reads them. Of each 8 columns of accumulators a lane has four
// elements, see wgmma_epilogue.cuh; it writes pairs that are neighbours in a row of C. Lanes of the upper 16 rows write
// theirs in another order than those of the lower ones: so no bank is hit twice.

namespace kt {

// `Rows` has `row_of`. COLUMNS of accumulators; the panels' places in shared memory are a ring of SLOTS.
template <class Rows, class TAcc, class TOut, int COLUMNS, int SLOTS, bool TURNED>
struct WgmmaPanelStore {
  static constexpr int kSide = 32, kPanels = COLUMNS / kSide, kSlotBytes = kSide * kSide * 4;
  static constexpr int kSums = kSide / 2;  // of a lane in a panel

  static_assert(sizeof(TAcc) == 4 && sizeof(TOut) == 4, "a panel's row has 128 bytes");
  static_assert(kPanels * kSide == COLUMNS && kPanels % SLOTS == 0, "whole panels, whole rounds of the ring");

  unsigned ring;  // of the two warps
  int barrier;    // that they meet at
  int warp;       // of the consumer

  // From the panel at (row, column) of C on: by TMA, for beta = 0 and rows of C that begin at multiples of 16 bytes, or by
  // ordinary accesses, whatever beta and the alignment.
  template <class Target>
  __device__ __forceinline__ void store(const Target& output, const TensorMap& map, bool by_tma, const TAcc* sum, int row,
                                        int column, int batch, unsigned long long policy) const {
    const int lane = lane_here();
    const bool asks = lane == 0 && warp % 2 == 0;
    const unsigned place = ring + place_of(warp, lane);
    const TAcc scale = by_tma ? output.alpha : TAcc(1);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const int slot = panel % SLOTS * kSlotBytes;
      const int at_row = row + (TURNED ? panel * kSide : 0), at_column = column + (TURNED ? 0 : panel * kSide);
      if (asks) ptx::tma_store_wait_read<SLOTS - 1>();
      ptx::meet_at(barrier, 64);
      put(place, slot, sum + panel * kSums, lane, scale);
      ptx::fence_async_proxy();
      ptx::meet_at(barrier, 64);
      if (!by_tma) {
        write(output, ring + slot, warp % 2 * 32 + lane, at_row, at_column);
      } else if (asks) {
        if (at_row < output.m && at_column < output.n) ptx::tma_store(map, ring + slot, at_column, at_row, batch, policy);
        ptx::tma_store_commit();
      }
    }
  }

  // Where a lane writes its first pair.
  __host__ __device__ static constexpr unsigned place_of(unsigned warp, unsigned lane) {
    const unsigned of_rows = Rows::row_of(warp, lane / 4, 0) % kSide, upper = of_rows / 16, t = lane % 4;
    if constexpr (TURNED) return swizzled(2 * t + upper, of_rows);
    return swizzled(of_rows, upper * 16 + 2 * t);
  }

  // From there, its `second` or other pair of the j-th 8 columns. TURNED: columns are rows of the panel, and the pairs are
  // those of two of them. Otherwise the pairs are those of two rows.
  __host__ __device__ static constexpr unsigned at(unsigned place, int j, int second) {
    return TURNED ? (place ^ unsigned(second * 144)) + j * 1024 : place ^ unsigned(j * 32) ^ unsigned(second * 144);
  }

  // Which accumulators of a panel that pair is: `upper` lanes begin with the other ones.
  __host__ __device__ static constexpr int first_of_pair(int j, int second, int upper) {
    return TURNED ? 4 * j + (second ^ upper) : 4 * (j ^ (2 * upper)) + 2 * second;
  }
  static constexpr int kWithinPair = TURNED ? 2 : 1;

 private:
  __host__ __device__ static constexpr unsigned swizzled(unsigned row, unsigned column) {
    return row * 128 + ((column / 4) ^ (row % 8)) * 16 + column % 4 * 4;
  }

  __device__ __forceinline__ static void put(unsigned place, int slot, const TAcc* sum, int lane, TAcc alpha) {
    const bool upper = lane / 8 % 2 != 0;
#pragma unroll
    for (int j = 0; j < kSide / 8; ++j) {
#pragma unroll
      for (int second = 0; second < 2; ++second) {
        const int lower_pair = first_of_pair(j, second, 0), upper_pair = first_of_pair(j, second, 1);
        unsigned words[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          // Read here: the compiler would choose before the last product has been waited for.
          const TAcc of_lower = ptx::computed_here(sum[lower_pair + i * kWithinPair]);
          const TAcc of_upper = ptx::computed_here(sum[upper_pair + i * kWithinPair]);
          const TOut result = TOut(alpha * (upper ? of_upper : of_lower));
          words[i] = reinterpret_cast<const unsigned&>(result);
        }
        ptx::store_shared(at(place, j, second) + slot, words);
      }
    }
  }

  // A panel whose corner is (row, column) of C; `thread` is one of the two warps' 64.
  template <class Target>
  __device__ __forceinline__ static void write(const Target& output, unsigned shared, int thread, int row, int column) {
    constexpr int kWidth = min_of(4, Target::kWidest), kOfRow = kSide / kWidth;
    const char* const panel = static_cast<const char*>(__cvta_shared_to_generic(shared));
#pragma unroll 1
    for (int group = thread; group < kSide * kOfRow; group += 64) {
      const int at_row = group / kOfRow, at = group % kOfRow * kWidth;
      if (row + at_row >= output.m || column + at >= output.n) continue;
      const auto values = *reinterpret_cast<const Vector<TAcc, kWidth>*>(panel + swizzled(at_row, at));
      output.template write_group<kWidth>(output.at(row + at_row, column + at), values.at, output.n - column - at);
    }
  }
};

}  // namespace kt
