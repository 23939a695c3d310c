// Programmatic dependent launch: a grid may start while the end of earlier ones in its stream is still being tidied up,
// and waits for them itself.
//
// No kernel lets the next grid start before its own blocks have ended (`griddepcontrol.launch_dependents`): blocks take
// room where they find it first, so the next grid gathers on the multiprocessors that are done early (docs/perf-log.md).

namespace kt {

// In every kernel that a space launches with `programmatic`, by all threads and before any access to global memory: all
// that ran before is complete and visible afterwards.
__device__ __forceinline__ void wait_for_earlier_grids() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;\n" ::: "memory");
#endif
}

}  // namespace kt
