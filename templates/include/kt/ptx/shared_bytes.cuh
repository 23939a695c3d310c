// Shared memory in less than whole vectors: a copy of part of 16 bytes, a read of one word.

namespace kt::ptx {

// Copies the first `bytes` (1 to 16) of 16 bytes that begin at a multiple of 16; the others become zero, and are not read.
__device__ __forceinline__ void cp_async_part(unsigned shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;\n" ::"r"(shared), "l"(global), "r"(bytes));
}

// All 16 of them.
__device__ __forceinline__ void cp_async_whole(unsigned shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\n" ::"r"(shared), "l"(global));
}

__device__ __forceinline__ unsigned load_shared_word(unsigned shared) {
  unsigned word;
  asm volatile("ld.shared.u32 %0, [%1];\n" : "=r"(word) : "r"(shared));
  return word;
}

// 4, 8 or 16 bytes.
template <int BYTES>
__device__ __forceinline__ void load_shared_vector(Bits<BYTES>& bits, unsigned shared) {
  load_shared(bits.at, shared);
}

}  // namespace kt::ptx
