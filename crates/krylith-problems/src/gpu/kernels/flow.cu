// F and J of a stabilised flow (flow.rs). Unknowns of a node: u, v, w, p.
//
// begin, around, places: tetrahedra around each node, 4 t + corner, and the places of their corners in the
// row. fixed: bit c is set if unknown c of a node is prescribed. weights: τ and τ_c of each tetrahedron.

// What the four rows of an element share.
struct Element {
    Shape shape;
    double velocity[4][3], gradient[3][3], rates[4][3], mean[3], left[3], pressure;
};

__device__ __forceinline__ void element(Element& e, u32 t, const u32* __restrict__ tetrahedra,
                                        const double* __restrict__ points, const double* __restrict__ x,
                                        const double* __restrict__ history, double rate, double density)
{
    u32 corners[4];
    double pressures[4];
    for (int a = 0; a < 4; a++)
        corners[a] = tetrahedra[4 * (i64)t + a];
    e.shape = shape_of(corners, points);
    for (int a = 0; a < 4; a++) {
        const i64 p = corners[a];
        for (int c = 0; c < 3; c++) {
            e.velocity[a][c] = x[4 * p + c];
            e.rates[a][c] = rate * e.velocity[a][c] - history[3 * p + c];
        }
        pressures[a] = x[4 * p + 3];
    }
    gradient_of(e.shape, e.velocity, e.gradient);
    double mean_rate[3];
    for (int c = 0; c < 3; c++) {
        e.mean[c] = 0.25 * (e.velocity[0][c] + e.velocity[1][c] + e.velocity[2][c] + e.velocity[3][c]);
        mean_rate[c] = 0.25 * (e.rates[0][c] + e.rates[1][c] + e.rates[2][c] + e.rates[3][c]);
    }
    for (int c = 0; c < 3; c++) {
        double slope = 0.0;
        for (int a = 0; a < 4; a++)
            slope += pressures[a] * e.shape.g[a][c];
        e.left[c] = density * (mean_rate[c] + dot(e.mean, e.gradient[c])) + slope;
    }
    e.pressure = 0.25 * (pressures[0] + pressures[1] + pressures[2] + pressures[3]);
}

// ∫ Nₐ v of a linear v.
__device__ __forceinline__ double weighted(const double v[4][3], int a, int c, double volume)
{
    return volume / 20.0 * (v[0][c] + v[1][c] + v[2][c] + v[3][c] + v[a][c]);
}

extern "C" __global__ void __launch_bounds__(128)
residual(int n, const i64* __restrict__ begin, const u32* __restrict__ around,
         const u32* __restrict__ tetrahedra, const double* __restrict__ points,
         const double* __restrict__ x, const u8* __restrict__ fixed, const double* __restrict__ given,
         const double* __restrict__ history, const double* __restrict__ weights, double rate, double scale,
         double density, double viscosity, double* __restrict__ f)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    double sum[4] = {0.0, 0.0, 0.0, 0.0};
    for (i64 k = begin[i]; k < begin[i + 1]; k++) {
        const u32 t = around[k] / 4, a = around[k] % 4;
        Element e;
        element(e, t, tetrahedra, points, x, history, rate, density);
        const double tau = weights[2 * (i64)t], grid = weights[2 * (i64)t + 1], volume = e.shape.volume;
        double g[3], carried[3];
        for (int c = 0; c < 3; c++) {
            g[c] = e.shape.g[a][c];
            carried[c] = weighted(e.velocity, a, c, volume);
        }
        const double along = dot(e.mean, g);
        const double divergence = e.gradient[0][0] + e.gradient[1][1] + e.gradient[2][2];
        for (int c = 0; c < 3; c++) {
            const double moved = density * (weighted(e.rates, a, c, volume) + dot(carried, e.gradient[c]));
            const double spread =
                viscosity * dot(g, e.gradient[c]) + (grid * divergence - e.pressure) * g[c];
            sum[c] += moved + volume * (spread + tau * along * e.left[c]);
        }
        sum[3] += volume * (0.25 * divergence + tau / density * dot(g, e.left));
    }
    for (int c = 0; c < 4; c++) {
        const i64 k = 4 * (i64)i + c;
        f[k] = fixed[i] >> c & 1 ? scale * (x[k] - given[k]) : sum[c];
    }
}

extern "C" __global__ void
jacobian(int n, int width, const i64* __restrict__ begin, const u32* __restrict__ around,
         const u8* __restrict__ places, const u32* __restrict__ tetrahedra, const double* __restrict__ points,
         const i64* __restrict__ row_ptr, const u8* __restrict__ diagonal, const double* __restrict__ x,
         const u8* __restrict__ fixed, const double* __restrict__ history,
         const double* __restrict__ weights, double rate, double scale, double density, double viscosity,
         double* __restrict__ values)
{
    extern __shared__ double memory[];
    const int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= n)
        return;
    double* row = row_memory<16>(memory, width);
    const int length = (int)(row_ptr[i + 1] - row_ptr[i]);
    sum_row<16>(row, length, width, begin[i], begin[i + 1], around, places, [&](u32 t, u32 a, double* out) {
        Element e;
        element(e, t, tetrahedra, points, x, history, rate, density);
        const double tau = weights[2 * (i64)t], grid = weights[2 * (i64)t + 1], volume = e.shape.volume;
        double g[3], carried[3];
        for (int c = 0; c < 3; c++) {
            g[c] = e.shape.g[a][c];
            carried[c] = weighted(e.velocity, a, c, volume);
        }
        const double along = dot(e.mean, g);
        const double stream = tau * volume * along;
        const double press = tau / density * volume;
        for (int b = 0; b < 4; b++) {
            const double* h = e.shape.g[b];
            double* block = out + 16 * b;
            const double mass = a == b ? 0.1 * volume : 0.05 * volume;
            const double change = density * (0.25 * rate + dot(e.mean, h));
            const double same = density * (mass * rate + dot(carried, h)) + viscosity * volume * dot(g, h)
                + stream * change;
            for (int c = 0; c < 3; c++) {
                for (int k = 0; k < 3; k++) {
                    const double bent = density * (mass + 0.25 * stream) * e.gradient[c][k];
                    const double turned = 0.25 * tau * volume * g[k] * e.left[c];
                    block[4 * c + k] = bent + turned + grid * volume * g[c] * h[k] + (c == k ? same : 0.0);
                }
                block[4 * c + 3] = stream * h[c] - 0.25 * volume * g[c];
                const double slopes =
                    g[0] * e.gradient[0][c] + g[1] * e.gradient[1][c] + g[2] * e.gradient[2][c];
                block[12 + c] = 0.25 * volume * h[c] + press * (g[c] * change + 0.25 * density * slopes);
            }
            block[15] = press * dot(g, h);
        }
    });
    const int lane = threadIdx.x % 32, known = fixed[i], own = diagonal[i];
    double* out = values + 16 * row_ptr[i];
    for (int k = lane; k < 16 * length; k += 32) {
        const int e = k % 16, c = e / 4;
        const bool unit = k / 16 == own && e == 5 * c;
        out[k] = known >> c & 1 ? (unit ? scale : 0.0) : row[k];
    }
}
