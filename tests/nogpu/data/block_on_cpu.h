// Runs the threads of a block, or of the blocks of a cluster, on the CPU: what a kernel's headers take from CUDA and from kt's wrappers of PTX.
//
// Threads are fibers that take turns where a warp or the block must meet. Copies by cp.async happen as late as they
// may: when their group is waited for. Every access to global memory is checked against the operands.
#include <ucontext.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#define __host__
#define __device__
#define __forceinline__ inline
#define __shared__
#define __align__(bytes) __attribute__((aligned(bytes)))

struct Index { unsigned x; };
static Index threadIdx, blockIdx, gridDim;

namespace kt {
alignas(16) unsigned char shared[1 << 17];  // of the block that runs
}

namespace cpu {

struct Copy { unsigned shared; const char* global; int bytes; bool valid; };
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  std::vector<Copy> open;
  std::deque<std::vector<Copy>> groups;
  bool ended;
};
static std::vector<Fiber> fibers;
static unsigned running, threads, first_block;
static std::vector<std::vector<unsigned char>> others;  // shared memory of the blocks that wait
static ucontext_t main_context;
static std::vector<std::pair<const char*, const char*>> readable;
static std::function<void()> kernel;

[[noreturn]] inline void fail(const char* what) {
  std::printf("block %u thread %u: %s\n", blockIdx.x, threadIdx.x, what);
  std::exit(1);
}

inline void check_read(const void* global, int bytes, int alignment) {
  const char* const first = static_cast<const char*>(global);
  if (reinterpret_cast<unsigned long long>(first) % alignment) fail("misaligned access");
  for (const auto& range : readable) {
    if (first >= range.first && first + bytes <= range.second) return;
  }
  fail("access outside operands");
}

inline unsigned block_of(unsigned fiber) { return fiber / threads; }

// Puts another fiber in place, with its indices and its block's shared memory.
inline void run_next(unsigned next) {
  if (block_of(next) != block_of(running)) {
    std::memcpy(others[block_of(running)].data(), kt::shared, sizeof(kt::shared));
    std::memcpy(kt::shared, others[block_of(next)].data(), sizeof(kt::shared));
  }
  running = next;
  threadIdx.x = next % threads;
  blockIdx.x = first_block + block_of(next);
}

// Lets the other threads run until this one's turn comes again.
inline void yield() {
  const unsigned me = running;
  unsigned next = me;
  do next = (next + 1) % fibers.size();
  while (fibers[next].ended && next != me);
  if (next == me) return;
  run_next(next);
  swapcontext(&fibers[me].context, &fibers[next].context);
}

// Threads `first` ... meet: each brings a value and sees those of all.
struct Meeting { std::map<unsigned, std::vector<double>> brought, taken; unsigned arrived = 0, left = 0; };
static std::map<std::pair<unsigned, unsigned>, Meeting> meetings;

inline std::map<unsigned, std::vector<double>> meet(unsigned first, unsigned count, std::vector<double> values) {
  Meeting& meeting = meetings[{first, count}];
  while (meeting.left) yield();  // of the last meeting some have not gone yet
  meeting.brought[running] = std::move(values);
  if (++meeting.arrived == count) {
    meeting.taken = std::move(meeting.brought);
    meeting.brought.clear();
    meeting.arrived = 0;
    meeting.left = count;
  } else {
    while (!meeting.left || meeting.brought.count(running)) yield();
  }
  --meeting.left;
  return meeting.taken;
}
inline std::map<unsigned, std::vector<double>> meet_warp(std::vector<double> values) {
  return meet(running / 32 * 32, 32, std::move(values));
}

inline void entry() {
  kernel();
  fibers[running].ended = true;
  for (unsigned i = 0; i < fibers.size(); ++i) {
    if (!fibers[i].ended) yield();
  }
  setcontext(&main_context);
}

// Runs `blocks` blocks that begin with blockIdx `first`, as one cluster.
inline void run_cluster(unsigned first, unsigned blocks, unsigned count, std::function<void()> body) {
  kernel = std::move(body);
  meetings.clear();
  threads = count;
  first_block = first;
  others.assign(blocks, std::vector<unsigned char>(sizeof(kt::shared), 0xff));
  fibers = std::vector<Fiber>(blocks * count);
  for (Fiber& fiber : fibers) {
    fiber.ended = false;
    fiber.stack.resize(1 << 16);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = &main_context;
    makecontext(&fiber.context, entry, 0);
  }
  std::memset(kt::shared, 0xff, sizeof(kt::shared));
  running = threadIdx.x = 0;
  blockIdx.x = first;
  swapcontext(&main_context, &fibers[0].context);
}

inline void copy_now(const Copy& copy) {
  std::memset(kt::shared + copy.shared, 0, copy.bytes);
  if (copy.valid) std::memcpy(kt::shared + copy.shared, copy.global, copy.bytes);
}

// A copy reads all its bytes or none. Of a cp.async with fewer source bytes than it writes the compiler makes one access
// of all of them: the memory must be there, whatever is kept of it.
inline void copy_later(unsigned target, const void* global, int bytes, bool valid) {
  if (target % bytes) fail("misaligned slot");
  if (valid) check_read(global, bytes, bytes);
  fibers[running].open.push_back({target, static_cast<const char*>(global), bytes, valid});
}

}  // namespace cpu

inline void __syncthreads() { cpu::meet(cpu::block_of(cpu::running) * cpu::threads, cpu::threads, {}); }
inline void __syncwarp() { cpu::meet_warp({}); }
inline float __shfl_xor_sync(unsigned, float value, int mask) { return float(cpu::meet_warp({value})[cpu::running ^ mask][0]); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __uint_as_float(unsigned bits) { float value; std::memcpy(&value, &bits, 4); return value; }
inline double __hiloint2double(int high, int low) {
  const unsigned long long bits = (unsigned long long)unsigned(high) << 32 | unsigned(low);
  double value;
  std::memcpy(&value, &bits, 8);
  return value;
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
  return unsigned(((unsigned long long)high << 32 | low) >> shift % 32);
}
inline unsigned __byte_perm(unsigned low, unsigned high, unsigned selector) {
  const unsigned long long bytes = (unsigned long long)high << 32 | low;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) result |= unsigned(bytes >> (selector >> 4 * i & 7) * 8 & 0xff) << 8 * i;
  return result;
}

namespace kt {

enum class Format { kFp16, kBf16, kTf32, kInt8, kFp8E4m3, kFp8E5m2, kFp64 };

namespace ptx {

template <Format FORMAT>
constexpr bool kWidens = false;

template <class T>
inline T computed_here(T value) {
  return value;
}

inline unsigned shared_address(const void* pointer) { return unsigned(static_cast<const unsigned char*>(pointer) - shared); }

template <int BYTES>
inline void cp_async_zfill(unsigned target, const void* global, bool valid) {
  cpu::copy_later(target, global, BYTES, valid);
}
inline void cp_async_whole(unsigned target, const void* global) { cpu::copy_later(target, global, 16, true); }
inline void cp_async_commit() {
  auto& fiber = cpu::fibers[cpu::running];
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}
template <int PENDING>
inline void cp_async_wait() {
  auto& groups = cpu::fibers[cpu::running].groups;
  for (; groups.size() > PENDING; groups.pop_front()) {
    for (const auto& copy : groups.front()) cpu::copy_now(copy);
  }
}

inline void cluster_sync() { cpu::meet(0, unsigned(cpu::fibers.size()), {}); }
inline unsigned address_in_cluster(unsigned here, int rank) { return unsigned(rank) << 20 | here; }
template <class T>
inline void load_cluster(T& value, unsigned there) {
  const unsigned rank = there >> 20, mine = cpu::block_of(cpu::running);
  const unsigned char* const memory = rank == mine ? shared : cpu::others[rank].data();
  std::memcpy(&value, memory + (there & 0xfffff), sizeof(T));
}

inline void store_shared(unsigned target, unsigned value) { std::memcpy(shared + target, &value, 4); }
inline unsigned load_shared_word(unsigned source) {
  if (source % 4) cpu::fail("misaligned word");
  unsigned word;
  std::memcpy(&word, shared + source, 4);
  return word;
}
template <class T, int COUNT>
inline void load_shared(T (&to)[COUNT], unsigned source) {
  if (source % sizeof(to)) cpu::fail("misaligned read of shared memory");
  std::memcpy(to, shared + source, sizeof(to));
}
template <class T, int COUNT>
inline void store_shared(unsigned target, const T (&from)[COUNT]) {
  if (target % sizeof(from)) cpu::fail("misaligned write to shared memory");
  std::memcpy(shared + target, from, sizeof(from));
}

template <int BYTES>
struct Bits {
  unsigned at[BYTES < 4 ? 1 : BYTES / 4];
};
template <int BYTES>
inline Bits<BYTES> read_only(const void* global, bool valid) {
  Bits<BYTES> bits{};
  if (valid) {
    cpu::check_read(global, BYTES, BYTES);
    std::memcpy(bits.at, global, BYTES);
  }
  return bits;
}

template <int WORDS>
inline void store_global(void* global, const unsigned (&words)[WORDS]) {
  if (reinterpret_cast<unsigned long long>(global) % (4 * WORDS)) cpu::fail("misaligned store");
  std::memcpy(global, words, 4 * WORDS);
}
template <bool BF16>
inline unsigned pack_pair(float low, float high) {
  static_assert(BF16);
  unsigned words[2];
  std::memcpy(&words[0], &low, 4);
  std::memcpy(&words[1], &high, 4);
  return words[0] >> 16 | (words[1] & 0xffff0000u);
}

inline unsigned round_to_tf32(unsigned word) { return word; }
template <Format FORMAT>
inline unsigned widened(unsigned word, int) { return word; }

template <Format FORMAT>
inline double element(unsigned word, int index) {
  if (FORMAT == Format::kTf32) return __uint_as_float(word);
  if (FORMAT == Format::kBf16) return __uint_as_float(word >> 16 * index << 16);
  return double((signed char)(word >> 8 * index));
}

template <Format FORMAT, class TAcc, class Word>
inline void multiply(TAcc (&sum)[4], const Word* a, const Word* b) {
  constexpr int kPacked = FORMAT == Format::kTf32 || FORMAT == Format::kFp64 ? 1 : FORMAT == Format::kBf16 ? 2 : 4;
  std::vector<double> values;
  for (int word = 0; word < 6; ++word) {
    for (int i = 0; i < kPacked; ++i) {
      const Word one = word < 4 ? a[word] : b[word - 4];
      if constexpr (FORMAT == Format::kFp64) values.push_back(one);
      else values.push_back(element<FORMAT>(one, i));
    }
  }
  const unsigned me = cpu::running, first = me / 32 * 32, g = me % 32 / 4, t = me % 4;
  const auto all = cpu::meet_warp(values);
  for (int x = 0; x < 4; ++x) {
    const unsigned column = 2 * t + x % 2;
    for (unsigned lane = 0; lane < 4; ++lane) {
      const auto& of_a = all.at(first + 4 * g + lane);
      const auto& of_b = all.at(first + 4 * column + lane);
      for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < kPacked; ++i) {
          sum[x] += TAcc(of_a[(x / 2 + 2 * half) * kPacked + i] * of_b[(4 + half) * kPacked + i]);
        }
      }
    }
  }
}

template <Format FORMAT, class TAcc>
inline void mma(TAcc (&sum)[4], const unsigned* a, const unsigned* b) { multiply<FORMAT>(sum, a, b); }
template <Format FORMAT>
inline void mma_eight(double (&sum)[4], const double (&a)[4], const double (&b)[2]) { multiply<FORMAT>(sum, &a[0], &b[0]); }

}  // namespace ptx
}  // namespace kt
