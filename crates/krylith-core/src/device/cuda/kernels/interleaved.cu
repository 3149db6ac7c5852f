// interleaved_product: y = (A (x) I) x for a matrix A of BLOCK x BLOCK blocks and several vectors whose
// numbers alternate: number c of node i of column q is at (i * BLOCK + c) * width + q. Optionally it turns
// the result into a residual or a step of a polynomial smoother (smooth.cuh), with blocks D^-1 as
// block_diagonal.cu stores them.
//
// Macro: BLOCK 1 to 8. Columns: width = 4 << columns_shift, 4 to 16.
// Bytes moved at least: the matrix once (8 * BLOCK * BLOCK + 4 per block, 8 per row), and 8 * BLOCK * width
// per node for each vector that is read or written.
//
// A lane has four columns of a row, as two pairs, so that the lanes of a row read whole sectors. 1 <<
// share_shift groups of lanes share a row: each takes every so many blocks, and shuffles add their sums. The
// lanes of a row are in one warp.

#include "smooth.cuh"

typedef long long i64;
constexpr int COLUMNS = 4;  // columns of a lane
// As in block_diagonal.cu.
constexpr int GROUP = BLOCK >= 32 ? 1 : (32 + BLOCK - 1) / BLOCK;

__device__ __forceinline__ void load(const double* at, int apart, double (&to)[COLUMNS]) {
    const double2 u = *(const double2*)at, v = *(const double2*)(at + apart);
    to[0] = u.x, to[1] = u.y, to[2] = v.x, to[3] = v.y;
}
__device__ __forceinline__ void store(double* at, int apart, const double (&from)[COLUMNS]) {
    *(double2*)at = make_double2(from[0], from[1]);
    *(double2*)(at + apart) = make_double2(from[2], from[3]);
}

// Without of.b: y = c A x. Without of.x the product is zero and so is x: a step is then c D^-1 b.
extern "C" __global__ void __launch_bounds__(256, BLOCK < 3 ? 4 : BLOCK < 5 ? 3 : 2)
interleaved_product(const int* halt, const i64 rows, const int columns_shift, const int share_shift, const i64* __restrict__ row_ptr,
                    const unsigned* __restrict__ col, const double* __restrict__ values, const double coefficient, const Smooth of,
                    double* y) {
    if (halt && *halt) return;
    const i64 t = blockIdx.x * 256ll + threadIdx.x, i = t >> (columns_shift + share_shift);
    const int lanes = 1 << columns_shift, share = 1 << share_shift, width = COLUMNS * lanes, apart = 2 * lanes;
    const int lane = (int)t & (lanes - 1), part = (int)(t >> columns_shift) & (share - 1);
    const bool here = i < rows;
    double sum[BLOCK][COLUMNS] = {};
    if (here && of.x) {
        const i64 end = row_ptr[i + 1];
        const double* const x = of.x + 2 * lane;
#pragma unroll 1
        for (i64 p = row_ptr[i] + part; p < end; p += share) {
            const double* run = x + (i64)col[p] * (BLOCK * width);
            const double* a = values + p * (BLOCK * BLOCK);
            double v[BLOCK][COLUMNS];
#pragma unroll
            for (int c = 0; c < BLOCK; ++c) load(run + c * width, apart, v[c]);
#pragma unroll
            for (int r = 0; r < BLOCK; ++r)
#pragma unroll
                for (int c = 0; c < BLOCK; ++c) {
                    const double entry = a[r * BLOCK + c];
#pragma unroll
                    for (int q = 0; q < COLUMNS; ++q) sum[r][q] = fma(entry, v[c][q], sum[r][q]);
                }
        }
    }
    for (int d = lanes; d < lanes * share; d *= 2)
#pragma unroll
        for (int r = 0; r < BLOCK; ++r)
#pragma unroll
            for (int q = 0; q < COLUMNS; ++q) sum[r][q] += __shfl_xor_sync(~0u, sum[r][q], d);
    if (!here || part) return;
    const i64 first = i * (BLOCK * width) + 2 * lane;
#pragma unroll
    for (int r = 0; r < BLOCK; ++r)
#pragma unroll
        for (int q = 0; q < COLUMNS; ++q) sum[r][q] *= coefficient;
    if (of.b) {
#pragma unroll
        for (int r = 0; r < BLOCK; ++r) {
            double b[COLUMNS];
            load(of.b + first + r * width, apart, b);
#pragma unroll
            for (int q = 0; q < COLUMNS; ++q) sum[r][q] = !of.d && of.keeps ? b[q] + sum[r][q] : b[q] - sum[r][q];
        }
    }
    if (!of.d) {
#pragma unroll
        for (int r = 0; r < BLOCK; ++r) store(y + first + r * width, apart, sum[r]);
        return;
    }
    const double weight = of.c ? *of.c : 1.0, again = of.last ? *of.a : 0.0;
    const double* const d = of.d + (i / GROUP * BLOCK * GROUP + i % GROUP) * BLOCK;
#pragma unroll
    for (int r = 0; r < BLOCK; ++r) {
        double step[COLUMNS] = {}, own[COLUMNS] = {}, last[COLUMNS];
#pragma unroll
        for (int c = 0; c < BLOCK; ++c) {
            const double entry = d[c * (GROUP * BLOCK) + r];
#pragma unroll
            for (int q = 0; q < COLUMNS; ++q) step[q] = fma(entry, sum[c][q], step[q]);
        }
        const i64 at = first + r * width;
        if (of.x) load(of.x + at, apart, own);
        if (of.last == 2) load(of.p + at, apart, last);
#pragma unroll
        for (int q = 0; q < COLUMNS; ++q) {
            step[q] *= weight;
            if (of.last) step[q] = fma(again, of.last == 1 ? own[q] : last[q], step[q]);
            own[q] += step[q];
        }
        if (of.keeps) store(of.p + at, apart, step);
        store(y + at, apart, own);
    }
}
