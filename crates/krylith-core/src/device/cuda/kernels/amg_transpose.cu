// amg_transpose: the transpose of a sparse matrix of scalars, with ascending columns.
//
// Entries are counted by columns, put into the rows of the transpose in any order, and sorted there by
// counting, which gives the same result in every run.
// Macros: LONG, the least number of entries of a row that a whole thread block sorts.
// Bytes moved: 4, 24 and 24 per entry; 16 per number of blocks, and 8 per block.

typedef long long i64;

extern "C" __global__ void __launch_bounds__(256)
amg_count_columns(const i64 entries, const unsigned* __restrict__ col, unsigned* counts) {
    for (i64 p = blockIdx.x * 256ll + threadIdx.x; p < entries; p += gridDim.x * 256ll) atomicAdd(counts + col[p], 1u);
}

// Four lanes share a row. `left` starts as the counts and ends as zeros.
extern "C" __global__ void __launch_bounds__(256)
amg_scatter(const i64 rows, const i64* __restrict__ ptr, const unsigned* __restrict__ col, const double* __restrict__ val, const i64* __restrict__ to, unsigned* left, unsigned* __restrict__ to_col, double* __restrict__ to_val) {
    const i64 row = (blockIdx.x * 256ll + threadIdx.x) / 4;
    if (row >= rows) return;
    for (i64 p = ptr[row] + threadIdx.x % 4; p < ptr[row + 1]; p += 4) {
        const unsigned j = col[p];
        const i64 at = to[j] + atomicSub(left + j, 1u) - 1;
        to_col[at] = (unsigned)row;
        to_val[at] = val[p];
    }
}

__device__ __forceinline__ void rank_row(const i64 begin, const int count, const unsigned* __restrict__ col, const double* __restrict__ val, unsigned* __restrict__ to_col, double* __restrict__ to_val, const int lane, const int lanes) {
    for (int e = lane; e < count; e += lanes) {
        const unsigned key = col[begin + e];
        int rank = 0;
        for (int x = 0; x < count; ++x) rank += col[begin + x] < key;
        to_col[begin + rank] = key;
        to_val[begin + rank] = val[begin + e];
    }
}

// Eight lanes share a row; rows of more than LONG entries are listed behind their number.
extern "C" __global__ void __launch_bounds__(256)
amg_sort_rows(const i64 rows, const i64* __restrict__ ptr, const unsigned* __restrict__ col, const double* __restrict__ val, unsigned* __restrict__ to_col, double* __restrict__ to_val, unsigned* longer) {
    const i64 row = (blockIdx.x * 256ll + threadIdx.x) / 8;
    if (row >= rows) return;
    const i64 begin = ptr[row];
    const int count = (int)(ptr[row + 1] - begin), lane = threadIdx.x % 8;
    if (count > LONG) {
        if (lane == 0) longer[1 + atomicAdd(longer, 1u)] = (unsigned)row;
        return;
    }
    rank_row(begin, count, col, val, to_col, to_val, lane, 8);
}

extern "C" __global__ void __launch_bounds__(1024)
amg_sort_long_rows(const i64* __restrict__ ptr, const unsigned* __restrict__ col, const double* __restrict__ val, unsigned* __restrict__ to_col, double* __restrict__ to_val, const unsigned* __restrict__ longer) {
    const unsigned count = longer[0];
    for (unsigned r = blockIdx.x; r < count; r += gridDim.x) {
        const unsigned row = longer[1 + r];
        rank_row(ptr[row], (int)(ptr[row + 1] - ptr[row]), col, val, to_col, to_val, threadIdx.x, 1024);
    }
}

// Blocks of order `block` are transposed; places has the position of each block in `from`.
extern "C" __global__ void __launch_bounds__(256)
amg_turn_blocks(const i64 numbers, const int block, const double* __restrict__ places, const double* __restrict__ from, double* __restrict__ to) {
    const int square = block * block;
    for (i64 e = blockIdx.x * 256ll + threadIdx.x; e < numbers; e += gridDim.x * 256ll) {
        const i64 k = e / square;
        const int r = (int)(e - k * square) / block, c = (int)(e - k * square) % block;
        to[e] = from[(i64)places[k] * square + c * block + r];
    }
}
