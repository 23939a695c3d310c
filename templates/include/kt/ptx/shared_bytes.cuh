// Shared memory in plain copies of 16 bytes, and in reads of less than whole vectors.

namespace kt::ptx {

// Copies 16 bytes that begin at a multiple of 16. There is no copy of a part of them: cp.async with fewer source bytes than
// it writes becomes one access of all 16, which at the end of an operand reads what lies behind it.
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
