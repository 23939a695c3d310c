// mbarrier: barriers in shared memory that count arrivals, and bytes of copies that arrive by themselves (sm_90).
//
// A barrier is 8 bytes, named by its address in the shared window. It goes from phase to phase: one ends when all
// arrivals and all announced bytes have come. Who waits names the parity of the phase whose end it waits for; so nobody
// may be two phases behind. A wait for parity 1 on a new barrier returns at once.

namespace kt::ptx {

constexpr int kMbarrierBytes = 8;

__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;\n" ::"r"(barrier), "r"(arrivals));
}

// Before others, and copies, use barriers that this thread has made; a barrier of the block or cluster must follow.
__device__ __forceinline__ void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;\n" ::: "memory");
}

// One arrival that also announces `bytes` of copies.
__device__ __forceinline__ void mbarrier_expect(unsigned barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;\n" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];\n" ::"r"(barrier) : "memory");
}

// Arrives at the barrier that lies at the same place in another block of the cluster. What this thread wrote before is
// not published: a release at cluster scope would wait for all of its memory accesses.
__device__ __forceinline__ void mbarrier_arrive_at(unsigned barrier, int block) {
  asm volatile(
      "{\n.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n}\n" ::"r"(barrier),
      "r"(block)
      : "memory");
}

__device__ __forceinline__ bool mbarrier_try_wait(unsigned barrier, unsigned parity) {
  unsigned ended;
  asm volatile(
      "{\n.reg .pred ended;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
      "selp.u32 %0, 1, 0, ended;\n}\n"
      : "=r"(ended)
      : "r"(barrier), "r"(parity)
      : "memory");
  return ended != 0;
}

__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  while (!mbarrier_try_wait(barrier, parity)) {
  }
}

}  // namespace kt::ptx
