"""A kernel family of four kernels, each compiled in a moment: one thread for each element of C."""

__all__ = ["SMALL_SPACE", "SMALL_TEMPLATE"]

SMALL_SPACE = """
op: gemm
family: small
template: gemm/small.cu.j2
dtypes: [fp32]
parameters: {tile: [8, 16], unroll: [1, 2]}
default: {tile: 8, unroll: 1}
constraints:
  - {require: tile * tile <= 1024, reason: a block has at most 1024 threads}
launches:
  - {kernel: small_gemm, grid: "cdiv(m, tile) * cdiv(n, tile) * batch", block: tile * tile}
"""
SMALL_TEMPLATE = """
{% include "include/kt/common.cuh" %}
// One thread for each element of C; row-major operands only.
extern "C" __global__ void small_gemm(const __grid_constant__ kt::GemmArguments args) {
  const int tiles_n = kt::cdiv(args.n, {{ tile }});
  const int tiles = tiles_n * kt::cdiv(args.m, {{ tile }});
  const int tile = blockIdx.x % tiles, batch = blockIdx.x / tiles;
  const int row = tile / tiles_n * {{ tile }} + threadIdx.x / {{ tile }};
  const int column = tile % tiles_n * {{ tile }} + threadIdx.x % {{ tile }};
  if (row >= args.m || column >= args.n) return;
  const float* a = static_cast<const float*>(args.a) + batch * args.stride_a + row * args.lda;
  const float* b = static_cast<const float*>(args.b) + batch * args.stride_b + column;
  float* c = static_cast<float*>(args.c) + batch * args.stride_c + row * args.ldc + column;
  float sum = 0;
  for (int start = 0; start < args.k; start += {{ unroll }}) {
#pragma unroll
    for (int step = 0; step < {{ unroll }}; ++step) {
      if (start + step < args.k) sum += a[start + step] * b[(start + step) * args.ldb];
    }
  }
  *c = static_cast<float>(args.alpha) * sum + (args.beta == 0 ? 0.0f : static_cast<float>(args.beta) * *c);
}
"""
