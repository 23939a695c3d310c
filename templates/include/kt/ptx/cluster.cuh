// Thread-block clusters: blocks that run at the same time and reach each other's shared memory (sm_90).

namespace kt::ptx {

// Waits for all threads of all blocks of the cluster. Of what they wrote before, only mbarriers made with a fence are
// seen after: a release would wait for all memory accesses.
__device__ __forceinline__ void cluster_start() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n" ::: "memory");
}

}  // namespace kt::ptx
