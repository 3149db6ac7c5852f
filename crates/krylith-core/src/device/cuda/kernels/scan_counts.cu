// scan_counts: exclusive prefix sums of 32-bit counts as 64-bit numbers, followed by their total.
//
// Macros: THREADS per block, ITEMS per thread. There are three launches: sums of blocks, their prefix sums by
// one block, prefix sums within blocks.
// Bytes moved: 8 read and 8 written per count.

typedef long long i64;

// The exclusive prefix sum of one number per thread, and the sum of all.
__device__ i64 before(i64 own, i64& total) {
    __shared__ i64 warps[THREADS / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    i64 sum = own;
    for (int step = 1; step < 32; step *= 2) {
        const i64 left = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += left;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    i64 offset = 0;
    total = 0;
    for (int w = 0; w < THREADS / 32; ++w) {
        if (w < warp) offset += warps[w];
        total += warps[w];
    }
    __syncthreads();
    return offset + sum - own;
}

extern "C" __global__ void scan_blocks(const i64 n, const unsigned* __restrict__ counts, i64* __restrict__ sums) {
    const i64 begin = blockIdx.x * (i64)(THREADS * ITEMS);
    i64 own = 0, total;
    for (int k = 0; k < ITEMS; ++k) {
        const i64 i = begin + k * THREADS + threadIdx.x;
        if (i < n) own += counts[i];
    }
    before(own, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// One block.
extern "C" __global__ void scan_sums(const i64 blocks, i64* __restrict__ sums, i64* __restrict__ end) {
    i64 done = 0;
    for (i64 begin = 0; begin < blocks; begin += THREADS) {
        const i64 i = begin + threadIdx.x;
        i64 total;
        const i64 place = before(i < blocks ? sums[i] : 0, total);
        if (i < blocks) sums[i] = done + place;
        done += total;
    }
    if (threadIdx.x == 0) *end = done;
}

extern "C" __global__ void scan_places(const i64 n, const unsigned* __restrict__ counts, const i64* __restrict__ sums, i64* __restrict__ places) {
    i64 done = sums[blockIdx.x];
    for (int k = 0; k < ITEMS; ++k) {
        const i64 i = (blockIdx.x * (i64)ITEMS + k) * THREADS + threadIdx.x;
        i64 total;
        const i64 place = before(i < n ? counts[i] : 0, total);
        if (i < n) places[i] = done + place;
        done += total;
    }
}
