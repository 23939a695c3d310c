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
//
// The loop counts addresses in shared memory in 32 bits and reads by instructions that it names. With pointers, NVRTC counts
// in 64 bits and nvcc in 32: the compilers then order registers differently, and an exported kernel differs from the measured
// one by up to 8% of its time.

namespace kt {

// Operands that lie along k are turned in registers where a thread needs no more of these and tiles have two buffers, else on
// their way by cp.async. Loads to registers run one step ahead: who asks for more stages wants copies that run further.
constexpr int kTurnedWords = 32;

// The tile of one operand, MN (m or n) by k, on its way from global to shared memory.
//
// Global memory has it in rows along mn, or along k if K_CONTIGUOUS; it is stored as [k][mn] either way, a K_CONTIGUOUS
// one turned round element by element. (Keeping its order and reading it along k was slower: docs/perf-log.md.)
// The tile is cut into units of `kWidth` neighbouring elements. Unit u = lane + kLanes * (row + kRows * chunk) is moved
// by thread u % THREADS in pass u / THREADS. All extents are powers of two, so the bits of the thread and of the pass
// do not mix: every pass is the thread's first unit plus a constant.
template <class T, class TShared, int BLOCK_MN, int BLOCK_K, bool K_CONTIGUOUS, int LOAD_BYTES, int THREADS>
struct OperandTile {
  static constexpr int kGroup = 16 / int(sizeof(TShared));  // elements in 16 bytes of shared memory
  static constexpr int kRows = K_CONTIGUOUS ? BLOCK_MN : BLOCK_K;
  static constexpr int kColumns = K_CONTIGUOUS ? BLOCK_K : BLOCK_MN;
  static constexpr int kWidth = K_CONTIGUOUS ? 1 : min_of(kColumns, LOAD_BYTES / int(sizeof(T)));
  // Rows of a turned tile are padded by 16 bytes: the writes of a warp, 8 k by 4 mn, then hit all banks once.
  static constexpr int kPad = K_CONTIGUOUS ? kGroup : 0;
  static constexpr int kPitch = BLOCK_MN + kPad;
  static constexpr int kElements = kPitch * BLOCK_K;

  // Threads side by side along a row: all of it, or a 32-byte sector of fp32 where the tile is turned.
  static constexpr int kLanes = K_CONTIGUOUS ? min_of(kColumns, 8) : kColumns / kWidth;
  static constexpr int kChunks = K_CONTIGUOUS ? kColumns / kLanes : 1;
  static constexpr int kUnits = kLanes * kRows * kChunks;
  static constexpr int kPasses = cdiv(kUnits, THREADS);
  static constexpr int kColumnPasses =
      K_CONTIGUOUS ? min_of(kPasses, max_of(1, kUnits / max_of(THREADS, kLanes * kRows))) : max_of(1, kLanes / THREADS);
  static constexpr int kRowPasses = kPasses / kColumnPasses;
  static constexpr int kRowStep = max_of(1, THREADS / kLanes);  // rows between row passes
  static constexpr int kColumnStep = K_CONTIGUOUS ? kLanes * max_of(1, THREADS / (kLanes * kRows)) : THREADS * kWidth;

  static_assert((BLOCK_MN & (BLOCK_MN - 1)) == 0 && (BLOCK_K & (BLOCK_K - 1)) == 0, "tiles are powers of two");
  static_assert((THREADS & (THREADS - 1)) == 0, "the number of threads is a power of two");
  static_assert(kRowPasses * kColumnPasses == kPasses, "passes form a rectangle");

  const T* cursor;     // this thread's first element of the tile that is copied next
  long long row_step;  // elements between row passes
  long long advance;   // elements between tiles
  int k;               // this thread's first k in the tile that is copied next; negative before the operand
  int mn_left;         // elements along mn from this thread's first one to the end of the problem
  int offset;          // this thread's first element in shared memory

  // `base` is the element (mn = 0, k = 0) of this batch, `pitch` the elements between its rows.
  __device__ __forceinline__ OperandTile(const T* base, long long pitch, int first_mn, int extent, int first_k) {
    const int lane = int(threadIdx.x) % kLanes, row = int(threadIdx.x) / kLanes % kRows;
    const int column = K_CONTIGUOUS ? lane + int(threadIdx.x) / (kLanes * kRows) * kLanes : lane * kWidth;
    const int mn = K_CONTIGUOUS ? row : column;
    k = first_k + (K_CONTIGUOUS ? column : row);
    mn_left = extent - (first_mn + mn);
    offset = shared_at(row, column);
    const long long global_row = K_CONTIGUOUS ? first_mn + row : k;
    cursor = base + (global_row * pitch + (K_CONTIGUOUS ? k : first_mn + column));
    row_step = kRowStep * pitch;
    advance = K_CONTIGUOUS ? (long long)BLOCK_K : BLOCK_K * pitch;
  }

  static constexpr __device__ int shared_at(int row, int column) {
    return K_CONTIGUOUS ? column * kPitch + row : row * kPitch + column;
  }
  static constexpr __device__ int shared_of(int row_pass, int column_pass) {
    return shared_at(row_pass * kRowStep, column_pass * kColumnStep);
  }

  __device__ __forceinline__ static bool active() { return kUnits >= THREADS || int(threadIdx.x) < kUnits; }

  // Whether a pass lies inside the operand: rows consist of whole units, and only the first tile begins before k = 0.
  template <bool FIRST>
  __device__ __forceinline__ bool valid(int row_pass, int column_pass) const {
    const int row = row_pass * kRowStep, column = column_pass * kColumnStep;
    return (K_CONTIGUOUS ? row : column) < mn_left && (!FIRST || k + (K_CONTIGUOUS ? column : row) >= 0);
  }

  __device__ __forceinline__ void next() {
    cursor += advance;
    k += BLOCK_K;
  }

  // Starts the copies of the next tile to the address `shared`; elements outside the operand become zero.
  template <bool FIRST>
  __device__ __forceinline__ void copy_async(unsigned shared) {
    constexpr int kBytes = kWidth * int(sizeof(T));
    if (active()) {
      const unsigned target = shared + unsigned(offset) * unsigned(sizeof(TShared));
      const T* source = cursor;
#pragma unroll
      for (int row = 0; row < kRowPasses; ++row) {
#pragma unroll
        for (int column = 0; column < kColumnPasses; ++column) {
          ptx::cp_async_zfill<kBytes>(target + shared_of(row, column) * int(sizeof(T)), source + column * kColumnStep,
                                      valid<FIRST>(row, column));
        }
        source += row_step;
      }
    }
    next();
  }

  // The same in two halves, through registers: for elements that need a conversion, and before sm_80.
  using Staged = Vector<T, kWidth>[kRowPasses][kColumnPasses];

  template <bool FIRST>
  __device__ __forceinline__ void fetch(Staged& staged) {
    const T* source = cursor;
#pragma unroll
    for (int row = 0; row < kRowPasses; ++row) {
#pragma unroll
      for (int column = 0; column < kColumnPasses; ++column) {
        if (active() && valid<FIRST>(row, column)) {
          staged[row][column] = *reinterpret_cast<const Vector<T, kWidth>*>(source + column * kColumnStep);
        } else {
#pragma unroll
          for (int i = 0; i < kWidth; ++i) staged[row][column].at[i] = convert<T>(0.0f);
        }
      }
      source += row_step;
    }
    next();
  }

  __device__ __forceinline__ void commit(const Staged& staged, TShared* shared) const {
    constexpr int kStore = min_of(kWidth, kGroup);
    if (!active()) return;
#pragma unroll
    for (int row = 0; row < kRowPasses; ++row) {
#pragma unroll
      for (int column = 0; column < kColumnPasses; ++column) {
#pragma unroll
        for (int i = 0; i < kWidth; i += kStore) {
          Vector<TShared, kStore> group;
#pragma unroll
          for (int j = 0; j < kStore; ++j) group.at[j] = convert<TShared>(staged[row][column].at[i + j]);
          *reinterpret_cast<Vector<TShared, kStore>*>(shared + offset + shared_of(row, column) + i) = group;
        }
      }
    }
  }
};

// In which order a thread multiplies its fragments. It decides how often the register file's operand cache hits: the
// outer index holds one operand still, and the inner one turns back at each end so that the other is kept as well.
enum FmaOrder { kRowsOuter, kColumnsOuter };

// Calls `multiply(i, j)` for every i < M and j < N.
template <FmaOrder ORDER, int M, int N, class Multiply>
__device__ __forceinline__ void for_each_product(const Multiply& multiply) {
  constexpr int kInner = ORDER == kColumnsOuter ? M : N, kOuter = ORDER == kColumnsOuter ? N : M;
#pragma unroll
  for (int outer = 0; outer < kOuter; ++outer) {
#pragma unroll
    for (int step = 0; step < kInner; ++step) {
      const int inner = outer % 2 ? kInner - 1 - step : step;
      if constexpr (ORDER == kColumnsOuter) {
        multiply(inner, outer);
      } else {
        multiply(outer, inner);
      }
    }
  }
}

// Registers of a thread for its part of a tile of an operand that is turned; tiles of few rows count as too many.
template <class T>
__host__ __device__ constexpr int turned_words(bool turned, int block_mn, int block_k, int threads) {
  if (!turned) return 0;
  return block_mn < 8 ? kTurnedWords + 1 : max_of(4, cdiv(block_mn * block_k * int(sizeof(T)) / 4, threads));
}

// Columns of a tile in shared memory: of 48 and 96 the next power of two, so that passes of copies do not mix bits. What
// lies beyond the block's own columns arrives as zeros, or as the next block's, and is not read.
__host__ __device__ constexpr int span_of(int columns) { return columns % 3 ? columns : columns / 3 * 4; }

template <class TIn_, class TAcc_, class TOut_, int BLOCK_M_, int BLOCK_N_, int BLOCK_K_, int THREAD_M_, int THREAD_N_,
          int LANES_M_, int SLICES_, int STAGES_, int UNROLL_, FmaOrder ORDER_, bool A_K_CONTIGUOUS_,
          bool B_K_CONTIGUOUS_, bool STREAM_K_, bool PACK_A_, bool PACK_B_, int LOAD_A_, int LOAD_B_, int STORE_,
          bool ASYNC_>
struct SimtTraits {
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  using TShared = typename Select<ASYNC_, TIn_, TAcc_>::type;
  static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, BLOCK_K = BLOCK_K_;
  static constexpr int THREAD_M = THREAD_M_, THREAD_N = THREAD_N_, LANES_M = LANES_M_, LANES_N = 32 / LANES_M_;
  static constexpr int SLICES = SLICES_, STAGES = STAGES_, UNROLL = UNROLL_, STORE = STORE_;
  static constexpr FmaOrder ORDER = ORDER_;
  static constexpr bool ASYNC = ASYNC_, PACK_A = PACK_A_, PACK_B = PACK_B_, STREAM_K = STREAM_K_;
  using Space = Workspace<TIn, PACK_A, PACK_B>;
  static constexpr int kSliceThreads = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N);  // that hold a tile of C together
  static constexpr int kThreads = SLICES * kSliceThreads;
  static constexpr int kSliceK = BLOCK_K / SLICES;  // of each step of k
  static constexpr int kWarpsN = BLOCK_N / (LANES_N * THREAD_N);
  static constexpr int kSpanN = span_of(BLOCK_N);
  static constexpr int kGroup = 16 / int(sizeof(TShared));  // elements of a 16-byte access to shared memory
  static constexpr int kGroupM = min_of(THREAD_M, kGroup), kGroupN = min_of(THREAD_N, kGroup);

  // Registers in which a thread holds its part of a turned tile.
  static constexpr int kWordsA = turned_words<TIn>(A_K_CONTIGUOUS_ && !PACK_A, BLOCK_M, BLOCK_K, kThreads);
  static constexpr int kWordsB = turned_words<TIn>(B_K_CONTIGUOUS_ && !PACK_B, kSpanN, BLOCK_K, kThreads);
  static constexpr bool kRegisters = ASYNC && STAGES == 2 && kWordsA + kWordsB <= kTurnedWords;
  static constexpr bool kTurnsA = kRegisters && kWordsA > 0, kTurnsB = kRegisters && kWordsB > 0;
  using TurnedA = typename Select<kTurnsA, TurnedTile<TIn, BLOCK_M, BLOCK_K, LOAD_A_, kThreads, 0>, NotTurned>::type;
  using TurnedB = typename Select<kTurnsB, TurnedTile<TIn, kSpanN, BLOCK_K, LOAD_B_, kThreads, TurnedA::kUnits % kThreads>,
                                  NotTurned>::type;
  using TileA = typename Select<kTurnsA, TurnedA, OperandTile<TIn, TShared, BLOCK_M, BLOCK_K, A_K_CONTIGUOUS_ && !PACK_A,
                                                              PACK_A ? 16 : LOAD_A_, kThreads>>::type;
  using TileB = typename Select<kTurnsB, TurnedB, OperandTile<TIn, TShared, kSpanN, BLOCK_K, B_K_CONTIGUOUS_ && !PACK_B,
                                                              PACK_B ? 16 : LOAD_B_, kThreads>>::type;
  static constexpr int kStageElements = TileA::kElements + TileB::kElements;
  static constexpr int kTileABytes = TileA::kElements * int(sizeof(TShared));
  static constexpr int kStageBytes = kStageElements * int(sizeof(TShared));
  static constexpr int kTileBytes = BLOCK_M * BLOCK_N * int(sizeof(TAcc));  // of C
  // Sums of half of the slices, and rows of C on their way out, lie where the stages were.
  static constexpr int kSumsBytes = max_of(SLICES / 2 * kTileBytes, THREAD_N * kSliceThreads * int(sizeof(TAcc)));
  static constexpr int kRingBytes = max_of(STAGES * kStageBytes, kSumsBytes);

  static_assert(kSliceThreads % 32 == 0 && kThreads <= 1024, "slices have whole warps, a block at most 1024 threads");
  static_assert((SLICES & (SLICES - 1)) == 0, "the number of slices is a power of two");
  static_assert(BLOCK_M % (LANES_M * THREAD_M) == 0 && BLOCK_N % (LANES_N * THREAD_N) == 0, "warps tile the block");
  static_assert(THREAD_M % kGroupM == 0 && THREAD_N % kGroupN == 0, "thread tiles are whole groups");
  static_assert(!ASYNC || is_same<TIn, TShared>, "cp.async cannot convert");
  static_assert(ASYNC || STAGES == 2, "copies through registers use two buffers");
  static_assert(UNROLL % 4 == 0 && kSliceK % UNROLL == 0, "two register fragments alternate");
};

template <class Traits>
struct SimtAccumulator {
  using TAcc = typename Traits::TAcc;
  using TShared = typename Traits::TShared;
  static constexpr int kBytes = int(sizeof(TShared));
  TAcc at[Traits::THREAD_M][Traits::THREAD_N];
  int m, n;  // first element of this thread inside the block tile

  __device__ __forceinline__ static int slice() { return Traits::SLICES == 1 ? 0 : int(threadIdx.x) / Traits::kSliceThreads; }
  __device__ __forceinline__ static int thread() {  // of the slice
    return Traits::SLICES == 1 ? int(threadIdx.x) : int(threadIdx.x) % Traits::kSliceThreads;
  }

  __device__ __forceinline__ SimtAccumulator() {
    const int warp = thread() / 32, lane = thread() % 32;
    m = warp / Traits::kWarpsN * (Traits::LANES_M * Traits::THREAD_M) + lane / Traits::LANES_N * Traits::kGroupM;
    n = warp % Traits::kWarpsN * (Traits::LANES_N * Traits::THREAD_N) + lane % Traits::LANES_N * Traits::kGroupN;
  }

  // Offset of element i from the thread's first, along m or n.
  __device__ __forceinline__ static constexpr int offset_m(int i) {
    return i / Traits::kGroupM * (Traits::kGroupM * Traits::LANES_M) + i % Traits::kGroupM;
  }
  __device__ __forceinline__ static constexpr int offset_n(int j) {
    return j / Traits::kGroupN * (Traits::kGroupN * Traits::LANES_N) + j % Traits::kGroupN;
  }

  template <int COUNT, int GROUP, int LANES>
  __device__ __forceinline__ static void read(TAcc (&fragment)[COUNT], unsigned shared) {
#pragma unroll
    for (int i = 0; i < COUNT; i += GROUP) {
      TShared group[GROUP];
      ptx::load_shared(group, shared + unsigned(i * LANES * int(sizeof(TShared))));
#pragma unroll
      for (int j = 0; j < GROUP; ++j) fragment[i + j] = convert<TAcc>(group[j]);
    }
  }

  // `a` and `b` are the addresses of this thread's first elements.
  __device__ __forceinline__ static void read_a(TAcc (&fragment)[Traits::THREAD_M], unsigned a, int k) {
    if constexpr (Traits::kTurnsA) a += unsigned(Traits::TileA::padding_of_k(k) * kBytes);
    read<Traits::THREAD_M, Traits::kGroupM, Traits::LANES_M>(fragment, a + unsigned(k * Traits::TileA::kPitch * kBytes));
  }
  __device__ __forceinline__ static void read_b(TAcc (&fragment)[Traits::THREAD_N], unsigned b, int k) {
    if constexpr (Traits::kTurnsB) b += unsigned(Traits::TileB::padding_of_k(k) * kBytes);
    read<Traits::THREAD_N, Traits::kGroupN, Traits::LANES_N>(fragment, b + unsigned(k * Traits::TileB::kPitch * kBytes));
  }

  // Adds the product of this slice of the stage at the address `stage`. The fragments of the next k are read while the
  // present ones are multiplied.
  __device__ __forceinline__ void multiply(unsigned stage) {
    const int first_k = slice() * Traits::kSliceK;
    unsigned a = stage + unsigned((first_k * Traits::TileA::kPitch + m) * kBytes);
    unsigned b = stage + unsigned((Traits::TileA::kElements + first_k * Traits::TileB::kPitch + n) * kBytes);
    if constexpr (Traits::kTurnsA) a += unsigned(Traits::TileA::padding_of_k(first_k) * kBytes);
    if constexpr (Traits::kTurnsB) b += unsigned(Traits::TileB::padding_of_k(first_k) * kBytes);
    TAcc fragment_a[2][Traits::THREAD_M], fragment_b[2][Traits::THREAD_N];
    read_a(fragment_a[0], a, 0);
    read_b(fragment_b[0], b, 0);
#pragma unroll Traits::UNROLL
    for (int k = 0; k < Traits::kSliceK; ++k) {
      if (k + 1 < Traits::kSliceK) {
        read_a(fragment_a[(k + 1) % 2], a, k + 1);
        read_b(fragment_b[(k + 1) % 2], b, k + 1);
      }
      for_each_product<Traits::ORDER, Traits::THREAD_M, Traits::THREAD_N>(
          [&](int i, int j) { at[i][j] += fragment_a[k % 2][i] * fragment_b[k % 2][j]; });
    }
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < Traits::THREAD_M; ++i)
#pragma unroll
      for (int j = 0; j < Traits::THREAD_N; ++j) at[i][j] = TAcc(0);
  }

  // Adds up the sums of all slices; slice 0 has the total. Half of the slices hands over to the other half at a time, always
  // the same to the same: two runs give the same bits.
  __device__ __forceinline__ void add_slices(unsigned shared) {
    const unsigned mine = shared + unsigned(thread()) * unsigned(Traits::kGroupN * int(sizeof(TAcc)));
#pragma unroll
    for (int half = Traits::SLICES / 2; half > 0; half /= 2) {
      __syncthreads();  // others may still read the last stage, or the sums of the turn before
      if (slice() >= half && slice() < 2 * half) put_tile(mine + unsigned((slice() - half) * Traits::kTileBytes));
      __syncthreads();
      if (slice() < half) add_tile(mine + unsigned(slice() * Traits::kTileBytes));
    }
    __syncthreads();  // rows of C may leave through the same memory
  }

  // Writes the tile at (block_m, block_n), by the threads of slice 0. Tiles inside the output, with beta = 0, leave the
  // registers directly; all others go row by row through slots of shared memory, in a loop that is not unrolled: it costs
  // little to compile.
  template <class Output>
  __device__ __forceinline__ void write(const Output& output, int block_m, int block_n, unsigned shared) const {
    const bool inside = block_m + Traits::BLOCK_M <= output.m && block_n + Traits::BLOCK_N <= output.n;
    if (inside && !output.reads()) {
      write_directly(output, block_m, block_n);
    } else {
      if constexpr (Traits::SLICES == 1) __syncthreads();  // others may still read their last tile
      write_by_rows(output, block_m, block_n, shared);
    }
  }

  template <class Output>
  __device__ __forceinline__ void write_directly(const Output& output, int block_m, int block_n) const {
    using TOut = typename Output::Element;
    constexpr int kWidth = min_of(Traits::kGroupN, Output::kWidest);
    auto* const corner = output.at(block_m + m, block_n + n);
#pragma unroll
    for (int i = 0; i < Traits::THREAD_M; ++i) {
      auto* const row = corner + offset_m(i) * output.pitch;
#pragma unroll
      for (int j = 0; j < Traits::THREAD_N; j += kWidth) {
        Vector<TOut, kWidth> group;
#pragma unroll
        for (int x = 0; x < kWidth; ++x) group.at[x] = convert<TOut>(output.alpha * at[i][j + x]);
        *reinterpret_cast<Vector<TOut, kWidth>*>(row + offset_n(j)) = group;
      }
    }
  }

  template <class Output>
  __device__ __forceinline__ void write_by_rows(const Output& output, int block_m, int block_n, unsigned shared) const {
    const unsigned slots = shared + unsigned(thread()) * unsigned(Traits::kGroupN * int(sizeof(TAcc)));
#pragma unroll 1
    for (int i = 0; i < Traits::THREAD_M; ++i) {
#pragma unroll
      for (int row = 0; row < Traits::THREAD_M; ++row) {
        if (row == i) put_row(row, slots);
      }
      const int row = block_m + m + offset_m(i);
      if (row >= output.m) continue;
#pragma unroll 1
      for (int j = 0; j < Traits::THREAD_N; j += Traits::kGroupN) {
        const int column = block_n + n + offset_n(j);
        TAcc group[Traits::kGroupN];
        ptx::load_shared(group, slots + unsigned(j / Traits::kGroupN * kSlotBytes));
        output.template write_group<Traits::kGroupN>(output.at(row, column), group, output.n - column);
      }
    }
  }

  static constexpr int kSlotBytes = Traits::kSliceThreads * Traits::kGroupN * int(sizeof(TAcc));  // one group of each thread

  __device__ __forceinline__ void put_row(int row, unsigned slots) const {
#pragma unroll
    for (int j = 0; j < Traits::THREAD_N; j += Traits::kGroupN) {
      TAcc group[Traits::kGroupN];
#pragma unroll
      for (int x = 0; x < Traits::kGroupN; ++x) group[x] = at[row][j + x];
      ptx::store_shared(slots + unsigned(j / Traits::kGroupN * kSlotBytes), group);
    }
  }

  static constexpr int kRowBytes = kSlotBytes * (Traits::THREAD_N / Traits::kGroupN);  // one row of each thread

  __device__ __forceinline__ void put_tile(unsigned slots) const {
#pragma unroll
    for (int row = 0; row < Traits::THREAD_M; ++row) put_row(row, slots + unsigned(row * kRowBytes));
  }

  // The fences keep the compiler from loading everything at once, into registers that the main loop would pay for.
  __device__ __forceinline__ void add_tile(unsigned slots) {
#pragma unroll
    for (int row = 0; row < Traits::THREAD_M; ++row) {
#pragma unroll
      for (int j = 0; j < Traits::THREAD_N; j += Traits::kGroupN) {
        TAcc group[Traits::kGroupN];
        ptx::load_shared(group, slots + unsigned(row * kRowBytes + j / Traits::kGroupN * kSlotBytes));
#pragma unroll
        for (int x = 0; x < Traits::kGroupN; ++x) at[row][j + x] += group[x];
      }
      compiler_fence();
    }
  }

  // A tile of stream-K that another block ends lies in the workspace thread by thread, as it lies in registers of slice 0.
  __device__ __forceinline__ void park(TAcc* partial) const {
#pragma unroll
    for (int i = 0; i < Traits::THREAD_M; ++i)
#pragma unroll
      for (int j = 0; j < Traits::THREAD_N; ++j) {
        __stcg(partial + (i * Traits::THREAD_N + j) * Traits::kSliceThreads + thread(), at[i][j]);
      }
  }
  // Fenced for the same reason.
  __device__ __forceinline__ void add_parked(const TAcc* partial) {
#pragma unroll
    for (int i = 0; i < Traits::THREAD_M; ++i) {
#pragma unroll
      for (int j = 0; j < Traits::THREAD_N; ++j) {
        at[i][j] += __ldcg(partial + (i * Traits::THREAD_N + j) * Traits::kSliceThreads + thread());
      }
      compiler_fence();
    }
  }
};

// What a thread of the block copies of the steps of k, in their order: by cp.async, and turned through registers.
template <class Traits>
struct Copies {
  typename Traits::TileA& a;
  typename Traits::TileB& b;
  typename Traits::TurnedA::Staged staged_a;
  typename Traits::TurnedB::Staged staged_b;

  __device__ __forceinline__ Copies(typename Traits::TileA& a, typename Traits::TileB& b) : a(a), b(b) {}

  template <bool FIRST>
  __device__ __forceinline__ void start(unsigned stage) {
    if constexpr (!Traits::kTurnsA) a.template copy_async<FIRST>(stage);
    if constexpr (!Traits::kTurnsB) b.template copy_async<FIRST>(stage + Traits::kTileABytes);
  }
  template <bool FIRST>
  __device__ __forceinline__ void fetch() {
    if constexpr (Traits::kTurnsA) a.template fetch<FIRST>(staged_a);
    if constexpr (Traits::kTurnsB) b.template fetch<FIRST>(staged_b);
  }
  __device__ __forceinline__ void commit(unsigned stage) const {
    if constexpr (Traits::kTurnsA) a.commit(staged_a, stage);
    if constexpr (Traits::kTurnsB) b.commit(staged_b, stage + Traits::kTileABytes);
  }
};

// Copies run `STAGES - 1` steps ahead of the multiplications, those through registers one step; one barrier a step.
template <class Traits>
__device__ __forceinline__ void simt_loop_async(SimtAccumulator<Traits>& accumulator, typename Traits::TileA& a,
                                                typename Traits::TileB& b, unsigned shared, int steps) {
  constexpr int kAhead = Traits::STAGES - 1;
  Copies<Traits> copies(a, b);
#pragma unroll
  for (int step = 0; step < kAhead; ++step) {
    if (step < steps) copies.template start<true>(shared + unsigned(step * Traits::kStageBytes));
    ptx::cp_async_commit();
  }
  if (steps > 0) {
    copies.template fetch<true>();
    copies.commit(shared);
  }
  int fill = kAhead, drain = 0;  // stage to be filled and stage to be read
  for (int step = 0; step < steps; ++step) {
    ptx::cp_async_wait<kAhead - 1>();
    __syncthreads();
    if (step + kAhead < steps) copies.template start<false>(shared + unsigned(fill * Traits::kStageBytes));
    ptx::cp_async_commit();
    const bool more = step + 1 < steps;
    if (more) copies.template fetch<false>();
    accumulator.multiply(shared + unsigned(drain * Traits::kStageBytes));
    fill = fill + 1 == Traits::STAGES ? 0 : fill + 1;
    drain = drain + 1 == Traits::STAGES ? 0 : drain + 1;
    if (more) copies.commit(shared + unsigned(drain * Traits::kStageBytes));
  }
}

// Two buffers: the next tile waits in registers while the present one is multiplied.
template <class Traits>
__device__ __forceinline__ void simt_loop_staged(SimtAccumulator<Traits>& accumulator, typename Traits::TileA& a,
                                                 typename Traits::TileB& b, typename Traits::TShared* shared,
                                                 unsigned address, int steps) {
  using TShared = typename Traits::TShared;
  typename Traits::TileA::Staged staged_a;
  typename Traits::TileB::Staged staged_b;
  if (steps > 0) {
    a.template fetch<true>(staged_a);
    b.template fetch<true>(staged_b);
    a.commit(staged_a, shared);
    b.commit(staged_b, shared + Traits::TileA::kElements);
  }
  __syncthreads();
  for (int step = 0; step < steps; ++step) {
    const bool more = step + 1 < steps;
    if (more) {
      a.template fetch<false>(staged_a);
      b.template fetch<false>(staged_b);
    }
    accumulator.multiply(address + unsigned(step % 2 * Traits::kStageBytes));
    if (more) {
      TShared* const other = shared + (step + 1) % 2 * Traits::kStageElements;
      a.commit(staged_a, other);
      b.commit(staged_b, other + Traits::TileA::kElements);
    }
    __syncthreads();
  }
}

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
    return {args, forgotten(Traits::BLOCK_M), forgotten(Traits::BLOCK_N), forgotten(Traits::BLOCK_K)};
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
