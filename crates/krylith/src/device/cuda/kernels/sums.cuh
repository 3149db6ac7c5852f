// sums: sums over all threads of a launch, over all blocks in their order, and over all GPUs: for kernels that sum in a pass of their own.
// Macros: THREADS (of a block). Deterministic: a fixed tree in a block, and the blocks by the last one to arrive, in block order.

#include "peers.cuh"

// Where sums go: a number of each block of threads to parts[k * total + first + block], their totals to places[k].
struct Sums {
    double* parts;
    unsigned* counter;
    double* places[2];
    Group* peers;     // null, or the GPUs over which the last block sums on
    int first, total; // blocks of launches before this one, and of all; no sums are wanted where total is 0
    int last, unused; // last: this launch adds up
};

// Adds sums[k] over all blocks of the launch and over all ranks. Every thread calls it.
template <int DOTS>
__device__ __forceinline__ void add_up(const Sums& to, double (&sums)[DOTS]) {
    __shared__ double part[DOTS][THREADS / 32];
    __shared__ bool last;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int k = 0; k < DOTS; ++k) {
#pragma unroll
        for (int bit = 16; bit; bit /= 2) sums[k] += __shfl_xor_sync(~0u, sums[k], bit);
        if (lane == 0) part[k][warp] = sums[k];
    }
    __syncthreads();
    if (threadIdx.x < DOTS) {
        double sum = 0.0;
        for (int w = 0; w < THREADS / 32; ++w) sum += part[threadIdx.x][w];
        to.parts[threadIdx.x * (long long)to.total + to.first + blockIdx.x] = sum;
        __threadfence();
    }
    if (!to.last) return;
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(to.counter, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
#pragma unroll
    for (int k = 0; k < DOTS; ++k) {
        double sum = 0.0;
        for (int b = threadIdx.x; b < to.total; b += THREADS) sum += __ldcg(to.parts + k * (long long)to.total + b);
#pragma unroll
        for (int bit = 16; bit; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        if (lane == 0) part[k][warp] = sum;
    }
    __syncthreads();
    for (int k = warp; k < DOTS; k += THREADS / 32) {
        Round round = {};
        if (to.peers) round = open_round(to.peers);
        double sum = lane < THREADS / 32 ? part[k][lane] : 0.0;
#pragma unroll
        for (int bit = 16; bit; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        if (to.peers && lane < 8) post(round, k, sum);
        if (lane == 0) *to.places[k] = to.peers ? collect(to.peers, round, k) : sum;
    }
    if (to.peers) close_round(to.peers);
}
