// The OKP paper's own kernels, Alg. 2 and Alg. 3, as written there.
//
// Constants: B block size, S stages, THREADS threads per block. Vectors are stored stage after stage, q
// numbers each. Blocks are stored by columns, as Alg. 3 reads them.
//
// Alg. 3 assumes that the threads of a warp run in step, so __syncwarp separates its reduction steps here. α
// starts at 32/(2b) rounded up to a power of two, as its text says (4 where b = 4). The second Alg. 3 also
// adds the two terms (ADD), which saves the pass of a separate addition. Alg. 3 maps 32/b² whole blocks to a
// warp, so it is not defined for b > 5.
//
// Bytes moved, per product of one term: Alg. 2 reads and writes 8 q S; Alg. 3 reads the matrix once, x̃ once.

// x̃ = X Aᵀ (Alg. 2)
extern "C" __global__ void __launch_bounds__(THREADS)
stage_combination(int q, const double* __restrict__ a, const double* __restrict__ x, double* __restrict__ xt) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= q) return;
    double sum[S];
    #pragma unroll
    for (int j = 0; j < S; ++j) sum[j] = 0;
    #pragma unroll
    for (int i = 0; i < S; ++i) {
        const double xi = x[(size_t)i * q + t];
        #pragma unroll
        for (int j = 0; j < S; ++j) sum[j] += xi * a[j * S + i];
    }
    #pragma unroll
    for (int i = 0; i < S; ++i) xt[(size_t)i * q + t] = sum[i];
}

#if B * B <= 32
// o = M x̃ (Alg. 3), or o += M x̃. The stages of x̃ are p numbers apart, those of o are q apart: p and q
// differ in the off-diagonal part.
extern "C" __global__ void __launch_bounds__(THREADS)
warp_per_block_row(int n, const int* __restrict__ rows, const int* __restrict__ columns,
                   const double* __restrict__ values, const double* __restrict__ xt, int p, int q, int add,
                   double* __restrict__ out) {
    __shared__ double sm[S * THREADS];
    const int tx = threadIdx.x;
    #pragma unroll
    for (int i = 0; i < S; ++i) sm[i * THREADS + tx] = 0;
    const int g = (blockIdx.x * THREADS + tx) / 32;
    if (g >= n) return; // whole warps
    const int wl = tx % 32, last = rows[g + 1];
    const int c = wl / B % B, r = wl % B;
    if (wl < 32 / (B * B) * (B * B)) {
        for (int t = rows[g] + wl / (B * B); t < last; t += 32 / (B * B)) {
            const int j = columns[t];
            const double a = values[(size_t)t * (B * B) + c * B + r];
            #pragma unroll
            for (int i = 0; i < S; ++i) sm[i * THREADS + tx] += a * xt[(size_t)i * p + j * B + c];
        }
    }
    #pragma unroll
    for (int i = 0; i < S; ++i) {
        #pragma unroll
        for (int alpha = ALPHA; alpha >= 1; alpha /= 2) {
            __syncwarp();
            double other = 0;
            if (wl < alpha * B && wl + alpha * B < 32) other = sm[i * THREADS + tx + alpha * B];
            __syncwarp();
            sm[i * THREADS + tx] += other;
        }
        if (wl < B) {
            double* o = out + (size_t)i * q + (size_t)g * B + wl;
            *o = add ? *o + sm[i * THREADS + tx] : sm[i * THREADS + tx];
        }
    }
}
#endif
