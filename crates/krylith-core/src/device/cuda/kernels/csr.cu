// csr_product: y = c A x of scalar rows, directly from the arrays of the format: nothing is sorted, packed or
// copied before. This file also has the set-up of the product (csr_tiles, csr_values), the rows that several
// tiles share (csr_cut_rows) and the residual that certifies a solution. Constants: VALUE (double, float or
// bf16 as stored), THREADS, CTAS (resident, limited by registers), CAPACITY (most entries of a tile), LONG
// (rows up to this length are never cut); PEERS or SMOOTH, if defined: other targets of the numbers of y;
// REAL, double or float, the type of vectors and arithmetic of products that smooth. Bytes moved at least:
// for each entry the value and 4 bytes; for each row 8 of row_ptr, 8 of y and 8 of x. For 7 entries per row
// in f64: 107 per row.
//
// Tiles. Entry p of row r has the key p + r / 8. Equal windows of keys are equal work for any rows (merge
// path; Merrill and Garland 2016), where a row counts as much as an eighth of an entry. Tile t contains whole
// rows, those that start in its window of WINDOW keys; only a row longer than LONG is cut at window ends. The
// sum of a tile's part of a cut row goes to parts[2t] if the row started in an earlier tile, else to parts[2t
// + 1]. csr_cut_rows adds the parts in order.
//
// Mapping. A thread block processes a tile. Each thread loads pairs of neighbouring entries, past L1 and all
// of them at once, then gathers x for all. With 10 entries in flight per thread and 1,024 threads per
// multiprocessor the memory is busy, and most of L1 is left to x. Products go to shared memory, where 1 to 32
// neighbouring lanes sum a row, and whole warps sum rows far above the mean length. The number of lanes
// depends only on the tile, and sums on nothing else, so results are reproducible. Slower alternatives on an
// H200: bulk copies of tiles to shared memory, two ahead, which takes space from L1 (81 % of the read
// bandwidth instead of 89 % on 7 points, 51 % instead of 69 % on rows like a web crawl's); several
// neighbouring tiles per thread block; one entry per load; and padding against bank conflicts.
#ifndef VALUE
#define VALUE double
#endif
#ifndef REAL
#define REAL double
#endif

#include "bf16.cuh"
#include "twofold.cuh"

typedef long long i64;

constexpr int EACH = CAPACITY / THREADS;  // entries per thread
constexpr int ALIGN = 2;  // tiles are read from a multiple of this many entries on, because of pairs
constexpr int WINDOW = CAPACITY - LONG - ALIGN;
constexpr int ROW = 3;  // a row counts as much as 2^-ROW entries
constexpr int MOST = 32;  // entries of a row that one lane sums
constexpr int HEAD = 1, UNEVEN = 2, LANES = 4;
static_assert(EACH % 2 == 0 && EACH * THREADS == CAPACITY, "threads take pairs");
struct __align__(2 * sizeof(REAL)) Pair { REAL first, second; };
// A tile: its first entry, its first row (plus one if it starts with HEAD, the rest of an earlier row), and
// its kind, which contains LANES, the binary logarithm of the lanes per item.
struct __align__(16) Tile { i64 entry; int row, kind; };

// Binary logarithm of the lanes for each item of a tile.
__device__ __forceinline__ int lanes_of(int items) {
    int log = 0;
    while (log < 5 && items <= THREADS >> (log + 1)) ++log;
    return log;
}

// Items of a tile: its rows, where the first may be the rest of an earlier row.
struct Items {
    const Tile* at;  // this tile and the next
    __device__ __forceinline__ i64 base() const { return at[0].entry & ~(i64)(ALIGN - 1); }
    __device__ __forceinline__ int head() const { return at[0].kind & HEAD; }
    __device__ __forceinline__ int first() const { return at[0].row - head(); }
    __device__ __forceinline__ int count() const { return at[1].row - first(); }
    __device__ __forceinline__ int log() const { return at[0].kind / LANES; }
    // True if the last item continues in the next tile.
    __device__ __forceinline__ bool cut() const { return at[1].kind & HEAD; }
    // Target of a part of a row; -1 if the item is a whole row.
    __device__ __forceinline__ int part(int i) const { return i == 0 && head() ? 0 : i == count() - 1 && cut() ? 1 : -1; }
};
// Range of a row's entries, without the upper halves, which are not needed for indices relative to a tile. It
// is loaded long before its first use.
struct Row { unsigned begin, end; };
__device__ __forceinline__ Row row_at(const Items& on, const i64* __restrict__ row_ptr, int i) {
    const unsigned* at = (const unsigned*)(row_ptr + on.first() + i);
    return {at[0], at[2]};
}
// Entries of an item, relative to the first entry of its tile.
struct Range { int begin, end; };
__device__ __forceinline__ Range range(const Items& on, const Row& row, int i) {
    const i64 base = on.base();
    Range of = {(int)(row.begin - (unsigned)base), (int)(row.end - (unsigned)base)};
    if (i == 0 && on.head()) of.begin = (int)(on.at[0].entry - base);
    if (i == on.count() - 1 && on.cut()) of.end = (int)(on.at[1].entry - base);
    return of;
}

// Loads two neighbouring entries past L1, and marks them as first to leave L2: data that is read once should
// not evict x.
struct Stream {
#if __CUDA_ARCH__ >= 800
    unsigned long long policy;
    __device__ __forceinline__ Stream() { asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy)); }
    __device__ __forceinline__ void pair(const double* from, double* to) const {
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.f64 {%0, %1}, [%2], %3;" : "=d"(to[0]), "=d"(to[1]) : "l"(from), "l"(policy));
    }
    __device__ __forceinline__ void pair(const float* from, float* to) const {
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.f32 {%0, %1}, [%2], %3;" : "=f"(to[0]), "=f"(to[1]) : "l"(from), "l"(policy));
    }
    __device__ __forceinline__ void pair(const unsigned* from, unsigned* to) const {
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;" : "=r"(to[0]), "=r"(to[1]) : "l"(from), "l"(policy));
    }
    __device__ __forceinline__ void pair(const bf16* from, bf16* to) const {
        unsigned both;
        asm("ld.global.nc.L1::no_allocate.L2::cache_hint.u32 %0, [%1], %2;" : "=r"(both) : "l"(from), "l"(policy));
        to[0] = of_bits(both & 0xffff);
        to[1] = of_bits(both >> 16);
    }
#else
    template <class T> __device__ __forceinline__ void pair(const T* from, T* to) const {
        to[0] = from[0];
        to[1] = from[1];
    }
#endif
};

// Computes sum(range) of each item with 2^log lanes, and passes it to `write`. All threads take part.
template <int log, class Sum, class Write>
__device__ __forceinline__ void each_item(const Items& on, const i64* __restrict__ row_ptr, Row ahead, Sum sum, Write write) {
    const int lanes = on.count() << log, whole = (lanes + 31) & ~31;
    for (int o = threadIdx.x; o < whole; o += THREADS) {
        const Range mine = range(on, ahead, o >> log);
        if (o + THREADS < lanes) ahead = row_at(on, row_ptr, (o + THREADS) >> log);
        REAL all = o < lanes ? sum(mine) : (REAL)0;
#pragma unroll
        for (int d = 1; d < 1 << log; d *= 2) all += __shfl_xor_sync(~0u, all, d);
        if (o < lanes && o % (1 << log) == 0) write(o >> log, mine, all);
    }
}

// Sums the rows of a tile from its products; `many` is 0.
template <int log, class Write>
__device__ __forceinline__ void sum_rows(const Items& on, const i64* __restrict__ row_ptr, const Row& ahead, const REAL* products, int* many, int* list,
                                           Write write) {
    auto added = [&](int p, int end, int step) {
        REAL sum = 0;
#pragma unroll 4
        for (; p < end; p += step) sum += products[p];
        return sum;
    };
    auto is_long = [&](const Range& of) { return log < 5 && of.end - of.begin > MOST << log; };
    auto summed = [&](const Range& of) { return is_long(of) ? (REAL)0 : added(of.begin + threadIdx.x % (1 << log), of.end, 1 << log); };
    auto write_or_list = [&](int i, const Range& of, REAL sum) {
        if (is_long(of)) list[atomicAdd(many, 1)] = i;
        else write(i, sum);
    };
    each_item<log>(on, row_ptr, ahead, summed, write_or_list);
    if (!(on.at[0].kind & UNEVEN)) return;
    __syncthreads();
    for (int w = threadIdx.x / 32; w < *many; w += THREADS / 32) {
        const Range of = range(on, row_at(on, row_ptr, list[w]), list[w]);
        REAL sum = added(of.begin + threadIdx.x % 32, of.end, 32);
#pragma unroll
        for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) write(list[w], sum);
    }
}

// Calls f with the number as a constant, 0 to 5.
template <int n> struct Constant { static constexpr int value = n; };
template <class F> __device__ __forceinline__ void with_constant(int log, F f) {
    switch (log) {
        case 0: return f(Constant<0>());
        case 1: return f(Constant<1>());
        case 2: return f(Constant<2>());
        case 3: return f(Constant<3>());
        case 4: return f(Constant<4>());
        default: return f(Constant<5>());
    }
}

// With PEERS each number of y is also stored to the other GPUs, directly from the registers: every GPU needs
// the whole y.
#ifdef PEERS
struct Others { double* y[15]; i64 count; };
#define OTHERS , const Others others
#define RESULTS double
#define STORE(row, value)                                                     \
    do {                                                                      \
        y[row] = value;                                                       \
        for (int q = 0; q < others.count; ++q) others.y[q][row] = value;      \
    } while (0)
// With SMOOTH a row turns its number into something else: see smooth.cuh. The module then contains only the
// product.
#elif defined(SMOOTH)
#include "smooth.cuh"
#define OTHERS , const Smooth of
#define STORE(row, value) y[row] = RESULT_OF(of, smoothed(of, own_numbers(of, row), row, value))
#else
#define OTHERS
#define RESULTS double
#define STORE(row, value) y[row] = value
#endif

extern "C" __global__ void __launch_bounds__(THREADS, CTAS)
csr_product(const int* halt, const Tile* __restrict__ tiles, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
            const VALUE* __restrict__ values, const i64 entries, const REAL* __restrict__ x, RESULTS* __restrict__ y,
            double* __restrict__ parts, const double* __restrict__ coefficient OTHERS) {
    __shared__ __align__(16) REAL products[CAPACITY];
    __shared__ int many, list[CAPACITY / MOST];
    const int halted = halt ? *halt : 0, t = blockIdx.x;
    const REAL c = (REAL)*coefficient;
    const Tile both[2] = {tiles[t], tiles[t + 1]};
    if (halted) return;
    const Items on = {both};
    const i64 base = on.base();
    const int count = (int)(on.at[1].entry - base);
    if (threadIdx.x == 0) many = 0;
    const Stream stream;
    VALUE value[EACH];
    unsigned column[EACH];
    // Entry k of this thread. Entries outside the tile are multiplied like any other, and belong to no row.
    auto entry = [](int k) { return (int)(2 * (threadIdx.x + k / 2 * THREADS) + k % 2); };
#pragma unroll
    for (int k = 0; k < EACH; k += 2) {
        const int p = entry(k);
        value[k] = value[k + 1] = VALUE(0);
        column[k] = column[k + 1] = 0;
        if (p >= count) continue;
        if (base + p + 1 < entries) {
            stream.pair(values + base + p, value + k);
            stream.pair(col + base + p, column + k);
        } else {
            value[k] = values[base + p];
            column[k] = col[base + p];
        }
    }
    Row mine = {};
    if ((int)(threadIdx.x >> on.log()) < on.count()) mine = row_at(on, row_ptr, threadIdx.x >> on.log());
    REAL neighbour[EACH];
#pragma unroll
    for (int k = 0; k < EACH; ++k) neighbour[k] = entry(k) < count ? x[column[k]] : (REAL)0;
#pragma unroll
    for (int k = 0; k < EACH; k += 2)
        *(Pair*)(products + entry(k)) = {(REAL)value[k] * neighbour[k], (REAL)value[k + 1] * neighbour[k + 1]};
    __syncthreads();
    auto write = [&](int i, REAL sum) {
        const int part = on.part(i);
        if (part < 0) STORE(on.first() + i, c * sum);
        else parts[2 * (i64)t + part] = c * sum;
    };
    with_constant(on.log(), [&](auto lanes) { sum_rows<decltype(lanes)::value>(on, row_ptr, mine, products, &many, list, write); });
}

// Rows that several tiles share: adds their parts in order, one warp per row. cuts: row, first tile and last
// tile of each.
extern "C" __global__ void csr_cut_rows(const int* halt, const int count, const int* __restrict__ cuts, const double* __restrict__ parts,
                                        RESULTS* __restrict__ y OTHERS) {
    if (halt && *halt) return;
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= count) return;
    const int row = cuts[3 * i], first = cuts[3 * i + 1], last = cuts[3 * i + 2];
    double sum = 0.0;
    for (int t = first + lane; t <= last; t += 32) sum += parts[2 * (i64)t + (t == first)];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane > 0) return;
    STORE(row, sum);
}

#ifndef SMOOTH

__device__ __forceinline__ void add(Twofold& s, const Twofold& other) {
    add(s, other.hi);
    s.lo = __dadd_rn(s.lo, other.lo);
}
__device__ __forceinline__ Twofold other_lane(const Twofold& s, int d) {
    return {__shfl_xor_sync(~0u, s.hi, d), __shfl_xor_sync(~0u, s.lo, d)};
}

// The rounding error of a rounded sum.
__device__ __forceinline__ double lost(const Twofold& s, double rounded) { return __dadd_rn(__dsub_rn(s.hi, rounded), s.lo); }

// r = b - c A x and m = |b| + |c A| |x|, each number summed in twice the working precision and then rounded:
// the residual that decides convergence, and a bound for its rounding errors. At most one launch per batch of
// iterations. Values come directly from memory; a part of a row is three numbers. A null b stands for 0. low:
// the rounding error of r, or null.
// Bytes moved at least: those of a product, b read and m written.
extern "C" __global__ void __launch_bounds__(THREADS)
csr_residual(const int* halt, const Tile* __restrict__ tiles, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
             const VALUE* __restrict__ values, const double* __restrict__ x, const double* __restrict__ b, double* __restrict__ r,
             double* __restrict__ m, double* __restrict__ parts, const double* __restrict__ coefficient, double* __restrict__ low) {
    if (halt && *halt) return;
    const Items on = {tiles + blockIdx.x};
    const double c = -*coefficient;
    const int log = on.log(), lanes = on.count() << log;
    const i64 base = on.base();
    for (int o = threadIdx.x; o < ((lanes + 31) & ~31); o += THREADS) {
        const int i = o >> log, lane = o & ((1 << log) - 1);
        Range of = {};
        if (o < lanes) of = range(on, row_at(on, row_ptr, i), i);
        Twofold sum = {};
        double size = 0.0;
        for (int p = of.begin + lane; p < of.end; p += 1 << log) {
            const double a = (double)values[base + p], v = x[col[base + p]];
            add_product(sum, a, v);
            size += fabs(a * v);
        }
        for (int d = 1; d < 1 << log; d *= 2) {
            size += __shfl_xor_sync(~0u, size, d);
            add(sum, other_lane(sum, d));
        }
        if (o >= lanes || lane > 0) continue;
        const int part = on.part(i);
        Twofold all = {part < 0 && b ? b[on.first() + i] : 0.0, 0.0};
        size = fma(fabs(c), size, fabs(all.hi));
        add_product(all, c, sum.hi);
        all.lo = __dadd_rn(all.lo, __dmul_rn(c, sum.lo));
        if (part < 0) {
            const double rounded = __dadd_rn(all.hi, all.lo);
            r[on.first() + i] = rounded;
            m[on.first() + i] = size;
            if (low) low[on.first() + i] = lost(all, rounded);
        } else {
            double* to = parts + 3 * (2 * (i64)blockIdx.x + part);
            to[0] = all.hi;
            to[1] = all.lo;
            to[2] = size;
        }
    }
}

// The residuals of rows that several tiles share, one warp per row.
extern "C" __global__ void csr_residual_cut(const int* halt, const int count, const int* __restrict__ cuts, const double* __restrict__ parts,
                                            const double* __restrict__ b, double* __restrict__ r, double* __restrict__ m,
                                            double* __restrict__ low) {
    if (halt && *halt) return;
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= count) return;
    const int row = cuts[3 * i], first = cuts[3 * i + 1], last = cuts[3 * i + 2];
    Twofold sum = {lane == 0 && b ? b[row] : 0.0, 0.0};
    double size = fabs(sum.hi);
    for (int t = first + lane; t <= last; t += 32) {
        const double* part = parts + 3 * (2 * (i64)t + (t == first));
        add(sum, Twofold{part[0], part[1]});
        size += part[2];
    }
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        size += __shfl_xor_sync(~0u, size, d);
        add(sum, other_lane(sum, d));
    }
    if (lane > 0) return;
    const double rounded = __dadd_rn(sum.hi, sum.lo);
    r[row] = rounded;
    m[row] = size;
    if (low) low[row] = lost(sum, rounded);
}

// The first of the rows low..high whose key is not below `key`, or high: a warp checks 32 positions at once.
__device__ __forceinline__ int first_row(const i64* __restrict__ row_ptr, int low, int high, i64 key) {
    while (low < high) {
        const i64 step = ((i64)high - low + 31) / 32, at = low + threadIdx.x % 32 * step;
        const int below = __popc(__ballot_sync(~0u, at < high && row_ptr[min(at, (i64)high)] + (at >> ROW) < key));
        if (below == 0) return low;
        high = (int)min((i64)high, low + below * step);
        low = (int)(low + (below - 1) * step + 1);
    }
    return low;
}

// Makes the tiles, with one warp per tile and one for the end of the last; `cuts` are the rows that several
// tiles share, in any order.
// Bytes moved: row_ptr twice.
extern "C" __global__ void csr_tiles(const i64* __restrict__ row_ptr, const int rows, const int count, Tile* __restrict__ tiles,
                                     int* __restrict__ cuts, int* cut_rows) {
    const int t = (int)((blockIdx.x * (i64)blockDim.x + threadIdx.x) / 32), lane = threadIdx.x % 32;
    if (t > count) return;
    const i64 key = (i64)t * WINDOW;
    const int row = first_row(row_ptr, 0, rows, key);
    const i64 whole = row_ptr[row];
    Tile tile = {whole, row, 0};
    if (row > 0) {
        const int r = row - 1;
        const i64 begin = row_ptr[r];
        if (whole - begin > LONG && key - (r >> ROW) < whole) {
            tile.entry = key - (r >> ROW);
            tile.kind = HEAD;
            if (lane == 0 && (begin + (r >> ROW)) / WINDOW == t - 1) {
                const int i = atomicAdd(cut_rows, 1);
                cuts[3 * i] = r;
                cuts[3 * i + 1] = t - 1;
                cuts[3 * i + 2] = (int)((whole - 1 + (r >> ROW)) / WINDOW);
            }
        }
    }
    if (t < count) {
        const int end = first_row(row_ptr, row, (int)min((i64)rows, (i64)row + ((WINDOW + 1) << ROW)), key + WINDOW);
        int longest = (int)min(whole - tile.entry, (i64)CAPACITY);
        for (int r = row + lane; r < end; r += 32) longest = max(longest, (int)min(row_ptr[r + 1] - row_ptr[r], (i64)CAPACITY));
#pragma unroll
        for (int d = 1; d < 32; d *= 2) longest = max(longest, __shfl_xor_sync(~0u, longest, d));
        const int items = end - row + tile.kind, log = lanes_of(items);
        if (log < 5 && longest > MOST << log) tile.kind |= UNEVEN;
        tile.kind |= log * LANES;
    }
    if (lane == 0) tiles[t] = tile;
}

// Converts values to the stored type; broken becomes 1 where one is NaN or infinite.
// Bytes moved: those of both arrays.
extern "C" __global__ void csr_values(const double* __restrict__ from, VALUE* __restrict__ to, const i64 count, int* broken) {
    for (i64 p = blockIdx.x * (i64)blockDim.x + threadIdx.x; p < count; p += (i64)gridDim.x * blockDim.x) {
        const double value = from[p];
        to[p] = (VALUE)value;
        if (!(fabs(value) <= 1.7976931348623157e308)) *broken = 1;
    }
}
#endif
