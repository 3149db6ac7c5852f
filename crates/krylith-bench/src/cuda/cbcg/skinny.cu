// The P-CBCG paper's own kernels on tall, skinny matrices, by its sect. IV-C and IV-D. cuBLAS's batched GEMM
// makes a product of S columns for every 128 rows (lines 5 and 11 of Alg. 2); these kernels do the rest.
//
// Constants: S columns of a block of vectors, THREADS threads per block. A block of vectors has S columns of
// n numbers, one after another. The paper keeps the small matrix and vector in shared memory, and a thread
// multiplies its rows by them.
//
// Bytes moved: sum_batches 8 S^2 per batch. Per row, update reads S, AS, Q, AQ, x and r, and writes Q, AQ and
// x: 8 (6 S + 3). residual reads AQ, and reads and writes r: 8 (S + 2). For S = 12 both are 59.3 bytes per
// row and product; the paper counts 59 for the same lines.

// Adds the S x S results of some batches for each block, entry by entry. A thread has one entry; its block
// has S * S threads.
extern "C" __global__ void __launch_bounds__(S * S)
sum_batches(int batches, const double* __restrict__ results, double* __restrict__ out) {
    const int each = (batches + gridDim.x - 1) / gridDim.x;
    const int begin = blockIdx.x * each, end = min(begin + each, batches);
    double sum[4] = {0, 0, 0, 0};
    for (int b = begin; b < end; b += 4)
        #pragma unroll
        for (int k = 0; k < 4; ++k)
            if (b + k < end) sum[k] += results[(size_t)(b + k) * (S * S) + threadIdx.x];
    out[blockIdx.x * (S * S) + threadIdx.x] = (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// v -= w B in a thread's row, with B by columns in shared memory. `volatile` keeps the compiler from loading
// all of B into registers, which would spill.
__device__ void subtract(double (&v)[S], const double (&w)[S], const volatile double* b) {
    #pragma unroll
    for (int j = 0; j < S; ++j) {
        #pragma unroll
        for (int k = 0; k < S; ++k) v[j] -= b[j * S + k] * w[k];
    }
}

// x += Q a, Q = V - Q B, AQ = AV - AQ B and partial sums of the new Q^T r: lines 8, 13, 14 and 6 of Alg. 2.
// `coefficients` is B by columns, then a.
extern "C" __global__ void __launch_bounds__(THREADS, 3)
update(int n, const double* __restrict__ v, const double* __restrict__ av,
       const double* __restrict__ coefficients, const double* __restrict__ r, double* __restrict__ q,
       double* __restrict__ aq, double* __restrict__ x, double* __restrict__ partial) {
    __shared__ double b[S * S + S];
    for (int k = threadIdx.x; k < S * S + S; k += THREADS) b[k] = coefficients[k];
    __syncthreads();
    double sums[S];
    #pragma unroll
    for (int k = 0; k < S; ++k) sums[k] = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        double row[S], next[S], moved = x[i];
        const double residual = r[i];
        #pragma unroll
        for (int k = 0; k < S; ++k) row[k] = q[(size_t)k * n + i], next[k] = v[(size_t)k * n + i];
        #pragma unroll
        for (int k = 0; k < S; ++k) moved += b[S * S + k] * row[k];
        x[i] = moved;
        subtract(next, row, b);
        #pragma unroll
        for (int k = 0; k < S; ++k) q[(size_t)k * n + i] = next[k], sums[k] += next[k] * residual;
        #pragma unroll
        for (int k = 0; k < S; ++k) row[k] = aq[(size_t)k * n + i], next[k] = av[(size_t)k * n + i];
        subtract(next, row, b);
        #pragma unroll
        for (int k = 0; k < S; ++k) aq[(size_t)k * n + i] = next[k];
    }
    #pragma unroll
    for (int k = 0; k < S; ++k) {
        const double sum = block_sum(sums[k]);
        if (threadIdx.x == 0) partial[blockIdx.x * S + k] = sum;
    }
}

// Adds the partial sums of all blocks. One block of S threads.
extern "C" __global__ void __launch_bounds__(S)
sum_blocks(int blocks, const double* __restrict__ partial, double* __restrict__ out) {
    double sum = 0;
    for (int k = 0; k < blocks; ++k) sum += partial[k * S + threadIdx.x];
    out[threadIdx.x] = sum;
}

// r -= AQ a: line 9 of Alg. 2. `a` has S numbers.
extern "C" __global__ void __launch_bounds__(THREADS)
residual(int n, const double* __restrict__ aq, const double* __restrict__ a, double* __restrict__ r) {
    __shared__ double held[S];
    if (threadIdx.x < S) held[threadIdx.x] = a[threadIdx.x];
    __syncthreads();
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        double sum = r[i];
        #pragma unroll
        for (int k = 0; k < S; ++k) sum -= held[k] * aq[(size_t)k * n + i];
        r[i] = sum;
    }
}
