// Thread-block clusters: blocks that run at the same time and reach each other's shared memory (sm_90).

namespace kt::ptx {

// Waits for all threads of all blocks of the cluster; what they wrote before is seen after.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n" ::: "memory");
}

}  // namespace kt::ptx
