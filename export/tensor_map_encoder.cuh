using Encode = decltype(&cuTensorMapEncodeTiled);

// Finds the driver's encoder of tensor maps, without linking the driver's library.
inline cudaError_t find_encoder(Encode& encode) noexcept {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault, &result);
#else
  const cudaError_t error = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess) return error;
  if (result != cudaDriverEntryPointSuccess || found == nullptr) return cudaErrorNotSupported;
  encode = reinterpret_cast<Encode>(found);
  return cudaSuccess;
}
