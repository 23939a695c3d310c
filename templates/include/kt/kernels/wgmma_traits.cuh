// What one kernel of `wgmma` is compiled for, and the types and numbers that follow from it.

namespace kt {

constexpr int kWarpgroup = 128;

// CUDA 12.8 and older: where sums have no value before the first product, ptxas makes one between products, and waits for every
// product. So it is given the sums of the tile before.
constexpr bool kOldPtxas = __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ < 1209;

// Shared memory that the blocks of a multiprocessor of sm_90 have between them, and what the system takes of each.
constexpr int kSharedOfSm = 233472, kSharedOfSystem = 1024;
// Of a block besides stages and what C is staged in: up to 1008 bytes of alignment, and barriers.
constexpr int kSharedBesides = 2048;

// Of a panel of C. Odd multiples of 16 bytes have a last panel that reaches beyond the tile.
__host__ __device__ constexpr int wgmma_store_row_bytes(int tile_row_bytes) {
  if (tile_row_bytes % 32 != 0) return wgmma_row_bytes(tile_row_bytes);
  return tile_row_bytes % 128 == 0 ? 128 : tile_row_bytes % 64 == 0 ? 64 : 32;
}

// How many panels of C are staged at once: as many as there is room for, up to four, in whole rounds.
__host__ __device__ constexpr int wgmma_store_slots(int panels, int slot_bytes, int room) {
  for (int slots = 4; slots > 1; --slots) {
    if (panels % slots == 0 && slots * slot_bytes <= room) return slots;
  }
  return 1;
}

// What one kernel is compiled for: in one layout, or in several (wgmma_forms.cuh).
template <class... Traits>
struct WgmmaForms {};

template <class TIn_, class TAcc_, class TOut_, bool OUT_BF16_, class Multiply_, class Space_, int BLOCK_M_, int BLOCK_N_, int BLOCK_K_,
          int LOADED_M_, int STAGES_, int CONSUMERS_, bool PING_PONG_, int CLUSTER_M_, int CLUSTER_N_, int MIN_BLOCKS_,
          bool A_K_MAJOR_, bool B_K_MAJOR_, int A_LOAD_, int B_LOAD_, int STORE_, bool PROMOTED_ = false, int CLASSES_ = 1,
          int A_CLASSES_ = 1, bool B_STRETCHES_ = false>
struct WgmmaTraits {
  using TIn = TIn_;
  using TAcc = TAcc_;
  using TOut = TOut_;
  using Multiply = Multiply_;
  static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, BLOCK_K = BLOCK_K_, STAGES = STAGES_;
  static constexpr int CONSUMERS = CONSUMERS_, CLUSTER_M = CLUSTER_M_, CLUSTER_N = CLUSTER_N_, STORE = STORE_;
  static constexpr bool PING_PONG = PING_PONG_;
  // Where C has a few rows, only so many of A's are loaded. wgmma takes what follows them in the stage for the others,
  // whose results are not written.
  static constexpr int LOADED_M = LOADED_M_;
  // Rows of C of a tile. With more than 64 rows loaded of 128 that are multiplied, the next tile begins where they end.
  static constexpr int kHeight = LOADED_M > 64 ? LOADED_M : BLOCK_M;
  static constexpr bool kCut = kHeight < BLOCK_M;
  // Rows of A in classes come to wgmma from registers, shifted there: see wgmma_shifted.cuh.
  static constexpr int A_CLASSES = A_CLASSES_;
  static constexpr bool kShifted = A_CLASSES > 1;
  using ShiftedRows = WgmmaShiftedRows<LOADED_M, BLOCK_K, int(sizeof(TIn)), A_CLASSES>;
  using PlainA = WgmmaOperand<LOADED_M, BLOCK_K, int(sizeof(TIn)), A_K_MAJOR_, CLUSTER_N>;
  using A = typename Select<kShifted, ShiftedRows, PlainA>::type;
  using B = WgmmaOperand<BLOCK_N, BLOCK_K, int(sizeof(TIn)), B_K_MAJOR_, CLUSTER_M>;
  // Operands whose rows begin at multiples of LOAD bytes, less than 16, are copied by the producer's threads.
  static constexpr bool A_K_MAJOR = A_K_MAJOR_, B_K_MAJOR = B_K_MAJOR_;
  static constexpr bool kFedA = A_LOAD_ < 16, kFedB = B_LOAD_ < 16, kFed = kFedA || kFedB;
  // A dense B of few columns comes in stretches, which two warps unpack: see wgmma_stretch.cuh.
  static constexpr bool kStretches = B_STRETCHES_, kTmaB = !kFedB && !kStretches;
  static constexpr int kUnpackers = kStretches ? 2 : 0;
  using Slots = typename Select<kStretches, WgmmaSlots<B, BLOCK_N, BLOCK_K>, WgmmaNoSlots>::type;
  // One operand is read as it lies, the other from a copy that the grid before makes, and may be making still: the first
  // steps of the former are asked for meanwhile. One block takes a whole multiprocessor.
  static constexpr bool kMayBeEarly = MIN_BLOCKS_ == 1 && !kFed && !kStretches;
  static constexpr bool kEarlyA = kMayBeEarly && !Space_::PACK_A && Space_::PACK_B;
  static constexpr bool kEarlyB = kMayBeEarly && Space_::PACK_A && !Space_::PACK_B;
  static constexpr bool kEarly = kEarlyA || kEarlyB;
  using FeedA = WgmmaFeed<A, (A_K_MAJOR ? BLOCK_K : LOADED_M) * int(sizeof(TIn)), min_of(A_LOAD_, 8), kWarpgroup>;
  using FeedB = WgmmaFeed<B, (B_K_MAJOR ? BLOCK_K : BLOCK_N) * int(sizeof(TIn)), min_of(B_LOAD_, 8), kWarpgroup>;
  // Rows of B in classes: see wgmma_classes.cuh. A tile then has fewer columns of C than of sums.
  static constexpr int CLASSES = CLASSES_;
  using Classes = WgmmaClasses<CLASSES>;
  static constexpr int kWidth = BLOCK_N - Classes::kLost;
  using Walk = WgmmaWalk<kHeight, kWidth, BLOCK_K, CLUSTER_M, CLUSTER_N, CLASSES>;
  // Where one row of tiles is all of C, B is read once: L2 is told that it may leave before all else. Kernels that are
  // for many rows, or have more than one consumer, have no such policy, and no register for it.
  static constexpr bool kMayStreamB = BLOCK_M == 64 && CONSUMERS == 1 && CLUSTER_M == 1 && CLASSES == 1;

  // wgmma takes rows of one operand and columns of the other. 4-byte elements that lie along mn come to it as rows, from
  // registers: those of B by computing the transpose of C, so that its rows are C's columns.
  static constexpr bool kExchanged = !B_K_MAJOR && sizeof(TIn) == 4;
  static constexpr bool kFromRegisters = kExchanged || (!A_K_MAJOR && sizeof(TIn) == 4);
  using Rows = typename Select<kExchanged, B, A>::type;
  using Columns = typename Select<kExchanged, A, B>::type;
  static constexpr int kRows = kExchanged ? BLOCK_N : BLOCK_M, kColumns = kExchanged ? BLOCK_M : BLOCK_N;

  static constexpr int kThreads = kWarpgroup * (1 + CONSUMERS);
  static constexpr int kSharers = PING_PONG ? 1 : CONSUMERS;           // consumers that read one stage
  static constexpr int kTilesM = kRows / (64 * kSharers);              // wgmmas of one consumer along the rows
  static constexpr int kPeers = CLUSTER_M + CLUSTER_N - 1;             // blocks whose copies this block shares, and itself
  static constexpr int kStageBytes = A::kBytes + B::kBytes;
  static constexpr int kBytesOfTma = (kFedA ? 0 : A::kBytes) + (kTmaB ? B::kBytes : 0);

  // Without TMA, C is staged in any number of columns: 32 for each slot.
  static constexpr bool kWholePanels = STORE == 16 || kFromRegisters;
  static constexpr int kStoreRowBytes = kWholePanels ? wgmma_store_row_bytes(kColumns * int(sizeof(TOut))) : 128;
  static constexpr int kStorePanels = kWholePanels ? cdiv(kColumns * int(sizeof(TOut)), kStoreRowBytes) : 4;
  static constexpr int kRoom = kSharedOfSm / MIN_BLOCKS_ - kSharedOfSystem - kSharedBesides - STAGES * kStageBytes - Slots::kBytes;
  static constexpr int kStoreSlots = wgmma_store_slots(kStorePanels, CONSUMERS * 64 * kStoreRowBytes, kRoom);
  static constexpr int kStagedBytes = kStoreSlots * 16 * kStoreRowBytes;  // of a warp
  // Registers of a thread at launch; if consumers need more, the producer gives up what it can do without.
  static constexpr int kSums = kTilesM * kColumns / 2;
  using Sums = TAcc[kTilesM][kColumns / 2];
  // Of 8-bit floats, the tensor cores keep 14 bits of a sum: those of kPromotedEvery elements of k are added up in fp32.
  static constexpr bool PROMOTED = PROMOTED_;
  static constexpr int kPromotedEvery = 128, kStepsOfSum = kPromotedEvery * int(sizeof(TIn)) / 32;
  static constexpr int kRegistersAtLaunch = min_of(255, 65536 / (kThreads * MIN_BLOCKS_) / 8 * 8);
  static constexpr bool kMoveRegisters = kRegistersAtLaunch < 224;
  static constexpr int kProducerRegisters = kFed || kStretches ? 64 : CONSUMERS >= 3 ? 32 : kSums > 128 || STORE < 16 ? 24 : 40;
  static constexpr int kConsumerRegisters =
      !kMoveRegisters ? kRegistersAtLaunch
                      : min_of(240, (kRegistersAtLaunch * (1 + CONSUMERS) - kProducerRegisters) / CONSUMERS / 8 * 8);

  using TmaStore = WgmmaTmaStore<TAcc, TOut, OUT_BF16_, kColumns, kStoreRowBytes, kStoreSlots>;
  // A tile that ends soon is written by the threads themselves, and so are rows that are no neighbours.
  using StripRows = WgmmaStripRows<A_CLASSES>;
  static constexpr bool kDirect = STORE == 16 && (CONSUMERS == 1 || kShifted) && !kFromRegisters;
  static constexpr bool kTmaStores = STORE == 16 && !kDirect;
  static constexpr bool kAlignedC = STORE == 16;  // in one form, if there are several
  using DirectStore = WgmmaDirectStore<TmaStore, TAcc, TOut, BLOCK_N, kStoreRowBytes, kStoreSlots, StripRows>;
  using RowStore = WgmmaRowStore<TAcc, kTilesM, BLOCK_N, kStagedBytes / kStripRows / int(sizeof(TAcc)),
                                 kConsumerRegisters - kSums, StripRows>;
  // Rows of C that begin anywhere.
  using WindowStore = typename Select<sizeof(TOut) == 2,
                                      WgmmaWindowStore<TAcc, OUT_BF16_, (STORE < 4), kTilesM, BLOCK_N, kConsumerRegisters - kSums,
                                                       Classes::kFirst, kWidth, StripRows>,
                                      WgmmaPairStore<TAcc, (STORE < 8), kTilesM, BLOCK_N, StripRows>>::type;
  using Strips = WgmmaStrips<TAcc, kRows, kColumns>;
  using Fragments = WgmmaFragments<Rows>;
  using PanelStore = WgmmaPanelStore<Fragments, TAcc, TOut, kColumns, kStoreSlots, kExchanged>;
  using Space = Space_;
  // The loops over k, and the ways into C, of which a launch takes one each; how operands are loaded.
  static constexpr bool kShares = false;
  using Loops = WgmmaForms<WgmmaTraits>;
  using Stores = WgmmaForms<WgmmaTraits>;
  template <class... Where>
  __device__ __forceinline__ static void load_a(const GemmArguments&, const Where&... where) { A::load(where...); }
  template <class... Where>
  __device__ __forceinline__ static void load_b(const GemmArguments&, const Where&... where) { B::load(where...); }

  // Slice s of batch b may as well be called batch s * batches + b: nobody asks for the batch of a slice. Consumers are then
  // told of no slices. Which form leaves registers to spare was found by compiling.
  static constexpr bool kSlicesAreBatches =
      kFed || (STORE == 16 && !(PING_PONG && CLUSTER_M > 1)) ||
      (PING_PONG && B_K_MAJOR && STORE < 16 && !Space_::PACK_A && !Space_::PACK_B) ||
      (STORE < 16 && sizeof(TOut) == 2 && CLASSES == 1 && (CLUSTER_M * CLUSTER_N > 1 || !PING_PONG));

  static_assert(kRows % (64 * kSharers) == 0, "a consumer multiplies whole 64 rows");
  static_assert(LOADED_M == BLOCK_M || (LOADED_M < 64 && BLOCK_M == 64) || (LOADED_M > 64 && BLOCK_M == 128),
                "rows of one wgmma, or of two");
  static_assert(kHeight % kStripRows == 0, "a warp has whole strips of a tile");
  static_assert(!kCut || CLASSES == 1, "tiles are cut along one side");
  static_assert(LOADED_M == BLOCK_M || (A_K_MAJOR && !kFromRegisters), "rows of A follow each other");
  static_assert(LOADED_M == BLOCK_M || LOADED_M * 128 + B::kBytes >= BLOCK_M * 128, "wgmma reads within the stage");
  static_assert(!PING_PONG || CONSUMERS == 2, "two consumers take turns");
  static_assert(BLOCK_N % 16 == 0 || (BLOCK_N % 8 == 0 && CONSUMERS == 1), "TMA writes whole panels of C");
  static_assert(A_K_MAJOR || B_K_MAJOR || !kFromRegisters, "one operand comes from registers");
  static_assert(!kFromRegisters || kStoreRowBytes == 128, "two warps write panels of 32 x 32");
  static_assert(kSums * (PROMOTED ? 2 : 1) <= (kFed || kStretches ? 128 : 192), "accumulators must fit the registers");
  static_assert(!PROMOTED || (sizeof(TIn) == 1 && !PING_PONG && BLOCK_K % kPromotedEvery == 0), "whole stages are added up");
  static_assert(!(kFed || kStretches) || CLUSTER_M * CLUSTER_N == 1, "each block feeds itself");
  static_assert(!kStretches || (!B_K_MAJOR && sizeof(TIn) == 2 && !kFed && !kShifted && CLASSES == 1), "16-bit rows of B along n");
  static_assert(CLASSES == 1 || (A_K_MAJOR && !B_K_MAJOR && !kFed && !PROMOTED && !kFromRegisters), "rows of B along k");
  static_assert(CLASSES == 1 || (STORE < 16 && sizeof(TOut) == 2), "windows write parts of a tile");
  static_assert(!kShifted || (A_K_MAJOR && sizeof(TIn) > 1 && !kFedB && CLASSES == 1 && CLUSTER_N == 1), "rows of A along k");
  static_assert(!kShifted || !kFromRegisters, "one operand comes from registers");
  static_assert(!kShifted || LOADED_M == BLOCK_M, "whole classes");
  static_assert(A_CLASSES < 8 || kTilesM % 2 == 0 || kTilesM == 1, "strips of eight classes are those of 128 rows");
  static_assert(CONSUMERS * 64 * kStoreRowBytes <= kRoom, "stages and C must fit shared memory");
  static_assert(kPeers <= 4, "one warp of a consumer for each block that it signals");
};

}  // namespace kt
