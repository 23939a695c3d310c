// The reference that candidates are verified with, and the kernels that make operands and compare results.
//
// Written independently of the templates, for clarity before speed: every layout, leading dimension and batch stride is
// an element stride, every offset is 64 bits wide. reference.py compiles it once for each pair of formats:
//   FORMAT_IN, FORMAT_OUT  one of the format structs below: the elements of A and B, and of C
//   SUM_EXACT              sums whole numbers without error where the exact pass needs it: float, double or int
//   SUM_TRUE               sums random numbers: double, or int
//   WIDE                   how the reference of the random pass is kept: float, double or int
// Every kernel takes one struct of 8-byte fields; reference.py declares the same fields in the same order.

typedef long long i64;
typedef unsigned long long u64;

// --- formats: `Bits` in memory, `decode` to a number, `encode` rounds a double to nearest -----------------------------

struct Fp32 {
    typedef float Bits;
    static __device__ float decode(float bits) { return bits; }
    static __device__ float encode(double value) { return (float)value; }
};

// An fp32 number in memory that stands for the nearest number with 11 bits of significand; ties go away from zero, as
// with cvt.rna.tf32. No operand that is made here is such a tie, so kernels may break ties as they like.
struct Tf32 {
    typedef float Bits;
    static __device__ float decode(float bits) {
        return __uint_as_float((__float_as_uint(bits) + 0x1000u) & 0xffffe000u);
    }
    static __device__ float encode(double value) {
        unsigned bits = __float_as_uint((float)value);
        return __uint_as_float((bits & 0x1fffu) == 0x1000u ? bits | 1u : bits);
    }
};

struct Fp64 {
    typedef double Bits;
    static __device__ double decode(double bits) { return bits; }
    static __device__ double encode(double value) { return value; }
};

struct Fp16 {
    typedef unsigned short Bits;
    static __device__ float decode(Bits bits) {
        float value;
        asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
        return value;
    }
    static __device__ Bits encode(double value) {
        Bits bits;
        asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(value));
        return bits;
    }
};

struct Bf16 {
    typedef unsigned short Bits;
    static __device__ float decode(Bits bits) { return __uint_as_float((unsigned)bits << 16); }
    static __device__ Bits encode(double value) {
        // Exact operands give whole numbers below 2^24, so the step through float rounds nothing.
        unsigned bits = __float_as_uint((float)value);
        return (Bits)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
    }
};

struct Int8 {
    typedef signed char Bits;
    static __device__ int decode(Bits bits) { return bits; }
    static __device__ Bits encode(double value) { return (Bits)(int)value; }
};

struct Int32 {
    typedef int Bits;
    static __device__ int decode(Bits bits) { return bits; }
    static __device__ Bits encode(double value) { return (Bits)(i64)value; }
};

// An 8-bit float with MANTISSA stored bits, exponent bias BIAS and largest finite number LARGEST (never encoded past).
template <int MANTISSA, int BIAS, int LARGEST>
struct Small {
    typedef unsigned char Bits;
    static __device__ float decode(Bits bits) {
        int exponent = (bits & 0x7f) >> MANTISSA, mantissa = bits & ((1 << MANTISSA) - 1);
        float sign = bits & 0x80 ? -1.0f : 1.0f;
        if ((bits & 0x7f) > encode_magnitude((float)LARGEST)) return sign * __int_as_float(0x7fffffff);
        if (exponent == 0) return sign * ldexpf((float)mantissa, 1 - BIAS - MANTISSA);
        return sign * ldexpf((float)(mantissa | (1 << MANTISSA)), exponent - BIAS - MANTISSA);
    }
    static __device__ Bits encode(double value) {
        float magnitude = fminf(fabsf((float)value), (float)LARGEST);
        return (Bits)(encode_magnitude(magnitude) | (value < 0 ? 0x80 : 0));
    }
    static __device__ int encode_magnitude(float magnitude) {
        int exponent = magnitude > 0 ? max(ilogbf(magnitude), 1 - BIAS) : 1 - BIAS;
        int units = (int)rintf(ldexpf(magnitude, MANTISSA - exponent));  // of the last place; may carry upwards
        return ((exponent + BIAS - 1) << MANTISSA) + units;
    }
};

typedef Small<3, 7, 448> E4m3;
typedef Small<2, 15, 57344> E5m2;

typedef FORMAT_IN In;
typedef FORMAT_OUT Out;

// --- operands --------------------------------------------------------------------------------------------------------

struct FillPattern {
    unsigned* start;
    i64 words;    // of 32 bits
    i64 pattern;  // 16 bits, repeated
};

extern "C" __global__ void fill_pattern(FillPattern p) {
    unsigned word = (unsigned)p.pattern * 0x10001u;
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.words; i += step) p.start[i] = word;
}

// One block fills a multiprocessor: all shared memory that a block may have and, since kFillThreads threads of 128 registers
// have all of them, kHeld in 128 registers. What is in them stays there when the block ends, and a kernel that reads what it
// has not written finds it.
struct FillMultiprocessor {
    i64 words;    // of shared memory
    i64 pattern;  // 16 bits, repeated
};

const int kFillThreads = 512, kHeld = 120;

extern "C" __global__ void __launch_bounds__(kFillThreads, 1) fill_multiprocessor(FillMultiprocessor p) {
    extern __shared__ volatile unsigned block_memory[];
    const unsigned word = (unsigned)p.pattern * 0x10001u;
    for (i64 i = threadIdx.x; i < p.words; i += blockDim.x) block_memory[i] = word;
    __syncthreads();
    // For all that the compiler knows the values differ, and are needed behind the barrier.
    unsigned held[kHeld];
#pragma unroll
    for (int i = 0; i < kHeld; ++i) held[i] = block_memory[i];
    __syncthreads();
    if (block_memory[0] == word) return;  // always
    unsigned sum = 0;
#pragma unroll
    for (int i = 0; i < kHeld; ++i) sum = 3 * sum + held[i];
    block_memory[0] = sum;
}

// The value of an element depends on where it lies, so that batches which overlap in memory agree about it.
__device__ u64 scramble(u64 seed, u64 position) {
    u64 x = seed + (position + 1) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

// N(0,1) by the Box-Muller transform; below 6 in magnitude. The last factor fills the low bits of a double.
__device__ double normal(u64 random) {
    float radius = sqrtf(-2.0f * logf(((float)(unsigned)(random >> 40) + 0.5f) * 0x1p-24f));
    float angle = (float)(unsigned)(random & 0xffffff) * 0x1p-23f;
    double low_bits = (double)((int)((random >> 24) & 0xffff) - 0x8000) * 0x1p-40;
    return (double)(radius * cospif(angle)) * (1.0 + low_bits);
}

// +-1 ... +-magnitude with probability `density`, else 0.
__device__ double whole_number(u64 random, i64 magnitude, double density) {
    if ((double)(unsigned)(random >> 32) * 0x1p-32 >= density) return 0.0;
    double size = (double)(1 + (i64)((random >> 1) & 0x7fffffff) % magnitude);
    return random & 1 ? -size : size;
}

struct FillMatrix {
    void* base;
    i64 rows, columns, ld, stride, batch;
    i64 seed;
    i64 magnitude;  // 0: N(0,1); else whole numbers up to it
    double density;
};

template <class Format>
__device__ void fill_matrix(const FillMatrix& p) {
    typename Format::Bits* base = (typename Format::Bits*)p.base;
    i64 total = p.rows * p.columns * p.batch, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        i64 row = i / p.columns, batch = row / p.rows;
        i64 position = batch * p.stride + (row - batch * p.rows) * p.ld + (i - row * p.columns);
        u64 random = scramble((u64)p.seed, (u64)position);
        base[position] = Format::encode(p.magnitude ? whole_number(random, p.magnitude, p.density) : normal(random));
    }
}

extern "C" __global__ void fill_in(FillMatrix p) { fill_matrix<In>(p); }
extern "C" __global__ void fill_out(FillMatrix p) { fill_matrix<Out>(p); }

// Euclidean norms of `count` vectors of `length` elements in each batch: one warp a vector.
struct Norms {
    const void* base;
    float* norms;
    i64 count, length, vector_step, element_step, stride, batch;
};

extern "C" __global__ void norms_in(Norms p) {
    const In::Bits* base = (const In::Bits*)p.base;
    i64 warps = ((i64)gridDim.x * blockDim.x) / 32;
    for (i64 v = ((i64)blockIdx.x * blockDim.x + threadIdx.x) / 32; v < p.count * p.batch; v += warps) {
        i64 batch = v / p.count;
        const In::Bits* vector = base + batch * p.stride + (v - batch * p.count) * p.vector_step;
        double sum = 0;
        for (i64 k = threadIdx.x % 32; k < p.length; k += 32) {
            double value = (double)In::decode(vector[k * p.element_step]);
            sum += value * value;
        }
        for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
        if (threadIdx.x % 32 == 0) p.norms[v] = (float)sqrt(sum);
    }
}

// --- the product -----------------------------------------------------------------------------------------------------

struct Multiply {
    const void* a;
    const void* b;
    const void* c;    // as it is before the launch; read only where beta is not 0
    void* result;     // dense: [batch, m, n]
    double* scratch;  // dense sums of the splits, zeroed before; not used with one split
    double alpha, beta;
    i64 a_row, a_column, a_batch, b_row, b_column, b_batch, ldc, c_batch;  // element strides
    i64 m, n, k, batch, splits;
};

const int kTile = 64, kDepth = 16, kSide = 16, kWork = kTile / kSide;  // kSide * kSide threads, kWork^2 results each

template <class Store>
__device__ void finish_element(const Multiply& p, i64 batch, i64 row, i64 column, double sum) {
    double value = p.alpha * sum;
    if (p.beta != 0) {
        const Out::Bits* c = (const Out::Bits*)p.c;
        value += p.beta * (double)Out::decode(c[batch * p.c_batch + row * p.ldc + column]);
    }
    ((typename Store::Bits*)p.result)[(batch * p.m + row) * p.n + column] = Store::encode(value);
}

template <class Sum, class Store>
__device__ void multiply(const Multiply& p) {
    __shared__ Sum tile_a[kDepth][kTile + 1], tile_b[kDepth][kTile + 1];
    const int x = threadIdx.x % kSide, y = threadIdx.x / kSide;
    const i64 tiles_m = (p.m + kTile - 1) / kTile, tiles_n = (p.n + kTile - 1) / kTile;
    const i64 chunk = (p.k + p.splits - 1) / p.splits;
    for (i64 work = blockIdx.x; work < tiles_m * tiles_n * p.batch * p.splits; work += gridDim.x) {
        const i64 split = work % p.splits, tile = work / p.splits;
        const i64 column0 = tile % tiles_n * kTile, row0 = tile / tiles_n % tiles_m * kTile;
        const i64 batch = tile / (tiles_n * tiles_m);
        const In::Bits* a = (const In::Bits*)p.a + batch * p.a_batch;
        const In::Bits* b = (const In::Bits*)p.b + batch * p.b_batch;
        const i64 first = split * chunk, last = min(first + chunk, p.k);
        Sum sums[kWork][kWork] = {};
        for (i64 k0 = first; k0 < last; k0 += kDepth) {
            for (int e = threadIdx.x; e < kTile * kDepth; e += kSide * kSide) {
                // Neighbouring threads read neighbouring elements, whichever way the operand lies.
                const int ka = p.a_column == 1 ? e % kDepth : e / kTile, i = p.a_column == 1 ? e / kDepth : e % kTile;
                const int kb = p.b_row == 1 ? e % kDepth : e / kTile, j = p.b_row == 1 ? e / kDepth : e % kTile;
                const bool in_a = row0 + i < p.m && k0 + ka < last, in_b = column0 + j < p.n && k0 + kb < last;
                tile_a[ka][i] = in_a ? (Sum)In::decode(a[(row0 + i) * p.a_row + (k0 + ka) * p.a_column]) : (Sum)0;
                tile_b[kb][j] = in_b ? (Sum)In::decode(b[(k0 + kb) * p.b_row + (column0 + j) * p.b_column]) : (Sum)0;
            }
            __syncthreads();
#pragma unroll
            for (int k = 0; k < kDepth; ++k)
#pragma unroll
                for (int i = 0; i < kWork; ++i)
#pragma unroll
                    for (int j = 0; j < kWork; ++j) sums[i][j] += tile_a[k][y + i * kSide] * tile_b[k][x + j * kSide];
            __syncthreads();
        }
#pragma unroll
        for (int i = 0; i < kWork; ++i)
#pragma unroll
            for (int j = 0; j < kWork; ++j) {
                const i64 row = row0 + y + i * kSide, column = column0 + x + j * kSide;
                if (row >= p.m || column >= p.n) continue;
                if (p.splits > 1)
                    atomicAdd(&p.scratch[(batch * p.m + row) * p.n + column], (double)sums[i][j]);
                else
                    finish_element<Store>(p, batch, row, column, (double)sums[i][j]);
            }
    }
}

template <class Store>
__device__ void finish(const Multiply& p) {
    i64 total = p.m * p.n * p.batch, step = (i64)gridDim.x * blockDim.x;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        i64 row = i / p.n, batch = row / p.m;
        finish_element<Store>(p, batch, row - batch * p.m, i - row * p.n, p.scratch[i]);
    }
}

extern "C" __global__ void __launch_bounds__(256) multiply_exact(Multiply p) { multiply<SUM_EXACT, Out>(p); }
extern "C" __global__ void __launch_bounds__(256) multiply_true(Multiply p) { multiply<SUM_TRUE, WIDE>(p); }
extern "C" __global__ void finish_exact(Multiply p) { finish<Out>(p); }
extern "C" __global__ void finish_true(Multiply p) { finish<WIDE>(p); }

// --- comparing -------------------------------------------------------------------------------------------------------

// All zero before the first comparison that reports into it.
struct Report {
    u64 count;      // elements that differ
    u64 not_first;  // the complement of the smallest index of one
    u64 worst;      // bits of the largest error as a multiple of the tolerance, a float
};

__device__ void note(Report* report, u64 count, u64 first, float worst) {
    if (count) {
        atomicAdd(&report->count, count);
        atomicMax(&report->not_first, ~first);
    }
    // Positive floats are ordered like their bits.
    if (worst > 0) atomicMax(&report->worst, (u64)__float_as_uint(worst));
}

struct Compare {
    const void* c;
    const void* reference;  // dense
    const float* row_norms;
    const float* column_norms;
    Report* report;
    i64 m, n, batch, ldc, c_batch;
    double product, relative, absolute;  // the tolerance, see tolerance.py
};

__device__ double error_ratio(double error, double allowed) {
    if (error <= allowed) return allowed > 0 ? error / allowed : 0.0;
    return isfinite(error) && allowed > 0 ? error / allowed : 3e38;  // NaN comes here as well
}

template <class Store>
__device__ void compare(const Compare& p, bool tolerant) {
    const Out::Bits* c = (const Out::Bits*)p.c;
    const typename Store::Bits* reference = (const typename Store::Bits*)p.reference;
    i64 total = p.m * p.n * p.batch, step = (i64)gridDim.x * blockDim.x;
    u64 count = 0, first = ~0ull;
    float worst = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < total; i += step) {
        i64 row = i / p.n, batch = row / p.m, column = i - row * p.n;
        double got = (double)Out::decode(c[batch * p.c_batch + (row - batch * p.m) * p.ldc + column]);
        double want = (double)Store::decode(reference[i]);
        bool same = got == want;  // NaN never is; +0 and -0 are
        if (tolerant && !same) {
            double norms = (double)p.row_norms[row] * (double)p.column_norms[batch * p.n + column];
            double allowed = p.product * norms + p.relative * fabs(want) + p.absolute;
            double ratio = error_ratio(fabs(got - want), allowed);
            worst = fmaxf(worst, (float)ratio);
            same = ratio <= 1;
        }
        if (!same) {
            ++count;
            first = min(first, (u64)i);
        }
    }
    note(p.report, count, first, worst);
}

extern "C" __global__ void compare_exact(Compare p) { compare<Out>(p, false); }
extern "C" __global__ void compare_true(Compare p) { compare<WIDE>(p, true); }

// Elements [first, last) around and between the rows of C, counted from its base, must still hold the pattern.
struct CheckPattern {
    const void* base;
    Report* report;
    i64 first, last, rows, columns, ld, stride, batch, pattern;
};

__device__ bool belongs(const CheckPattern& p, i64 position) {
    if (position < 0) return false;
    i64 batch = p.batch > 1 ? min(position / p.stride, p.batch - 1) : 0;
    i64 within = position - batch * p.stride, row = within / p.ld;
    return row < p.rows && within - row * p.ld < p.columns;
}

extern "C" __global__ void check_pattern(CheckPattern p) {
    const int kHalves = sizeof(Out::Bits) / 2;
    const unsigned short* halves = (const unsigned short*)p.base;
    i64 step = (i64)gridDim.x * blockDim.x;
    u64 count = 0, first = ~0ull;
    for (i64 i = p.first + (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.last; i += step) {
        bool intact = true;
        for (int half = 0; half < kHalves; ++half) intact &= halves[i * kHalves + half] == (unsigned short)p.pattern;
        if (intact || belongs(p, i)) continue;
        ++count;
        first = min(first, (u64)(i - p.first));
    }
    note(p.report, count, first, 0);
}

// A sum over words that depends on each word and its place, in any order of summing: equal bytes have equal digests.
struct Digest {
    const unsigned* start;
    i64 words;
    u64* sum;
};

extern "C" __global__ void digest(Digest p) {
    i64 step = (i64)gridDim.x * blockDim.x;
    u64 sum = 0;
    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < p.words; i += step)
        sum += scramble((u64)p.start[i], (u64)i);
    for (int offset = 16; offset; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(p.sum, sum);
}
