// schwarz_solve: triangular solves with the incomplete factors of Schwarz's subdomains, exact, Jacobi or
// randomized.
//
//   schwarz_split    columns of both triangles from the pattern S
//   schwarz_range    smallest and largest exponent of the rows of inv(D); bytes: inv(D) once
//   schwarz_near     columns as distances of 16 bits; bytes: 6 per block
//   schwarz_pack     values of both triangles from the factors
//   schwarz_turn     values of a triangle of the transpose from those of the other one of M
//   schwarz_reverse, schwarz_reverse_begins  pattern of that triangle, counted from the other end
//   schwarz_exact    substitution, four rows per warp; bytes: see below, once
//   schwarz_exact_rows  the same, one row per warp: where runs of four have more levels than rows;
//                   bytes: once
//   schwarz_random   Alg. 3, `sweeps` times in place, from the present values; bytes: once
//   schwarz_ordered  the same, one sweep, with the values of the previous sweep outside a warp's rows;
//                    bytes: once per sweep
//   schwarz_jacobi   Alg. 2, one sweep; bytes: once per sweep
//
// Macros: those of schwarz.cuh, VALUE (double or float as stored), WARPS, NEAR (1: solves read columns as
// distances of 16 bits, 0: as numbers of 32 bits). Arithmetic is in REAL.
// Bytes moved at least, with R bytes for a number of REAL: for each block of both triangles its values and 2
// or 4 for its column; for each row 8 for its row pointer, the inverse of its diagonal, R b for w and R b for
// v in each triangle, 2 R b for w and v of the second one, 4 + 8 b for the result. Neighbours' numbers come
// from the second-level cache.
//
// Both triangles are solved by the same kernel: v_i = w_i - sum_j A_ij v_j over j < i, rows ascending. The
// lower one is L - I with w = r. The upper one is stored as inv(D) (U - D) with its rows and columns numbered
// from the end, and w = inv(D) y. This is the same recurrence as z_i = inv(D_i) (y_i - sum_j U_ij z_j), and D
// is needed once, at the end of the lower one.
//
// A warp processes a run of consecutive rows, with LANES lanes per row and 32 / LANES rows at a time.
// Contributions from outside these rows come first: lanes go along the scalar columns, b numbers each (blocks
// are stored by columns), with all loads at once. Couplings among these rows follow row after row through
// shuffles. The first numbers of each lane stay in registers from sweep to sweep, and the rest is read again
// from the first-level cache. The factors are therefore read from memory once for any number of sweeps.
// Thread blocks start in ascending order, so lower rows usually have their final values when higher ones
// start.
//
// With REAL as float, inv(D) is divided by the power of two around which its numbers lie, and results are
// multiplied by it.
//
// Exact: v starts as `unset`, and a warp polls until the numbers that it needs are set. Warps take their rows
// by ticket, in the order of levels. Each awaited row was thus taken earlier by a running warp, so every wait
// ends; a time limit ends it too, and leaves NaN.
//
// The transpose has two triangles of the same form: (inv(D) (U - D))^T with inv(D)^T after it, and (L - I)^T
// from the end. Each is the transpose of the other stored triangle, counted from its other end. Its levels
// are those of that triangle, last one first. So the first run of rows may begin before row 0, by `skipped`
// rows. Results stay in v.

#include "schwarz.cuh"

constexpr int THREADS = 32 * WARPS;

#if NEAR
typedef unsigned short Column;
#else
typedef unsigned Column;
#endif
// The column of a block of row i. Both triangles have all columns before their rows.
__device__ __forceinline__ int column_of(const Column* columns, int k, int i) { return NEAR ? i - 1 - (int)columns[k] : (int)columns[k]; }

// One triangle and its operation; mirrors `Sweep` in device/cuda/schwarz/solve.rs.
struct Sweep {
    const int* halt;
    int rows, most;            // number of rows of all subdomains; most rows per warp
    int count;                 // runs of rows, one per warp
    int sweeps, last;          // last: the work after the sweeps is done
    int skipped;               // exact: rows before row 0 that the first run of `most` rows has
    // first row of each, and one more; exact: numbers of runs of `most` rows in the order of levels
    const unsigned* runs;
    const i64* begin;          // first block of each row, and one more
    const Column* column;
    const VALUE* value;        // blocks by columns
    const REAL* w;
    const REAL* from;          // the previous sweep; null if sweeps are in place
    REAL* v;
    unsigned* ticket;          // exact
    u64 limit;
    const VALUE* inverse;      // of the lower triangle: inverse of the diagonal, by columns
    REAL *next_w, *next_v;     // w of the upper triangle, and its v unless null
    const unsigned* target;    // of the upper triangle of M: own node of each row, or NONE
    double* out;
    const Scale* scale;        // of vectors in f32
};

enum Mode { EXACT, RANDOM, ORDERED, JACOBI };

constexpr int P = B == 1 ? 1 : B == 2 ? 2 : B <= 4 ? 4 : 8;  // components of a row, padded

// Sums over the LANES lanes of a row; each lane gets the one of component lane % P.
template <int LANES>
__device__ __forceinline__ REAL fold(REAL* sum, int lane) {
#pragma unroll
    for (int h = P / 2; h > 0; h /= 2) {
        const bool upper = lane & h;
#pragma unroll
        for (int k = 0; k < h; ++k) {
            const REAL send = upper ? sum[k] : sum[k + h], keep = upper ? sum[k + h] : sum[k];
            sum[k] = keep + __shfl_xor_sync(ALL, send, h);
        }
    }
    REAL total = sum[0];
#pragma unroll
    for (int d = P; d < LANES; d *= 2) total += __shfl_xor_sync(ALL, total, d);
    return total;
}

// Waits until a number is set, and returns it.
__device__ __forceinline__ REAL settled(const REAL* at, REAL value, u64 limit) {
    unsigned looks = 0;
    u64 since = 0;
    while (is_unset(value)) {
        if (too_long(looks, since, limit)) return (REAL)not_a_number();
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
    const int run = (int)s.runs[warp], start = run * s.most - s.skipped;
    const int first = MODE == EXACT ? max(0, start) : run;
    const int end = MODE == EXACT ? min(s.rows, start + s.most) : (int)s.runs[warp + 1];
    const bool single = s.most <= AT_ONCE;
    const int first_number = first * B;
    const int result = SCALED && s.out ? s.scale->result : 0;

    auto read = [&](int place) {
        if (MODE == JACOBI) return s.from[place];
        if (MODE == ORDERED && place < first_number) return s.from[place];
        return peek(s.v + place);
    };

    // Data of the present rows; kept over all sweeps if the warp has no other rows.
    int blocks = 0, outside = 0;      // of the group's row; number of its scalar columns from outside
    unsigned inside = 0, steps = 0;   // the present rows that it needs, and all that are needed
    const Column* columns = s.column;
    const VALUE* a = s.value;
    int place[KEPT];
    REAL kept[KEPT][B], nearest[B], w = 0;

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
                        const int column = column_of(columns, blocks - 1 - o, i);
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
                    place[t] = q < outside ? column_of(columns, q / B, i) * B + q % B : -1;
#pragma unroll
                    for (int k = 0; k < B; ++k) kept[t][k] = q < outside ? (REAL)a[q * B + k] : 0;
                }
#pragma unroll
                for (int c = 0; c < B; ++c) nearest[c] = inside ? (REAL)a[(before * B + c) * B + r] : 0;
                w = s.w[(i64)i * B + r];
            }

            REAL sum[P];
#pragma unroll
            for (int k = 0; k < P; ++k) sum[k] = 0;
            REAL x[BATCH > KEPT ? BATCH : KEPT];
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
                    from[u] = p < outside ? column_of(columns, p / B, i) * B + p % B : -1;
                }
#pragma unroll
                for (int u = 0; u < BATCH; ++u) x[u] = from[u] >= 0 ? read(from[u]) : 0;
#pragma unroll
                for (int u = 0; u < BATCH; ++u) {
                    if (from[u] < 0) continue;
                    if (MODE == EXACT) x[u] = settled(s.v + from[u], x[u], s.limit);
                    const VALUE* block = a + (q + u * LANES) * B;
#pragma unroll
                    for (int k = 0; k < B; ++k) sum[k] = fma((REAL)block[k], x[u], sum[k]);
                }
            }
            __syncwarp();
            REAL v = w - fold<LANES>(sum, own);

            for (unsigned left = steps; left; left &= left - 1) {
                const int j = __ffs(left) - 1;
                REAL other[B];
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
                    for (int c = 0; c < B; ++c) v = fma(-(REAL)block[c * B], other[c], v);
                }
            }
            __syncwarp();
            if (on && own < B) put(s.v + (i64)i * B + own, v);

            if (s.last && sweep + 1 == s.sweeps) {
                if (s.inverse) {
                    REAL z = 0;
                    const VALUE* inverse = s.inverse + (i64)i * E + r;
#pragma unroll
                    for (int c = 0; c < B; ++c) z = fma((REAL)inverse[c * B], __shfl_sync(ALL, v, group * LANES + c), z);
                    if (on && own < B) {
                        const i64 to = (i64)(s.rows - 1 - i) * B + own;
                        s.next_w[to] = z;
                        if (s.next_v) s.next_v[to] = MODE == EXACT ? unset() : z;
                    }
                } else if (s.target && on && own < B) {
                    const unsigned target = s.target[i];
                    if (target != NONE) s.out[(i64)target * B + own] = result && SCALED ? ldexp((double)v, result) : (double)v;
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

// Columns of both triangles, with a warp per row. The upper triangle's rows and columns are numbered from the
// end.
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_split(int rows, const i64* __restrict__ row_ptr, const unsigned* __restrict__ column, const i64* __restrict__ diagonal,
              const i64* __restrict__ lower_begin, const i64* __restrict__ upper_begin, unsigned* __restrict__ lower, unsigned* __restrict__ upper) {
    const int lane = threadIdx.x % 32;
    for (i64 i = blockIdx.x * (i64)WARPS + threadIdx.x / 32; i < rows; i += (i64)gridDim.x * WARPS) {
        const i64 begin = row_ptr[i], middle = diagonal[i], past = row_ptr[i + 1];
        // the row's last block in the upper triangle
        const i64 to_lower = lower_begin[i], to_upper = upper_begin[rows - i] - 1;
        for (i64 p = begin + lane; p < middle; p += 32) lower[to_lower + (p - begin)] = column[p];
        for (i64 p = middle + 1 + lane; p < past; p += 32) upper[to_upper - (p - middle - 1)] = (unsigned)rows - 1 - column[p];
    }
}

// Distances i - 1 - j of the columns j of row i of a triangle, with a warp per row.
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_near(int rows, const i64* __restrict__ begin, const unsigned* __restrict__ column, unsigned short* __restrict__ near) {
    for (i64 i = blockIdx.x * (i64)WARPS + threadIdx.x / 32; i < rows; i += (i64)gridDim.x * WARPS)
        for (i64 p = begin[i] + threadIdx.x % 32; p < begin[i + 1]; p += 32) near[p] = (unsigned short)(i - 1 - column[p]);
}

// The exponent of a number plus 1023; 0 for 0, and 0x7ff if the number is not finite.
__device__ __forceinline__ unsigned exponent_of(double v) {
    const u64 bits = (u64)__double_as_longlong(fabs(v));
    return bits ? max(1u, (unsigned)(bits >> 52)) : 0u;
}

// The smallest and the largest exponent of the scalar rows of inverted diagonal blocks: range[0] and
// range[1], which begin with 0xffff and 0. Rows of zeros do not count.
extern "C" __global__ void __launch_bounds__(THREADS) schwarz_range(int rows, const double* __restrict__ inverses, unsigned* range) {
    unsigned low = 0xffff, high = 0;
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < (i64)rows * B; i += (i64)gridDim.x * THREADS) {
        unsigned most = 0;
#pragma unroll
        for (int c = 0; c < B; ++c) most = max(most, exponent_of(inverses[i * B + c]));
        if (most) low = min(low, most);
        high = max(high, most);
    }
#pragma unroll
    for (int d = 16; d; d /= 2) {
        low = min(low, __shfl_xor_sync(ALL, low, d));
        high = max(high, __shfl_xor_sync(ALL, high, d));
    }
    if (threadIdx.x % 32 > 0) return;
    atomicMin(range, low);
    atomicMax(range + 1, high);
}

// Copies factors (row-major blocks in the order of S) to both triangles and the inverted diagonal, by
// columns. The inverted diagonal is divided by 2^shift. *faulty: bit 0 is set if a number is not finite, and
// bit 1 if the exponent of another number is larger than `most`.
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_pack(int rows, const i64* __restrict__ row_ptr, const i64* __restrict__ diagonal, const i64* __restrict__ lower_begin,
             const i64* __restrict__ upper_begin, const double* __restrict__ factors, const double* __restrict__ inverses,
             VALUE* __restrict__ lower, VALUE* __restrict__ inverse, VALUE* __restrict__ upper, int shift, int most, unsigned* faulty) {
    const int lane = threadIdx.x % 32;
    bool finite = true, narrow_enough = true;
    for (i64 i = blockIdx.x * (i64)WARPS + threadIdx.x / 32; i < rows; i += (i64)gridDim.x * WARPS) {
        const i64 begin = row_ptr[i], middle = diagonal[i], past = row_ptr[i + 1];
        const double* d = inverses + i * E;
        auto store = [&](VALUE* to, double value) {
            const VALUE narrow = (VALUE)value;
            finite &= isfinite(narrow);
            *to = narrow;
        };
        auto store_other = [&](VALUE* to, double value) {
            narrow_enough &= (int)exponent_of(value) - 1023 <= most;
            store(to, value);
        };
        for (int e = lane; e < E; e += 32) {
            const double own = d[e % B * B + e / B];
            store(inverse + i * E + e, shift ? ldexp(own, -shift) : own);
            finite &= isfinite(factors[middle * E + e]);
        }
        VALUE* to = lower + lower_begin[i] * E;
        for (i64 t = lane; t < (middle - begin) * E; t += 32) {
            const int e = (int)(t % E);
            store_other(to + t, factors[(begin + t / E) * E + e % B * B + e / B]);
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
            store_other(to - p * E + e, value);
        }
    }
    if (!finite) atomicOr(faulty, 1u);
    if (!narrow_enough) atomicOr(faulty, 2u);
}

// The block of the transpose k blocks before its last one is that at places[k] of M, or at k without places.
// Blocks by columns become their transposes by columns.
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_turn(i64 blocks, const double* __restrict__ places, const VALUE* __restrict__ from, VALUE* __restrict__ to) {
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < blocks * E; i += (i64)gridDim.x * THREADS) {
        const i64 block = i / E, place = places ? (i64)places[blocks - 1 - block] : block;
        const int e = (int)(i % E);
        to[i] = from[place * E + e % B * B + e / B];
    }
}

// Counts from the other end: to[i] = last - from[count - 1 - i], of columns, orders and beginnings of rows.
template <class T> __device__ __forceinline__ void reverse(i64 count, T last, const T* __restrict__ from, T* __restrict__ to) {
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < count; i += (i64)gridDim.x * THREADS) to[i] = last - from[count - 1 - i];
}
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_reverse(i64 count, unsigned last, const unsigned* __restrict__ from, unsigned* __restrict__ to) { reverse(count, last, from, to); }
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_reverse_begins(i64 count, i64 last, const i64* __restrict__ from, i64* __restrict__ to) { reverse(count, last, from, to); }
