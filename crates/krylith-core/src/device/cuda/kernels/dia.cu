// dia_product: y = c A x with A stored by diagonals, and its variants: with sums over x and y
// (dia_product_xy, _xxxy), marching (dia_march…), with the columns of other ranks (dia_ghosts…), the residual
// that certifies a solution (dia_residual), and the packing of values into this format (dia_pack, dia_mirror,
// dia_pack_ghosts).
// Constants:
// - VALUE: double, float or bf16 as stored. In bf16 a product that smooths has no main diagonal (APART 2 of
//   smooth.cuh): D, the diagonal plus the l1 norm of the rest of the row, is 1 over D^-1, and the row has the
//   rest.
// - COUNT: most diagonals of this module.
// - EXACT: 1 if there are exactly COUNT, otherwise `count`.
// - SYMMETRIC: 1 if the main diagonal and those above it are stored, and v[-k][i] = v[k][i - k].
// - AHEAD: 1 if the registers suffice to load a row's numbers one step before they are used.
// - THREADS, and CTAS (resident, limited by registers).
// - REAL: double or float, the type of vectors and arithmetic of the products that smooth.
// - SMOOTH, if defined: rows turn their numbers into a residual or a smoother step; 2: from zero.
// - COLUMNS, if defined: the module has dia_columns alone, a product with several vectors.
//
// Bytes moved at least: 8 per stored number (4 in f32), and for each row 8 of x and 8 of y. For seven
// diagonals in f64: 72 per row, symmetric 48.
//
// Place i of diagonal k, whose offset is offsets.at[k], holds entry (i, i + offset), or 0 where the pattern
// has none; diagonals start `stride` numbers apart. Offsets ascend, and a row is summed in their order, so
// both ways of storage give the same bits.
//
// Mapping. A thread processes one row at a time; each load of a warp reads contiguous cache lines, for any
// offset. dia_product processes runs of THREADS rows. dia_march processes THREADS rows and those `march`
// further on, step by step, where ±march are the outermost diagonals: on a grid, the planes above. The number
// that it reads as the upper neighbour is its own number one step later, and the lower neighbour one step
// after that. So x and, in symmetric storage, the outermost diagonal are read from the caches once instead of
// three times. All other neighbours come from L1 and L2. Thread blocks and the order of sums depend only on
// sizes and the GPU, so results are reproducible.
//
// With columns of other ranks a product is two launches. The first sends the numbers that neighbours need
// (halo.cuh) and multiplies own columns; the second waits for the ghosts and adds their products, to the rows
// that have any. The second also finishes the sums.

#ifndef VALUE
#define VALUE double
#endif
#ifndef REAL
#define REAL double
#endif
constexpr int RUN = 1, PAIR = 1, PIECES = RUN / PAIR;
#include "bf16.cuh"
#include "halo.cuh"
#include "smooth.cuh"
#include "twofold.cuh"
#ifndef MOST_COLUMNS
#define MOST_COLUMNS 16
#endif

typedef long long i64;
#include "dia.cuh"

// With SMOOTH a row turns its number into something else, and the module contains only products without sums.
#ifdef SMOOTH
#define SMOOTH_ARGUMENT , const Smooth of
#define SMOOTH_PASSED , of
#define OWN(i) const Own own = own_numbers(of, i)
#define STORE(i, sum) y[i] = RESULT_OF(of, smoothed(of, own, i, whole(own, sum)))
#else
#define SMOOTH_ARGUMENT
#define SMOOTH_PASSED
#define OWN(i)
#define STORE(i, sum) y[i] = sum
#endif

// Targets of sums: one number per thread block to parts[k * total + first + block], their totals to
// places[k].
struct Sums {
    double* parts;
    unsigned* counter;
    double* places[2];
    Group* peers;     // null, or the GPUs over which the last block also sums; not for a product
    int first, total;
    int last, unused; // last: this launch adds the partial sums
};

// Entries in columns of other ranks, by the rows that have any.
struct Ghosts {
    int count, unused;
    const int* rows;
    const int* starts;
    const int* columns;
    const VALUE* values;
};

// Of a row's own numbers in symmetric storage the first is read once; in a march, so is the last.
__device__ __forceinline__ REAL own_number(const VALUE* __restrict__ values, int k, i64 stride, unsigned i) {
    return k == 0 || k == COUNT - 1 ? number_once(values, k * stride + i) : number(values, k * stride + i);
}

// One row, without the coefficient. i + offset wraps around if it is negative, and is then not a valid row
// either.
__device__ __forceinline__ RowSum row_sum(unsigned i, unsigned rows, int count, const Offsets& offsets, const VALUE* __restrict__ values, i64 stride,
                                          const Numbers& at) {
    RowSum sum = {};
#if SYMMETRIC
#pragma unroll
    for (int k = COUNT - 1; k > 0; --k) {
        if (!EXACT && k >= count) continue;
        const unsigned j = i - (unsigned)offsets.at[k];
        const REAL a = j < rows ? number(values, k * stride + j) : ZERO, v = j < rows ? at(j) : ZERO;
        take_product(sum, a, v);
    }
    if (FIRST == 0) take_product(sum, number_once(values, i), at(i));
#pragma unroll
    for (int k = 1; k < COUNT; ++k) {
        if (!EXACT && k >= count) continue;
        const unsigned j = i + (unsigned)offsets.at[k];
        const REAL a = number(values, k * stride + i), v = j < rows ? at(j) : ZERO;
        take_product(sum, a, v);
    }
#else
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        if ((!EXACT && k >= count) || (FIRST == 1 && offsets.at[k] == 0)) continue;
        const unsigned j = i + (unsigned)offsets.at[k];
        const REAL a = number_once(values, k * stride + i), v = j < rows ? at(j) : ZERO;
        take_product(sum, a, v);
    }
#endif
    return sum;
}

// Sum k over all ranks, in their order. Called by the threads of one warp; the first has the result.
__device__ __forceinline__ double over_ranks(Group* peers, int k, double sum) {
    const Round round = open_round(peers);
    if (threadIdx.x % 32 < 8) post(round, k, sum);
    return threadIdx.x % 32 == 0 ? collect(peers, round, k) : 0.0;
}

// Adds sums[k] over all blocks of the launch, in their order, and over all ranks. Every thread must call it.
// Sums over ranks take more registers than a product has, so the launch that adds ghosts computes them.
template <int DOTS, bool RANKS>
__device__ __forceinline__ void add_up(const Sums& to, double (&sums)[DOTS]) {
    __shared__ double part[DOTS][THREADS / 32];
    __shared__ bool last;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < DOTS; ++k) {
#pragma unroll
        for (int bit = 16; bit; bit /= 2) sums[k] += __shfl_xor_sync(~0u, sums[k], bit);
        if (lane == 0) part[k][warp] = sums[k];
    }
    __syncthreads();
    if (warp < DOTS) {
        double sum = lane < THREADS / 32 ? part[warp][lane] : 0.0;
#pragma unroll
        for (int bit = THREADS / 64; bit; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        if (lane == 0) {
            to.parts[warp * to.total + to.first + blockIdx.x] = sum;
            __threadfence();
        }
    }
    if (!to.last) return;
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(to.counter, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    // Equally many threads for each sum.
    constexpr int SHARE = THREADS / DOTS;
    const double* const mine = to.parts + threadIdx.x / SHARE * to.total;
    double sum = 0.0;
    for (int b = threadIdx.x % SHARE; b < to.total; b += SHARE) sum += __ldcg(mine + b);
#pragma unroll
    for (int bit = 16; bit; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
    double* const all = &part[0][0];
    if (lane == 0) all[warp] = sum;
    __syncthreads();
    if (warp < DOTS) {
        sum = lane < SHARE / 32 ? all[warp * (SHARE / 32) + lane] : 0.0;
#pragma unroll
        for (int bit = SHARE / 64; bit; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        if (RANKS && to.peers) sum = over_ranks(to.peers, warp, sum);
        if (lane == 0) *(warp == 0 ? to.places[0] : to.places[1]) = sum;
    }
    if (RANKS && to.peers) close_round(to.peers);
}

// (x, y) last, (x, x) before it.
template <int DOTS>
__device__ __forceinline__ void count_in(double (&sums)[DOTS], double x, double y) {
    if (DOTS == 2) sums[0] = fma(x, x, sums[0]);
    sums[DOTS - 1] = fma(x, y, sums[DOTS - 1]);
}

// items: runs of THREADS rows, or of THREADS rows of `steps` planes each, plane by plane.
template <int DOTS, bool MARCH>
__device__ __forceinline__ void multiply(const int* halt, const unsigned rows, const int count, const Offsets& offsets, const VALUE* __restrict__ values,
                                         const i64 stride, const REAL* __restrict__ x, RESULTS* __restrict__ y, const double* __restrict__ coefficient,
                                         const int items, const int steps, const Sums& to, Exchange* exchange SMOOTH_ARGUMENT) {
    if (halt && *halt) return;
    const Numbers at = NUMBERS;
    begin_exchange(exchange, at);
    const REAL c = (REAL)*coefficient;
    double sums[DOTS > 0 ? DOTS : 1] = {};
    if (!MARCH) {
        for (int item = blockIdx.x; item < items; item += gridDim.x) {
            const unsigned i = (unsigned)item * THREADS + threadIdx.x;
            if (i >= rows) continue;
            OWN(i);
            const RowSum sum = c * row_sum(i, rows, count, offsets, values, stride, at);
            STORE(i, sum);
            if constexpr (DOTS > 0) count_in(sums, at(i), sum);
        }
    } else {
        constexpr int LAST = COUNT - 1;
        const unsigned march = offsets.at[LAST], tiles = (march + THREADS - 1) / THREADS;
        const VALUE* const outer = values + LAST * stride;
        for (int item = blockIdx.x; item < items; item += gridDim.x) {
            const unsigned in_plane = item % tiles * THREADS + threadIdx.x;
            const i64 from = (i64)(item / tiles) * steps * march + in_plane;
            if (in_plane >= march || from >= rows) continue;
            unsigned i = (unsigned)from;
            REAL below = i >= march ? at(i - march) : ZERO, here = at(i);
#if SYMMETRIC
            REAL coupling = i >= march ? number(outer, i - march) : ZERO;
            REAL now[COUNT], above = i + march < rows ? at(i + march) : ZERO;
#pragma unroll
            for (int k = FIRST; k < COUNT; ++k) now[k] = own_number(values, k, stride, i);
#endif
            for (int t = 0; t < steps && i < rows; ++t, i += march) {
                OWN(i);
#if SYMMETRIC
                const unsigned ahead = i + march;
                const bool more = t + 1 < steps && ahead < rows;
                REAL next[COUNT], beyond;
                auto ask = [&] {
#pragma unroll
                    for (int k = FIRST; k < COUNT; ++k) next[k] = more ? own_number(values, k, stride, ahead) : ZERO;
                    beyond = more && ahead + march < rows ? at(ahead + march) : ZERO;
                };
                if (AHEAD) ask();  // data from memory, one step before it is used
                RowSum sum = first_product(coupling, below);
#pragma unroll
                for (int k = LAST - 1; k > 0; --k) {
                    const unsigned j = i - (unsigned)offsets.at[k];
                    const REAL a = j < rows ? number(values, k * stride + j) : ZERO, v = j < rows ? at(j) : ZERO;
                    take_product(sum, a, v);
                }
                if (FIRST == 0) take_product(sum, now[0], here);
#pragma unroll
                for (int k = 1; k < LAST; ++k) {
                    const unsigned j = i + (unsigned)offsets.at[k];
                    take_product(sum, now[k], j < rows ? at(j) : ZERO);
                }
                take_product(sum, now[LAST], above);
                sum = c * sum;
#else
                const REAL above = i + march < rows ? at(i + march) : ZERO;
                const REAL upper = number_once(outer, i);
                RowSum sum = first_product(number_once(values, i), below);
#pragma unroll
                for (int k = 1; k < LAST; ++k) {
                    if (FIRST == 1 && k == COUNT / 2) continue;
                    const unsigned j = i + (unsigned)offsets.at[k];
                    const REAL a = number_once(values, k * stride + i), v = k == COUNT / 2 ? here : j < rows ? at(j) : ZERO;
                    take_product(sum, a, v);
                }
                take_product(sum, upper, above);
                sum = c * sum;
#endif
                STORE(i, sum);
                if constexpr (DOTS > 0) count_in(sums, here, sum);
                below = here;
                here = above;
#if SYMMETRIC
                if (!AHEAD) ask();
                coupling = now[LAST];
                above = beyond;
#pragma unroll
                for (int k = FIRST; k < COUNT; ++k) now[k] = next[k];
#endif
            }
        }
    }
    if constexpr (DOTS > 0) add_up<DOTS, false>(to, sums);
}

#define PRODUCT(name, dots, march)                                                                                                                      \
    extern "C" __global__ void __launch_bounds__(THREADS, CTAS)                                                                                         \
    name(const int* halt, const unsigned rows, const int count, const Offsets offsets, const VALUE* __restrict__ values, const i64 stride,              \
         const REAL* __restrict__ x, RESULTS* __restrict__ y, const double* __restrict__ coefficient, const int items, const int steps, const Sums to, \
         Exchange* exchange SMOOTH_ARGUMENT) {                                                                                                                          \
        multiply<dots, march>(halt, rows, count, offsets, values, stride, x, y, coefficient, items, steps, to, exchange SMOOTH_PASSED);                 \
    }
#ifndef COLUMNS
PRODUCT(dia_product, 0, false)
PRODUCT(dia_march, 0, true)
#endif
#ifdef COLUMNS
// The products with several vectors, or their residuals or smoother steps; `of[w].x` is vector w. A thread
// keeps the values of its row in registers.
// Bytes moved at least: 8 per stored number and, for each row and vector, those of a product without values.
struct Columns {
    Smooth of[MOST_COLUMNS];
    double* y[MOST_COLUMNS];
};

extern "C" __global__ void __launch_bounds__(THREADS)
dia_columns(const int* halt, const unsigned rows, const int count, const Offsets offsets, const VALUE* __restrict__ values, const i64 stride,
            const Columns on, const int width, const double* __restrict__ coefficient) {
    if (halt && *halt) return;
    const double c = *coefficient;
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < rows; i += gridDim.x * THREADS) {
        double upper[COUNT];
#pragma unroll
        for (int k = 0; k < COUNT; ++k) upper[k] = EXACT || k < count ? number(values, k * stride + i) : 0.0;
#if SYMMETRIC
        double lower[COUNT];
#pragma unroll
        for (int k = 1; k < COUNT; ++k) {
            const unsigned j = i - (unsigned)offsets.at[k];
            lower[k] = (EXACT || k < count) && j < rows ? number(values, k * stride + j) : 0.0;
        }
#endif
        for (int w = 0; w < width; ++w) {
            const Smooth& of = on.of[w];
            double* const y = on.y[w];
            const double* const x = of.x;
            const Numbers at = NUMBERS;
            OWN(i);
            double sum = 0.0;
#if SYMMETRIC
#pragma unroll
            for (int k = COUNT - 1; k > 0; --k) {
                const unsigned j = i - (unsigned)offsets.at[k];
                if ((EXACT || k < count) && j < rows) sum = fma(lower[k], at(j), sum);
            }
            sum = fma(upper[0], at(i), sum);
            constexpr int FIRST = 1;
#else
            constexpr int FIRST = 0;
#endif
#pragma unroll
            for (int k = FIRST; k < COUNT; ++k) {
                const unsigned j = i + (unsigned)offsets.at[k];
                if ((EXACT || k < count) && j < rows) sum = fma(upper[k], at(j), sum);
            }
            sum *= c;
            STORE(i, sum);
        }
    }
}
#endif
#if !defined(SMOOTH) && !defined(COLUMNS)
PRODUCT(dia_product_xy, 1, false)
PRODUCT(dia_product_xxxy, 2, false)
PRODUCT(dia_march_xy, 1, true)
PRODUCT(dia_march_xxxy, 2, true)

// y += c O g in the rows that have ghosts: those at `ghosts`, or those of an exchange that an earlier launch
// started. With `smooths`, y has the results of smoother steps.
// Bytes moved at least: for each entry the value, 4 and a ghost; for each row 8, y twice and, for sums, x.
template <int DOTS>
__device__ __forceinline__ void add_ghosts(const int* halt, const Ghosts& on, const double* ghosts, const double* __restrict__ x, double* __restrict__ y,
                                           const double* __restrict__ coefficient, const Sums& to, Exchange* exchange, const int smooths,
                                           const Smooth& of) {
    if (halt && *halt) return;
    if (exchange) ghosts = awaited_ghosts(exchange);
    const bool here = ghosts || !exchange;
    const double c = *coefficient;
    double sums[DOTS > 0 ? DOTS : 1] = {};
    for (int r = blockIdx.x * THREADS + threadIdx.x; here && r < on.count; r += gridDim.x * THREADS) {
        const int row = on.rows[r], end = on.starts[r + 1];
        double sum = 0.0;
        for (int p = on.starts[r]; p < end; ++p) sum = fma((double)on.values[p], ghosts[on.columns[p]], sum);
        // Rounded twice in every variant, so that results have the same bits with and without sums.
        sum = __dmul_rn(sum, c);
        if (DOTS == 0 && smooths) add_late(of, y, row, sum);
        else y[row] = __dadd_rn(y[row], sum);
        if (DOTS > 0) sums[DOTS - 1] = fma(x[row], sum, sums[DOTS - 1]);
    }
    if constexpr (DOTS > 0) add_up<DOTS, true>(to, sums);
}
#define GHOSTS(name, dots)                                                                                             \
    extern "C" __global__ void __launch_bounds__(THREADS)                                                              \
    name(const int* halt, const Ghosts on, const double* ghosts, const double* __restrict__ x, double* __restrict__ y, \
         const double* __restrict__ coefficient, const Sums to, Exchange* exchange, const int smooths,                 \
         const Smooth of) {                                                                                            \
        add_ghosts<dots>(halt, on, ghosts, x, y, coefficient, to, exchange, smooths, of);                              \
    }
GHOSTS(dia_ghosts, 0)
GHOSTS(dia_ghosts_xy, 1)
GHOSTS(dia_ghosts_xxxy, 2)

// r = b - c A x and m = |b| + |c A| |x|, each number summed in twice the working precision and then rounded.
// Ghosts as above; they have all arrived, because a product with the same x came before. At most one launch
// per batch.
// Bytes moved at least: those of a product, b read and m written.
extern "C" __global__ void __launch_bounds__(THREADS)
dia_residual(const int* halt, const unsigned rows, const int count, const Offsets offsets, const VALUE* __restrict__ values, const i64 stride,
             const double* __restrict__ x, const double* __restrict__ b, double* __restrict__ r, double* __restrict__ m,
             const double* __restrict__ coefficient, const Ghosts on, const double* ghosts, const Exchange* exchange) {
    if (halt && *halt) return;
    if (exchange) ghosts = exchange->ghosts[exchange->ticket >> EPOCH_SHIFT & 1];
    const double c = -*coefficient;
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < rows; i += gridDim.x * THREADS) {
        Twofold sum = {};
        double size = 0.0;
        auto take = [&](double a, double v) {
            add_product(sum, a, v);
            size += fabs(a * v);
        };
#if SYMMETRIC
        for (int k = count - 1; k > 0; --k) {
            const unsigned j = i - (unsigned)offsets.at[k];
            if (j < rows) take(number(values, k * stride + j), x[j]);
        }
#endif
        for (int k = 0; k < count; ++k) {
            const unsigned j = i + (unsigned)offsets.at[k];
            if (j < rows) take(number(values, k * stride + i), x[j]);
        }
        if (on.count > 0) {
            int low = 0, high = on.count;
            while (low < high) {
                const int middle = (low + high) / 2;
                if ((unsigned)on.rows[middle] < i) low = middle + 1; else high = middle;
            }
            if (low < on.count && (unsigned)on.rows[low] == i)
                for (int p = on.starts[low]; p < on.starts[low + 1]; ++p) take((double)on.values[p], ghosts[on.columns[p]]);
        }
        Twofold all = {b[i], 0.0};
        m[i] = fma(fabs(c), size, fabs(all.hi));
        add_product(all, c, sum.hi);
        all.lo = __dadd_rn(all.lo, __dmul_rn(c, sum.lo));
        r[i] = __dadd_rn(all.hi, all.lo);
    }
}

// Number of diagonals of the pattern up to number k of all diagonals, stored or not.
__device__ __forceinline__ int below(unsigned mask, int k) { return __popc(mask & ((1u << k) - 1)); }
constexpr double HUGEST = 1.7976931348623157e308;

// Copies values from the order of the entries to diagonals, with 0 where there is no entry. masks[i]: the
// diagonals of row i, in the order of offsets, including those below the main diagonal. broken[1] becomes 1
// where a value is NaN or infinite.
// Bytes moved: row_ptr, masks, values, stored numbers.
extern "C" __global__ void __launch_bounds__(THREADS)
dia_pack(const unsigned rows, const int count, const i64* __restrict__ row_ptr, const unsigned* __restrict__ masks, const double* __restrict__ natural,
         VALUE* __restrict__ values, const i64 stride, int* broken) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows) return;
    const unsigned mask = masks[i];
    const i64 first = row_ptr[i];
    const int skipped = SYMMETRIC ? count - 1 : 0;
    bool finite = true;
    for (int k = 0; k < count; ++k) {
        double value = 0.0;
        if (mask >> (skipped + k) & 1) {
            value = natural[first + below(mask, skipped + k)];
            finite = finite && fabs(value) <= HUGEST;
        }
        values[k * stride + i] = (VALUE)value;
    }
    if (!finite) broken[1] = 1;
}

// After dia_pack, checks that the values below the main diagonal equal the stored ones: broken[0] becomes 1
// where they differ.
extern "C" __global__ void __launch_bounds__(THREADS)
dia_mirror(const unsigned rows, const int count, const Offsets offsets, const i64* __restrict__ row_ptr, const unsigned* __restrict__ masks,
           const double* __restrict__ natural, const VALUE* __restrict__ values, const i64 stride, int* broken) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= rows) return;
    const unsigned mask = masks[i];
    const i64 first = row_ptr[i];
    bool finite = true, same = true;
    for (int k = 1; k < count; ++k) {
        const unsigned j = i - (unsigned)offsets.at[k];
        if (j >= rows) continue;
        double value = 0.0;
        if (mask >> (count - 1 - k) & 1) {
            value = natural[first + below(mask, count - 1 - k)];
            finite = finite && fabs(value) <= HUGEST;
        }
        same = same && (VALUE)value == values[k * stride + j];
    }
    if (!same) broken[0] = 1;
    if (!finite) broken[1] = 1;
}

// Copies values in columns of other ranks, which are the last of their rows.
// Bytes moved: those of the values twice, and 16 per row.
extern "C" __global__ void __launch_bounds__(THREADS)
dia_pack_ghosts(const int count, const int* __restrict__ ghost_rows, const int* __restrict__ starts, const i64* __restrict__ row_ptr,
                const double* __restrict__ natural, VALUE* __restrict__ values, int* broken) {
    const int r = blockIdx.x * THREADS + threadIdx.x;
    if (r >= count) return;
    const int begin = starts[r], end = starts[r + 1];
    const i64 first = row_ptr[ghost_rows[r] + 1] - end;
    for (int p = begin; p < end; ++p) {
        const double value = natural[first + p];
        values[p] = (VALUE)value;
        if (!(fabs(value) <= HUGEST)) broken[1] = 1;
    }
}
#endif
