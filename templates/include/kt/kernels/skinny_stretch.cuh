// Skinny GEMM with a short k: results are what takes the time, and most of it is the memory's.
//
// Warps go from stretch to stretch (skinny_stretch_source.cuh), as many as run at once, copies being stages ahead, and
// wait for nobody. The held operand lies in shared memory, arranged once a block in the order in which it is multiplied,
// and that order is chosen so that a lane's results are neighbours in C.

namespace kt {

// The held operand in shared memory: for each chunk and octet the piece of each lane, zero where there is none. Of its
// columns of the products, a lane has GROUP neighbours at a time; the four lanes of a row take turns.
template <int TILE_S, int GROUP>
struct StretchOctets {
  static constexpr int kOctets = TILE_S / 8, kLanes = 32;
  static constexpr int kPieces = kOctets * kLanes;  // of a chunk
  using Pieces = unsigned[kOctets][4];
  unsigned shared;

  __host__ __device__ static constexpr int row_of(int octet, int column) {
    const int owned = 2 * octet + column % 2;
    return owned / GROUP * (kLanesAlongK * GROUP) + column / 2 * GROUP + owned % GROUP;
  }
  // Row of the operand, and which lane along k, of piece `piece`.
  __device__ __forceinline__ static int held_row(int piece) { return row_of(piece / 32, piece % 32 / kLanesAlongK); }
  __device__ __forceinline__ static int along_k(int piece) { return piece % kLanesAlongK; }

  __device__ __forceinline__ void read(Pieces& pieces, int chunk, int) const {
    const unsigned first = shared + (chunk * kPieces + int(threadIdx.x) % 32) * kPieceBytes;
#pragma unroll
    for (int octet = 0; octet < kOctets; ++octet) ptx::load_shared(pieces[octet], first + octet * 32 * kPieceBytes);
  }
};

// The same for the plain units: the piece of each of the four lanes of every row.
template <int TILE_S>
struct StretchRows {
  static constexpr int kGroup = held_at_once(TILE_S), kPieces = TILE_S * kLanesAlongK;
  using Pieces = unsigned[kGroup][4];
  unsigned shared;

  __device__ __forceinline__ static int held_row(int piece) { return piece / kLanesAlongK; }
  __device__ __forceinline__ static int along_k(int piece) { return piece % kLanesAlongK; }

  __device__ __forceinline__ void read(Pieces& pieces, int chunk, int first) const {
    const int piece = chunk * kPieces + first * kLanesAlongK + int(threadIdx.x) % kLanesAlongK;
#pragma unroll
    for (int row = 0; row < kGroup; ++row) {
      ptx::load_shared(pieces[row], shared + (piece + row * kLanesAlongK) * kPieceBytes);
    }
  }
};

template <class TIn_, class TAcc_, class TOut_, bool OUT_BF16_, bool STREAMED_A_, int TILE_S_, int LANE_ROWS_, int WARPS_,
          int STAGES_, bool HELD_K_, int STORE_, class Source_, class Sums_>
struct StretchTraits {
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  using Source = Source_;
  using Sums = Sums_;
  using Held = typename Sums::Held;
  static constexpr bool OUT_BF16 = OUT_BF16_, STREAMED_A = STREAMED_A_, HELD_K = HELD_K_;
  static constexpr int TILE_S = TILE_S_, LANE_ROWS = LANE_ROWS_, WARPS = WARPS_, STAGES = STAGES_, STORE = STORE_;
  static constexpr bool kStretch = true;
  static constexpr int kThreads = 32 * WARPS, kWarpRows = 8 * LANE_ROWS, kSize = int(sizeof(TIn));
  static constexpr int kElements = kPieceBytes / kSize, kChunk = kLanesAlongK * kElements;
  using Order = typename Source::Order;
  using Runs = typename Select<
      STREAMED_A, RunsOfHeld<Sums, Order, LANE_ROWS, 16 / int(sizeof(TOut))>,
      typename Select<Sums::kTurned, RunsOfTurned<Sums, LANE_ROWS>, RunsOfStreamed<Sums, Order, LANE_ROWS>>::type>::type;

  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(STAGES >= 2, "one stretch is multiplied while the next arrives");
};

// Fills the held pieces, element by element: once a block.
template <class Traits>
__device__ __forceinline__ void arrange_held(const GemmArguments& args, unsigned shared,
                                             const typename Traits::Source& source) {
  using TIn = typename Traits::TIn;
  using Held = typename Traits::Held;
  const TIn* const held = static_cast<const TIn*>(Traits::STREAMED_A ? args.b : args.a);
  const long long pitch = Traits::STREAMED_A ? args.ldb : args.lda;
  const int rows = Traits::STREAMED_A ? args.n : args.m;
#pragma unroll 1
  for (int index = int(threadIdx.x); index < source.chunks.all() * Held::kPieces; index += Traits::kThreads) {
    const int piece = index % Held::kPieces, row = Held::held_row(piece);
    const int chunk = index / Held::kPieces, elements = Traits::kElements / (chunk < source.chunks.whole ? 1 : 2);
    const int first_k = chunk * Traits::kChunk + Held::along_k(piece) * elements;
    const int valid = row < rows ? min_of(elements, args.k - first_k) : 0;
    const TIn* from = held + (Traits::HELD_K ? row * pitch + first_k : first_k * pitch + row);
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < Traits::kElements; ++i) {
      const auto bits = ptx::read_only<Traits::kSize>(from, i < valid);
      from += Traits::HELD_K ? 1 : pitch;
#pragma unroll
      for (int word = 0; word < cdiv(Traits::kSize, 4); ++word) {
        words[i * Traits::kSize / 4 + word] |= bits.at[word] << i * Traits::kSize % 4 * 8;
      }
    }
#pragma unroll
    for (int word = 0; word < 4; ++word) ptx::store_shared(shared + index * kPieceBytes + 4 * word, words[word]);
  }
}

// Adds the products of a chunk, or those of a half one.
template <int PARTS, class Source, class Sums>
__device__ __forceinline__ void add_chunk(Sums& sums, const Source& source, unsigned buffer,
                                          const typename Sums::Held& held, int chunk) {
  if constexpr (Sums::kTurned) {
    sums.template add<PARTS>(source, buffer, held, chunk);
  } else {
    sums.hold(held, chunk);
    unsigned rows[Source::kRows / 8][4];
    source.template read<PARTS>(rows, 0, buffer, chunk);
    sums.template multiply<PARTS>(rows, held, chunk);
  }
}

template <class Traits>
__device__ __forceinline__ void gemm_stretches(const GemmArguments& args) {
  using TIn = typename Traits::TIn;
  using TAcc = typename Traits::TAcc;
  extern __shared__ __align__(16) unsigned char shared[];
  const int warp = int(threadIdx.x) / 32;
  const int extent = Traits::STREAMED_A ? args.m : args.n;
  const typename Traits::Source source(static_cast<const TIn*>(Traits::STREAMED_A ? args.a : args.b),
                                       Traits::STREAMED_A ? args.lda : args.ldb, extent, args.k);
  // Shared memory: the held pieces, then the stages of each warp.
  const typename Traits::Held held{ptx::shared_address(shared)};
  const int held_bytes = source.chunks.all() * Traits::Held::kPieces * kPieceBytes, buffer_bytes = source.buffer_bytes();
  const unsigned buffers = held.shared + held_bytes + warp * (Traits::STAGES * buffer_bytes);

  const int stretches = int(cdiv((long long)extent, (long long)Traits::kWarpRows));
  const int stride = int(gridDim.x) * Traits::WARPS, begin = int(blockIdx.x) * Traits::WARPS + warp;
  const auto copy = [&](long long stretch, unsigned buffer) {
    if (stretch < stretches) source.copy(buffer, stretch * Traits::kWarpRows);
    ptx::cp_async_commit();
  };
#pragma unroll 1
  for (int stage = 0; stage < Traits::STAGES - 1; ++stage) {
    copy(begin + (long long)stage * stride, buffers + stage * buffer_bytes);
  }
#pragma unroll 1
  for (int stage = 0; stage < Traits::STAGES; ++stage) source.prepare(buffers + stage * buffer_bytes);
  arrange_held<Traits>(args, held.shared, source);
  __syncthreads();

  const auto output = output_c<TAcc, typename Traits::TOut, Traits::STORE>(args, 0);
  typename Traits::Sums sums;
  int stage = 0;
#pragma unroll 1
  for (long long stretch = begin; stretch < stretches; stretch += stride) {
    ptx::cp_async_wait<Traits::STAGES - 2>();
    __syncwarp();  // all copies of the warp have arrived, and its last buffer is read
    const int fill = stage == 0 ? Traits::STAGES - 1 : stage - 1;
    copy(stretch + (Traits::STAGES - 1) * stride, buffers + fill * buffer_bytes);
    sums.clear();
    const unsigned buffer = buffers + stage * buffer_bytes;
#pragma unroll 1
    for (int chunk = 0; chunk < source.chunks.whole; ++chunk) add_chunk<2>(sums, source, buffer, held, chunk);
    if constexpr (Traits::Source::kHalves) {
      if (source.chunks.half) add_chunk<1>(sums, source, buffer, held, source.chunks.whole);
    }
    sums.finish();
    write_results<Traits>(output, sums, stretch * Traits::kWarpRows);
    stage = stage + 1 == Traits::STAGES ? 0 : stage + 1;
  }
}

}  // namespace kt
