// The lower triangular solve that waits for single rows: Alg. 4.1, "spin_loop_lds", of the paper that
// `ildu0/mod.rs` names. It computes x = D⁻¹ (I + L)⁻¹ b.
//
// Constants: B block size, THREADS threads per block. Each subdomain has one thread block, each row one warp,
// and each block of the row one lane. The sums of rows are in shared memory: (rows of the largest
// subdomain)·B numbers; the launch sets the size.
//
// The triangle is stored with its diagonal as the paper's ILU0: L̂ = (I + L) D in CSR or BSR, blocks
// row-major. Columns are 16-bit numbers within the subdomain. The inverse of the diagonal is a separate
// array.
//
// The paper leaves three choices open. Rows go to warps in turn, so a warp only waits for rows in progress.
// The flags hold the number of the launch, so no kernel has to clear them. x passes from warp to warp by a
// release and an acquire within the block; the paper says atomic_store and atomic_load.
//
// Bytes moved: the triangle, its columns and row pointers, the inverse diagonal, b and x; one flag per row is
// read and written.

__device__ __forceinline__ unsigned acquire(const unsigned* p) {
    unsigned value;
    asm volatile("ld.acquire.cta.global.u32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
    return value;
}
__device__ __forceinline__ void release(unsigned* p, unsigned value) {
    asm volatile("st.release.cta.global.u32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}

extern "C" __global__ void __launch_bounds__(THREADS)
spin_loop_lds(const int* __restrict__ first, const int* __restrict__ row_ptr,
              const unsigned short* __restrict__ columns, const double* __restrict__ values,
              const double* __restrict__ inverse, const double* __restrict__ b, double* x, unsigned* done,
              unsigned launch) {
    extern __shared__ double sum[];
    const int begin = first[blockIdx.x], rows = first[blockIdx.x + 1] - begin;
    for (int i = threadIdx.x; i < rows * B; i += THREADS) sum[i] = 0;
    __syncthreads();
    const int lane = threadIdx.x % 32;
    for (int i = threadIdx.x / 32; i < rows; i += THREADS / 32) {
        for (int p = row_ptr[begin + i] + lane; p < row_ptr[begin + i + 1]; p += 32) {
            const int j = begin + columns[p];
            double a[B * B];
            #pragma unroll
            for (int k = 0; k < B * B; ++k) a[k] = values[(size_t)p * (B * B) + k];
            while (acquire(done + j) != launch) {
            }
            #pragma unroll
            for (int r = 0; r < B; ++r) {
                double s = 0;
                #pragma unroll
                for (int c = 0; c < B; ++c) s += a[r * B + c] * x[(size_t)j * B + c];
                atomicAdd(&sum[i * B + r], s);
            }
        }
        __syncwarp();
        if (lane == 0) {
            const size_t row = begin + i;
            double t[B];
            #pragma unroll
            for (int r = 0; r < B; ++r) t[r] = b[row * B + r] - sum[i * B + r];
            #pragma unroll
            for (int r = 0; r < B; ++r) {
                double s = 0;
                #pragma unroll
                for (int c = 0; c < B; ++c) s += inverse[(row * B + r) * B + c] * t[c];
                x[row * B + r] = s;
            }
            release(done + row, launch);
        }
        __syncwarp();
    }
}
