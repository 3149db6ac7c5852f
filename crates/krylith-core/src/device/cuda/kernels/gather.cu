// gather_runs: packed[i*run + e] = x[nodes[i]*run + e], 0 <= i < count, 0 <= e < run: copies the nodes that a
// neighbour needs into one contiguous message, for transports that cannot store into its memory.
//
// Arguments: run = block size times stages, the numbers per node; x and packed are 16-byte aligned where run
// is even, 8-byte aligned where it is odd. Any grid and block; threads copy chunks of 16 bytes (8 where run
// is odd), neighbouring threads neighbouring chunks.
// Bytes moved: 16 run + 4 per node.
//
// scatter_runs: x[nodes[i]*run + e] = packed[i*run + e], the opposite, with the same arguments and bytes. No
// node occurs twice.

template <class Piece>
__device__ __forceinline__ void gather(int count, int pieces, const int* nodes, const Piece* x, Piece* packed) {
    const long long end = (long long)count * pieces;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < end; i += (long long)gridDim.x * blockDim.x)
        packed[i] = x[(long long)nodes[i / pieces] * pieces + i % pieces];
}

extern "C" __global__ void gather_runs(const int* halt, int count, int run, const int* nodes, const double* x, double* packed) {
    if (halt && *halt) return;
    if (run % 2 == 0) gather(count, run / 2, nodes, (const double2*)x, (double2*)packed);
    else gather(count, run, nodes, x, packed);
}

template <class Piece>
__device__ __forceinline__ void scatter(int count, int pieces, const int* nodes, const Piece* packed, Piece* x) {
    const long long end = (long long)count * pieces;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < end; i += (long long)gridDim.x * blockDim.x)
        x[(long long)nodes[i / pieces] * pieces + i % pieces] = packed[i];
}

extern "C" __global__ void scatter_runs(const int* halt, int count, int run, const int* nodes, const double* packed, double* x) {
    if (halt && *halt) return;
    if (run % 2 == 0) scatter(count, run / 2, nodes, (const double2*)packed, (double2*)x);
    else scatter(count, run, nodes, packed, x);
}
