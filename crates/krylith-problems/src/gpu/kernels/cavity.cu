// F and J of the lid-driven cavity (cavity.rs). Unknowns of a node: u, v, ω.
//
// numbers: the node of each row in the whole grid of nx × ny nodes. places: where the blocks of the five
// points of its stencil (south, west, centre, east, north) stand in the row.

typedef unsigned int u32;
typedef unsigned char u8;
typedef long long i64;

enum Point { SOUTH, WEST, CENTRE, EAST, NORTH };

struct Wall {
    bool left, right, floor, lid;
};

// Passes the coefficients of a wall node's rows, which are linear, to put(point, row, column, coefficient).
template <class Put> __device__ __forceinline__ void wall(Wall at, double hx, double hy, Put put)
{
    put(CENTRE, 0, 0, 1.0);
    put(CENTRE, 1, 1, 1.0);
    if ((at.left || at.right) && (at.floor || at.lid)) {
        put(CENTRE, 2, 2, 1.0);
        put(at.left ? EAST : WEST, 2, 2, -0.5);
        put(at.floor ? NORTH : SOUTH, 2, 2, -0.5);
        return;
    }
    const bool flat = at.floor || at.lid;
    const int inner = at.floor ? NORTH : at.lid ? SOUTH : at.left ? EAST : WEST;
    const double h = flat ? hy : hx, sign = at.floor || (!flat && !at.left) ? 1.0 : -1.0;
    const int component = flat ? 0 : 1;
    put(CENTRE, 2, 2, 0.5 * h);
    put(inner, 2, 2, 0.5 * h);
    put(inner, 2, component, sign);
    put(CENTRE, 2, component, -sign);
}

__device__ __forceinline__ Wall place(u32 node, int nx, int ny)
{
    const int i = node % nx, j = node / nx;
    return {i == 0, i + 1 == nx, j == 0, j + 1 == ny};
}

extern "C" __global__ void __launch_bounds__(256)
residual(int n, int nx, int ny, const u32* __restrict__ numbers, const i64* __restrict__ row_ptr,
         const u32* __restrict__ col, const u8* __restrict__ places, const double* __restrict__ x, double re,
         double* __restrict__ f)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n)
        return;
    const double hx = 1.0 / (nx - 1), hy = 1.0 / (ny - 1), across = hx / hy, slope = hy / hx;
    const Wall walls = place(numbers[k], nx, ny);
    auto at = [&](int point, int c) { return x[3 * (i64)col[row_ptr[k] + places[5 * (i64)k + point]] + c]; };
    double* out = f + 3 * (i64)k;
    if (walls.left || walls.right || walls.floor || walls.lid) {
        double sum[3] = {walls.lid ? -1.0 : -0.0, 0.0, 0.0};
        wall(walls, hx, hy, [&](int point, int row, int column, double a) { sum[row] += a * at(point, column); });
        for (int c = 0; c < 3; c++)
            out[c] = sum[c];
        return;
    }
    auto minus_laplacian = [&](int c) {
        return slope * (2.0 * at(CENTRE, c) - at(EAST, c) - at(WEST, c))
            + across * (2.0 * at(CENTRE, c) - at(NORTH, c) - at(SOUTH, c));
    };
    const double omega_x = 0.5 * hy * (at(EAST, 2) - at(WEST, 2));
    const double omega_y = 0.5 * hx * (at(NORTH, 2) - at(SOUTH, 2));
    out[0] = minus_laplacian(0) - omega_y;
    out[1] = minus_laplacian(1) + omega_x;
    out[2] = minus_laplacian(2) / re + at(CENTRE, 0) * omega_x + at(CENTRE, 1) * omega_y;
}

extern "C" __global__ void __launch_bounds__(256)
jacobian(int n, int nx, int ny, const u32* __restrict__ numbers, const i64* __restrict__ row_ptr,
         const u32* __restrict__ col, const u8* __restrict__ places, const double* __restrict__ x, double re,
         double* __restrict__ values)
{
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    if (k >= n)
        return;
    const double hx = 1.0 / (nx - 1), hy = 1.0 / (ny - 1), across = hx / hy, slope = hy / hx;
    const Wall walls = place(numbers[k], nx, ny);
    const i64 first = row_ptr[k], last = row_ptr[k + 1];
    auto at = [&](int point, int c) { return x[3 * (i64)col[first + places[5 * (i64)k + point]] + c]; };
    for (i64 e = 9 * first; e < 9 * last; e++)
        values[e] = 0.0;
    auto put = [&](int point, int row, int column, double a) {
        values[9 * (first + places[5 * (i64)k + point]) + 3 * row + column] += a;
    };
    if (walls.left || walls.right || walls.floor || walls.lid) {
        wall(walls, hx, hy, put);
        return;
    }
    const double u = at(CENTRE, 0), v = at(CENTRE, 1);
    for (int c = 0; c < 3; c++) {
        const double scale = c == 2 ? 1.0 / re : 1.0;
        put(CENTRE, c, c, 2.0 * (slope + across) * scale);
        put(EAST, c, c, -slope * scale);
        put(WEST, c, c, -slope * scale);
        put(NORTH, c, c, -across * scale);
        put(SOUTH, c, c, -across * scale);
    }
    put(NORTH, 0, 2, -0.5 * hx);
    put(SOUTH, 0, 2, 0.5 * hx);
    put(EAST, 1, 2, 0.5 * hy);
    put(WEST, 1, 2, -0.5 * hy);
    put(EAST, 2, 2, 0.5 * hy * u);
    put(WEST, 2, 2, -0.5 * hy * u);
    put(NORTH, 2, 2, 0.5 * hx * v);
    put(SOUTH, 2, 2, -0.5 * hx * v);
    put(CENTRE, 2, 0, 0.5 * hy * (at(EAST, 2) - at(WEST, 2)));
    put(CENTRE, 2, 1, 0.5 * hx * (at(NORTH, 2) - at(SOUTH, 2)));
}
