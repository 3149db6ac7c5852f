// One fused elementwise pass with sums, around a body written in the method's file (see space/sweep.rs).
//
// Macros, made from the sweep's declaration:
//   PARAMETERS   `, const double* a_` for each scalar, input, update and sum, in this order
//   SCALARS      loads of the scalars
//   INPUTS       loads of element i
//   STORES       stores of element i
//   BEGIN        the sums, set to 0
//   BODY         the statements
//   SUMS         number of sums; SUM_VALUES their names, SUM_PLACES their targets
//
// Bytes moved: 8n for each input, 16n for each update that is read. Threads process the vector with a fixed
// stride. A block's sums are added in a fixed tree, and the last block to arrive adds those of all blocks in
// block order, so results are deterministic.
// peers:  null, or the GPUs (peers.cuh) over which that last block also sums, all sums in one message.

#include "peers.cuh"

#define let const double

constexpr int THREADS = 256;

extern "C" __global__ void __launch_bounds__(THREADS)
sweep(const int* halt, const long long n, double* scratch, unsigned* counter, Group* peers PARAMETERS) {
    if (halt && *halt) return;
    SCALARS
    BEGIN
    for (long long i = blockIdx.x * (long long)THREADS + threadIdx.x; i < n; i += (long long)gridDim.x * THREADS) {
        INPUTS
        BODY
        STORES
    }
#if SUMS > 0
    __shared__ double part[SUMS][THREADS / 32];
    __shared__ bool last;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    double sums[SUMS] = {SUM_VALUES};
    double* const places[SUMS] = {SUM_PLACES};
    for (int k = 0; k < SUMS; ++k) {
        for (int bit = 16; bit; bit /= 2) sums[k] += __shfl_xor_sync(~0u, sums[k], bit);
        if (lane == 0) part[k][warp] = sums[k];
    }
    __syncthreads();
    if (threadIdx.x < SUMS) {
        double sum = 0;
        for (int i = 0; i < THREADS / 32; ++i) sum += part[threadIdx.x][i];
        scratch[threadIdx.x * gridDim.x + blockIdx.x] = sum;
        __threadfence();
    }
    __syncthreads();
    if (threadIdx.x == 0) last = atomicInc(counter, gridDim.x - 1) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    if (warp < SUMS) {
        Round round = {};
        if (peers) round = open_round(peers);
        double sum = 0;
        for (int b = lane; b < gridDim.x; b += 32) sum += __ldcg(scratch + warp * gridDim.x + b);
        for (int bit = 16; bit; bit /= 2) sum += __shfl_xor_sync(~0u, sum, bit);
        if (peers && lane < 8) post(round, warp, sum);
        if (lane == 0) *places[warp] = peers ? collect(peers, round, warp) : sum;
    }
    if (peers) close_round(peers);
#endif
}
