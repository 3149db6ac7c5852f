// schwarz_halo: the exchange between the subdomains of several GPUs, and the start of an application.
//
//   schwarz_send    starts the exchange of nodes of RUN numbers: stores the numbers that neighbours need into
//                   their ghosts
//   schwarz_import  waits for the ghosts and copies them behind the own numbers: blocks of values, RUN = b*b
//   schwarz_start   R^delta: waits for the ghosts and gives every row its node's numbers, RUN = b
//   schwarz_add     (R^delta)^T: adds the results of all rows on their nodes, RUN = b
//
// Macros: RUN (numbers per node), PAIR (2 if RUN is even, else 1), THREADS, REAL (float: vectors over the
// rows are in f32).
//
// With REAL as float, schwarz_start is launched twice. The second launch does something only if the scale of
// the last application does not bring the largest number to 2^-30 to 2^30.
// Bytes moved at least: over the links 8 RUN per node sent; to import, 16 RUN per ghost; to start, 4 per row
// and 8 RUN per row three times (twice if `how` sets nothing else); to add, 4 + 8 RUN per row and 8 RUN per
// node.

constexpr int PIECES = RUN / PAIR;
#include "halo.cuh"
#define ORDER 1
#include "schwarz.cuh"

extern "C" __global__ void __launch_bounds__(THREADS) schwarz_send(const int* halt, const double* x, Exchange* exchange) {
    if (halt && *halt) return;
    begin_exchange(exchange, x);
}

// Reads the ghosts of an exchange, or without one those at `ghosts`, which have already arrived. After a
// timeout nothing is copied: the group records the failure.
extern "C" __global__ void __launch_bounds__(THREADS) schwarz_import(const int* halt, i64 count, const double* ghosts, double* __restrict__ to, Exchange* exchange) {
    if (halt && *halt) return;
    if (exchange) ghosts = awaited_ghosts(exchange);
    if (!ghosts) return;
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < count; i += (i64)gridDim.x * THREADS) to[i] = ghosts[i];
}

// Chooses the scale for the largest of all numbers, in the last thread block to arrive.
__device__ __forceinline__ void settle(Scale* scale, u64 most, int e, int shift) {
#pragma unroll
    for (int bit = 16; bit; bit /= 2) most = max(most, __shfl_xor_sync(ALL, most, bit));
    __shared__ u64 part[THREADS / 32];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < THREADS / 32; ++w) most = max(most, part[w]);
    atomicMax(&scale->largest, most);
    __threadfence();
    if (atomicInc(&scale->blocks, gridDim.x - 1) != gridDim.x - 1) return;
    const u64 all = atomicExch(&scale->largest, 0ull);
    const int biased = (int)(all >> 52), found = biased == 0x7ff || all == 0 ? e : max(biased, 1) - 1023;
    scale->again = found - e > 30 || e - found > 30;
    if (scale->again) scale->exponent = found;
    scale->result = scale->exponent + shift;
}

// w: the right-hand side row by row. how: 0 sets nothing else, 1 initialises v with the same numbers, 2 marks
// v as not computed yet. kept: null, or for each row from the end NONE if its right-hand side is zero (R^0).
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_start(const int* halt, int rows, int own, const unsigned* __restrict__ node, const double* __restrict__ x, const double* ghosts,
              REAL* __restrict__ w, REAL* __restrict__ v, int how, const unsigned* __restrict__ kept, unsigned* tickets, Exchange* exchange,
              Scale* scale, int shift, int again) {
    if (halt && *halt) return;
    if (SCALED && again && !scale->again) return;
    if (exchange) ghosts = awaited_ghosts(exchange);
    if (exchange && !ghosts) return;
    if (blockIdx.x == 0 && threadIdx.x < 2) tickets[threadIdx.x] = 0;
    const i64 count = (i64)rows * RUN;
    const int e = SCALED ? scale->exponent : 0;
    u64 most = 0;
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < count; i += (i64)gridDim.x * THREADS) {
        const int row = (int)(i / RUN), c = (int)(i % RUN);
        const int n = (int)node[row];
        double value = 0;
        if (!kept || kept[rows - 1 - row] != NONE) value = n < own ? x[(i64)n * RUN + c] : ghosts[(i64)(n - own) * RUN + c];
        if (SCALED) most = max(most, (u64)__double_as_longlong(fabs(value)));
        const REAL own = SCALED && e ? (REAL)ldexp(value, -e) : (REAL)value;
        w[i] = own;
        if (how) v[i] = how == 2 ? unset() : own;
    }
    if (SCALED && !again) settle(scale, most, e, shift);
}

// Adds the numbers ptr[i] .. ptr[i + 1] of each of `count` nodes from `first` on, in ascending order. Number
// k is the result of row k, which z has from the end, or number k - rows of those that arrived.
extern "C" __global__ void __launch_bounds__(THREADS)
schwarz_add(const int* halt, int first, int count, int rows, const unsigned* __restrict__ ptr, const unsigned* __restrict__ number,
            const REAL* __restrict__ z, const double* arrived, double* __restrict__ to, Exchange* exchange, const Scale* scale) {
    if (halt && *halt) return;
    if (exchange) arrived = awaited_ghosts(exchange);
    if (exchange && !arrived) return;
    const int e = SCALED ? scale->result : 0;
    for (i64 i = blockIdx.x * (i64)THREADS + threadIdx.x; i < (i64)count * RUN; i += (i64)gridDim.x * THREADS) {
        const int node = first + (int)(i / RUN), c = (int)(i % RUN);
        double sum = 0;
        for (unsigned p = ptr[node]; p < ptr[node + 1]; ++p) {
            const i64 k = number[p];
            if (k < rows) {
                const double own = z[(rows - 1 - k) * RUN + c];
                sum += e ? ldexp(own, e) : own;
            } else {
                sum += arrived[(k - rows) * RUN + c];
            }
        }
        to[i] = sum;
    }
}
