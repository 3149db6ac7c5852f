// schwarz_factor: point-block incomplete factors A ~ L U on the pattern S, L with a unit diagonal, exact or
// by randomized sweeps.
//
//   schwarz_diagonal  the inverses of A_ii, where a randomized factorisation starts; bytes: 16 b*b per row
//   schwarz_guess     the rest of that start: U = A, L_ij = A_ij inv(A_jj);
//                     bytes: 8 b*b per block of S and of A
//   schwarz_eliminate the exact factors, row by row; bytes: see below, once
//   schwarz_sweep     Alg. 1, `sweeps` times; bytes: the same once per sweep
//   schwarz_defect    sums of squares of (A - L U)_S and of A, those of each thread block;
//                     bytes: the same once; for A alone, A once
//   schwarz_total     adds these; bytes: 16 per thread block
//
// Macros: those of schwarz.cuh.
// Bytes moved at least: 32 per row for its position; per block of S 4 for its column, 4 for its source and 8
// b*b to write it; per block of A 8 b*b. The rows of U that a row needs usually come from the second-level
// cache: 4 + 8 b*b for each of their blocks and 8 b*b for the inverse of their diagonal, for each entry of L
// that refers to them.
//
// A warp computes a row in shared memory, T, which starts as A_i: for k in the lower part, ascending, L_ik =
// T_k inv(U_kk), then T_j -= L_ik U_kj for the j of both patterns. The warp finds these by searching the
// columns of row k among those of row i, 32 at a time. This order is that of Alg. 1 as well as that of
// elimination: T_j has its complete sum when its turn comes. A row is written when it is complete, so other
// warps read numbers of this sweep or of an earlier one, and never partial sums.
//
// Exact: warps take rows by ticket in the order of levels, and wait for the rows that they need. Each of
// these was taken earlier by a running warp; a time limit ends the wait nevertheless. A pivot that cannot be
// inverted is counted; its row of U and its inverse are zero.

#include "schwarz.cuh"
#include "pivots.cuh"
#include "search.cuh"

// Description of the factors; mirrors `Rows` in device/cuda/schwarz/factor.rs.
struct Rows {
    int rows, longest;        // number of rows of all subdomains; most blocks of a row
    const i64* row_ptr;
    const unsigned* column;
    const i64* diagonal;
    const unsigned* source;   // block of `a`, or NONE
    const unsigned* node;
    const double* a;
    double* factors;          // L and U in the order of S, row-major
    double* inverses;         // inverses of the diagonal blocks of U, row-major
};
// One warp's part of shared memory.
struct Limits {
    double *t, *block, *inverse, *factor, *scale;  // longest blocks; two blocks; two columns
    int2* list;                                    // matches: entry of this row, offset in the other one
    unsigned* columns;
};
__device__ __forceinline__ Limits room_of(int longest) {
    extern __shared__ double memory[];
    // Mirrors `warp_bytes` in device/cuda/schwarz/factor.rs.
    const i64 bytes = (8ll * (longest * E + 2 * E + 2 * B) + 32 * 8 + 4ll * longest + 15) / 16 * 16;
    double* t = (double*)((char*)memory + threadIdx.x / 32 * bytes);
    Limits room;
    room.t = t;
    room.block = t + longest * E;
    room.inverse = room.block + E;
    room.factor = room.inverse + E;
    room.scale = room.factor + B;
    room.list = (int2*)(room.scale + B);
    room.columns = (unsigned*)(room.list + 32);
    return room;
}

// Loads T = A_i and the row's columns; the squares of stored entries of A are added to `sum`.
__device__ __forceinline__ double load_row(const Rows& s, const Limits& m, i64 begin, int blocks, int lane) {
    double sum = 0;
    for (int t = lane; t < blocks; t += 32) m.columns[t] = s.column[begin + t];
    for (int t = lane; t < blocks * E; t += 32) {
        const unsigned source = s.source[begin + t / E];
        const double value = source == NONE ? 0 : s.a[(i64)source * E + t % E];
        m.t[t] = value;
        sum = fma(value, value, sum);
    }
    __syncwarp();
    return sum;
}

// The largest entry of each scalar row.
__device__ __forceinline__ void scale_row(const Limits& m, int blocks, int lane) {
    for (int r = 0; r < B; ++r) {
        double most = 0;
        for (int t = lane; t < blocks * B; t += 32) most = fmax(most, fabs(m.t[t / B * E + r * B + t % B]));
#pragma unroll
        for (int d = 1; d < 32; d *= 2) most = fmax(most, __shfl_xor_sync(ALL, most, d));
        if (lane == 0) m.scale[r] = most;
    }
    __syncwarp();
}

// T_j -= l U_kj for the blocks first .. past of row k whose columns are among those of this row from `from`
// on.
__device__ __forceinline__ void subtract_row(const Rows& s, const Limits& m, const double* l, const double* factors, i64 first, i64 past, int from,
                                             int blocks, int lane) {
    for (i64 q0 = first; q0 < past; q0 += 32) {
        const int at = q0 + lane < past ? find_column(m.columns, from, blocks, s.column[q0 + lane]) : -1;
        const unsigned found = __ballot_sync(ALL, at >= 0);
        if (at >= 0) m.list[__popc(found & ((1u << lane) - 1))] = make_int2(at, lane);
        __syncwarp();
        const int items = __popc(found) * E;
        for (int t = lane; t < items; t += 32) {
            const int2 match = m.list[t / E];
            const int e = t % E, r = e / B, c = e % B;
            const double* u = factors + (q0 + match.y) * E + c;
            double other[B];
#pragma unroll
            for (int k = 0; k < B; ++k) other[k] = peek(u + k * B);
            double sum = m.t[match.x * E + e];
#pragma unroll
            for (int k = 0; k < B; ++k) sum = fma(-l[r * B + k], other[k], sum);
            m.t[match.x * E + e] = sum;
        }
        __syncwarp();
    }
}

// T_p = T_p inverse, with a block of row-major numbers.
__device__ __forceinline__ void times(double* t, const double* inverse, int lane) {
    constexpr int EACH = (E + 31) / 32;
    double product[EACH];
#pragma unroll
    for (int u = 0; u < EACH; ++u) {
        const int e = lane + 32 * u, r = e / B, c = e % B;
        double sum = 0;
        if (e < E)
#pragma unroll
            for (int k = 0; k < B; ++k) sum = fma(t[r * B + k], peek(inverse + k * B + c), sum);
        product[u] = sum;
    }
    __syncwarp();
#pragma unroll
    for (int u = 0; u < EACH; ++u)
        if (lane + 32 * u < E) t[lane + 32 * u] = product[u];
    __syncwarp();
}

// Writes the results from T: the row of the factors and the inverse of its diagonal block, of kind `kind`.
__device__ __forceinline__ void write_row(const Limits& m, double* factors, double* inverses, i64 i, i64 begin, int lower, int blocks, int kind,
                                          double bad, bool clear, int lane) {
    for (int t = lane; t < blocks * E; t += 32) put(factors + begin * E + t, clear && kind != GOOD && t >= (lower + 1) * E ? 0.0 : m.t[t]);
    for (int e = lane; e < E; e += 32) put(inverses + i * E + e, kind == GOOD ? m.inverse[e] : bad);
    __syncwarp();
}

// Inverts the row's diagonal block, which stays in T.
__device__ __forceinline__ int invert_diagonal(const Limits& m, int lower, double tiny, int lane) {
    for (int e = lane; e < E; e += 32) m.block[e] = m.t[lower * E + e];
    __syncwarp();
    const int kind = invert(m.block, m.inverse, m.scale, m.factor, tiny, lane);
    __syncwarp();
    return kind;
}

extern "C" __global__ void schwarz_diagonal(const Rows s) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const Limits m = room_of(s.longest);
    if (lane < B) m.scale[lane] = 1;
    __syncwarp();
    for (i64 i = blockIdx.x * (i64)warps + threadIdx.x / 32; i < s.rows; i += (i64)gridDim.x * warps) {
        const unsigned source = s.source[s.diagonal[i]];
        for (int e = lane; e < E; e += 32) m.block[e] = source == NONE ? 0 : s.a[(i64)source * E + e];
        __syncwarp();
        const int kind = invert(m.block, m.inverse, m.scale, m.factor, 0, lane);
        __syncwarp();
        for (int e = lane; e < E; e += 32) s.inverses[i * E + e] = kind == GOOD ? m.inverse[e] : not_a_number();
        __syncwarp();
    }
}

extern "C" __global__ void schwarz_guess(const Rows s) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    for (i64 i = blockIdx.x * (i64)warps + threadIdx.x / 32; i < s.rows; i += (i64)gridDim.x * warps) {
        const i64 begin = s.row_ptr[i], past = s.row_ptr[i + 1], middle = s.diagonal[i];
        for (i64 t = lane; t < (past - begin) * E; t += 32) {
            const i64 p = begin + t / E;
            const int e = (int)(t % E), r = e / B, c = e % B;
            const unsigned source = s.source[p];
            double value = 0;
            if (source != NONE) {
                const double* a = s.a + (i64)source * E;
                if (p >= middle) {
                    value = a[e];
                } else {
                    const double* inverse = s.inverses + (i64)s.column[p] * E;
#pragma unroll
                    for (int k = 0; k < B; ++k) value = fma(a[r * B + k], inverse[k * B + c], value);
                }
            }
            s.factors[begin * E + t] = value;
        }
    }
}

// ready[k] == epoch: row k is written. order: rows by levels.
extern "C" __global__ void schwarz_eliminate(const Rows s, const unsigned* __restrict__ order, unsigned* ticket, unsigned* ready, unsigned epoch, u64 limit,
                                             Pivots* pivots) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    __shared__ unsigned taken;
    if (threadIdx.x == 0) taken = atomicAdd(ticket, 1u);
    __syncthreads();
    const i64 number = (i64)taken * warps + threadIdx.x / 32;
    if (number >= s.rows) return;
    const Limits m = room_of(s.longest);
    const i64 i = order[number], begin = s.row_ptr[i];
    const int lower = (int)(s.diagonal[i] - begin), blocks = (int)(s.row_ptr[i + 1] - begin);
    load_row(s, m, begin, blocks, lane);
    scale_row(m, blocks, lane);
    for (int p = 0; p < lower; ++p) {
        const i64 k = m.columns[p];
        const i64 middle = s.diagonal[k], past = s.row_ptr[k + 1];
        unsigned looks = 0, seen;
        u64 since = 0;
        while (peek(ready + k) != epoch)
            if (too_long(looks, since, limit)) break;
        asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(ready + k) : "memory");
        __syncwarp();
        if (__any_sync(ALL, seen != epoch)) {  // timed out: later results are not valid numbers
            for (int t = lane; t < blocks * E; t += 32) m.t[t] = not_a_number();
            __syncwarp();
            break;
        }
        times(m.t + p * E, s.inverses + k * E, lane);
        subtract_row(s, m, m.t + p * E, s.factors, middle + 1, past, p + 1, blocks, lane);
    }
    const int kind = invert_diagonal(m, lower, TINY_PIVOT, lane);
    write_row(m, s.factors, s.inverses, i, begin, lower, blocks, kind, 0.0, true, lane);
    if (lane == 0) {
        // The lanes have synchronised, so the writes of all lanes come before.
        asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(ready + i), "r"(epoch) : "memory");
        if (kind != GOOD) count_pivot(pivots, s.node[i], kind, false);
    }
}

// A warp processes a run of consecutive rows; runs: first row of each, and one more. It reads rows outside
// the run from `from`, if that is not null, and otherwise from its target.
extern "C" __global__ void schwarz_sweep(const Rows s, int count, const unsigned* __restrict__ runs, int sweeps, const double* from,
                                         const double* from_inverses) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const i64 warp = blockIdx.x * (i64)warps + threadIdx.x / 32;
    if (warp >= count) return;
    const i64 first = runs[warp], end = runs[warp + 1];
    const Limits m = room_of(s.longest);
    if (lane < B) m.scale[lane] = 1;
    __syncwarp();
    for (int sweep = 0; sweep < sweeps; ++sweep) {
        for (i64 i = first; i < end; ++i) {
            const i64 begin = s.row_ptr[i];
            const int lower = (int)(s.diagonal[i] - begin), blocks = (int)(s.row_ptr[i + 1] - begin);
            load_row(s, m, begin, blocks, lane);
            for (int p0 = 0; p0 < lower; p0 += 32) {
                i64 middle = 0, past = 0;
                if (p0 + lane < lower) {
                    const unsigned k = m.columns[p0 + lane];
                    middle = s.diagonal[k];
                    past = s.row_ptr[k + 1];
                }
                const int here = min(32, lower - p0);
                for (int u = 0; u < here; ++u) {
                    const int p = p0 + u;
                    const i64 k = m.columns[p];
                    const bool before = from && k < first;
                    times(m.t + p * E, (before ? from_inverses : s.inverses) + k * E, lane);
                    subtract_row(s, m, m.t + p * E, before ? from : s.factors, __shfl_sync(ALL, middle, u) + 1, __shfl_sync(ALL, past, u), p + 1, blocks,
                                 lane);
                }
            }
            const int kind = invert_diagonal(m, lower, 0, lane);
            write_row(m, s.factors, s.inverses, i, begin, lower, blocks, kind, not_a_number(), false, lane);
        }
    }
}

// partial: two sums for each thread block. compare: 0 leaves the first at zero.
extern "C" __global__ void schwarz_defect(const Rows s, int compare, double* __restrict__ partial) {
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const Limits m = room_of(s.longest);
    double defect = 0, size = 0;
    for (i64 i = blockIdx.x * (i64)warps + threadIdx.x / 32; i < s.rows; i += (i64)gridDim.x * warps) {
        const i64 begin = s.row_ptr[i];
        const int lower = (int)(s.diagonal[i] - begin), blocks = (int)(s.row_ptr[i + 1] - begin);
        size += load_row(s, m, begin, blocks, lane);
        if (!compare) continue;
        for (int p = 0; p < lower; ++p) {
            const i64 k = m.columns[p];
            for (int e = lane; e < E; e += 32) m.block[e] = s.factors[(begin + p) * E + e];
            __syncwarp();
            subtract_row(s, m, m.block, s.factors, s.diagonal[k], s.row_ptr[k + 1], p, blocks, lane);
        }
        for (int t = lane; t < blocks * E; t += 32) {
            const double d = m.t[t] - (t >= lower * E ? s.factors[begin * E + t] : 0.0);
            defect = fma(d, d, defect);
        }
        __syncwarp();
    }
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        defect += __shfl_xor_sync(ALL, defect, d);
        size += __shfl_xor_sync(ALL, size, d);
    }
    __shared__ double sums[32][2];
    if (lane == 0) sums[threadIdx.x / 32][0] = defect, sums[threadIdx.x / 32][1] = size;
    __syncthreads();
    if (threadIdx.x >= 2) return;
    double sum = 0;
    for (int w = 0; w < warps; ++w) sum += sums[w][threadIdx.x];
    partial[2 * blockIdx.x + threadIdx.x] = sum;
}

// One block of 1024 threads; the order of the sums is fixed.
extern "C" __global__ void __launch_bounds__(1024) schwarz_total(int count, const double* __restrict__ partial, double* __restrict__ total) {
    __shared__ double sums[1024];
    const int which = threadIdx.x % 2;
    double sum = 0;
    for (int i = threadIdx.x / 2; i < count; i += 512) sum += partial[2 * i + which];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (int d = 512; d >= 2; d /= 2) {
        if (threadIdx.x < d) sums[threadIdx.x] += sums[threadIdx.x + d];
        __syncthreads();
    }
    if (threadIdx.x < 2) total[threadIdx.x] = sums[threadIdx.x];
}
