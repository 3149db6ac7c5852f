// jacobi: the inverted diagonal blocks of sum C_t (x) A_t, in the order in which block_diagonal.cu reads
// them.
// Constants: ORDER 1 to 32 (b times s), VALUE double or float (storage; arithmetic is in double).
// Bytes moved: one block of b * b numbers per node and term, and ORDER * ORDER * sizeof(VALUE) per node.
//
// jacobi_find: position of the diagonal block of each row, or -1. jacobi_invert: Gauss-Jordan elimination
// with row pivoting, with rows scaled by their largest entry. Each number is rounded as on the host
// (precond/jacobi.rs), so both have the same bits. A lane holds a row, and LANES lanes a node.

constexpr int LANES = ORDER > 16 ? 32 : ORDER > 8 ? 16 : ORDER > 4 ? 8 : ORDER > 2 ? 4 : ORDER;
constexpr int NODES = 32 / LANES;                                  // nodes per warp
constexpr int WARPS = ORDER > 20 ? 2 : 4;
// numbers per row: block, inverse; odd, against bank conflicts
constexpr int STRIDE = 2 * ORDER + 1;
// interleaved nodes, as in block_diagonal.cu
constexpr int GROUP = ORDER >= 32 ? 1 : (32 + ORDER - 1) / ORDER;
constexpr unsigned ALL = 0xffffffff;

extern "C" __global__ void __launch_bounds__(256)
jacobi_find(const long long rows, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, long long* __restrict__ positions) {
    const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= rows) return;
    const long long end = row_ptr[i + 1];
    long long low = row_ptr[i], high = end;
    while (low < high) {
        const long long middle = (low + high) / 2;
        if (col[middle] < i) low = middle + 1;
        else high = middle;
    }
    positions[i] = low < end && col[low] == i ? low : -1;
}

// One term: positions of its diagonal blocks, its values, its coefficients (s x s); null for a missing array.
struct Term { const long long* positions; const double* values; const double* coefficients; };

// worst becomes the least 4 * row + kind over all faulty rows: 0 no block, 1 only zeros, 2 singular. If `out`
// is null, nothing is stored.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
jacobi_invert(const long long nodes, const int stages, const Term first, const Term second, const double tiny, VALUE* __restrict__ out, unsigned long long* worst) {
    __shared__ double room[WARPS * NODES * ORDER * STRIDE];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = lane % LANES, group = lane / LANES;
    const long long node = ((long long)blockIdx.x * WARPS + warp) * NODES + group;
    const bool here = node < nodes, own = here && r < ORDER;
    double* const a = room + (warp * NODES + group) * (ORDER * STRIDE);
    double* const mine = a + (r < ORDER ? r : 0) * STRIDE;
    auto any = [&](bool is) { return (__ballot_sync(ALL, is) >> (group * LANES) & (ALL >> (32 - LANES))) != 0; };

    const int b = ORDER / stages;
    bool present = false;
    if (own)
        for (int k = 0; k < 2 * ORDER; ++k) mine[k] = 0.0;
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        const Term& term = t == 0 ? first : second;
        const long long at = here && term.values ? term.positions[node] : -1;
        if (at < 0) continue;
        present = true;
        if (!own) continue;
        const double* block = term.values + (at * b + r / stages) * b;
        const double* c = term.coefficients + r % stages * stages;
        for (int q = 0; q < b; ++q)
            for (int l = 0; l < stages; ++l) mine[q * stages + l] = __dadd_rn(mine[q * stages + l], __dmul_rn(c[l], block[q]));
    }
    bool nonzero = false, bad = false;
    if (own) {
        double largest = 0.0;
        for (int k = 0; k < ORDER; ++k) {
            nonzero |= mine[k] != 0.0;
            bad |= !isfinite(mine[k]);
            largest = fmax(largest, fabs(mine[k]));
        }
        bad |= !(largest > 0.0);
        for (int k = 0; k < ORDER; ++k) mine[k] = __ddiv_rn(mine[k], largest);
        mine[ORDER + r] = __ddiv_rn(1.0, largest);
    }
    nonzero = any(nonzero);
    __syncwarp();
#pragma unroll 1
    for (int c = 0; c < ORDER; ++c) {
        // The largest entry of the column from row c on, the first of equal ones.
        double size = own && r >= c ? fabs(mine[c]) : -1.0;
        int pivot = r;
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2) {
            const double other = __shfl_xor_sync(ALL, size, d);
            const int of = __shfl_xor_sync(ALL, pivot, d);
            if (other > size || (other == size && of < pivot)) {
                size = other;
                pivot = of;
            }
        }
        size = __shfl_sync(ALL, size, 0, LANES);
        pivot = __shfl_sync(ALL, pivot, 0, LANES);
        bad |= !(size >= tiny);
        // if no comparison succeeds: the block is known to be bad
        if (pivot < c || pivot >= ORDER) pivot = c;
        __syncwarp();
        if (here && pivot != c)
            for (int k = r; k < 2 * ORDER; k += LANES) {
                const double v = a[pivot * STRIDE + k];
                a[pivot * STRIDE + k] = a[c * STRIDE + k];
                a[c * STRIDE + k] = v;
            }
        __syncwarp();
        const double inverse = here ? __ddiv_rn(1.0, a[c * STRIDE + c]) : 0.0;
        __syncwarp();
        if (here)
            for (int k = r; k < 2 * ORDER; k += LANES) a[c * STRIDE + k] = __dmul_rn(a[c * STRIDE + k], inverse);
        __syncwarp();
        if (own && r != c) {
            const double f = mine[c];
            if (f != 0.0)
#pragma unroll 4
                for (int k = 0; k < 2 * ORDER; ++k) mine[k] = __dsub_rn(mine[k], __dmul_rn(f, a[c * STRIDE + k]));
        }
        __syncwarp();
    }
    if (own)
        for (int k = 0; k < ORDER; ++k) bad |= !isfinite(mine[ORDER + k]);
    bad = any(bad && own);
    if (here && r == 0 && (!present || !nonzero || bad)) atomicMin(worst, 4ull * node + (!present ? 0 : !nonzero ? 1 : 2));
    if (own && out)
        for (int c = 0; c < ORDER; ++c) out[((node / GROUP * ORDER + c) * GROUP + node % GROUP) * ORDER + r] = (VALUE)mine[ORDER + c];
}
