// combine: the update that follows project, in one pass over the basis.
//
// RHS == 2 (delayed CGS2), from sums = [ r (k) | t (k) | w'w, w'z, z'z ] of project:
//     rho = sqrt(w'w - r'r)           q = (w - V r) / rho            -> basis column k, rounded to VALUE
//     t_k = (w'z - r't) / rho         w = (z - V t - q t_k) / rho    (q as stored)
//   If w'w - r'r <= 0 (breakdown) q and w become 0; a NaN spreads.
// RHS == 1:  x += alpha * *scale * (the sum of c_j V_j over k0 <= j < min(k1, *cols)),  c_j = c[j - k0]
//   CGS2, MGS: x = w, alpha = -1.  Solution: k0 = 0, alpha = 1.  cols and scale may be null.
//
// Macros (defaults tuned on an H200):
//   VALUE    double | float   type in which the basis is stored; all arithmetic is in double
//   RHS      2 | 1            see above
//   COMBINE                   name of the kernel
//   WARPS                     warps per block; BLOCKS resident blocks per multiprocessor, for the registers
//   WIDTH    power of two     columns a lane loads at once (of fewer columns it loads more rows)
//   SMALL_STEP                the last block runs a small step (step.cuh) beside the others; needs
//                             gridDim.x >= 2. *halt == k + 2 says that this very step k halts later work:
//                             blocks of this launch that start after it must still finish column k
//
// Arguments: V and its columns, w and z are 16-byte aligned; rows >= n are neither read nor written.
// Dynamic shared memory: RHS * 8 * max(1, k rounded up to WIDTH) bytes.  No scratch, no counters.
//
// Bytes moved: (k + 1)*n*sizeof(VALUE) + 24*n (RHS == 2), k*n*sizeof(VALUE) + 16*n (RHS == 1).
//
// Mapping. A row's result needs only the columns of that row, so a warp processes whole tiles of 512 bytes,
// with the coefficients in shared memory, one broadcast per column. As in project, a block owns a contiguous
// range. It processes the range from its end, because the data that project read last is still in L2.
//
// Programmatic dependent launch (optional): V, w, z, cols and *halt must be complete before the previous
// kernel starts (project satisfies this). Only the coefficients (sums; c, scale) may be late: the kernel
// waits for them after its first loads.

#ifndef VALUE
#define VALUE double
#endif
#ifndef RHS
#define RHS 2
#endif
#ifndef COMBINE
#define COMBINE combine
#endif
#ifndef WARPS
#define WARPS 8
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef WIDTH
#define WIDTH 8
#endif

typedef unsigned long long Policy;

constexpr int PACK = 16 / sizeof(VALUE), TILE = 32 * PACK;   // rows of a lane's load, and of a warp's

// Scalars computed from the inner products; the same bits in every block.
struct Scalars {
    double rho, inverse, tk;
};

#ifdef SMALL_STEP
#include "step.cuh"
#endif

// Under programmatic dependent launch only: before this call the previous kernel may still be running.
__device__ __forceinline__ void wait_for_predecessor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait; griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Loads 16 bytes, or zeros if !wanted, without a branch, so that all of a warp's loads can be in flight.
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
__device__ __forceinline__ void store(double* p, const double (&v)[2]) {
    __stcs(reinterpret_cast<double2*>(p), make_double2(v[0], v[1]));
}
__device__ __forceinline__ void store(float* p, const float (&v)[4]) {
    __stcs(reinterpret_cast<float4*>(p), make_float4(v[0], v[1], v[2], v[3]));
}

// RHS == 2: (s, u) = (w - V r, z - V t) becomes (q as stored, next w).
__device__ __forceinline__ VALUE finish(double s, double& u, const Scalars& f) {
    const VALUE q = VALUE(s * f.inverse);
    u = (u - double(q) * f.tk) * f.inverse;
    return q;
}

// Processes tiles first, first - WARPS, ... >= begin, U at a time and W columns at a time. `prepare` fills
// `coef` and contains a barrier, so every warp makes at least one round; it runs while the first loads are in
// flight.
template <int W, int U, class Prepare>
__device__ __forceinline__ Scalars sweep(const VALUE* V, VALUE* q, long long ld, int k, const double* coef,
                                         const double* z, double* w, int begin, int first, Prepare prepare) {
    const int at = (threadIdx.x & 31) * PACK;
    Policy once;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(once));
    Scalars scalars;
    int tile = first;
    do {
        double s[U][PACK], t[U][PACK];
#pragma unroll
        for (int u = 0; u < U; ++u) {
            const long long row = (long long)(tile - u * WARPS) * TILE + at;
            const bool own = tile - u * WARPS >= begin;
#pragma unroll
            for (int i = 0; i < PACK; i += 2) {
                double2 x = {}, y = {};
                if (own) x = *reinterpret_cast<const double2*>(w + row + i);
                if (own && RHS == 2) y = __ldcs(reinterpret_cast<const double2*>(z + row + i));
                s[u][i] = x.x, s[u][i + 1] = x.y, t[u][i] = y.x, t[u][i + 1] = y.y;
            }
        }
        int base = 0;
        do {
            VALUE v[U][W][PACK];
#pragma unroll
            for (int c = 0; c < W; ++c)
#pragma unroll
                for (int u = 0; u < U; ++u)
                    load(V + (base + c) * ld + (long long)(tile - u * WARPS) * TILE + at,
                         base + c < k && tile - u * WARPS >= begin, once, v[u][c]);
            if (base == 0 && tile == first) scalars = prepare();
#pragma unroll
            for (int c = 0; c < W; ++c) {
                const double r = coef[RHS * (base + c)], h = coef[RHS * (base + c) + RHS - 1];
#pragma unroll
                for (int u = 0; u < U; ++u)
#pragma unroll
                    for (int i = 0; i < PACK; ++i) {
                        s[u][i] = fma(-r, double(v[u][c][i]), s[u][i]);
                        if (RHS == 2) t[u][i] = fma(-h, double(v[u][c][i]), t[u][i]);
                    }
            }
        } while ((base += W) < k);
#pragma unroll
        for (int u = 0; u < U; ++u) {
            if (tile - u * WARPS < begin) break;
            const long long row = (long long)(tile - u * WARPS) * TILE + at;
            VALUE x[PACK];
#pragma unroll
            for (int i = 0; i < PACK; ++i)
                if (RHS == 2) x[i] = finish(s[u][i], t[u][i], scalars);
            if (RHS == 2) store(q + row, x);
            const auto& result = RHS == 2 ? t[u] : s[u];
#pragma unroll
            for (int i = 0; i < PACK; i += 2)
                *reinterpret_cast<double2*>(w + row + i) = make_double2(result[i], result[i + 1]);
        }
    } while ((tile -= U * WARPS) >= begin);
    return scalars;
}

#if RHS == 2
#define HERE (k + 2)
#ifndef SMALL_STEP
struct MethodScalars;
#endif
#define ARGUMENTS const int *halt, VALUE *V, long long ld, int n, int k, const double *sums, const double *z, \
                  double *w, MethodScalars *state
#else
#define HERE 0
#define ARGUMENTS const int *halt, const VALUE *V, long long ld, int n, int k0, int k1, const int *cols, \
                  const double *c, double alpha, const double *scale, double *w
#endif

extern "C" __global__ void __launch_bounds__(WARPS * 32, BLOCKS) COMBINE(ARGUMENTS) {
    const int halted = halt ? *halt : 0;
    if (halted && (RHS == 1 || halted != HERE)) return wait_for_predecessor();
    extern __shared__ __align__(16) double coef[];
#if RHS == 2
    VALUE* q = V + k * ld;
    auto prepare = [&] {
        wait_for_predecessor();
        const double ww = sums[2 * k], wz = sums[2 * k + 1];
        const int padded = max(1, (k + WIDTH - 1) / WIDTH) * WIDTH;
        for (int j = threadIdx.x; j < padded; j += WARPS * 32) {
            coef[2 * j] = j < k ? sums[j] : 0;
            coef[2 * j + 1] = j < k ? sums[k + j] : 0;
        }
        __syncthreads();
        // Each warp computes this itself, in the same order, which is cheaper than a second barrier.
        double rr = 0, rt = 0;
        for (int j = threadIdx.x & 31; j < k; j += 32) {
            rr = fma(coef[2 * j], coef[2 * j], rr);
            rt = fma(coef[2 * j], coef[2 * j + 1], rt);
        }
        for (int bit = 16; bit; bit /= 2) {
            rr += __shfl_xor_sync(~0u, rr, bit);
            rt += __shfl_xor_sync(~0u, rt, bit);
        }
        Scalars f;
        const double square = ww - rr;
        f.rho = square > 0 || square != square ? sqrt(square) : 0;
        f.inverse = f.rho == 0 ? 0 : 1 / f.rho;
        f.tk = (wz - rt) * f.inverse;
        return f;
    };
#else
    VALUE* q = nullptr;
    const double* z = nullptr;
    if (cols) k1 = min(k1, *cols);
    const int k = max(k1 - k0, 0);
    V += k0 * ld;
    auto prepare = [&] {
        wait_for_predecessor();
        const double factor = scale ? -alpha * *scale : -alpha;
        const int padded = max(1, (k + WIDTH - 1) / WIDTH) * WIDTH;
        for (int j = threadIdx.x; j < padded; j += WARPS * 32) coef[j] = j < k ? factor * c[j] : 0;
        __syncthreads();
        return Scalars{};
    };
#endif

    int workers = gridDim.x;
#ifdef SMALL_STEP
    workers -= 1;
    if (blockIdx.x == workers) {
        prepare();
        small_step(state, k);
        return;
    }
#endif
    const int tiles = n / TILE;
    const int begin = (long long)tiles * blockIdx.x / workers, end = (long long)tiles * (blockIdx.x + 1) / workers;
    const int first = end - 1 - (int)threadIdx.x / 32;
    Scalars scalars;
    if (k <= WIDTH / 4)
        scalars = sweep<WIDTH / 4, PACK == 2 ? 4 : 2>(V, q, ld, k, coef, z, w, begin, first, prepare);
    else if (k <= WIDTH / 2)
        scalars = sweep<WIDTH / 2, 2>(V, q, ld, k, coef, z, w, begin, first, prepare);
    else
        scalars = sweep<WIDTH, 1>(V, q, ld, k, coef, z, w, begin, first, prepare);

    // The rows after the last whole tile, one per thread: padding is neither read nor written.
    const int row = tiles * TILE + threadIdx.x;
    if (blockIdx.x != workers - 1 || row >= n) return;
    double s = w[row], t = RHS == 2 ? z[row] : 0;
#pragma unroll 8
    for (int j = 0; j < k; ++j) {
        const double v = V[j * ld + row];
        s = fma(-coef[RHS * j], v, s);
        t = fma(-coef[RHS * j + RHS - 1], v, t);
    }
    if (RHS == 2) q[row] = finish(s, t, scalars);
    w[row] = RHS == 2 ? t : s;
}
