// The argument block of every kernel, and small helpers.

namespace kt {

// One GEMM: C[m,n] = alpha * op(A)[m,k] op(B)[k,n] + beta * C[m,n], `batch` times. Strides count elements.
// The host writes this struct byte by byte (tuner/arguments.py): the two must agree.
struct GemmArguments {
  const void* a;
  const void* b;
  void* c;
  void* workspace;
  double alpha;
  double beta;
  long long lda, ldb, ldc;
  long long stride_a, stride_b, stride_c;
  int m, n, k, batch;
  int split_k;       // slices of k, each summed by blocks of its own
  int raster_group;  // tile rows that are walked together
  int stream_k;      // 1: the steps of the last tiles are shared evenly among the blocks
  int reserved0;
};

template <class T>
__host__ __device__ constexpr T cdiv(T a, T b) {
  return (a + b - 1) / b;
}

template <class T>
__host__ __device__ constexpr T min_of(T a, T b) {
  return a < b ? a : b;
}

template <class T>
__host__ __device__ constexpr T max_of(T a, T b) {
  return a > b ? a : b;
}

// Memory accesses are not moved across it by the compiler.
__device__ __forceinline__ void compiler_fence() { asm volatile("" ::: "memory"); }

template <class A, class B>
constexpr bool is_same = false;
template <class A>
constexpr bool is_same<A, A> = true;

template <bool CONDITION, class A, class B>
struct Select {
  using type = A;
};
template <class A, class B>
struct Select<false, A, B> {
  using type = B;
};

// `COUNT` values that move as one access.
template <class T, int COUNT>
struct alignas(sizeof(T) * COUNT) Vector {
  T at[COUNT];
};

}  // namespace kt
