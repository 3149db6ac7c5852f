// dia_offsets: finds the diagonals on which a matrix of scalar rows has entries; dia_masks: finds the
// diagonals of each row; dia_ghost_rows: lists rows with entries in columns of other ranks, and those
// columns.
// Constants: THREADS.
// Bytes moved, each: row_ptr and columns; masks are 4 per row. Columns below `own` are own, the others belong
// to other ranks; the columns of a row ascend.

#include "scan.cuh"

typedef long long i64;
typedef unsigned long long u64;

constexpr int MOST = 32, SLOTS = 64, EMPTY = -2147483647 - 1;

// Inserts an offset into a table; false once it has more than MOST.
__device__ __forceinline__ bool insert(int* table, int* known, int offset) {
    unsigned at = (unsigned)offset * 2654435761u >> 26;
    for (int looks = 0; looks < SLOTS; ++looks, at = (at + 1) % SLOTS) {
        int seen = *(volatile int*)(table + at);
        if (seen == EMPTY) {
            seen = atomicCAS(table + at, EMPTY, offset);
            if (seen == EMPTY) return atomicAdd(known, 1) < MOST;
        }
        if (seen == offset) return true;
    }
    return false;
}

// found: SLOTS slots, initially EMPTY, and the number of offsets in them; many becomes 1 where there are more
// than MOST; entries: the number of entries in own columns.
extern "C" __global__ void __launch_bounds__(THREADS)
dia_offsets(const unsigned rows, const unsigned own, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, int* found, int* many, u64* entries) {
    __shared__ int table[SLOTS], known;
    if (threadIdx.x < SLOTS) table[threadIdx.x] = EMPTY;
    if (threadIdx.x == 0) known = 0;
    __syncthreads();
    u64 mine = 0;
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < rows; i += gridDim.x * THREADS) {
        if (*(volatile int*)many) break;
        const i64 end = row_ptr[i + 1];
        for (i64 p = row_ptr[i]; p < end; ++p) {
            const unsigned j = col[p];
            if (j >= own) break;
            ++mine;
            if (!insert(table, &known, (int)(j - i))) {
                *(volatile int*)many = 1;
                break;
            }
        }
    }
    u64 all;
    block_exclusive(mine, all);
    if (threadIdx.x == 0) atomicAdd(entries, all);
    __syncthreads();
    if (threadIdx.x < SLOTS && table[threadIdx.x] != EMPTY && !insert(found, found + SLOTS, table[threadIdx.x])) *many = 1;
}

struct Offsets { int at[MOST]; };

// Bit k of masks[i]: row i has an entry on diagonal k. ghosts[block]: number of rows of the block that have
// ghosts, plus 2^32 times the number of their entries.
extern "C" __global__ void __launch_bounds__(THREADS)
dia_masks(const unsigned rows, const unsigned own, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col, const Offsets offsets,
          unsigned* __restrict__ masks, u64* __restrict__ ghosts) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    u64 mine = 0;
    if (i < rows) {
        const i64 end = row_ptr[i + 1];
        unsigned mask = 0;
        int k = 0;
        i64 p = row_ptr[i];
        for (; p < end; ++p) {
            const unsigned j = col[p];
            if (j >= own) break;
            while (k < MOST - 1 && offsets.at[k] < (int)(j - i)) ++k;
            mask |= 1u << k;
        }
        masks[i] = mask;
        if (p < end) mine = (u64)(end - p) << 32 | 1;
    }
    u64 all;
    block_exclusive(mine, all);
    if (threadIdx.x == 0) ghosts[blockIdx.x] = all;
}

// before[block]: ghosts of all earlier blocks, in the encoding of dia_masks.
extern "C" __global__ void __launch_bounds__(THREADS)
dia_ghost_rows(const unsigned rows, const unsigned own, const i64* __restrict__ row_ptr, const unsigned* __restrict__ col,
               const unsigned* __restrict__ masks, const u64* __restrict__ before, int* __restrict__ ghost_rows, int* __restrict__ starts,
               int* __restrict__ columns) {
    const unsigned i = blockIdx.x * THREADS + threadIdx.x;
    u64 mine = 0, all;
    i64 first = 0;
    if (i < rows) {
        first = row_ptr[i] + __popc(masks[i]);
        const i64 count = row_ptr[i + 1] - first;
        if (count > 0) mine = (u64)count << 32 | 1;
    }
    const u64 at = before[blockIdx.x] + block_exclusive(mine, all);
    if (mine == 0) return;
    const int r = (int)(at & 0xffffffff), start = (int)(at >> 32), count = (int)(mine >> 32);
    ghost_rows[r] = (int)i;
    starts[r] = start;
    for (int p = 0; p < count; ++p) columns[start + p] = (int)(col[first + p] - own);
}
