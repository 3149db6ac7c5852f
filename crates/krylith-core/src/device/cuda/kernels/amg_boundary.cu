// amg_boundary: data that ranks exchange about nodes on their boundaries while a level is coarsened, and rows
// that are sent to other ranks.
//
// `nodes` are the own nodes that are ghosts elsewhere; ghosts follow the `own` nodes of a rank. Where the
// graph has only the coarse points, number[i + 1] > number[i] says that node i is one, with number number[i];
// otherwise `number` is null. A message has a word of 64 bits for each node. order[g] is the position of
// ghost g among the words that arrive.
// Bytes moved: 21 per node for a state and 24 for a number; for a row 12 per entry and as many written, or 4
// + 8 b² for blocks of b² numbers.

#include "amg.cuh"

#define NOWHERE 0xffffffffu
// States: UNDECIDED, and STAYS (coarse point) of PMIS; the states of roots are sent unchanged. See
// amg_split.cu and amg_aggregate.cu.
#define UNDECIDED 0
#define STAYS 1
#define NEW_ROOT 3

// Number of a node in the graph, or NOWHERE.
__device__ __forceinline__ u32 place_of(const u32 node, const i64* __restrict__ number) {
    if (!number) return node;
    const i64 k = number[node];
    return number[node + 1ll] > k ? (u32)k : NOWHERE;
}

// Packs the elements of nodes in `from`: counts, or aggregates.
extern "C" __global__ void __launch_bounds__(256) boundary_numbers(const i64 count, const u32* __restrict__ nodes, const i64* __restrict__ number, const u32* __restrict__ from, u64* __restrict__ out) {
    for EACH (t, count) {
        const u32 k = place_of(nodes[t], number);
        out[t] = k == NOWHERE ? 0 : from[k];
    }
}

// Unpacks the elements of the ghosts.
extern "C" __global__ void __launch_bounds__(256) boundary_take_numbers(const i64 ghosts, const i64 own, const i64* __restrict__ number, const u64* __restrict__ in, const u32* __restrict__ order, u32* __restrict__ to) {
    for EACH (t, ghosts) {
        const u32 k = place_of((u32)(own + t), number);
        if (k != NOWHERE) to[k] = (u32)in[order[t]];
    }
}

// Unpacks words of the ghosts.
extern "C" __global__ void __launch_bounds__(256) boundary_take_words(const i64 ghosts, const u64* __restrict__ in, const u32* __restrict__ order, u64* __restrict__ to) {
    for EACH (t, ghosts) to[t] = in[order[t]];
}

// Packs the states of nodes, and copies *left, the number of undecided nodes. If `lost` has the last round
// that each node lost, undecided nodes that did not lose this round count as coarse points.
extern "C" __global__ void __launch_bounds__(256) boundary_states(const i64 count, const u32* __restrict__ nodes, const i64* __restrict__ number, const u8* __restrict__ state, const u8* __restrict__ lost, const u32 round, const u32* __restrict__ left, u32* __restrict__ undecided, u64* __restrict__ out) {
    if (blockIdx.x == 0 && threadIdx.x == 0) *undecided = *left;
    for EACH (t, count) {
        const u32 k = place_of(nodes[t], number);
        u8 own = k == NOWHERE ? UNDECIDED : state[k];
        if (lost && k != NOWHERE && own == UNDECIDED && lost[k] != (u8)round) own = STAYS;
        out[t] = own;
    }
}

// Unpacks the states of the ghosts. A decided ghost weighs 0 from now on, except for a new root; an undecided
// one has lost this round.
extern "C" __global__ void __launch_bounds__(256) boundary_take_states(const i64 ghosts, const i64 own, const i64* __restrict__ number, const u64* __restrict__ in, const u32* __restrict__ order, const u32 round, u8* __restrict__ state, u64* __restrict__ weight, u8* __restrict__ lost) {
    for EACH (t, ghosts) {
        const u32 k = place_of((u32)(own + t), number);
        if (k == NOWHERE) continue;
        const u8 now = (u8)in[order[t]];
        if (now == UNDECIDED) {
            if (lost) lost[k] = (u8)round;
        } else {
            state[k] = now;
            if (now != NEW_ROOT) weight[k] = 0;
        }
    }
}

// Writes consecutive numbers.
extern "C" __global__ void __launch_bounds__(256) boundary_run(const i64 count, const u64 first, u64* __restrict__ out) {
    for EACH (k, count) out[k] = first + k;
}

// Writes the global numbers of these nodes.
extern "C" __global__ void __launch_bounds__(256) boundary_names(const i64 count, const u32* __restrict__ nodes, const u64* __restrict__ numbers, u64* __restrict__ out) {
    for EACH (k, count) out[k] = numbers[nodes[k]];
}

// Counts the entries of these rows.
extern "C" __global__ void __launch_bounds__(256) boundary_lengths(const i64 count, const u32* __restrict__ nodes, const i64* __restrict__ ptr, u32* __restrict__ lengths) {
    for EACH (k, count) lengths[k] = (u32)(ptr[nodes[k] + 1ll] - ptr[nodes[k]]);
}

// Packs these rows one after another, with blocks of `square` numbers; a warp per row.
extern "C" __global__ void __launch_bounds__(256) boundary_rows(const i64 count, const u32* __restrict__ nodes, const i64 square, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const i64* __restrict__ place, u32* __restrict__ to_col, double* __restrict__ to_values) {
    const int lane = threadIdx.x % 32;
    for (i64 k = (blockIdx.x * 256ll + threadIdx.x) / 32; k < count; k += gridDim.x * 8ll) {
        const i64 begin = ptr[nodes[k]], length = ptr[nodes[k] + 1ll] - begin, to = place[k];
        for (i64 e = lane; e < length; e += 32) to_col[to + e] = col[begin + e];
        for (i64 e = lane; e < length * square; e += 32) to_values[to * square + e] = values[begin * square + e];
    }
}

// Counts the entries of rows in columns below `own`, which come first. Eight lanes share a row.
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

// Copies these entries; the other entries of a row are added to its diagonal, from the first to the last.
// Eight lanes share a row.
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

// Renumbers column j to numbers[j]. With `sort`, the entries of a row (scalars) are sorted by column, by
// counting, unless they ascend already. Otherwise columns ascend as before, and only they are written. Eight
// lanes share a row.
extern "C" __global__ void __launch_bounds__(256) boundary_renumber(const i64 rows, const int sort, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const u32* __restrict__ numbers, u32* __restrict__ to_col, double* __restrict__ to_values) {
    const int lane = threadIdx.x % 8;
    for (i64 i = (blockIdx.x * 256ll + threadIdx.x) / 8; i < rows; i += gridDim.x * 32ll) {
        const i64 begin = ptr[i], end = ptr[i + 1];
        const unsigned lanes = 0xffu << (threadIdx.x % 32 & ~7);
        bool ascends = true;
        for (i64 p = begin + lane; p + 1 < end; p += 8) ascends = ascends && numbers[col[p]] < numbers[col[p + 1]];
        ascends = __all_sync(lanes, ascends);
        for (i64 p = begin + lane; p < end; p += 8) {
            const u32 j = numbers[col[p]];
            i64 at = p;
            if (sort && ascends) {
                to_values[p] = values[p];
            } else if (sort) {
                at = begin;
                for (i64 q = begin; q < end; ++q) at += numbers[col[q]] < j;
                to_values[at] = values[p];
            }
            to_col[at] = j;
        }
    }
}
