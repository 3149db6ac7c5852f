// block: operations of P-CBCG on blocks of COLUMNS vectors of n numbers, each in one pass over memory.
//
//   block_products   out[i*s + j] = x_i'y_j; reads 2s
//   block_update     Q <- S - Q B, AQ <- AS - AQ B (B by columns), and with the new ones
//                    out = [ Q'AQ | (AQ)'AQ (both by rows from the diagonal on) | Q'r | (AQ)'r | r'r ];
//                    reads 4s + 1, writes 2s
//   block_advance    x += Q a, r -= AQ a; reads 2s + 2, writes 2
//
// Bytes moved: 8n for each vector read or written.
//
// Macros, tuned on an H200 (BlockShape):
//   COLUMNS                          s, 1 to 16
//   WARPS_PRODUCTS, WARPS_UPDATE     warps per thread block
//   AHEAD_PRODUCTS, AHEAD_UPDATE     tiles of 8 rows that a warp loads at a time
//   RESIDENT_PRODUCTS                resident thread blocks per multiprocessor; one of block_update
//   PIPELINE                         1: block_update loads the next rows while it processes the present ones
//
// The sums of all pairs do not fit one thread, so tensor cores compute them with mma.m8n8k4 in f64. Of a tile
// of 8 rows, lane (g, t), g = lane / 4, t = lane % 4, holds rows 2t and 2t + 1 of column g, which is one
// 16-byte load. The first rows of all lanes form one operand of four rows and the second rows another; this
// is possible because rows may be summed in any order. The update is computed transposed, Q^T <- S^T - B^T
// Q^T: B^T stays in registers, and Q^T is loaded as row g of column t. The result is again a pair of rows of
// column g, ready to be stored and to be multiplied for the sums. All loads of a tile precede its stores, and
// no other warp accesses its rows, so Q may be updated in place.
//
// Columns are passed as pointers in the arguments, 16-byte aligned; rows >= n are neither read nor written.
// scratch:  gridDim.x numbers for each sum.
// counter:  one zeroed word.
// peers:  null, or the GPUs (peers.cuh) over which the last block reduces the sums. It adds the blocks' sums
// in block order, so results are deterministic.

#include "peers.cuh"

constexpr int S = COLUMNS;
constexpr int ROWS = 8;                    // rows of a tile
constexpr int WIDE = (S + 7) / 8;          // tiles of 8 columns
constexpr int DEEP = (S + 3) / 4;          // tiles of 4 columns

struct Block {
    double* column[16];
};

// D += A B, 8 x 4 times 4 x 8.
__device__ __forceinline__ void multiply(double (&d)[2], double a, double b) {
    asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d[0]), "+d"(d[1]) : "d"(a), "d"(b));
}

// Two rows of a column, with zeros for rows from `left` on. The column must exist if any row is needed.
__device__ __forceinline__ void load(const double* p, int left, double (&v)[2]) {
    v[0] = v[1] = 0;
    if (left >= 2) {
        const double2 pair = __ldcs(reinterpret_cast<const double2*>(p));
        v[0] = pair.x, v[1] = pair.y;
    } else if (left == 1) {
        v[0] = *p;
    }
}
__device__ __forceinline__ void store(double* p, int left, const double (&v)[2]) {
    if (left >= 2) __stcs(reinterpret_cast<double2*>(p), make_double2(v[0], v[1]));
    else if (left == 1) *p = v[0];
}

// Number of warps whose sums fit in shared memory at once; with more warps, half of them add to the sums of
// the others.
__device__ constexpr int slots(int warps) { return warps > 8 ? (warps + 1) / 2 : warps; }

// Reduces the blocks' sums to `out`, in block order, and over the GPUs. `from[k]`, in shared memory, is this
// block's part of sum k; the whole block must call it after a barrier.
template <int WARPS>
__device__ __forceinline__ void finish(const double* from, int sums, double* out, double* scratch, unsigned* counter, Group* peers) {
    __shared__ bool last;
    for (int k = threadIdx.x; k < sums; k += WARPS * 32) {
        scratch[(long long)k * gridDim.x + blockIdx.x] = from[k];
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    constexpr int AT_ONCE = 4;
    Round round = {};
    if (peers) round = open_round(peers);
    for (int k = warp; k < sums; k += AT_ONCE * WARPS) {
        double x[AT_ONCE] = {};
        const double* at[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) at[i] = scratch + (long long)min(k + i * WARPS, sums - 1) * gridDim.x;
#pragma unroll 4
        for (int b = lane; b < gridDim.x; b += 32)
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) x[i] += __ldcg(at[i] + b);
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) {
            for (int bit = 16; bit; bit /= 2) x[i] += __shfl_xor_sync(~0u, x[i], bit);
            if (!peers && lane == 0 && k + i * WARPS < sums) out[k + i * WARPS] = x[i];
        }
        if (!peers) continue;
        const int mine = lane / 8;  // eight lanes share a sum
        const double low = mine % 2 ? x[1] : x[0], high = mine % 2 ? x[3] : x[2];
        if (k + mine * WARPS < sums) post(round, k + mine * WARPS, mine < 2 ? low : high);
    }
    if (!peers) return;
    for (int k = threadIdx.x; k < sums; k += WARPS * 32) out[k] = collect(peers, round, k);
    close_round(peers);
}

// Rows of two blocks of vectors that a warp multiplies: pairs of rows of column g, prefetched while others
// are used.
struct Pairs {
    double a[AHEAD_PRODUCTS][WIDE][2], b[AHEAD_PRODUCTS][WIDE][2];
};

extern "C" __global__ void __launch_bounds__(WARPS_PRODUCTS * 32, RESIDENT_PRODUCTS)
block_products(const int* halt, const int n, const Block x, const Block y, double* out, double* scratch, unsigned* counter, Group* peers) {
    if (halt && *halt) return;
    constexpr int U = AHEAD_PRODUCTS, WARPS = WARPS_PRODUCTS;
    constexpr int SLOTS = slots(WARPS);
    __shared__ double tiles[SLOTS][WIDE * WIDE * 64];
    __shared__ double own[S * S];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    const double *px[WIDE], *py[WIDE];
#pragma unroll
    for (int i = 0; i < WIDE; ++i) {
        const int column = min(8 * i + g, S - 1);
        px[i] = x.column[column] + 2 * t, py[i] = y.column[column] + 2 * t;
    }
    double sum[WIDE][WIDE][2] = {};
    auto fetch = [&](Pairs& to, long long row) {
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int i = 0; i < WIDE; ++i) {
                const int left = 8 * i + g < S ? (int)max(min(n - row - u * ROWS - 2 * t, 2ll), 0ll) : 0;
                load(px[i] + row + u * ROWS, left, to.a[u][i]);
                load(py[i] + row + u * ROWS, left, to.b[u][i]);
            }
    };
    auto use = [&](const Pairs& from) {
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int i = 0; i < WIDE; ++i)
#pragma unroll
                    for (int j = 0; j < WIDE; ++j) multiply(sum[i][j], from.a[u][i][h], from.b[u][j][h]);
    };
    const long long step = (long long)gridDim.x * WARPS * U * ROWS;
    Pairs even, odd;
    long long row = ((long long)blockIdx.x * WARPS + warp) * U * ROWS;
    fetch(even, row);
    for (; row < n; row += 2 * step) {
        fetch(odd, row + step);
        use(even);
        fetch(even, row + 2 * step);
        use(odd);
    }
    for (int round = SLOTS < WARPS ? 0 : 1; round < 2; ++round) {
        const bool add = round && warp + SLOTS < WARPS;
        if (round == 0 ? warp >= SLOTS : warp < SLOTS)
#pragma unroll
            for (int i = 0; i < WIDE; ++i)
#pragma unroll
                for (int j = 0; j < WIDE; ++j)
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        double& slot = tiles[warp % SLOTS][(i * WIDE + j) * 64 + g * 8 + 2 * t + h];
                        slot = sum[i][j][h] + (add ? slot : 0);
                    }
        __syncthreads();
    }
    for (int k = threadIdx.x; k < S * S; k += WARPS * 32) {
        const int i = k / S, j = k % S;
        double all = 0;
        for (int w = 0; w < SLOTS; ++w) all += tiles[w][(i / 8 * WIDE + j / 8) * 64 + i % 8 * 8 + j % 8];
        own[k] = all;
    }
    __syncthreads();
    finish<WARPS>(own, S * S, out, scratch, counter, peers);
}

constexpr int UPPER = WIDE * (WIDE + 1) / 2;   // tiles of a symmetric matrix: (0, 0), then (0, 1), (1, 1)
constexpr int HALF = S * (S + 1) / 2;
constexpr int SUMS = S * (S + 3) + 1;

// Rows of the update: S and A S as pairs of rows of column g, which become Q and A Q; the old Q and A Q as
// row g of column t; r.
struct Strip {
    double made[AHEAD_UPDATE][2][WIDE][2], before[AHEAD_UPDATE][2][DEEP], rest[AHEAD_UPDATE][2];
};

extern "C" __global__ void __launch_bounds__(WARPS_UPDATE * 32, 1)
block_update(const int* halt, const int n, const Block basis, const Block products, const double* r, const Block q, const Block aq,
             const double* combination, double* out, double* scratch, unsigned* counter, Group* peers) {
    if (halt && *halt) return;
    constexpr int U = AHEAD_UPDATE, WARPS = WARPS_UPDATE;
    constexpr int SLOTS = slots(WARPS);
    __shared__ double tiles[SLOTS][2 * UPPER * 64];
    __shared__ double with_r[WARPS][2 * S + 1];
    __shared__ double own[SUMS];
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
    // -B^T: the factors from column 4k + t of Q to column 8i + g.
    double b[WIDE][DEEP];
#pragma unroll
    for (int i = 0; i < WIDE; ++i)
#pragma unroll
        for (int k = 0; k < DEEP; ++k) {
            const bool there = 8 * i + g < S && 4 * k + t < S;
            b[i][k] = there ? -combination[(8 * i + g) * S + 4 * k + t] : 0;
        }
    const double *source[2][WIDE], *old[2][DEEP];
    double* target[2][WIDE];
#pragma unroll
    for (int i = 0; i < WIDE; ++i) {
        const int column = min(8 * i + g, S - 1);
        source[0][i] = basis.column[column] + 2 * t, source[1][i] = products.column[column] + 2 * t;
        target[0][i] = q.column[column] + 2 * t, target[1][i] = aq.column[column] + 2 * t;
    }
#pragma unroll
    for (int k = 0; k < DEEP; ++k) {
        const int column = min(4 * k + t, S - 1);
        old[0][k] = q.column[column] + g, old[1][k] = aq.column[column] + g;
    }
    double gram[2][UPPER][2] = {}, dot[2][WIDE] = {}, square = 0;
    auto fetch = [&](Strip& to, long long row) {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const long long at = row + u * ROWS;
            const int pair = (int)max(min(n - at - 2 * t, 2ll), 0ll);
#pragma unroll
            for (int m = 0; m < 2; ++m) {
#pragma unroll
                for (int i = 0; i < WIDE; ++i) load(source[m][i] + at, 8 * i + g < S ? pair : 0, to.made[u][m][i]);
#pragma unroll
                for (int k = 0; k < DEEP; ++k) to.before[u][m][k] = 4 * k + t < S && at + g < n ? __ldcs(old[m][k] + at) : 0;
            }
            load(r + at + 2 * t, pair, to.rest[u]);
        }
    };
    auto use = [&](Strip& strip, long long row) {
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const long long at = row + u * ROWS;
            const int pair = (int)max(min(n - at - 2 * t, 2ll), 0ll);
            auto& made = strip.made[u];
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int i = 0; i < WIDE; ++i) {
#pragma unroll
                    for (int k = 0; k < DEEP; ++k) multiply(made[m][i], b[i][k], strip.before[u][m][k]);
                    store(target[m][i] + at, 8 * i + g < S ? pair : 0, made[m][i]);
                }
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const double rest = strip.rest[u][h];
#pragma unroll
                for (int j = 0; j < WIDE; ++j)
#pragma unroll
                    for (int i = 0; i <= j; ++i)
#pragma unroll
                        for (int m = 0; m < 2; ++m) multiply(gram[m][i + j * (j + 1) / 2], made[m][i][h], made[1][j][h]);
#pragma unroll
                for (int m = 0; m < 2; ++m)
#pragma unroll
                    for (int i = 0; i < WIDE; ++i) dot[m][i] = fma(made[m][i][h], rest, dot[m][i]);
                square = fma(rest, rest, square);
            }
        }
    };
    const long long step = (long long)gridDim.x * WARPS * U * ROWS;
    long long row = ((long long)blockIdx.x * WARPS + warp) * U * ROWS;
    Strip even;
#if PIPELINE
    Strip odd;
    fetch(even, row);
    for (; row < n; row += 2 * step) {
        fetch(odd, row + step);
        use(even, row);
        fetch(even, row + 2 * step);
        use(odd, row + step);
    }
#else
    for (; row < n; row += step) {
        fetch(even, row);
        use(even, row);
    }
#endif
    for (int round = SLOTS < WARPS ? 0 : 1; round < 2; ++round) {
        const bool add = round && warp + SLOTS < WARPS;
        if (round == 0 ? warp >= SLOTS : warp < SLOTS)
#pragma unroll
            for (int m = 0; m < 2; ++m)
#pragma unroll
                for (int i = 0; i < UPPER; ++i)
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        double& slot = tiles[warp % SLOTS][(m * UPPER + i) * 64 + g * 8 + 2 * t + h];
                        slot = gram[m][i][h] + (add ? slot : 0);
                    }
        __syncthreads();
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
#pragma unroll
        for (int i = 0; i < WIDE; ++i) {
            dot[m][i] += __shfl_xor_sync(~0u, dot[m][i], 1);
            dot[m][i] += __shfl_xor_sync(~0u, dot[m][i], 2);
            if (t == 0 && 8 * i + g < S) with_r[warp][m * S + 8 * i + g] = dot[m][i];
        }
    }
    square += __shfl_xor_sync(~0u, square, 1);
    square += __shfl_xor_sync(~0u, square, 2);
    if (lane == 0) with_r[warp][2 * S] = square;
    __syncthreads();
    for (int k = threadIdx.x; k < SUMS; k += WARPS * 32) {
        double all = 0;
        if (k < 2 * HALF) {
            int i = 0, j = k % HALF;   // row i, and distance from the diagonal
            while (j >= S - i) j -= S - i, ++i;
            j += i;
            const int tile = k / HALF * UPPER + i / 8 + (j / 8) * (j / 8 + 1) / 2;
            for (int w = 0; w < SLOTS; ++w) all += tiles[w][tile * 64 + i % 8 * 8 + j % 8];
        } else {
            for (int w = 0; w < WARPS; ++w) all += with_r[w][k - 2 * HALF];
        }
        own[k] = all;
    }
    __syncthreads();
    finish<WARPS>(own, SUMS, out, scratch, counter, peers);
}

extern "C" __global__ void __launch_bounds__(256)
block_advance(const int* halt, const int n, const Block q, const Block aq, double* x, double* r, const double* a) {
    if (halt && *halt) return;
    double c[S];
#pragma unroll
    for (int i = 0; i < S; ++i) c[i] = a[i];
    const long long step = 2ll * gridDim.x * 256;
    for (long long row = 2ll * (blockIdx.x * 256 + threadIdx.x); row < n; row += step) {
        const int left = (int)min(n - row, 2ll);
        double u[2], v[2];
        load(x + row, left, u);
        load(r + row, left, v);
        double d[S][2], e[S][2];
#pragma unroll
        for (int i = 0; i < S; ++i) load(q.column[i] + row, left, d[i]);
#pragma unroll
        for (int i = 0; i < S; ++i) load(aq.column[i] + row, left, e[i]);
#pragma unroll
        for (int i = 0; i < S; ++i)
#pragma unroll
            for (int h = 0; h < 2; ++h) u[h] = fma(c[i], d[i][h], u[h]), v[h] = fma(-c[i], e[i][h], v[h]);
        store(x + row, left, u);
        store(r + row, left, v);
    }
}
