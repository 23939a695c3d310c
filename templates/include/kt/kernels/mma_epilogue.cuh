// From the sums in registers to memory.
//
// A thread's sums are pairs of neighbouring columns of rows 8 apart. Each warp passes 16 rows at a time through a strip
// of shared memory of its own, from which it writes whole rows: neighbouring lanes write neighbouring accesses.

namespace kt {

// The strip of one warp: 16 rows of WARP_N sums. Rows are padded so that a warp's writes hit all banks evenly.
template <class TAcc, int WARP_N, int SPREAD>
struct EpilogueStrip {
  static constexpr int kRows = 16;
  static constexpr int kTogether = 2 * SPREAD;  // neighbouring columns of a thread
  static constexpr int kVector = min_of(kTogether, 16 / int(sizeof(TAcc)));
  static constexpr int kRowBytes = WARP_N * int(sizeof(TAcc));
  // Rows that one wavefront of 128 bytes holds must follow each other in the banks, or interleave.
  static constexpr int kShift = kVector == kTogether ? 4 * kVector * int(sizeof(TAcc)) : 16;
  static constexpr int kPitch = kRowBytes + (128 + kShift % 128 - kRowBytes % 128) % 128;
  static constexpr int kBytes = kRows * kPitch;
};

// Writes rows of a strip into the output in accesses that are aligned wherever the row lies.
template <class Output, class TAcc>
struct RowWriter {
  using TOut = typename Output::Element;
  // Elements of an access. Two-byte elements that are not aligned to pairs are written in pairs nonetheless: the first
  // pair of a row begins where the address allows it.
  static constexpr int kAligned = Output::kWidest;
  static constexpr bool kShifted = sizeof(TOut) == 2 && kAligned == 1;
  static constexpr int kWidth = kShifted ? 2 : min_of(kAligned, 16 / int(sizeof(TAcc)));
  using Access = Vector<TOut, kWidth>;

  __device__ __forceinline__ static void write_whole(const Output& output, TOut* target, const TAcc* products) {
    Access out;
    if (output.reads()) out = *reinterpret_cast<const Access*>(target);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) out.at[i] = output.result(products[i], &out.at[i]);
    *reinterpret_cast<Access*>(target) = out;
  }

  // Access number `access` of a row that begins at `target` and of which `width` elements are written.
  __device__ __forceinline__ static void write(const Output& output, TOut* target, const TAcc* products, int access, int width) {
    if constexpr (kShifted) {
      const int shift = int(reinterpret_cast<unsigned long long>(target) / 2 % 2), first = 2 * access + shift;
      if (first + 1 < width) {
        const TAcc pair[2] = {products[first], products[first + 1]};
        write_whole(output, target + first, pair);
      } else if (first < width) {
        output.write(target + first, products[first]);
      }
      if (first == 1 && width > 0) output.write(target, products[0]);
    } else if (access * kWidth < width) {  // rows consist of whole accesses
      const auto group = *reinterpret_cast<const Vector<TAcc, kWidth>*>(products + access * kWidth);
      write_whole(output, target + access * kWidth, group.at);
    }
  }
};

// Writes a warp's sums. `Sums` has `kStrips` strips of 16 rows, `put(strip, shared)`, and `row_of(strip, row)`, `first_n`.
template <class Sums, class Output>
__device__ __forceinline__ void write_sums(const Sums& sums, const Output& output, int block_m, int block_n,
                                           unsigned char* shared) {
  using Strip = typename Sums::Strip;
  using TAcc = typename Sums::TAcc;
  using Writer = RowWriter<Output, TAcc>;
  constexpr int kAccesses = Sums::WARP_N / Writer::kWidth;
  static_assert(Strip::kRows * kAccesses % 32 == 0, "the warp writes together");
  const int lane = int(threadIdx.x) % 32;
  unsigned char* const strip_base = shared + int(threadIdx.x) / 32 * Strip::kBytes;
  const int first_n = block_n + sums.first_n, width = min_of(Sums::WARP_N, output.n - first_n);
#pragma unroll 1
  for (int strip = 0; strip < Sums::kStrips; ++strip) {
    __syncwarp();
    sums.put(strip, strip_base);
    __syncwarp();
#pragma unroll 4
    for (int item = lane; item < Strip::kRows * kAccesses; item += 32) {
      const int row = item / kAccesses, m = block_m + sums.row_of(strip, row);
      if (m >= output.m) continue;
      Writer::write(output, output.at(m, first_n), reinterpret_cast<const TAcc*>(strip_base + row * Strip::kPitch),
                    item % kAccesses, width);
    }
  }
}

}  // namespace kt
