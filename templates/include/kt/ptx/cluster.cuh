// Thread-block clusters: blocks that run at the same time and reach each other's shared memory (sm_90).

namespace kt::ptx {

// Of what a thread wrote before, only mbarriers made with a fence are seen by who waits: a release would wait for all
// memory accesses.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed;\n" ::: "memory"); }

// Waits for all threads of all blocks of the cluster.
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait;\n" ::: "memory"); }

// Where an address of this block's shared memory lies in another block of the cluster.
__device__ __forceinline__ unsigned address_in(unsigned shared, int block) {
  unsigned there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;\n" : "=r"(there) : "r"(shared), "r"(block));
  return there;
}

// Stores 16 bytes in shared memory of a block of the cluster; they count at an mbarrier of the same block. The words are
// given as what they are: a sum of wgmma that is looked at as another type would be waited for where it is made.
#define KT_STORE_IN_CLUSTER "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];\n"
__device__ __forceinline__ void store_in_cluster(unsigned there, const float* words, unsigned barrier) {
  asm volatile(KT_STORE_IN_CLUSTER ::"r"(there), "f"(words[0]), "f"(words[1]), "f"(words[2]), "f"(words[3]), "r"(barrier)
               : "memory");
}
__device__ __forceinline__ void store_in_cluster(unsigned there, const int* words, unsigned barrier) {
  asm volatile(KT_STORE_IN_CLUSTER ::"r"(there), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(barrier)
               : "memory");
}
#undef KT_STORE_IN_CLUSTER

}  // namespace kt::ptx
