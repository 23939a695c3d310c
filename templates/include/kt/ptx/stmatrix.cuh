// stmatrix: a warp writes matrices of 8 rows by 16 bytes, in the arrangement of `mma`, to shared memory (sm_90).

namespace kt::ptx {

// Four matrices. Lane l gives the address of row l % 8 of matrix l / 8; register q of lane l is written to bytes
// 4 * (l % 4) ... + 3 of row l / 4 of matrix q.
__device__ __forceinline__ void stmatrix_x4(unsigned shared, unsigned r0, unsigned r1, unsigned r2, unsigned r3) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};\n" ::"r"(shared), "r"(r0), "r"(r1),
               "r"(r2), "r"(r3)
               : "memory");
}

}  // namespace kt::ptx
