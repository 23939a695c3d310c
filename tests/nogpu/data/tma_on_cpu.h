// What kt's wrappers take of barriers in shared memory that count bytes, and of TMA. A box arrives as late as it may: when a thread
// waits for its barrier. Maps of classes of rows are made as tuner/tensor_map.py does.
#include <cstdint>

namespace kt {

struct TensorMap {
  const char* begin;  // what the map shows: columns, rows and batches of words, in bytes apart
  long long columns, rows, batches, row_bytes, batch_bytes;
  int box_columns, box_rows;
};

namespace ptx {

constexpr int kMbarrierBytes = 8;

}  // namespace ptx
}  // namespace kt

namespace cpu {

struct Box { const kt::TensorMap* map; unsigned shared; int column, row, batch; };
struct Barrier { int arrivals = 0, left = 0; long long bytes = 0; unsigned phase = 0; std::vector<Box> boxes; };
static std::map<std::pair<unsigned, unsigned>, Barrier> barriers;  // by block and address

inline Barrier& barrier(unsigned address) {
  const auto found = barriers.find({block_of(running), address});
  if (found == barriers.end()) fail("no barrier there");
  return found->second;
}

inline void copy_now(const Box& box) {
  const kt::TensorMap& map = *box.map;
  for (int r = 0; r < map.box_rows; ++r) {
    for (int c = 0; c < map.box_columns; ++c) {
      const long long row = (long long)box.row + r, column = (long long)box.column + c;
      unsigned word = 0;
      if (row >= 0 && row < map.rows && column >= 0 && column < map.columns && box.batch < map.batches) {
        std::memcpy(&word, map.begin + box.batch * map.batch_bytes + row * map.row_bytes + column * 4, 4);
      }
      std::memcpy(kt::shared + box.shared + (r * map.box_columns + c) * 4, &word, 4);
    }
  }
}

inline void end_phase_if_complete(Barrier& barrier) {
  if (barrier.left == 0 && barrier.bytes == 0) {
    ++barrier.phase;
    barrier.left = barrier.arrivals;
  }
}

}  // namespace cpu

namespace kt {
namespace ptx {

inline void prefetch(const TensorMap&) {}
inline void fence_async_proxy() {}
inline void mbarrier_init_fence() {}
inline void mbarrier_init(unsigned barrier, int arrivals) {
  cpu::barriers[{cpu::block_of(cpu::running), barrier}] = {arrivals, arrivals};
}
inline void mbarrier_expect(unsigned barrier, int bytes) {
  cpu::Barrier& one = cpu::barrier(barrier);
  one.bytes += bytes;
  if (one.left-- == 0) cpu::fail("more arrivals than announced");
}
inline void mbarrier_wait(unsigned barrier, unsigned parity) {
  cpu::Barrier& one = cpu::barrier(barrier);
  while ((one.phase & 1) == parity) {
    for (const cpu::Box& box : one.boxes) {
      cpu::copy_now(box);
      one.bytes -= 4ll * box.map->box_columns * box.map->box_rows;
    }
    one.boxes.clear();
    cpu::end_phase_if_complete(one);
    if ((one.phase & 1) == parity) cpu::yield();
  }
}
inline void tma_load(const TensorMap& map, unsigned target, unsigned barrier, int column, int row, int batch) {
  if (target % 128) cpu::fail("misaligned box");
  if (column % 4) cpu::fail("TMA reads from multiples of 16 bytes on");
  cpu::barrier(barrier).boxes.push_back({&map, target, column, row, batch});
}

}  // namespace ptx
}  // namespace kt

// The map of an operand with its first element at `data`, `pitch` apart; of the rows that begin 16 / of * number bytes behind
// multiples of 16.
inline kt::TensorMap map_of(const void* data, long long columns, long long rows, long long batches, long long pitch, long long stride,
                            int box_columns, int box_rows, int of = 1, int number = 0) {
  const char* const first = static_cast<const char*>(data);
  if (of == 1) return {first, columns, rows, batches, pitch * 4, stride * 4, box_columns, box_rows};
  const int early = number * 16 / of;
  for (int row = 0; row < of; ++row) {
    const char* const begin = first + row * pitch * 4;
    if (int(reinterpret_cast<std::uintptr_t>(begin) % 16) == early) {
      return {begin - early, columns + early / 4, (rows - row + of - 1) / of, 1, of * pitch * 4, 0, box_columns, box_rows};
    }
  }
  cpu::fail("a class has no row");
}
