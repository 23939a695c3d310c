// The steps of k of `mma`: a ring of tiles in shared memory, which cp.async fills ahead, or TMA (mma_tma.cuh). The fragments of
// the next k step are read while the present ones are multiplied, across the border of tiles too: the barrier stands before
// the last k step of a tile.

namespace kt {

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

}  // namespace kt
