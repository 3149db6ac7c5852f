// amg_paths: for each coarse point, the other coarse points that at most two strong couplings lead to, for a
// second PMIS (see `aggressive_pmis` in precond/multilevel/host/split.rs).
//
// Macros: LANES per node, THREADS per thread block, SLOTS of a node's table in shared memory. The neighbours
// of a node are in the order of its table, which may differ between runs; no result depends on it.
// Bytes moved: 5 per entry of coarse points, and 4 per entry of the coarse part of a row (`coarse_part` in
// amg_split.cu), from caches each time a coarse point reads it.

#include "amg_table.cuh"

// The neighbours of node nodes[k], as numbers among the coarse points. Where `place` is null, their number is
// written to counts[k]. Otherwise the neighbours are written from place[k] on, and `counts` of each one
// increases by 1. Returns false where the table is too small.
template <int L> __device__ bool paths_of(const Group<L>& group, const Keys& table, i64 k, bool here, const Matrix& a, const u32* __restrict__ nodes, const i64* __restrict__ place, u32* counts, u32* __restrict__ to, u64& bound) {
    const u32 i = here ? nodes[k] : 0;
    const i64 begin = here ? a.ptr[i] : 0, end = here ? a.ptr[i + 1] : 0;
    clear(group, table);
    __syncwarp();
    const bool fits = gather(group, a, table, true, i, begin, end, bound);
    __syncwarp();
    const i64 first = here && fits && place ? place[k] : 0;
    u32 done = 0;
    for (u32 s = 0; s < table.slots; s += L) {
        const u32 node = table.key[s + group.lane];
        const u32 all = group.ballot(node != NONE);
        if (here && fits && place && node != NONE) {
            const u32 other = (u32)a.number[node];
            to[first + done + __popc(all & ((1u << group.lane) - 1))] = other;
            atomicAdd(&counts[other], 1u);
        }
        done += __popc(all);
    }
    if (here && fits && !place && group.lane == 0) counts[k] = done;
    return fits;
}

#define PARAMETERS const i64 count, const Matrix a, const u32* __restrict__ nodes, const i64* __restrict__ place, u32* counts, u32* __restrict__ to

// Nodes with tables in shared memory. Nodes that need larger tables are listed in `rows`; found[0] counts
// them, and found[1] becomes the most neighbours that one of them may have.
extern "C" __global__ void __launch_bounds__(THREADS) strong_paths(PARAMETERS, u32* __restrict__ rows, u32* found) {
    constexpr int AT_ONCE = THREADS / LANES;
    __shared__ u32 keys[AT_ONCE][SLOTS];
    const Group<LANES> group;
    const int own = threadIdx.x / LANES;
    const Keys table = {keys[own], SLOTS};
    for (i64 first = blockIdx.x * (i64)AT_ONCE; first < count; first += gridDim.x * (i64)AT_ONCE) {
        const i64 k = first + own;
        u64 bound;
        const bool fits = paths_of(group, table, k, k < count, a, nodes, place, counts, to, bound);
        if (!fits && group.lane == 0) {
            rows[atomicAdd(&found[0], 1u)] = (u32)k;
            atomicMax(&found[1], (u32)(bound < NONE ? bound : NONE));
        }
        __syncwarp();
    }
}

// The listed nodes, one warp each, with tables of `slots` for each warp of the grid.
extern "C" __global__ void __launch_bounds__(32) strong_paths_long(PARAMETERS, const u32* __restrict__ rows, const u32 length, const u32 slots, u32* __restrict__ keys) {
    const Group<32> group;
    const Keys table = {keys + blockIdx.x * (i64)slots, slots};
    for (u32 t = blockIdx.x; t < length; t += gridDim.x) {
        u64 bound;
        paths_of(group, table, rows[t], true, a, nodes, place, counts, to, bound);
        __syncwarp();
    }
}
