// diagonals: y = A x with A stored by diagonals.
//
// No macros. Bytes moved: 8 a stored place, x and y once (x again from the caches). One thread a row: every load of
// a diagonal is one line a warp, and the loads of all diagonals are independent.

extern "C" __global__ void diagonals(const int* halt, long long n, int count, const long long* __restrict__ offsets,
                                     const double* __restrict__ values, const double* __restrict__ x, double* __restrict__ y) {
    if (halt && *halt) return;
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    double sum = 0;
#pragma unroll 8
    for (int d = 0; d < count; ++d) {
        const long long j = i + offsets[d];
        if (j >= 0 && j < n) sum = fma(__ldcs(values + d * n + i), x[j], sum);
    }
    y[i] = sum;
}
