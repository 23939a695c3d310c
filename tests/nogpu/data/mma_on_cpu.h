// What the headers of `mma` take besides block_on_cpu.h, for fp64; then how the kernel is launched.
struct double2 { double x, y; };
inline double __shfl_xor_sync(unsigned, double value, int mask) { return cpu::meet_warp({value})[cpu::running ^ mask][0]; }

namespace kt::ptx {
inline int thread_index() { return int(threadIdx.x); }
template <int BYTES> unsigned load_or_zero(const void*, bool) { cpu::fail("no operand of doubles is read in parts"); }
template <bool TURNED> void ldmatrix_x4(unsigned (&)[4], unsigned) { cpu::fail("no matrix has doubles"); }
template <unsigned SELECTOR> unsigned permuted(unsigned, unsigned) { cpu::fail("no bytes are permuted"); }
inline void store_release(unsigned*, unsigned) { cpu::fail("nobody waits for a flag"); }
inline unsigned load_acquire(const unsigned*) { cpu::fail("nobody waits for a flag"); }
inline void load_shared(double& number, unsigned source) {
  if (source % 8) cpu::fail("misaligned double");
  std::memcpy(&number, shared + source, 8);
}
inline void store_global(void* global, double first, double second) {
  if (reinterpret_cast<unsigned long long>(global) % 16) cpu::fail("misaligned store");
  static_cast<double*>(global)[0] = first;
  static_cast<double*>(global)[1] = second;
}
template <Format FORMAT>
void mma(double (&sum)[4], const double* a, const double* b) {
  for (int half = 0; half < 2; ++half) multiply<FORMAT>(sum, a + 4 * half, b + 2 * half);
}
}  // namespace kt::ptx
#define shared_bytes shared
// headers
template <int BLOCK_M, int BLOCK_N, int WARP_M, int WARP_N, int STAGES, bool A_ALONG_K, bool B_ALONG_K, int LOAD, bool HELD>
struct Doubles : kt::MmaTraits<kt::Format::kFp64, double, double, double, BLOCK_M, BLOCK_N, 16, WARP_M, WARP_N, STAGES, A_ALONG_K,
                               B_ALONG_K, false, false, false, false, LOAD, LOAD, 16, true, HELD, false> {
  static constexpr bool kStretch = false, STREAMED_A = false;
};

// Where columns of B stay, fewer blocks than columns, whose shares begin and end anywhere in them.
template <class Traits>
void launch(const kt::GemmArguments& args) {
  const int tiles = kt::cdiv(args.m, Traits::BLOCK_M) * kt::cdiv(args.n, Traits::BLOCK_N);
  gridDim.x = Traits::HELD ? 4 : tiles * args.split_k * args.batch;
  for (unsigned i = 0; i < gridDim.x; ++i) cpu::run_cluster(i, 1, Traits::kThreads, [&] { kt::gemm_mma<Traits>(args); });
}
