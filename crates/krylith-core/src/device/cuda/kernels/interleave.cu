// interleave, separate: copy numbers between `count` vectors and one array in which they alternate: number e
// of column q is at e * width + q. Columns from `count` on become zero, and are not read.
//
// Bytes moved: 8 per number of each column, and 8 * width per number of the array. A tile passes through
// shared memory, so that both sides access whole cache lines.

typedef long long i64;
constexpr int TILE = 256, MOST = 16;
struct Vectors { double* column[MOST]; };

extern "C" __global__ void __launch_bounds__(TILE)
interleave(const int* halt, const i64 numbers, const int count, const int width, const Vectors from, double* __restrict__ to) {
    if (halt && *halt) return;
    __shared__ double tile[MOST * (TILE + 1)];
    const i64 first = blockIdx.x * (i64)TILE, e = first + threadIdx.x;
    for (int q = 0; q < width; ++q) tile[q * (TILE + 1) + threadIdx.x] = q < count && e < numbers ? from.column[q][e] : 0.0;
    __syncthreads();
    for (int k = threadIdx.x; k < TILE * width; k += TILE)
        if (first + k / width < numbers) to[first * width + k] = tile[k % width * (TILE + 1) + k / width];
}

extern "C" __global__ void __launch_bounds__(TILE)
separate(const int* halt, const i64 numbers, const int count, const int width, const double* __restrict__ from, const Vectors to) {
    if (halt && *halt) return;
    __shared__ double tile[MOST * (TILE + 1)];
    const i64 first = blockIdx.x * (i64)TILE, e = first + threadIdx.x;
    for (int k = threadIdx.x; k < TILE * width; k += TILE)
        if (first + k / width < numbers) tile[k % width * (TILE + 1) + k / width] = from[first * width + k];
    __syncthreads();
    if (e < numbers)
        for (int q = 0; q < count; ++q) to.column[q][e] = tile[q * (TILE + 1) + threadIdx.x];
}

// all_halted: 1 if the guards of all solves are raised, else 0.
struct Flags { const int* flag[MOST]; };

extern "C" __global__ void all_halted(const int count, const Flags flags, int* out) {
    const bool raised = threadIdx.x >= count || *flags.flag[threadIdx.x] != 0;
    const bool all = __all_sync(~0u, raised);
    if (threadIdx.x == 0) *out = all;
}
