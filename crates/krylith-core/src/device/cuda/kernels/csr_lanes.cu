// csr_lanes: y = c A x of a small matrix of scalar rows. 2^shift lanes of a warp share a row, so that a
// product is one launch for any length of rows, and needs no set-up. With `smooths` a row turns its number
// into a residual or a smoother step (smooth.cuh).
//
// Constants: VALUE, double, float or bf16 as stored; REAL, double or float, the type of vectors and
// arithmetic. Bytes moved at least: for each entry the value and 4; for each row 8 of row_ptr, of y and of x.
// A lane adds its products in the order of the row; the sums of lanes are added in a fixed tree.

#ifndef VALUE
#define VALUE double
#endif
#include "bf16.cuh"
#include "smooth.cuh"

typedef long long i64;

extern "C" __global__ void __launch_bounds__(256)
csr_lanes(const int* halt, const i64 rows, const int shift, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
          const VALUE* __restrict__ values, const REAL* __restrict__ x, RESULTS* __restrict__ y, const double* __restrict__ coefficient,
          const int smooths, const Smooth of) {
    if (halt && *halt) return;
    const REAL c = (REAL)*coefficient;
    const int lanes = 1 << shift, lane = threadIdx.x & (lanes - 1);
    const i64 step = (i64)gridDim.x * blockDim.x;
    // Whole warps stay together: thread blocks are multiples of 32, and so is the step.
    for (i64 t = blockIdx.x * (i64)blockDim.x + threadIdx.x; t - threadIdx.x % 32 < rows << shift; t += step) {
        const i64 i = t >> shift;
        const bool here = i < rows, writes = here && lane == 0;
        const i64 end = here ? row_ptr[i + 1] : 0;
        Own own = {};
        if (writes && smooths) own = own_numbers(of, i);
        REAL sum = 0;
#pragma unroll 4
        for (i64 p = (here ? row_ptr[i] : 0) + lane; p < end; p += lanes) sum = fma((REAL)values[p], x[col[p]], sum);
        for (int d = 1; d < lanes; d *= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
        if (writes) y[i] = RESULT_OF(of, smooths ? smoothed(of, own, i, c * sum) : c * sum);
    }
}
