// tile_solve: z = M^-1 r with the factors of every tile of a box (tile_factor.cu), in one launch. A warp
// processes one tile at a time.
//
// Constants: VALUE double or float (storage; arithmetic is in double), SYMMETRIC 1: one half is stored and
// read for both sweeps, DOTS 0: no sums, 1: (r, z), 2: (r, r) and (r, z). WARPS: most warps per thread block.
// TRANSPOSED 1: z = M^-T r, where both halves are stored and without sums.
// LX, LOG_Y, LOG_Z, PITCH: the shape of a tile if it is known, else 0.
// Bytes moved per cell: r, z, s and three coefficients, 48 in f64; with both halves 72.
//
// With S = diag |s| and the scaled halves L and U, M^-1 = S (I + U)^-1 (I + L)^-1 S, apart from the signs of
// negative pivots. The coefficients of a tile come to shared memory in one copy, started while the warp's
// previous tile is written, and r in runs along x. Its space then holds the forward solution and later the
// backward solution, and z is written in runs. So the recurrence never waits for memory. The backward solve
// of a cell needs the coefficients of the cells above it: they are in the row that was used one step before,
// with their own lanes.
//
// With the signs s of the pivots, L stands for s L and U for s U, and M^-1 = S (I + s U)^-1 (I + s L)^-1 s S.
// So M^-T = s S (I + L^T s)^-1 (I + U^T s)^-1 S: the halves change places, and the signs come last.
//
// (r, z) is |(I + L)^-1 S r|^2 where the factors are symmetric: a sum of squares of numbers at hand. Sums of
// a thread, a block and all blocks are added in a fixed order; peers as in sweep.cu.

#include "peers.cuh"
#include "tile.cuh"

constexpr int AT_ONCE = 4;  // cells of a lane that are written together
// Numbers per row of the coefficients of the first and of the second sweep.
constexpr int FIRST = TRANSPOSED ? UPPER : LOWER, SECOND = SYMMETRIC || TRANSPOSED ? LOWER : UPPER;
// Factors of the scale before the first sweep and after the second.
__device__ __forceinline__ double before(double s) { return TRANSPOSED ? fabs(s) : s; }
__device__ __forceinline__ double behind(double s) { return TRANSPOSED ? s : fabs(s); }

__device__ __forceinline__ unsigned address_of(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }

// Coefficients on their way to the shared memory of one warp.
struct Coefficients {
    char* to;
    const char *lower, *upper;
    u64* full;
    unsigned of_lower, of_upper;  // bytes of a tile
#if __CUDA_ARCH__ >= 900
    __device__ void start() {
        if (threadIdx.x % 32 == 0) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(full)));
            asm volatile("fence.mbarrier_init.release.cluster;");
        }
        __syncwarp();
    }
    // Called by the whole warp when it no longer needs the present coefficients.
    __device__ void fetch(int tile) {
        __syncwarp();
        if (threadIdx.x % 32) return;
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(full)), "r"(of_lower + of_upper) : "memory");
        copy(to, lower + (size_t)tile * of_lower, of_lower);
        if (!SYMMETRIC) copy(to + of_lower, upper + (size_t)tile * of_upper, of_upper);
    }
    __device__ void copy(char* at, const char* from, unsigned bytes) {
        u64 policy;
        asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(address_of(at)),
                     "l"(from), "r"(bytes), "r"(address_of(full)), "l"(policy)
                     : "memory");
    }
    __device__ void wait(unsigned parity) {
        asm volatile(
            "{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(address_of(full)),
            "r"(parity)
            : "memory");
        __syncwarp();
    }
#else
    __device__ void start() {}
    __device__ void fetch(int tile) {
        __syncwarp();
        const char *const low = lower + (size_t)tile * of_lower, *const high = upper + (size_t)tile * of_upper;
        for (unsigned at = threadIdx.x % 32 * 16; at < of_lower + of_upper; at += 32 * 16)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(to + at)), "l"(at < of_lower ? low + at : high + (at - of_lower)));
    }
    __device__ void wait(unsigned) {
        asm volatile("cp.async.wait_all;" ::: "memory");
        __syncwarp();
    }
#endif
};

// A lane's walk over the cells of a tile in runs along x: every 32nd cell, one line after another. The same
// in every tile.
struct Walk {
    int line, at, lines, cells;
    __device__ __forceinline__ Walk(int lane, int lx) : line(lane / lx), at(lane % lx), lines(32 / lx), cells(32 % lx) {}
    __device__ __forceinline__ void next(int lx) {
        at += cells, line += lines;
        if (at >= lx) at -= lx, ++line;
    }
    // The cell's number in the box, or -1.
    __device__ __forceinline__ int cell(const Boxes& b, const Tile& tile) const {
        const Line l = tile.line(b, line);
        const bool inside = line < 32 & l.x + at < b.n[0] & l.y < b.n[1] & l.z < b.n[2];
        return inside ? l.x + at + b.n[0] * (l.y + b.n[1] * l.z) : -1;
    }
};

extern "C" __global__ void __launch_bounds__(32 * WARPS)
tile_solve(const int* halt, Boxes b, const VALUE* __restrict__ lower, const VALUE* __restrict__ upper, const double* __restrict__ r,
           double* __restrict__ z, double* scratch, unsigned* counter, Group* peers, double* first_sum, double* second_sum) {
    extern __shared__ __align__(128) char room[];
    __shared__ u64 barriers[WARPS];
    if (halt && *halt) return;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    #if LX
    // Known values are put where the compiler can use them.
    constexpr int TY = 1 << LOG_Y, TZ = 1 << LOG_Z, LINES = 32 / LX;
    static_assert(TY * TZ == 32 && 32 % LX == 0 && TY % LINES == 0, "a warp copies whole lines at a time");
    b.lx = LX, b.log_y = LOG_Y, b.log_z = LOG_Z, b.pitch = PITCH;
#endif
    const int lx = b.lx, ty = 1 << b.log_y;
    const unsigned of_lower = lx * LOWER * sizeof(VALUE), of_upper = SYMMETRIC ? 0 : lx * UPPER * sizeof(VALUE);
    char* const own = room + (size_t)warp * (of_lower + of_upper + 32 * 8 * b.pitch);
    double* const stage = (double*)(own + of_lower + of_upper);
    Coefficients coefficients = {own, (const char*)lower, (const char*)upper, barriers + warp, of_lower, of_upper};
    coefficients.start();
    const int stride = gridDim.x * warps;
    int t = blockIdx.x * warps + warp;
    if (t < b.tiles) coefficients.fetch(t);
    const int lag = (lane & (ty - 1)) + (lane >> b.log_y & ((1 << b.log_z) - 1));
    const int below_y = lane - 1 & 31, below_z = lane - ty & 31, above_y = lane + 1 & 31, above_z = lane + ty & 31;
    double* const mine = stage + lane * b.pitch - lag;  // mine[l]: the cell of step l
    const Walk from_first(lane, lx);
    const auto on = [&](int l) { return (unsigned)(l - lag) < (unsigned)lx; };
    unsigned parity = 0;
    double rr = 0, rz = 0;
    Tile tile(b, t);
    for (; t < b.tiles; t += stride, parity ^= 1) {
        Walk walk = from_first;
#if LX
        // Lines of a warp's run k start k * LINES lines after the lane's own.
        const bool inside = tile.x + LX <= b.n[0] && tile.y + TY <= b.n[1] && tile.z + TZ <= b.n[2];
        const int home = tile.x + walk.at + b.n[0] * (tile.y + walk.line + b.n[1] * tile.z);
        const auto place = [&](int k) { return home + b.n[0] * (k * LINES % TY + b.n[1] * (k * LINES / TY)); };
        double* const run = stage + walk.line * PITCH + walk.at;
        if (inside) {
#pragma unroll
            for (int k = 0; k < LX; ++k)
                asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(address_of(run + k * LINES * PITCH)), "l"(r + place(k)) : "memory");
        } else
#endif
#pragma unroll 4
        for (int k = 0; k < lx; ++k, walk.next(lx)) {
            const int i = walk.cell(b, tile);
            if (walk.line < 32)
                asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(address_of(stage + walk.line * b.pitch + walk.at)), "l"(r + max(i, 0)),
                             "r"(i >= 0 ? 8 : 0)
                             : "memory");
        }
        // Meanwhile the next tile's lines are prefetched to the cache.
        const Tile after(b, t + stride);
        if (t + stride < b.tiles) {
            const Line l = after.line(b, lane);
            if (l.x < b.n[0] && l.y < b.n[1] && l.z < b.n[2]) {
                const double* line = r + l.x + b.n[0] * (l.y + b.n[1] * l.z);
                const int cells = min(lx, b.n[0] - l.x);
                for (int k = 0; k < cells; k += 16) asm volatile("prefetch.global.L2 [%0];" ::"l"(line + k));
            }
        }
        asm volatile("cp.async.wait_all;" ::: "memory");
        coefficients.wait(parity);

#if LX
        // Known shape: every step is unrolled, and the numbers that the second sweep needs of the first stay
        // in registers. A lane that has no cell at a step reads others' numbers and holds zero.
        {
            constexpr int STEPS = LX + TY + TZ - 2, MOST_LAG = STEPS - LX;
            const auto has = [&](int l) { return (l >= MOST_LAG && l < LX) || on(l); };
            const VALUE *const scale_of = (const VALUE*)own + 96 + lane, *const low = (const VALUE*)(own + (TRANSPOSED ? of_lower : 0)) + lane;
            const auto cell = [&](int l) { return has(l) ? mine[l] : mine[lag]; };
            double solved[STEPS], scales[LX > 16 ? 1 : STEPS];
            double v = 0, value = cell(0), cx = low[0], cy = low[32], cz = low[64], s = scale_of[0];
#pragma unroll
            for (int l = 0; l < STEPS; ++l) {
                const VALUE* const c = low + (l + 1) % LX * FIRST;
                const double next_value = cell(l + 1 < STEPS ? l + 1 : l), next_x = c[0], next_y = c[32], next_z = c[64];
                const double next_s = scale_of[(l + 1) % LX * LOWER];
                const double from_y = __shfl_sync(ALL, v, below_y), from_z = __shfl_sync(ALL, v, below_z);
                v = fma(cz, from_z, fma(cy, from_y, fma(cx, v, before(s) * value)));
                if (!has(l)) v = 0;
                solved[l] = v;
                if (LX <= 16) scales[l] = s;
                if (DOTS == 2 && has(l)) rr = fma(value, value, rr);
                if (DOTS && SYMMETRIC) rz = fma(v, v, rz);
                value = next_value, cx = next_x, cy = next_y, cz = next_z, s = next_s;
            }
            const VALUE* const high = (const VALUE*)(own + (SECOND == LOWER ? 0 : of_lower));
            const VALUE *const high_x = high + lane, *const high_y = high + 32 + above_y, *const high_z = high + 64 + above_z;
            double u = 0;
            cx = high_x[STEPS % LX * SECOND], cy = high_y[STEPS % LX * SECOND], cz = high_z[STEPS % LX * SECOND];
#pragma unroll
            for (int l = STEPS - 1; l >= 0; --l) {
                const int above = l % LX * SECOND;
                const double next_x = high_x[above], next_y = high_y[above], next_z = high_z[above];
                const double from_y = __shfl_sync(ALL, u, above_y), from_z = __shfl_sync(ALL, u, above_z);
                u = fma(cz, from_z, fma(cy, from_y, fma(cx, u, solved[l])));
                if (!has(l)) u = 0;
                const double scale = LX <= 16 ? scales[l] : (double)scale_of[l % LX * LOWER];
                if (has(l)) mine[l] = behind(scale) * u;
                cx = next_x, cy = next_y, cz = next_z;
            }
        }
#else
        // Forward. Numbers of the next step are loaded from shared memory before this one's solution is
        // stored.
        {
            const VALUE *c = (const VALUE*)(own + (TRANSPOSED ? of_lower : 0)) + lane, *scale = (const VALUE*)own + 96 + lane;
            const VALUE* const end = c + lx * FIRST;
            const int steps = steps_of(b);
            double v = 0, value = 0, cx = 0, cy = 0, cz = 0, s = 0;
            if (on(0)) value = mine[0], cx = c[0], cy = c[32], cz = c[64], s = *scale;
#pragma unroll 2
            for (int l = 0; l < steps; ++l) {
                c += FIRST, scale += LOWER;
                if (c == end) c -= lx * FIRST, scale -= lx * LOWER;
                double next_value = 0, next_x = 0, next_y = 0, next_z = 0, next_s = 0;
                if (on(l + 1)) next_value = mine[l + 1], next_x = c[0], next_y = c[32], next_z = c[64], next_s = *scale;
                const double from_y = __shfl_sync(ALL, v, below_y), from_z = __shfl_sync(ALL, v, below_z);
                v = fma(cz, from_z, fma(cy, from_y, fma(cx, v, before(s) * value)));
                if (on(l)) mine[l] = v;
                if (DOTS == 2) rr = fma(value, value, rr);
                if (DOTS && SYMMETRIC) rz = fma(v, v, rz);  // zero where the lane has no cell
                value = next_value, cx = next_x, cy = next_y, cz = next_z, s = next_s;
            }
        }
        // Backward, with the coefficients of the cells above: they are in the next row, and zero beyond the
        // tile.
        {
            const int steps = steps_of(b), last = steps - 1;
            const VALUE* const of = (const VALUE*)(own + (SECOND == LOWER ? 0 : of_lower));
            const VALUE* const scale = (const VALUE*)own + 96 + lane;
            int row = last % lx, above = steps % lx;
            double u = 0, value = 0, cx = 0, cy = 0, cz = 0, s = 0;
            const auto load = [&](double& value, double& cx, double& cy, double& cz, double& s, int l) {
                const VALUE* const c = of + above * SECOND;
                value = mine[l], cx = c[lane], cy = c[32 + above_y], cz = c[64 + above_z], s = behind((double)scale[row * LOWER]);
            };
            if (on(last)) load(value, cx, cy, cz, s, last);
#pragma unroll 2
            for (int l = last; l >= 0; --l) {
                above = row;
                row = row == 0 ? lx - 1 : row - 1;
                double next_value = 0, next_x = 0, next_y = 0, next_z = 0, next_s = 0;
                if (on(l - 1)) load(next_value, next_x, next_y, next_z, next_s, l - 1);
                const double from_y = __shfl_sync(ALL, u, above_y), from_z = __shfl_sync(ALL, u, above_z);
                u = fma(cz, from_z, fma(cy, from_y, fma(cx, u, value)));
                if (on(l)) mine[l] = s * u;
                value = next_value, cx = next_x, cy = next_y, cz = next_z, s = next_s;
            }
        }
#endif
        if (t + stride < b.tiles) coefficients.fetch(t + stride);
        __syncwarp();

        walk = from_first;
#if LX
        if (inside) {
#pragma unroll
            for (int k = 0; k < LX; ++k) {
                const double out = run[k * LINES * PITCH];
                if (DOTS && !SYMMETRIC) rz = fma(r[place(k)], out, rz);
                z[place(k)] = out;
            }
        } else
#endif
#pragma unroll 1
        for (int k = 0; k < lx; k += AT_ONCE) {
            double out[AT_ONCE], in[AT_ONCE];
            int to[AT_ONCE];
#pragma unroll
            for (int u = 0; u < AT_ONCE; ++u, walk.next(lx)) {
                to[u] = walk.cell(b, tile);
                if (to[u] >= 0) out[u] = stage[walk.line * b.pitch + walk.at];
                if (DOTS && !SYMMETRIC) in[u] = to[u] >= 0 ? r[to[u]] : 0.0;
            }
#pragma unroll
            for (int u = 0; u < AT_ONCE; ++u)
                if (to[u] >= 0) {
                    z[to[u]] = out[u];
                    if (DOTS && !SYMMETRIC) rz = fma(in[u], out[u], rz);
                }
        }
        __syncwarp();
        tile = after;
    }
#if DOTS
    __shared__ double part[2][WARPS];
    __shared__ bool is_last;
    constexpr int SUMS = DOTS;
    double sums[2] = {DOTS == 2 ? rr : rz, rz};
    double* const places[2] = {first_sum, second_sum};
    for (int k = 0; k < SUMS; ++k) {
        for (int bit = 16; bit; bit /= 2) sums[k] += __shfl_xor_sync(ALL, sums[k], bit);
        if (lane == 0) part[k][warp] = sums[k];
    }
    __syncthreads();
    if (threadIdx.x < SUMS) {
        double sum = 0;
        for (int i = 0; i < warps; ++i) sum += part[threadIdx.x][i];
        scratch[threadIdx.x * gridDim.x + blockIdx.x] = sum;
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) is_last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!is_last) return;
    __threadfence();
    for (int k = warp; k < SUMS; k += warps) {
        Round round = {};
        if (peers) round = open_round(peers);
        double sum = 0;
        for (int i = lane; i < gridDim.x; i += 32) sum += __ldcg(scratch + k * gridDim.x + i);
        for (int bit = 16; bit; bit /= 2) sum += __shfl_xor_sync(ALL, sum, bit);
        if (peers && lane < 8) post(round, k, sum);
        if (lane == 0) *places[k] = peers ? collect(peers, round, k) : sum;
    }
    if (peers) close_round(peers);
#endif
}
