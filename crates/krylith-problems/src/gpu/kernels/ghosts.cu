// Packs the numbers that a rank sends: those of listed nodes, `run` numbers a node.
extern "C" __global__ void __launch_bounds__(256)
pack(int n, int run, const unsigned* __restrict__ nodes, const double* __restrict__ x, double* __restrict__ out)
{
    const long long k = blockIdx.x * (long long)256 + threadIdx.x;
    if (k < n * (long long)run)
        out[k] = x[nodes[k / run] * (long long)run + k % run];
}
