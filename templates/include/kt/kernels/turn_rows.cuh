// Copies operands into the workspace with rows and columns exchanged, so that k is contiguous: wgmma reads formats other
// than 16-bit ones along k only. It costs one read and one write of the operand.

namespace kt {

constexpr int kTurnThreads = 256;

// An operand as it lies in memory, rows along k: element (k, mn) of a batch at base + k * pitch + mn.
template <class T>
struct TurnedOperand {
  const T* base;
  long long pitch, stride;  // elements between rows and between batches
  T* target;
  long long target_pitch;  // elements
  int k, mn, batch;

  static constexpr int kOfWord = 4 / int(sizeof(T));  // elements in 4 bytes
  static constexpr int kTileK = 32 * kOfWord, kTileMn = 32 * kOfWord;

  static_assert(sizeof(T) == 1 || sizeof(T) == 4, "16-bit formats are read as they lie");

  __device__ __forceinline__ unsigned tiles() const {
    return unsigned(cdiv(k, kTileK)) * unsigned(cdiv(mn, kTileMn)) * unsigned(batch);
  }
};

// Elements [at, at + 4 bytes) of a row of `length`, the others zero.
template <class T, int ALIGN>
__device__ __forceinline__ unsigned load_elements(const T* row, int at, int length) {
  constexpr int kOfWord = 4 / int(sizeof(T));
  if (ALIGN >= 4 && at + kOfWord <= length) return __ldg(reinterpret_cast<const unsigned*>(row + at));
  unsigned word = 0;
#pragma unroll
  for (int i = 0; i < kOfWord; ++i) {
    if (at + i >= length) continue;
    if constexpr (sizeof(T) == 4) {
      word = __ldg(reinterpret_cast<const unsigned*>(row + at));
    } else {
      word |= unsigned(__ldg(reinterpret_cast<const unsigned char*>(row + at + i))) << 8 * i;
    }
  }
  return word;
}

// Of four words of four bytes, the words of their first, second, … bytes.
__device__ __forceinline__ void turn_bytes(unsigned (&words)[4]) {
  const unsigned low = __byte_perm(words[0], words[1], 0x5140), high = __byte_perm(words[2], words[3], 0x5140);
  const unsigned low_end = __byte_perm(words[0], words[1], 0x7362), high_end = __byte_perm(words[2], words[3], 0x7362);
  words[0] = __byte_perm(low, high, 0x5410);
  words[1] = __byte_perm(low, high, 0x7632);
  words[2] = __byte_perm(low_end, high_end, 0x5410);
  words[3] = __byte_perm(low_end, high_end, 0x7632);
}

// Tile `number`: 32 words by 32 words' worth of k. A warp reads along mn; in shared memory the words of one mn lie along
// k, word w of the mn with number i at w ^ (i / kOfWord % 32): all banks are hit once, on the way in as on the way out.
template <class T, int ALIGN>
__device__ __forceinline__ void turn_tile(const TurnedOperand<T>& from, unsigned number) {
  using Operand = TurnedOperand<T>;
  constexpr int kOfWord = Operand::kOfWord, kTileMn = Operand::kTileMn, kTileK = Operand::kTileK, kWarps = kTurnThreads / 32;
  __shared__ unsigned turned[kTileMn][32];
  const unsigned tiles_k = unsigned(cdiv(from.k, kTileK)), of_batch = tiles_k * unsigned(cdiv(from.mn, kTileMn));
  const unsigned batch = number / of_batch, inside = number - batch * of_batch;
  const int first_k = int(inside % tiles_k) * kTileK, first_mn = int(inside / tiles_k) * kTileMn;
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  const T* const source = from.base + batch * from.stride;
#pragma unroll
  for (int pass = 0; pass < 32 / kWarps; ++pass) {
    const int word = warp + pass * kWarps;  // of k
    unsigned words[kOfWord];
#pragma unroll
    for (int i = 0; i < kOfWord; ++i) {
      const int k = first_k + word * kOfWord + i, mn = first_mn + lane * kOfWord;
      words[i] = k < from.k && mn < from.mn ? load_elements<T, ALIGN>(source + k * from.pitch, mn, from.mn) : 0u;
    }
    if constexpr (kOfWord == 4) turn_bytes(words);
#pragma unroll
    for (int i = 0; i < kOfWord; ++i) turned[lane * kOfWord + i][word ^ lane] = words[i];
  }
  __syncthreads();
  // Rows of the copy have whole 16 bytes: a lane writes one of 8 units of 4 words.
  const long long pitch = from.target_pitch;
  T* const target = from.target + batch * (pitch * from.mn);
#pragma unroll
  for (int pass = 0; pass < kTileMn / (4 * kWarps); ++pass) {
    const int unit = lane % 8, group = (warp + pass * kWarps) % 8 * 4 + lane / 8, i = (warp + pass * kWarps) / 8;
    const int row = group * kOfWord + i, k = first_k + unit * 4 * kOfWord;
    if (first_mn + row >= from.mn || k >= pitch) continue;
    uint4 words;
    words.x = turned[row][(4 * unit) ^ group];
    words.y = turned[row][(4 * unit + 1) ^ group];
    words.z = turned[row][(4 * unit + 2) ^ group];
    words.w = turned[row][(4 * unit + 3) ^ group];
    *reinterpret_cast<uint4*>(target + (first_mn + row) * pitch + k) = words;
  }
}

// Blocks walk the tiles of A, then those of B; an operand that is not turned has none.
template <bool TURN_A, bool TURN_B, int ALIGN_A, int ALIGN_B, class T>
__device__ __forceinline__ void turn_rows(const TurnedOperand<T>& a, const TurnedOperand<T>& b) {
  const unsigned tiles_a = TURN_A ? a.tiles() : 0;
  if constexpr (TURN_A) {
    if (blockIdx.x < tiles_a) return turn_tile<T, ALIGN_A>(a, blockIdx.x);
  }
  if constexpr (TURN_B) turn_tile<T, ALIGN_B>(b, blockIdx.x - tiles_a);
}

}  // namespace kt
