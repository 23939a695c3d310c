// wgmma: the four warps of a warpgroup multiply tiles in shared memory on the tensor cores (sm_90a only).
//
// The multiplication itself depends on the tile's width and formats: gemm/wgmma_multiply.cu.j2 writes it out.

namespace kt::ptx {

// Before the first wgmma, and after registers of accumulators were touched otherwise.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory"); }

__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory"); }

// Waits until at most `PENDING` of the latest groups are in flight.
template <int PENDING>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;\n" ::"n"(PENDING) : "memory");
}

// Moves registers between the warpgroups of a block: the whole warpgroup asks.
template <int REGISTERS>
__device__ __forceinline__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;\n" ::"n"(REGISTERS));
}

// The descriptor of a tile in shared memory whose 16-byte units are swizzled as TMA does it: the unit's number within
// a row of ROW_BYTES is XORed with address bits from 7 on. A core is 8 rows, 8 * ROW_BYTES bytes, to which the tile is aligned.
//   along k (rows are along k, of 128 bytes): cores follow each other along mn every `core_stride` bytes;
//   along mn: cores follow each other along k every `core_stride`, and along mn every `panel_stride` bytes.
// Fields, in units of 16 bytes: address 0-13, panel stride 16-29, core stride 32-45; swizzle 62-63.
template <int ROW_BYTES>
__host__ __device__ constexpr unsigned long long wgmma_descriptor(unsigned shared, int core_stride, int panel_stride) {
  static_assert(ROW_BYTES == 128 || ROW_BYTES == 64 || ROW_BYTES == 32, "swizzles that wgmma knows");
  constexpr unsigned long long kSwizzle = ROW_BYTES == 128 ? 1 : ROW_BYTES == 64 ? 2 : 3;
  return kSwizzle << 62 | (unsigned long long)(core_stride >> 4) << 32 | (unsigned long long)(panel_stride >> 4) << 16 |
         (shared & 0x3FFFF) >> 4;
}

}  // namespace kt::ptx
