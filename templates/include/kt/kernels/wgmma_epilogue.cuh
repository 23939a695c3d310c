// How a consumer's accumulators become C, or a slice of the workspace. Each warp has a part of shared memory to itself
// and strips of sixteen rows of the tile, so that warps wait for nobody.
//
// A warp's accumulators of a strip: lane l, with g = l / 4 and t = l % 4, has of each 8 columns j the columns 8 j + 2 t
// and + 1, of row g as elements 4 j and 4 j + 1, of row g + 8 as elements 4 j + 2 and 4 j + 3.

namespace kt {

constexpr int kStripRows = 16;

// Which rows of a tile a strip has, the 16 of a warp: APART apart, so that strips of 16 APART rows interlock.
template <int APART>
struct WgmmaStripRows {
  static_assert(APART == 1 || APART == 2 || APART == 4 || APART == 8, "classes of rows");
  static constexpr int kApart = APART;

  __host__ __device__ __forceinline__ static constexpr int first(int strip) {
    return strip / APART * (kStripRows * APART) + strip % APART;
  }
  // From a strip of a warp to the i-th of those that follow: every fourth is the same warp's.
  __host__ __device__ __forceinline__ static constexpr int after(int i) {
    return APART == 8 ? i / 2 * 128 + i % 2 * 4 : i * 64;
  }
};

// This thread's lane, asked for where it stands: addresses that follow from a known lane would be computed before the loop
// over tiles, and be kept in registers that accumulators need.
__device__ __forceinline__ int lane_here() {
  int lane;
  asm volatile("mov.u32 %0, %%laneid;\n" : "=r"(lane));
  return lane;
}

// A C that L2 cannot hold leaves it at once: the lines of a row, which are written one soon after the other, then reach the
// memory together, and operands stay. (On sm_90 L2 has 50 or 60 MB.)
template <class TOut>
__device__ __forceinline__ unsigned long long c_policy(int m, int n, int batch) {
  constexpr long long kMost = (64 << 20) / int(sizeof(TOut));
  return ptx::cache_policy((long long)m * n * batch > kMost);
}

// By TMA, for beta = 0 and rows of C that start at multiples of 16 bytes. The warp's part of shared memory is a ring of
// SLOTS panels of a strip by ROW_BYTES, swizzled as TMA reads them; a panel is written while others are on their way.
template <class TAcc, class TOut, bool OUT_BF16, int BLOCK_N, int ROW_BYTES, int SLOTS>
struct WgmmaTmaStore {
  static constexpr int kColumns = ROW_BYTES / int(sizeof(TOut));
  static constexpr int kPanels = BLOCK_N / kColumns;
  static constexpr int kSlotBytes = kStripRows * ROW_BYTES;
  static constexpr int kUnits = ROW_BYTES / 16;

  static_assert(sizeof(TOut) == 2 || sizeof(TOut) == 4, "16- and 32-bit outputs");

  // Writes the strip that begins at (row, column). `ring` is the warp's part of shared memory.
  __device__ __forceinline__ static void store(const GemmArguments& args, const TensorMap& map, unsigned ring,
                                               const TAcc* sum, TAcc alpha, int row, int column, int batch) {
    static_assert(BLOCK_N % kColumns == 0 && kPanels % SLOTS == 0, "whole panels, whole rounds of the ring");
    const int lane = lane_here();
    const unsigned place = ring + place_of(lane);
    const unsigned long long policy = c_policy<TOut>(args.m, args.n, args.batch);
#pragma unroll
    for (int panel = 0; panel < kPanels; ++panel) {
      constexpr int kSlot = kSlotBytes;
      if (lane == 0) ptx::tma_store_wait_read<SLOTS - 1>();
      __syncwarp();
      put<kColumns>(place, panel % SLOTS * kSlot, sum + panel * (kColumns / 2), alpha);
      ptx::fence_async_proxy();
      __syncwarp();
      if (lane == 0) {
        if (row < args.m && column + panel * kColumns < args.n) {
          ptx::tma_store(map, ring + panel % SLOTS * kSlot, column + panel * kColumns, row, batch, policy);
        }
        ptx::tma_store_commit();
      }
    }
  }

  // Before the block ends: shared memory must stay until it is read.
  __device__ __forceinline__ static void finish() {
    if (threadIdx.x % 32 == 0) ptx::tma_store_wait_read<0>();
  }

  // Address bits from 4 on are XORed with those from 7 on: the latter are the row's.
  __device__ __forceinline__ static unsigned swizzle_of(int row) { return unsigned(row * ROW_BYTES / 128 % kUnits) << 4; }

  // Where a lane writes its first elements of a slot: 16-bit ones by stmatrix, 32-bit ones of row lane / 4 in pairs.
  __device__ __forceinline__ static unsigned place_of(int lane) {
    const int row = sizeof(TOut) == 2 ? lane % 16 : lane / 4, at = sizeof(TOut) == 2 ? lane / 16 * 16 : lane % 4 * 8;
    return row * ROW_BYTES + (unsigned(at) ^ swizzle_of(row));
  }

  // COLUMNS of a panel. Units of 16 bytes lie apart by an XOR, slots by `offset`, and 8 rows by whole swizzles.
  template <int COLUMNS>
  __device__ __forceinline__ static void put(unsigned place, int offset, const TAcc* sum, TAcc alpha) {
    if constexpr (sizeof(TOut) == 2) {
#pragma unroll
      for (int column = 0; column < COLUMNS; column += 16) {
        const TAcc* const part = sum + column / 2;
        unsigned pairs[4] = {};  // of the last 8 columns, the other two go to a unit that nobody reads
#pragma unroll
        for (int i = 0; i < (column + 8 < COLUMNS ? 4 : 2); ++i) {
          pairs[i] = ptx::pack_pair<OUT_BF16>(alpha * part[2 * i], alpha * part[2 * i + 1]);
        }
        ptx::stmatrix_x4((place ^ unsigned(column * 2)) + offset, pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    } else {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
#pragma unroll
        for (int column = 0; column < COLUMNS; column += 8) {
          const TAcc* const pair = sum + column / 2 + 2 * half;
          const TOut low = TOut(alpha * pair[0]), high = TOut(alpha * pair[1]);
          const unsigned target = (place ^ unsigned(column * 4)) + offset + 8 * half * ROW_BYTES;
          ptx::store_shared(target, {reinterpret_cast<const unsigned&>(low), reinterpret_cast<const unsigned&>(high)});
        }
      }
    }
  }
};

// By ordinary accesses of 16 bytes, where TMA could write as well. C is in memory earlier: nobody waits for TMA to take
// notice, to read shared memory and to write. The warp's part of shared memory is as for TMA, but the last panel may reach
// beyond the tile.
template <class TmaStore, class TAcc, class TOut, int BLOCK_N, int ROW_BYTES, int SLOTS, class Rows = WgmmaStripRows<1>>
struct WgmmaDirectStore {
  static constexpr int kColumns = ROW_BYTES / int(sizeof(TOut)), kPanels = cdiv(BLOCK_N, kColumns);
  static constexpr int kUnits = ROW_BYTES / 16, kWidth = 16 / int(sizeof(TOut));  // of a row; columns of one
  static constexpr int kRowsAtOnce = 32 / kUnits, kTimes = kStripRows / kRowsAtOnce;

  static_assert(kPanels % SLOTS == 0, "whole rounds of the ring");

  // Writes the strip that begins at (row, column). `ring` is the warp's part of shared memory.
  __device__ __forceinline__ static void store(const GemmArguments& args, unsigned ring, const TAcc* sum, TAcc alpha,
                                               int row, int column, int batch) {
    const unsigned lane = unsigned(lane_here()), own_row = lane / kUnits, unit = lane % kUnits;
    const bool whole = row + (kStripRows - 1) * Rows::kApart + 1 <= args.m && column + BLOCK_N <= args.n;
    TOut* const target = static_cast<TOut*>(args.c) + batch * args.stride_c + (row + int(own_row) * Rows::kApart) * args.ldc + column +
                         int(unit) * kWidth;
#pragma unroll
    for (int first = 0; first < kPanels; first += SLOTS) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < SLOTS; ++i) {
        put(ring + TmaStore::place_of(int(lane)), i * TmaStore::kSlotBytes, sum, first + i, alpha);
      }
      __syncwarp();
      if (whole) {
#pragma unroll
        for (int i = 0; i < SLOTS; ++i) {
          unsigned words[kTimes][4];
#pragma unroll
          for (int at = 0; at < kTimes; ++at) ptx::load_shared(words[at], staged(ring, i, own_row, unit, at));
#pragma unroll
          for (int at = 0; at < kTimes; ++at) {
            if (BLOCK_N % kColumns != 0 && int(unit) * kWidth >= BLOCK_N - (first + i) * kColumns) continue;
            ptx::store_global(target + at * kRowsAtOnce * Rows::kApart * args.ldc + (first + i) * kColumns, words[at]);
          }
        }
      } else {
        const int rows = args.m - row - int(own_row) * Rows::kApart;
        const int of_tile = BLOCK_N % kColumns == 0 ? args.n - column : min_of(args.n - column, BLOCK_N);
        const int columns = of_tile - int(unit) * kWidth - first * kColumns;
#pragma unroll 1
        for (int at = 0; at < SLOTS * kTimes; ++at) {
          const int i = at / kTimes, down = at % kTimes * kRowsAtOnce * Rows::kApart;
          if (down >= rows) continue;
          unsigned words[4];
          ptx::load_shared(words, staged(ring, i, own_row, unit, at % kTimes));
          write(target + down * args.ldc + (first + i) * kColumns, words, columns - i * kColumns);
        }
      }
    }
  }

 private:
  __device__ __forceinline__ static void put(unsigned place, int offset, const TAcc* sum, int panel, TAcc alpha) {
    if (panel + 1 < kPanels) {
      TmaStore::template put<kColumns>(place, offset, sum + panel * (kColumns / 2), alpha);
    } else {
      TmaStore::template put<BLOCK_N - (kPanels - 1) * kColumns>(place, offset, sum + (kPanels - 1) * (kColumns / 2), alpha);
    }
  }

  __device__ __forceinline__ static unsigned staged(unsigned ring, int slot, unsigned own_row, unsigned unit, int at) {
    const unsigned row = own_row + at * kRowsAtOnce;
    return ring + slot * TmaStore::kSlotBytes + row * ROW_BYTES + (unit * 16 ^ TmaStore::swizzle_of(int(row)));
  }

  // 16 bytes, of which `valid` columns lie inside C.
  __device__ __forceinline__ static void write(TOut* target, const unsigned (&words)[4], int valid) {
    if (valid >= kWidth) {
      ptx::store_global(target, words);
      return;
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      if (i < valid) target[i] = reinterpret_cast<const TOut*>(words)[i];
    }
  }
};

// By ordinary accesses, whatever beta and the alignment. STRIPS strips pass through shared memory as
// accumulators, COLUMNS at a time, so that neighbouring lanes write neighbouring elements.
template <class TAcc, int STRIPS, int BLOCK_N, int COLUMNS, int REGISTERS, class Rows = WgmmaStripRows<1>>
struct WgmmaRowStore {
  static constexpr int kPieces = cdiv(BLOCK_N, COLUMNS);
  // Accesses of a lane that wait for each other: as many as there are REGISTERS for besides the accumulators.
  static constexpr int kAtOnce = REGISTERS >= 120 ? 4 : REGISTERS >= 112 ? 3 : REGISTERS >= 64 ? 2 : 1;

  static_assert(COLUMNS % 8 == 0 && BLOCK_N % 8 == 0, "whole fragments");

  // Writes the strips from (row, column) on. `staged` is the warp's part of shared memory. What is unrolled here is the
  // choice of accumulators only: it compiles quickly.
  template <class Target>
  __device__ __forceinline__ static void store(const Target& output, TAcc* staged,
                                               const TAcc (&sum)[STRIPS][BLOCK_N / 2], int row, int column) {
#pragma unroll 1
    for (int number = 0; number < STRIPS * kPieces; ++number) {
      __syncwarp();
#pragma unroll
      for (int i = 0; i < STRIPS * kPieces; ++i) {
        if (i == number) put(staged, sum[i / kPieces] + i % kPieces * (COLUMNS / 2), columns_of(i % kPieces));
      }
      __syncwarp();
      const int piece = number % kPieces, first_row = row + Rows::after(number / kPieces), first = column + piece * COLUMNS;
      write(output, staged, first_row, first, min_of(kStripRows, cdiv(output.m - first_row, Rows::kApart)),
            min_of(columns_of(piece), output.n - first));
    }
  }

 private:
  __device__ __forceinline__ static constexpr int columns_of(int piece) {
    return piece + 1 < kPieces ? COLUMNS : BLOCK_N - (kPieces - 1) * COLUMNS;
  }

  // Units of 16 bytes change places, so that the four rows that half a warp writes lie in different banks.
  __device__ __forceinline__ static int place(int row, int column) {
    return row * COLUMNS + (COLUMNS % 32 == 0 ? column ^ ((row & 3) << 3) : column);
  }

  __device__ __forceinline__ static void put(TAcc* staged, const TAcc* sum, int columns) {
    const int lane = lane_here();
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

  // Lanes walk the groups of the strip row by row. Where rows of C begin at odd elements, so that no two of them lie in
  // one word for sure, they walk pairs that begin where words do: one element early in every other row.
  template <class Target>
  __device__ __forceinline__ static void write(const Target& output, const TAcc* staged, int row, int column, int rows,
                                               int width) {
    using TOut = typename Target::Element;
    constexpr bool kPairs = Target::kWidest == 1 && sizeof(TOut) == 2;
    constexpr int kWidth = kPairs ? 2 : min_of(4, Target::kWidest), kGroups = COLUMNS / kWidth;
    const int end = width > 0 ? rows * kGroups : 0;
#pragma unroll 1
    for (int group = lane_here(); group < end; group += 32 * kAtOnce) {
      Vector<TAcc, kWidth> values[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at_row = (group + 32 * i) / kGroups, at = (group + 32 * i) % kGroups * kWidth;
        if (at_row >= rows) continue;
        if constexpr (kPairs) {
          const int shift = shift_of(output.at(row + at_row * Rows::kApart, column));
          values[i].at[0] = staged[place(at_row, max_of(at - shift, 0))];
          values[i].at[1] = staged[place(at_row, at - shift + 1)];
        } else {
          values[i] = *reinterpret_cast<const Vector<TAcc, kWidth>*>(staged + place(at_row, at));
        }
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int at_row = (group + 32 * i) / kGroups, at = (group + 32 * i) % kGroups * kWidth;
        if (at_row >= rows || at >= width + 1) continue;
        TOut* const target = output.at(row + at_row * Rows::kApart, column);
        if constexpr (kPairs) {
          const int shift = shift_of(target);
          write_pair(output, target, at - shift, values[i].at, width);
          // The pair before the row's first element leaves one over at the end.
          if (at < shift && width == COLUMNS) output.write(target + width - 1, staged[place(at_row, width - 1)]);
        } else {
          output.template write_group<kWidth>(target + at, values[i].at, width - at);
        }
      }
    }
  }

  template <class TOut>
  __device__ __forceinline__ static int shift_of(const TOut* target) {
    return int(reinterpret_cast<unsigned long long>(target) / sizeof(TOut) % 2);
  }

  // Elements `at` and `at + 1` of a row of `width`, of which one may lie outside; they share a word.
  template <class Target>
  __device__ __forceinline__ static void write_pair(const Target& output, typename Target::Element* target, int at,
                                                    const TAcc* values, int width) {
    using Word = Vector<typename Target::Element, 2>;
    if (at >= 0 && at + 1 < width) {
      Word* const word = reinterpret_cast<Word*>(target + at);
      Word pair;
      if (output.reads()) pair = *word;
      pair.at[0] = output.result(values[0], &pair.at[0]);
      pair.at[1] = output.result(values[1], &pair.at[1]);
      *word = pair;
    } else if (at >= 0) {
      if (at < width) output.write(target + at, values[0]);
    } else {
      output.write(target, values[1]);
    }
  }
};

}  // namespace kt
