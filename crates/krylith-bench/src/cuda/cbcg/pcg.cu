// The P-CBCG paper's own kernels of P-CG (Alg. 1), by its text: sect. IV-A (diagonal storage), IV-B (a thread
// per tile of block-Jacobi), IV-D (fused sums and updates).
//
// Constants: THREADS threads per block; T0, T1, T2 cells of a tile along the storage's fastest, second and
// slowest direction. The paper stores x fastest (its t1) or, transposed, z fastest (its t2).
//
// `a` has seven diagonals of n numbers: the main one, then for each direction, fastest first, the lower and
// the upper one. Entries without a neighbour are 0. `inverse` is 1/d of the incomplete factors
// (D + L) D^-1 (D + U) of the tiles. `partial` has a number per block and sum. `scalars` is rho, alpha, beta.
//
// The paper does not say how sums leave a block. Here one block adds the partial sums in their order, and
// scalars stay on the device, so the host waits for none. The halo of the paper's arrays is left out: indices
// at the ends are clamped, and the coefficients there are 0.
//
// Bytes moved per cell: dia_product 72, advance 40, reduce 24, tile_solve 104 (forward r, three lower, 1/d
// and z; backward z, three upper, 1/d, r and z).

// y = A x with partial sums of (x, y): lines 3 and 4.
extern "C" __global__ void __launch_bounds__(THREADS)
dia_product(int n, int s1, int s2, const double* __restrict__ a, const double* __restrict__ x,
            double* __restrict__ y, double* __restrict__ partial) {
    const int strides[3] = {1, s1, s2};
    double sum = 0;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        const double own = x[i];
        double product = a[i] * own;
        #pragma unroll
        for (int k = 0; k < 3; ++k) {
            product += a[(size_t)(1 + 2 * k) * n + i] * x[max(i - strides[k], 0)];
            product += a[(size_t)(2 + 2 * k) * n + i] * x[min(i + strides[k], n - 1)];
        }
        y[i] = product;
        sum += own * product;
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

// x += alpha p and p = z + beta p: lines 5 and 9.
extern "C" __global__ void __launch_bounds__(THREADS)
advance(int n, const double* __restrict__ scalars, const double* __restrict__ z, double* __restrict__ x,
        double* __restrict__ p) {
    const double alpha = scalars[1], beta = scalars[2];
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        const double direction = p[i];
        x[i] += alpha * direction;
        p[i] = z[i] + beta * direction;
    }
}

// r -= alpha w: line 6.
extern "C" __global__ void __launch_bounds__(THREADS)
reduce(int n, const double* __restrict__ scalars, const double* __restrict__ w, double* __restrict__ r) {
    const double alpha = scalars[1];
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) r[i] -= alpha * w[i];
}

// z = M^-1 r, a thread per tile, with partial sums of (r, r) and (r, z): lines 7 and 8. Neighbouring threads
// have neighbouring tiles along the fastest direction.
extern "C" __global__ void __launch_bounds__(THREADS)
tile_solve(int n0, int n1, int n2, const double* __restrict__ a, const double* __restrict__ inverse,
           const double* __restrict__ r, double* z, double* __restrict__ partial) {
    const int c0 = (n0 + T0 - 1) / T0, c1 = (n1 + T1 - 1) / T1, c2 = (n2 + T2 - 1) / T2;
    const int s1 = n0, s2 = n0 * n1, n = n0 * n1 * n2;
    const int tile = blockIdx.x * THREADS + threadIdx.x;
    double rr = 0, rz = 0;
    if (tile < c0 * c1 * c2) {
        const int at0 = tile % c0 * T0, at1 = tile / c0 % c1 * T1, at2 = tile / c0 / c1 * T2;
        const int m0 = min(T0, n0 - at0), m1 = min(T1, n1 - at1), m2 = min(T2, n2 - at2);
        const int first = at0 + s1 * at1 + s2 * at2;
        for (int k2 = 0; k2 < m2; ++k2)
            for (int k1 = 0; k1 < m1; ++k1)
                for (int k0 = 0; k0 < m0; ++k0) {
                    const int i = first + k0 + s1 * k1 + s2 * k2;
                    double y = r[i];
                    if (k0) y -= a[(size_t)n + i] * z[i - 1];
                    if (k1) y -= a[(size_t)3 * n + i] * z[i - s1];
                    if (k2) y -= a[(size_t)5 * n + i] * z[i - s2];
                    z[i] = y * inverse[i];
                }
        for (int k2 = m2 - 1; k2 >= 0; --k2)
            for (int k1 = m1 - 1; k1 >= 0; --k1)
                for (int k0 = m0 - 1; k0 >= 0; --k0) {
                    const int i = first + k0 + s1 * k1 + s2 * k2;
                    double above = 0;
                    if (k0 + 1 < m0) above += a[(size_t)2 * n + i] * z[i + 1];
                    if (k1 + 1 < m1) above += a[(size_t)4 * n + i] * z[i + s1];
                    if (k2 + 1 < m2) above += a[(size_t)6 * n + i] * z[i + s2];
                    const double solved = z[i] - inverse[i] * above, own = r[i];
                    z[i] = solved;
                    rr += own * own;
                    rz += own * solved;
                }
    }
    rr = block_sum(rr);
    rz = block_sum(rz);
    if (threadIdx.x == 0) partial[2 * blockIdx.x] = rr, partial[2 * blockIdx.x + 1] = rz;
}

// alpha = rho / (p, w). One block.
extern "C" __global__ void __launch_bounds__(THREADS)
step_length(int blocks, const double* __restrict__ partial, double* scalars) {
    double sum = 0;
    for (int k = threadIdx.x; k < blocks; k += THREADS) sum += partial[k];
    sum = block_sum(sum);
    if (threadIdx.x == 0) scalars[1] = scalars[0] / sum;
}

// beta = (r, z) / rho, rho = (r, z), and (r, r) goes to entry `at` of `history`. One block. At the start,
// where `at` is 0, beta and alpha are 0.
extern "C" __global__ void __launch_bounds__(THREADS)
next_direction(int blocks, const double* __restrict__ partial, double* scalars, double* history, int at) {
    double rr = 0, rz = 0;
    for (int k = threadIdx.x; k < blocks; k += THREADS) rr += partial[2 * k], rz += partial[2 * k + 1];
    rr = block_sum(rr);
    rz = block_sum(rz);
    if (threadIdx.x) return;
    scalars[2] = at ? rz / scalars[0] : 0;
    if (!at) scalars[1] = 0;
    scalars[0] = rz;
    history[at] = rr;
}
