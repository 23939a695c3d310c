// One kernel for several layouts of 16-bit operands, and for C whether its rows are aligned to 16 bytes or not: each layout
// has a loop over k of its own, since how operands lie is part of the instruction and of the tiles in shared memory, and
// each C a way into it. A launch takes one of each; what is around them there is once. The host says which by a number
// (export/gemm_calls.cuh.j2): the layout's, in the order nn, nt, tn, tt, and 4 more if rows of C are aligned.

namespace kt {

// How rows lie in memory, and which rows C has, by that number.
__device__ __forceinline__ bool along_k_a(const GemmArguments& args) { return (args.reserved0 & 2) == 0; }
__device__ __forceinline__ bool along_k_b(const GemmArguments& args) { return (args.reserved0 & 1) != 0; }
__device__ __forceinline__ bool is_aligned_c(const GemmArguments& args) { return (args.reserved0 & 4) != 0; }

template <int LAYOUT, class Traits>
struct WgmmaLoop : Traits {
  __device__ __forceinline__ static bool is_of(const GemmArguments& args) { return (args.reserved0 & 3) == LAYOUT; }
};

template <class Traits>
struct WgmmaAlignedStore : Traits {
  __device__ __forceinline__ static bool is_of(const GemmArguments& args) { return is_aligned_c(args); }
};

// What a block needs of shared memory for that of its stores which needs most, and the one that TMA may do.
template <class... Stores>
struct WgmmaStores;
template <class Store>
struct WgmmaStores<Store> {
  static constexpr int kStagedBytes = Store::kStagedBytes;
  using TmaStore = typename Store::TmaStore;
};
template <class Narrow, class Aligned>
struct WgmmaStores<Narrow, Aligned> {
  static constexpr int kStagedBytes = max_of(int(Narrow::kStagedBytes), int(Aligned::kStagedBytes));
  using TmaStore = typename Aligned::TmaStore;
};

// Loads an operand that lies along k in some forms, and along mn in others.
template <bool SOME_K, bool SOME_MN, int EXTENT, int BLOCK_K, int BYTES, int SHARERS>
struct WgmmaLoad {
  template <class... Where>
  __device__ __forceinline__ static void load(bool along_k, const Where&... where) {
    if (!SOME_MN || (SOME_K && along_k)) {
      WgmmaOperand<EXTENT, BLOCK_K, BYTES, SOME_K, SHARERS>::load(where...);
    } else {
      WgmmaOperand<EXTENT, BLOCK_K, BYTES, !SOME_MN, SHARERS>::load(where...);
    }
  }
};

// Of loops and stores that differ in nothing else; what all have in common is taken from the first store.
template <class Stores_, class Loops_>
struct WgmmaShares;
template <class Store, class... More, class... Each>
struct WgmmaShares<WgmmaForms<Store, More...>, WgmmaForms<Each...>> : Store {
  using Loops = WgmmaForms<Each...>;
  static constexpr bool kShares = true;
  static constexpr bool kSlicesAreBatches = true;
  using Stores = WgmmaForms<Store, More...>;
  using LoadA = WgmmaLoad<(Each::A_K_MAJOR || ...), (!Each::A_K_MAJOR || ...), Store::LOADED_M, Store::BLOCK_K,
                          int(sizeof(typename Store::TIn)), Store::CLUSTER_N>;
  using LoadB = WgmmaLoad<(Each::B_K_MAJOR || ...), (!Each::B_K_MAJOR || ...), Store::BLOCK_N, Store::BLOCK_K,
                          int(sizeof(typename Store::TIn)), Store::CLUSTER_M>;
  template <class... Where>
  __device__ __forceinline__ static void load_a(const GemmArguments& args, const Where&... where) {
    LoadA::load(along_k_a(args), where...);
  }
  template <class... Where>
  __device__ __forceinline__ static void load_b(const GemmArguments& args, const Where&... where) {
    LoadB::load(along_k_b(args), where...);
  }
  using TmaStore = typename WgmmaStores<Store, More...>::TmaStore;
  static constexpr int kStagedBytes = WgmmaStores<Store, More...>::kStagedBytes;
  static constexpr bool kTmaStores = Store::kTmaStores || (More::kTmaStores || ...);
  static constexpr bool kAlignedC = Store::kAlignedC || (More::kAlignedC || ...);

  static_assert(((Each::kStageBytes == Store::kStageBytes && Each::A::kBytes == Store::A::kBytes) && ...), "stages of one size");
  static_assert(!Store::kFed && !Store::kFromRegisters && Store::CLASSES == 1, "TMA copies, wgmma reads shared memory");
};

// Copies of operands whose rows lie along k or along mn: see RowSpace.
template <class T, bool PACK_A_, bool PACK_B_, int ROW_BYTES>
struct FormSpace : Workspace<T, PACK_A_, PACK_B_> {
  static constexpr int kRowBytes = ROW_BYTES;
  static constexpr bool PACK_A = PACK_A_, PACK_B = PACK_B_;

  __device__ __forceinline__ explicit FormSpace(const GemmArguments& args) : Workspace<T, PACK_A, PACK_B>(args) {
    const int columns_a = along_k_a(args) ? args.k : args.m, rows_a = along_k_a(args) ? args.m : args.k;
    const int columns_b = along_k_b(args) ? args.k : args.n, rows_b = along_k_b(args) ? args.n : args.k;
    this->bytes_a = PACK_A ? packed_bytes<T, ROW_BYTES>(columns_a, rows_a, args.batch) : 0;
    this->bytes_b = PACK_B ? packed_bytes<T, ROW_BYTES>(columns_b, rows_b, args.batch) : 0;
  }
};

}  // namespace kt
