// Copies an operand into the workspace as [batch][k][mn] with rows padded to whole 16-byte accesses. It costs one read
// and one write of the operand; the multiplication then needs neither turning nor narrow accesses.

namespace kt {

constexpr int kPackTile = 32;
constexpr int kPackThreads = 256;

template <class T, bool K_CONTIGUOUS>
__device__ __forceinline__ void pack_operand(const T* source, long long pitch, long long stride, T* target, int extent,
                                             int k_extent) {
  constexpr int kRowsAtOnce = kPackThreads / kPackTile;
  __shared__ T tile[kPackTile][kPackTile + 1];
  const long long target_pitch = packed_pitch<T>(extent);
  const int tiles_mn = cdiv(extent, kPackTile), tiles_k = cdiv(k_extent, kPackTile);
  const int batch = int(blockIdx.x / unsigned(tiles_mn * tiles_k));
  const int inside = int(blockIdx.x - unsigned(batch) * unsigned(tiles_mn * tiles_k));
  // Neighbouring blocks write neighbouring parts of the same rows.
  const int first_mn = inside % tiles_mn * kPackTile, first_k = inside / tiles_mn * kPackTile;
  const int x = int(threadIdx.x) % kPackTile, y = int(threadIdx.x) / kPackTile;
  source += batch * stride;
  target += batch * target_pitch * k_extent;
#pragma unroll
  for (int row = y; row < kPackTile; row += kRowsAtOnce) {
    const int mn = first_mn + (K_CONTIGUOUS ? row : x), k = first_k + (K_CONTIGUOUS ? x : row);
    if (mn < extent && k < k_extent) {
      const T value = source[K_CONTIGUOUS ? mn * pitch + k : k * pitch + mn];
      if constexpr (K_CONTIGUOUS) {
        tile[x][row] = value;
      } else {
        target[k * target_pitch + mn] = value;
      }
    }
  }
  if constexpr (K_CONTIGUOUS) {
    __syncthreads();
#pragma unroll
    for (int row = y; row < kPackTile; row += kRowsAtOnce) {
      const int mn = first_mn + x, k = first_k + row;
      if (mn < extent && k < k_extent) target[k * target_pitch + mn] = tile[row][x];
    }
  }
}

}  // namespace kt
