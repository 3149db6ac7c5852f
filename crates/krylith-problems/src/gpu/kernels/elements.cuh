// Linear tetrahedra: shape functions, and rows of the matrix as sums over the tetrahedra around a node. The
// order of all sums is that of the host (tets/rows.rs).

typedef unsigned int u32;
typedef unsigned char u8;
typedef long long i64;

__device__ __forceinline__ double dot(const double* a, const double* b)
{
    return a[0] * b[0] + a[1] * b[1] + a[2] * b[2];
}

__device__ __forceinline__ void cross(const double* a, const double* b, double* out)
{
    out[0] = a[1] * b[2] - a[2] * b[1];
    out[1] = a[2] * b[0] - a[0] * b[2];
    out[2] = a[0] * b[1] - a[1] * b[0];
}

// Volume of a tetrahedron and gradients of its four shape functions.
struct Shape {
    double volume;
    double g[4][3];
};

__device__ __forceinline__ Shape shape_of(const u32* corners, const double* __restrict__ points)
{
    const double* a = points + 3 * (i64)corners[0];
    double e[3][3], n[3][3];
    for (int k = 0; k < 3; k++)
        for (int d = 0; d < 3; d++)
            e[k][d] = points[3 * (i64)corners[k + 1] + d] - a[d];
    cross(e[1], e[2], n[0]);
    cross(e[2], e[0], n[1]);
    cross(e[0], e[1], n[2]);
    const double det = dot(e[0], n[0]);
    Shape shape;
    shape.volume = det / 6.0;
    for (int d = 0; d < 3; d++) {
        for (int k = 0; k < 3; k++)
            shape.g[k + 1][d] = n[k][d] / det;
        shape.g[0][d] = -(shape.g[1][d] + shape.g[2][d] + shape.g[3][d]);
    }
    return shape;
}

// ∂vᵢ/∂x_d of functions given by their corner values.
__device__ __forceinline__ void gradient_of(const Shape& shape, const double v[4][3], double out[3][3])
{
    for (int i = 0; i < 3; i++)
        for (int d = 0; d < 3; d++) {
            double sum = 0.0;
            for (int a = 0; a < 4; a++)
                sum += v[a][i] * shape.g[a][d];
            out[i][d] = sum;
        }
}

// Shared memory of a warp for a row of at most `width` blocks of BB numbers.
template <int BB> __device__ __forceinline__ double* row_memory(double* all, int width)
{
    return all + (threadIdx.x / 32) * (width * BB + 32 * (4 * BB + 1));
}

// Sums the blocks of row i in shared memory; the whole warp calls this. Each lane computes the four blocks of
// one tetrahedron by blocks(tetrahedron, corner, out). Then all lanes add them, tetrahedron by tetrahedron.
// The places of the four corners in the row differ, so lanes do not collide.
template <int BB, class Blocks>
__device__ __forceinline__ void sum_row(double* row, int length, int width, i64 first, i64 last,
                                        const u32* __restrict__ around, const u8* __restrict__ places,
                                        Blocks blocks)
{
    constexpr int STRIDE = 4 * BB + 1; // odd, so that lanes use different banks
    const int lane = threadIdx.x % 32;
    double* parts = row + width * BB;
    for (int k = lane; k < length * BB; k += 32)
        row[k] = 0.0;
    for (i64 c = first; c < last; c += 32) {
        const int count = last - c < 32 ? (int)(last - c) : 32;
        __syncwarp();
        if (lane < count) {
            const u32 corner = around[c + lane];
            blocks(corner / 4, corner % 4, parts + lane * STRIDE);
        }
        __syncwarp();
        for (int t = 0; t < count; t++) {
            for (int k = lane; k < 4 * BB; k += 32)
                row[places[4 * (c + t) + k / BB] * BB + k % BB] += parts[t * STRIDE + k];
            __syncwarp();
        }
    }
}
