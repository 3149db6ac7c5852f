// amg_transfer: y <- W x or y <- y + W x with scalar weights W, P or R between two levels, for nodes of `order` unknowns each.
//
// A thread has one unknown of one row; threads of a row read neighbouring numbers of x. Sums go in the order of the row.
// Bytes it must move: of each weight 8 and 4 for its column, of each row 8 for its beginning; x once, y once, and once more where it is added to.

typedef long long i64;

extern "C" __global__ void __launch_bounds__(256)
amg_transfer(const int* halt, i64 rows, int order, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
             const double* __restrict__ weight, const double* __restrict__ x, double* __restrict__ y, int add) {
    if (halt && *halt) return;
    for (i64 t = blockIdx.x * (i64)blockDim.x + threadIdx.x; t < rows * order; t += (i64)gridDim.x * blockDim.x) {
        const i64 i = t / order;
        const int c = (int)(t - i * order);
        const i64 end = row_ptr[i + 1];
        double sum = 0;
        for (i64 p = row_ptr[i]; p < end; ++p) sum = fma(weight[p], x[(i64)col[p] * order + c], sum);
        y[t] = add ? y[t] + sum : sum;
    }
}
