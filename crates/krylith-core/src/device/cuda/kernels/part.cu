// part: the block rows [first, end) of a matrix in local columns: own rows count from 0, and the ghosts,
// which are the other rows that they use, follow in ascending order.
//
//   part_mark    a bit for every column outside the run
//   part_words   the number of bits before each word; scan.cu computes `sums`, of the thread blocks, between
//                its two passes
//   part_ghosts  the columns whose bits are set, in order
//   part_rows    local row pointers, columns and values; those of ghosts before the run move behind the own
//                ones of their row
//   part_values  new values in the same order
//
// Bytes moved: 4 per block to mark; n / 4 for the bits of n columns; row pointers, columns and values twice.

#include "scan.cuh"

// own rows; entries before them in the whole matrix; ghosts before the run
struct Run { long long first, end, base, low; };

extern "C" __global__ void part_mark(long long entries, Run run, const unsigned* __restrict__ col, unsigned* bits) {
    for (long long e = blockIdx.x * (long long)blockDim.x + threadIdx.x; e < entries; e += (long long)gridDim.x * blockDim.x) {
        const unsigned j = col[e], bit = 1u << (j % 32);
        // Read before the atomic: most bits are set already, and a bit that is read too early is just set
        // twice.
        if ((j < run.first || j >= run.end) && !(__ldcg(bits + j / 32) & bit)) atomicOr(bits + j / 32, bit);
    }
}

// pass 0: sums of blocks; pass 1: the number of bits before each word, with the exclusive sums of blocks.
extern "C" __global__ void __launch_bounds__(1024) part_words(long long words, int pass, const unsigned* __restrict__ bits, long long* sums, unsigned* before) {
    const long long w = blockIdx.x * 1024ll + threadIdx.x;
    long long total;
    const long long sum = block_exclusive((long long)(w < words ? __popc(bits[w]) : 0), total);
    if (pass == 0) {
        if (threadIdx.x == 0) sums[blockIdx.x] = total;
    } else if (w < words) {
        before[w] = (unsigned)(sums[blockIdx.x] + sum);
    }
}

__device__ __forceinline__ unsigned ghost(const unsigned* bits, const unsigned* before, unsigned j) {
    return before[j / 32] + __popc(bits[j / 32] & ((1u << (j % 32)) - 1));
}

extern "C" __global__ void part_ghosts(long long words, const unsigned* __restrict__ bits, const unsigned* __restrict__ before, unsigned* __restrict__ ghosts) {
    for (long long w = blockIdx.x * (long long)blockDim.x + threadIdx.x; w < words; w += (long long)gridDim.x * blockDim.x) {
        unsigned at = before[w];
        for (unsigned rest = bits[w]; rest; rest &= rest - 1) ghosts[at++] = (unsigned)(32 * w + __ffs(rest) - 1);
    }
}

constexpr int GROUP = 8;  // lanes that share a row

// Copies values of a row whose `below` entries before the run move behind its `own` ones.
__device__ __forceinline__ void rotate(const double* __restrict__ from, double* __restrict__ to, int count, int below, int own, int square, int lane) {
    for (int v = lane; v < count * square; v += GROUP) {
        const int e = v / square;
        const int at = e < below ? e + own : e < below + own ? e - below : e;
        to[(long long)at * square + v % square] = from[v];
    }
}

__device__ __forceinline__ unsigned row_mask() { return 0xffu << (threadIdx.x % 32 / GROUP * GROUP); }

__device__ __forceinline__ int group_sum(int v) {
#pragma unroll
    for (int d = 1; d < GROUP; d *= 2) v += __shfl_xor_sync(row_mask(), v, d);
    return v;
}

// row_ptr, col, values: of the run, in global numbers.
extern "C" __global__ void __launch_bounds__(256)
part_rows(long long rows, Run run, int square, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ values,
          const unsigned* __restrict__ bits, const unsigned* __restrict__ before, long long* __restrict__ to_ptr, unsigned* __restrict__ to_col,
          double* __restrict__ to_values) {
    const int lane = threadIdx.x % GROUP;
    for (long long i = (blockIdx.x * 256ll + threadIdx.x) / GROUP; i < rows; i += gridDim.x * (256ll / GROUP)) {
        const long long begin = row_ptr[i] - run.base, end = row_ptr[i + 1] - run.base;
        const int count = (int)(end - begin);
        if (lane == 0) {
            to_ptr[i] = begin;
            if (i + 1 == rows) to_ptr[rows] = end;
        }
        int below = 0, own = 0;
        for (int e = lane; e < count; e += GROUP) {
            const unsigned j = col[begin + e];
            below += j < run.first;
            own += j >= run.first && j < run.end;
        }
        below = group_sum(below);
        own = group_sum(own);
        for (int e = lane; e < count; e += GROUP) {
            const unsigned j = col[begin + e];
            const bool is_own = j >= run.first && j < run.end;
            const int at = e < below ? e + own : e < below + own ? e - below : e;
            to_col[begin + at] = is_own ? (unsigned)(j - run.first) : (unsigned)(rows + ghost(bits, before, j));
        }
        rotate(values + begin * square, to_values + begin * square, count, below, own, square, lane);
    }
}

// row_ptr and col: local. A ghost with a number below `low` has a global number below the run.
extern "C" __global__ void __launch_bounds__(256)
part_values(long long rows, Run run, int square, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, const double* __restrict__ values,
            double* __restrict__ to_values) {
    const int lane = threadIdx.x % GROUP;
    for (long long i = (blockIdx.x * 256ll + threadIdx.x) / GROUP; i < rows; i += gridDim.x * (256ll / GROUP)) {
        const long long begin = row_ptr[i];
        const int count = (int)(row_ptr[i + 1] - begin);
        int below = 0, own = 0;
        for (int e = lane; e < count; e += GROUP) {
            const long long j = col[begin + e];
            own += j < rows;
            below += j >= rows && j < rows + run.low;
        }
        below = group_sum(below);
        own = group_sum(own);
        rotate(values + begin * square, to_values + begin * square, count, below, own, square, lane);
    }
}
