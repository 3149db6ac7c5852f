// Gram–Schmidt of w against v_0 … v_{c-1}, whose coefficients and norm stay on the device.
//
// COLUMNS: columns that `gram_schmidt_pass` can hold. RESIDENT: its blocks per multiprocessor. The caller
// owns all arrays: v has c columns of n numbers, `partial` a number per block and sum, and `arrived` is 0
// before and after a kernel. The last block to arrive adds the partial sums in their order, so sums do not
// change from run to run.
//
// Bytes moved: axpy_dot 16n without `last`, 24n without `next`, else 32n; gram_schmidt_pass 8nc + 8n, and 8n
// more if it updates w; normalize 16n.
typedef long long i64;
#define DOT_THREADS 512
#define PASS_THREADS 256

// Returns the sum over a warp, in its first lane.
__device__ double warp_sum(double sum) {
    for (int o = 16; o > 0; o /= 2) sum += __shfl_down_sync(0xffffffffu, sum, o);
    return sum;
}

// Returns the sum over a block's threads, in thread 0.
__device__ double block_sum(double sum, double* warps) {
    sum = warp_sum(sum);
    __syncthreads(); // the sums before may still be read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x < 32) sum = warp_sum(threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0);
    return sum;
}

// Returns true in all threads of the block that arrives last; it sees the partial sums of all blocks.
__device__ bool arrives_last(unsigned* arrived) {
    __shared__ bool last;
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(arrived, 1u) == gridDim.x - 1;
        if (last) *arrived = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

// w -= h last, and then next·w, or w·w if there is no `next`. Without `last` w stays as it is.
extern "C" __global__ void __launch_bounds__(DOT_THREADS, 2)
    axpy_dot(i64 n, const double* __restrict__ last, const double* __restrict__ h, const double* __restrict__ next,
             double* __restrict__ w, double* partial, unsigned* arrived, double* out) {
    const i64 step = (i64)gridDim.x * DOT_THREADS;
    const double c = last ? *h : 0;
    double sum = 0;
    for (i64 i = (i64)blockIdx.x * DOT_THREADS + threadIdx.x; i < n; i += 4 * step) {
        double a[4], b[4], x[4];
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const i64 at = i + k * step;
            x[k] = at < n ? w[at] : 0;
            a[k] = last && at < n ? last[at] : 0;
            b[k] = next && at < n ? next[at] : 0;
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            const i64 at = i + k * step;
            x[k] -= c * a[k];
            if (last && at < n) w[at] = x[k];
            sum += (next ? b[k] : x[k]) * x[k];
        }
    }
    __shared__ double warps[DOT_THREADS / 32];
    sum = block_sum(sum, warps);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
    if (!arrives_last(arrived)) return;
    sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += DOT_THREADS) sum += __ldcg(partial + i);
    sum = block_sum(sum, warps);
    if (threadIdx.x == 0) *out = sum;
}

// w -= V c if c is given, and then Vᵀw if `project` is not 0, or else w·w. V is read once.
extern "C" __global__ void __launch_bounds__(PASS_THREADS, RESIDENT)
    gram_schmidt_pass(i64 n, int columns, const double* __restrict__ v, const double* __restrict__ c, int project,
                      double* __restrict__ w, double* partial, unsigned* arrived, double* out) {
    double sums[COLUMNS];
#pragma unroll
    for (int k = 0; k < COLUMNS; ++k) sums[k] = 0;
    for (i64 i = (i64)blockIdx.x * PASS_THREADS + threadIdx.x; i < n; i += (i64)gridDim.x * PASS_THREADS) {
        double row[COLUMNS];
        double x = w[i];
#pragma unroll
        for (int k = 0; k < COLUMNS; ++k) row[k] = k < columns ? v[(i64)k * n + i] : 0;
        if (c) {
#pragma unroll
            for (int k = 0; k < COLUMNS; ++k) x -= (k < columns ? c[k] : 0) * row[k];
            w[i] = x;
        }
        if (project) {
#pragma unroll
            for (int k = 0; k < COLUMNS; ++k) sums[k] += row[k] * x;
        } else {
            sums[0] += x * x;
        }
    }
    __shared__ double warps[PASS_THREADS / 32][COLUMNS];
    const int count = project ? columns : 1, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < COLUMNS; ++k) {
        const double sum = k < count ? warp_sum(sums[k]) : 0;
        if (lane == 0) warps[warp][k] = sum;
    }
    __syncthreads();
    if (threadIdx.x < count) {
        double sum = 0;
        for (int i = 0; i < PASS_THREADS / 32; ++i) sum += warps[i][threadIdx.x];
        partial[(i64)blockIdx.x * COLUMNS + threadIdx.x] = sum;
    }
    if (!arrives_last(arrived)) return;
    for (int k = warp; k < count; k += PASS_THREADS / 32) {
        double sum = 0;
        for (unsigned i = lane; i < gridDim.x; i += 32) sum += __ldcg(partial + (i64)i * COLUMNS + k);
        sum = warp_sum(sum);
        if (lane == 0) out[k] = sum;
    }
}

// w /= √square, where `square` is w·w.
extern "C" __global__ void normalize(i64 n, const double* __restrict__ square, double* __restrict__ w) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) w[i] *= 1 / sqrt(*square);
}
