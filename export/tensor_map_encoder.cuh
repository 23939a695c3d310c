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

// Where every `classes`-th row begins, the rows that begin `number` 16 / `classes` bytes behind multiples of 16, rounded
// down to such a multiple; extents and strides become theirs. Null: rows do not fall into these classes.
inline const void* show_class(const void* base, cuuint64_t (&extents)[3], cuuint64_t (&strides)[2], int element_bytes,
                              int classes, int number) noexcept {
  if (classes == 1) return base;
  const cuuint64_t early = static_cast<cuuint64_t>(number * (16 / classes)), address = reinterpret_cast<cuuint64_t>(base);
  for (cuuint64_t row = 0; row < static_cast<cuuint64_t>(classes); ++row) {
    if ((address + row * strides[0]) % 16 != early || row >= extents[1]) continue;
    const void* const begin = static_cast<const char*>(base) + row * strides[0] - early;
    extents[0] += early / static_cast<cuuint64_t>(element_bytes);
    extents[1] = (extents[1] - row + classes - 1) / classes;
    strides[0] *= classes;
    strides[1] = extents[1] * strides[0];
    return begin;
  }
  return nullptr;
}
