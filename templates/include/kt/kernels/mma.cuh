// Tiled GEMM on the tensor cores through mma.sync: any layout, size and leading dimension (sm_80 and later).
//
// A thread block computes BLOCK_M x BLOCK_N of C and walks k in steps of BLOCK_K through a ring of tiles in shared
// memory, which cp.async fills ahead, or TMA (mma_tma.cuh). A warp holds WARP_M x WARP_N sums in registers. The fragments of the next k step
// are read while the present ones are multiplied, across the border of tiles too: the barrier stands before the last k
// step of a tile.

namespace kt {

// What a number format means for `mma`: the bytes along k of a k step, the sums of 16 x 8 results in one thread, how
// rows along mn lie in shared memory and who reads them.
template <class TAcc>
struct PlainSums {
  using Sum = TAcc;
  static constexpr int kSums = 4;
  // Results 2 t and 2 t + 1 of row g (half 0) or g + 8 (half 1).
  static __device__ __forceinline__ Sum sum_of(const Sum (&sums)[kSums], int half, int x) { return sums[2 * half + x]; }
  static __device__ __forceinline__ Sum added(Sum a, Sum b) { return a + b; }
};

#ifdef KT_HALF_SUMS
// Two results of one row in a word.
template <>
struct PlainSums<__half> {
  using Sum = unsigned;
  static constexpr int kSums = 2;
  static __device__ __forceinline__ __half sum_of(const Sum (&sums)[kSums], int half, int x) {
    return half_of(sums[half], x);
  }
  static __device__ __forceinline__ Sum added(Sum a, Sum b) {
    return word_of(half_of(a, 0) + half_of(b, 0)) | word_of(half_of(a, 1) + half_of(b, 1)) << 16;
  }

 private:
  static __device__ __forceinline__ __half half_of(unsigned word, int x) {
    return __ushort_as_half((unsigned short)(word >> 16 * x));
  }
  static __device__ __forceinline__ unsigned word_of(__half value) { return __half_as_ushort(value); }
};
#endif

// ROUNDED: elements of tf32 are rounded before they come to shared memory.
template <Format FORMAT, class TAcc, bool ROUNDED>
struct MmaForm : PlainSums<TAcc> {
  static constexpr bool kBytes = FORMAT == Format::kInt8 || FORMAT == Format::kFp8E4m3 || FORMAT == Format::kFp8E5m2;
  static constexpr bool kWords = FORMAT == Format::kTf32, kDoubles = FORMAT == Format::kFp64;
  using Word = typename Select<kDoubles, double, unsigned>::type;
  static constexpr bool kWidened = ptx::kWidens<FORMAT>;
  static constexpr int kMultiplications = kWidened ? 2 : 1;
  static constexpr Format kMultiplied = kWidened ? Format::kFp16 : FORMAT;
  static constexpr int kDepthBytes = kDoubles ? 128 : 32;
  // The next fragments are read while the present ones multiply. Of fp64, whose instructions are long and whose sums
  // need the registers, only the next strip of A is there, and B's next octets during the last strip of a k step.
  static constexpr bool kByStrips = kDoubles;
  static constexpr RowOrder kOrderAlongMn = kBytes               ? RowOrder::kBytePairs
                                            : kWords || kDoubles ? RowOrder::kFourApart
                                                                 : RowOrder::kPlain;
  static constexpr RowOrder kOrderAlongK = kDoubles ? RowOrder::kFourApart : RowOrder::kPlain;
  template <bool K_CONTIGUOUS>
  static constexpr RowOrder kOrder = K_CONTIGUOUS ? kOrderAlongK : kOrderAlongMn;

  template <bool CONDITION, class A, class B>
  using Either = typename Select<CONDITION, A, B>::type;
  template <class Tile, Side SIDE, int WARP_MN>
  using ReaderAlongK = Either<kDoubles, DoubleRowReader<Tile, SIDE, WARP_MN>, RowReader<Tile, SIDE, WARP_MN>>;
  template <class Tile, Side SIDE, int WARP_MN>
  using ReaderAlongMn =
      Either<kDoubles, DoubleColumnReader<Tile, SIDE, WARP_MN>,
             Either<kBytes, BytePairReader<Tile, SIDE, WARP_MN>,
                    Either<kWords, WordReader<Tile, SIDE, WARP_MN>, TransposingReader<Tile, SIDE, WARP_MN>>>>;
  template <class Tile, Side SIDE, int WARP_MN>
  using Reader = Either<Tile::K_CONTIGUOUS, ReaderAlongK<Tile, SIDE, WARP_MN>, ReaderAlongMn<Tile, SIDE, WARP_MN>>;

  // What multiplication `part` of a k step takes of a word.
  static __device__ __forceinline__ Word prepared(Word word, int part) {
    if constexpr (FORMAT == Format::kTf32 && !ROUNDED) word = ptx::round_to_tf32(word);
    if constexpr (kWidened) word = ptx::widened<FORMAT>(word, part);
    return word;
  }
};

// mma_tma.cuh
template <class T, int BLOCK_MN, int BLOCK_K, bool K_CONTIGUOUS, int STAGES, int THREADS, int FIRST_WARP>
struct TmaOperand;
template <int STAGES, int BOXES>
class TmaArrivals;

// The arrival of stages that cp.async fills, each with one group of copies.
struct CopyGroups {
  __device__ __forceinline__ explicit CopyGroups(unsigned) {}
  __device__ __forceinline__ void end() const { ptx::cp_async_commit(); }
  // Waits for the next stage; the copies of the latest `UNDER_WAY` stages may go on.
  template <int UNDER_WAY>
  __device__ __forceinline__ void await() {
    ptx::cp_async_wait<UNDER_WAY>();
  }
  __device__ __forceinline__ void await_all() { ptx::cp_async_wait<0>(); }
};

template <Format FORMAT_, class TIn_, class TAcc_, class TOut_, int BLOCK_M_, int BLOCK_N_, int BLOCK_K_, int WARP_M_,
          int WARP_N_, int STAGES_, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, bool EARLY_, bool STREAM_K_, bool PACK_A,
          bool PACK_B, int LOAD_A, int LOAD_B, int STORE_, bool DIRECT_, bool HELD_, bool TMA_>
struct MmaTraits {
  static constexpr Format FORMAT = FORMAT_;
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  static constexpr bool TMA = TMA_;  // copies tiles, in place of cp.async
  using Form = MmaForm<FORMAT, TAcc, TMA>;
  static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, BLOCK_K = BLOCK_K_;
  static constexpr int WARP_M = WARP_M_, WARP_N = WARP_N_, STAGES = STAGES_, STORE = STORE_;
  static constexpr bool STREAM_K = STREAM_K_, EARLY = EARLY_;
  static constexpr bool DIRECT = DIRECT_;  // C from registers, not through shared memory
  static constexpr bool HELD = HELD_;      // all k of the tile's columns of B stay in shared memory, behind the ring
  using Space = RowSpace<TIn, PACK_A, PACK_B, A_K_CONTIGUOUS, B_K_CONTIGUOUS>;
  static constexpr int kWarpsN = BLOCK_N / WARP_N;
  static constexpr int kThreads = 32 * (BLOCK_M / WARP_M) * kWarpsN;
  static constexpr int kSteps = BLOCK_K * int(sizeof(TIn)) / Form::kDepthBytes;  // k steps of a tile

  // Boxes of TMA: those of A, and those of A and B.
  template <int BLOCK_MN, bool K_CONTIGUOUS>
  static constexpr int kBoxes = K_CONTIGUOUS ? 1 : cdiv(BLOCK_MN * int(sizeof(TIn)), 128);
  static constexpr int kBoxesA = kBoxes<BLOCK_M, A_K_CONTIGUOUS>, kBoxesOfBoth = kBoxesA + kBoxes<BLOCK_N, B_K_CONTIGUOUS>;
  template <int BLOCK_MN, bool K_CONTIGUOUS, int LOAD, int FIRST_WARP>
  using Tile = typename Select<TMA, TmaOperand<TIn, BLOCK_MN, BLOCK_K, K_CONTIGUOUS, STAGES, kThreads, FIRST_WARP>,
                               MmaOperand<TIn, BLOCK_MN, BLOCK_K, K_CONTIGUOUS, LOAD, kThreads,
                                          Form::template kOrder<K_CONTIGUOUS>>>::type;
  using TileA = Tile<BLOCK_M, A_K_CONTIGUOUS, PACK_A ? 16 : LOAD_A, 0>;
  using TileB = Tile<BLOCK_N, B_K_CONTIGUOUS, PACK_B ? 16 : LOAD_B, kBoxesA>;
  using Arrivals = typename Select<TMA, TmaArrivals<STAGES, kBoxesOfBoth>, CopyGroups>::type;
  using ReaderA = typename Form::template Reader<TileA, Side::kA, WARP_M>;
  using ReaderB = typename Form::template Reader<TileB, Side::kB, WARP_N>;
  using FragmentA = Fragment<Form, Side::kA, WARP_M / 8>;
  using FragmentB = Fragment<Form, Side::kB, WARP_N / 8>;
  static constexpr int kStageBytes = TileA::kBytes + (HELD ? 0 : TileB::kBytes);

  static_assert(BLOCK_M % WARP_M == 0 && BLOCK_N % WARP_N == 0, "warps tile the block");
  static_assert(WARP_M % 16 == 0 && WARP_N % 16 == 0, "a warp reads 16 rows or columns at once");
  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(STAGES >= 2, "one tile is read while the next arrives");
  static_assert(kSteps >= 2 || Form::kByStrips, "copies end before the last k step");
  static_assert(!HELD || (DIRECT && !STREAM_K), "where columns stay, there is no room for strips of results");
  static_assert(!TMA || (!HELD && !STREAM_K && !DIRECT && !Form::kByStrips), "TMA's barriers serve one piece of work a block");
  static_assert(!EARLY || (STAGES >= 3 && !Form::kByStrips), "an early barrier needs a stage more and a k step ahead");
};

// The sums of a warp.
template <class Traits>
struct MmaSums {
  using TAcc = typename Traits::TAcc;
  using Form = typename Traits::Form;
  static constexpr bool kDirect = Traits::DIRECT;
  static constexpr int kWarpsN = Traits::kWarpsN;
  static constexpr int BLOCK_N = Traits::BLOCK_N, kWarpsM = Traits::BLOCK_M / Traits::WARP_M;
  static constexpr int kStrips = Traits::WARP_M / 16, kOctets = Traits::WARP_N / 8;
  static constexpr int kSpreadM = Traits::ReaderA::kSpread, kSpreadN = Traits::ReaderB::kSpread;
  using Word = typename Form::Sum;
  static constexpr int kRoom = Traits::STAGES * Traits::kStageBytes;  // of shared memory, for results on their way out
  static constexpr int kThreads = Traits::kThreads, kWords = kStrips * kOctets * Form::kSums;

  Word at[kStrips][kOctets][Form::kSums];
  int first_m, first_n;  // the warp inside the block tile

  __device__ __forceinline__ MmaSums() {
    const int warp = int(threadIdx.x) / 32;
    first_m = warp / Traits::kWarpsN * Traits::WARP_M;
    first_n = warp % Traits::kWarpsN * Traits::WARP_N;
  }

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < kStrips; ++i)
#pragma unroll
      for (int j = 0; j < kOctets; ++j)
#pragma unroll
        for (int x = 0; x < Form::kSums; ++x) at[i][j][x] = 0;
  }

  // For stream-K the sums are a row of words.
  __device__ __forceinline__ Word word(int i) const {
    return at[i / (Form::kSums * kOctets)][i / Form::kSums % kOctets][i % Form::kSums];
  }
  __device__ __forceinline__ void add(int i, Word parked) {
    Word& mine = at[i / (Form::kSums * kOctets)][i / Form::kSums % kOctets][i % Form::kSums];
    mine = Form::added(mine, parked);
  }

  static constexpr int kProducts = kStrips * kOctets;  // instructions of a multiplication

  // Columns turn back at the end of each row of tiles, so that one fragment of B is used twice in a row.
  // `after(i)` is called behind instruction i.
  template <class After>
  __device__ __forceinline__ void multiply(const typename Traits::FragmentA& a, const typename Traits::FragmentB& b,
                                           const After& after) {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) multiply_strip(i, a, b, after);
  }
  // Where B follows octet by octet during the last strip, the first of them is the one that has been free for longest.
  __device__ __forceinline__ static constexpr bool turned(int strip) {
    return strip % 2 && !(Form::kByStrips && strip == kStrips - 1);
  }
  template <class After>
  __device__ __forceinline__ void multiply_strip(int i, const typename Traits::FragmentA& a,
                                                 const typename Traits::FragmentB& b, const After& after) {
#pragma unroll
    for (int step = 0; step < kOctets; ++step) {
      const int j = turned(i) ? kOctets - 1 - step : step;
      ptx::mma<Form::kMultiplied>(at[i][j], a.of(i), b.of(j));
      after(i * kOctets + step);
    }
  }

  // The row of the tile that row `index` of a strip holds: 16 of each warp along m.
  __device__ __forceinline__ int row_of(int strip, int index) const {
    return index / 16 * Traits::WARP_M + octet_position<kSpreadM>(2 * strip + index / 8 % 2, index % 8);
  }

  // Writes this warp's 16 rows of a strip. The comparison keeps the loop around it rolled and the sums in registers.
  template <class Writer>
  __device__ __forceinline__ void put(int strip, const Writer& writer) const {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      if (i == strip) put_strip(at[i], i, writer);
    }
  }
  template <class Writer>
  __device__ __forceinline__ void put_all(const Writer& writer) const {
#pragma unroll
    for (int i = 0; i < kStrips; ++i) put_strip(at[i], i, writer);
  }

 private:
  template <class Writer>
  __device__ __forceinline__ void put_strip(const Word (&sums)[kOctets][Form::kSums], int strip,
                                            const Writer& writer) const {
    const int thread = ptx::thread_index(), lane = thread % 32, warp = thread / 32;
    const int index = warp / Traits::kWarpsN * 16 + lane / 4, first = warp % Traits::kWarpsN * Traits::WARP_N;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int m = writer.block_m + row_of(strip, index + half * 8);
      const int shift = writer.shift_of(writer.output.at(m, writer.block_n));
      auto* const row = reinterpret_cast<typename Writer::TStage*>(writer.place(strip, index + half * 8));
      put_row(sums, half, row + shift + first + lane % 4 * Writer::Strip::kTogether, writer);
    }
  }

  template <class Writer>
  __device__ __forceinline__ static void put_row(const Word (&sums)[kOctets][Form::kSums], int half,
                                                 typename Writer::TStage* row, const Writer& writer) {
    using Strip = typename Writer::Strip;
    using Group = Vector<typename Writer::TStage, Strip::kVector>;
#pragma unroll
    for (int first = 0; first < kOctets * 2; first += Strip::kVector) {
      // Octets `octet` ... share the thread's neighbouring columns, and take turns in them.
      const int octet = first / Strip::kTogether * kSpreadN, column = first % Strip::kTogether;
      Group group;
#pragma unroll
      for (int i = 0; i < Strip::kVector; ++i) {
        const int inside = column + i;
        group.at[i] = writer.staged(Form::sum_of(sums[octet + inside % kSpreadN], half, inside / kSpreadN));
      }
      *reinterpret_cast<Group*>(row + octet * 8 + column) = group;
    }
  }
};

// What follows behind the last tile of A that a pipeline copies: nothing.
template <class Traits>
struct NothingFollows {
  __device__ __forceinline__ void copied(typename Traits::TileA&) {}
};

template <class Traits, class Follower = NothingFollows<Traits>>
struct MmaPipeline {
  static constexpr int kSteps = Traits::kSteps;
  typename Traits::TileA& a;
  typename Traits::TileB& b;
  typename Traits::ReaderA reader_a;
  typename Traits::ReaderB reader_b;
  struct Fragments {
    typename Traits::FragmentA a;
    typename Traits::FragmentB b;
  };
  struct Raw {
    typename Traits::ReaderA::Raw a;
    typename Traits::ReaderB::Raw b;
  };
  Raw raw;        // words of the present k step, as long as multiplications are to be made of them
  Fragments now;  // of the multiplication that comes next
  unsigned shared, end;
  unsigned fill, drain;  // the stages to be filled and to be read
  unsigned held = 0, held_end = 0;  // HELD: the step of B to be read, and the end of all
  Follower follower;
  typename Traits::Arrivals arrivals;

  __device__ __forceinline__ MmaPipeline(typename Traits::TileA& a, typename Traits::TileB& b, unsigned shared,
                                         const MmaSums<Traits>& sums, const Follower& follower = {})
      : a(a), b(b), reader_a(sums.first_m), reader_b(sums.first_n), shared(shared),
        end(shared + Traits::STAGES * Traits::kStageBytes), fill(shared), drain(shared), follower(follower), arrivals(end) {}

  __device__ __forceinline__ unsigned after(unsigned stage) const {
    const unsigned next = stage + Traits::kStageBytes;
    return next == end ? shared : next;
  }

  // The barrier stands before the last k step of a tile (by strips: before its last strip), and the copies in the k
  // steps before it. EARLY: it stands one k step before, which leaves the compiler free to place the first reads of the
  // next tile, and the copies after it; they have less time to arrive.
  static constexpr bool kEarly = Traits::EARLY;
  static constexpr int kParts = kEarly ? 2 : Traits::Form::kByStrips ? kSteps : kSteps - 1;  // of the copies: one in a k step
  static constexpr int kFirstCopy = kEarly ? kSteps - 2 : 0;
  struct Staged {
    typename Traits::TileA::template Staged<kParts> a;
    typename Traits::TileB::template Staged<kParts> b;
  };

  template <int PART>
  __device__ __forceinline__ void start_copy(Staged& staged) const {
    a.template start<PART, kParts>(staged.a, fill);
    if constexpr (!Traits::HELD) b.template start<PART, kParts>(staged.b, fill + Traits::TileA::kBytes);
  }
  template <int PART>
  __device__ __forceinline__ void finish_copy(const Staged& staged) const {
    a.template finish<PART, kParts>(staged.a, fill);
    if constexpr (!Traits::HELD) b.template finish<PART, kParts>(staged.b, fill + Traits::TileA::kBytes);
  }

  template <int PART>
  __device__ __forceinline__ void copy_from() const {
    Staged staged;
    start_copy<PART>(staged);
    finish_copy<PART>(staged);
    if constexpr (PART + 1 < kParts) copy_from<PART + 1>();
  }

  __device__ __forceinline__ void end_copy() {
    arrivals.end();
    a.next();
    if constexpr (!Traits::HELD) b.next();
    follower.copied(a);
    fill = after(fill);
  }

  // HELD: starts the copies of all `steps` tiles of B, which nobody reads.
  __device__ __forceinline__ void hold(int steps) {
    held = held_end = end;
#pragma unroll 1
    for (int i = 0; i < steps; ++i) {
      typename Traits::TileB::template Staged<1> staged;
      b.template start<0, 1>(staged, held_end);
      b.template finish<0, 1>(staged, held_end);
      b.next();
      held_end += Traits::TileB::kBytes;
    }
    ptx::cp_async_commit();
  }

  // The tile of B that belongs to the one of A at `drain`.
  __device__ __forceinline__ unsigned tile_b() const {
    if constexpr (Traits::HELD) return held;
    return drain + Traits::TileA::kBytes;
  }

  // Goes on to the next step's tiles; behind the last of B stands the first again.
  __device__ __forceinline__ void drained() {
    drain = after(drain);
    if constexpr (Traits::HELD) {
      held += Traits::TileB::kBytes;
      if (held == held_end) held = end;
    }
  }

  // The next stage has arrived, and nobody reads the one before this any more.
  __device__ __forceinline__ void await_stage() {
    arrivals.template await<Traits::STAGES - 2 - int(kEarly)>();
    __syncthreads();
  }

  __device__ __forceinline__ void read(Raw& words, int k_step) const {
    reader_a.read(words.a, drain, k_step);
    reader_b.read(words.b, tile_b(), k_step);
  }

  // Makes one piece of the fragments of a multiplication: of A, then of B.
  static constexpr int kMultiplications = Traits::Form::kMultiplications;
  static constexpr int kPiecesA = Traits::ReaderA::kPieces, kPieces = kPiecesA + Traits::ReaderB::kPieces;
  __device__ __forceinline__ static void arrange(Fragments& fragments, const Raw& words, int part, int piece) {
    using Form = typename Traits::Form;
    if (piece < kPiecesA) {
      Traits::ReaderA::template arrange<Form>(fragments.a, words.a, part, piece);
    } else {
      Traits::ReaderB::template arrange<Form>(fragments.b, words.b, part, piece - kPiecesA);
    }
  }
  __device__ __forceinline__ static void arrange_all(Fragments& fragments, const Raw& words, int part) {
#pragma unroll
    for (int piece = 0; piece < kPieces; ++piece) arrange(fragments, words, part, piece);
  }

  // Multiplies what is ready, and makes the fragments of the next multiplication: a few pieces behind each instruction
  // of the second half, when the words have arrived. So neither that work nor the wait for what it needs stands between
  // two multiplications. (A loop whose bounds were not the same each time would stay a loop, and fragments in local
  // memory.)
  __device__ __forceinline__ void multiply_and_arrange(MmaSums<Traits>& sums, const Raw& words) {
    constexpr int kProducts = MmaSums<Traits>::kProducts, kFirst = kProducts / 2;
    constexpr int kEach = cdiv(kPieces, kProducts - kFirst);
    Fragments next;
    sums.multiply(now.a, now.b, [&](int product) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const int piece = (product - kFirst) * kEach + i;
        if (piece >= 0 && piece < kPieces) arrange(next, words, 0, piece);
      }
    });
    now = next;
  }

  // The multiplications of a k step, while words `fresh` of the next one arrive.
  __device__ __forceinline__ void multiply_ahead(MmaSums<Traits>& sums, const Raw& fresh) {
    if constexpr (kMultiplications == 1) {
      multiply_and_arrange(sums, fresh);
    } else {
#pragma unroll
      for (int part = 0; part < kMultiplications; ++part) {
        arrange_all(now, raw, part);
        sums.multiply(now.a, now.b, [](int) {});
      }
      raw = fresh;
    }
  }

  // Starts the copies of the first tiles of k. Nobody reads shared memory any more, and no copy is under way.
  __device__ __forceinline__ void fill_stages() {
    fill = drain = shared;
#pragma unroll 1
    for (int stage = 0; stage < Traits::STAGES - 1; ++stage) {
      copy_from<0>();
      end_copy();
    }
  }

  template <int UNDER_WAY = Traits::STAGES - 2>
  __device__ __forceinline__ void begin() {
    arrivals.template await<UNDER_WAY>();
    __syncthreads();
    read(raw, 0);
    arrange_all(now, raw, 0);
  }

  // One k step. The fragments of the next one are read while it multiplies.
  template <int K_STEP>
  __device__ __forceinline__ void step(MmaSums<Traits>& sums) {
    constexpr bool kLast = K_STEP == kSteps - 1;
    constexpr bool kCopies = K_STEP >= kFirstCopy && K_STEP < kFirstCopy + kParts;
    Staged staged;
    if constexpr (Traits::Form::kByStrips) {
      if constexpr (kCopies) start_copy<K_STEP - kFirstCopy>(staged);
      multiply_by_strips<K_STEP>(sums);
    } else {
      if constexpr (!kEarly && kLast) end_copy();
      if constexpr (K_STEP == kSteps - 1 - int(kEarly)) await_stage();
      if constexpr (kLast) drained();
      Raw fresh;
      read(fresh, (K_STEP + 1) % kSteps);
      if constexpr (kCopies) start_copy<K_STEP - kFirstCopy>(staged);
      multiply_ahead(sums, fresh);
    }
    if constexpr (kCopies) finish_copy<K_STEP - kFirstCopy>(staged);
    if constexpr (kLast && kEarly) end_copy();
    if constexpr (!kLast) step<K_STEP + 1>(sums);
  }

  // The strips of a k step. The next strip of A is read before each, in the last one the first of the next k step;
  // there each octet of B is read behind the instruction that was the last to take it.
  template <int K_STEP>
  __device__ __forceinline__ void multiply_by_strips(MmaSums<Traits>& sums) {
    constexpr int kStrips = MmaSums<Traits>::kStrips;
    constexpr int kStripPieces = kPiecesA / kStrips;
    Raw fresh;
    Fragments next = now;
#pragma unroll
    for (int i = 0; i < kStrips; ++i) {
      const bool last = i == kStrips - 1;
      const int k_step = last ? (K_STEP + 1) % kSteps : K_STEP, strip = last ? 0 : i + 1;
      if (K_STEP == kSteps - 1 && last) {
        end_copy();
        await_stage();
        drained();
      }
      reader_a.template read<2>(fresh.a, drain, k_step, 2 * strip);
      sums.multiply_strip(i, now.a, now.b, [&](int product) {
        const int octet = product - i * MmaSums<Traits>::kOctets;
        if (last) reader_b.template read<1>(fresh.b, tile_b(), k_step, octet);
      });
#pragma unroll
      for (int piece = 0; piece < kStripPieces; ++piece) {
        arrange(last ? next : now, fresh, 0, kStripPieces * strip + piece);
      }
    }
#pragma unroll
    for (int piece = kPiecesA; piece < kPieces; ++piece) arrange(next, fresh, 0, piece);
    now = next;
  }

  // Copies run STAGES - 1 tiles ahead; beyond the last tile they write zeros that nobody reads.
  __device__ __forceinline__ void run_on(MmaSums<Traits>& sums, int steps) {
#pragma unroll 1
    for (int i = 0; i < steps; ++i) step<0>(sums);
  }
  __device__ __forceinline__ void run(MmaSums<Traits>& sums, int steps) {
    begin();
    run_on(sums, steps);
    arrivals.await_all();
    __syncthreads();
  }
};

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
