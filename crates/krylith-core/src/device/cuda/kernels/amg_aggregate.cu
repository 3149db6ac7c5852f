// amg_aggregate: aggregates around the nodes of an independent set of distance two (see `by_independent_set`
// in precond/multilevel/host/aggregate.rs).
//
// 2^shift lanes of a warp share a row. Every decision is a maximum, a comparison or a count, so nothing
// depends on the order of execution. A round takes four launches. They find the heaviest undecided node
// around each node, make nodes roots that are the heaviest around all these, mark the neighbours of roots,
// and exclude these and their neighbours.
// Bytes moved: 12 per entry for strength; 5 per entry and 8 per strong entry for each of the first two
// launches of a round.

#include "amg.cuh"

#define NONE 0xffffffffu
// States of a node.
#define UNDECIDED 0
#define ROOT 1
#define NO_ROOT 2
#define NEW_ROOT 3

#define GRAPH const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const int shift, const u8* __restrict__ flags
#define THE_LANES const int lane = threadIdx.x % 32, lanes = 1 << shift
// This lane's part of the entries of row i.
#define EACH_ENTRY(p, i, here) (i64 p = ((here) ? ptr[i] : 0) + (lane & (lanes - 1)), p##_end = (here) ? ptr[(i) + 1] : 0; p < p##_end; p += lanes)

// The square root of |a_ii| of each row.
extern "C" __global__ void __launch_bounds__(256) aggregate_diagonal(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const int shift, double* __restrict__ size) {
    THE_LANES;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        double own = 0;
        for EACH_ENTRY (p, i, i < n) {
            if (col[p] == i) own = __dsqrt_rn(fabs(values[p]));
        }
        for (int step = 1; step < lanes; step *= 2) own = fmax(own, __shfl_xor_sync(FULL, own, step));
        if (i < n && (lane & (lanes - 1)) == 0) size[i] = own;
    }
}

// STRONG of each entry, the number of strong entries of each column, and whether each row has any.
extern "C" __global__ void __launch_bounds__(256) aggregate_strong(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const int shift, const double theta, const double* __restrict__ size, u8* __restrict__ flags, u32* __restrict__ counts, u8* __restrict__ coupled) {
    THE_LANES;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        const double limit = i < n ? __dmul_rn(theta, size[i]) : 0;
        int any = 0;
        for EACH_ENTRY (p, i, i < n) {
            const u32 j = col[p];
            const double v = values[p];
            const bool strong = j != i && v != 0 && fabs(v) >= __dmul_rn(limit, size[j]);
            flags[p] = strong ? STRONG : 0;
            any |= strong;
            if (strong) atomicAdd(&counts[j], 1u);
        }
        for (int step = 1; step < lanes; step *= 2) any |= __shfl_xor_sync(FULL, any, step);
        if (i < n && (lane & (lanes - 1)) == 0) coupled[i] = any != 0;
    }
}

// The weight of an undecided node, as in PMIS; a decided node has weight 0.
extern "C" __global__ void __launch_bounds__(256) roots_begin(const i64 n, const u64 seed, const u64* __restrict__ numbers, const u32* __restrict__ counts, const u8* __restrict__ coupled, u64* __restrict__ weight, u8* __restrict__ state) {
    for EACH (i, n) {
        const u64 count = counts[i];
        const bool alone = count == 0 && !coupled[i];
        weight[i] = alone ? 0 : (count << 40 | splitmix64(seed, numbers ? numbers[i] : (u64)i) >> 24) + 1;
        state[i] = alone ? NO_ROOT : UNDECIDED;
    }
}

// The heaviest undecided node among each node and its neighbours, or NONE; `left` increases by the number of
// undecided nodes.
extern "C" __global__ void __launch_bounds__(256) roots_greatest(GRAPH, const u64* __restrict__ weight, const u64* __restrict__ numbers, u32* __restrict__ greatest, u32* left) {
    THE_LANES;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        u64 most = i < n ? weight[i] : 0;
        const u32 open = __popc(__ballot_sync(FULL, most != 0 && (lane & (lanes - 1)) == 0));
        if (lane == 0 && open > 0) atomicAdd(left, open);
        u32 who = most != 0 ? (u32)i : NONE;
        for EACH_ENTRY (p, i, i < n) {
            if (!(flags[p] & STRONG)) continue;
            const u32 j = col[p];
            const u64 w = weight[j];
            if (w > most || (w == most && w != 0 && after(numbers, j, who))) {
                most = w;
                who = j;
            }
        }
        for (int step = 1; step < lanes; step *= 2) {
            const u64 w = __shfl_xor_sync(FULL, most, step);
            const u32 j = __shfl_xor_sync(FULL, who, step);
            if (w > most || (w == most && w != 0 && after(numbers, j, who))) {
                most = w;
                who = j;
            }
        }
        if (i < n && (lane & (lanes - 1)) == 0) greatest[i] = who;
    }
}

// An undecided node below `here` becomes a root if it is the node that it and all its neighbours have found.
extern "C" __global__ void __launch_bounds__(256) roots_choose(GRAPH, const i64 here, const u64* __restrict__ weight, const u64* __restrict__ numbers, const u32* __restrict__ greatest, u8* __restrict__ state) {
    THE_LANES;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        const u64 own = i < here ? weight[i] : 0;
        bool beaten = own != 0 && greatest[i] != i;
        for EACH_ENTRY (p, i, own != 0 && !beaten) {
            if (!(flags[p] & STRONG)) continue;
            const u32 j = greatest[col[p]];
            if (j == NONE || j == i) continue;
            const u64 w = weight[j];
            beaten = beaten || w > own || (w == own && after(numbers, j, (u32)i));
        }
        for (int step = 1; step < lanes; step *= 2) beaten |= __shfl_xor_sync(FULL, (int)beaten, step) != 0;
        if (own != 0 && !beaten && (lane & (lanes - 1)) == 0) state[i] = NEW_ROOT;
    }
}

// Marks the neighbours of new roots as touched in this round.
extern "C" __global__ void __launch_bounds__(256) roots_touch(GRAPH, const u32 round, u64* __restrict__ weight, u8* __restrict__ state, u32* __restrict__ touched) {
    THE_LANES;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        const bool is_new = i < n && state[i] == NEW_ROOT;
        __syncwarp();  // every lane has read the state
        for EACH_ENTRY (p, i, is_new) {
            if (flags[p] & STRONG) touched[col[p]] = round;
        }
        if (is_new && (lane & (lanes - 1)) == 0) {
            state[i] = ROOT;
            weight[i] = 0;
        }
    }
}

// Touched nodes and their neighbours cannot be roots.
extern "C" __global__ void __launch_bounds__(256) roots_lose(GRAPH, const u32 round, u64* weight, u8* state, const u32* __restrict__ touched) {
    THE_LANES;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 j = first + (lane >> shift);
        const bool is_touched = j < n && touched[j] == round;
        if (is_touched && (lane & (lanes - 1)) == 0 && weight[j] != 0) {
            weight[j] = 0;
            state[j] = NO_ROOT;
        }
        for EACH_ENTRY (p, j, is_touched) {
            if (!(flags[p] & STRONG)) continue;
            const u32 k = col[p];
            if (weight[k] == 0) continue;
            weight[k] = 0;
            state[k] = NO_ROOT;
        }
    }
}

// The neighbour j with an aggregate to which a node is coupled most strongly; of equal ones the first by
// `numbers`. The result is in all lanes of the row.
__device__ u32 strongest(GRAPH, const double* __restrict__ values, const u64* __restrict__ numbers, i64 i, bool here, int lane, int lanes, const u32* member) {
    double most = -1;
    u32 who = NONE;
    for EACH_ENTRY (p, i, here) {
        if (!(flags[p] & STRONG)) continue;
        const u32 j = col[p];
        if (member[j] == NONE) continue;
        const double size = fabs(values[p]);
        if (size > most || (size == most && after(numbers, who, j))) {
            most = size;
            who = j;
        }
    }
    for (int step = 1; step < lanes; step *= 2) {
        const double size = __shfl_xor_sync(FULL, most, step);
        const u32 j = __shfl_xor_sync(FULL, who, step);
        if (size > most || (size == most && j != NONE && after(numbers, who, j))) {
            most = size;
            who = j;
        }
    }
    return who;
}

// Makes every root a member of its own aggregate and every other node a member of none; sets `first` to NONE.
extern "C" __global__ void __launch_bounds__(256) join_begin(const i64 n, const u8* __restrict__ state, u32* __restrict__ root, u32* __restrict__ first) {
    for EACH (i, n) {
        root[i] = state[i] == ROOT ? (u32)i : NONE;
        first[i] = NONE;
    }
}

// Finds the aggregate that each coupled node below `own` without one would join: that of its strongest
// neighbour that has one. `chosen` counts the nodes that found one.
extern "C" __global__ void __launch_bounds__(256) join_wish(GRAPH, const i64 own, const double* __restrict__ values, const u64* __restrict__ numbers, const u8* __restrict__ coupled, const u32* __restrict__ member, u32* __restrict__ wish, u32* chosen) {
    THE_LANES;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        const bool here = i < own && member[i] == NONE && coupled[i];
        const u32 j = strongest(n, ptr, col, shift, flags, values, numbers, i, here, lane, lanes, member);
        const bool leads = here && (lane & (lanes - 1)) == 0;
        if (leads) wish[i] = j == NONE ? NONE : member[j];
        const u32 found = __popc(__ballot_sync(FULL, leads && j != NONE));
        if (lane == 0 && found > 0) atomicAdd(chosen, found);
    }
}

// Lets the nodes join. If no node found an aggregate, the remaining couplings are one-directional and lead to
// no root; with `alone` each such node then forms an aggregate of its own. `left` counts the nodes that found
// none.
extern "C" __global__ void __launch_bounds__(256) join_take(const i64 n, const u8* __restrict__ coupled, const u32* __restrict__ wish, const u32* __restrict__ chosen, const int alone, u32* __restrict__ member, u32* left) {
    for EACH (i, n) {
        if (member[i] != NONE || !coupled[i]) continue;
        const u32 to = *chosen == 0 && alone ? (u32)i : wish[i];
        member[i] = to;
        if (to == NONE) atomicAdd(left, 1u);
    }
}

// The first node of each aggregate, stored at the node that its members name.
extern "C" __global__ void __launch_bounds__(256) first_members(const i64 n, const u32* __restrict__ member, u32* __restrict__ first) {
    for EACH (i, n) {
        if (member[i] != NONE) atomicMin(&first[member[i]], (u32)i);
    }
}

// 1 for the first node of each aggregate.
extern "C" __global__ void __launch_bounds__(256) first_marks(const i64 n, const u32* __restrict__ member, const u32* __restrict__ first, u32* __restrict__ marks) {
    for EACH (i, n) marks[i] = member[i] != NONE && first[member[i]] == i;
}

// 1 for each root, and for each node that forms an aggregate alone.
extern "C" __global__ void __launch_bounds__(256) root_marks(const i64 n, const u32* __restrict__ member, u32* __restrict__ marks) {
    for EACH (i, n) marks[i] = member[i] == i;
}

// Numbers the aggregate of each node by the roots before its own, or NONE; `aggregate` must not be `member`.
extern "C" __global__ void __launch_bounds__(256) root_numbers(const i64 n, const u32* __restrict__ member, const i64* __restrict__ number, u32* __restrict__ aggregate) {
    for EACH (i, n) aggregate[i] = member[i] == NONE ? NONE : (u32)number[member[i]];
}

// Numbers the aggregate of each node by first nodes, or NONE; `aggregate` must not be `member`.
extern "C" __global__ void __launch_bounds__(256) aggregate_numbers(const i64 n, const u32* __restrict__ member, const u32* __restrict__ first, const i64* __restrict__ number, u32* __restrict__ aggregate) {
    for EACH (i, n) aggregate[i] = member[i] == NONE ? NONE : (u32)number[first[member[i]]];
}
