// cp.async: copies from global to shared memory that do not pass through registers (sm_80 and later).

namespace kt::ptx {

__device__ __forceinline__ unsigned shared_address(const void* pointer) {
  return static_cast<unsigned>(__cvta_generic_to_shared(pointer));
}

// Copies `BYTES` (4, 8 or 16), or fills them with zeros: nothing is read where `valid` is false.
template <int BYTES>
__device__ __forceinline__ void cp_async_zfill(unsigned shared, const void* global, bool valid) {
  const int size = valid ? BYTES : 0;
  if constexpr (BYTES == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global), "r"(size));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;\n" ::"r"(shared), "l"(global), "n"(BYTES), "r"(size));
  }
}

// Copies 16 bytes that begin at a multiple of 16. There is no copy of a part of them: cp.async with fewer source bytes than
// it writes becomes one access of all 16, which at the end of an operand reads what lies behind it.
__device__ __forceinline__ void cp_async_whole(unsigned shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared), "l"(global));
}

__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;\n" ::); }

// This thread arrives at an mbarrier when all its copies so far have (sm_90).
__device__ __forceinline__ void cp_async_arrive(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];\n" ::"r"(barrier) : "memory");
}

// Waits until at most `PENDING` of the latest groups are in flight.
template <int PENDING>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;\n" ::"n"(PENDING));
}

}  // namespace kt::ptx
