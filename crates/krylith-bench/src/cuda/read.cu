// Sums a large array, to measure the bandwidth to which all shares refer. Bytes moved: 16n.
extern "C" __global__ void __launch_bounds__(512) read(const double2* __restrict__ a, double* out, long long n) {
    double sum = 0;
    const long long step = (long long)gridDim.x * blockDim.x;
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    for (; i + 3 * step < n; i += 4 * step) {
        const double2 x = a[i], y = a[i + step], z = a[i + 2 * step], w = a[i + 3 * step];
        sum += x.x + x.y + y.x + y.y + z.x + z.y + w.x + w.y;
    }
    for (; i < n; i += step) sum += a[i].x + a[i].y;
    if (sum == 1.2345) *out = sum; // keeps the loads
}
