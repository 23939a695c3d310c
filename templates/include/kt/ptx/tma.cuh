// The tensor memory accelerator: one thread has a box of a matrix copied between global and shared memory (sm_90).

namespace kt {

// What TMA must know of a matrix in memory. The host encodes it (tuner/tensor_map.py); a kernel takes it as a
// `const __grid_constant__` parameter. Coordinates are (element in a row, row, batch).
struct alignas(64) TensorMap {
  unsigned long long opaque[16];
};

namespace ptx {

// Has the map read into the cache that TMA uses, before the first copy needs it.
__device__ __forceinline__ void prefetch(const TensorMap& map) {
  asm volatile("prefetch.tensormap [%0];\n" ::"l"(&map) : "memory");
}

// Copies a box to shared memory; its bytes count at `barrier`. Elements outside the matrix arrive as zeros.
__device__ __forceinline__ void tma_load(const TensorMap& map, unsigned shared, unsigned barrier, int column, int row,
                                         int batch) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];\n" ::"r"(
          shared),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(batch)
      : "memory");
}

// The same, and L2 treats the box's lines by a policy (cache_policy.cuh).
__device__ __forceinline__ void tma_load(const TensorMap& map, unsigned shared, unsigned barrier, int column, int row,
                                         int batch, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(batch), "l"(policy)
      : "memory");
}

// The same to every block of the cluster whose bit is set in `blocks`: to the same place, counted at its own barrier.
__device__ __forceinline__ void tma_load_multicast(const TensorMap& map, unsigned shared, unsigned barrier, int column,
                                                   int row, int batch, unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;\n" ::"r"(shared),
      "l"(&map), "r"(barrier), "r"(column), "r"(row), "r"(batch), "h"(blocks)
      : "memory");
}

// Copies a box from shared to global memory; elements outside the matrix are left out. Belongs to the next group.
__device__ __forceinline__ void tma_store(const TensorMap& map, unsigned shared, int column, int row, int batch,
                                          unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group.L2::cache_hint [%0, {%2, %3, %4}], [%1], %5;\n" ::"l"(&map),
      "r"(shared), "r"(column), "r"(row), "r"(batch), "l"(policy)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;\n" ::: "memory"); }

// Waits until at most `PENDING` of this thread's latest groups still read shared memory.
template <int PENDING>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;\n" ::"n"(PENDING) : "memory");
}

// Between this thread's ordinary accesses to shared memory and those of TMA or wgmma.
__device__ __forceinline__ void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;\n" ::: "memory"); }

}  // namespace ptx
}  // namespace kt
