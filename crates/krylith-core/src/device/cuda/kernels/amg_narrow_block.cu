// Products of a cycle in f32 with a matrix of blocks, as residuals, smoother steps, and transfers.
//
// Constants: BLOCK, the order of the blocks. Blocks are by rows. Arithmetic is in f32.
// A block row has `lanes` lanes of BLOCK threads in one warp. Thread c of a lane computes row c of the lane's
// blocks, so neighbouring threads read neighbouring numbers. The sums of lanes are added in a fixed tree.
// Bytes moved at least: 4 per number, 4 per block; for each block row 8 of its row pointer, and 4 BLOCK^2 of
// D^-1 for a smoother step; for each number of a vector 4 for each of x, b and the result, 4 for p if it is
// read and 4 if it is written.

typedef long long i64;

// b: null for y = A x. Otherwise, without d, y = b - A x, or b + A x with `keeps`. With d a smoother step
// as in smooth.cuh.
struct Step {
    const float* x;
    const float* b;
    const float* d;
    float* p;
    const double* a;
    const double* c;
    int last;
    int keeps;
};

extern "C" __global__ void __launch_bounds__(256)
narrow_block(const int* halt, const i64 rows, const int lanes, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
             const float* __restrict__ values, const double* __restrict__ coefficient, const Step of, float* y) {
    if (halt && *halt) return;
    const float factor = (float)*coefficient;
    const int in_row = lanes * BLOCK, at_once = 32 / in_row, lane = threadIdx.x % 32;
    const int group = lane / in_row, mine = lane % in_row, l = mine / BLOCK, r = mine % BLOCK;
    const i64 warps = (i64)gridDim.x * (blockDim.x / 32), warp = blockIdx.x * (i64)(blockDim.x / 32) + threadIdx.x / 32;
    for (i64 first = warp * at_once; first < rows; first += warps * at_once) {
        const i64 i = first + group;
        const bool here = group < at_once && i < rows;
        const i64 end = here ? row_ptr[i + 1] : 0;
        float sum = 0;
#pragma unroll 2
        for (i64 p = (here ? row_ptr[i] : 0) + l; p < end; p += lanes) {
            const float* const own = values + p * (BLOCK * BLOCK) + r * BLOCK;
            const float* const from = of.x + (i64)col[p] * BLOCK;
#pragma unroll
            for (int e = 0; e < BLOCK; ++e) sum = fmaf(own[e], from[e], sum);
        }
        for (int d = 8; d; d /= 2) {
            const float other = __shfl_sync(~0u, sum, (lane + d * BLOCK) & 31);
            if (l + d < lanes) sum += other;
        }
        sum *= factor;
        const bool writes = here && l == 0;
        const i64 at = i * BLOCK + r;
        if (!of.d) {
            if (writes) y[at] = !of.b ? sum : of.keeps ? of.b[at] + sum : of.b[at] - sum;
            continue;
        }
        const float rest = writes ? of.b[at] - sum : 0;
        float step = 0;
#pragma unroll
        for (int e = 0; e < BLOCK; ++e) {
            const float other = __shfl_sync(~0u, rest, (group * in_row + e) & 31);
            if (writes) step = fmaf(of.d[at * BLOCK + e], other, step);
        }
        if (!writes) continue;
        step *= (float)*of.c;
        const float x = of.x[at];
        if (of.last) step = fmaf((float)*of.a, of.last == 1 ? x : of.p[at], step);
        if (of.keeps) of.p[at] = step;
        y[at] = x + step;
    }
}

// The first step from zero: x = c D^-1 b.
extern "C" __global__ void __launch_bounds__(256)
narrow_block_first(const int* halt, const i64 n, const float* __restrict__ d, const float* __restrict__ b, const double* __restrict__ c, float* __restrict__ x) {
    if (halt && *halt) return;
    const float factor = (float)*c;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        const float* const from = b + i / BLOCK * BLOCK;
        float sum = 0;
#pragma unroll
        for (int e = 0; e < BLOCK; ++e) sum = fmaf(d[i * BLOCK + e], from[e], sum);
        x[i] = factor * sum;
    }
}

// x is 1 at unknown `column` of every node, and 0 elsewhere.
extern "C" __global__ void __launch_bounds__(256) narrow_block_unit(const i64 n, const int column, double* __restrict__ x) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) x[i] = i % BLOCK == column;
}

// Column `column` of all blocks from a vector, times 2^shift.
extern "C" __global__ void __launch_bounds__(256)
narrow_block_column(const i64 n, const double* __restrict__ from, const int column, const int shift, float* __restrict__ to) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) to[i * BLOCK + column] = (float)ldexp(from[i], shift);
}
