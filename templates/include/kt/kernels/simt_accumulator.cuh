// The sums of a thread of `simt`: a THREAD_M x THREAD_N piece of C in registers, and its way to memory.
//
// Addresses in shared memory are counted in 32 bits, and read by instructions that are named. With pointers, NVRTC counts
// in 64 bits and nvcc in 32: the compilers then order registers differently, and an exported kernel differs from the measured
// one by up to 8% of its time.

namespace kt {

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

  // The same of tiles at the addresses `a` and `b`, in rounds of UNROLL k. Between the products of two k a thread does some of
  // `meanwhile`: what it loads before those of one k, it stores after them.
  template <class Meanwhile>
  __device__ __forceinline__ void multiply(unsigned a, unsigned b, Meanwhile& meanwhile) {
    const int first_k = slice() * Traits::kSliceK;
    a += unsigned((first_k * Traits::TileA::kPitch + m) * kBytes);
    b += unsigned((first_k * Traits::TileB::kPitch + n) * kBytes);
    TAcc fragment_a[2][Traits::THREAD_M], fragment_b[2][Traits::THREAD_N];
    read_a(fragment_a[0], a, 0);
    read_b(fragment_b[0], b, 0);
#pragma unroll 1
    for (int round = 0; round < Traits::kSliceK / Traits::UNROLL; ++round) {
#pragma unroll
      for (int k = 0; k < Traits::UNROLL; ++k) {
        if (k + 1 < Traits::UNROLL || round + 1 < Traits::kSliceK / Traits::UNROLL) {
          read_a(fragment_a[(k + 1) % 2], a, k + 1);
          read_b(fragment_b[(k + 1) % 2], b, k + 1);
        }
        meanwhile.load(round, k);
        for_each_product<Traits::ORDER, Traits::THREAD_M, Traits::THREAD_N>(
            [&](int i, int j) { at[i][j] += fragment_a[k % 2][i] * fragment_b[k % 2][j]; });
        meanwhile.store(round, k);
      }
      a += unsigned(Traits::UNROLL * Traits::TileA::kPitch * kBytes);
      b += unsigned(Traits::UNROLL * Traits::TileB::kPitch * kBytes);
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

}  // namespace kt
