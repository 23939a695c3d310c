// The sums that a warp of `mma` holds in registers, WARP_M x WARP_N of them: multiplied into, parked, passed to the epilogue.

namespace kt {

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

}  // namespace kt
