// Skinny GEMM with a short k and a dense streamed operand: the rows of a warp are one stretch of memory.
//
// Wherever a row begins, the stretch of 8 LANE_ROWS rows begins at a multiple of 16 bytes if the operand does: it is
// copied in accesses of 16 bytes whatever k is, stages ahead, into shared memory of the warp's own. From there lanes
// read the pieces of their rows, with shifts where rows begin at odd elements. Warps go from stretch to stretch and wait
// for nobody. The held operand lies in shared memory in the order in which it is multiplied, and that order is chosen
// so that a lane's results are neighbours in C.

namespace kt {

// The held operand in shared memory: for each chunk and octet the piece of each lane, zero where there is none.
// SPREAD: a lane's columns of the product are neighbouring rows of the operand.
template <class T, int TILE_S, bool SPREAD>
struct StretchOctets {
  static constexpr int kOctets = TILE_S / 8, kLanes = 32;
  static constexpr int kPieces = kOctets * kLanes;  // of a chunk
  using Pieces = unsigned[kOctets][4];
  unsigned shared;

  __host__ __device__ static constexpr int row_of(int octet, int column) {
    return SPREAD ? column / 2 * (2 * kOctets) + octet * 2 + column % 2 : 8 * octet + column;
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

template <class TIn_, class TAcc_, class TOut_, bool STREAMED_A_, int TILE_S_, int LANE_ROWS_, int WARPS_, int STAGES_,
          bool HELD_K_, int ROW_ALIGN_, int STORE_, class Sums_>
struct StretchTraits {
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  using Sums = Sums_;
  using Held = typename Sums::Held;
  static constexpr bool STREAMED_A = STREAMED_A_, HELD_K = HELD_K_;
  static constexpr int TILE_S = TILE_S_, LANE_ROWS = LANE_ROWS_, WARPS = WARPS_, STAGES = STAGES_;
  static constexpr int ROW_ALIGN = ROW_ALIGN_, STORE = STORE_;
  static constexpr int kThreads = 32 * WARPS, kWarpRows = 8 * LANE_ROWS, kSize = int(sizeof(TIn));
  static constexpr int kElements = kPieceBytes / kSize, kChunk = kLanesAlongK * kElements;

  static_assert(kThreads <= 1024, "a block has at most 1024 threads");
  static_assert(STAGES >= 2, "one stretch is multiplied while the next arrives");
  static_assert(kWarpRows * kSize % 16 == 0, "stretches begin at multiples of 16 bytes");
};

// Shared memory: the held pieces, then STAGES buffers of each warp. The space computes the same
// (search_spaces/gemm/skinny.yaml). Lanes read up to two pieces past the last row.
template <class Traits>
struct StretchRoom {
  int chunks, row_bytes, held_bytes, buffer_bytes;

  __device__ __forceinline__ explicit StretchRoom(int k)
      : chunks(cdiv(k, Traits::kChunk)), row_bytes(k * Traits::kSize),
        held_bytes(chunks * Traits::Held::kPieces * kPieceBytes),
        buffer_bytes(cdiv(Traits::kWarpRows * row_bytes, 16) * 16 + 96) {}
};

// Fills the held pieces, element by element: once a block.
template <class Traits>
__device__ __forceinline__ void arrange_held(const GemmArguments& args, unsigned shared, int chunks) {
  using TIn = typename Traits::TIn;
  using Held = typename Traits::Held;
  const TIn* const held = static_cast<const TIn*>(Traits::STREAMED_A ? args.b : args.a);
  const long long pitch = Traits::STREAMED_A ? args.ldb : args.lda;
  const int rows = Traits::STREAMED_A ? args.n : args.m;
#pragma unroll 1
  for (int index = int(threadIdx.x); index < chunks * Held::kPieces; index += Traits::kThreads) {
    const int piece = index % Held::kPieces, row = Held::held_row(piece);
    const int first_k = index / Held::kPieces * Traits::kChunk + Held::along_k(piece) * Traits::kElements;
    unsigned words[4] = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < Traits::kElements; ++i) {
      const int k = first_k + i;
      const TIn* const source = held + (Traits::HELD_K ? row * pitch + k : k * pitch + row);
      const auto bits = ptx::read_only<Traits::kSize>(source, row < rows && k < args.k);
#pragma unroll
      for (int word = 0; word < cdiv(Traits::kSize, 4); ++word) {
        words[i * Traits::kSize / 4 + word] |= bits.at[word] << i * Traits::kSize % 4 * 8;
      }
    }
#pragma unroll
    for (int word = 0; word < 4; ++word) ptx::store_shared(shared + index * kPieceBytes + 4 * word, words[word]);
  }
}

// Starts to copy the stretch of `bytes` at `source`, by the lanes of a warp.
template <class Traits>
__device__ __forceinline__ void copy_stretch(unsigned buffer, const char* source, long long bytes, bool aligned) {
  const int lane = int(threadIdx.x) % 32;
  if (aligned) {
#pragma unroll 4
    for (int at = lane * 16; at < bytes; at += 32 * 16) {
      ptx::cp_async_part(buffer + at, source + at, int(min_of(16ll, bytes - at)));
    }
  } else {
#pragma unroll 1
    for (int at = lane * 4; at < bytes; at += 32 * 4) {  // rows of a stretch are whole words together, but for the last
      unsigned word = 0;
#pragma unroll
      for (int i = 0; i < 4; i += min_of(4, Traits::kSize)) {
        constexpr int kBytes = min_of(4, Traits::kSize);
        word |= ptx::read_only<kBytes>(source + at + i, at + i < bytes).at[0] << 8 * i;
      }
      ptx::store_shared(buffer + at, word);
    }
  }
}

// A piece of 16 bytes that begins at a multiple of ALIGN bytes.
template <int ALIGN>
__device__ __forceinline__ void read_piece(unsigned (&words)[4], unsigned address) {
  if constexpr (ALIGN >= 16) {
    ptx::load_shared(words, address);
  } else if constexpr (ALIGN >= 4) {
#pragma unroll
    for (int word = 0; word < 4; ++word) words[word] = ptx::load_shared_word(address + 4 * word);
  } else {
    unsigned read[5];
#pragma unroll
    for (int word = 0; word < 5; ++word) read[word] = ptx::load_shared_word((address & ~3u) + 4 * word);
#pragma unroll
    for (int word = 0; word < 4; ++word) words[word] = __funnelshift_r(read[word], read[word + 1], address % 4 * 8);
  }
}

// Zeros behind the first `valid` bytes of a piece: what follows there belongs to the next row.
__device__ __forceinline__ void cut_piece(unsigned (&words)[4], int valid) {
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    const int left = valid - 4 * word;
    if (left < 4) words[word] &= left <= 0 ? 0u : (1u << 8 * left) - 1;
  }
}

// Multiplies the stretch in `buffer` with all that is held.
template <class Traits>
__device__ __forceinline__ void multiply_stretch(typename Traits::Sums& sums, const typename Traits::Held& held,
                                                 const StretchRoom<Traits>& room, unsigned buffer, int first_row) {
  const int k_bytes = int(threadIdx.x) % kLanesAlongK * kPieceBytes;
#pragma unroll 1
  for (int chunk = 0; chunk < room.chunks; ++chunk) {
    sums.hold(held, chunk);
    const int begin = chunk * (kLanesAlongK * kPieceBytes) + k_bytes;
    unsigned rows[Traits::LANE_ROWS][4];
#pragma unroll
    for (int slot = 0; slot < Traits::LANE_ROWS; ++slot) {
      const int row = first_row + slot * (Traits::STREAMED_A ? 8 : 1);
      read_piece<Traits::ROW_ALIGN>(rows[slot], buffer + row * room.row_bytes + begin);
      if (chunk + 1 == room.chunks) cut_piece(rows[slot], room.row_bytes - begin);
    }
    sums.multiply(rows, held, chunk);
  }
}

// Writes a warp's results: a lane's are neighbours, in a row of C if A is streamed, else in a column of C transposed.
template <class Traits, class Output>
__device__ __forceinline__ void write_stretch(const Output& output, const typename Traits::Sums& sums, long long first,
                                              int rows_left) {
  using TAcc = typename Traits::TAcc;
  using Sums = typename Traits::Sums;
  if (!Sums::owner()) return;
  if constexpr (Traits::STREAMED_A) {
    const int column = Sums::row_of(0);
#pragma unroll
    for (int slot = 0; slot < Traits::LANE_ROWS; ++slot) {
      TAcc values[Sums::kOwned];
#pragma unroll
      for (int owned = 0; owned < Sums::kOwned; ++owned) values[owned] = sums.sum(slot, owned);
      if (8 * slot < rows_left && column < output.n) {
        auto* const target = output.base + ((first + 8 * slot) * output.pitch + column);
        output.template write_group<Sums::kOwned>(target, values, output.n - column);
      }
    }
  } else {
#pragma unroll
    for (int owned = 0; owned < Sums::kOwned; ++owned) {
      TAcc values[Traits::LANE_ROWS];
#pragma unroll
      for (int slot = 0; slot < Traits::LANE_ROWS; ++slot) values[slot] = sums.sum(slot, owned);
      const int row = Sums::row_of(owned);
      if (rows_left > 0 && row < output.m) {
        output.template write_group<Traits::LANE_ROWS>(output.base + (row * output.pitch + first), values, rows_left);
      }
    }
  }
}

template <class Traits>
__device__ __forceinline__ void gemm_stretches(const GemmArguments& args) {
  using TAcc = typename Traits::TAcc;
  extern __shared__ __align__(16) unsigned char shared[];
  const StretchRoom<Traits> room(args.k);
  const int warp = int(threadIdx.x) / 32, g = int(threadIdx.x) % 32 / kLanesAlongK;
  const int lane_row = Traits::STREAMED_A ? g : g * Traits::LANE_ROWS;
  const unsigned buffers =
      ptx::shared_address(shared) + room.held_bytes + warp * (Traits::STAGES * room.buffer_bytes);
  const char* const streamed = static_cast<const char*>(Traits::STREAMED_A ? args.a : args.b);
  const bool aligned = reinterpret_cast<unsigned long long>(streamed) % 16 == 0;
  const int extent = Traits::STREAMED_A ? args.m : args.n;
  const int stretches = int(cdiv((long long)extent, (long long)Traits::kWarpRows)), stride = gridDim.x * Traits::WARPS;
  const auto copy = [&](long long stretch, unsigned buffer) {
    const long long first = stretch * Traits::kWarpRows;
    if (stretch < stretches) {
      copy_stretch<Traits>(buffer, streamed + first * room.row_bytes,
                           min_of((long long)Traits::kWarpRows, extent - first) * room.row_bytes, aligned);
    }
    ptx::cp_async_commit();
  };

  const int begin = blockIdx.x * Traits::WARPS + warp;
#pragma unroll 1
  for (int stage = 0; stage < Traits::STAGES - 1; ++stage) {
    copy(begin + (long long)stage * stride, buffers + stage * room.buffer_bytes);
  }
  const typename Traits::Held held{ptx::shared_address(shared)};
  arrange_held<Traits>(args, held.shared, room.chunks);
  __syncthreads();

  const auto output = output_c<TAcc, typename Traits::TOut, Traits::STORE>(args, 0);
  typename Traits::Sums sums;
  int stage = 0;
#pragma unroll 1
  for (long long stretch = begin; stretch < stretches; stretch += stride) {
    ptx::cp_async_wait<Traits::STAGES - 2>();
    __syncwarp();  // all copies of the warp have arrived, and its last buffer is read
    const int fill = stage == 0 ? Traits::STAGES - 1 : stage - 1;
    copy(stretch + (Traits::STAGES - 1ll) * stride, buffers + fill * room.buffer_bytes);
    sums.clear();
    multiply_stretch<Traits>(sums, held, room, buffers + stage * room.buffer_bytes, lane_row);
    sums.finish();
    const long long first = stretch * Traits::kWarpRows + lane_row;
    write_stretch<Traits>(output, sums, first, int(extent - first));
    stage = stage + 1 == Traits::STAGES ? 0 : stage + 1;
  }
}

}  // namespace kt
