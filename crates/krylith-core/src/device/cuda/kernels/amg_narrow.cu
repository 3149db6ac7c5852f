// Vectors and matrices of a cycle in f32: conversions, the first step of a smoother, and the solve on the
// last level. All other operations of such a cycle are dia.cu, csr.cu, csr_lanes.cu and amg_transfer.cu with
// REAL as float. Arithmetic is in f32, but in f64 on the last level.
//
// b is multiplied by a power of two before it is rounded, and x by the inverse, so a cycle is linear up to
// rounding. The power is that of the last cycle, if it brings the largest entry of b to 2^-30 to 2^30.
// Otherwise b is converted a second time.
// Bytes moved: narrow_in 12 per number, narrow_out 12, narrow_first 12, narrow_values 12, narrow_dense 4 per
// number of the matrix.

typedef long long i64;
typedef unsigned long long u64;

// The scale of vectors: 2^-exponent times b. All numbers start at 0.
struct Scale {
    int exponent, result;  // `result` is that of x
    u64 largest;           // bits of the largest |b[i]|, which order as the numbers do
    unsigned blocks, again;
};

// The exponent of a number; that of 0, infinity and NaN is `other`.
__device__ __forceinline__ int exponent_of(u64 bits, int other) {
    const int e = (int)(bits >> 52);
    return e == 0x7ff || bits == 0 ? other : max(e, 1) - 1023;
}
__device__ __forceinline__ float narrow(double v, int e) {
    // Powers of two beyond the range of one number do not occur together with numbers near 1.
    return (float)(e ? ldexp(v, -e) : v);
}

// b in f32, scaled; with `d` also the first step of a smoother, x = c D^-1 b. `shift` is the exponent of x
// without that of b. With `again`, it does something only if the scale was wrong.
extern "C" __global__ void __launch_bounds__(256)
narrow_in(const int* halt, const i64 n, const double* __restrict__ from, Scale* scale, const int shift, const int again, float* __restrict__ b,
          const float* __restrict__ d, const double* __restrict__ c, float* __restrict__ x) {
    if (halt && *halt) return;
    if (again && !scale->again) return;
    const int e = scale->exponent;
    const float factor = d ? (float)*c : 0;
    u64 most = 0;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        const double v = from[i];
        const float own = narrow(v, e);
        b[i] = own;
        if (d) x[i] = factor * d[i] * own;
        most = max(most, (u64)__double_as_longlong(fabs(v)));
    }
    if (again) return;
#pragma unroll
    for (int bit = 16; bit; bit /= 2) most = max(most, __shfl_xor_sync(~0u, most, bit));
    __shared__ u64 part[8];
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int w = 1; w < 8; ++w) most = max(most, part[w]);
    atomicMax(&scale->largest, most);
    __threadfence();
    if (atomicInc(&scale->blocks, gridDim.x - 1) != gridDim.x - 1) return;
    const int found = exponent_of(atomicExch(&scale->largest, 0ull), e);
    scale->again = found - e > 30 || e - found > 30;
    if (scale->again) scale->exponent = found;
    scale->result = scale->exponent + shift;
}

// x in f64, with the scales of b and of the matrix undone.
extern "C" __global__ void __launch_bounds__(256)
narrow_out(const int* halt, const i64 n, const float* __restrict__ from, const Scale* scale, double* __restrict__ x) {
    if (halt && *halt) return;
    const int e = scale->result;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x)
        x[i] = e ? ldexp((double)from[i], e) : (double)from[i];
}

// x = c D^-1 b.
extern "C" __global__ void __launch_bounds__(256)
narrow_first(const int* halt, const i64 n, const float* __restrict__ d, const float* __restrict__ b, const double* __restrict__ c, float* __restrict__ x) {
    if (halt && *halt) return;
    const float factor = (float)*c;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) x[i] = factor * d[i] * b[i];
}

// y = A x with a dense matrix of order n, by rows. A warp computes a row.
extern "C" __global__ void __launch_bounds__(256)
narrow_dense(const int* halt, const int n, const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y) {
    if (halt && *halt) return;
    const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
    if (row >= n) return;
    const float* const of = a + (i64)row * n;
    double sum = 0.0;
#pragma unroll 4
    for (int j = lane; j < n; j += 32) sum = fma((double)of[j], (double)x[j], sum);
#pragma unroll
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(~0u, sum, d);
    if (lane == 0) y[row] = (float)sum;
}

// Rounds numbers times 2^shift to f32.
extern "C" __global__ void __launch_bounds__(256) narrow_values(const i64 n, const double* __restrict__ from, const int shift, float* __restrict__ to) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) to[i] = (float)ldexp(from[i], shift);
}

// The smallest and the largest exponent of every stride-th number that is not 0: range[0] and range[1], which
// begin with 0xffff and 0. A number that is not finite has the exponent 0x7ff.
extern "C" __global__ void __launch_bounds__(256) narrow_range(const i64 n, const int stride, const double* __restrict__ v, unsigned* range) {
    unsigned low = 0xffff, high = 0;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * blockDim.x) {
        const u64 bits = (u64)__double_as_longlong(fabs(v[i * stride]));
        if (!bits) continue;
        low = min(low, (unsigned)(bits >> 52));
        high = max(high, (unsigned)(bits >> 52));
    }
#pragma unroll
    for (int d = 16; d; d /= 2) {
        low = min(low, __shfl_xor_sync(~0u, low, d));
        high = max(high, __shfl_xor_sync(~0u, high, d));
    }
    if (threadIdx.x % 32 > 0) return;
    atomicMin(range, low);
    atomicMax(range + 1, high);
}
