// The tensor maps of an operand: of each class of its rows one (see RowClass in search_spaces/space.py), or a single one.

namespace kt {

template <int CLASSES>
struct ClassMaps {
  const TensorMap* of[CLASSES];

  __device__ __forceinline__ void prefetch() const {
#pragma unroll
    for (int i = 0; i < CLASSES; ++i) ptx::prefetch(*of[i]);
  }
};

}  // namespace kt
