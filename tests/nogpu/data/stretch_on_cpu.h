// Runs, on the CPU, how a dense and narrow B comes to its stages: who asks for stretches and who unpacks them, beside
// threads that stand in for what asks for A and for a consumer. Elements are their own numbers; what is no part of B has all
// bits set, and what lies outside it, but for the 16 bytes that it begins in, must not be read.
namespace kt {
inline int lane_here() { return int(threadIdx.x) % 32; }
struct TensorMap {};
constexpr int kWarpgroup = 128;
}  // namespace kt

namespace cpu {
struct Barrier { int count, pending; long long bytes; unsigned phase; };
static std::map<unsigned, Barrier> barriers;

inline void arrive(unsigned barrier, int arrivals, long long bytes) {
  if (!barriers.count(barrier)) fail("nobody has made the barrier");
  Barrier& one = barriers[barrier];
  one.pending -= arrivals;
  one.bytes += bytes;
  if (one.pending < 0) fail("more arrivals than the barrier counts");
  if (one.pending > 0 || one.bytes != 0) return;
  one.pending = one.count;
  one.phase ^= 1;
}
}  // namespace cpu

inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((unsigned long long)a * b >> 32); }
inline void* __cvta_shared_to_generic(unsigned address) { return kt::shared + address; }
inline unsigned __reduce_or_sync(unsigned, unsigned value) { return value; }

namespace kt::ptx {
constexpr int kMbarrierBytes = 8;
inline void mbarrier_init(unsigned barrier, int arrivals) {
  if (cpu::barriers.count(barrier)) cpu::fail("barriers at one place");
  cpu::barriers[barrier] = {arrivals, arrivals, 0, 0};
}
inline void mbarrier_init_fence() {}
inline void mbarrier_arrive(unsigned barrier) { cpu::arrive(barrier, 1, 0); }
inline void mbarrier_announce(unsigned barrier, int bytes) { cpu::arrive(barrier, 0, bytes); }
inline void mbarrier_wait(unsigned barrier, unsigned parity) {
  while (cpu::barriers.at(barrier).phase == parity) cpu::yield();
}
inline void meet() { __syncthreads(); }
inline void cluster_start() {}
inline void fence_async_proxy() {}
template <class... What>
inline void tma_load(const TensorMap&, What...) {}
template <class... What>
inline void tma_load_multicast(const TensorMap&, What...) {}
template <int ROW_BYTES>
constexpr unsigned long long wgmma_descriptor(unsigned, int, int) { return 0; }

inline void bulk_load(unsigned target, unsigned long long global, int bytes, unsigned barrier) {
  if (bytes <= 0 || bytes % 16 || target % 16) cpu::fail("no bulk copy");
  for (int at = 0; at < bytes; at += 16) cpu::check_read(reinterpret_cast<const char*>(global) + at, 16, 16);
  cpu::yield();
  std::memcpy(shared + target, reinterpret_cast<const char*>(global), bytes);
  cpu::arrive(barrier, 0, -bytes);
}
inline unsigned short load_half_word(unsigned long long global) {
  unsigned short value;
  cpu::check_read(reinterpret_cast<const char*>(global), 2, 2);
  std::memcpy(&value, reinterpret_cast<const char*>(global), 2);
  return value;
}
inline void store_shared_half_word(unsigned target, unsigned short value) { std::memcpy(shared + target, &value, 2); }
}  // namespace kt::ptx
// headers

template <int BLOCK_N_, int BLOCK_K_, int STAGES_>
struct StretchTraits {
  static constexpr int BLOCK_N = BLOCK_N_, BLOCK_K = BLOCK_K_, STAGES = STAGES_, CONSUMERS = 1, CLUSTER_M = 1, CLUSTER_N = 1;
  static constexpr int kSharers = 1, kPeers = 1, kUnpackers = 2, kStagedBytes = 1024;
  static constexpr bool kFed = false, PING_PONG = false;
  struct A { static constexpr int kBytes = 2048; };
  using B = kt::WgmmaOperand<BLOCK_N, BLOCK_K, 2, false, 1>;
  using Slots = kt::WgmmaSlots<B, BLOCK_N, BLOCK_K>;
  using Walk = kt::WgmmaWalk<64, BLOCK_N, BLOCK_K, 1, 1>;
  static constexpr int kStageBytes = A::kBytes + B::kBytes;
};

// Where TMA puts a byte of a stage, whose begin is a multiple of 1024.
inline unsigned swizzled(unsigned address, unsigned row_bytes) {
  return address ^ ((address >> 7 & (row_bytes / 16 - 1)) << 4);
}

// All steps of `tiles` tiles of each batch and slice. B begins `shift` elements behind a multiple of 16 bytes.
template <int BLOCK_N, int BLOCK_K, int STAGES>
void stretches(int n, int k, int shift, int tiles = 1, int split_k = 1, int batch = 1, int gap = 0) {
  using Traits = StretchTraits<BLOCK_N, BLOCK_K, STAGES>;
  using B = typename Traits::B;
  const long long stride = (long long)n * k + gap, elements = (batch - 1) * stride + (long long)n * k;
  const auto number = [&](int of_batch, int row, int column) {
    return (unsigned short)((of_batch * 7919 + row * 521 + column * 7 + 1) % 65521);
  };
  std::vector<unsigned short> memory(shift + elements + 64, 0xffff);
  unsigned short* base = reinterpret_cast<unsigned short*>((reinterpret_cast<unsigned long long>(memory.data()) + 15) / 16 * 16);
  base += shift;
  cpu::readable.clear();
  for (int one = 0; one < batch; ++one) {
    for (int row = 0; row < k; ++row)
      for (int column = 0; column < n; ++column) base[one * stride + (long long)row * n + column] = number(one, row, column);
    const unsigned long long begin = reinterpret_cast<unsigned long long>(base + one * stride);
    cpu::readable.push_back({reinterpret_cast<const char*>(begin - begin % 16), reinterpret_cast<const char*>(begin + 2ull * n * k)});
  }
  kt::GemmArguments args{};
  args.b = base;
  args.m = 64 * tiles;
  args.n = args.ldb = n;
  args.k = k;
  args.batch = batch;
  args.stride_b = stride;
  args.split_k = split_k;
  args.raster_group = 1;
  gridDim.x = 1;
  cpu::barriers.clear();
  const kt::WgmmaShared<Traits> shared{0};
  if (shared.unpacked(Traits::Slots::kSlots) > sizeof(kt::shared)) cpu::fail("too large for this test");
  int seen = 0;
  cpu::run_cluster(0, 1, 160, [&] {
    const int warp = int(threadIdx.x) / 32;
    if (warp > 0) shared.make_barriers(warp);
    if (warp == 1) return kt::WgmmaUnpacker<Traits>(shared).ask(args);
    if (warp == 2 || warp == 3) return kt::WgmmaUnpacker<Traits>(shared).unpack(args, warp - 2);
    typename Traits::Walk walk(args);
    kt::wgmma_start<Traits>();
    if (threadIdx.x % 32) return;
    kt::RingPlace<STAGES> ring;
    for (kt::WgmmaTile tile; walk.next(tile);) {
      for (int step = 0; step < tile.steps; ++step, ring.advance()) {
        if (warp == 0) {
          kt::ptx::mbarrier_wait(shared.empty(ring.stage), ring.phase ^ 1);
          kt::ptx::mbarrier_arrive(shared.full(ring.stage));
          continue;
        }
        kt::ptx::mbarrier_wait(shared.full(ring.stage), ring.phase);
        for (int row = 0; row < BLOCK_K; ++row) {
          const int of_k = (tile.first_step + step) * BLOCK_K + row;
          for (int column = 0; column < n; ++column) {
            const unsigned byte = column * 2, panel = byte / B::kRowBytes * B::kPanelBytes;
            const unsigned at = swizzled(shared.b(ring.stage) + panel + row * B::kRowBytes + byte % B::kRowBytes, B::kRowBytes);
            unsigned short found;
            std::memcpy(&found, kt::shared + at, 2);
            if (found != (of_k < k ? number(tile.batch, of_k, column) : 0)) cpu::fail("an element is another one's");
            seen += of_k < k;
          }
        }
        std::memset(kt::shared + shared.b(ring.stage), 0xff, B::kBytes);
        kt::ptx::mbarrier_arrive(shared.empty(ring.stage));
      }
    }
  });
  if (seen != (long long)n * k * tiles * batch) cpu::fail("steps are missing");
}
