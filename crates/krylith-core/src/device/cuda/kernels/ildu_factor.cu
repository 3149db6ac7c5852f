// ildu_factor: block ILU of every subdomain at once, on the pattern of a plan, in four kernels.
//
//   ildu_form    adds a term's values to the plan's entries, C (x) A; bytes: the term's values once, the
//                entries once
//   ildu_factor  the factorisation in place, one thread block per subdomain, a warp per block row, level
//                by level
//   ildu_range   finds the power of two for solves in f32, one thread block per subdomain; bytes: the entries
//                once
//   ildu_pack    copies the factors, or their transposes, to the stream that ildu_solve reads
//
// Macros: those of ildu.cuh, THREADS (of ildu_factor, ildu_range and ildu_pack; WARPS are those of the
// solve), RANGE (largest difference of exponents, as in precond/range.rs).
//
// Row i of the plan is eliminated in the usual order (IKJ): for each j < i of its pattern, ascending, a_ik -=
// (L D)_ij U_jk for the k of both patterns. U has a unit diagonal, so (L D)_ij is the a_ij that elimination
// leaves, and no block is scaled twice. Afterwards D_i^-1 replaces a_ii, and U_ik = D_i^-1 a_ik. The order of
// all sums is fixed.

#include "ildu.cuh"
#include "pivots.cuh"
#include "search.cuh"

constexpr int OWN_WARPS = THREADS / 32;
constexpr unsigned ALL = 0xffffffffu;

// Entries of a block: entry (r * stages + k, q * stages + l) += C[k][l] A[r][q]. sources: block of A, or -1.
// first: sets instead of adding.
extern "C" __global__ void ildu_form(long long entries, int block, int stages, int first, const double* __restrict__ coefficients,
                                     const int* __restrict__ sources, const double* __restrict__ from, double* __restrict__ work) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < entries * ENTRIES; i += (long long)gridDim.x * blockDim.x) {
        const long long entry = i / ENTRIES;
        const int e = (int)(i % ENTRIES), row = e / ORDER, column = e % ORDER, source = sources[entry];
        double value = 0;
        if (source >= 0) {
            value = coefficients[row % stages * stages + column % stages] *
                    from[((long long)source * block + row / stages) * block + column / stages];
        }
        work[i] = first ? value : work[i] + value;
    }
}

// The factorisation of scalar rows, with SHARE lanes per row: rows are short, and a level has more rows than
// there are warps.
constexpr int SHARE = 8;
__device__ void factor_scalars(long long first, long long end, int depth, const unsigned* __restrict__ levels, const long long* __restrict__ row_starts,
                               const unsigned short* __restrict__ columns, const long long* __restrict__ diagonal,
                               const unsigned* __restrict__ rows, double shift, double* work, Pivots* pivots) {
    const int lane = threadIdx.x % SHARE;
    const unsigned mask = ((1u << SHARE) - 1) << (threadIdx.x % 32 / SHARE * SHARE);
    for (int level = 0; level < depth; ++level) {
        const long long to = level + 1 < depth ? first + levels[level + 1] : end;
        for (long long i = first + levels[level] + threadIdx.x / SHARE; i < to; i += THREADS / SHARE) {
            const long long begin = row_starts[i], middle = diagonal[i], last = row_starts[i + 1];
            double most = 0;
            for (long long p = begin + lane; p < last; p += SHARE) most = fmax(most, fabs(work[p]));
#pragma unroll
            for (int d = 1; d < SHARE; d *= 2) most = fmax(most, __shfl_xor_sync(mask, most, d));
            for (long long p = begin; p < middle; ++p) {
                const long long k = first + columns[p], q_end = row_starts[k + 1];
                const double lower = work[p];
                for (long long q = diagonal[k] + 1 + lane; q < q_end; q += SHARE) {
                    const long long at = find_column(columns, p + 1, last, columns[q]);
                    if (at >= 0) work[at] -= lower * work[q];
                }
                __syncwarp(mask);
            }
            const double found = work[middle];
            double inverse = 1 / found;
            auto judge = [&](double a) { return !isfinite(a) ? NOT_FINITE : a == 0 ? ZERO : fabs(a) < TINY_PIVOT * most ? TINY : isfinite(1 / a) ? GOOD : NOT_FINITE; };
            int kind = judge(found);
            const bool shifted = kind != GOOD && shift > 0;
            if (shifted) {
                const double more = found + shift * (most > 0 ? most : 1);
                kind = judge(more);
                inverse = 1 / more;
            }
            // The row and the column of a bad pivot do not affect later rows.
            if (kind != GOOD) inverse = 0;
            __syncwarp(mask);  // the pivot has been read
            if (lane == 0) {
                count_pivot(pivots, rows[i], kind, shifted);
                work[middle] = inverse;
            }
            for (long long q = middle + 1 + lane; q < last; q += SHARE) work[q] = kind == GOOD ? inverse * work[q] : 0;
        }
        __syncthreads();
    }
}

// The same for blocks, with a warp per row. memory: two blocks and two columns for each warp.
__device__ void factor_blocks(long long first, long long end, int depth, const unsigned* __restrict__ levels, const long long* __restrict__ row_starts,
                              const unsigned short* __restrict__ columns, const long long* __restrict__ diagonal,
                              const unsigned* __restrict__ rows, double shift, double* work, Pivots* pivots, double* memory) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    double *a = memory + warp * 2 * (ENTRIES + ORDER), *inverse = a + ENTRIES, *factor = inverse + ENTRIES, *scale = factor + ORDER;
    for (int level = 0; level < depth; ++level) {
        const long long to = level + 1 < depth ? first + levels[level + 1] : end;
        for (long long i = first + levels[level] + warp; i < to; i += OWN_WARPS) {
            const long long begin = row_starts[i], middle = diagonal[i], last = row_starts[i + 1];
            for (int r = lane; r < ORDER; r += 32) {
                double most = 0;
                for (long long p = begin; p < last; ++p)
#pragma unroll
                    for (int c = 0; c < ORDER; ++c) most = fmax(most, fabs(work[(p * ORDER + r) * ORDER + c]));
                scale[r] = most;
            }
            __syncwarp();
            for (long long p = begin; p < middle; ++p) {
                const long long k = first + columns[p], q_end = row_starts[k + 1];
                for (long long q0 = diagonal[k] + 1; q0 < q_end; q0 += 32) {
                    // Positions of the columns of row k in row i, one per lane.
                    const long long q = q0 + lane;
                    const long long at = q < q_end ? find_column(columns, p + 1, last, columns[q]) : -1;
                    for (unsigned found = __ballot_sync(ALL, at >= 0); found; found &= found - 1) {
                        const int which = __ffs(found) - 1;
                        const long long to_block = __shfl_sync(ALL, at, which) * ENTRIES, u = (q0 + which) * ENTRIES;
                        for (int e = lane; e < ENTRIES; e += 32) {
                            const int r = e / ORDER, c = e % ORDER;
                            double sum = work[to_block + e];
#pragma unroll 4
                            for (int m = 0; m < ORDER; ++m) sum -= work[p * ENTRIES + r * ORDER + m] * work[u + m * ORDER + c];
                            work[to_block + e] = sum;
                        }
                    }
                    __syncwarp();
                }
            }
            int kind;
            for (int pass = 0;; ++pass) {
                for (int e = lane; e < ENTRIES; e += 32) {
                    const int r = e / ORDER;
                    const double more = pass && r == e % ORDER ? shift * (scale[r] > 0 ? scale[r] : 1) : 0;
                    a[e] = work[middle * ENTRIES + e] + more;
                }
                __syncwarp();
                kind = invert(a, inverse, scale, factor, TINY_PIVOT, lane);
                __syncwarp();
                if (kind != GOOD && !pass && shift > 0) continue;
                if (lane == 0) count_pivot(pivots, rows[i], kind, pass);
                break;
            }
            // The row and the column of a bad pivot do not affect later rows.
            for (int e = lane; e < ENTRIES; e += 32) work[middle * ENTRIES + e] = inverse[e] = kind == GOOD ? inverse[e] : 0;
            __syncwarp();
            // U_ik = D_i^-1 a_ik, with a lane per column.
            const long long items = (last - middle - 1) * ORDER;
            for (long long item = lane; item < items; item += 32) {
                double* column = work + (middle + 1 + item / ORDER) * ENTRIES + item % ORDER;
                double old[ORDER];
#pragma unroll
                for (int m = 0; m < ORDER; ++m) old[m] = kind == GOOD ? column[m * ORDER] : 0;
                for (int r = 0; r < ORDER; ++r) {
                    double sum = 0;
#pragma unroll
                    for (int m = 0; m < ORDER; ++m) sum = fma(inverse[r * ORDER + m], old[m], sum);
                    column[r * ORDER] = sum;
                }
            }
            __syncwarp();
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(THREADS)
ildu_factor(const long long* __restrict__ starts, const unsigned* __restrict__ depths, const unsigned* __restrict__ levels,
            const long long* __restrict__ row_starts, const unsigned short* __restrict__ columns, const long long* __restrict__ diagonal,
            const unsigned* __restrict__ rows, double shift, double* work, Pivots* pivots) {
    extern __shared__ double memory[];
    const long long first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    const int depth = depths[blockIdx.x];
    levels += first;
    if (ORDER == 1) factor_scalars(first, end, depth, levels, row_starts, columns, diagonal, rows, shift, work, pivots);
    else factor_blocks(first, end, depth, levels, row_starts, columns, diagonal, rows, shift, work, pivots, memory);
}

// The exponent of a number plus 1023; 0 for 0, and 0x7ff if the number is not finite.
__device__ __forceinline__ unsigned exponent_of(double v) {
    const unsigned long long bits = (unsigned long long)__double_as_longlong(fabs(v));
    return bits ? max(1u, (unsigned)(bits >> 52)) : 0u;
}
__device__ __forceinline__ unsigned warp_max(unsigned e) {
#pragma unroll
    for (int d = 16; d; d /= 2) e = max(e, __shfl_xor_sync(ALL, e, d));
    return e;
}

// For each subdomain the exponent around which those of D^-1 lie, or 0 if they are near 0. Solves in f32 read
// D^-1 divided by this power of two, and L D multiplied by it. *too_wide: set if the range is too large.
extern "C" __global__ void __launch_bounds__(THREADS)
ildu_range(const long long* __restrict__ starts, const long long* __restrict__ row_starts, const long long* __restrict__ diagonal,
           const double* __restrict__ work, int* __restrict__ shifts, unsigned* too_wide) {
    __shared__ unsigned low, high, left, right;
    if (threadIdx.x == 0) {
        low = 0xffffu;
        high = left = right = 0;
    }
    __syncthreads();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (long long i = starts[blockIdx.x] + warp; i < starts[blockIdx.x + 1]; i += OWN_WARPS) {
        const long long begin = row_starts[i], middle = diagonal[i], last = row_starts[i + 1];
        for (int r = 0; r < ORDER; ++r) {
            const unsigned row = warp_max(lane < ORDER ? exponent_of(work[middle * ENTRIES + r * ORDER + lane]) : 0u);
            if (lane > 0 || row == 0) continue;  // a row of zeros has no pivot
            atomicMin(&low, row);
            atomicMax(&high, row);
        }
        unsigned before = 0, behind = 0;
        for (long long e = begin * ENTRIES + lane; e < middle * ENTRIES; e += 32) before = max(before, exponent_of(work[e]));
        for (long long e = (middle + 1) * ENTRIES + lane; e < last * ENTRIES; e += 32) behind = max(behind, exponent_of(work[e]));
        before = warp_max(before);
        behind = warp_max(behind);
        if (lane > 0) continue;
        atomicMax(&left, before);
        atomicMax(&right, behind);
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    const int center = low > high ? 0 : (int)(low + (high - low) / 2) - 1023;
    const int shift = abs(center) <= RANGE / 2 ? 0 : center;
    const bool finite = max(high, max(left, right)) < 0x7ffu;
    const bool fits = (low > high || high - low <= RANGE) && (int)left - 1023 + shift <= RANGE && (int)right - 1023 <= RANGE;
    // Beyond 2^1000 powers of two overflow.
    if (!finite || !fits || abs(shift) >= 1000) *too_wide = 1;
    shifts[blockIdx.x] = shift;
}

extern "C" __global__ void __launch_bounds__(THREADS)
ildu_pack(const long long* __restrict__ starts, const long long* __restrict__ sums, const long long* __restrict__ row_starts,
          const long long* __restrict__ diagonal, const unsigned* __restrict__ from, const Chunk* __restrict__ chunks,
          const char* __restrict__ places, const double* __restrict__ work, const int* __restrict__ shifts, char* __restrict__ values) {
    const int shift = shifts ? shifts[blockIdx.x] : 0;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long first = starts[blockIdx.x], first_entry = row_starts[first];
    // Block of an entry. With `from`, the pattern is that of the transpose, and blocks are transposed.
    auto block_of = [&](long long e) { return work + (from ? first_entry + from[e] : e) * ENTRIES; };
    const int down = from ? 1 : ORDER, across = from ? ORDER : 1;
    for (long long c = sums[3ll * blockIdx.x]; c < sums[3ll * blockIdx.x + 3]; ++c) {
        const char* place = places + 16ull * chunks[c].place;
        VALUE* out = (VALUE*)(values + 16ull * chunks[c].values);
        const Slice* slices = slices_of(place);
        const int count = ((const Header*)place)->steps * WARPS;
        for (int i = warp; i < count; i += OWN_WARPS) {
            const Slice s = slices[i];
            const int width = s.rows * ORDER, row = lane / ORDER, r = lane % ORDER;
            if (lane >= width) continue;  // no rows: no slice
            const long long at = first + position_of(s, place, row), middle = diagonal[at];
            const long long begin = (s.flags & UPPER ? middle + 1 : row_starts[at]) + s.skipped;
            const long long end = s.flags & UPPER ? row_starts[at + 1] : middle;
            VALUE* a = out + (int)s.values * (16 / (int)sizeof(VALUE)) + lane;
            // L D, which is the upper part of the transpose.
            const int of_lower = ((s.flags & UPPER) != 0) == (from != nullptr) ? shift : 0;
            auto store = [](double v, int e) { return (VALUE)(e ? ldexp(v, e) : v); };
            for (int k = 0; k < s.blocks; ++k) {
                const bool there = begin + k < end;
                const double* block = there ? block_of(begin + k) + r * down : nullptr;
                for (int q = 0; q < ORDER; ++q) a[(k * ORDER + q) * width] = there ? store(block[q * across], of_lower) : (VALUE)0;
            }
            if (!(s.flags & DIAGONAL)) continue;
            const double* block = block_of(middle) + r * down;
            for (int q = 0; q < ORDER; ++q) a[(s.blocks * ORDER + q) * width] = store(block[q * across], -shift);
        }
    }
}
