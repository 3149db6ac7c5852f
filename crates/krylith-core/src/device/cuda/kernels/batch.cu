// batch: solutions of many small systems with one pattern, for cudss/batch.rs.
//
// batch_residual: residuals of new solutions, and the better solution of each system. A thread block has a
// system, and four lanes sum a row. Entry p of the pattern has the value at place[p], so that a transposed
// pattern reads the same values. ratio holds the norm of r over that of b for the better x. Bytes moved at
// least for each system: its values, b, the new x and r once.
// batch_add: the sum of two arrays.
typedef long long i64;
constexpr int THREADS = 128, LANES = 4;

__device__ double total(double own, double* parts) {
    for (int d = 1; d < 32; d *= 2) own += __shfl_xor_sync(~0u, own, d);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = own;
    __syncthreads();
    double sum = 0.0;
    for (int w = 0; w < THREADS / 32; ++w) sum += parts[w];
    __syncthreads();
    return sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
batch_residual(const int first, const int n, const i64 stored, const i64* __restrict__ row_ptr,
               const unsigned* __restrict__ col, const unsigned* __restrict__ place,
               const double* __restrict__ values, const double* __restrict__ b, const double* __restrict__ now,
               double* __restrict__ r, double* __restrict__ x, double* __restrict__ ratio) {
    __shared__ double parts[THREADS / 32];
    const i64 k = blockIdx.x;
    values += k * stored;
    b += k * n;
    now += k * n;
    r += k * n;
    x += k * n;
    const int lane = threadIdx.x % LANES;
    double rr = 0.0, bb = 0.0;
    for (int base = 0; base < n; base += THREADS / LANES) { // all lanes of a warp take part in the shuffles
        const int i = base + threadIdx.x / LANES;
        double sum = 0.0;
        if (i < n) {
            for (i64 p = row_ptr[i] + lane; p < row_ptr[i + 1]; p += LANES) {
                sum = fma(values[place[p]], now[col[p]], sum);
            }
        }
        for (int d = 1; d < LANES; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (i < n && lane == 0) {
            const double left = b[i] - sum;
            r[i] = left;
            rr = fma(left, left, rr);
            bb = fma(b[i], b[i], bb);
        }
    }
    rr = total(rr, parts);
    bb = total(bb, parts);
    const double found = bb > 0.0 ? sqrt(rr / bb) : sqrt(rr), known = ratio[k];
    const bool better = first || found < known || known != known;
    __syncthreads(); // all threads have read ratio
    if (!better) return;
    for (int i = threadIdx.x; i < n; i += THREADS) x[i] = now[i];
    if (threadIdx.x == 0) ratio[k] = found;
}

extern "C" __global__ void
batch_add(const i64 count, const double* __restrict__ x, const double* __restrict__ d, double* __restrict__ sum) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < count; i += step) sum[i] = x[i] + d[i];
}
