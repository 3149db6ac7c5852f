// row_scaled: sums of squares of the residual b - A x and of b, as they are and with every row divided by its
// 1-norm, for solver/rows.rs. Residuals are summed in twice the working precision.
//
// sums: for each thread block the squares of r/norm, b/norm, r and b. Empty rows have norm 1.
// Constants: BLOCK (order of the blocks).
// Bytes moved at least: the matrix once, x and b once. Eight lanes sum a scalar row.
#ifndef BLOCK
#define BLOCK 1
#endif
#include "twofold.cuh"

typedef long long i64;
constexpr int THREADS = 256, LANES = 8;

extern "C" __global__ void __launch_bounds__(THREADS)
row_scaled(const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ values, const int rows,
           const double* __restrict__ b, const double* __restrict__ x, double* __restrict__ sums) {
    __shared__ double parts[4][THREADS / 32];
    const i64 items = (i64)rows * BLOCK, groups = (i64)gridDim.x * (THREADS / LANES);
    const int lane = threadIdx.x % LANES;
    double own[4] = {};
    // All lanes of a warp take part in the shuffles.
    for (i64 first = blockIdx.x * (i64)(THREADS / LANES) + threadIdx.x / 32 * (32 / LANES); first < items; first += groups) {
        const i64 item = first + threadIdx.x % 32 / LANES;
        Twofold r = {0.0, 0.0};
        double norm = 0.0;
        if (item < items) {
            const int i = (int)(item / BLOCK), c = (int)(item % BLOCK);
            for (i64 p = row_ptr[i] + lane; p < row_ptr[i + 1]; p += LANES) {
                const double* run = values + (p * BLOCK + c) * BLOCK;
                const double* at = x + (i64)col[p] * BLOCK;
#pragma unroll
                for (int k = 0; k < BLOCK; ++k) {
                    add_product(r, -run[k], at[k]);
                    norm += fabs(run[k]);
                }
            }
        }
#pragma unroll
        for (int d = 1; d < LANES; d *= 2) {
            const double hi = __shfl_xor_sync(~0u, r.hi, d), lo = __shfl_xor_sync(~0u, r.lo, d);
            add(r, hi);
            r.lo = __dadd_rn(r.lo, lo);
            norm += __shfl_xor_sync(~0u, norm, d);
        }
        if (lane > 0 || item >= items) continue;
        add(r, b[item]);
        const double residual = r.hi + r.lo, inverse = norm > 0.0 ? 1.0 / norm : 1.0;
        const double parts_of[4] = {residual * inverse, b[item] * inverse, residual, b[item]};
#pragma unroll
        for (int k = 0; k < 4; ++k) own[k] += parts_of[k] * parts_of[k];
    }
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        for (int d = 1; d < 32; d *= 2) own[k] += __shfl_xor_sync(~0u, own[k], d);
        if (threadIdx.x % 32 == 0) parts[k][threadIdx.x / 32] = own[k];
    }
    __syncthreads();
    if (threadIdx.x < 4) {
        double sum = 0.0;
        for (int w = 0; w < THREADS / 32; ++w) sum += parts[threadIdx.x][w];
        sums[4 * blockIdx.x + threadIdx.x] = sum;
    }
}
