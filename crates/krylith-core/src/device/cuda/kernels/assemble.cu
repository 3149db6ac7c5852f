// assemble: matrices that a set-up makes from others: blocks between fields, point blocks, the factors of
// weighted products, and the vectors that go with them. Sums are in the order of the host.
//
// Macros: LANES, the lanes that share a row of a cut (8 or 32).
// Bytes moved: 12 per entry read (4 where it only counts), 12 per entry written, 4 at random per column of a
// cut.

typedef unsigned char u8;
typedef unsigned u32;
typedef long long i64;

#define NONE 0xffffffffu
#define EACH(i, n) (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)

// Row pointers, columns and values.
struct Matrix {
    const i64* __restrict__ ptr;
    const u32* __restrict__ col;
    const double* __restrict__ val;
};

// The position of column j in row i; -1 if it is not stored. Columns ascend.
__device__ __forceinline__ i64 position(const Matrix a, const i64 i, const u32 j) {
    i64 low = a.ptr[i], high = a.ptr[i + 1];
    const i64 end = high;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (a.col[middle] < j) low = middle + 1; else high = middle;
    }
    return low < end && a.col[low] == j ? low : -1;
}

__device__ __forceinline__ double entry(const Matrix a, const i64 i, const u32 j) {
    const i64 p = position(a, i, j);
    return p < 0 ? 0.0 : a.val[p];
}

extern "C" __global__ void number_places(const i64 count, const u32* __restrict__ numbers, u32* __restrict__ places) {
    for EACH(i, count) places[numbers[i]] = (u32)i + 1;
}

// Pairs of a column and its place. Places count from 1; 0 is an unknown outside the set.
extern "C" __global__ void ghost_places(const i64 count, const u32* __restrict__ pairs, u32* __restrict__ places) {
    for EACH(i, count) places[pairs[2 * i]] = pairs[2 * i + 1] + 1;
}

// The entries of row numbers[i] of a matrix of blocks whose columns have places, in the order of the row. It
// only counts them where `to` is null, and only writes values where `to_col` is null.
extern "C" __global__ void __launch_bounds__(256)
cut_rows(const i64 rows, const i64 block, const u32* __restrict__ numbers, const u32* __restrict__ places, const Matrix a, u32* __restrict__ counts, const i64* __restrict__ to, u32* __restrict__ to_col, double* __restrict__ to_val) {
    const int lane = threadIdx.x % LANES, shift = threadIdx.x % 32 / LANES * LANES;
    const u32 own = 0xffffffffu >> (32 - LANES), mask = own << shift;
    const i64 first = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / LANES, groups = (i64)gridDim.x * blockDim.x / LANES;
    for (i64 i = first; i < rows; i += groups) {
        const u32 number = numbers[i];
        const i64 row = number / block, r = number % block, begin = a.ptr[row], count = (a.ptr[row + 1] - begin) * block;
        i64 done = to ? to[i] : 0;
        for (i64 e0 = 0; e0 < count; e0 += LANES) {
            const i64 e = e0 + lane, p = begin + e / block, c = e % block;
            const u32 place = e < count ? places[a.col[p] * block + c] : 0;
            const u32 all = __ballot_sync(mask, place != 0) >> shift & own;
            if (place && to) {
                const i64 at = done + __popc(all & ((1u << lane) - 1));
                if (to_col) to_col[at] = place - 1;
                to_val[at] = a.val[(p * block + r) * block + c];
            }
            done += __popc(all);
        }
        if (!to && lane == 0) counts[i] = (u32)done;
    }
}

// The columns of scalar rows as columns of blocks of at most 8: a thread merges the scalar rows of a block
// row. It only counts blocks where `to` is null.
extern "C" __global__ void __launch_bounds__(128)
group_columns(const i64 rows, const int block, const Matrix a, u32* __restrict__ counts, const i64* __restrict__ to, u32* __restrict__ to_col) {
    for EACH(i, rows) {
        i64 next[8], end[8], found = to ? to[i] : 0;
#pragma unroll
        for (int r = 0; r < 8; ++r) {
            next[r] = r < block ? a.ptr[i * block + r] : 0;
            end[r] = r < block ? a.ptr[i * block + r + 1] : 0;
        }
        while (true) {
            u32 j = NONE;
#pragma unroll
            for (int r = 0; r < 8; ++r)
                if (next[r] < end[r]) j = min(j, a.col[next[r]] / block);
            if (j == NONE) break;
            if (to) to_col[found] = j;
#pragma unroll
            for (int r = 0; r < 8; ++r)
                while (next[r] < end[r] && a.col[next[r]] / block == j) ++next[r];
            ++found;
        }
        if (!to) counts[i] = (u32)found;
    }
}

// The values of scalar rows in blocks whose columns are known; a warp per block row. Scalar rows that fill
// all of their blocks are copied without a search.
extern "C" __global__ void __launch_bounds__(256)
group_values(const i64 rows, const int block, const Matrix a, const i64* __restrict__ to, const u32* __restrict__ to_col, double* __restrict__ to_val) {
    const int lane = threadIdx.x % 32, square = block * block;
    const i64 first = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / 32, warps = (i64)gridDim.x * blockDim.x / 32;
    for (i64 i = first; i < rows; i += warps) {
        const i64 begin = to[i];
        const int count = (int)(to[i + 1] - begin);
        const i64 start = lane < block ? a.ptr[i * block + lane] : 0, end = lane < block ? a.ptr[i * block + lane + 1] : 0;
        double* const own = to_val + begin * square;
        if (__all_sync(~0u, lane >= block || end - start == (i64)count * block)) {
            for (int x0 = 0; x0 < count * square; x0 += 32) {
                const int x = x0 + lane, e = x / square, in = x % square, r = in / block;
                const i64 row = __shfl_sync(~0u, start, r);
                if (x < count * square) own[x] = a.val[row + e * block + in % block];
            }
            continue;
        }
        for (int x = lane; x < count * square; x += 32) own[x] = 0.0;
        __syncwarp();
        for (int r = 0; r < block; ++r) {
            const i64 last = __shfl_sync(~0u, end, r);
            for (i64 p = __shfl_sync(~0u, start, r) + lane; p < last; p += 32) {
                const u32 j = a.col[p] / block;
                int low = 0, high = count;
                while (low < high) {
                    const int middle = (low + high) / 2;
                    if (to_col[begin + middle] < j) low = middle + 1;
                    else high = middle;
                }
                own[low * square + r * block + a.col[p] % block] = a.val[p];
            }
        }
    }
}

// The left factor of D + s C W B as one product: rows of s C W, behind a 1 in column inner + i for D where
// there is one. `to_ptr` is null without D.
extern "C" __global__ void weight_columns(const i64 rows, const i64 inner, const Matrix c, const double* __restrict__ w, const double sign, i64* __restrict__ to_ptr, u32* __restrict__ to_col, double* __restrict__ to_val) {
    const int lane = threadIdx.x % 8;
    const i64 first = (blockIdx.x * (i64)blockDim.x + threadIdx.x) / 8, groups = (i64)gridDim.x * blockDim.x / 8;
    for (i64 i = first; i < rows; i += groups) {
        const i64 begin = c.ptr[i], end = c.ptr[i + 1], behind = to_ptr ? i + 1 : 0;
        if (to_ptr && lane == 0) {
            to_ptr[i] = begin + i;
            if (i + 1 == rows) to_ptr[rows] = end + rows;
            to_col[begin + i] = (u32)(inner + i);
            to_val[begin + i] = 1.0;
        }
        for (i64 p = begin + lane; p < end; p += 8) {
            const u32 k = c.col[p];
            if (to_ptr) to_col[p + behind] = k;
            to_val[p + behind] = __dmul_rn(sign * c.val[p], w ? w[k] : 1.0);
        }
    }
}

// Appends rows to a matrix that has `begin` entries.
extern "C" __global__ void append_rows(const i64 rows, const i64 entries, const i64 begin, const Matrix a, i64* __restrict__ to_ptr, u32* __restrict__ to_col, double* __restrict__ to_val) {
    for EACH(i, rows + 1) to_ptr[i] = a.ptr[i] + begin;
    for EACH(p, entries) {
        to_col[begin + p] = a.col[p];
        to_val[begin + p] = a.val[p];
    }
}

// Diagonal entries, or with `sums` the sums of absolute values of the rows with the sign of the diagonal.
extern "C" __global__ void diagonal_entries(const i64 rows, const int sums, const Matrix a, double* __restrict__ to) {
    for EACH(i, rows) {
        double d = entry(a, i, (u32)i);
        if (sums) {
            double sum = 0.0;
            for (i64 p = a.ptr[i]; p < a.ptr[i + 1]; ++p) sum += fabs(a.val[p]);
            d = copysign(sum, d);
        }
        to[i] = d;
    }
}

// The diagonal of D - C W B, with `inner` entries of W. Columns of C beyond them are ghosts.
extern "C" __global__ void schur_entries(const i64 rows, const i64 inner, const Matrix d, const Matrix c, const double* __restrict__ w, const Matrix b, double* __restrict__ to) {
    for EACH(i, rows) {
        double sum = 0.0;
        for (i64 p = c.ptr[i]; p < c.ptr[i + 1]; ++p) {
            const u32 k = c.col[p];
            if (k < inner) sum += c.val[p] * w[k] * entry(b, k, (u32)i);
        }
        to[i] = entry(d, i, (u32)i) - sum;
    }
}

// 1 for rows in which `a` has no nonzero off its diagonal, and `beside`, where there is one, has none at all.
extern "C" __global__ void rows_alone(const i64 rows, const Matrix a, const Matrix beside, u8* __restrict__ to) {
    for EACH(i, rows) {
        bool alone = true;
        for (i64 p = a.ptr[i]; alone && p < a.ptr[i + 1]; ++p) alone = a.col[p] == i || a.val[p] == 0.0;
        if (beside.ptr)
            for (i64 p = beside.ptr[i]; alone && p < beside.ptr[i + 1]; ++p) alone = beside.val[p] == 0.0;
        to[i] = alone;
    }
}

extern "C" __global__ void largest_entries(const i64 rows, const Matrix a, double* __restrict__ to) {
    for EACH(i, rows) {
        double most = 0.0;
        for (i64 p = a.ptr[i]; p < a.ptr[i + 1]; ++p) most = fmax(most, fabs(a.val[p]));
        to[i] = most;
    }
}

// Makes rows whose largest entry is at most `least` rows of the identity.
extern "C" __global__ void identity_rows(const i64 rows, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ largest, const double least, double* __restrict__ val) {
    for EACH(i, rows) {
        if (largest[i] > least) continue;
        for (i64 p = ptr[i]; p < ptr[i + 1]; ++p) val[p] = col[p] == i ? 1.0 : 0.0;
    }
}

#define MOST 7  // other unknowns of a cell

// The entry of row `row` and column `column` of a matrix of blocks.
__device__ __forceinline__ double block_entry(const Matrix a, const int block, const u32 row, const u32 column) {
    const i64 p = position(a, row / block, column / block);
    return p < 0 ? 0.0 : a.val[(p * block + row % block) * block + column % block];
}

// Inverts a matrix of order k by Gauss-Jordan elimination with row pivoting, as `eliminate` of
// precond/invert.rs. Returns false if it cannot.
__device__ bool eliminate(const int k, double* a, double* inverse, const double tiny) {
    for (int c = 0; c < k; ++c) {
        int pivot = c;
        for (int r = c; r < k; ++r)
            if (fabs(a[r * k + c]) > fabs(a[pivot * k + c])) pivot = r;
        if (!(fabs(a[pivot * k + c]) >= tiny)) return false;
        const double d = 1.0 / a[pivot * k + c];
        for (int x = 0; x < k; ++x) {
            const double one = a[pivot * k + x], two = inverse[pivot * k + x];
            a[pivot * k + x] = a[c * k + x];
            inverse[pivot * k + x] = inverse[c * k + x];
            a[c * k + x] = one * d;
            inverse[c * k + x] = two * d;
        }
        for (int r = 0; r < k; ++r) {
            const double f = a[r * k + c];
            if (r == c || f == 0.0) continue;
            for (int x = 0; x < k; ++x) {
                a[r * k + x] = __dsub_rn(a[r * k + x], __dmul_rn(f, a[c * k + x]));
                inverse[r * k + x] = __dsub_rn(inverse[r * k + x], __dmul_rn(f, inverse[c * k + x]));
            }
        }
    }
    for (int x = 0; x < k * k; ++x)
        if (!isfinite(inverse[x])) return false;
    return true;
}

// The weights (1, -D_ps D_ss^-1) that decouple the first unknown of each cell from its other m - 1 ones.
// unknowns[c * cells + cell]; `order` has the unknown of each weight. `others` is the weight of the other
// unknowns where `impes` is 0.
extern "C" __global__ void cell_weights(const i64 cells, const int m, const int block, const int impes, const double others, const double tiny, const u32* __restrict__ unknowns, const u8* __restrict__ order, const Matrix a, double* __restrict__ to, int* wrong) {
    const int k = m - 1;
    for EACH(cell, cells) {
        double w[MOST + 1], d[MOST * MOST], inverse[MOST * MOST];
        w[0] = 1.0;
        for (int c = 0; c < k; ++c) w[c + 1] = others;
        if (impes) {
            for (int c = 0; c < k; ++c) {
                double largest = 0.0;
                for (int e = 0; e < k; ++e) {
                    const double v = block_entry(a, block, unknowns[(c + 1) * cells + cell], unknowns[(e + 1) * cells + cell]);
                    d[c * k + e] = v;
                    largest = fmax(largest, fabs(v));
                }
                const double scale = largest > 0.0 ? 1.0 / largest : 0.0;
                for (int e = 0; e < k; ++e) {
                    d[c * k + e] *= scale;
                    inverse[c * k + e] = e == c ? scale : 0.0;
                }
            }
            if (eliminate(k, d, inverse, tiny))
                for (int c = 0; c < k; ++c) {
                    double sum = 0.0;
                    for (int e = 0; e < k; ++e)
                        sum = __dadd_rn(sum, __dmul_rn(block_entry(a, block, unknowns[cell], unknowns[(e + 1) * cells + cell]), inverse[e * k + c]));
                    w[c + 1] = -sum;
                }
        }
        for (int c = 0; c < m; ++c) {
            const double v = w[order[cell * m + c]];
            if (!isfinite(v)) *wrong = 1;
            to[cell * m + c] = v;
        }
    }
}
