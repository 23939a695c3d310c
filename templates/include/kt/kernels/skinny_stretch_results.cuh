// How a warp's sums become C. A lane has runs of neighbours in a row of C.

namespace kt {

// Of a stretch whose rows are rows of C: a run is of held rows. Run `run` begins with the streamed row `lane_streamed() +
// streamed(run)` and the held row `lane_held() + held(run)`.
template <class Sums, class Order, int LANE_ROWS, int WIDEST>
struct RunsOfHeld {
  static constexpr int kLength = min_of(Sums::kOwned, WIDEST), kEach = Sums::kOwned / kLength;
  static constexpr int kCount = LANE_ROWS * kEach;

  __device__ __forceinline__ static int lane_streamed() { return Order::lane_row(); }
  __device__ __forceinline__ static int streamed(int run) { return Order::row_of(run / kEach); }
  __device__ __forceinline__ static int lane_held() { return Sums::row_of(0); }
  __device__ __forceinline__ static int held(int run) { return Sums::row_of(run % kEach * kLength) - Sums::row_of(0); }
  __device__ __forceinline__ static auto value(const Sums& sums, int run, int i) {
    return sums.sum(run / kEach, run % kEach * kLength + i);
  }
};

// Of a stretch whose rows are columns of C: a run is of streamed rows, which are neighbours of a lane.
template <class Sums, class Order, int LANE_ROWS>
struct RunsOfStreamed {
  static constexpr int kLength = Order::kCount, kEach = LANE_ROWS / kLength;
  static constexpr int kCount = Sums::kOwned * kEach;

  __device__ __forceinline__ static int lane_streamed() { return Order::lane_row(); }
  __device__ __forceinline__ static int streamed(int run) { return Order::row_of(run % kEach * kLength); }
  __device__ __forceinline__ static int lane_held() { return Sums::row_of(0); }
  __device__ __forceinline__ static int held(int run) { return Sums::row_of(run / kEach) - Sums::row_of(0); }
  __device__ __forceinline__ static auto value(const Sums& sums, int run, int i) {
    return sums.sum(run % kEach * kLength + i, run / kEach);
  }
};

// The same for sums by tensor cores.
template <class Sums, int LANE_ROWS>
struct RunsOfTurned {
  static constexpr int kLength = 2 * Sums::kSlots, kEach = LANE_ROWS / Sums::kSlots;
  static constexpr int kCount = Sums::kOctets * kEach;

  __device__ __forceinline__ static int lane_streamed() { return int(threadIdx.x) % kLanesAlongK * kLength; }
  __device__ __forceinline__ static int streamed(int run) { return run % kEach * (4 * kLength); }
  __device__ __forceinline__ static int lane_held() { return lane_across(); }
  __device__ __forceinline__ static int held(int run) { return run / kEach * 8; }
  __device__ __forceinline__ static auto value(const Sums& sums, int run, int i) {
    const int octet = run / kEach, slot = run % kEach * Sums::kSlots + i / 2;
    return sums.at[octet / 2][slot][octet % 2 * 2 + i % 2];
  }
};

// Writes COUNT neighbours, of which the first `valid` lie inside C; what stood there is not read.
template <bool BF16, int COUNT, class Output, class TAcc>
__device__ __forceinline__ void write_over(const Output& output, typename Output::Element* target,
                                           const TAcc (&values)[COUNT], int valid) {
  using TOut = typename Output::Element;
  constexpr int kWidth = min_of(COUNT, Output::kWidest);
#pragma unroll
  for (int first = 0; first < COUNT; first += kWidth) {
    if (first >= valid) return;  // rows consist of whole accesses
    if constexpr (sizeof(TOut) == 2 && kWidth > 1) {
      unsigned words[kWidth / 2];
#pragma unroll
      for (int i = 0; i < kWidth; i += 2) {
        words[i / 2] =
            ptx::pack_pair<BF16>(output.alpha * values[first + i], output.alpha * values[first + i + 1]);
      }
      ptx::store_global(target + first, words);
    } else {
      Vector<TOut, kWidth> words;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) words.at[i] = convert<TOut>(output.alpha * values[first + i]);
      *reinterpret_cast<Vector<TOut, kWidth>*>(target + first) = words;
    }
  }
}

// Calls `write` for each of the lane's runs in the stretch that begins with row `first`, with the run's values, the place
// of the first of them in C, and how many of them lie inside. WHOLE: all rows of the stretch do.
template <class Traits, bool WHOLE, class Output, class Write>
__device__ __forceinline__ void for_each_run(const Output& output, const typename Traits::Sums& sums, long long first,
                                             Write write) {
  using Runs = typename Traits::Runs;
  constexpr bool kRows = Traits::STREAMED_A;  // streamed rows are rows of C
  const long long row_pitch = kRows ? output.pitch : 1, held_pitch = kRows ? 1 : output.pitch;
  const int end = int(min_of((long long)Traits::kWarpRows, (kRows ? output.m : output.n) - first));
  const int rows = WHOLE ? Traits::kWarpRows : end - Runs::lane_streamed();
  const int held_rows = (kRows ? output.n : output.m) - Runs::lane_held();
  typename Traits::TOut* target =
      output.base + (first + Runs::lane_streamed()) * row_pitch + Runs::lane_held() * held_pitch;
#pragma unroll
  for (int run = 0; run < Runs::kCount; ++run) {
    const int row = Runs::streamed(run), held = Runs::held(run);
    if (run > 0) {  // from the place of the run before: differences are few and the same for all stretches
      target += (row - Runs::streamed(run - 1)) * row_pitch + (held - Runs::held(run - 1)) * held_pitch;
    }
    if ((!WHOLE && row >= rows) || held >= held_rows) continue;
    typename Traits::TAcc values[Runs::kLength];
#pragma unroll
    for (int i = 0; i < Runs::kLength; ++i) values[i] = Runs::value(sums, run, i);
    write(target, values, kRows ? held_rows - held : rows - row);
  }
}

// Writes the results of the stretch that begins with row `first`.
template <class Traits, class Output>
__device__ __forceinline__ void write_results(const Output& output, const typename Traits::Sums& sums, long long first) {
  using TOut = typename Traits::TOut;
  using Values = typename Traits::TAcc[Traits::Runs::kLength];
  if (!Traits::Sums::owner()) return;
  if (output.reads() || first + Traits::kWarpRows > (Traits::STREAMED_A ? output.m : output.n)) {
    for_each_run<Traits, false>(output, sums, first, [&](TOut* target, const Values& values, int valid) {
      output.template write_group<Traits::Runs::kLength>(target, values, valid);
    });
  } else {
    for_each_run<Traits, true>(output, sums, first, [&](TOut* target, const Values& values, int valid) {
      write_over<Traits::OUT_BF16>(output, target, values, valid);
    });
  }
}

}  // namespace kt
