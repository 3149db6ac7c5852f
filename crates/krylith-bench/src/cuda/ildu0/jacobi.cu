// Point Jacobi of a point-block matrix: the inverse of its diagonal, and a product with it.
//
// Constants: B block size, THREADS threads per thread block. Block rows begin at `row_ptr`. Block p is in
// block column `columns[p]` and has B² numbers, by rows or by columns.
//
// Bytes moved by `multiply`: 3 vectors of n numbers.

// d[i] = 1 / a[i][i]; infinite where a[i][i] is missing or zero. One thread per scalar row.
extern "C" __global__ void __launch_bounds__(THREADS)
invert_diagonal(int n, const int* __restrict__ row_ptr, const int* __restrict__ columns,
                const double* __restrict__ values, double* __restrict__ d) {
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        const int row = i / B, r = i % B;
        double found = 0;
        for (int p = row_ptr[row]; p < row_ptr[row + 1]; p++)
            if (columns[p] == row) found = values[((long long)p * B + r) * B + r];
        d[i] = 1 / found;
    }
}

// y = d x
extern "C" __global__ void __launch_bounds__(THREADS)
multiply(int n, const double* __restrict__ d, const double* __restrict__ x, double* __restrict__ y) {
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) y[i] = d[i] * x[i];
}
