"""Names that a header cannot use because nvcc and CUDA's headers have them in the global scope.

Found by compiling `namespace NAME {}` below CUDA's headers (runtime, driver, fp16, bf16, fp8, cooperative groups, mma)
with nvcc 13.0. Families stand for the names of the API, of the driver's types and of vectors.
"""

import re

__all__ = ["is_of_cuda"]

_WORDS = """
all any ballot blockDim blockIdx cl_context_flags cl_event_flags cospi cospif cyl_bessel_i0 cyl_bessel_i0f cyl_bessel_i1
cyl_bessel_i1f dim3 double2int double2ll double2uint double2ull erfcinv erfcinvf erfcx erfcxf erfinv erfinvf fdivide
fdividef ffsll float2double gridDim half half2 int2double libraryPropertyType ll2double llmax llmin make_bfloat162
make_half2 max min norm norm3d norm3df norm4d norm4df normcdf normcdff normcdfinv normcdfinvf normf rcbrt rcbrtf rhypot
rhypotf rnorm rnorm3d rnorm3df rnorm4d rnorm4df rnormf rsqrt rsqrtf sincospi sincospif sinpi sinpif threadIdx
uint2double ull2double ullmax ullmin umax umin warpSize IF_DEVICE_OR_CUDACC MAJOR_VERSION MINOR_VERSION PATCH_LEVEL
"""
_NAMES = frozenset(_WORDS.split())
_FAMILIES = re.compile(
    r"(make_)?(u?(char|short|int|long|longlong)|float|double)[1-4](_(16|32)a)?"
    r"|make_cuda\w+|atomic(Add|And|CAS|Dec|Exch|Inc|Max|Min|Or|Sub|Xor)(_block|_system)?|syncthreads_(and|count|or)"
    r"|h2?(ceil|cos|exp|exp10|exp2|floor|log|log10|log2|rcp|rint|rsqrt|sin|sqrt|tanh|tanh_approx|trunc)"
    r"|(surf|tex)([123]D|Cubemap)\w*|cu(da)?[A-Z]\w*|cuuint(32|64)_t"
    r"|CU(DA)?(RT)?[a-z_]\w*|CUDA(RT)?(API|_\w+)|CIG_\w+|NVCL_\w+|(NV|nv)_\w+"
)


def is_of_cuda(name: str) -> bool:
    """Whether nvcc has a type, variable, function or macro of the name in the global scope."""
    return name in _NAMES or _FAMILIES.fullmatch(name) is not None
