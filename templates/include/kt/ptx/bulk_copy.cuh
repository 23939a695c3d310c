// A stretch of memory that one thread has copied to shared memory, without a tensor map (sm_90).

namespace kt::ptx {

// Copies `bytes`, a multiple of 16 that is not 0, between multiples of 16; they count at `barrier`.
__device__ __forceinline__ void bulk_load(unsigned shared, unsigned long long global, int bytes, unsigned barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];\n" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
}

// Announces `bytes` of copies in the phase that goes on, without an arrival.
__device__ __forceinline__ void mbarrier_announce(unsigned barrier, int bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ unsigned short load_half_word(unsigned long long global) {
  unsigned short value;
  asm volatile("ld.global.u16 %0, [%1];\n" : "=h"(value) : "l"(global));
  return value;
}
__device__ __forceinline__ void store_shared_half_word(unsigned shared, unsigned short value) {
  asm volatile("st.shared.u16 [%0], %1;\n" ::"r"(shared), "h"(value) : "memory");
}

}  // namespace kt::ptx
