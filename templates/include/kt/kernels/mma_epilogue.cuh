// From the sums in registers to memory.
//
// A thread's sums are pairs of neighbouring columns of rows 8 apart. The block passes 16 rows of each warp (a strip),
// and as many strips at a time as there is room for, through shared memory, from which it writes rows of the tile:
// neighbouring lanes write neighbouring accesses of 16 bytes. Wherever a row begins in memory, these accesses are
// aligned: the row lies in the strip as far from a multiple of 16 bytes as it does in memory. Only what is left at its
// two ends is written element by element.

namespace kt {

// The strip: ROWS rows of COLUMNS sums, kept as T. A thread has `2 * SPREAD` neighbouring columns; of elements that
// begin anywhere it may write SHIFT at once (0: as many as it has). Rows are padded so that a warp's writes meet the
// banks evenly.
template <class T, int ROWS, int COLUMNS, int SPREAD, int SHIFT>
struct EpilogueStrip {
  using Element = T;
  static constexpr int kRows = ROWS;
  static constexpr int kTogether = 2 * SPREAD;
  static constexpr int kVector = min_of(min_of(kTogether, SHIFT ? SHIFT : kTogether), 16 / int(sizeof(T)));
  static constexpr int kRowBytes = COLUMNS * int(sizeof(T)) + (SHIFT ? 16 : 0);
  // The rows that one wavefront of 128 bytes holds follow each other in the banks, or interleave.
  static constexpr int kStep = kVector == kTogether ? 4 * kVector * int(sizeof(T)) % 128 : 16;
  static constexpr int kPitch = kRowBytes + (128 + kStep - kRowBytes % 128) % 128;
  static constexpr int kBytes = ROWS * kPitch;
  static_assert(kPitch % 16 == 0, "rows are read in whole accesses");
};

// Writes the tile of `Sums` at (block_m, block_n) of `Output`. DIRECT: the strip holds finished results, else sums.
template <class Sums, class Output, bool DIRECT>
struct TileWriter {
  using TAcc = typename Sums::TAcc;
  using TOut = typename Output::Element;
  using TStage = typename Select<DIRECT, TOut, TAcc>::type;
  static constexpr int kWindow = 16 / int(max_of(sizeof(TStage), sizeof(TOut)));  // elements of an access
  static constexpr bool kShifted = Output::kWidest < kWindow;
  using Strip =
      EpilogueStrip<TStage, Sums::kWarpsM * 16, Sums::BLOCK_N, Sums::kSpreadN, kShifted ? Output::kWidest : 0>;
  // Strips at a time: all of them, or a power of two.
  static constexpr int kAtOnce = floor_power_of_two(max_of(1, min_of(Sums::kStrips, Sums::kRoom / Strip::kBytes)));
  static constexpr int kRows = kAtOnce * Strip::kRows;
  using Access = Vector<TOut, kWindow>;
  using Words = unsigned[sizeof(Access) / 4];

  const Output& output;
  int block_m, block_n;
  unsigned char* shared;

  // A row of the tile as it lies in the strip: its elements are `begin` ... `end` - 1 behind a multiple of 16 bytes.
  struct Row {
    TOut* aligned;
    const TStage* staged;
    int begin, end;
  };

  __device__ __forceinline__ static int shift_of(const TOut* start) {
    return kShifted ? int(reinterpret_cast<unsigned long long>(start) / sizeof(TOut) % kWindow) : 0;
  }

  // The place in shared memory of row `index` of a strip.
  __device__ __forceinline__ unsigned char* place(int strip, int index) const {
    return shared + (strip % kAtOnce * Strip::kRows + index) * Strip::kPitch;
  }

  // Row `index` of the strips from `strip` on; false if there is no such row.
  __device__ __forceinline__ bool find(const Sums& sums, int strip, int index, Row& row) const {
    const int m = block_m + sums.row_of(strip + index / Strip::kRows, index % Strip::kRows);
    TOut* const start = output.at(m, block_n);
    row.begin = shift_of(start);
    row.end = row.begin + min_of(Sums::BLOCK_N, output.n - block_n);
    row.aligned = start - row.begin;
    row.staged = reinterpret_cast<const TStage*>(shared + index * Strip::kPitch);
    return m < output.m;
  }

  __device__ __forceinline__ TStage staged(TAcc sum) const {
    if constexpr (DIRECT) {
      return convert<TOut>(output.alpha * sum);
    } else {
      return sum;
    }
  }

  __device__ __forceinline__ void write_access(TOut* target, const TStage* from) const {
    const auto group = *reinterpret_cast<const Vector<TStage, kWindow>*>(from);
    Access out;
    if constexpr (DIRECT) {
      out = group;
    } else {
      if (output.reads()) out = *reinterpret_cast<const Access*>(target);
#pragma unroll
      for (int i = 0; i < kWindow; ++i) out.at[i] = output.result(group.at[i], &out.at[i]);
    }
    ptx::store_global(target, reinterpret_cast<const Words&>(out));
  }

  __device__ __forceinline__ void write_element(TOut* target, const TStage* from) const {
    if constexpr (DIRECT) {
      *target = *from;
    } else {
      output.write(target, *from);
    }
  }

  __device__ __forceinline__ void write_accesses(const Sums& sums, int strip) const {
    constexpr int kAccesses = Sums::BLOCK_N / kWindow;
#pragma unroll 4
    for (int item = ptx::thread_index(); item < kRows * kAccesses; item += Sums::kThreads) {
      Row row;
      const int first = item % kAccesses * kWindow;
      if (find(sums, strip, item / kAccesses, row) && first >= row.begin && first + kWindow <= row.end) {
        write_access(row.aligned + first, row.staged + first);
      }
    }
  }

  // The elements before the first and behind the last whole access of each row.
  __device__ __forceinline__ void write_ends(const Sums& sums, int strip) const {
#pragma unroll 1
    for (int item = ptx::thread_index(); item < kRows * 2; item += Sums::kThreads) {
      Row row;
      if (!find(sums, strip, item / 2, row)) continue;
      const int last = row.end / kWindow * kWindow;
      const bool head = item % 2 == 0, whole = head && row.begin == 0 && row.end >= kWindow;
      const int from = head ? row.begin : max_of(last, kWindow);
      const int to = whole ? 0 : head ? min_of(row.end, kWindow) : row.end;
#pragma unroll 1
      for (int i = from; i < to; ++i) write_element(row.aligned + i, row.staged + i);
    }
  }

  // Where not all strips fit at once, the loop over them is not unrolled: it costs little to compile.
  __device__ __forceinline__ void write(const Sums& sums) const {
#pragma unroll 1
    for (int strip = 0; strip < Sums::kStrips; strip += kAtOnce) {
      if (strip > 0) __syncthreads();  // others may still read the strips before
      if constexpr (kAtOnce == Sums::kStrips) {
        sums.put_all(*this);
      } else {
#pragma unroll 1
        for (int i = 0; i < kAtOnce; ++i) sums.put(strip + i, *this);
      }
      __syncthreads();
      write_accesses(sums, strip);
      if constexpr (kShifted) write_ends(sums, strip);
    }
  }
};

// fp64: C goes from registers to memory without a detour; shared memory is free meanwhile for copies of the next tile.
// Rows of C are aligned to 16 bytes and consist of whole ones.
template <class Sums, class Output>
struct DirectWriter {
  static_assert(Sums::kSpreadN == 1 && Output::kWidest >= 2 && sizeof(typename Output::Element) == 8);
  static_assert(Sums::kOctets % 2 == 0, "a line is two octets wide");
  static constexpr int kHalves = 2 * Sums::kStrips;  // of the strips of 16 rows: 8 rows each

  const Output& output;
  int block_m, block_n;
  int lane, strip_row, first;  // its warp's first row of a strip, and first column

  __device__ __forceinline__ DirectWriter(const Output& output, int block_m, int block_n)
      : output(output), block_m(block_m), block_n(block_n), lane(ptx::thread_index() % 32) {
    const int warp = ptx::thread_index() / 32;
    strip_row = warp / Sums::kWarpsN * 16;
    first = block_n + warp % Sums::kWarpsN * (Sums::kOctets * 8);
  }

  __device__ __forceinline__ int row_of(const Sums& sums, int half, int index) const {
    return block_m + sums.row_of(half / 2, strip_row + half % 2 * 8 + index);
  }

  __device__ __forceinline__ double2 result(const Sums& sums, int half, int octet, double2 before) const {
    const auto& at = sums.at[half / 2][octet];
    return {output.result(at[half % 2 * 2], &before.x), output.result(at[half % 2 * 2 + 1], &before.y)};
  }

  // Four lanes hold 64 bytes of a row, and lanes beside them those of the row below: whole sectors.
  __device__ __forceinline__ void write_sectors(const Sums& sums) const {
    const int column = first + lane % 4 * 2;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      const int row = row_of(sums, half, lane / 4);
      if (row >= output.m) continue;
      double* const start = output.at(row, column);
#pragma unroll
      for (int octet = 0; octet < Sums::kOctets; ++octet) {
        if (column + octet * 8 >= output.n) continue;
        double* const target = start + octet * 8;
        double2 before = {0, 0};
        if (output.reads()) before = *reinterpret_cast<const double2*>(target);
        const double2 now = result(sums, half, octet, before);
        ptx::store_global(target, now.x, now.y);
      }
    }
  }

  // The same lanes exchange what they hold of two octets, so that eight write 128 bytes of a row: whole lines. For tiles
  // that lie inside of a C that is not read.
  __device__ __forceinline__ void write_lines(const Sums& sums) const {
    const bool below = lane & 4;
    const int column = first + lane % 8 * 2;
#pragma unroll
    for (int half = 0; half < kHalves; ++half) {
      double* const upper = output.at(row_of(sums, half, lane / 8 * 2), column);
      double* const lower = output.at(row_of(sums, half, lane / 8 * 2 + 1), column);
#pragma unroll
      for (int octet = 0; octet < Sums::kOctets; octet += 2) {
        const double2 left = result(sums, half, octet, {0, 0}), right = result(sums, half, octet + 1, {0, 0});
        const double2 sent = {below ? left.x : right.x, below ? left.y : right.y};
        const double2 got = {__shfl_xor_sync(~0u, sent.x, 4), __shfl_xor_sync(~0u, sent.y, 4)};
        ptx::store_global(upper + octet * 8, below ? got.x : left.x, below ? got.y : left.y);
        ptx::store_global(lower + octet * 8, below ? right.x : got.x, below ? right.y : got.y);
      }
    }
  }

  __device__ __forceinline__ void write(const Sums& sums) const {
    const bool whole = output.m - block_m >= Sums::kWarpsM * Sums::kStrips * 16 && output.n - block_n >= Sums::BLOCK_N;
    if (whole && !output.reads()) {
      write_lines(sums);
    } else {
      write_sectors(sums);
    }
  }
};

// Results of 2 bytes are finished before they go through the strip, unless C must be read.
template <class Sums, class Output>
__device__ __forceinline__ void write_sums(const Sums& sums, const Output& output, int block_m, int block_n,
                                           unsigned char* shared) {
  if constexpr (Sums::kDirect) {
    DirectWriter<Sums, Output>(output, block_m, block_n).write(sums);
    return;
  }
  if constexpr (sizeof(typename Output::Element) < sizeof(typename Sums::TAcc)) {
    if (!output.reads()) {
      TileWriter<Sums, Output, true>{output, block_m, block_n, shared}.write(sums);
      return;
    }
  }
  TileWriter<Sums, Output, false>{output, block_m, block_n, shared}.write(sums);
}

}  // namespace kt
