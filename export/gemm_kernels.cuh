// A GPU's figures that constraints name, and which devices of the table are it or stand in for it.
struct Gpu {
  int ordinal;
  int table;   // index in `devices` of this GPU, or of the nearest one of its compute capability; -1 without one
  bool exact;  // it is that very device
  long long sm_count, smem_per_block_optin, smem_per_sm, registers_per_sm, threads_per_sm, l2_bytes, compute_capability;
};

// Run-time choices of a configuration, with what they are in a family that has none.
struct Choice {
  int split_k = 1;
  int raster_group = 1;
  int stream_k = 0;
};

// The one argument that every kernel gets by value.
struct Arguments {
  const void* a;
  const void* b;
  void* c;
  void* workspace;
  double alpha, beta;
  long long lda, ldb, ldc, stride_a, stride_b, stride_c;
  int m, n, k, batch, split_k, raster_group, stream_k, reserved0;
};

enum class Operand : int { a, b, c };

// A copy of an operand in the workspace: bytes from its start, elements between rows; `turned` if its rows are columns;
// elements of a row, 0 for as many as the operand has.
struct Copy {
  Truth made;
  Int offset, pitch;
  Truth turned;
  Int width;
};

// Every `of`-th row of an operand, those that begin `number` 16 / `of` bytes behind multiples of 16; of 1: all rows.
struct RowClass {
  Int of, number;
};

// What a tensor map shows of an operand, or of its copy at `offset` if that is not negative.
struct Map {
  Operand operand;
  unsigned box[2];
  int swizzle;
  long long offset;
  unsigned long long extents[3];
  unsigned long long strides[2];  // bytes
  int classes, number;            // of rows, and which is shown; the figures above are those of all rows
};

struct Step {
  const void* kernel;
  int number;  // of this launch among all of the header
  unsigned grid, block;
  int smem_bytes;
  bool programmatic;  // may start while earlier grids still run: it waits for them itself
  int map_count;
  Map maps[kMostMaps];
};

constexpr bool is_swizzle(long long bytes) noexcept { return bytes == 0 || bytes == 32 || bytes == 64 || bytes == 128; }

template <class Kernel>
const void* address(Kernel* kernel) noexcept {
  return reinterpret_cast<const void*>(kernel);
}

constexpr int element_bytes(Format format) noexcept {
  switch (format) {
    case Format::fp64: return 8;
    case Format::fp32: case Format::tf32: case Format::int32: return 4;
    case Format::fp16: case Format::bf16: return 2;
    default: return 1;
  }
}

// An operand as it lies in memory.
struct Stored {
  long long rows, columns, pitch, stride;
  int bytes;  // of an element
};

constexpr Stored stored(const Query& q, Operand operand) noexcept {
  const bool a_n = q.layout == Layout::nn || q.layout == Layout::nt;
  const bool b_n = q.layout == Layout::nn || q.layout == Layout::tn;
  const int in = element_bytes(q.dtype);
  switch (operand) {
    case Operand::a: return {a_n ? q.m : q.k, a_n ? q.k : q.m, q.lda, q.stride_a, in};
    case Operand::b: return {b_n ? q.k : q.n, b_n ? q.n : q.k, q.ldb, q.stride_b, in};
    default: return {q.m, q.n, q.ldc, q.stride_c, element_bytes(q.out_dtype)};
  }
}

// What a configuration makes of a problem: its launches in order. False from any member: it cannot run.
class Sequence {
 public:
  Sequence() noexcept = default;

  void begin(const Query& query, const Gpu& gpu) noexcept {
    query_ = &query;
    gpu_ = &gpu;
    count = 0;
    workspace_bytes = 0;
  }

  bool needs(Int bytes) noexcept {
    workspace_bytes = bytes.value;
    return bytes.valid && bytes.value >= 0;
  }

  bool launch(const void* kernel, int number, Int grid, Int block, Int smem_bytes, Truth programmatic) noexcept {
    const bool within = grid.value >= 1 && grid.value <= 2147483647 && block.value >= 1 && block.value <= 1024 &&
                        smem_bytes.value >= 0 && smem_bytes.value <= gpu_->smem_per_block_optin;
    if (!within || !grid.valid || !block.valid || !smem_bytes.valid || !programmatic.valid) return false;
    Step& step = steps[count++];
    step.kernel = kernel;
    step.number = number;
    step.grid = static_cast<unsigned>(grid.value);
    step.block = static_cast<unsigned>(block.value);
    step.smem_bytes = static_cast<int>(smem_bytes.value);
    step.programmatic = holds(programmatic);
    step.map_count = 0;
    return true;
  }

  // Adds a tensor map to the last launch.
  bool map(Operand operand, Int columns, Int rows, Int swizzle, const Copy& copy = {false, 0, 0, false, 0},
           const RowClass& shown = {1, 0}) noexcept {
    Stored seen = stored(*query_, operand);
    Step& step = steps[count - 1];
    Map& map = step.maps[step.map_count++];
    map.offset = -1;
    if (holds(copy.made)) {
      const bool turned = holds(copy.turned);
      seen = {turned ? seen.columns : seen.rows, turned ? seen.rows : seen.columns, copy.pitch.value, 0, seen.bytes};
      if (copy.width.value != 0) seen.columns = copy.width.value;
      map.offset = copy.offset.value;
      if (!copy.offset.valid || !copy.pitch.valid || !copy.width.valid || map.offset < 0 || map.offset % 16 != 0) return false;
    }
    if (!shown.of.valid || !shown.number.valid) return false;
    const long long of = shown.of.value;
    if ((of != 1 && of != 2 && of != 4 && of != 8) || shown.number.value < 0 || shown.number.value >= of) return false;
    if (of > 1 && query_->batch > 1) return false;  // rows of another batch may fall into other classes
    map.classes = static_cast<int>(of);
    map.number = static_cast<int>(shown.number.value);
    const bool box = columns.valid && columns.value >= 1 && columns.value <= 256 && rows.valid && rows.value >= 1 &&
                     rows.value <= 256 && swizzle.valid && is_swizzle(swizzle.value);
    if (!box || (swizzle.value != 0 && columns.value * seen.bytes > swizzle.value)) return false;
    const Int pitch = Int(seen.pitch) * seen.bytes;
    const Int stride = seen.stride != 0 ? Int(seen.stride) * seen.bytes : Int(seen.rows > 1 ? seen.rows : 1) * pitch;
    const Int apart = pitch * of, batches_apart = of > 1 ? Int(0) : stride;
    for (const Int bytes : {apart, batches_apart})
      if (!bytes.valid || bytes.value < 0 || bytes.value % 16 != 0 || bytes.value >= 1LL << 40) return false;
    map.operand = operand;
    map.box[0] = static_cast<unsigned>(columns.value);
    map.box[1] = static_cast<unsigned>(rows.value);
    map.swizzle = static_cast<int>(swizzle.value);
    map.extents[0] = static_cast<unsigned long long>(seen.columns > 1 ? seen.columns : 1);
    map.extents[1] = static_cast<unsigned long long>(seen.rows > 1 ? seen.rows : 1);
    map.extents[2] = static_cast<unsigned long long>(query_->batch);
    map.strides[0] = static_cast<unsigned long long>(pitch.value);
    map.strides[1] = static_cast<unsigned long long>(stride.value);
    return true;
  }

  int count = 0;
  long long workspace_bytes = 0;
  Step steps[kMostSteps];

 private:
  const Query* query_ = nullptr;
  const Gpu* gpu_ = nullptr;
};
