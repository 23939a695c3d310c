// Lets a kernel have more than 48 KiB of dynamic shared memory; once for each kernel and GPU, for all that it can have.
// How much a launch needs depends on the problem: whoever asked for just that would take from another thread what its
// larger problem was granted, between its asking and its launch.
inline cudaError_t grant(const Step& step, int ordinal) noexcept {
  static ::std::atomic<bool> granted[kDevices][kFunctions];
  const bool kept = ordinal < kDevices;
  if (step.smem_bytes == 0 || (kept && granted[ordinal][step.number].load(::std::memory_order_relaxed)))
    return cudaSuccess;
  int most = 0;
  cudaError_t error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, ordinal);
  if (error != cudaSuccess) return error;
  cudaFuncAttributes kernel;
  error = cudaFuncGetAttributes(&kernel, step.kernel);
  if (error != cudaSuccess) return error;
  most -= static_cast<int>(kernel.sharedSizeBytes);
  error = cudaFuncSetAttribute(step.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
  if (error == cudaSuccess && kept) granted[ordinal][step.number].store(true, ::std::memory_order_relaxed);
  return error;
}
