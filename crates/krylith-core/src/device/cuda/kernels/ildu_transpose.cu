// ildu_transpose: the pattern of the transposed factors of every subdomain, with one thread block per
// subdomain. A row's columns ascend, as ildu_stream and ildu_pack expect them.
//
// No macros. THREADS is the size of a thread block.
// Dynamic shared memory: one counter per row of the largest subdomain.
// row_starts, columns, diagonal: the pattern of the factors. rows, entries: scratch, one per entry. to_*: the
// transposed pattern; from: for each of its entries, the entry of the factors, from the subdomain's first on.
// Bytes moved: 6 per entry twice, and 6 for each pair of entries in a row.
//
// Entries get their places in a row by counters, in any order. Then each is put where its number ranks in the
// row, so that the result is the same in every run.

#include "scan.cuh"

extern "C" __global__ void __launch_bounds__(THREADS)
ildu_transpose(const long long* __restrict__ starts, const long long* __restrict__ row_starts, const unsigned short* __restrict__ columns,
               unsigned short* rows, unsigned* entries, long long* to_row_starts, unsigned short* __restrict__ to_columns,
               long long* __restrict__ to_diagonal, unsigned* __restrict__ from) {
    extern __shared__ unsigned next[];
    const long long first = starts[blockIdx.x], end = starts[blockIdx.x + 1];
    const int size = (int)(end - first);
    const long long begin = row_starts[first], count = row_starts[end] - begin;
    columns += begin, rows += begin, entries += begin;
    for (int q = threadIdx.x; q < size; q += THREADS) next[q] = 0;
    __syncthreads();
    for (long long e = threadIdx.x; e < count; e += THREADS) atomicAdd(next + columns[e], 1u);
    __syncthreads();
    unsigned before = 0;
    for (int q0 = 0; q0 < size; q0 += THREADS) {
        const int q = q0 + threadIdx.x;
        unsigned total;
        const unsigned place = before + block_exclusive(q < size ? next[q] : 0u, total);
        if (q < size) {
            next[q] = place;
            to_row_starts[first + q] = begin + place;
        }
        before += total;
    }
    if (threadIdx.x == 0 && blockIdx.x == gridDim.x - 1) to_row_starts[end] = begin + count;
    __syncthreads();
    for (int i = threadIdx.x; i < size; i += THREADS) {
        for (long long e = row_starts[first + i] - begin; e < row_starts[first + i + 1] - begin; ++e) {
            const unsigned at = atomicAdd(next + columns[e], 1u);
            rows[at] = (unsigned short)i;
            entries[at] = (unsigned)e;
        }
    }
    __syncthreads();
    // next[q] is now the end of row q.
    for (long long p = threadIdx.x; p < count; p += THREADS) {
        const unsigned own = entries[p];
        const int q = columns[own];
        const unsigned low = q > 0 ? next[q - 1] : 0, high = next[q];
        unsigned rank = low;
        for (unsigned k = low; k < high; ++k) rank += entries[k] < own;
        const unsigned short row = rows[p];
        to_columns[begin + rank] = row;
        from[begin + rank] = own;
        if (row == q) to_diagonal[first + q] = begin + rank;
    }
}
