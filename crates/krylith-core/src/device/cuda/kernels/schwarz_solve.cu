// schwarz_solve: triangular solves with the incomplete factors of Schwarz's subdomains, exact, Jacobi or randomized.
//
//   schwarz_split    columns of both triangles from the pattern S
//   schwarz_pack     values of both triangles from the factors
//   schwarz_exact    substitution, four rows a warp                             bytes: see below, once
//   schwarz_exact_rows  the same, one row a warp: where runs of four have more levels than rows    once
//   schwarz_random   Alg. 3, `sweeps` times in place, whatever values are there    once
//   schwarz_ordered  the same one sweep, with the values of the sweep before outside a warp's rows     once a sweep
//   schwarz_jacobi   Alg. 2, one sweep                                              once a sweep
//
// Macros: those of schwarz.cuh, VALUE (double or float as stored; arithmetic is in double), WARPS.
// Bytes it must move: of each block of both triangles its values and 4 for its column; of each row 8 for its beginning, the inverse of its
// diagonal, 8 b for w and 8 b for v in each triangle, 16 b for w and v of the second one, 4 + 8 b for the result. Neighbours' numbers
// come from the second-level cache.
//
// Both triangles are solved by the same kernel: v_i = w_i - sum_j A_ij v_j over j < i, rows ascending. The lower one is L - I with w = r.
// The upper one is stored as inv(D) (U - D) with its rows and columns numbered from the end, w = inv(D) y: the same recurrence as
// z_i = inv(D_i) (y_i - sum_j U_ij z_j), and D is needed once, at the end of the lower one.
//
// A warp has a run of consecutive rows, LANES lanes a row, 32 / LANES rows at a time. What their sums take from outside these rows comes first:
// lanes go along the scalar columns, b numbers each (blocks are stored by columns), all loads at once. What couples
// these rows among themselves follows row after row through shuffles. The first numbers of each lane stay in registers from sweep to
// sweep, the rest comes again from the first-level cache, so however many sweeps there are the factors are read once from memory.
// Blocks of threads begin in ascending order, so what lower rows hold is as a rule final when higher ones begin.
//
// Exact: v begins as `unset`, and a warp looks until what it needs is set. Warps take their rows by ticket, in the order of levels: what
// is waited for has been taken before by a warp that runs, so every wait ends; a time limit ends it too, and leaves NaN.

#include "schwarz.cuh"

constexpr int THREADS = 32 * WARPS;

// One triangle and what is done with it; the twin of `Sweep` in device/cuda/schwarz/solve.rs.
struct Sweep {
    const int* halt;
    int rows, most;            // rows of all subdomains; most rows of a warp
    int count;                 // runs of rows, one a warp
    int sweeps, last;          // last: what follows the sweeps is done
    int unused;
    const unsigned* runs;      // first row of each, and one more; exact: numbers of runs of `most` rows in the order of levels
    const i64* begin;          // first block of each row, and one more
    const unsigned* column;
    const VALUE* value;        // blocks by columns
    const double* w;
    const double* from;        // the sweep before; null where sweeps are in place
    double* v;
    unsigned* ticket;          // exact
    u64 limit;
    const VALUE* inverse;      // of the lower triangle: of the diagonal, by columns
    double *next_w, *next_v;   // the upper one's w, and v unless null
    const unsigned* target;    // of the upper one: own node of each row, or NONE
    double* out;
};

enum Mode { EXACT, RANDOM, ORDERED, JACOBI };

constexpr int P = B == 1 ? 1 : B == 2 ? 2 : B <= 4 ? 4 : 8;  // components of a row, padded

// Sums over the LANES lanes of a row; each lane gets the one of component lane % P.
template <int LANES>
__device__ __forceinline__ double fold(double* sum, int lane) {
#pragma unroll
    for (int h = P / 2; h > 0; h /= 2) {
        const bool upper = lane & h;
#pragma unroll
        for (int k = 0; k < h; ++k) {
            const double send = upper ? sum[k] : sum[k + h], keep = upper ? sum[k + h] : sum[k];
            sum[k] = keep + __shfl_xor_sync(ALL, send, h);
        }
    }
    double total = sum[0];
#pragma unroll
    for (int d = P; d < LANES; d *= 2) total += __shfl_xor_sync(ALL, total, d);
    return total;
}

// What was looked at, once it is set.
__device__ __forceinline__ double settled(const double* at, double value, u64 limit) {
    unsigned looks = 0;
    u64 since = 0;
    while (is_unset(value)) {
        if (too_long(looks, since, limit)) return not_a_number();
        value = peek(at);
    }
    return value;
}

template <int MODE, int LANES>
__device__ __forceinline__ void triangle(const Sweep& s) {
    constexpr int AT_ONCE = 32 / LANES, KEPT = LANES == 4 ? 3 : 2, BATCH = 4;
    if (s.halt && *s.halt) return;
    const int lane = threadIdx.x % 32, group = lane / LANES, own = lane % LANES, r = min(own % P, B - 1);
    i64 warp;
    if (MODE == EXACT) {
        __shared__ unsigned ticket;
        if (threadIdx.x == 0) ticket = atomicAdd(s.ticket, 1u);
        __syncthreads();
        warp = (i64)ticket * WARPS + threadIdx.x / 32;
    } else {
        warp = (i64)blockIdx.x * WARPS + threadIdx.x / 32;
    }
    if (warp >= s.count) return;
    const int first = (int)s.runs[warp] * (MODE == EXACT ? s.most : 1);
    const int end = MODE == EXACT ? min(s.rows, first + s.most) : (int)s.runs[warp + 1];
    const bool single = s.most <= AT_ONCE;
    const int first_number = first * B;

    auto read = [&](int place) {
        if (MODE == JACOBI) return s.from[place];
        if (MODE == ORDERED && place < first_number) return s.from[place];
        return peek(s.v + place);
    };

    // Of the rows at hand; kept over all sweeps where a warp has no others.
    int blocks = 0, outside = 0;      // of the group's row, and scalar columns of those from outside
    unsigned inside = 0, steps = 0;   // which rows at hand it needs, and which are needed at all
    const unsigned* columns = s.column;
    const VALUE* a = s.value;
    int place[KEPT];
    double kept[KEPT][B], nearest[B], w = 0;

    for (int sweep = 0; sweep < s.sweeps; ++sweep) {
        for (int at = first; at < end; at += AT_ONCE) {
            const bool on = at + group < end;
            const int i = on ? at + group : at;
            if (sweep == 0 || !single) {
                const i64 begin = s.begin[i];
                blocks = on ? (int)(s.begin[i + 1] - begin) : 0;
                columns = s.column + begin;
                a = s.value + begin * E;
                inside = 0;
                if (MODE != JACOBI) {
                    for (int o = own; o < AT_ONCE - 1; o += LANES) {
                        if (o >= blocks) continue;
                        const int column = (int)columns[blocks - 1 - o];
                        if (column >= at) inside |= 1u << (column - at);
                    }
#pragma unroll
                    for (int d = 1; d < LANES; d *= 2) inside |= __shfl_xor_sync(ALL, inside, d);
                }
                steps = inside;
#pragma unroll
                for (int d = LANES; d < 32; d *= 2) steps |= __shfl_xor_sync(ALL, steps, d);
                const int before = blocks - __popc(inside);
                outside = before * B;
#pragma unroll
                for (int t = 0; t < KEPT; ++t) {
                    const int q = own + t * LANES;
                    place[t] = q < outside ? (int)columns[q / B] * B + q % B : -1;
#pragma unroll
                    for (int k = 0; k < B; ++k) kept[t][k] = q < outside ? (double)a[q * B + k] : 0;
                }
#pragma unroll
                for (int c = 0; c < B; ++c) nearest[c] = inside ? (double)a[(before * B + c) * B + r] : 0;
                w = s.w[(i64)i * B + r];
            }

            double sum[P];
#pragma unroll
            for (int k = 0; k < P; ++k) sum[k] = 0;
            double x[BATCH > KEPT ? BATCH : KEPT];
#pragma unroll
            for (int t = 0; t < KEPT; ++t) x[t] = place[t] >= 0 ? read(place[t]) : 0;
#pragma unroll
            for (int t = 0; t < KEPT; ++t) {
                if (MODE == EXACT && place[t] >= 0) x[t] = settled(s.v + place[t], x[t], s.limit);
#pragma unroll
                for (int k = 0; k < B; ++k) sum[k] = fma(kept[t][k], x[t], sum[k]);
            }
            for (int q = own + KEPT * LANES; q < outside; q += BATCH * LANES) {
                int from[BATCH];
#pragma unroll
                for (int u = 0; u < BATCH; ++u) {
                    const int p = q + u * LANES;
                    from[u] = p < outside ? (int)columns[p / B] * B + p % B : -1;
                }
#pragma unroll
                for (int u = 0; u < BATCH; ++u) x[u] = from[u] >= 0 ? read(from[u]) : 0;
#pragma unroll
                for (int u = 0; u < BATCH; ++u) {
                    if (from[u] < 0) continue;
                    if (MODE == EXACT) x[u] = settled(s.v + from[u], x[u], s.limit);
                    const VALUE* block = a + (q + u * LANES) * B;
#pragma unroll
                    for (int k = 0; k < B; ++k) sum[k] = fma((double)block[k], x[u], sum[k]);
                }
            }
            __syncwarp();
            double v = w - fold<LANES>(sum, own);

            for (unsigned left = steps; left; left &= left - 1) {
                const int j = __ffs(left) - 1;
                double other[B];
#pragma unroll
                for (int c = 0; c < B; ++c) other[c] = __shfl_sync(ALL, v, j * LANES + c);
                if (!(inside >> j & 1)) continue;
                const int skipped = __popc(inside & ((1u << j) - 1));
                if (skipped == 0) {
#pragma unroll
                    for (int c = 0; c < B; ++c) v = fma(-nearest[c], other[c], v);
                } else {
                    const VALUE* block = a + outside * B + skipped * E + r;
#pragma unroll
                    for (int c = 0; c < B; ++c) v = fma(-(double)block[c * B], other[c], v);
                }
            }
            __syncwarp();
            if (on && own < B) put(s.v + (i64)i * B + own, v);

            if (s.last && sweep + 1 == s.sweeps) {
                if (s.inverse) {
                    double z = 0;
                    const VALUE* inverse = s.inverse + (i64)i * E + r;
#pragma unroll
                    for (int c = 0; c < B; ++c) z = fma((double)inverse[c * B], __shfl_sync(ALL, v, group * LANES + c), z);
                    if (on && own < B) {
                        const i64 to = (i64)(s.rows - 1 - i) * B + own;
                        s.next_w[to] = z;
                        if (s.next_v) s.next_v[to] = MODE == EXACT ? unset() : z;
                    }
                } else if (on && own < B) {
                    const unsigned target = s.target[i];
                    if (target != NONE) s.out[(i64)target * B + own] = v;
                }
            }
            __syncwarp();
        }
    }
}

constexpr int NARROW = B <= 4 ? 4 : 8;
extern "C" __global__ void __launch_bounds__(THREADS) schwarz_exact(const Sweep s) { triangle<EXACT, 8>(s); }
extern "C" __global__ void __launch_bounds__(THREADS) schwarz_exact_rows(const Sweep s) { triangle<EXACT, 32>(s); }
extern "C" __global__ void __launch_bounds__(THREADS) schwarz_random(const Sweep s) { triangle<RANDOM, NARROW>(s); }
extern "C" __global__ void __launch_bounds__(THREADS) schwarz_ordered(const Sweep s) { triangle<ORDERED, NARROW>(s); }
extern "C" __global__ void __launch_bounds__(THREADS) schwarz_jacobi(const Sweep s) { triangle<JACOBI, NARROW>(s); }

// Columns of both triangles; a warp a row. The upper one's rows and columns are numbered from the end.
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_split(int rows, const i64* __restrict__ row_ptr, const unsigned* __restrict__ column, const i64* __restrict__ diagonal,
              const i64* __restrict__ lower_begin, const i64* __restrict__ upper_begin, unsigned* __restrict__ lower, unsigned* __restrict__ upper) {
    const int lane = threadIdx.x % 32;
    for (i64 i = blockIdx.x * (i64)WARPS + threadIdx.x / 32; i < rows; i += (i64)gridDim.x * WARPS) {
        const i64 begin = row_ptr[i], middle = diagonal[i], past = row_ptr[i + 1];
        const i64 to_lower = lower_begin[i], to_upper = upper_begin[rows - i] - 1;  // the upper one's last block of the row
        for (i64 p = begin + lane; p < middle; p += 32) lower[to_lower + (p - begin)] = column[p];
        for (i64 p = middle + 1 + lane; p < past; p += 32) upper[to_upper - (p - middle - 1)] = (unsigned)rows - 1 - column[p];
    }
}

// Factors (row-major blocks in the order of S) to both triangles and the inverted diagonal, by columns. *faulty: set where a number is not finite.
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_pack(int rows, const i64* __restrict__ row_ptr, const i64* __restrict__ diagonal, const i64* __restrict__ lower_begin,
             const i64* __restrict__ upper_begin, const double* __restrict__ factors, const double* __restrict__ inverses,
             VALUE* __restrict__ lower, VALUE* __restrict__ inverse, VALUE* __restrict__ upper, unsigned* faulty) {
    const int lane = threadIdx.x % 32;
    bool finite = true;
    for (i64 i = blockIdx.x * (i64)WARPS + threadIdx.x / 32; i < rows; i += (i64)gridDim.x * WARPS) {
        const i64 begin = row_ptr[i], middle = diagonal[i], past = row_ptr[i + 1];
        const double* d = inverses + i * E;
        auto store = [&](VALUE* to, double value) {
            const VALUE narrow = (VALUE)value;
            finite &= isfinite(narrow);
            *to = narrow;
        };
        for (int e = lane; e < E; e += 32) {
            store(inverse + i * E + e, d[e % B * B + e / B]);
            finite &= isfinite(factors[middle * E + e]);
        }
        VALUE* to = lower + lower_begin[i] * E;
        for (i64 t = lane; t < (middle - begin) * E; t += 32) {
            const int e = (int)(t % E);
            store(to + t, factors[(begin + t / E) * E + e % B * B + e / B]);
        }
        to = upper + (upper_begin[rows - i] - 1) * E;
        for (i64 t = lane; t < (past - middle - 1) * E; t += 32) {
            const i64 p = t / E;
            const int e = (int)(t % E), row = e % B, c = e / B;
            const double* u = factors + (middle + 1 + p) * E;
            double value = 0;
#pragma unroll
            for (int m = 0; m < B; ++m) {
                finite &= isfinite(u[m * B + c]);
                value = fma(d[row * B + m], u[m * B + c], value);
            }
            store(to - p * E + e, value);
        }
    }
    if (!finite) *faulty = 1;
}
