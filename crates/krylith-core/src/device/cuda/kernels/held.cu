// Vectors that a driver on the host combines. Bytes moved: 8 per number for squares, 24 for combine.

typedef long long i64;

// The sum of squares of each chunk of 4096 numbers, in a fixed order.
extern "C" __global__ void __launch_bounds__(256) squares(i64 n, const double* __restrict__ x, double* __restrict__ sums) {
    __shared__ double parts[8];
    const i64 first = blockIdx.x * (i64)4096;
    double sum = 0.0;
    for (int k = threadIdx.x; k < 4096 && first + k < n; k += 256) sum += x[first + k] * x[first + k];
    for (int far = 16; far > 0; far /= 2) sum += __shfl_down_sync(~0u, sum, far);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < 8; ++w) sum += parts[w];
        sums[blockIdx.x] = sum;
    }
}

// to = x + factor y.
extern "C" __global__ void __launch_bounds__(256) combine(i64 n, const double* __restrict__ x, double factor,
                                                          const double* __restrict__ y, double* __restrict__ to) {
    const i64 k = blockIdx.x * (i64)256 + threadIdx.x;
    if (k < n) to[k] = x[k] + factor * y[k];
}
