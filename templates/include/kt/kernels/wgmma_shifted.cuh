// An A of 16-bit or 32-bit elements whose rows, which lie along k, begin elsewhere than at multiples of 16 bytes, read by TMA
// all the same and multiplied from registers.
//
// With rows 16 / CLASSES bytes off such a multiple, every CLASSES-th row begins equally far behind one: rows fall into
// CLASSES classes, and a tensor map shows those of one class, from the multiple of 16 bytes before each row's begin on. A
// step's boxes are 16 bytes wider than its k, so that they have all of it wherever rows begin. What stands before a row's
// first element belongs to the row before, and is not multiplied.
//
// In shared memory each class has an area of its own, of rows of kPitch bytes. wgmma takes A from registers: lane l of a
// warp, with g = l / 4 and t = l % 4, has of rows g and g + 8 the words t and t + 4 of each 32 bytes of k. All 16 rows of a
// warp are of one class, so that they are shifted alike and lie kPitch apart, in other banks; in A and C they are CLASSES
// apart (WgmmaStripRows). A row that begins within a word has each of its words in two.

namespace kt {

template <int EXTENT, int BLOCK_K, int ELEMENT_BYTES, int CLASSES>
struct WgmmaShiftedRows {
  static constexpr int kPitch = BLOCK_K * ELEMENT_BYTES + 16, kBytes = EXTENT * kPitch;
  static constexpr int kRowsOfClass = EXTENT / CLASSES, kClassBytes = kRowsOfClass * kPitch;
  static constexpr int kSteps = BLOCK_K * ELEMENT_BYTES / 32;  // one wgmma takes 32 bytes of k
  static constexpr bool kOdd = CLASSES == 8;  // some rows begin within a word
  // Registers of so many wgmmas, one step of k each, are in use at once.
  static constexpr int kSets = 4;

  static_assert(CLASSES == 2 || CLASSES == 4 || CLASSES == 8, "rows that begin at even bytes");
  static_assert(CLASSES * ELEMENT_BYTES <= 16, "rows begin at whole elements");
  static_assert(EXTENT % (16 * CLASSES) == 0, "a warp has 16 rows of one class");
  static_assert(kClassBytes % 128 == 0, "where TMA writes boxes to");
  static_assert(kPitch % 128 == 16, "rows lie in other banks");
  static_assert(kBytes % 1024 == 0, "what follows must be aligned as well");
  static_assert(kSteps % kSets == 0, "a step has the same registers in every stage");

  // Loads the rows from `mn` on, a multiple of EXTENT.
  __device__ __forceinline__ static void load(const WgmmaMaps<CLASSES>& maps, unsigned shared, unsigned barrier, int mn, int k,
                                              int batch) {
#pragma unroll
    for (int i = 0; i < CLASSES; ++i) {
      ptx::tma_load(*maps.of[i], shared + i * kClassBytes, barrier, k, mn / CLASSES, batch);
    }
  }

  // Of rows that begin so many bytes behind a multiple of 16: the area of their class, and how far they are shifted there.
  __host__ __device__ static constexpr unsigned number_of(unsigned early_bytes) { return early_bytes / (16 / CLASSES); }

  // Where in the stage the first word of a lane's first row lies.
  __host__ __device__ static constexpr unsigned place_of(unsigned strip, unsigned lane, unsigned early_bytes) {
    const unsigned row = strip / CLASSES * 16 + lane / 4, word = lane % 4 + early_bytes / 4;
    return number_of(early_bytes) * kClassBytes + row * kPitch + word * 4;
  }
  // From there, word `number` of a fragment.
  __host__ __device__ static constexpr unsigned at(int step, int number) {
    return step * 32 + number / 2 * 16 + number % 2 * 8 * kPitch;
  }

  // What a lane knows of a strip's rows.
  struct Lane {
    unsigned place, odd, selector;

    Lane() = default;
    __device__ __forceinline__ Lane(const GemmArguments& args, int strip) {
      const unsigned long long begin = reinterpret_cast<unsigned long long>(args.a) + strip % CLASSES * args.lda * ELEMENT_BYTES;
      const unsigned early = unsigned(begin) % 16;
      place = place_of(unsigned(strip), unsigned(lane_here()), early);
      odd = early & 2;
      selector = odd ? 0x5432 : 0x3210;
    }
  };

  // A fragment of step `step`. `further` keeps the words behind, from one call to the next only for want of a better value.
  __device__ __forceinline__ static void load(unsigned (&words)[4], unsigned (&further)[4], const Lane& lane, unsigned stage,
                                              int step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      unsigned word[1];
      ptx::load_shared(word, stage + lane.place + at(step, i));
      words[i] = word[0];
      if constexpr (kOdd) ptx::load_shared_if(further[i], stage + lane.place + at(step, i) + 4, lane.odd);
    }
    if constexpr (kOdd) {
#pragma unroll
      for (int i = 0; i < 4; ++i) words[i] = __byte_perm(words[i], further[i], lane.selector);
    }
  }
};

}  // namespace kt
