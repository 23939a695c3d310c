// Programmatic dependent launch: a grid may start while earlier ones in its stream still run, and waits for them itself.

namespace kt {

// In every kernel that a space launches with `programmatic`, by all threads and before any access to global memory: all
// that ran before is complete and visible afterwards.
__device__ __forceinline__ void wait_for_earlier_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// The next grid may take what room there is from when all blocks have said so or ended. Blocks take it where they find
// it first: if more than one fits on a multiprocessor, the next grid gathers on a few of them, and takes up to twice as
// long. Hence only for kernels whose blocks have a multiprocessor for themselves.
__device__ __forceinline__ void let_later_grids_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n");
#endif
}

}  // namespace kt
