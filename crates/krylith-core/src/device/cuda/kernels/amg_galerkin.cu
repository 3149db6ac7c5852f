// amg_galerkin: rows of a sparse product, summed by rows (Gustavson 1978) in hash tables in shared memory.
//
// Macros:
// - GROUP: lanes per row, 4 to 32.
// - TABLE: slots, a power of two, at least as many as the row has columns.
// - FILL: 0 counts columns, 1 writes columns and values.
// - EXPAND: lanes share the products of several short rows of the right factor, otherwise those of one row.
// - BLOCK and LEFT: see amg_galerkin.cuh.
//
// Each entry is summed from 0 in ascending order of the inner index, without fused multiply-adds: the same
// bits as on the host.
// Bytes moved: 12 per entry of the left factor, and 8 + 12 (for blocks 8 + 8 BLOCK^2) per entry of the right
// factor that it meets, from caches where rows are near; 4 + 8 BLOCK^2 written per entry of the product.

#include "amg_galerkin.cuh"

constexpr int PER_WARP = 32 / GROUP, WARPS = TABLE >= 2048 ? 1 : 4, ROWS = WARPS * PER_WARP;
constexpr int STRIDE = TABLE + (GROUP < 32 ? GROUP : 0);  // groups of a warp start in different banks
constexpr unsigned OWN = 0xffffffffu >> (32 - GROUP);
#define SUMS (FILL && BLOCK == 1)

__device__ __forceinline__ unsigned home(const unsigned key) { return key * 2654435761u >> 16 & (TABLE - 1); }

// The slot of `key`, which is inserted if it is new; -1 if the table is full.
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

// The slot of `key`; -1 if it has none.
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

// GROUP entries of the left factor from p0 on, one per lane, and the concatenated rows of the right factor
// that they meet.
struct Chunk {
    i64 first;      // start of the row that this lane's entry meets
    int length;     // length of that row
    int upto;       // total length up to and including this lane's row
    int total;      // total length of all rows
    double weight;  // value of the entry, if it is a scalar and needed

    __device__ __forceinline__ Chunk(const Matrix& left, const Matrix& right, const i64 p0, const i64 end, const int lane, const unsigned mask)
        : first(0), length(0), weight(0.0) {
        if (p0 + lane < end) {
            const unsigned k = __ldg(left.col + p0 + lane);
            first = __ldg(right.ptr + k);
            length = (int)(__ldg(right.ptr + k + 1) - first);
            if (FILL && !LEFT) weight = __ldg(left.val + p0 + lane);
        }
        upto = length;
        for (int d = 1; d < GROUP; d *= 2) {
            const int before = __shfl_up_sync(mask, upto, d, GROUP);
            if (lane >= d) upto += before;
        }
        total = __shfl_sync(mask, upto, GROUP - 1, GROUP);
    }

    // The lane whose row contains product x; the last lane if there is none.
    __device__ __forceinline__ int owner(const int x, const unsigned mask) const {
        int owner = 0;
        for (int step = GROUP / 2; step > 0; step /= 2)
            if (__shfl_sync(mask, upto, owner + step - 1, GROUP) <= x) owner += step;
        return owner;
    }

    // The entry of the right factor for product x.
    __device__ __forceinline__ i64 entry(const int x, const int owner, const unsigned mask) const {
        return __shfl_sync(mask, first - (upto - length), owner, GROUP) + x;
    }
};

#if GROUP == 32
// Sorts `count` keys, at most TABLE, with one warp; the list is padded to a power of two.
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

// Computes row `rows[at]`, or row `at` itself, for at < count. With `known` the columns of the product are
// already there, and only its values are written; `wrong` becomes 1 where the known columns are not those of
// the product.
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
    // The slot of column j.
    auto meet = [&](const unsigned j) {
        const int slot = known ? find(keys, j) : place(keys, j, fresh);
        bad |= slot < 0;
        found += !known && fresh;
        return slot;
    };
    if (SUMS || !known)
        for (i64 p0 = begin; p0 < end; p0 += GROUP) {
            const Chunk chunk(left, right, p0, end, lane, mask);
#if EXPAND
            for (int x0 = 0; x0 < chunk.total; x0 += GROUP) {
                const bool here = x0 + lane < chunk.total;
                const int owner = chunk.owner(x0 + lane, mask);
                const i64 q = chunk.entry(x0 + lane, owner, mask);
                const unsigned j = here ? __ldg(right.col + q) : EMPTY;
                const int slot = here ? meet(j) : -1;
#if SUMS
                const double weight = __shfl_sync(mask, chunk.weight, owner, GROUP);
                const double product = here ? __dmul_rn(weight, __ldg(right.val + q)) : 0.0;
                // Products of one column are added in the order of lanes, which is that of the inner index.
                const unsigned same = __match_any_sync(mask, j);
                const int turn = slot < 0 ? -1 : __popc(same & ((1u << threadIdx.x % 32) - 1));
                int round = 0;
                do {
                    if (turn == round) {
                        double& sum = all_sums[group][slot];
                        sum = __dadd_rn(sum, product);
                    }
                    __syncwarp(mask);
                } while (__any_sync(mask, turn > round++));
#endif
            }
#else
            const int here = end - p0 < GROUP ? (int)(end - p0) : GROUP;
            for (int t = 0; t < here; ++t) {
                const i64 q0 = __shfl_sync(mask, chunk.first, t, GROUP);
                const int entries = __shfl_sync(mask, chunk.length, t, GROUP);
#if SUMS
                const double weight = __shfl_sync(mask, chunk.weight, t, GROUP);
#endif
                for (int q = lane; q < entries; q += GROUP) {
                    const int slot = meet(__ldg(right.col + q0 + q));
#if SUMS
                    if (slot < 0) continue;
                    double& sum = all_sums[group][slot];
                    sum = __dadd_rn(sum, __dmul_rn(weight, __ldg(right.val + q0 + q)));
#endif
                }
#if SUMS
                __syncwarp(mask);  // another lane may add to the same entry next
#endif
            }
#endif
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
    // A lane always has the same components of all entries, and products come in order.
    for (i64 p0 = begin; p0 < end; p0 += 32) {
        const Chunk chunk(left, right, p0, end, lane, mask);
        for (int x0 = 0; x0 < chunk.total; x0 += 32) {
            const int owner = chunk.owner(x0 + lane, mask);
            const i64 q = chunk.entry(x0 + lane, owner, mask);
            double weight = LEFT ? 0.0 : __shfl_sync(mask, chunk.weight, owner);
            int place = -1;
            if (x0 + lane < chunk.total) {
                place = search(list, columns, __ldg(right.col + q));
                bad |= place < 0;
                if (LEFT) weight = __ldg(right.val + q);
            }
            const i64 block = LEFT ? p0 + owner : q;
            const int here = chunk.total - x0 < 32 ? chunk.total - x0 : 32;
            for (int e = 0; e < here; ++e) {
                const int to_block = __shfl_sync(mask, place, e);
                const double factor = __shfl_sync(mask, weight, e);
                const double* from = (LEFT ? left.val : right.val) + __shfl_sync(mask, block, e) * BB;
                if (to_block < 0) continue;
                for (int c = lane; c < BB; c += 32) {
                    double& sum = own[to_block * BB + c];
                    sum = __dadd_rn(sum, __dmul_rn(factor, __ldg(from + c)));
                }
            }
        }
    }
#endif
#endif
    if (bad) *wrong = 1;
#endif
}
