// amg_boundary: what ranks tell each other of nodes on their boundaries while a level is coarsened, and rows that go to other ranks.
//
// `nodes` are the nodes that others know of, ghosts stand behind the `own` nodes of a rank. Where the graph is one of staying nodes only, number[i + 1] >
// number[i] says that node i is there, as number[i]; else `number` is null. A message is written and read at once, a thread a node.
// Bytes moved: of a state 14 and of a number 12 a node; of a row 12 an entry and as many written, for blocks of b² numbers 4 + 8 b².

#include "amg.cuh"

#define NOWHERE 0xffffffffu
// States: UNDECIDED, and of PMIS STAYS; those of roots go as they are. See amg_split.cu and amg_aggregate.cu.
#define UNDECIDED 0
#define STAYS 1
#define NEW_ROOT 3

// A node's place in the graph, or NOWHERE.
__device__ __forceinline__ u32 place_of(const u32 node, const i64* __restrict__ number) {
    if (!number) return node;
    const i64 k = number[node];
    return number[node + 1ll] > k ? (u32)k : NOWHERE;
}

// What nodes have in `from`: counts, or aggregates.
extern "C" __global__ void __launch_bounds__(256) boundary_numbers(const i64 count, const u32* __restrict__ nodes, const i64* __restrict__ number, const u32* __restrict__ from, u32* __restrict__ out) {
    for EACH (t, count) {
        const u32 k = place_of(nodes[t], number);
        out[t] = k == NOWHERE ? 0 : from[k];
    }
}

// What the ghosts have.
extern "C" __global__ void __launch_bounds__(256) boundary_take_numbers(const i64 ghosts, const i64 own, const i64* __restrict__ number, const u32* __restrict__ in, u32* __restrict__ to) {
    for EACH (t, ghosts) {
        const u32 k = place_of((u32)(own + t), number);
        if (k != NOWHERE) to[k] = in[t];
    }
}

// The states of nodes behind *left, how many nodes are undecided. Where `lost` has the round in which each node lost last, undecided nodes that did not lose this
// round stay.
extern "C" __global__ void __launch_bounds__(256) boundary_states(const i64 count, const u32* __restrict__ nodes, const i64* __restrict__ number, const u8* __restrict__ state, const u8* __restrict__ lost, const u32 round, const u32* __restrict__ left, u32* __restrict__ out) {
    u8* const states = (u8*)(out + 1);
    if (blockIdx.x == 0 && threadIdx.x == 0) out[0] = *left;
    for EACH (t, count) {
        const u32 k = place_of(nodes[t], number);
        u8 own = k == NOWHERE ? UNDECIDED : state[k];
        if (lost && k != NOWHERE && own == UNDECIDED && lost[k] != (u8)round) own = STAYS;
        states[t] = own;
    }
}

// What the ghosts are. A decided one weighs 0 from now on, but for a new root; an undecided one has lost this round.
extern "C" __global__ void __launch_bounds__(256) boundary_take_states(const i64 ghosts, const i64 own, const i64* __restrict__ number, const u8* __restrict__ in, const u32 round, u8* __restrict__ state, u64* __restrict__ weight, u8* __restrict__ lost) {
    for EACH (t, ghosts) {
        const u32 k = place_of((u32)(own + t), number);
        if (k == NOWHERE) continue;
        const u8 now = in[t];
        if (now == UNDECIDED) {
            if (lost) lost[k] = (u8)round;
        } else {
            state[k] = now;
            if (now != NEW_ROOT) weight[k] = 0;
        }
    }
}

// Numbers of nodes that follow one another.
extern "C" __global__ void __launch_bounds__(256) boundary_run(const i64 count, const u64 first, u64* __restrict__ out) {
    for EACH (k, count) out[k] = first + k;
}

// The numbers of these nodes in the whole system.
extern "C" __global__ void __launch_bounds__(256) boundary_names(const i64 count, const u32* __restrict__ nodes, const u64* __restrict__ numbers, u64* __restrict__ out) {
    for EACH (k, count) out[k] = numbers[nodes[k]];
}

// Entries of these rows.
extern "C" __global__ void __launch_bounds__(256) boundary_lengths(const i64 count, const u32* __restrict__ nodes, const i64* __restrict__ ptr, u32* __restrict__ lengths) {
    for EACH (k, count) lengths[k] = (u32)(ptr[nodes[k] + 1ll] - ptr[nodes[k]]);
}

// These rows one behind the other, blocks of `square` numbers; a warp has a row.
extern "C" __global__ void __launch_bounds__(256) boundary_rows(const i64 count, const u32* __restrict__ nodes, const i64 square, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const i64* __restrict__ place, u32* __restrict__ to_col, double* __restrict__ to_values) {
    const int lane = threadIdx.x % 32;
    for (i64 k = (blockIdx.x * 256ll + threadIdx.x) / 32; k < count; k += gridDim.x * 8ll) {
        const i64 begin = ptr[nodes[k]], length = ptr[nodes[k] + 1ll] - begin, to = place[k];
        for (i64 e = lane; e < length; e += 32) to_col[to + e] = col[begin + e];
        for (i64 e = lane; e < length * square; e += 32) to_values[to * square + e] = values[begin * square + e];
    }
}

// Entries of rows in columns below `own`, which come first. Eight lanes have a row.
extern "C" __global__ void __launch_bounds__(256) boundary_own_lengths(const i64 own, const i64* __restrict__ ptr, const u32* __restrict__ col, u32* __restrict__ lengths) {
    const int lane = threadIdx.x % 8;
    for (i64 i = (blockIdx.x * 256ll + threadIdx.x) / 8; i < own; i += gridDim.x * 32ll) {
        const i64 end = ptr[i + 1];
        u32 count = 0;
        for (i64 p = ptr[i] + lane; p < end; p += 8) count += col[p] < own;
        const unsigned lanes = 0xffu << (threadIdx.x % 32 & ~7);
        for (int by = 4; by; by /= 2) count += __shfl_xor_sync(lanes, count, by, 8);
        if (lane == 0) lengths[i] = count;
    }
}

// These entries; the others of a row are added to its diagonal, from the first to the last. Eight lanes have a row.
extern "C" __global__ void __launch_bounds__(256) boundary_own_rows(const i64 own, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const i64* __restrict__ place, u32* __restrict__ to_col, double* __restrict__ to_values) {
    const int lane = threadIdx.x % 8;
    for (i64 i = (blockIdx.x * 256ll + threadIdx.x) / 8; i < own; i += gridDim.x * 32ll) {
        const i64 begin = ptr[i], to = place[i], length = place[i + 1] - to, end = ptr[i + 1];
        for (i64 e = lane; e < length; e += 8) {
            const u32 j = col[begin + e];
            double v = values[begin + e];
            if (j == i && begin + length < end) {
                double dropped = 0;
                for (i64 p = begin + length; p < end; ++p) dropped += values[p];
                v += dropped;
            }
            to_col[to + e] = j;
            to_values[to + e] = v;
        }
    }
}

// Column j becomes numbers[j]. With `sort` entries of a row, scalars, are put in the order of their columns by counting; else columns ascend as before, and only they are
// written. Eight lanes have a row.
extern "C" __global__ void __launch_bounds__(256) boundary_renumber(const i64 rows, const int sort, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const u32* __restrict__ numbers, u32* __restrict__ to_col, double* __restrict__ to_values) {
    const int lane = threadIdx.x % 8;
    for (i64 i = (blockIdx.x * 256ll + threadIdx.x) / 8; i < rows; i += gridDim.x * 32ll) {
        const i64 begin = ptr[i], end = ptr[i + 1];
        for (i64 p = begin + lane; p < end; p += 8) {
            const u32 j = numbers[col[p]];
            i64 at = p;
            if (sort) {
                at = begin;
                for (i64 q = begin; q < end; ++q) at += numbers[col[q]] < j;
                to_values[at] = values[p];
            }
            to_col[at] = j;
        }
    }
}
