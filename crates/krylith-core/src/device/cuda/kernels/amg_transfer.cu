// amg_transfer: y <- W x or y <- y + W x with scalar weights W, P or R between two levels, for nodes of
// `order` unknowns each.
//
// A thread computes one unknown of one row, and the threads of a row read neighbouring numbers of x. With
// order 1, 2^shift lanes of a warp share a row, and their sums are added in a fixed tree. A thread sums in
// the order of the row. Constants: VALUE, the type of weights, and REAL, that of vectors and
// arithmetic: double or float.
// Bytes moved at least: 8 per weight and 4 for its column, 8 per row for its row pointer; x once, y once, and
// once more if it is added to.

#ifndef VALUE
#define VALUE double
#endif
#ifndef REAL
#define REAL double
#endif

typedef long long i64;

extern "C" __global__ void __launch_bounds__(256)
amg_transfer(const int* halt, i64 rows, int order, int shift, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
             const VALUE* __restrict__ weight, const REAL* __restrict__ x, REAL* y, int add) {
    if (halt && *halt) return;
    const i64 step = (i64)gridDim.x * blockDim.x, first = blockIdx.x * (i64)blockDim.x + threadIdx.x;
    if (order > 1) {
        for (i64 t = first; t < rows * order; t += step) {
            const i64 i = t / order, end = row_ptr[i + 1];
            const int c = (int)(t - i * order);
            REAL sum = 0;
#pragma unroll 4
            for (i64 p = row_ptr[i]; p < end; ++p) sum = fma((REAL)weight[p], x[(i64)col[p] * order + c], sum);
            y[t] = add ? y[t] + sum : sum;
        }
        return;
    }
    // Whole warps stay together: thread blocks are multiples of 32, and so is the step.
    const int lanes = 1 << shift, lane = threadIdx.x & (lanes - 1);
    for (i64 t = first; t - threadIdx.x % 32 < rows << shift; t += step) {
        const i64 i = t >> shift;
        const bool here = i < rows;
        const i64 end = here ? row_ptr[i + 1] : 0;
        const REAL before = add && here && lane == 0 ? y[i] : (REAL)0;
        REAL sum = 0;
#pragma unroll 4
        for (i64 p = (here ? row_ptr[i] : 0) + lane; p < end; p += lanes) sum = fma((REAL)weight[p], x[col[p]], sum);
        for (int d = 1; d < lanes; d *= 2) sum += __shfl_xor_sync(0xffffffff, sum, d);
        if (here && lane == 0) y[i] = before + sum;
    }
}
