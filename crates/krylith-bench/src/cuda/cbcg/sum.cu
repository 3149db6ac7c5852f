// Stands before each source of this folder.

// Returns the sum over a block's threads, in thread 0.
__device__ double block_sum(double sum) {
    __shared__ double warps[32];
    for (int o = 16; o > 0; o /= 2) sum += __shfl_down_sync(0xffffffffu, sum, o);
    __syncthreads();  // the sum before may still be read
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0)
        for (int w = 1; w < (int)blockDim.x / 32; ++w) sum += warps[w];
    return sum;
}

