// Programmatic dependent launch: a grid may start while earlier ones in its stream still run, and waits for them itself.

namespace kt {

// First in every kernel that a space launches with `programmatic`, by all threads and before any access to global
// memory: the next grid may take the place that is free, and all that ran before is complete and visible afterwards.
__device__ __forceinline__ void wait_for_earlier_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;\n" ::: "memory");
#endif
}

}  // namespace kt
