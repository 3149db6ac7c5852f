// Kernels of the baselines before and after messages between GPUs.
//
// No macros. Vectors are stored stage after stage, q numbers each. The caller owns the arrays, of f64 and of
// 32-bit integers. Each entry has a thread.
//
// Bytes moved, l numbers: parallel_buffering 16 l and the index array; gather and scatter 20 l.

// The OKP paper's parallel buffering (Alg. 5): segment after segment, node after node of the index array c.
extern "C" __global__ void parallel_buffering(const double* __restrict__ x, int q, const int* __restrict__ c, int l,
                                              int b, int s, double* __restrict__ buffer) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t >= l) return;
    const int length = l / s, w = t / length, node = (t % length) / b, o = (t % length) % b;
    buffer[t] = x[c[node] + o + (size_t)w * q];
}

// to[i] = from[map[i]]: reordering by the maps of Alg. 6, and packing.
extern "C" __global__ void gather(int l, const int* __restrict__ map, const double* __restrict__ from,
                                  double* __restrict__ to) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < l) to[t] = from[map[t]];
}

// to[map[i]] = from[i]: puts received numbers in their places.
extern "C" __global__ void scatter(int l, const int* __restrict__ map, const double* __restrict__ from,
                                   double* __restrict__ to) {
    const int t = blockIdx.x * blockDim.x + threadIdx.x;
    if (t < l) to[map[t]] = from[t];
}
