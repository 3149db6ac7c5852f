// block_diagonal: y = D x, or y = D^T x if transposed is not 0, with dense blocks of order ORDER on the
// diagonal (point-block Jacobi).
//
// Macros: ORDER 1 to 32 (b times s), VALUE double or float (storage; arithmetic is in double).
// Bytes moved: ORDER * ORDER * sizeof(VALUE) per node, and 16 * ORDER for x and y.
//
// Blocks are stored by columns, with nodes interleaved in groups of GROUP: entry (r, c) of node i is at ((i /
// GROUP * ORDER + c) * GROUP + i % GROUP) * ORDER + r. A thread computes one number of y, so a warp reads
// whole cache lines for any order, and the node's x comes through shared memory.

constexpr int GROUP = ORDER >= 32 ? 1 : (32 + ORDER - 1) / ORDER;   // interleaved nodes
constexpr int NODES = ORDER >= 8 ? (256 / ORDER / GROUP > 0 ? 256 / ORDER / GROUP : 1) * GROUP
                                 : (256 / ORDER) / GROUP * GROUP;   // nodes per thread block
constexpr int THREADS = NODES * ORDER;

extern "C" __global__ void __launch_bounds__(THREADS)
block_diagonal(const int* halt, long long nodes, int transposed, const VALUE* __restrict__ d, const double* __restrict__ x,
               double* __restrict__ y) {
    if (halt && *halt) return;
    __shared__ double run[THREADS];
    const long long first = blockIdx.x * (long long)NODES * ORDER, at = first + threadIdx.x;
    const bool own = at < nodes * ORDER;
    const int node = threadIdx.x / ORDER, r = threadIdx.x % ORDER;
    const long long i = blockIdx.x * (long long)NODES + node;
    // A thread reads row r of the block, or column r.
    const long long step = transposed ? 1 : GROUP * ORDER;
    const VALUE* from = d + (transposed ? ((i / GROUP * ORDER + r) * GROUP + i % GROUP) * ORDER
                                        : (i / GROUP * ORDER * GROUP + i % GROUP) * ORDER + r);
    VALUE entry[ORDER];
    if (own) {
#pragma unroll
        for (int c = 0; c < ORDER; ++c) entry[c] = __ldcs(from + c * step);
    }
    run[threadIdx.x] = own ? x[at] : 0.0;
    __syncthreads();
    if (!own) return;
    double sum = 0;
#pragma unroll
    for (int c = 0; c < ORDER; ++c) sum = fma((double)entry[c], run[node * ORDER + c], sum);
    y[at] = sum;
}
