// Vector updates and scalars of BiCGSTAB with right preconditioning; cuBLAS computes the dot products and
// cuSPARSE the matrix products. Each update is one pass instead of an axpy per term, and the scalars stay on
// the device.
//
// Constants: THREADS threads per block. The caller owns the vectors of n numbers, aligned to 8 bytes. `s`
// holds the scalars, by the names below.
//
// Bytes moved, in vectors of n numbers: direction 4, half_step 3, finish 7.

enum { RHO, RHO_BEFORE, SHADOW_V, TS, TT, RR, ALPHA, BETA, OMEGA };

// α = ρ / (r̂ᵀv)
extern "C" __global__ void first_scalars(double* s) { s[ALPHA] = s[RHO] / s[SHADOW_V]; }
// ω = tᵀs / tᵀt
extern "C" __global__ void second_scalars(double* s) { s[OMEGA] = s[TS] / s[TT]; s[RHO_BEFORE] = s[RHO]; }
// β = (ρ / ρ of before)(α / ω)
extern "C" __global__ void third_scalars(double* s) { s[BETA] = s[RHO] / s[RHO_BEFORE] * (s[ALPHA] / s[OMEGA]); }

// p = r + β (p − ω v)
extern "C" __global__ void __launch_bounds__(THREADS)
direction(int n, const double* __restrict__ s, const double* __restrict__ r, const double* __restrict__ v,
          double* __restrict__ p) {
    const double beta = s[BETA], omega = s[OMEGA];
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS)
        p[i] = r[i] + beta * (p[i] - omega * v[i]);
}

// r = r − α v, which the method calls s from here on
extern "C" __global__ void __launch_bounds__(THREADS)
half_step(int n, const double* __restrict__ s, const double* __restrict__ v, double* __restrict__ r) {
    const double alpha = s[ALPHA];
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) r[i] -= alpha * v[i];
}

// x = x + α K⁻¹p + ω K⁻¹s, r = s − ω t
extern "C" __global__ void __launch_bounds__(THREADS)
finish(int n, const double* __restrict__ s, const double* __restrict__ p_hat, const double* __restrict__ s_hat,
       const double* __restrict__ t, double* __restrict__ x, double* __restrict__ r) {
    const double alpha = s[ALPHA], omega = s[OMEGA];
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < n; i += gridDim.x * THREADS) {
        x[i] += alpha * p_hat[i] + omega * s_hat[i];
        r[i] -= omega * t[i];
    }
}
