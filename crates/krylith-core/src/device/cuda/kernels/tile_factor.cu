// tile_factor: IC(0) or ILU(0) of every tile of a box, from the unmodified rows of a 7-point matrix. One warp
// per tile.
//
// Constants: VALUE double or float (storage; arithmetic is in double), SYMMETRIC 1: one half is stored, and
// checked against the other.
// Bytes moved: row pointers, columns and values once; 4 numbers per cell written, 7 if both halves are
// stored.
//
// Within a tile of a 7-point matrix only the diagonal changes: d_i = a_ii - sum over lower neighbours j of
// a_ij a_ji / d_j. Stored are s_i = sign(d_i) / sqrt |d_i| and the scaled halves with inverted signs:
// -sign(d_i) a_ij / sqrt |d_i d_j| with cell i (lower), -sign(d_j) a_ji / sqrt |d_i d_j| with cell i too
// (upper), for each lower neighbour j of i. With these, neither sweep of tile_solve.cu multiplies by a pivot.
//
// A pivot that is not positive enough (for ILU: not large enough) becomes the largest entry of its row in the
// tile, and is counted. report: least row with an entry off the stencil; least row whose half differs from
// the other; least 4 * row + kind of a pivot that cannot be corrected (kind 0 zero, 2 not finite); number of
// corrected pivots.

#include "tile.cuh"

// relative difference above which halves are not symmetric; the twin of the host's
constexpr double DIFFERS = 1e-12;

extern "C" __global__ void __launch_bounds__(128)
tile_factor(const Boxes b, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ values,
            const double coefficient, const double tiny, VALUE* __restrict__ lower, VALUE* __restrict__ upper,
            unsigned long long* report) {
    const int lane = threadIdx.x % 32, t = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (t >= b.tiles) return;
    const Line line = Tile(b, t).line(b, lane);
    const int nx = b.n[0], ny = b.n[1], nz = b.n[2], in_plane = nx * ny;
    const long long cells = (long long)in_plane * nz;
    const int lag = line.in_y + line.in_z, steps = steps_of(b), ty = 1 << b.log_y, tz = 1 << b.log_z;
    const bool here = line.y < ny && line.z < nz;
    const bool below[2] = {line.in_y > 0, line.in_z > 0};
    const bool above[2] = {line.in_y + 1 < ty, line.in_z + 1 < tz};
    const int first = line.x + nx * (line.y + ny * line.z);  // used only if the line is in the box
    // Data of the previous cell: 1 / d, s, and the entries of its row for the next cells in x, y and z.
    double inverse = 0, s = 0, next[3] = {0, 0, 0};
    int row = 0;
    for (int l = 0; l < steps; ++l) {
        double inverses[3], ss[3], others[3];
        inverses[0] = inverse, ss[0] = s, others[0] = next[0];
        inverses[1] = __shfl_sync(ALL, inverse, lane - 1 & 31);
        inverses[2] = __shfl_sync(ALL, inverse, lane - ty & 31);
        ss[1] = __shfl_sync(ALL, s, lane - 1 & 31);
        ss[2] = __shfl_sync(ALL, s, lane - ty & 31);
        others[1] = __shfl_sync(ALL, next[1], lane - 1 & 31);
        others[2] = __shfl_sync(ALL, next[2], lane - ty & 31);
        const int at = l - lag, x = line.x + at;
        if (here && at >= 0 && at < b.lx && x < nx) {
            const long long i = first + at;
            const bool down[3] = {at > 0, below[0], below[1]};
            const bool up[3] = {at + 1 < b.lx, above[0], above[1]};
            const bool has_down[3] = {x > 0, line.y > 0, line.z > 0};
            const bool has_up[3] = {x + 1 < nx, line.y + 1 < ny, line.z + 1 < nz};
            const int strides[3] = {1, nx, in_plane};
            double d = 0, largest = 0, own[3] = {0, 0, 0};
            next[0] = next[1] = next[2] = 0;
            bool off = false;
            const long long end = row_ptr[i + 1];
            for (long long p = row_ptr[i]; p < end; ++p) {
                const long long j = col[p];
                if (j >= cells) continue;  // belongs to another rank
                const double v = __dmul_rn(coefficient, values[p]);
                bool taken = j == i, inside = taken;
                if (taken) d = v;
#pragma unroll
                for (int k = 0; k < 3; ++k) {
                    if (!taken && has_down[k] && j == i - strides[k]) {
                        taken = true;
                        if (down[k]) inside = true, own[k] = v;
                    }
                    if (!taken && has_up[k] && j == i + strides[k]) {
                        taken = true;
                        if (up[k]) inside = true, next[k] = v;
                    }
                }
                if (inside) largest = fmax(largest, fabs(v));
                off |= !taken;
            }
            if (off) atomicMin(report, (unsigned long long)i);
#pragma unroll
            for (int k = 2; k >= 0; --k)
                if (down[k]) d = __dsub_rn(d, __dmul_rn(__dmul_rn(own[k], others[k]), inverses[k]));
#if SYMMETRIC
            bool differs = false;
#pragma unroll
            for (int k = 0; k < 3; ++k) differs |= down[k] && fabs(own[k] - others[k]) > DIFFERS * (fabs(own[k]) + fabs(others[k]));
            if (differs) atomicMin(report + 1, (unsigned long long)i);
            const bool good = d > 0 && d >= tiny * largest && isfinite(d) && isfinite(1 / d);
#else
            const bool good = d != 0 && fabs(d) >= tiny * largest && isfinite(d) && isfinite(1 / d);
#endif
            if (!good) {
                const bool finite = isfinite(d) && isfinite(largest);
                if (finite && largest > 0 && isfinite(1 / largest)) {
                    d = largest;
                    atomicAdd(report + 3, 1ull);
                } else {
                    atomicMin(report + 2, 4ull * i + (finite && !(largest > 0) ? 0 : 2));
                    d = 1;
                }
            }
            inverse = __ddiv_rn(1.0, d);
            s = copysign(__ddiv_rn(1.0, __dsqrt_rn(fabs(d))), d);
            const long long at_row = (long long)t * b.lx + row;
            VALUE *const low = lower + at_row * LOWER + lane, *const high = upper + at_row * UPPER + lane;
            low[96] = (VALUE)s;
#pragma unroll
            for (int k = 0; k < 3; ++k) {
                low[32 * k] = down[k] ? (VALUE)-(s * own[k] * fabs(ss[k])) : (VALUE)0;
#if !SYMMETRIC
                high[32 * k] = down[k] ? (VALUE)-(fabs(s) * others[k] * ss[k]) : (VALUE)0;
#endif
            }
        }
        row = row + 1 == b.lx ? 0 : row + 1;
    }
}
