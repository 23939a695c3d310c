// `programmatic`: the grid may start before earlier ones in its stream have ended, and waits for them itself.
inline cudaError_t launch(const void* kernel, unsigned grid, unsigned block, ::std::size_t smem_bytes, bool programmatic,
                          void** pointers, cudaStream_t stream) noexcept {
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid);
  config.blockDim = dim3(block);
  config.dynamicSmemBytes = smem_bytes;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = programmatic ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, pointers);
}
