// ildu_plan: patterns, order and levels of subdomains, with one thread block per subdomain: the GPU version
// of precond/ildu/plan.rs, for factors without fill.
//
//   ildu_boxes    rows of subdomains that are boxes of a grid
//   ildu_home     the subdomain of each row and its number there
//   ildu_count    entries of each row within its subdomain, including the diagonal
//   ildu_inspect  the pattern in the subdomain's numbers, its levels in natural order, and whether that order
//                 is suspect
//   ildu_finish   positions by level, and the pattern in positions
//
// Between the last two, ildu_order.cu gives suspect subdomains another order.
// Macros: PATTERNS (1, or 2: the union of two patterns), THREADS.
// Bytes moved by a subdomain: its columns twice and a gather of 8 bytes for each twice, the plan once, and a
// scratch copy of its pattern a few times, mostly from the cache.

#include "ildu_plan.cuh"
#include "search.cuh"

struct Matrix { const long long* row_ptr; const unsigned* col; };

// Boxes of `size` points of a grid, x fastest; those at the far sides may be smaller.
extern "C" __global__ void ildu_boxes(int nx, int ny, int nz, int sx, int sy, int sz, long long* starts, unsigned* rows, uint2* home) {
    const int cx = (nx + sx - 1) / sx, cy = (ny + sy - 1) / sy;
    const int p = blockIdx.x, bx = p % cx, by = p / cx % cy, bz = p / (cx * cy);
    const int hx = min(sx, nx - bx * sx), hy = min(sy, ny - by * sy), hz = min(sz, nz - bz * sz);
    const long long first = (long long)nx * ny * bz * sz + ((long long)nx * by * sy + (long long)bx * sx * hy) * hz;
    const int size = hx * hy * hz;
    if (threadIdx.x == 0) {
        starts[p] = first;
        if (p == gridDim.x - 1) starts[p + 1] = first + size;
    }
    for (int k = threadIdx.x; k < size; k += blockDim.x) {
        const int x = bx * sx + k % hx, y = by * sy + k / hx % hy, z = bz * sz + k / (hx * hy);
        const unsigned row = x + nx * (y + (unsigned)ny * z);
        rows[first + k] = row;
        home[row] = make_uint2(p, k);
    }
}

extern "C" __global__ void ildu_home(const long long* __restrict__ starts, const unsigned* __restrict__ rows, uint2* __restrict__ home) {
    const long long first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    for (long long a = first + threadIdx.x; a < end; a += blockDim.x) home[rows[a]] = make_uint2(blockIdx.x, (unsigned)(a - first));
}

// Position of column j in a row, or -1.
__device__ __forceinline__ long long find(const Matrix& a, long long row, unsigned j) { return find_column(a.col, a.row_ptr[row], a.row_ptr[row + 1], j); }

// Number of column j in subdomain p, or -1 if it is in another subdomain or is a ghost.
__device__ __forceinline__ int local(const uint2* home, unsigned own, unsigned p, unsigned j) {
    if (j >= own) return -1;
    const uint2 place = home[j];
    return place.x == p ? (int)place.y : -1;
}

__device__ __forceinline__ unsigned group_mask() { return 0xffu << (threadIdx.x % 32 / GROUP * GROUP); }

// totals: entries, stored blocks and dropped blocks of each subdomain. scattered becomes 1 if rows are not
// consecutive.
extern "C" __global__ void __launch_bounds__(THREADS)
ildu_count(const long long* __restrict__ starts, const unsigned* __restrict__ rows, const uint2* __restrict__ home, unsigned own,
           Matrix a, Matrix b, unsigned* __restrict__ counts, long long* __restrict__ totals, int* scattered) {
    __shared__ unsigned long long sums[3];
    if (threadIdx.x < 3) sums[threadIdx.x] = 0;
    __syncthreads();
    const int lane = threadIdx.x % GROUP;
    const long long first = starts[blockIdx.x];
    const int size = (int)(starts[blockIdx.x + 1] - first);
    unsigned long long entries = 0, stored = 0, dropped = 0;
    for (int k = threadIdx.x / GROUP; k < size; k += GROUPS) {
        const unsigned row = rows[first + k];
        unsigned inside = 0, outside = 0, diagonal = 0;
        auto see = [&](unsigned j) {
            const bool in = local(home, own, blockIdx.x, j) >= 0;
            inside += in;
            outside += !in;
            diagonal |= j == row;
        };
        for (long long p = a.row_ptr[row] + lane; p < a.row_ptr[row + 1]; p += GROUP) see(a.col[p]);
        if (PATTERNS == 2)
            for (long long p = b.row_ptr[row] + lane; p < b.row_ptr[row + 1]; p += GROUP)
                if (find(a, row, b.col[p]) < 0) see(b.col[p]);
        const unsigned mask = group_mask();
#pragma unroll
        for (int d = 1; d < GROUP; d *= 2) {
            inside += __shfl_xor_sync(mask, inside, d);
            outside += __shfl_xor_sync(mask, outside, d);
            diagonal |= __shfl_xor_sync(mask, diagonal, d);
        }
        if (lane == 0) {
            const unsigned count = inside + !diagonal;
            counts[first + k] = count;
            entries += count;
            stored += inside + outside;
            dropped += outside;
            if (row != first + k) *scattered = 1;
        }
    }
    if (lane == 0) {
        atomicAdd(sums, entries);
        atomicAdd(sums + 1, stored);
        atomicAdd(sums + 2, dropped);
    }
    __syncthreads();
    if (threadIdx.x < 3) totals[3ll * blockIdx.x + threadIdx.x] = (long long)sums[threadIdx.x];
}

// A stable sort of `size` numbers by eight bits of their level, read by `from` and written by `to`.
template <class From, class Key, class To>
__device__ void sort_pass(int size, From from, Key key, To to, unsigned (*counters)[256]) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int share = (size + WARPS - 1) / WARPS, begin = min(size, warp * share), end = min(size, begin + share);
    for (int i = threadIdx.x; i < WARPS * 256; i += THREADS) counters[i / 256][i % 256] = 0;
    __syncthreads();
    auto walk = [&](auto visit) {
        for (int i = begin + lane; i - lane < end; i += 32) {
            const unsigned active = __ballot_sync(0xffffffffu, i < end);
            if (i < end) {
                const int value = from(i), digit = key(value);
                const unsigned same = __match_any_sync(active, digit);
                visit(value, digit, same, __popc(same & ((1u << lane) - 1)));
            }
            __syncwarp();
        }
    };
    walk([&](int, int digit, unsigned same, int rank) {
        if (rank == 0) counters[warp][digit] += __popc(same);
    });
    __syncthreads();
    // Digits in order, and for each digit the warps in order.
    unsigned before = 0;
    for (int begin = 0; begin < 256; begin += THREADS) {
        const int d = begin + threadIdx.x;
        unsigned own = 0, total;
        if (d < 256)
            for (int w = 0; w < WARPS; ++w) own += counters[w][d];
        unsigned at = before + block_exclusive(own, total);
        if (d < 256)
            for (int w = 0; w < WARPS; ++w) {
                const unsigned count = counters[w][d];
                counters[w][d] = at;
                at += count;
            }
        before += total;
    }
    __syncthreads();
    walk([&](int value, int digit, unsigned same, int rank) {
        const unsigned at = counters[warp][digit];
        __syncwarp(same);
        to(at + rank, value);
        if (rank == 0) counters[warp][digit] = at + __popc(same);
    });
    __syncthreads();
}

// totals: exclusive sums of ildu_count's. Output for each row: offsets, words (ildu_plan.cuh); for each
// entry: at, from_a, from_b (the block of each term, or NONE). suspects: the number of subdomains whose
// natural order is suspect; suspect marks them. spare: scratch. The rule is in precond/incomplete/order.rs.
extern "C" __global__ void __launch_bounds__(THREADS)
ildu_inspect(const long long* __restrict__ starts, const unsigned* __restrict__ rows, const uint2* __restrict__ home, unsigned own,
             Matrix a, Matrix b, const unsigned* __restrict__ counts, const long long* __restrict__ totals, unsigned* offsets,
             unsigned short* at, unsigned* from_a, unsigned* from_b, unsigned* words, unsigned* spare, unsigned* suspect, int* suspects,
             int largest) {
    extern __shared__ unsigned word[];
    const int group = threadIdx.x / GROUP, lane = threadIdx.x % GROUP;
    const unsigned mask = group_mask(), below = (1u << (threadIdx.x % 32)) - 1;
    const long long first = starts[blockIdx.x], base = totals[3ll * blockIdx.x];
    const int size = (int)(starts[blockIdx.x + 1] - first);
    const Subdomain s = {size, offsets + first, counts + first, at + base};
    int entries = 0;
    for (int begin = 0; begin < size; begin += THREADS) {
        const int k = begin + threadIdx.x;
        int total;
        const int sum = block_exclusive(k < size ? (int)s.counts[k] : 0, total);
        if (k < size) {
            offsets[first + k] = entries + sum;
            word[k] = k;
        }
        entries += total;
    }
    __syncthreads();
    for (int k = group; k < size; k += GROUPS) {
        const unsigned row = rows[first + k];
        long long to = base + s.offsets[k];
        bool here = false;
        auto walk = [&](const Matrix& m, auto take) {
            const long long end = m.row_ptr[row + 1];
            for (long long p = m.row_ptr[row] + lane; p - lane < end; p += GROUP) {
                const unsigned j = p < end ? m.col[p] : NONE;
                const int number = p < end && take(j) ? local(home, own, blockIdx.x, j) : -1;
                const unsigned found = __ballot_sync(mask, number >= 0);
                here |= number == k;
                if (number >= 0) {
                    const long long e = to + __popc(found & below);
                    at[e] = (unsigned short)number;
                    const bool is_a = m.col == a.col;
                    from_a[e] = is_a ? (unsigned)p : NONE;
                    if (PATTERNS == 2) from_b[e] = is_a ? (unsigned)find(b, row, j) : (unsigned)p;
                }
                to += __popc(found);
            }
        };
        walk(a, [](unsigned) { return true; });
        if (PATTERNS == 2) walk(b, [&](unsigned j) { return find(a, row, j) < 0; });
        if (!__any_sync(mask, here) && lane == 0) {
            at[to] = (unsigned short)k;
            from_a[to] = NONE;
            if (PATTERNS == 2) from_b[to] = NONE;
        }
    }
    __syncthreads();

    const long long levels = raise_levels(s, word, (unsigned char*)(word + largest)), n = size;
    bool bad = false;
    if (size >= 8) {
        bad = 6 * profile_of(s, word, spare + first) > n * n;
        if (!bad && levels * levels * levels > 64 * n) {
            // Number of rows on the longest of the shortest paths from the lowest row of the last level, by a
            // search front by front.
            __shared__ int root;
            unsigned* const distance = spare + first;
            if (threadIdx.x == 0) root = size;
            __syncthreads();
            for (int k = threadIdx.x; k < size; k += THREADS)
                if ((word[k] >> 16) + 1 == levels) atomicMin(&root, k);
            __syncthreads();
            for (int k = threadIdx.x; k < size; k += THREADS) distance[k] = k == root ? 0 : NONE;
            __syncthreads();
            long long depth = 0;
            bool more;
            do {
                more = false;
                for_couplings(s, [&](int k, int j) {
                    volatile unsigned* d = distance;
                    if (d[k] == depth && d[j] == NONE) d[j] = depth + 1, more = true;
                    else if (d[j] == depth && d[k] == NONE) d[k] = depth + 1, more = true;
                });
                depth += 1;
            } while (__syncthreads_or(more));
            const long long couplings = entries - n;
            bad = levels * n > 2 * depth * max(n, couplings - 5 * n);
        }
    }
    for (int k = threadIdx.x; k < size; k += THREADS) words[first + k] = word[k];
    if (threadIdx.x == 0) {
        suspect[blockIdx.x] = bad;
        if (bad) atomicAdd(suspects, 1);
    }
}

// words: levels and places. Output: row_at, slots (position of each row of the ascending list), levels (from
// starts on), depths, row_starts, columns, diagonal, sources. spare: scratch.
extern "C" __global__ void __launch_bounds__(THREADS)
ildu_finish(const long long* __restrict__ starts, const unsigned* __restrict__ rows, const unsigned* __restrict__ words,
            const unsigned* __restrict__ counts, const long long* __restrict__ totals, const unsigned* __restrict__ offsets,
            const unsigned short* __restrict__ at, const unsigned* __restrict__ from_a, const unsigned* __restrict__ from_b,
            unsigned short* spare, unsigned* __restrict__ row_at, unsigned short* __restrict__ slots, unsigned* __restrict__ levels,
            unsigned* __restrict__ depths, long long* row_starts, unsigned short* __restrict__ columns, long long* __restrict__ diagonal,
            unsigned* __restrict__ sources_a, unsigned* __restrict__ sources_b, int largest) {
    extern __shared__ unsigned memory[];
    __shared__ unsigned counters[WARPS][256], deepest;
    unsigned* const word = memory;  // [size]: level << 16 | place, then position
    unsigned short* const order = (unsigned short*)(memory + largest);  // [size]: row of each position
    const int group = threadIdx.x / GROUP, lane = threadIdx.x % GROUP;
    const long long first = starts[blockIdx.x], base = totals[3ll * blockIdx.x];
    const int size = (int)(starts[blockIdx.x + 1] - first);
    counts += first;
    offsets += first;
    spare += first;
    if (threadIdx.x == 0) deepest = 0;
    __syncthreads();
    unsigned deep = 0;
    for (int k = threadIdx.x; k < size; k += THREADS) {
        const unsigned own = word[k] = words[first + k];
        deep = max(deep, own >> 16);
        spare[own & 0xffff] = (unsigned short)k;  // the order of elimination
    }
    atomicMax(&deepest, deep);
    __syncthreads();
    const unsigned depth = deepest + 1;

    // Positions: by level, and within a level in the order of elimination.
    sort_pass(size, [&](int i) { return (int)spare[i]; }, [&](int k) { return (int)(word[k] >> 16 & 255); }, [&](unsigned q, int k) { order[q] = (unsigned short)k; }, counters);
    if (depth > 256) {
        sort_pass(size, [&](int i) { return (int)order[i]; }, [&](int k) { return (int)(word[k] >> 24); }, [&](unsigned q, int k) { spare[q] = (unsigned short)k; }, counters);
        for (int q = threadIdx.x; q < size; q += THREADS) order[q] = spare[q];
        __syncthreads();
    }
    for (int begin = 0, before = 0; begin < size; begin += THREADS) {
        const int q = begin + threadIdx.x, k = q < size ? order[q] : 0;
        int total;
        const int sum = block_exclusive(q < size ? (int)counts[k] : 0, total);
        if (q < size) {
            row_starts[first + q] = base + before + sum;
            row_at[first + q] = rows[first + k];
            slots[first + k] = (unsigned short)q;
            const unsigned level = word[k] >> 16;
            if (q == 0 || word[order[q - 1]] >> 16 != level) levels[first + level] = q;
        }
        before += total;
    }
    if (threadIdx.x == 0) {
        depths[blockIdx.x] = depth;
        if (blockIdx.x == gridDim.x - 1) row_starts[first + size] = totals[3ll * gridDim.x];
    }
    __syncthreads();
    for (int q = threadIdx.x; q < size; q += THREADS) word[order[q]] = q;
    __syncthreads();

    // Columns ascend in each row: the place of an entry is the number of entries before it.
    for (int q = group; q < size; q += GROUPS) {
        const int k = order[q], count = counts[k];
        const long long in = base + offsets[k], to = row_starts[first + q];
        for (int e = lane; e < count; e += GROUP) {
            const unsigned own_column = word[at[in + e]];
            int rank = 0;
            for (int f = 0; f < count; ++f) rank += word[at[in + f]] < own_column;
            columns[to + rank] = (unsigned short)own_column;
            sources_a[to + rank] = from_a[in + e];
            if (PATTERNS == 2) sources_b[to + rank] = from_b[in + e];
            if (own_column == q) diagonal[first + q] = to + rank;
        }
    }
}
