// F and J of a hyperelastic body (solid/mod.rs). Unknowns of a node: its displacement.
//
// held: 1 where the displacement is prescribed. faces: the surface under pressure. Node i is corner k of face
// f where beside[from[i]..from[i + 1]] has 3 f + k, and spots has the places of that face's nodes in the row.

// Constants of the material and of the time step.
struct Body {
    double a, b, a_f, b_f, a_s, b_s, a_fs, b_fs, kappa, tension, cross, inertia, pressure, scale;
};

// The state of the material at a deformation gradient: F, its inverse transposed, F f0 and F s0, and
// derivatives of the energy by its invariants, as in solid/material.rs. active: the tension along the fibres
// and in all directions.
struct Deformed {
    double f[3][3], h[3][3], fibre[3], sheet[3], axes[2][3];
    double j, i1, c, p, dp, w[2], s[2], q[2], active[2];
};

// Contractions with a gradient g of a shape function.
struct Along {
    double f[3], h[3], d[3], g[3], fibre, sheet;
};

// a e exp b e² and its derivative by e.
__device__ __forceinline__ void shear(double e, double a, double b, double* out)
{
    const double grown = a * exp(b * e * e);
    out[0] = e * grown;
    out[1] = (1.0 + 2.0 * b * e * e) * grown;
}

// The same, or 0 unless e is positive.
__device__ __forceinline__ void stretch(double e, double a, double b, double* out)
{
    out[0] = out[1] = 0.0;
    if (e > 0.0)
        shear(e, a, b, out);
}

__device__ __forceinline__ Deformed deformed(const Body& body, const double f[3][3], const double* axes)
{
    Deformed s;
    double cofactors[3][3];
    for (int i = 0; i < 3; i++)
        cross(f[(i + 1) % 3], f[(i + 2) % 3], cofactors[i]);
    s.j = dot(f[0], cofactors[0]);
    s.i1 = 0.0;
    for (int i = 0; i < 3; i++) {
        for (int d = 0; d < 3; d++) {
            s.f[i][d] = f[i][d];
            s.h[i][d] = cofactors[i][d] / s.j;
            s.i1 += f[i][d] * f[i][d];
        }
        s.axes[0][i] = axes[i];
        s.axes[1][i] = axes[3 + i];
    }
    for (int i = 0; i < 3; i++) {
        s.fibre[i] = dot(s.f[i], s.axes[0]);
        s.sheet[i] = dot(s.f[i], s.axes[1]);
    }
    s.c = pow(s.j, -2.0 / 3.0); // NaN if the element is inverted
    s.p = 0.5 * body.a * exp(body.b * (s.c * s.i1 - 3.0));
    s.dp = body.b * s.p;
    stretch(dot(s.fibre, s.fibre) - 1.0, body.a_f, body.b_f, s.w);
    stretch(dot(s.sheet, s.sheet) - 1.0, body.a_s, body.b_s, s.s);
    shear(dot(s.fibre, s.sheet), body.a_fs, body.b_fs, s.q);
    s.active[0] = body.tension * (1.0 - body.cross);
    s.active[1] = body.tension * body.cross;
    return s;
}

__device__ __forceinline__ Along along(const Deformed& s, const double* g)
{
    Along a;
    for (int i = 0; i < 3; i++) {
        a.f[i] = dot(s.f[i], g);
        a.h[i] = dot(s.h[i], g);
        a.d[i] = 2.0 * s.c * (a.f[i] - s.i1 / 3.0 * a.h[i]);
        a.g[i] = g[i];
    }
    a.fibre = dot(s.axes[0], g);
    a.sheet = dot(s.axes[1], g);
    return a;
}

// The shape functions and the state of tetrahedron t.
__device__ __forceinline__ void element(const Body& body, u32 t, const u32* __restrict__ tetrahedra,
                                        const double* __restrict__ points, const double* __restrict__ u,
                                        const double* __restrict__ axes, u32* corners, Shape& shape,
                                        Deformed& s)
{
    double moved[4][3], f[3][3];
    for (int a = 0; a < 4; a++) {
        corners[a] = tetrahedra[4 * (i64)t + a];
        for (int c = 0; c < 3; c++)
            moved[a][c] = u[3 * (i64)corners[a] + c];
    }
    shape = shape_of(corners, points);
    gradient_of(shape, moved, f);
    for (int d = 0; d < 3; d++)
        f[d][d] += 1.0;
    s = deformed(body, f, axes + 6 * (i64)t);
}

// The deformed positions of a face's corners.
__device__ __forceinline__ void moved_face(const u32* __restrict__ face, const double* __restrict__ points,
                                           const double* __restrict__ u, double x[3][3])
{
    for (int k = 0; k < 3; k++)
        for (int d = 0; d < 3; d++)
            x[k][d] = points[3 * (i64)face[k] + d] + u[3 * (i64)face[k] + d];
}

extern "C" __global__ void __launch_bounds__(128)
residual(int n, const i64* __restrict__ begin, const u32* __restrict__ around,
         const u32* __restrict__ tetrahedra, const double* __restrict__ points, const double* __restrict__ u,
         const double* __restrict__ axes, const u8* __restrict__ held, const double* __restrict__ given,
         const double* __restrict__ predicted, const double* __restrict__ load,
         const i64* __restrict__ from, const u32* __restrict__ beside, const u32* __restrict__ faces,
         const double* __restrict__ constants, double* __restrict__ f)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n)
        return;
    const Body body = *(const Body*)constants;
    if (held[i]) {
        for (i64 k = 3 * (i64)i; k < 3 * (i64)i + 3; k++)
            f[k] = body.scale * (u[k] - given[k]);
        return;
    }
    double sum[3];
    for (int c = 0; c < 3; c++)
        sum[c] = -load[3 * (i64)i + c];
    for (i64 k = begin[i]; k < begin[i + 1]; k++) {
        const u32 t = around[k] / 4, a = around[k] % 4;
        u32 corners[4];
        Shape shape;
        Deformed s;
        element(body, t, tetrahedra, points, u, axes, corners, shape, s);
        double g[3];
        for (int d = 0; d < 3; d++)
            g[d] = shape.g[a][d];
        const Along own = along(s, g);
        const double volume = 0.5 * body.kappa * (s.j * s.j - 1.0);
        const double with_fibres = (2.0 * s.w[0] + s.active[0]) * own.fibre + s.q[0] * own.sheet;
        const double with_sheets = 2.0 * s.s[0] * own.sheet + s.q[0] * own.fibre;
        for (int c = 0; c < 3; c++)
            sum[c] += shape.volume
                * (s.p * own.d[c] + with_fibres * s.fibre[c] + with_sheets * s.sheet[c] + s.active[1] * own.f[c]
                   + volume * own.h[c]);
        if (body.inertia != 0.0) {
            const double mass = body.inertia * shape.volume / 20.0;
            for (int b = 0; b < 4; b++) {
                const double weight = a == b ? 2.0 * mass : mass;
                for (int c = 0; c < 3; c++) {
                    const i64 at = 3 * (i64)corners[b] + c;
                    sum[c] += weight * (u[at] - predicted[at]);
                }
            }
        }
    }
    if (body.pressure != 0.0) {
        for (i64 k = from[i]; k < from[i + 1]; k++) {
            double x[3][3], e[2][3], normal[3];
            moved_face(faces + 3 * (i64)(beside[k] / 3), points, u, x);
            for (int d = 0; d < 3; d++) {
                e[0][d] = x[1][d] - x[0][d];
                e[1][d] = x[2][d] - x[0][d];
            }
            cross(e[0], e[1], normal);
            for (int c = 0; c < 3; c++)
                sum[c] += body.pressure / 3.0 * (0.5 * normal[c]);
        }
    }
    for (int c = 0; c < 3; c++)
        f[3 * (i64)i + c] = sum[c];
}

extern "C" __global__ void
jacobian(int n, int width, const i64* __restrict__ begin, const u32* __restrict__ around,
         const u8* __restrict__ places, const u32* __restrict__ tetrahedra, const double* __restrict__ points,
         const i64* __restrict__ row_ptr, const u8* __restrict__ diagonal, const double* __restrict__ u,
         const double* __restrict__ axes, const u8* __restrict__ held, const i64* __restrict__ from,
         const u32* __restrict__ beside, const u8* __restrict__ spots, const u32* __restrict__ faces,
         const double* __restrict__ constants, double* __restrict__ values)
{
    extern __shared__ double memory[];
    const int i = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (i >= n)
        return;
    const Body body = *(const Body*)constants;
    const int lane = threadIdx.x % 32, length = (int)(row_ptr[i + 1] - row_ptr[i]);
    double* out = values + 9 * row_ptr[i];
    if (held[i]) {
        for (int k = lane; k < 9 * length; k += 32)
            out[k] = k / 9 == diagonal[i] && k % 9 % 4 == 0 ? body.scale : 0.0;
        return;
    }
    double* row = row_memory<9>(memory, width);
    sum_row<9>(row, length, width, begin[i], begin[i + 1], around, places, [&](u32 t, u32 a, double* out) {
        u32 corners[4];
        Shape shape;
        Deformed s;
        element(body, t, tetrahedra, points, u, axes, corners, shape, s);
        double g[3];
        for (int d = 0; d < 3; d++)
            g[d] = shape.g[a][d];
        const Along own = along(s, g);
        const double j2 = s.j * s.j, isochoric = 2.0 * s.c * s.p;
        const double volume = 0.5 * body.kappa * (j2 - 1.0), turned = isochoric * s.i1 / 3.0 - volume;
        const double mass = body.inertia * shape.volume / 20.0;
        for (int b = 0; b < 4; b++) {
            const Along o = along(s, shape.g[b]);
            const double same = (isochoric + s.active[1]) * dot(own.g, o.g)
                + (2.0 * s.w[0] + s.active[0]) * own.fibre * o.fibre + 2.0 * s.s[0] * own.sheet * o.sheet
                + s.q[0] * (own.fibre * o.sheet + own.sheet * o.fibre);
            const double fibres = 4.0 * s.w[1] * own.fibre * o.fibre;
            const double sheets = 4.0 * s.s[1] * own.sheet * o.sheet;
            const double weight = a == b ? 2.0 * mass : mass;
            for (int r = 0; r < 3; r++)
                for (int k = 0; k < 3; k++) {
                    const double spread = (own.f[r] - s.i1 / 3.0 * own.h[r]) * o.h[k] + own.h[r] * o.f[k];
                    const double stiffness = (r == k ? same : 0.0) + s.dp * own.d[r] * o.d[k]
                        - isochoric * 2.0 / 3.0 * spread + turned * o.h[r] * own.h[k]
                        + fibres * s.fibre[r] * s.fibre[k] + sheets * s.sheet[r] * s.sheet[k]
                        + s.q[1] * (own.fibre * s.sheet[r] + own.sheet * s.fibre[r])
                            * (o.fibre * s.sheet[k] + o.sheet * s.fibre[k])
                        + body.kappa * j2 * own.h[r] * o.h[k];
                    out[9 * b + 3 * r + k] = shape.volume * stiffness + (r == k ? weight : 0.0);
                }
        }
    });
    // ∂A/∂x₀ maps w to ½ w × (x₁ − x₂), where A is the area of a face; cyclic for its other corners.
    if (body.pressure != 0.0) {
        const int b = lane / 6, entry = lane % 6;
        for (i64 k = from[i]; k < from[i + 1]; k++) {
            if (b < 3) {
                double x[3][3], v[3];
                moved_face(faces + 3 * (i64)(beside[k] / 3), points, u, x);
                for (int d = 0; d < 3; d++)
                    v[d] = body.pressure / 6.0 * (x[(b + 1) % 3][d] - x[(b + 2) % 3][d]);
                const int at[6] = {1, 2, 3, 5, 6, 7};
                const double value[6] = {v[2], -v[1], -v[2], v[0], v[1], -v[0]};
                row[9 * spots[3 * k + b] + at[entry]] += value[entry];
            }
            __syncwarp();
        }
    }
    __syncwarp();
    for (int k = lane; k < 9 * length; k += 32)
        out[k] = row[k];
}
