// Passes over all entries of a matrix in the memory of the device, for the set-up: magnitudes of the entries
// by rows and by columns (entry_maxima), their summary for a sum of terms (survey), factors that bring the
// largest entries near 1 (scale_factors, powers_of_two) and a scaled copy (scaled_values).
// Constants: BLOCK (order of the blocks), SCALED (entry_maxima: entries count with their factors, and only
// maxima are computed).
// Bytes moved by a pass: values, 4 per block, 8 per row, and a column's maximum for each entry, mostly from a
// cache.
//
// Mapping: a thread block processes a window of WINDOW blocks of the matrix, independent of rows; a search in
// row_ptr finds the rows. In a window 1 to 32 neighbouring lanes share a scalar row. Maxima are the bits of
// nonnegative numbers, which are ordered like the numbers. A maximum does not depend on the order of the
// entries, so rows and columns that many threads share are raised by atomics, and results are reproducible.
#ifndef BLOCK
#define BLOCK 1
#endif
#ifndef SCALED
#define SCALED 0
#endif

typedef long long i64;
typedef unsigned long long u64;
constexpr int THREADS = 256, WINDOW = 2048 / BLOCK, LONG = 256;

// The row of an entry, found by one warp, which checks 32 positions at once.
__device__ __forceinline__ int row_of(const i64* __restrict__ row_ptr, int rows, i64 entry) {
    int low = 0, high = rows;  // the first row that starts behind the entry is among low..=high
    while (low < high) {
        const i64 step = ((i64)high - low + 31) / 32, at = low + threadIdx.x % 32 * step;
        const int before = __popc(__ballot_sync(~0u, at < high && row_ptr[min(at, (i64)high)] <= entry));
        if (before == 0) break;
        high = (int)min((i64)high, low + before * step);
        low = (int)(low + (before - 1) * step + 1);
    }
    return low - 1;
}

// Blocks begin..end of the matrix, rows first..first + rows.
struct Window { i64 begin, end; int first, rows; };
__device__ __forceinline__ Window window(const i64* __restrict__ row_ptr, int rows, i64 blocks) {
    __shared__ int at[2];
    const i64 begin = blockIdx.x * (i64)WINDOW, end = min(begin + WINDOW, blocks);
    const int warp = threadIdx.x / 32;
    if (warp < 2) {
        const int row = row_of(row_ptr, rows, warp == 0 ? begin : end - 1);
        if (threadIdx.x % 32 == 0) at[warp] = row;
    }
    __syncthreads();
    return {begin, end, at[0], at[1] - at[0] + 1};
}

// Calls row(i, r, p, end, step, whole, first lane of the row) for every scalar row of a window; all threads
// take part.
template <class Row> __device__ __forceinline__ void each_row(const Window& on, const i64* __restrict__ row_ptr, Row row) {
    const int items = on.rows * BLOCK;
    int log = 0;
    while (log < 5 && items <= THREADS >> (log + 1)) ++log;
    const int lanes = items << log;
    for (int o = threadIdx.x; o < ((lanes + 31) & ~31); o += THREADS) {
        const int item = min(o >> log, items - 1), i = on.first + item / BLOCK, lane = o & ((1 << log) - 1);
        const i64 begin = row_ptr[i], end = row_ptr[i + 1];
        const bool whole = begin >= on.begin && end <= on.end;
        const i64 p = max(begin, on.begin) + lane, last = o < lanes ? min(end, on.end) : 0;
        row(i, item % BLOCK, p, last, log, whole, o < lanes && lane == 0);
    }
}

__device__ __forceinline__ void raise(u64* to, u64 bits) {
    if (*to < bits) atomicMax(to, bits);
}
__device__ __forceinline__ u64 bits_of(double v) { return (u64)__double_as_longlong(v); }

// Writes the smallest and the largest of the nonzero magnitudes of all threads to to[0] and to[1].
struct Extent { u64 smallest, largest; };
__device__ __forceinline__ void note(Extent& all, double magnitude) {
    if (!(magnitude > 0.0)) return;
    all.smallest = min(all.smallest, bits_of(magnitude));
    all.largest = max(all.largest, bits_of(magnitude));
}
__device__ __forceinline__ void tell(Extent all, u64* to) {
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        all.smallest = min(all.smallest, __shfl_xor_sync(~0u, all.smallest, d));
        all.largest = max(all.largest, __shfl_xor_sync(~0u, all.largest, d));
    }
    if (threadIdx.x % 32 > 0) return;
    if (all.smallest < to[0]) atomicMin(to, all.smallest);
    raise(to + 1, all.largest);
}

// Raises the largest magnitude of every scalar row and every scalar column to those of this matrix. SCALED:
// magnitudes are weight |v| r c. Otherwise they are |v|, and the diagonal entries, the extent of weight |v|
// and the longest row of more than LONG blocks (in extent[9]) are found too.
extern "C" __global__ void __launch_bounds__(THREADS)
entry_maxima(const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ values, const int rows, const i64 blocks,
             const double weight, u64* row_maxima, u64* column_maxima,
#if SCALED
             const double* __restrict__ row_factors, const double* __restrict__ column_factors
#else
             double* __restrict__ diagonal, u64* extent
#endif
) {
    const Window on = window(row_ptr, rows, blocks);
#if !SCALED
    Extent all = {~0ull, 0};
#endif
    each_row(on, row_ptr, [&](int i, int r, i64 p, i64 end, int log, bool whole, bool first) {
        u64 largest = 0;
#if SCALED
        const double factor = row_factors[(i64)i * BLOCK + r];
#endif
        for (; p < end; p += 1 << log) {
            const i64 j = (i64)col[p] * BLOCK;
            const double* run = values + (p * BLOCK + r) * BLOCK;
#if !SCALED
            if (j == (i64)i * BLOCK) diagonal[j + r] = run[r];
#endif
#pragma unroll
            for (int c = 0; c < BLOCK; ++c) {
#if SCALED
                const double v = weight * fabs(run[c]) * factor * column_factors[j + c];
#else
                const double v = fabs(run[c]);
                note(all, weight * v);
#endif
                const u64 bits = bits_of(v);
                if (bits == 0) continue;
                largest = max(largest, bits);
                raise(column_maxima + j + c, bits);
            }
        }
        for (int d = 1; d < 1 << log; d *= 2) largest = max(largest, __shfl_xor_sync(~0u, largest, d));
        if (!first) return;
#if !SCALED
        const i64 length = row_ptr[i + 1] - row_ptr[i];
        if (r == 0 && length > LONG) raise(extent + 9, (u64)length);
#endif
        u64* to = row_maxima + (i64)i * BLOCK + r;
        if (!whole) raise(to, largest);
        else if (*to < largest) *to = largest;
    });
#if !SCALED
    tell(all, extent);
#endif
}

// One term: its coefficient's largest magnitude, its stages with a number in their row or column, as bits,
// and its diagonal.
struct Term { double weight, rows, columns, diagonal[4]; };

// Summarises the maxima of one or two terms for their sum. found: smallest and largest of the rows' largest
// entries, the same of the columns', the number of unknowns with an empty row, with an empty column, and with
// a zero diagonal entry. One number further: the number of unknowns whose diagonal entry of the first stage
// is zero or below `weak` of the row's largest. Diagonals are added without contraction, as on the host.
extern "C" __global__ void survey(const int count, const int terms, const int stages, const Term* __restrict__ of, const double* __restrict__ rows0,
                                  const double* __restrict__ rows1, const double* __restrict__ columns0, const double* __restrict__ columns1,
                                  const double* __restrict__ diagonal0, const double* __restrict__ diagonal1, const double weak, u64* found) {
    Extent rows = {~0ull, 0}, columns = {~0ull, 0};
    int empty_rows = 0, empty_columns = 0, missing = 0, small = 0;
    for (int e = blockIdx.x * blockDim.x + threadIdx.x; e < count; e += gridDim.x * blockDim.x) {
        double row = 0.0, column = 0.0, diagonal[4] = {};
        int row_stages = 0, column_stages = 0;
        for (int t = 0; t < terms; ++t) {
            const Term& term = of[t];
            const double row_max = (t ? rows1 : rows0)[e], column_max = (t ? columns1 : columns0)[e], d = (t ? diagonal1 : diagonal0)[e];
            row = fmax(row, term.weight * row_max);
            column = fmax(column, term.weight * column_max);
            if (row_max > 0.0) row_stages |= (int)term.rows;
            if (column_max > 0.0) column_stages |= (int)term.columns;
#pragma unroll
            for (int k = 0; k < 4; ++k) diagonal[k] = __dadd_rn(diagonal[k], __dmul_rn(term.diagonal[k], d));
        }
        note(rows, row);
        note(columns, column);
        empty_rows += stages - __popc(row_stages);
        empty_columns += stages - __popc(column_stages);
#pragma unroll
        for (int k = 0; k < 4; ++k) missing += k < stages && diagonal[k] == 0.0;
        small += diagonal[0] == 0.0 || fabs(diagonal[0]) < weak * row;
    }
    tell(rows, found);
    tell(columns, found + 2);
    const int counts[4] = {empty_rows, empty_columns, missing, small};
#pragma unroll
    for (int n = 0; n < 4; ++n) {
        int sum = counts[n];
#pragma unroll
        for (int d = 1; d < 32; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (threadIdx.x % 32 == 0 && sum > 0) atomicAdd(found + 4 + n + (n == 3), (u64)sum);
    }
}

// Divides the factors of rows or columns by the square roots of their largest entries, which become zero for
// the next pass.
extern "C" __global__ void scale_factors(const int count, double* __restrict__ maxima, double* __restrict__ factors) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const double largest = maxima[i];
    maxima[i] = 0.0;
    if (largest > 0.0 && largest <= 1.7976931348623157e308) factors[i] = factors[i] / sqrt(largest);
}

extern "C" __global__ void ones(const int count, double* __restrict__ to) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = 1.0;
}

// Raises this rank's numbers of the nodes that a neighbour uses to the neighbour's, none negative. A node may
// occur more than once.
extern "C" __global__ void raise(const int count, const int run, const unsigned* __restrict__ nodes, const double* __restrict__ theirs, double* own) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) atomicMax((u64*)own + (i64)nodes[i / run] * run + i % run, (u64)__double_as_longlong(theirs[i]));
}

// Repeats each number `stages` times.
extern "C" __global__ void repeat(const int count, const int stages, const double* __restrict__ from, double* __restrict__ to) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) to[i] = from[i / stages];
}

// The power of two that is nearest on a logarithmic scale; `of` of precond/equilibrated.rs.
extern "C" __global__ void powers_of_two(const int count, double* __restrict__ factors) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= count) return;
    const u64 bits = bits_of(factors[i]), root = 0x6A09E667F3BCDull;  // the fraction of the square root of 2
    const i64 exponent = (i64)(bits >> 52) - 1023 + ((bits & 0xFFFFFFFFFFFFFull) >= root);
    factors[i] = __longlong_as_double((max(-500ll, min(500ll, exponent)) + 1023) << 52);
}

// R A C; wrong becomes 1 where an entry overflows.
extern "C" __global__ void __launch_bounds__(THREADS)
scaled_values(const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ values, const int rows, const i64 blocks,
              const double* __restrict__ row_factors, const double* __restrict__ column_factors, double* __restrict__ to, int* wrong) {
    const Window on = window(row_ptr, rows, blocks);
    each_row(on, row_ptr, [&](int i, int r, i64 p, i64 end, int log, bool, bool) {
        const double factor = row_factors[(i64)i * BLOCK + r];
        for (; p < end; p += 1 << log) {
            const double* factors = column_factors + (i64)col[p] * BLOCK;
            const i64 at = (p * BLOCK + r) * BLOCK;
#pragma unroll
            for (int c = 0; c < BLOCK; ++c) {
                const double v = factor * values[at + c] * factors[c];
                if (!(fabs(v) <= 1.7976931348623157e308)) *wrong = 1;
                to[at + c] = v;
            }
        }
    });
}

#if !SCALED
// Rules out constants by the row sums of a matrix, for solver/null_space/constants.rs: bit c < BLOCK of
// judged[0] is set if a row sum over component c is not zero, and bit BLOCK if a sum over all components is
// not. The same bits of judged[1] are set if a row has entries there. Eight lanes sum a scalar row. Nothing
// more is read once every constant is ruled out.
constexpr int LANES = 8, LOOK = 64;
__device__ __forceinline__ bool is_zero(double sum, double size, double whole) {
    return fabs(sum) <= fmax(1e-12 * size, 2e-16 * whole);
}
extern "C" __global__ void __launch_bounds__(THREADS)
judge_constants(const i64* __restrict__ row_ptr, const double* __restrict__ values, const int rows, u64* judged) {
    const u64 all = BLOCK > 1 ? (2ull << BLOCK) - 1 : 1ull;
    volatile u64* dead = judged;
    const i64 groups = (i64)gridDim.x * (THREADS / LANES), items = (i64)rows * BLOCK;
    const int lane = threadIdx.x % LANES;
    // All lanes of a warp take part in the shuffles.
    for (i64 first = blockIdx.x * (i64)(THREADS / LANES) + threadIdx.x / 32 * (32 / LANES); first < items; first += groups) {
        if (__all_sync(~0u, *dead == all)) return;
        const i64 item = first + threadIdx.x % 32 / LANES;
        double sum[BLOCK] = {}, size[BLOCK] = {};
        if (item < items) {
            const int i = (int)(item / BLOCK), r = (int)(item % BLOCK);
            int turn = 0;
            for (i64 p = row_ptr[i] + lane; p < row_ptr[i + 1]; p += LANES) {
                if (++turn % LOOK == 0 && *dead == all) break;
#pragma unroll
                for (int c = 0; c < BLOCK; ++c) {
                    const double v = values[(p * BLOCK + r) * BLOCK + c];
                    sum[c] += v;
                    size[c] += fabs(v);
                }
            }
        }
        double every = 0.0, whole = 0.0;
#pragma unroll
        for (int c = 0; c < BLOCK; ++c) {
#pragma unroll
            for (int d = 1; d < LANES; d *= 2) {
                sum[c] += __shfl_xor_sync(~0u, sum[c], d);
                size[c] += __shfl_xor_sync(~0u, size[c], d);
            }
            every += sum[c];
            whole += size[c];
        }
        if (lane > 0 || item >= items) continue;
        u64 out = is_zero(every, whole, whole) ? 0 : 1ull << BLOCK, met = whole > 0.0 ? 1ull << BLOCK : 0;
#pragma unroll
        for (int c = 0; c < BLOCK; ++c) {
            if (!is_zero(sum[c], size[c], whole)) out |= 1ull << c;
            if (size[c] > 0.0) met |= 1ull << c;
        }
        if (out & all & ~*dead) atomicOr(judged, out & all);
        if (met & all & ~((volatile u64*)judged)[1]) atomicOr(judged + 1, met & all);
    }
}

// Counts couplings of unknowns in every `step`-th block row: counts[0] of them have an entry, and in
// counts[1] convection dominates (solver/symmetric.rs). Both are counted by the row that has the entry.
extern "C" __global__ void __launch_bounds__(THREADS)
convective(const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ values, const int rows, const int step, u64* counts) {
    const int group = (int)((blockIdx.x * (i64)THREADS + threadIdx.x) / LANES), lane = threadIdx.x % LANES;
    const i64 i = (i64)group * step;
    u64 all = 0, one = 0;
    if (i < rows) {
        for (i64 p = row_ptr[i] + lane; p < row_ptr[i + 1]; p += LANES) {
            const i64 j = col[p];
            if (j >= rows) continue;
            i64 low = row_ptr[j], end = row_ptr[j + 1], high = end;
            while (low < high) {
                const i64 middle = (low + high) / 2;
                if (col[middle] < i) low = middle + 1; else high = middle;
            }
            const bool mirrored = low < end && col[low] == i;
#pragma unroll
            for (int e = 0; e < BLOCK * BLOCK; ++e) {
                const int r = e / BLOCK, c = e % BLOCK;
                const double here = values[p * BLOCK * BLOCK + e], there = mirrored ? values[low * BLOCK * BLOCK + c * BLOCK + r] : 0.0;
                if (here == 0.0 || (i == j && r == c)) continue;
                ++all;
                one += here * there < 0.0 || fmin(fabs(here), fabs(there)) < 0.1 * fmax(fabs(here), fabs(there));
            }
        }
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        all += __shfl_xor_sync(~0u, all, d);
        one += __shfl_xor_sync(~0u, one, d);
    }
    if (threadIdx.x % 32 > 0) return;
    if (all > 0) atomicAdd(counts, all);
    if (one > 0) atomicAdd(counts + 1, one);
}

// Counts couplings between nodes in every `step`-th block row, for solver/build/mixing.rs: counts[0] of them
// have an entry, and in counts[1] those off the diagonal sum to more than `threshold` times those on it.
extern "C" __global__ void __launch_bounds__(THREADS)
mixed_couplings(const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ values, const int rows, const int step,
                const double threshold, u64* counts) {
    const i64 i = (blockIdx.x * (i64)THREADS + threadIdx.x) / LANES * step;
    u64 all = 0, mixed = 0;
    if (i < rows) {
        for (i64 p = row_ptr[i] + threadIdx.x % LANES; p < row_ptr[i + 1]; p += LANES) {
            if (col[p] == i) continue;
            double own = 0.0, others = 0.0;
#pragma unroll
            for (int e = 0; e < BLOCK * BLOCK; ++e) {
                const double v = fabs(values[p * BLOCK * BLOCK + e]);
                if (e / BLOCK == e % BLOCK) own += v;
                else others += v;
            }
            all += own + others > 0.0;
            mixed += others > threshold * own;
        }
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        all += __shfl_xor_sync(~0u, all, d);
        mixed += __shfl_xor_sync(~0u, mixed, d);
    }
    if (threadIdx.x % 32 > 0) return;
    if (all > 0) atomicAdd(counts, all);
    if (mixed > 0) atomicAdd(counts + 1, mixed);
}
#endif
