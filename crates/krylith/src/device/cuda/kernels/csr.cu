// csr_product: y = c A x of scalar rows, straight from the arrays of the format: nothing is sorted, packed or copied before. Beside it what
// the product needs once (csr_tiles, csr_values), the rows that several tiles share (csr_cut_rows) and the residual that certifies an answer.
// Constants: VALUE (double or float as stored), THREADS, CTAS (resident, by registers), CAPACITY (most entries of a tile, and the gap that
// alignment leaves), LONG (rows up to this length are never cut).
// Bytes it must move: of each entry the value and 4 bytes, of each row 8 of row_ptr, 8 of y and 8 of x. For 7 entries a row in f64: 107 a row.
//
// Tiles. Entry p of row r has the key p + r, the end of row r the key row_ptr[r + 1] + r: one key for each entry and each row, so that equal
// windows of keys are equal work, whatever the rows (merge path; Merrill and Garland 2016). Tile t takes the rows that begin in its window of
// WINDOW keys, whole; only a row longer than LONG is cut where windows end. What a tile has of a cut row goes to parts[2t] if the row began
// before, else to parts[2t + 1], and csr_cut_rows adds the parts in order.
//
// Mapping. Resident blocks of threads walk tiles; values and columns of the next tile come to shared memory, past L1, while this one is summed:
// by bulk copies of one thread where the GPU has them (sm_90), by asynchronous copies of all threads elsewhere. Where rows are even, 1 to 32
// neighbouring lanes take a row and gather x as they go: lanes of neighbouring rows read neighbouring x. In uneven tiles all threads multiply
// first, every THREADS-th entry each, and rows are summed from the products, those far above the mean by whole warps. Lanes depend on the tile
// alone and sums on nothing else, so results are the same every time.
#ifndef VALUE
#define VALUE double
#endif

#include "twofold.cuh"

typedef long long i64;

constexpr int ALIGN = 8;  // tiles are read from a multiple of this many entries on: whole sectors of columns
constexpr int WINDOW = CAPACITY - LONG - ALIGN;
constexpr int MOST = 32;  // entries a lane of a row in an even tile
constexpr int TOGETHER = 8;  // gathers of a lane in flight
constexpr int HEAD = 1, UNEVEN = 2, LANES = 4;
// Of a tile: its first entry, its first row (one more if it begins with a part of a row that began before: HEAD), and its kind, in which LANES
// counts the lanes of an item, as a power of two.
struct __align__(16) Tile { i64 entry; int row, kind; };

constexpr int STAGE = CAPACITY * (sizeof(VALUE) + 4);  // bytes of values and columns of a tile
static_assert(CAPACITY * 8 <= STAGE, "products take the place of values and columns");

// Lanes for each of the items of a tile, as a power of two.
__device__ __forceinline__ int lanes_of(int items) {
    int log = 0;
    while (log < 5 && items <= THREADS >> (log + 1)) ++log;
    return log;
}

// What a tile does: items are its rows, the part of a row that began before it being the first.
struct Items {
    const Tile* at;  // the tile and the next
    __device__ __forceinline__ i64 base() const { return at[0].entry & ~(i64)(ALIGN - 1); }
    __device__ __forceinline__ int head() const { return at[0].kind & HEAD; }
    __device__ __forceinline__ int first() const { return at[0].row - head(); }
    __device__ __forceinline__ int count() const { return at[1].row - first(); }
    __device__ __forceinline__ int log() const { return at[0].kind / LANES; }
    // The last item goes on in the next tile.
    __device__ __forceinline__ bool cut() const { return at[1].kind & HEAD; }
    // Where a part of a row goes; -1: the item is a whole row.
    __device__ __forceinline__ int part(int i) const { return i == 0 && head() ? 0 : i == count() - 1 && cut() ? 1 : -1; }
};
// Where a row's entries are, without the upper halves: what is counted from the base of a tile needs none. It is asked for long before it is
// needed, and nothing is computed from it until then.
struct Row { unsigned begin, end; };
__device__ __forceinline__ Row row_at(const Items& on, const i64* __restrict__ row_ptr, int i) {
    const unsigned* at = (const unsigned*)(row_ptr + on.first() + i);
    return {at[0], at[2]};
}
// Entries of an item, counted from the base of its tile.
struct Range { int begin, end; };
__device__ __forceinline__ Range range(const Items& on, const Row& row, int i) {
    const i64 base = on.base();
    Range of = {(int)(row.begin - (unsigned)base), (int)(row.end - (unsigned)base)};
    if (i == 0 && on.head()) of.begin = (int)(on.at[0].entry - base);
    if (i == on.count() - 1 && on.cut()) of.end = (int)(on.at[1].entry - base);
    return of;
}

__device__ __forceinline__ unsigned address_of(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }

// Brings tiles to shared memory, two under way at most.
struct Copies {
    char* stages;
    const unsigned* col;
    const VALUE* values;
    i64 entries;
    const Tile* tiles;
    Tile* places;  // [4][2]: this tile and the next of some; what is copied with a tile tells where the next but one is
#if __CUDA_ARCH__ >= 900
    unsigned long long* full;  // a barrier for each stage, which counts its bytes
    unsigned long long policy;
    __device__ __forceinline__ void start(unsigned long long* barriers) {
        full = barriers;
        // Values and columns are read once: what they push out of the L2 cache should be others of them, not x.
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        if (threadIdx.x == 0) {
            for (int d = 0; d < 2; ++d) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(full + d)));
            asm volatile("fence.mbarrier_init.release.cluster;");
        }
        __syncthreads();
    }
    __device__ __forceinline__ void copy(char* to, const void* from, unsigned bytes, int stage) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(address_of(to)),
                     "l"(from), "r"(bytes), "r"(address_of(full + stage)), "l"(policy)
                     : "memory");
    }
    // Asks for the n-th tile of this block of threads, and for where tile `next` is (-1: there is none), which will be the next but one.
    // Comes after a wait of all threads for each other that follows the last use of the stage.
    __device__ __forceinline__ void fetch(bool wanted, unsigned n, i64 next) {
        if (threadIdx.x != 0 || !wanted) return;
        const int stage = n & 1;
        const Items on = {places + 2 * (n & 3)};
        const i64 base = on.base();
        const int count = (int)(on.at[1].entry - base), left = (int)min(entries - base, (i64)CAPACITY);
        const int most = min((count + 3) & ~3, left & ~3);  // pieces of 16 bytes; the last three entries of a matrix may be none
        char* const to = stages + stage * STAGE;
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(full + stage)), "r"(most * (int)(sizeof(VALUE) + 4) + (next < 0 ? 0 : 32)) : "memory");
        if (next >= 0) copy((char*)(places + 2 * (n + 2 & 3)), tiles + next, 32, stage);
        if (most > 0) {
            copy(to + CAPACITY * sizeof(VALUE), col + base, most * 4, stage);
            copy(to, values + base, most * (int)sizeof(VALUE), stage);
        }
        for (int p = most; p < count; ++p) {
            ((VALUE*)to)[p] = values[base + p];
            ((unsigned*)(to + CAPACITY * sizeof(VALUE)))[p] = col[base + p];
        }
    }
    // The n-th tile is here.
    __device__ __forceinline__ void wait(unsigned n) {
        const unsigned stage = n & 1, parity = n >> 1 & 1;
        asm volatile(
            "{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(address_of(full + stage)),
            "r"(parity)
            : "memory");
    }
    // What was written to a stage comes before what a copy brings there.
    __device__ __forceinline__ void written() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
#else
    __device__ __forceinline__ void start(unsigned long long*) {}
    __device__ __forceinline__ void copy(char* to, const void* from, int bytes) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address_of(to)), "l"(from), "r"(bytes) : "memory");
    }
    __device__ __forceinline__ void fetch(bool wanted, unsigned n, i64 next) {
        const Items on = {places + 2 * (n & 3)};
        const i64 base = on.base();
        const int count = wanted ? (int)(on.at[1].entry - base) : 0, left = (int)min(entries - base, (i64)CAPACITY);
        char* const to = stages + (n & 1) * STAGE;
        if (wanted && next >= 0 && threadIdx.x < 2) copy((char*)(places + 2 * (n + 2 & 3) + threadIdx.x), tiles + next + threadIdx.x, 16);
        for (int p = 4 * threadIdx.x; p < count; p += 4 * THREADS) copy(to + CAPACITY * sizeof(VALUE) + 4 * p, col + base + p, min(16, 4 * (left - p)));
        constexpr int PER = 16 / sizeof(VALUE);
        for (int p = PER * threadIdx.x; p < count; p += PER * THREADS)
            copy(to + sizeof(VALUE) * p, values + base + p, min(16, (int)sizeof(VALUE) * (left - p)));
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    __device__ __forceinline__ void wait(unsigned) {
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
    }
    __device__ __forceinline__ void written() {}
#endif
};

// sum(range) of each item, by 2^log lanes that are given to `write` added up. All threads take part.
template <int log, class Sum, class Write>
__device__ __forceinline__ void each_item(const Items& on, const i64* __restrict__ row_ptr, Row ahead, Sum sum, Write write) {
    const int lanes = on.count() << log, whole = (lanes + 31) & ~31;
    for (int o = threadIdx.x; o < whole; o += THREADS) {
        const Range mine = range(on, ahead, o >> log);
        if (o + THREADS < lanes) ahead = row_at(on, row_ptr, (o + THREADS) >> log);
        double all = o < lanes ? sum(mine) : 0.0;
#pragma unroll
        for (int d = 1; d < 1 << log; d *= 2) all += __shfl_xor_sync(~0u, all, d);
        if (o < lanes && o % (1 << log) == 0) write(o >> log, mine, all);
    }
}

// An even tile: lanes gather x for their entries as they sum.
template <int log, class Write>
__device__ __forceinline__ void sum_even(const Items& on, const i64* __restrict__ row_ptr, const Row& ahead, const VALUE* value, const unsigned* column,
                                         const double* __restrict__ x, Write write) {
    auto gathered = [&](const Range& of) {
        double sum = 0.0;
        for (int p = of.begin + threadIdx.x % (1 << log); p < of.end; p += TOGETHER << log) {
            double v[TOGETHER];
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k)
                if (p + (k << log) < of.end) v[k] = x[column[p + (k << log)]];
#pragma unroll
            for (int k = 0; k < TOGETHER; ++k)
                if (p + (k << log) < of.end) sum = fma((double)value[p + (k << log)], v[k], sum);
        }
        return sum;
    };
    each_item<log>(on, row_ptr, ahead, gathered, [&](int i, const Range&, double sum) { write(i, sum); });
}

// An uneven tile, its products in shared memory.
template <int log, class Write>
__device__ __forceinline__ void sum_uneven(const Items& on, const i64* __restrict__ row_ptr, const Row& ahead, const double* products, int* many, int* list,
                                           Write write) {
    auto added = [&](int p, int end, int step) {
        double sum = 0.0;
#pragma unroll 4
        for (; p < end; p += step) sum += products[p];
        return sum;
    };
    auto is_long = [&](const Range& of) { return of.end - of.begin > MOST << log; };
    auto summed = [&](const Range& of) { return is_long(of) ? 0.0 : added(of.begin + threadIdx.x % (1 << log), of.end, 1 << log); };
    auto write_or_list = [&](int i, const Range& of, double sum) {
        if (is_long(of)) list[atomicAdd(many, 1)] = i;
        else write(i, sum);
    };
    each_item<log>(on, row_ptr, ahead, summed, write_or_list);
    __syncthreads();
    for (int w = threadIdx.x / 32; w < *many; w += THREADS / 32) {
        const Range of = range(on, row_at(on, row_ptr, list[w]), list[w]);
        double sum = added(of.begin + threadIdx.x % 32, of.end, 32);
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

// With PEERS each number of y goes to other GPUs too, straight from the registers: every GPU wants the whole y.
#ifdef PEERS
struct Others { double* y[15]; i64 count; };
#define OTHERS , const Others others
#define TO_OTHERS(row, value) for (int q = 0; q < others.count; ++q) others.y[q][row] = value
#else
#define OTHERS
#define TO_OTHERS(row, value)
#endif

extern "C" __global__ void __launch_bounds__(THREADS, CTAS)
csr_product(const int* halt, const int count, const Tile* __restrict__ tiles, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
            const VALUE* __restrict__ values, const i64 entries, const double* __restrict__ x, double* __restrict__ y,
            double* __restrict__ parts, const double* __restrict__ coefficient OTHERS) {
    extern __shared__ __align__(128) char shared[];  // two stages
    __shared__ unsigned long long barriers[2];
    __shared__ int many, list[CAPACITY / MOST];
    __shared__ __align__(32) Tile places[8];
    const int halted = halt ? *halt : 0, step = gridDim.x;
    int t = blockIdx.x;  // the grid is no larger than `count`
    if (threadIdx.x < 4 && t + (i64)(threadIdx.x / 2) * step < count) places[threadIdx.x] = tiles[t + threadIdx.x / 2 * step + threadIdx.x % 2];
    const double c = *coefficient;
    if (halted) return;
    Copies copies = {shared, col, values, entries, tiles, places};
    copies.start(barriers);
    copies.written();
    __syncthreads();
    // Where the n-th tile after this one is, -1: there is none.
    auto after = [&](int n) { return t + (i64)n * step < count ? t + (i64)n * step : -1; };
    copies.fetch(true, 0, after(2));
    auto first_row_of = [&](const Items& of) {
        const int i = threadIdx.x >> of.log();
        return i < of.count() ? row_at(of, row_ptr, i) : Row{};
    };
    Row mine = first_row_of(Items{places});
    for (unsigned n = 0; t < count; t += step, ++n) {
        __syncthreads();  // the other stage is used up
        const Items on = {places + 2 * (n & 3)}, ahead = {places + 2 * (n + 1 & 3)};
        copies.fetch(after(1) >= 0, n + 1, after(3));
        const Row mine_ahead = after(1) >= 0 ? first_row_of(ahead) : Row{};
        auto write = [&](int i, double sum) {
            const int part = on.part(i);
            if (part < 0) {
                y[on.first() + i] = c * sum;
                TO_OTHERS(on.first() + i, c * sum);
            } else parts[2 * (i64)t + part] = c * sum;
        };
        copies.wait(n);
        VALUE* const value = (VALUE*)(shared + (n & 1) * STAGE);
        const unsigned* const column = (const unsigned*)(value + CAPACITY);
        if (!(on.at[0].kind & UNEVEN)) {
            with_constant(on.log(), [&](auto lanes) { sum_even<decltype(lanes)::value>(on, row_ptr, mine, value, column, x, write); });
        } else {
            const int begin = (int)(on.at[0].entry - on.base()), end = (int)(on.at[1].entry - on.base());
            constexpr int EACH = (CAPACITY + THREADS - 1) / THREADS;
            double product[EACH];
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                const int p = threadIdx.x + k * THREADS;
                if (p >= begin && p < end) product[k] = (double)value[p] * x[column[p]];
            }
            if (threadIdx.x == 0) many = 0;
            __syncthreads();
            double* const products = (double*)value;
#pragma unroll
            for (int k = 0; k < EACH; ++k) {
                const int p = threadIdx.x + k * THREADS;
                if (p >= begin && p < end) products[p] = product[k];
            }
            copies.written();
            __syncthreads();
            with_constant(on.log(), [&](auto lanes) { sum_uneven<decltype(lanes)::value>(on, row_ptr, mine, products, &many, list, write); });
        }
        mine = mine_ahead;
    }
}

// Rows that several tiles share: adds their parts in order, a warp a row. cuts: row, first tile and last tile of each.
extern "C" __global__ void csr_cut_rows(const int* halt, const int count, const int* __restrict__ cuts, const double* __restrict__ parts,
                                        double* __restrict__ y OTHERS) {
    if (halt && *halt) return;
    const int i = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (i >= count) return;
    const int row = cuts[3 * i], first = cuts[3 * i + 1], last = cuts[3 * i + 2];
    double sum = 0.0;
    for (int t = first + lane; t <= last; t += 32) sum += parts[2 * (i64)t + (t == first)];
#pragma unroll
    for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane > 0) return;
    y[row] = sum;
    TO_OTHERS(row, sum);
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
        Twofold all = {part < 0 ? b[on.first() + i] : 0.0, 0.0};
        size = fma(fabs(c), size, fabs(all.hi));
        add_product(all, c, sum.hi);
        all.lo = __dadd_rn(all.lo, __dmul_rn(c, sum.lo));
        if (part < 0) {
            r[on.first() + i] = __dadd_rn(all.hi, all.lo);
            m[on.first() + i] = size;
        } else {
            double* to = parts + 3 * (2 * (i64)blockIdx.x + part);
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
        const int items = end - row + tile.kind, log = lanes_of(items);
        if (items * 32 < THREADS || longest > MOST << log) tile.kind |= UNEVEN;
        tile.kind |= log * LANES;
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
