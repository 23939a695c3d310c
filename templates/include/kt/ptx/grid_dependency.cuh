// Programmatic dependent launch: a grid may start while the end of earlier ones in its stream is still being tidied up,
// and waits for them itself.
//
// A grid starts when all blocks of the one before have ended, or have said that it may. Blocks take room where they find
// it first: what starts early gathers on the multiprocessors that are done early (docs/perf-log.md). So kernels let a grid
// start early only where most multiprocessors are free, and each block of the grid takes a whole one.

namespace kt {

// In every kernel that a space launches with `programmatic`, by all threads and before any access to global memory but to
// what `let_next_grid_start` says is complete: all that ran before is complete and visible afterwards.
__device__ __forceinline__ void wait_for_earlier_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

// By all threads of a kernel that has waited itself: what ran before it is complete and visible in the next grid, even
// before that one waits. What this kernel writes is not.
__device__ __forceinline__ void let_next_grid_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n" ::: "memory");
#endif
}

}  // namespace kt
