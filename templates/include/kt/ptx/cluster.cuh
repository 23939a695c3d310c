// Thread-block clusters: blocks that run at the same time and reach each other's shared memory (sm_90).

namespace kt::ptx {

// Waits for all threads of all blocks of the cluster. Of what they wrote before, only mbarriers made with a fence are
// seen after: a release would wait for all memory accesses.
__device__ __forceinline__ void cluster_start() {
  asm volatile("barrier.cluster.arrive.relaxed;\nbarrier.cluster.wait;\n" ::: "memory");
}

// All threads of all blocks of the cluster meet, and see what the others have written to shared memory.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;\n" ::: "memory");
}

// Where an address of this block's shared memory lies in block `rank` of the cluster.
__device__ __forceinline__ unsigned address_in_cluster(unsigned shared, int rank) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(shared), "r"(rank));
  return there;
}

__device__ __forceinline__ void load_cluster(float& value, unsigned there) {
  asm volatile("ld.shared::cluster.f32 %0, [%1];\n" : "=f"(value) : "r"(there));
}
__device__ __forceinline__ void load_cluster(int& value, unsigned there) {
  asm volatile("ld.shared::cluster.s32 %0, [%1];\n" : "=r"(value) : "r"(there));
}
__device__ __forceinline__ void load_cluster(double& value, unsigned there) {
  asm volatile("ld.shared::cluster.f64 %0, [%1];\n" : "=d"(value) : "r"(there));
}

}  // namespace kt::ptx
