// A load that is left out, not branched around, where it is not wanted: the warps of a warpgroup stay together.

namespace kt::ptx {

// `word` keeps its value where `wanted` is 0.
__device__ __forceinline__ void load_shared_if(unsigned& word, unsigned shared, unsigned wanted) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, %2, 0;\n@p ld.shared.u32 %0, [%1];\n}\n"
               : "+r"(word)
               : "r"(shared), "r"(wanted));
}

}  // namespace kt::ptx
