// scan: sums over the threads of a block in the order of threads, so that results never depend on timing.

template <class T> __device__ __forceinline__ T warp_inclusive(T v) {
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const T other = __shfl_up_sync(0xffffffffu, v, d);
        if ((int)(threadIdx.x % 32) >= d) v += other;
    }
    return v;
}

// The sum over all threads before this one; `total` becomes the sum over all. Every thread must call it.
template <class T> __device__ T block_exclusive(T v, T& total) {
    __shared__ T sums[33];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warps = (blockDim.x + 31) / 32;
    const T inclusive = warp_inclusive(v);
    __syncthreads();  // the sums of an earlier call have been read
    if (lane == 31) sums[warp] = inclusive;
    __syncthreads();
    if (warp == 0) {
        const T own = lane < warps ? sums[lane] : T(0), all = warp_inclusive(own);
        if (lane < warps) sums[lane] = all - own;
        if (lane == 31) sums[32] = all;
    }
    __syncthreads();
    total = sums[32];
    return sums[warp] + inclusive - v;
}
