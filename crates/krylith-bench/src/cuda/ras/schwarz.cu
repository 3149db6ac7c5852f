// Gathers for the vendor's factors of subdomain matrices: values into the filled pattern, and vectors into
// the order of subdomains and back.
//
// Constants: B block size, THREADS threads per thread block.
//
// Bytes moved: `gather_values` reads the stored values and 4 bytes per entry, and writes all entries.
// `gather_nodes` reads and writes a vector, and reads 4 bytes per node.

#define FILL 0xFFFFFFFFu

// out[entry] = a[source[entry]], zeros where nothing is stored; blocks by rows, or turned to be by columns.
extern "C" __global__ void __launch_bounds__(THREADS)
gather_values(unsigned entries, int turned, const unsigned* __restrict__ source, const double* __restrict__ a,
              double* __restrict__ out) {
    const long long numbers = (long long)entries * (B * B);
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < numbers; i += (long long)gridDim.x * THREADS) {
        const unsigned from = source[i / (B * B)];
        const int k = (int)(i % (B * B));
        const int at = turned ? k % B * B + k / B : k;
        out[i] = from == FILL ? 0.0 : a[(long long)from * (B * B) + at];
    }
}

// y[i] = x[node[i]] for all B numbers of each node.
extern "C" __global__ void __launch_bounds__(THREADS)
gather_nodes(unsigned nodes, const unsigned* __restrict__ node, const double* __restrict__ x, double* __restrict__ y) {
    const long long numbers = (long long)nodes * B;
    for (long long i = (long long)blockIdx.x * THREADS + threadIdx.x; i < numbers; i += (long long)gridDim.x * THREADS)
        y[i] = x[(long long)node[i / B] * B + i % B];
}
