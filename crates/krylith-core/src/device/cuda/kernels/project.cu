// project: all inner products of one Gram-Schmidt step, in one pass over the basis.
//
// RHS == 2 (delayed CGS2):  out = [ r = V'w (k) | t = V'z (k) | w'w, w'z, z'z if norm ],  k = k1 - k0
// RHS == 1 (CGS2, MGS):     out = [ t = V'z (k) | z'z if norm ]
// V is the columns k0 <= j < k1 of the basis; column j starts at V + j*ld.
//
// Macros (defaults tuned on an H200):
//   VALUE    double | float   type in which the basis is stored; all arithmetic is in double
//   RHS      2 | 1            right-hand vectors
//   PROJECT                   name of the kernel
//   WARPS    power of two     warps per block
//   COLS     2 to 4           most columns per warp; a batch is WARPS*COLS columns
//   DEPTH                     approximate number of loads that a lane has in flight
//   BLOCKS                    resident blocks per multiprocessor, for the register budget
//
// Arguments: V and its columns, w and z are 16-byte aligned; rows >= n are never read. `keep`: sixteenths of
// the data to leave in L2 for the following combine (about 30 MB of an H200's survive).
// scratch:  gridDim.x * (RHS*k + NORMS) doubles.
// counter:  max(1, ceil(k / (WARPS*COLS))) zeroed words.
// peers:  null, or the GPUs (peers.cuh) over which all of `out` is summed, by one message of at most RHS*k +
// NORMS values; out is then written once, with the totals.
//
// Bytes moved: k*n*sizeof(VALUE) + RHS*8*n per launch (a further batch reads w and z again).
//
// Mapping. A block owns one contiguous range of 512-byte tiles. If a lane owned only rows, it would carry
// 2k+3 sums and shuffle them all at the end. So the warps of a block form a grid of column groups x row
// groups instead: a warp keeps at most COLS columns and reads w and z through L1, where the other column
// groups find the same lines at about the same time. One block per multiprocessor keeps the last sum short.
//
// The order of all additions depends only on n, k, norm and gridDim.x: the results are reproducible.
// The last block to arrive adds the blocks' sums in block order; its counter wraps back to 0 by itself.
//
// Among GPUs, the last block of every batch posts its sums at once, and the last block of the last batch
// collects all of them. That block comes after all others have posted: a block arrives at a batch's counter
// after it has finished the earlier batches, including its posts, and the last block has seen every block
// arrive.
//
// Programmatic dependent launch (optional): the previous kernel must have started after the writers of V and
// *halt had finished (a normal launch, or one that waits before it triggers); w and z may be late.

#ifndef VALUE
#define VALUE double
#endif
#ifndef RHS
#define RHS 2
#endif
#ifndef PROJECT
#define PROJECT project
#endif
#ifndef WARPS
#define WARPS 16
#endif
#ifndef COLS
#define COLS 2
#endif
#ifndef DEPTH
#define DEPTH (sizeof(VALUE) == 8 ? 16 : 12)
#endif
#ifndef BLOCKS
#define BLOCKS 1
#endif

#include "peers.cuh"

typedef unsigned long long Policy;

constexpr int PACK = 16 / sizeof(VALUE);         // rows per lane with one 16-byte load
constexpr int TILE = 32 * PACK;                  // rows per warp with one load
constexpr int NORMS = RHS == 2 ? 3 : 1;
constexpr int SUMS = RHS * COLS + NORMS;
constexpr int FOLD = SUMS <= 8 ? 8 : 16;
static_assert(COLS >= 2 && COLS <= 4, "the kernel picks a sweep for 0 to COLS columns");
static_assert((WARPS & (WARPS - 1)) == 0, "column and row groups must share the warps evenly");

// Loads 16 bytes, or zeros if !wanted, without a branch. The basis bypasses L1, which is left to w and z.
__device__ __forceinline__ void load(const double* p, bool wanted, Policy policy, double (&v)[2]) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %4, 0; mov.f64 %0, 0d0000000000000000; mov.f64 %1, %0;\n"
        "@p ld.global.nc.L1::no_allocate.L2::cache_hint.v2.f64 {%0, %1}, [%2], %3; }"
        : "=&d"(v[0]), "=&d"(v[1]) : "l"(p), "l"(policy), "r"((int)wanted));
}
__device__ __forceinline__ void load(const float* p, bool wanted, Policy policy, float (&v)[4]) {
    asm volatile("{ .reg .pred p; setp.ne.s32 p, %6, 0;\n"
        "mov.f32 %0, 0f00000000; mov.f32 %1, %0; mov.f32 %2, %0; mov.f32 %3, %0;\n"
        "@p ld.global.nc.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5; }"
        : "=&f"(v[0]), "=&f"(v[1]), "=&f"(v[2]), "=&f"(v[3]) : "l"(p), "l"(policy), "r"((int)wanted));
}
__device__ __forceinline__ void load_vector(const double* p, bool wanted, Policy policy, double (&v)[PACK]) {
#pragma unroll
    for (int i = 0; i < PACK; i += 2)
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %4, 0; mov.f64 %0, 0d0000000000000000; mov.f64 %1, %0;\n"
            "@p ld.global.L2::cache_hint.v2.f64 {%0, %1}, [%2], %3; }"
            : "=&d"(v[i]), "=&d"(v[i + 1]) : "l"(p + i), "l"(policy), "r"((int)wanted));
}

// Under programmatic dependent launch only: before this call the previous kernel may still be running.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Adds one row's products to the sums of this lane.
template <int C>
__device__ __forceinline__ void add(double (&a)[FOLD], const double (&x)[C ? C : 1], double w, double z,
                                    bool norms) {
    constexpr int T = (RHS - 1) * COLS, N = RHS * COLS;   // start of the sums with z and of the norms
#pragma unroll
    for (int c = 0; c < C; ++c) {
        if (RHS == 2) a[c] = fma(x[c], w, a[c]);
        a[T + c] = fma(x[c], z, a[T + c]);
    }
    if (!norms) return;
    if (RHS == 2) a[N] = fma(w, w, a[N]), a[N + NORMS - 2] = fma(w, z, a[N + NORMS - 2]);
    a[N + NORMS - 1] = fma(z, z, a[N + NORMS - 1]);
}

// The tiles [tile, end) of one row group (every `rows`-th), C columns; keep of 16 rounds stay in L2.
template <int C>
__device__ __forceinline__ void sweep(double (&a)[FOLD], const VALUE* v, long long ld, const double* w,
                                      const double* z, int tile, int end, int rows, int keep, int rest, bool norms) {
    constexpr int U = DEPTH / (C + RHS) > 1 ? DEPTH / (C + RHS) : 1;
    Policy once, stay;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
    asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(stay));
    int round = 0;
    // U tiles at a time, with zeros beyond the end: all loads first, then the arithmetic.
    for (; tile < end; tile += U * rows) {
        const Policy policy = (round++ * keep & 15) < keep ? stay : once;
        const long long row = (long long)tile * TILE + (threadIdx.x & 31) * PACK;
        VALUE x[U][C ? C : 1][PACK];
        double p[U][PACK], q[U][PACK];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const bool own = tile + u * rows < end;
#pragma unroll
            for (int c = 0; c < C; ++c) load(v + c * ld + row + u * rows * TILE, own, policy, x[u][c]);
        }
        if (round == 1) wait_for_predecessor();
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const bool own = tile + u * rows < end;
            const long long at = row + u * rows * TILE;
            if (RHS == 2) load_vector(w + at, own, policy, p[u]);
            load_vector(z + at, own, policy, q[u]);
        }
#pragma unroll
        for (int u = 0; u < U; ++u)
#pragma unroll
            for (int i = 0; i < PACK; ++i) {
                double y[C ? C : 1];
#pragma unroll
                for (int c = 0; c < C; ++c) y[c] = x[u][c][i];
                add<C>(a, y, RHS == 2 ? p[u][i] : 0.0, q[u][i], norms);
            }
    }
    wait_for_predecessor();
    // The rows after the last whole tile, row by row: padding is never read.
    const long long whole = (long long)end * TILE;
    for (int i = threadIdx.x & 31; i < rest; i += 32) {
        double y[C ? C : 1];
#pragma unroll
        for (int c = 0; c < C; ++c) y[c] = v[c * ld + whole + i];
        add<C>(a, y, RHS == 2 ? w[whole + i] : 0.0, z[whole + i], norms);
    }
}

// Sums all FOLD values over the lanes, halving the values with the lanes: value i ends in lanes i*32/FOLD.
__device__ __forceinline__ double fold(double (&a)[FOLD], int lane) {
    int bit = 16;
#pragma unroll
    for (int half = FOLD / 2; half; half /= 2, bit /= 2)
#pragma unroll
        for (int i = 0; i < half; ++i) {
            const bool upper = lane & bit;
            const double give = upper ? a[i] : a[i + half];
            a[i] = (upper ? a[i + half] : a[i]) + __shfl_xor_sync(~0u, give, bit);
        }
#pragma unroll
    for (; bit; bit /= 2) a[0] += __shfl_xor_sync(~0u, a[0], bit);
    return a[0];
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS)
PROJECT(const int* halt, const VALUE* V, long long ld, int n, int k0, int k1, const double* w, const double* z,
        int norm, int keep, double* out, double* scratch, unsigned* counter, Group* peers) {
    if (halt && *halt) return wait_for_predecessor();
    __shared__ double part[WARPS][FOLD];
    __shared__ bool last;
    const int lane = threadIdx.x & 31, warp = threadIdx.x / 32, k = k1 - k0;
    const int tiles = n / TILE;
    const int begin = (long long)tiles * blockIdx.x / gridDim.x;
    const int end = (long long)tiles * (blockIdx.x + 1) / gridDim.x;
    const int rest = blockIdx.x == gridDim.x - 1 ? n - tiles * TILE : 0;

    for (int base = 0; base == 0 || base < k; base += WARPS * COLS, ++counter) {
        const int m = min(k - base, WARPS * COLS);
        int groups = 1;
        while (groups * COLS < m) groups *= 2;
        const int rows = WARPS / groups, group = warp & (groups - 1), row = warp / groups;
        const int c0 = m * group / groups, count = m * (group + 1) / groups - c0;
        // Group 0 has the fewest columns, so it also computes the norms.
        const bool norms = norm && base == 0 && group == 0;
        const VALUE* v = V + (k0 + base + c0) * ld;
        double a[FOLD] = {};
#define SWEEP(C) sweep<(C)>(a, v, ld, w, z, begin + row, end, rows, keep, row == 0 ? rest : 0, norms)
        switch (count) {
            case 0: SWEEP(0); break;
            case 1: SWEEP(1); break;
            case 2: SWEEP(2); break;
            case 3: SWEEP(COLS < 3 ? 0 : 3); break;
            default: SWEEP(COLS < 4 ? 0 : 4);
        }
        const double sum = fold(a, lane);
        if (lane % (32 / FOLD) == 0) part[warp][lane / (32 / FOLD)] = sum;
        __syncthreads();

        const int total = m * RHS + (norm && base == 0 ? NORMS : 0);
        // Place of sum s of this batch in `out`.
        auto place = [&](int s) { return s < m ? base + s : s < m * RHS ? k + base + s - m : RHS * k + s - m * RHS; };
        for (int s = threadIdx.x; s < total; s += WARPS * 32) {
            int owner = 0, slot = RHS * COLS + s - m * RHS;
            if (s < m * RHS) {
                const int j = s < m ? s : s - m;
                owner = ((j + 1) * groups - 1) / m;
                slot = (s < m ? 0 : COLS) + j - m * owner / groups;
            }
            double x = 0;
            for (int i = owner; i < WARPS; i += groups) x += part[i][slot];
            scratch[(long long)place(s) * gridDim.x + blockIdx.x] = x;
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            unsigned arrived;                     // releases the block's sums, acquires the others'
            asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;"
                         : "=r"(arrived) : "l"(counter), "r"(gridDim.x - 1) : "memory");
            last = arrived == gridDim.x - 1;
        }
        __syncthreads();
        if (!last) continue;

        constexpr int AT_ONCE = 4;                // sums that a warp adds at a time, to share the latency
        Round round = {};
        if (peers) round = open_round(peers);     // in flight while the sums are added
        for (int s = warp; s < total; s += AT_ONCE * WARPS) {
            double x[AT_ONCE] = {};
            const double* from[AT_ONCE];
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
                from[i] = scratch + (long long)place(min(s + i * WARPS, total - 1)) * gridDim.x;
#pragma unroll 5
            for (int b = lane; b < gridDim.x; b += 32)
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) x[i] += __ldcg(from[i] + b);
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i) {
                for (int bit = 16; bit; bit /= 2) x[i] += __shfl_xor_sync(~0u, x[i], bit);
                if (!peers && lane == 0 && s + i * WARPS < total) out[place(s + i * WARPS)] = x[i];
            }
            if (!peers) continue;
            const int mine = lane / 8;            // eight lanes share a sum
            const double low = mine % 2 ? x[1] : x[0], high = mine % 2 ? x[3] : x[2];
            if (s + mine * WARPS < total) post(round, place(s + mine * WARPS), mine < 2 ? low : high);
        }
    }
    if (!peers || !last) return;
    const Round round = open_round(peers);
    for (int i = threadIdx.x; i < RHS * k + (norm ? NORMS : 0); i += WARPS * 32) out[i] = collect(peers, round, i);
    close_round(peers);
}
