// amg_rows: bounds and counts of the rows of a sparse product before they are summed, and rows sorted by
// them.
//
// Macros: BINS. amg_bounds: an upper bound of the columns of each row. amg_bin_sizes and amg_bin_rows: lists
// of the rows whose counts lie between limits; the order within a bin depends on timing, and no result
// depends on it. amg_lengths: lengths of rows.
// Bytes moved: 4 per entry of the left factor, 16 gathered and 8 per row; 4 per row; 8 per row; 12 per row.

typedef long long i64;

struct Limits { unsigned at[BINS]; };

__device__ __forceinline__ int bin_of(const unsigned count, const Limits& limits) {
    int bin = 0;
#pragma unroll
    for (int b = 0; b < BINS; ++b) bin += count > limits.at[b];
    return bin;
}

// Four lanes share a row.
extern "C" __global__ void __launch_bounds__(256)
amg_bounds(const i64 rows, const i64* __restrict__ ptr, const unsigned* __restrict__ col, const i64* __restrict__ right, const int diagonal, const i64 columns, unsigned* __restrict__ bounds) {
    const i64 row = (blockIdx.x * 256ll + threadIdx.x) / 4;
    const int lane = threadIdx.x % 4;
    i64 sum = 0;
    if (row < rows)
        for (i64 p = ptr[row] + lane; p < ptr[row + 1]; p += 4) sum += right[col[p] + 1ll] - right[col[p]];
    for (int d = 1; d < 4; d *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, d);
    sum += diagonal;
    if (row < rows && lane == 0) bounds[row] = (unsigned)(sum < columns ? sum : columns);
}

extern "C" __global__ void __launch_bounds__(256)
amg_lengths(const i64 rows, const i64* __restrict__ ptr, unsigned* __restrict__ lengths) {
    const i64 row = blockIdx.x * 256ll + threadIdx.x;
    if (row < rows) lengths[row] = (unsigned)(ptr[row + 1] - ptr[row]);
}

// `sizes` starts as zeros; the number behind those of the bins becomes *total, if there is one.
extern "C" __global__ void __launch_bounds__(256)
amg_bin_sizes(const i64 rows, const unsigned* __restrict__ counts, const Limits limits, const i64* __restrict__ total, unsigned long long* sizes) {
    __shared__ unsigned own[BINS];
    if (threadIdx.x < BINS) own[threadIdx.x] = 0;
    __syncthreads();
    for (i64 row = blockIdx.x * 256ll + threadIdx.x; row < rows; row += gridDim.x * 256ll) atomicAdd(own + bin_of(counts[row], limits), 1u);
    __syncthreads();
    if (threadIdx.x < BINS && own[threadIdx.x]) atomicAdd(sizes + threadIdx.x, (unsigned long long)own[threadIdx.x]);
    if (total && blockIdx.x == 0 && threadIdx.x == 0) sizes[BINS] = (unsigned long long)*total;
}

// `taken` starts as zeros.
extern "C" __global__ void __launch_bounds__(256)
amg_bin_rows(const i64 rows, const unsigned* __restrict__ counts, const Limits limits, const unsigned long long* __restrict__ sizes, unsigned long long* taken, unsigned* __restrict__ list) {
    __shared__ unsigned own[BINS];
    __shared__ i64 base[BINS];
    if (threadIdx.x < BINS) own[threadIdx.x] = 0;
    __syncthreads();
    const i64 row = blockIdx.x * 256ll + threadIdx.x;
    const int bin = row < rows ? bin_of(counts[row], limits) : -1;
    const unsigned place = bin >= 0 ? atomicAdd(own + bin, 1u) : 0u;
    __syncthreads();
    if (threadIdx.x < BINS && own[threadIdx.x]) {
        i64 before = 0;
        for (int b = 0; b < (int)threadIdx.x; ++b) before += sizes[b];
        base[threadIdx.x] = before + atomicAdd(taken + threadIdx.x, (unsigned long long)own[threadIdx.x]);
    }
    __syncthreads();
    if (bin >= 0) list[base[bin] + place] = (unsigned)row;
}
