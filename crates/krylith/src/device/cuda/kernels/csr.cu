// csr_product: y = c A x of scalar rows, straight from the arrays of the format: nothing is sorted, packed or copied before. Beside it what
// the product needs once (csr_tiles, csr_values), the rows that several tiles share (csr_cut_rows) and the residual that certifies an answer.
// Constants: VALUE (double or float as stored), THREADS, CAPACITY (most entries of a tile, and the gap that alignment leaves), LONG (rows up to
// this length are never cut).
// Bytes it must move: of each entry the value and 4 bytes, of each row 8 of row_ptr, 8 of y and 8 of x. For 7 entries a row in f64: 107 a row.
//
// Tiles. Entry p of row r has the key p + r, the end of row r the key row_ptr[r + 1] + r: one key for each entry and each row, so that equal
// windows of keys are equal work, whatever the rows (merge path; Merrill and Garland 2016). Tile t takes the rows that begin in its window of
// WINDOW keys, whole; only a row longer than LONG is cut where windows end. What a tile has of a cut row goes to parts[2t] if the row began
// before, else to parts[2t + 1], and csr_cut_rows adds the parts in order.
//
// Mapping. A block of threads a tile. Values and columns come to shared memory by asynchronous copies, past L1, which is left to x. Then, where
// rows are even, 1 to 32 neighbouring lanes take a row and gather x as they go: lanes of neighbouring rows read neighbouring x. In uneven tiles
// all threads multiply first, every 256th entry each, and rows are summed from the products, those far above the mean by whole warps. Lanes
// depend on the tile alone and sums on nothing else, so results are the same every time.
#ifndef VALUE
#define VALUE double
#endif

#include "twofold.cuh"

typedef long long i64;

constexpr int ALIGN = 8;  // tiles are read from a multiple of this many entries on: whole sectors of columns
constexpr int WINDOW = CAPACITY - LONG - ALIGN;
constexpr int MOST = 32;  // entries a lane of a row in an even tile
constexpr int TOGETHER = 8;  // gathers of a lane in flight
constexpr int HEAD = 1, UNEVEN = 2;
// Of a tile: its first entry, its first row (one more if it begins with a part of a row that began before: HEAD), and its kind.
struct __align__(16) Tile { i64 entry; int row, kind; };

// Every 32 numbers in shared memory are followed by a gap of 16 bytes, so that rows of 16 or 32 entries do not meet in one bank.
template <int per> __device__ __forceinline__ int place(int p) { return p + (p >> 5) * per; }
constexpr int PER = 16 / sizeof(VALUE);
constexpr int VALUES = CAPACITY / 32 * (32 + PER) * sizeof(VALUE), COLUMNS = CAPACITY / 32 * 36 * 4;
static_assert(CAPACITY / 32 * 34 * 8 <= VALUES + COLUMNS, "products take the place of values and columns");

// Lanes for each of the items of a tile, as a power of two.
__device__ __forceinline__ int lanes_of(int items) {
    int log = 0;
    while (log < 5 && items <= THREADS >> (log + 1)) ++log;
    return log;
}

// Values and columns are read once: what they push out of the L2 cache should be others of them, not x.
__device__ __forceinline__ void copy_once(unsigned address, const void* from, int bytes, unsigned long long policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2, %3;" ::"r"(address), "l"(from), "r"(bytes), "l"(policy));
}

// What a tile does: items are its rows, the part of a row that began before it being the first.
struct Items {
    Tile here, next;
    i64 base;
    int head, first, count;
    __device__ __forceinline__ Items(const Tile* __restrict__ tiles) {
        const int4 a = ((const int4*)tiles)[blockIdx.x], b = ((const int4*)tiles)[blockIdx.x + 1];
        here = *(const Tile*)&a;
        next = *(const Tile*)&b;
        base = here.entry & ~(i64)(ALIGN - 1);
        head = here.kind & HEAD;
        first = here.row - head;
        count = next.row - first;
    }
};
// Entries of an item, counted from the base of its tile; `cut`: the row goes on in the next tile.
struct Range { int begin, end; bool cut; };
__device__ __forceinline__ Range range(const Items& on, const i64* __restrict__ row_ptr, int i) {
    const i64 begin = row_ptr[on.first + i], end = row_ptr[on.first + i + 1];
    return {(int)(max(begin, on.here.entry) - on.base), (int)(min(end, on.next.entry) - on.base), end > on.next.entry};
}

// sum(o, range) of each item, by 2^log lanes that are given to `write` added up. All threads take part.
template <class Sum, class Write>
__device__ __forceinline__ void each_item(const Items& on, const i64* __restrict__ row_ptr, Range ahead, int log, Sum sum, Write write) {
    const int lanes = on.count << log, whole = (lanes + 31) & ~31;
    for (int o = threadIdx.x; o < whole; o += THREADS) {
        const Range mine = ahead;
        if (o + THREADS < lanes) ahead = range(on, row_ptr, (o + THREADS) >> log);
        double all = o < lanes ? sum(o, mine) : 0.0;
        for (int d = 1; d < 1 << log; d *= 2) all += __shfl_xor_sync(~0u, all, d);
        if (o < lanes && (o & ((1 << log) - 1)) == 0) write(o >> log, mine, all);
    }
}

extern "C" __global__ void __launch_bounds__(THREADS, 6)
csr_product(const int* halt, const Tile* __restrict__ tiles, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
            const VALUE* __restrict__ values, const i64 entries, const double* __restrict__ x, double* __restrict__ y,
            double* __restrict__ parts, const double* __restrict__ coefficient) {
    __shared__ __align__(16) char shared[VALUES + COLUMNS];
    __shared__ int many, list[CAPACITY / MOST];
    VALUE* const value = (VALUE*)shared;
    unsigned* const column = (unsigned*)(shared + VALUES);
    const int halted = halt ? *halt : 0;
    const Items on(tiles);
    const double c = *coefficient;
    if (halted) return;

    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    // Some copies with a policy whose shared address has a part in a uniform register become illegal instructions (ptxas 13.0). The shuffle,
    // of each lane with itself, hides from the compiler that the base is uniform.
    const unsigned to = __shfl_sync(~0u, (unsigned)__cvta_generic_to_shared(shared), threadIdx.x % 32);
    const int begin = (int)(on.here.entry - on.base), end = (int)(on.next.entry - on.base);
    const int left = (int)min(entries - on.base, (i64)CAPACITY);
#pragma unroll
    for (int k = 0; k < CAPACITY / (4 * THREADS); ++k) {
        const int o = threadIdx.x + k * THREADS;
        if (4 * o < end) copy_once(to + VALUES + 16 * (o + (o >> 3)), col + on.base + 4 * o, min(16, 4 * (left - 4 * o)), policy);
    }
#pragma unroll
    for (int k = 0; k < CAPACITY / (PER * THREADS); ++k) {
        const int o = threadIdx.x + k * THREADS;
        if (PER * o < end)
            copy_once(to + 16 * (o + o * PER / 32), values + on.base + PER * o, min(16, (int)sizeof(VALUE) * (left - PER * o)), policy);
    }
    const int log = lanes_of(on.count), lanes = 1 << log, lane = threadIdx.x & (lanes - 1);
    Range mine = {};
    if (threadIdx.x >> log < on.count) mine = range(on, row_ptr, threadIdx.x >> log);
    auto write = [&](int i, const Range& of, double sum) {
        sum *= c;
        if (on.head && i == 0) parts[2 * blockIdx.x] = sum;
        else if (of.cut) parts[2 * blockIdx.x + 1] = sum;
        else y[on.first + i] = sum;
    };
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();

    if (!(on.here.kind & UNEVEN)) {
        auto gathered = [&](int, const Range& of) {
            double sum = 0.0;
            for (int p = of.begin + lane; p < of.end; p += TOGETHER << log) {
                double v[TOGETHER];
#pragma unroll
                for (int k = 0; k < TOGETHER; ++k) {
                    const int q = p + (k << log);
                    v[k] = q < of.end ? x[column[place<4>(q)]] : 0.0;
                }
#pragma unroll
                for (int k = 0; k < TOGETHER; ++k) {
                    const int q = p + (k << log);
                    if (q < of.end) sum = fma((double)value[place<PER>(q)], v[k], sum);
                }
            }
            return sum;
        };
        each_item(on, row_ptr, mine, log, gathered, write);
        return;
    }

    double product[CAPACITY / THREADS];
#pragma unroll
    for (int k = 0; k < CAPACITY / THREADS; ++k) {
        const int p = threadIdx.x + k * THREADS;
        product[k] = p >= begin && p < end ? (double)value[place<PER>(p)] * x[column[place<4>(p)]] : 0.0;
    }
    if (threadIdx.x == 0) many = 0;
    __syncthreads();
    double* const products = (double*)shared;
#pragma unroll
    for (int k = 0; k < CAPACITY / THREADS; ++k) {
        const int p = threadIdx.x + k * THREADS;
        if (p < end) products[place<2>(p)] = product[k];
    }
    __syncthreads();
    // Sums of what lies `step` apart; the order is that of the entries.
    auto added = [&](int p, int end, int step) {
        double sum = 0.0;
#pragma unroll 4
        for (; p < end; p += step) sum += products[place<2>(p)];
        return sum;
    };
    auto is_long = [&](const Range& of) { return of.end - of.begin > MOST << log; };
    auto summed = [&](int, const Range& of) { return is_long(of) ? 0.0 : added(of.begin + lane, of.end, lanes); };
    auto write_or_list = [&](int i, const Range& of, double sum) {
        if (is_long(of)) list[atomicAdd(&many, 1)] = i;
        else write(i, of, sum);
    };
    each_item(on, row_ptr, mine, log, summed, write_or_list);
    __syncthreads();
    for (int w = threadIdx.x / 32; w < many; w += THREADS / 32) {
        const Range of = range(on, row_ptr, list[w]);
        double sum = added(of.begin + threadIdx.x % 32, of.end, 32);
#pragma unroll
        for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0) write(list[w], of, sum);
    }
}

// Rows that several tiles share: adds their parts in order, a warp a row. cuts: row, first tile and last tile of each.
extern "C" __global__ void csr_cut_rows(const int* halt, const int count, const int* __restrict__ cuts, const double* __restrict__ parts,
                                        double* __restrict__ y) {
    if (halt && *halt) return;
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= count) return;
    const int row = cuts[3 * i], first = cuts[3 * i + 1], last = cuts[3 * i + 2];
    double sum = 0.0;
    for (int t = first + lane; t <= last; t += 32) sum += parts[2 * (i64)t + (t == first)];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) y[row] = sum;
}

__device__ __forceinline__ void add(Twofold& s, const Twofold& other) {
    add(s, other.hi);
    s.lo = __dadd_rn(s.lo, other.lo);
}
__device__ __forceinline__ Twofold other_lane(const Twofold& s, int d) {
    return {__shfl_xor_sync(~0u, s.hi, d), __shfl_xor_sync(~0u, s.lo, d)};
}

// r = b - c A x and m = |b| + |c A| |x|, each number summed in twice the working precision and then rounded: the residual that says whether a
// solve has converged, and what rounding may make of it. At most one launch a batch of iterations. Bytes it must move: what a product does, b
// read and m written. Values come straight from memory; a part of a row is three numbers.
extern "C" __global__ void __launch_bounds__(THREADS)
csr_residual(const int* halt, const Tile* __restrict__ tiles, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
             const VALUE* __restrict__ values, const double* __restrict__ x, const double* __restrict__ b, double* __restrict__ r,
             double* __restrict__ m, double* __restrict__ parts, const double* __restrict__ coefficient) {
    if (halt && *halt) return;
    const Items on(tiles);
    const double c = -*coefficient;
    const int log = lanes_of(on.count), lanes = on.count << log;
    for (int o = threadIdx.x; o < ((lanes + 31) & ~31); o += THREADS) {
        const int i = o >> log, lane = o & ((1 << log) - 1);
        Range of = {};
        if (o < lanes) of = range(on, row_ptr, i);
        Twofold sum = {};
        double size = 0.0;
        for (int p = of.begin + lane; p < of.end; p += 1 << log) {
            const double a = (double)values[on.base + p], v = x[col[on.base + p]];
            add_product(sum, a, v);
            size += fabs(a * v);
        }
        for (int d = 1; d < 1 << log; d *= 2) {
            size += __shfl_xor_sync(~0u, size, d);
            add(sum, other_lane(sum, d));
        }
        if (o >= lanes || lane > 0) continue;
        const bool part = (on.head && i == 0) || of.cut;
        Twofold all = {part ? 0.0 : b[on.first + i], 0.0};
        size = fma(fabs(c), size, fabs(all.hi));
        add_product(all, c, sum.hi);
        all.lo = __dadd_rn(all.lo, __dmul_rn(c, sum.lo));
        if (!part) {
            r[on.first + i] = __dadd_rn(all.hi, all.lo);
            m[on.first + i] = size;
        } else {
            double* to = parts + 3 * (2 * (i64)blockIdx.x + !(on.head && i == 0));
            to[0] = all.hi;
            to[1] = all.lo;
            to[2] = size;
        }
    }
}

// The residuals of rows that several tiles share, a warp a row.
extern "C" __global__ void csr_residual_cut(const int* halt, const int count, const int* __restrict__ cuts, const double* __restrict__ parts,
                                            const double* __restrict__ b, double* __restrict__ r, double* __restrict__ m) {
    if (halt && *halt) return;
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= count) return;
    const int row = cuts[3 * i], first = cuts[3 * i + 1], last = cuts[3 * i + 2];
    Twofold sum = {lane == 0 ? b[row] : 0.0, 0.0};
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
    r[row] = __dadd_rn(sum.hi, sum.lo);
    m[row] = size;
}

// The first of the rows low..high whose key is not below `key`, or high: a warp looks at 32 places at once.
__device__ __forceinline__ int first_row(const i64* __restrict__ row_ptr, int low, int high, i64 key) {
    while (low < high) {
        const i64 step = ((i64)high - low + 31) / 32, at = low + threadIdx.x % 32 * step;
        const int below = __popc(__ballot_sync(~0u, at < high && row_ptr[min(at, (i64)high)] + at < key));
        if (below == 0) return low;
        high = (int)min((i64)high, low + below * step);
        low = (int)(low + (below - 1) * step + 1);
    }
    return low;
}

// Tiles, a warp each and one for where the last ends; `cuts` are the rows that several share, in any order. Bytes moved: row_ptr twice.
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
        if (whole - begin > LONG && key - r < whole) {
            tile.entry = key - r;
            tile.kind = HEAD;
            if (lane == 0 && (begin + r) / WINDOW == t - 1) {
                const int i = atomicAdd(cut_rows, 1);
                cuts[3 * i] = r;
                cuts[3 * i + 1] = t - 1;
                cuts[3 * i + 2] = (int)((whole - 1 + r) / WINDOW);
            }
        }
    }
    if (t < count) {
        const int end = first_row(row_ptr, row, (int)min((i64)rows, (i64)row + WINDOW), key + WINDOW);
        int longest = (int)min(whole - tile.entry, (i64)CAPACITY);
        for (int r = row + lane; r < end; r += 32) longest = max(longest, (int)min(row_ptr[r + 1] - row_ptr[r], (i64)CAPACITY));
#pragma unroll
        for (int d = 1; d < 32; d *= 2) longest = max(longest, __shfl_xor_sync(~0u, longest, d));
        const int items = end - row + tile.kind;
        if (items * 32 < THREADS || longest > MOST << lanes_of(items)) tile.kind |= UNEVEN;
    }
    if (lane == 0) tiles[t] = tile;
}

// Values as they are stored; broken becomes 1 where one is NaN or infinite. Bytes moved: those of both.
extern "C" __global__ void csr_values(const double* __restrict__ from, VALUE* __restrict__ to, const i64 count, int* broken) {
    for (i64 p = blockIdx.x * (i64)blockDim.x + threadIdx.x; p < count; p += (i64)gridDim.x * blockDim.x) {
        const double value = from[p];
        to[p] = (VALUE)value;
        if (!(fabs(value) <= 1.7976931348623157e308)) *broken = 1;
    }
}
