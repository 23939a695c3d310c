// How a consumer's accumulators become C, or a slice of the workspace. Each warp has a part of shared memory to itself
// and sixteen rows of the tile, so that warps wait for nobody.
//
// A warp's accumulators of 64 x BLOCK_N: lane l, with g = l / 4 and t = l % 4, has of each 8 columns j the columns
// 8 j + 2 t and + 1, of row g as elements 4 j and 4 j + 1, of row g + 8 as elements 4 j + 2 and 4 j + 3.

namespace kt {

// Two neighbouring elements of a 16-bit output in one word.
template <bool BF16>
__device__ __forceinline__ unsigned pack_pair(float low, float high) {
  unsigned pair;
  if constexpr (BF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;\n" : "=r"(pair) : "f"(high), "f"(low));
  }
  return pair;
}

// By TMA, for beta = 0 and rows of C that start at multiples of 16 bytes. The warp's part of shared memory is a ring of
// SLOTS panels of 16 rows by ROW_BYTES, swizzled as TMA reads them; a panel is written while others are on their way.
template <class TAcc, class TOut, bool OUT_BF16, int BLOCK_N, int ROW_BYTES, int SLOTS>
struct WgmmaTmaStore {
  static constexpr int kColumns = ROW_BYTES / int(sizeof(TOut));
  static constexpr int kPanels = BLOCK_N / kColumns;
  static constexpr int kSlotBytes = 16 * ROW_BYTES;
  static constexpr int kUnits = ROW_BYTES / 16;

  static_assert(BLOCK_N % kColumns == 0 && kPanels % SLOTS == 0, "whole panels, whole rounds of the ring");
  static_assert(sizeof(TOut) == 2 || sizeof(TOut) == 4, "16- and 32-bit outputs");

  // Writes 16 rows from (row, column) on. `ring` is the warp's part of shared memory.
  __device__ __forceinline__ static void store(const GemmArguments& args, const TensorMap& map, unsigned ring,
                                               const TAcc* sum, int row, int column, int batch) {
    const TAcc alpha = TAcc(args.alpha);
    const bool first_lane = threadIdx.x % 32 == 0;
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      const unsigned slot = ring + panel % SLOTS * kSlotBytes;
      if (first_lane) ptx::tma_store_wait_read<SLOTS - 1>();
      __syncwarp();
      put(slot, sum + panel * (kColumns / 2), alpha);
      ptx::fence_async_proxy();
      __syncwarp();
      if (first_lane) {
        if (row < args.m && column + panel * kColumns < args.n) {
          ptx::tma_store(map, slot, column + panel * kColumns, row, batch);
        }
        ptx::tma_store_commit();
      }
    }
  }

  // Before the block ends: shared memory must stay until it is read.
  __device__ __forceinline__ static void finish() {
    if (threadIdx.x % 32 == 0) ptx::tma_store_wait_read<0>();
  }

 private:
  // Address bits from 4 on are XORed with those from 7 on: the latter are the row's.
  __device__ __forceinline__ static unsigned swizzle_of(int row) { return unsigned(row * ROW_BYTES / 128 % kUnits) << 4; }

  __device__ __forceinline__ static void put(unsigned slot, const TAcc* sum, TAcc alpha) {
    const int lane = int(threadIdx.x) % 32;
    if constexpr (sizeof(TOut) == 2) {
      const int row = lane % 16;
      const unsigned place = slot + row * ROW_BYTES + (unsigned(lane / 16 * 16) ^ swizzle_of(row));
#pragma unroll
      for (int column = 0; column < kColumns; column += 16) {
        const TAcc* const part = sum + column / 2;
        unsigned pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) pairs[i] = pack_pair<OUT_BF16>(alpha * part[2 * i], alpha * part[2 * i + 1]);
        ptx::stmatrix_x4(place ^ unsigned(column * 2), pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = lane / 4 + 8 * half;
        const unsigned place = slot + row * ROW_BYTES + (unsigned(lane % 4 * 8) ^ swizzle_of(row));
#pragma unroll
        for (int column = 0; column < kColumns; column += 8) {
          const TAcc* const pair = sum + column / 2 + 2 * half;
          const TOut low = TOut(alpha * pair[0]), high = TOut(alpha * pair[1]);
          asm volatile("st.shared.v2.b32 [%0], {%1, %2};\n" ::"r"(place ^ unsigned(column * 4)),
                       "r"(reinterpret_cast<const unsigned&>(low)), "r"(reinterpret_cast<const unsigned&>(high))
                       : "memory");
        }
      }
    }
  }
};

// By ordinary accesses, whatever beta and the alignment. Rows pass through shared memory as accumulators, COLUMNS at a
// time, so that the warp writes them from one end to the other.
template <class TAcc, int BLOCK_N, int COLUMNS>
struct WgmmaRowStore {
  static constexpr int kPieces = cdiv(BLOCK_N, COLUMNS);

  static_assert(COLUMNS % 8 == 0, "whole fragments");

  template <class Target>
  __device__ __forceinline__ static void store(const Target& output, TAcc* staged, const TAcc* sum, int row, int column) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) {
      constexpr int kLast = BLOCK_N - (kPieces - 1) * COLUMNS;
      const int width = min_of(piece + 1 < kPieces ? COLUMNS : kLast, output.n - (column + piece * COLUMNS));
      __syncwarp();
      put(staged, sum + piece * (COLUMNS / 2), piece + 1 < kPieces ? COLUMNS : kLast);
      __syncwarp();
      const int rows = width > 0 ? min_of(16, output.m - row) : 0;
#pragma unroll 1
      for (int i = 0; i < rows; ++i) write_row(output, staged, i, row + i, column + piece * COLUMNS, width);
    }
  }

 private:
  // Units of 16 bytes change places, so that the four rows that half a warp writes lie in different banks.
  __device__ __forceinline__ static int place(int row, int column) {
    return row * COLUMNS + (COLUMNS % 32 == 0 ? column ^ ((row & 3) << 3) : column);
  }

  __device__ __forceinline__ static void put(TAcc* staged, const TAcc* sum, int columns) {
    const int lane = int(threadIdx.x) % 32;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = lane / 4 + 8 * half;
#pragma unroll
      for (int column = 0; column < columns; column += 8) {
        const Vector<TAcc, 2> pair{{sum[column / 2 + 2 * half], sum[column / 2 + 2 * half + 1]}};
        *reinterpret_cast<Vector<TAcc, 2>*>(staged + place(row, column + lane % 4 * 2)) = pair;
      }
    }
  }

  template <class Target>
  __device__ __forceinline__ static void write_row(const Target& output, const TAcc* staged, int staged_row, int row,
                                                   int column, int width) {
    using TOut = typename Target::Element;
    const int lane = int(threadIdx.x) % 32;
    TOut* const target = output.at(row, column);
    if constexpr (Target::kWidest == 1 && sizeof(TOut) == 2) {
      // Rows begin anywhere: pairs begin where words do, which may be one element before the row.
      const int shift = int(reinterpret_cast<unsigned long long>(target) / 2 % 2);
#pragma unroll 1
      for (int at = 2 * lane - shift; at < width; at += 64) {
        const TAcc low = staged[place(staged_row, max_of(at, 0))];
        const TAcc high = staged[place(staged_row, min_of(at + 1, COLUMNS - 1))];
        if (at >= 0 && at + 1 < width) {
          Vector<TOut, 2>* const word = reinterpret_cast<Vector<TOut, 2>*>(target + at);
          Vector<TOut, 2> pair;
          if (output.reads()) pair = *word;
          pair.at[0] = output.result(low, &pair.at[0]);
          pair.at[1] = output.result(high, &pair.at[1]);
          *word = pair;
        } else if (at >= 0) {
          output.write(target + at, low);
        } else {
          output.write(target + at + 1, high);
        }
      }
    } else {
      constexpr int kWidth = min_of(4, Target::kWidest);
#pragma unroll 1
      for (int at = lane * kWidth; at < width; at += 32 * kWidth) {
        const auto group = *reinterpret_cast<const Vector<TAcc, kWidth>*>(staged + place(staged_row, at));
        output.template write_group<kWidth>(target + at, group.at, width - at);
      }
    }
  }
};

}  // namespace kt
