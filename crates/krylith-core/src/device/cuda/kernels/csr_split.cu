// csr_split: splits the rows of one rank into two matrices. Columns from `own` on are ghosts, which other
// ranks own: A_own has the own columns of all rows, A_ghost the other columns, of the rows that have any.
//
//   split_mark     one bit for every entry in a ghost's column, and the number of such entries before each
//                  32 entries of a window; sums: the number in each window
//   split_rows     row pointers of A_own, and rows and row pointers of A_ghost; in two passes, between which
//                  scan.cu sums the counts of thread blocks
//   split_entries  copies columns and values to their places, or new values alone
//
// Constants: VALUE (double or float as values are stored), THREADS.
// Bytes moved: 4 per entry to mark; 24 per row and pass; columns and values twice, and a quarter of a byte
// per entry for the bits. New values: both arrays, and the bits. With the bits an entry finds its place by
// two loads and a population count, so the cost does not depend on the length of rows.

#include "scan.cuh"
#ifndef VALUE
#define VALUE double
#endif

typedef long long i64;

// Bits of 32 entries, and the number of bits before them in their window.
struct __align__(8) Word { unsigned bits, before; };

constexpr int WINDOW = 32 * THREADS;  // entries that a thread block marks
constexpr int ROWS = 8;               // rows per thread

// There is a word for every entry and for one more position behind the last, so that the end of the last row
// can be looked up.
extern "C" __global__ void __launch_bounds__(THREADS)
split_mark(const i64 entries, const unsigned own, const unsigned* __restrict__ col, Word* __restrict__ words, i64* __restrict__ sums) {
    __shared__ unsigned bits[THREADS];
    const i64 first = blockIdx.x * (i64)WINDOW;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll 8
    for (int w = warp; w < THREADS; w += THREADS / 32) {
        const i64 p = first + 32 * w + lane;
        const unsigned found = __ballot_sync(~0u, p < entries && col[p] >= own);
        if (lane == 0) bits[w] = found;
    }
    __syncthreads();
    unsigned total;
    const unsigned mine = bits[threadIdx.x], before = block_exclusive((unsigned)__popc(mine), total);
    words[blockIdx.x * (i64)THREADS + threadIdx.x] = {mine, before};
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// Number of ghosts among the first p entries; `sums` are exclusive by now.
__device__ __forceinline__ i64 ghosts_before(const Word& word, const i64* __restrict__ sums, i64 p) {
    return sums[p / WINDOW] + word.before + __popc(word.bits & ((1u << (p % 32)) - 1));
}
__device__ __forceinline__ i64 ghosts_before(const Word* __restrict__ words, const i64* __restrict__ sums, i64 p) {
    return ghosts_before(words[p / 32], sums, p);
}

// pass 0: row pointers of A_own, the number of rows with ghosts of each thread block, and the most ghosts of
// one row. pass 1, with the exclusive sums of blocks: the rows that have ghosts, and their row pointers.
extern "C" __global__ void __launch_bounds__(THREADS)
split_rows(const int rows, const int pass, const i64* __restrict__ row_ptr, const Word* __restrict__ words, const i64* __restrict__ sums,
           i64* __restrict__ own_ptr, i64* blocks, i64* longest, unsigned* __restrict__ ghost_rows, i64* __restrict__ ghost_ptr) {
    i64 at = pass == 1 ? blocks[blockIdx.x] : 0, most = 0;
    for (int k = 0; k < ROWS; ++k) {
        const i64 i = (blockIdx.x * (i64)ROWS + k) * THREADS + threadIdx.x;
        i64 first = 0, last = 0, total;
        if (i < rows) {
            const i64 begin = row_ptr[i], end = row_ptr[i + 1];
            first = ghosts_before(words, sums, begin);
            last = ghosts_before(words, sums, end);
            if (pass == 0) {
                own_ptr[i] = begin - first;
                if (i + 1 == rows) own_ptr[rows] = end - last;
            } else if (i + 1 == rows) {
                ghost_ptr[blocks[gridDim.x]] = last;
            }
        }
        most = max(most, last - first);
        const i64 before = block_exclusive((i64)(last > first), total);
        if (pass == 1 && last > first) {
            ghost_rows[at + before] = (unsigned)i;
            ghost_ptr[at + before] = first;
        }
        at += total;
    }
    if (pass == 1) return;
    if (threadIdx.x == 0) blocks[blockIdx.x] = at;
#pragma unroll
    for (int d = 16; d; d /= 2) most = max(most, __shfl_xor_sync(~0u, most, d));
    if (threadIdx.x % 32 == 0 && most > 0) atomicMax(longest, most);
}

// col null: values alone. broken becomes 1 where a value is NaN or infinite.
extern "C" __global__ void __launch_bounds__(THREADS)
split_entries(const i64 entries, const unsigned own, const Word* __restrict__ words, const i64* __restrict__ sums, const unsigned* __restrict__ col,
              const double* __restrict__ values, unsigned* __restrict__ own_col, VALUE* __restrict__ own_values, unsigned* __restrict__ ghost_col,
              VALUE* __restrict__ ghost_values, int* broken) {
    bool finite = true;
    for (i64 p = blockIdx.x * (i64)THREADS + threadIdx.x; p < entries; p += (i64)gridDim.x * THREADS) {
        const Word word = words[p / 32];
        const i64 ghosts = ghosts_before(word, sums, p);
        const bool ghost = word.bits >> (p % 32) & 1;
        const double value = values[p];
        finite = finite && fabs(value) <= 1.7976931348623157e308;
        if (ghost) ghost_values[ghosts] = (VALUE)value;
        else own_values[p - ghosts] = (VALUE)value;
        if (!col) continue;
        const unsigned j = col[p];
        if (ghost) ghost_col[ghosts] = j - own;
        else own_col[p - ghosts] = j;
    }
    if (!finite) *broken = 1;
}
