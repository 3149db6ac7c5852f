// amg_near_null: smoothed aggregation from near-null vectors (see precond/multilevel/host/near_null.rs).
//
// A node has B components, an aggregate K unknowns; both are arguments, at most 8. T and P have blocks of
// B x K numbers, stored by rows. A row of T has one block, or none where a node has no aggregate.
//
// Bytes moved: near_factors 16 B K per node; near_power 8 B^2 per block and 24 B per node; near_smooth
// 16 B K per block; near_transfer 8 B K read and written per block.

typedef long long i64;
typedef unsigned u32;

#define NONE 0xffffffffu
#define MOST 8

struct Matrix { const i64* ptr; const u32* col; double* val; };

#define EACH(i, n) (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)
#define EACH_WARP(i, n) (i64 i = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / 32; i < (n); i += (i64)gridDim.x * blockDim.x / 32)

__device__ __forceinline__ double sum_of_warp(double v) {
    for (int step = 16; step > 0; step /= 2) v += __shfl_xor_sync(~0u, v, step);
    return v;
}

// The rigid modes of nodes with 2 or 3 components, row after row, as `RigidModes` of
// precond/multilevel/near_null.rs.
extern "C" __global__ void __launch_bounds__(256) near_rigid(const i64 n, const int b, const double* __restrict__ points, const double x, const double y, const double z, double* __restrict__ numbers) {
    const int k = b * (b + 1) / 2;
    for EACH (i, n) {
        const double p[3] = {points[3 * i] - x, points[3 * i + 1] - y, points[3 * i + 2] - z};
        double* const to = numbers + i * b * k;
        for (int e = 0; e < b * k; ++e) to[e] = e / k == e % k;
        for (int j = 0; j < k - b; ++j) {
            const int u = j, v = (j + 1) % 3;
            to[u * k + b + j] = -p[v];
            to[v * k + b + j] = p[u];
        }
    }
}

// 1 for each node that has an aggregate.
extern "C" __global__ void __launch_bounds__(256) near_members(const i64 n, const u32* __restrict__ aggregate, u32* __restrict__ marks) {
    for EACH (i, n) marks[i] = aggregate[i] != NONE;
}

// The columns of T, and the position of each entry as its value.
extern "C" __global__ void __launch_bounds__(256) near_entries(const i64 n, const u32* __restrict__ aggregate, const i64* __restrict__ place, u32* __restrict__ col, double* __restrict__ position) {
    for EACH (i, n) {
        if (aggregate[i] == NONE) continue;
        col[place[i]] = aggregate[i];
        position[place[i]] = (double)place[i];
    }
}

// 0, 1, 2, ...
extern "C" __global__ void __launch_bounds__(256) near_positions(const i64 n, double* __restrict__ position) {
    for EACH (i, n) position[i] = (double)i;
}

// Q R of the vectors on each aggregate, by Gram-Schmidt with reorthogonalisation; a warp per aggregate. The
// nodes of aggregate j are members.col, and their blocks of T are at members.val. T gets Q; `coarse` gets R.
extern "C" __global__ void __launch_bounds__(128) near_factors(const i64 aggregates, const int b, const int k, const double dependent, const Matrix members, const double* __restrict__ near, double* t, double* __restrict__ coarse) {
    const int lane = threadIdx.x % 32;
    for EACH_WARP (j, aggregates) {
        const i64 begin = members.ptr[j];
        const int rows = (int)(members.ptr[j + 1] - begin) * b;
        double* const r = coarse + j * k * k;
        for (int e = lane; e < k * k; e += 32) r[e] = 0;
        // A lane accesses the same rows throughout.
        auto row = [&](const int x) { return t + ((i64)members.val[begin + x / b] * b + x % b) * k; };
        for (int x = lane; x < rows; x += 32) {
            const double* from = near + (members.col[begin + x / b] * (i64)b + x % b) * k;
            double* to = row(x);
            for (int c = 0; c < k; ++c) to[c] = from[c];
        }
        for (int c = 0; c < k; ++c) {
            double size = 0;
            for (int x = lane; x < rows; x += 32) size += row(x)[c] * row(x)[c];
            const double before = sqrt(sum_of_warp(size));
            for (int pass = 0; pass < 2; ++pass)
                for (int l = 0; l < c; ++l) {
                    double share = 0;
                    for (int x = lane; x < rows; x += 32) share += row(x)[l] * row(x)[c];
                    share = sum_of_warp(share);
                    for (int x = lane; x < rows; x += 32) row(x)[c] -= share * row(x)[l];
                    if (lane == 0) r[l * k + c] += share;
                }
            size = 0;
            for (int x = lane; x < rows; x += 32) size += row(x)[c] * row(x)[c];
            const double norm = sqrt(sum_of_warp(size));
            const bool fresh = norm > dependent * before;
            for (int x = lane; x < rows; x += 32) row(x)[c] = fresh ? row(x)[c] / norm : 0.0;
            if (lane == 0 && fresh) r[c * k + c] = norm;
        }
        __syncwarp();
    }
}

// The inverse of each diagonal block, by rows; 0 if it is singular or not stored. As `invert_block` of
// precond/jacobi.rs.
extern "C" __global__ void __launch_bounds__(128) near_inverse(const i64 n, const int b, const double tiny, const Matrix a, double* __restrict__ inverse) {
    for EACH (i, n) {
        double work[MOST][2 * MOST];
        i64 own = -1;
        for (i64 low = a.ptr[i], high = a.ptr[i + 1]; low < high;) {
            const i64 middle = (low + high) / 2;
            if (a.col[middle] == i) {
                own = middle;
                break;
            }
            if (a.col[middle] < i) low = middle + 1;
            else high = middle;
        }
        bool good = own >= 0;
        for (int r = 0; good && r < b; ++r) {
            double largest = 0;
            for (int c = 0; c < b; ++c) largest = fmax(largest, fabs(a.val[(own * b + r) * b + c]));
            good = largest > 0 && isfinite(largest);
            for (int c = 0; c < b; ++c) {
                work[r][c] = a.val[(own * b + r) * b + c] / largest;
                work[r][b + c] = r == c ? 1 / largest : 0.0;
            }
        }
        for (int c = 0; good && c < b; ++c) {
            int pivot = c;
            for (int r = c + 1; r < b; ++r)
                if (fabs(work[r][c]) > fabs(work[pivot][c])) pivot = r;
            good = fabs(work[pivot][c]) >= tiny;
            if (!good) break;
            for (int x = 0; x < 2 * b; ++x) {
                const double v = work[pivot][x];
                work[pivot][x] = work[c][x];
                work[c][x] = v;
            }
            const double scale = 1 / work[c][c];
            for (int x = c; x < 2 * b; ++x) work[c][x] *= scale;
            for (int r = 0; r < b; ++r) {
                if (r == c) continue;
                const double factor = work[r][c];
                for (int x = c; x < 2 * b; ++x) work[r][x] -= factor * work[c][x];
            }
        }
        for (int e = 0; good && e < b * b; ++e) good = isfinite(work[e / b][b + e % b]);
        for (int e = 0; e < b * b; ++e) inverse[i * b * b + e] = good ? work[e / b][b + e % b] : 0.0;
    }
}

// w = A v and z = D^-1 w; a warp per node. A lane reads one row of every block that its place in the warp
// says.
extern "C" __global__ void __launch_bounds__(256) near_power(const i64 n, const int b, const Matrix a, const double* __restrict__ inverse, const double* __restrict__ v, double* __restrict__ w, double* __restrict__ z) {
    const int lane = threadIdx.x % 32, at_once = 32 / b, slot = lane / b, r = lane % b;
    for EACH_WARP (i, n) {
        double sum = 0;
        if (slot < at_once)
            for (i64 p = a.ptr[i] + slot; p < a.ptr[i + 1]; p += at_once) {
                const double* block = a.val + (p * b + r) * b;
                const double* from = v + a.col[p] * (i64)b;
                for (int c = 0; c < b; ++c) sum += block[c] * from[c];
            }
        double total = 0;
        for (int s = 0; s < at_once; ++s) total += __shfl_sync(~0u, sum, s * b + r);
        double step = 0;
        for (int c = 0; c < b; ++c) {
            const double of = __shfl_sync(~0u, total, c);
            if (lane < b) step += inverse[(i * b + r) * b + c] * of;
        }
        if (lane < b) {
            w[i * b + r] = total;
            z[i * b + r] = step;
        }
    }
}

// Each thread block's part of (w, z) and (w, v).
extern "C" __global__ void __launch_bounds__(256) near_sums(const i64 n, const double* __restrict__ w, const double* __restrict__ z, const double* __restrict__ v, double* __restrict__ sums) {
    __shared__ double parts[2][8];
    double one = 0, two = 0;
    for EACH (i, n) {
        one += w[i] * z[i];
        two += w[i] * v[i];
    }
    one = sum_of_warp(one);
    two = sum_of_warp(two);
    if (threadIdx.x % 32 == 0) {
        parts[0][threadIdx.x / 32] = one;
        parts[1][threadIdx.x / 32] = two;
    }
    __syncthreads();
    if (threadIdx.x < 2) {
        double sum = 0;
        for (int s = 0; s < 8; ++s) sum += parts[threadIdx.x][s];
        sums[2 * blockIdx.x + threadIdx.x] = sum;
    }
}

// P = T - omega D^-1 P, where P has A T; a warp per row. `place` has the position of each node's block of T.
extern "C" __global__ void __launch_bounds__(256) near_smooth(const i64 n, const int b, const int k, const double omega, const double* __restrict__ inverse, const i64* __restrict__ place, const u32* __restrict__ aggregate, const double* __restrict__ t, const Matrix p) {
    const int lane = threadIdx.x % 32;
    for EACH_WARP (i, n) {
        const i64 begin = p.ptr[i];
        const int columns = (int)(p.ptr[i + 1] - begin) * k;
        const u32 own = aggregate[i];
        for (int x = lane; x < columns; x += 32) {
            const int c = x % k;
            double* const to = p.val + (begin + x / k) * b * k + c;
            const double* from = own != NONE && p.col[begin + x / k] == own ? t + place[i] * b * k + c : nullptr;
            double column[MOST];
#pragma unroll
            for (int r = 0; r < MOST; ++r) column[r] = r < b ? to[r * k] : 0.0;
            for (int r = 0; r < b; ++r) {
                double sum = 0;
#pragma unroll
                for (int s = 0; s < MOST; ++s)
                    if (s < b) sum += inverse[(i * b + r) * b + s] * column[s];
                to[r * k] = (from ? from[r * k] : 0.0) - omega * sum;
            }
        }
    }
}

// Fills diagonal entries of 0, which unknowns without a near-null vector have, with the largest of the block,
// or with 1.
extern "C" __global__ void __launch_bounds__(256) near_diagonal(const i64 n, const int k, const Matrix a) {
    for EACH (i, n) {
        i64 low = a.ptr[i], high = a.ptr[i + 1];
        while (low < high) {
            const i64 middle = (low + high) / 2;
            if (a.col[middle] < i) low = middle + 1;
            else high = middle;
        }
        double* const block = a.val + low * k * k;
        double largest = 0;
        for (int c = 0; c < k; ++c) {
            const double v = block[c * (k + 1)];
            if (fabs(v) > fabs(largest)) largest = v;
        }
        for (int c = 0; c < k; ++c)
            if (block[c * (k + 1)] == 0) block[c * (k + 1)] = largest == 0 ? 1.0 : largest;
    }
}

// Cuts blocks of h x w numbers into square blocks of g x g. With `turned`, block p is the transpose of that
// at position a.val[p] of `values`; otherwise it is block p of `values`. A warp per row of blocks.
extern "C" __global__ void __launch_bounds__(256) near_transfer(const i64 n, const int h, const int w, const int g, const int turned, const Matrix a, const double* __restrict__ values, i64* __restrict__ ptr, u32* __restrict__ col, double* __restrict__ val) {
    const int lane = threadIdx.x % 32, down = h / g, across = w / g;
    for EACH_WARP (i, n) {
        const i64 begin = a.ptr[i], to = begin * down * across;
        const int length = (int)(a.ptr[i + 1] - begin), row = length * across;  // squares in a row
        for (int r = lane; r < down; r += 32) ptr[i * down + r] = to + (i64)r * row;
        if (i == n - 1 && lane == 0) ptr[n * down] = to + (i64)down * row;
        for (int x = lane; x < down * row; x += 32) {
            const i64 e = begin + x % row / across;
            col[to + x] = a.col[e] * across + x % across;
        }
        for (i64 x = lane; x < (i64)down * row * g * g; x += 32) {
            const int square = (int)(x / (g * g)), at = (int)(x % (g * g));
            const i64 e = begin + square % row / across;
            const int y = square / row * g + at / g, z = square % across * g + at % g;
            const double* from = values + (turned ? (i64)a.val[e] : e) * h * w;
            val[to * g * g + x] = from[turned ? z * h + y : y * w + z];
        }
    }
}
