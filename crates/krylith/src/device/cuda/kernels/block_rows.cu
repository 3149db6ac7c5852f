// block_rows: the plain product, one thread a scalar row, values in their natural order.
//
// Macros: BLOCK, STAGES, VALUE. Bytes moved: values and columns once (uncoalesced across threads), x from cache.
// y (+)= (C (x) A) x. The fused product (kron_product.cu) replaces it wherever it is specialised.

extern "C" __global__ void block_rows(const int* halt, long long rows, const long long* row_ptr, const unsigned* col, const VALUE* a,
                                      const double* c, int add, const double* x, double* y) {
    if (halt && *halt) return;
    const long long t = blockIdx.x * (long long)blockDim.x + threadIdx.x, i = t / BLOCK, r = t % BLOCK;
    if (i >= rows) return;
    double z[STAGES] = {};
    for (long long p = row_ptr[i]; p < row_ptr[i + 1]; ++p) {
        const double* run = x + (long long)col[p] * (BLOCK * STAGES);
        for (int q = 0; q < BLOCK; ++q) {
            const double v = a[(p * BLOCK + r) * BLOCK + q];
            for (int k = 0; k < STAGES; ++k) z[k] += v * run[q * STAGES + k];
        }
    }
    for (int k = 0; k < STAGES; ++k) {
        double sum = add ? y[t * STAGES + k] : 0;
        for (int q = 0; q < STAGES; ++q) sum += c[k * STAGES + q] * z[q];
        y[t * STAGES + k] = sum;
    }
}
