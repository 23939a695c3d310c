// Accesses by shared address; ldmatrix reads matrices of 8 rows by 16 bytes in the arrangement of `mma` (since sm_75).

namespace kt::ptx {

// Four matrices. Lane l gives the address of row l % 8 of matrix l / 8; a row starts at a multiple of 16 bytes.
// Register q of lane l holds bytes 4 * (l % 4) ... + 3 of row l / 4 of matrix q. TRANSPOSED: of each matrix of 2-byte
// elements, column l / 4 of rows 2 * (l % 4) and 2 * (l % 4) + 1.
template <bool TRANSPOSED>
__device__ __forceinline__ void ldmatrix_x4(unsigned* registers, unsigned shared) {
  if constexpr (TRANSPOSED) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared));
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(registers[0]), "=r"(registers[1]), "=r"(registers[2]), "=r"(registers[3])
                 : "r"(shared));
  }
}

}  // namespace kt::ptx
