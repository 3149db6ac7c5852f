// Rounds matrices and weights of a cycle to bf16, by the rules of precond/bf16.rs. Off-diagonal entries are
// rounded one by one, and the diagonal takes their errors, in f32. The weights of a row of P keep their sum.
//
// Bytes moved: bf16_rows 14 per entry and 16 per row; bf16_diagonals 10 per stored number and 4 per row;
// bf16_weights 18 per entry, from caches in part; bf16_turned 14 per entry, and about 20 more of P.

#include "bf16.cuh"

typedef long long i64;

// Lanes for each row of a matrix, and of R.
constexpr int LANES = 8;
// As in precond/bf16.rs.
constexpr double CHANGE = 1.0 / 16, NEGATIVE = 1.0 / 256;

// Sums over a row: its diagonal; for the other entries the rounding errors, the rounded sizes, and the
// entries.
struct RoundedRow {
    double diagonal, change, norm, rest;

    __device__ __forceinline__ bf16 take(bool is_diagonal, double v) {
        if (is_diagonal) {
            diagonal += v;
            return bf16(0.0f);
        }
        const bf16 rounded((float)v);
        const double wide = (double)(float)rounded;
        change += v - wide;
        norm += fabs(wide);
        rest += v;
        return rounded;
    }
    // The diagonal of the rounded row times c, and D^-1. Counts rows that bf16 does not suit.
    __device__ __forceinline__ void finish(double c, float* own, float* inverse, unsigned* unfit) const {
        const double a = c * (diagonal + change), l1 = fabs(c) * norm;
        const double d = 1 / (a + (a < 0 ? -l1 : l1));
        const bool kept = fabs(change) <= CHANGE * fabs(diagonal) && fabs(d) <= 1.7976931348623157e308;
        const double sum = diagonal < 0 ? -(diagonal + rest) : diagonal + rest;
        if (own) *own = (float)a;
        *inverse = (float)d;
        if (!kept) atomicAdd(unfit, 1u);
        if (sum < -NEGATIVE * (fabs(diagonal) + norm)) atomicAdd(unfit + 1, 1u);
    }
};
__device__ __forceinline__ double over_lanes(double v) {
#pragma unroll
    for (int d = 1; d < LANES; d *= 2) v += __shfl_xor_sync(~0u, v, d);
    return v;
}

// A matrix of scalar rows times 2^shift; `coefficient` is that of the matrix.
extern "C" __global__ void __launch_bounds__(256)
bf16_rows(const i64 rows, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ from, const int shift,
          const double* __restrict__ coefficient, bf16* __restrict__ to, float* __restrict__ own, float* __restrict__ inverse, unsigned* unfit) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    const int lane = threadIdx.x % LANES;
    const double c = *coefficient;
    // Whole warps stay together: thread blocks are multiples of 32, and so is the step.
    for (i64 t = blockIdx.x * (i64)blockDim.x + threadIdx.x; t - threadIdx.x % 32 < rows * LANES; t += step) {
        const i64 i = t / LANES, end = i < rows ? row_ptr[i + 1] : 0;
        RoundedRow row = {};
        for (i64 p = (i < rows ? row_ptr[i] : 0) + lane; p < end; p += LANES) to[p] = row.take(col[p] == i, ldexp(from[p], shift));
        const RoundedRow all = {over_lanes(row.diagonal), over_lanes(row.change), over_lanes(row.norm), over_lanes(row.rest)};
        if (i < rows && lane == 0) all.finish(c, own + i, inverse + i, unfit);
    }
}

struct Offsets { int at[32]; };

// A matrix by diagonals (dia.cu) times 2^shift. The main diagonal becomes 0. In symmetric storage the
// diagonals below it are those above.
extern "C" __global__ void __launch_bounds__(256)
bf16_diagonals(const unsigned rows, const int count, const int symmetric, const Offsets offsets, const i64 stride, const double* __restrict__ from,
               const int shift, const double* __restrict__ coefficient, bf16* __restrict__ to, float* __restrict__ inverse, unsigned* unfit) {
    const double c = *coefficient;
    for (i64 at = blockIdx.x * (i64)blockDim.x + threadIdx.x; at < rows; at += (i64)gridDim.x * blockDim.x) {
        const unsigned i = (unsigned)at;
        RoundedRow row = {};
        for (int k = 0; k < count; ++k) {
            const int offset = offsets.at[k];
            to[k * stride + i] = row.take(offset == 0, ldexp(from[k * stride + i], shift));
            const unsigned before = i - (unsigned)offset;
            if (symmetric && offset > 0 && before < rows) row.take(false, ldexp(from[k * stride + before], shift));
        }
        row.finish(c, nullptr, inverse + i, unfit);
    }
}

// Weights of P, row by row. The smallest one takes the rounding errors of all.
extern "C" __global__ void __launch_bounds__(256)
bf16_weights(const i64 rows, const i64* __restrict__ row_ptr, const double* __restrict__ from, bf16* __restrict__ to) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < rows; i += (i64)gridDim.x * blockDim.x) {
        i64 at = -1;
        double least = 0, lost = 0;
        for (i64 p = row_ptr[i]; p < row_ptr[i + 1]; ++p) {
            const double v = from[p];
            const bf16 rounded((float)v);
            to[p] = rounded;
            lost += v - (double)(float)rounded;
            if (v != 0 && (at < 0 || fabs(v) < least)) {
                least = fabs(v);
                at = p;
            }
        }
        if (at >= 0) to[at] = bf16((float)((double)(float)bf16((float)from[at]) + lost));
    }
}

// Weights of R: the rounded number of P where P has the same number at the mirrored position.
extern "C" __global__ void __launch_bounds__(256)
bf16_turned(const i64 rows, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ from,
            const i64* __restrict__ row_ptr_of_p, const unsigned* __restrict__ col_of_p, const double* __restrict__ p, const bf16* __restrict__ rounded,
            bf16* __restrict__ to) {
    const i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 t = blockIdx.x * (i64)blockDim.x + threadIdx.x; t < rows * LANES; t += step) {
        const i64 c = t / LANES;
        for (i64 e = row_ptr[c] + t % LANES; e < row_ptr[c + 1]; e += LANES) {
            const double v = from[e];
            const unsigned i = col[e];
            bf16 own((float)v);
            for (i64 q = row_ptr_of_p[i]; q < row_ptr_of_p[i + 1]; ++q)
                if (col_of_p[q] == c && p[q] == v) {
                    own = rounded[q];
                    break;
                }
            to[e] = own;
        }
    }
}
