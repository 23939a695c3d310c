// Stream-K: a block leaves the part of a tile that another block ends, and that one collects it.

namespace kt {

// `Sums` has `Word`, `kWords` words a thread, `word(i)`, and `add(i, word)`; the words of `kThreads` threads lie in the
// workspace thread by thread, as they lie in registers.
template <class Sums>
struct ParkingPlaces {
  using Word = typename Sums::Word;
  Word* parked;
  unsigned* flags;

  __device__ __forceinline__ Word* place(int block) const {
    return parked + (long long)block * (Sums::kWords * Sums::kThreads) + ptx::thread_index();
  }

  __device__ __forceinline__ void leave(const Sums& sums) const {
    Word* const mine = place(int(blockIdx.x));
#pragma unroll
    for (int i = 0; i < Sums::kWords; ++i) __stcg(mine + i * Sums::kThreads, sums.word(i));
    __syncthreads();
    if (threadIdx.x == 0) ptx::store_release(flags + blockIdx.x, 1u);
  }

  // Adds what the blocks before this one have of the tile, in their order: two runs give the same bits. The fences keep
  // the compiler from loading everything at once, into registers that the main loop would pay for.
  __device__ __forceinline__ void collect(Sums& sums, int first_block) const {
    for (int block = first_block; block < int(blockIdx.x); ++block) {
      if (threadIdx.x == 0) {
        while (ptx::load_acquire(flags + block) == 0u) {
        }
      }
      __syncthreads();
      const Word* const theirs = place(block);
#pragma unroll
      for (int i = 0; i < Sums::kWords; ++i) {
        sums.add(i, __ldcg(theirs + i * Sums::kThreads));
        if (i % 8 == 7) compiler_fence();
      }
    }
  }
};

}  // namespace kt
