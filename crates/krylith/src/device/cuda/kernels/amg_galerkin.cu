// amg_galerkin: rows of a sparse product, summed by rows (Gustavson 1978) in hash tables in shared memory.
//
// Macros: GROUP lanes have a row, 4 to 32; TABLE slots, a power of two, at least as many as the row has columns; FILL 0: columns
// are counted, 1: columns and values are written; BLOCK and LEFT: see amg_galerkin.cuh. Each entry is summed in ascending order of the inner index from 0,
// without fused multiply-adds: the bits of the host. Bytes moved: 12 an entry of the left factor and 8 + 12 or, for blocks, 8 + 8 BLOCK^2 an
// entry of the right one that it meets (from caches where rows are near); 4 + 8 BLOCK^2 written an entry of the product.

#include "amg_galerkin.cuh"

constexpr int PER_WARP = 32 / GROUP, WARPS = TABLE >= 2048 ? 1 : 4, ROWS = WARPS * PER_WARP;
constexpr int STRIDE = TABLE + (GROUP < 32 ? GROUP : 0);  // groups of a warp begin in other banks
constexpr unsigned OWN = 0xffffffffu >> (32 - GROUP);
#define SUMS (FILL && BLOCK == 1)

__device__ __forceinline__ unsigned home(const unsigned key) { return key * 2654435761u >> 16 & (TABLE - 1); }

// The slot of `key`, taken where it has none yet; -1 where the table is full.
__device__ __forceinline__ int place(unsigned* keys, const unsigned key, bool& fresh) {
    unsigned at = home(key);
    fresh = false;
    for (int tries = 0; tries < TABLE; ++tries) {
        unsigned found = *(volatile unsigned*)(keys + at);
        if (found == EMPTY) {
            found = atomicCAS(keys + at, EMPTY, key);
            fresh = found == EMPTY;
            if (fresh) return at;
        }
        if (found == key) return at;
        at = (at + 1) & (TABLE - 1);
    }
    return -1;
}

// The slot of `key`; -1 where it has none.
__device__ __forceinline__ int find(const unsigned* keys, const unsigned key) {
    unsigned at = home(key);
    for (int tries = 0; tries < TABLE; ++tries) {
        const unsigned found = keys[at];
        if (found == key) return at;
        if (found == EMPTY) return -1;
        at = (at + 1) & (TABLE - 1);
    }
    return -1;
}

#if GROUP == 32
// Sorts `count` keys, at most TABLE, by one warp; the list is filled up to a power of two.
__device__ __forceinline__ void sort(unsigned* list, const int count, const int lane) {
    int size = 1;
    while (size < count) size *= 2;
    for (int x = count + lane; x < size; x += 32) list[x] = EMPTY;
    __syncwarp();
    for (int run = 2; run <= size; run *= 2)
        for (int step = run / 2; step > 0; step /= 2) {
            for (int x = lane; x < size / 2; x += 32) {
                const int low = (x & ~(step - 1)) << 1 | (x & (step - 1)), high = low + step;
                const unsigned u = list[low], v = list[high];
                if ((u > v) == ((low & run) == 0)) {
                    list[low] = v;
                    list[high] = u;
                }
            }
            __syncwarp();
        }
}
#endif

// Row `rows[at]`, or row `at` itself, for at < count. With `known` the product's columns are there and only its values are written; `wrong`
// becomes 1 where they are not those of the product.
extern "C" __global__ void __launch_bounds__(32 * WARPS)
amg_rows(const i64 count, const unsigned* __restrict__ rows, const Matrix left, const Matrix right, const int diagonal, const int known,
         unsigned* __restrict__ counts, const i64* __restrict__ to, unsigned* to_col, double* to_val, int* wrong) {
    __shared__ unsigned all_keys[ROWS][STRIDE];
#if FILL
    __shared__ unsigned all_lists[ROWS][STRIDE];
#endif
#if SUMS
    __shared__ double all_sums[ROWS][STRIDE];
#endif
    const int group = threadIdx.x / GROUP, lane = threadIdx.x % GROUP, shift = group % PER_WARP * GROUP;
    const unsigned mask = OWN << shift;
    const i64 at = blockIdx.x * (i64)ROWS + group;
    if (at >= count) return;
    const unsigned row = rows ? rows[at] : (unsigned)at;
    unsigned* const keys = all_keys[group];
    for (int x = lane; x < TABLE; x += GROUP) {
        keys[x] = EMPTY;
#if SUMS
        all_sums[group][x] = 0.0;
#endif
    }
    __syncwarp(mask);
    int found = 0;
    bool fresh, bad = false;
#if FILL
    unsigned* const list = all_lists[group];
    const i64 begin_to = to[row];
    const int length_to = (int)(to[row + 1] - begin_to);
    unsigned* const own_col = to_col + begin_to;
    double* const own = to_val + begin_to * BB;
    if (known) {
        for (int x = lane; x < length_to; x += GROUP) {
#if SUMS
            bad |= place(keys, own_col[x], fresh) < 0;
#else
            list[x] = own_col[x];
#endif
        }
        __syncwarp(mask);
    }
#endif
    if (diagonal && !known && lane == 0) {
        place(keys, row, fresh);
        found += fresh;
    }
    __syncwarp(mask);
    const i64 begin = left.ptr[row], end = left.ptr[row + 1];
    if (SUMS || !known)
        for (i64 p0 = begin; p0 < end; p0 += GROUP) {
            const i64 p = p0 + lane;
            i64 first = 0;
            int length = 0;
#if SUMS
            double a = 0.0;
#endif
            if (p < end) {
                const unsigned k = __ldg(left.col + p);
                first = __ldg(right.ptr + k);
                length = (int)(__ldg(right.ptr + k + 1) - first);
#if SUMS
                a = __ldg(left.val + p);
#endif
            }
            const int here = end - p0 < GROUP ? (int)(end - p0) : GROUP;
            for (int t = 0; t < here; ++t) {
                const i64 q0 = __shfl_sync(mask, first, t, GROUP);
                const int entries = __shfl_sync(mask, length, t, GROUP);
#if SUMS
                const double weight = __shfl_sync(mask, a, t, GROUP);
#endif
                for (int q = lane; q < entries; q += GROUP) {
                    const unsigned j = __ldg(right.col + q0 + q);
                    const int slot = known ? find(keys, j) : place(keys, j, fresh);
                    if (slot < 0) {
                        bad = true;
                        continue;
                    }
                    found += !known && fresh;
#if SUMS
                    double& sum = all_sums[group][slot];
                    sum = __dadd_rn(sum, __dmul_rn(weight, __ldg(right.val + q0 + q)));
#endif
                }
#if SUMS
                __syncwarp(mask);  // another lane may add to the same entry next
#endif
            }
        }
    __syncwarp(mask);
#if !FILL
    for (int d = GROUP / 2; d > 0; d /= 2) found += __shfl_xor_sync(mask, found, d);
    if (lane == 0) counts[row] = found;
#else
    int columns = known ? length_to : 0;
    if (!known) {
        for (int x = 0; x < TABLE; x += GROUP) {
            const unsigned key = keys[x + lane];
            const unsigned taken = __ballot_sync(mask, key != EMPTY) >> shift & OWN;
            if (key != EMPTY) list[columns + __popc(taken & ((1u << lane) - 1))] = key;
            columns += __popc(taken);
        }
        __syncwarp(mask);
    }
#if SUMS && GROUP < 32
    if (!known) {
        for (int e = lane; e < columns; e += GROUP) {
            const unsigned key = list[e];
            int rank = 0;
            for (int x = 0; x < columns; ++x) rank += list[x] < key;
            own_col[rank] = key;
            own[rank] = all_sums[group][find(keys, key)];
        }
    } else
        for (int e = lane; e < columns; e += GROUP) {
            const int slot = find(keys, own_col[e]);
            own[e] = slot < 0 ? 0.0 : all_sums[group][slot];
        }
#else
    if (!known) {
        sort(list, columns, lane);
        for (int e = lane; e < columns; e += 32) own_col[e] = list[e];
    }
#if SUMS
    for (int e = lane; e < columns; e += 32) {
        const int slot = find(keys, known ? own_col[e] : list[e]);
        own[e] = slot < 0 ? 0.0 : all_sums[group][slot];
    }
#else
    for (int x = lane; x < columns * BB; x += 32) own[x] = 0.0;
    __syncwarp();
    for (i64 p0 = begin; p0 < end; p0 += 32) {
        const i64 p = p0 + lane;
        i64 first = 0;
        int length = 0;
        if (p < end) {
            const unsigned k = __ldg(left.col + p);
            first = __ldg(right.ptr + k);
            length = (int)(__ldg(right.ptr + k + 1) - first);
        }
        const int here = end - p0 < 32 ? (int)(end - p0) : 32;
        for (int t = 0; t < here; ++t) {
            const i64 q = __shfl_sync(mask, first, t);
            const int entries = __shfl_sync(mask, length, t);
            bad |= !add_run(left, right, p0 + t, q, entries, list, columns, own, lane, 32);
            __syncwarp();
        }
    }
#endif
#endif
    if (bad) *wrong = 1;
#endif
}
