// cut_refine: nodes at borders move to the group to which they are coupled most, if the group has space (see
// partition/multilevel/refine.rs).
//
// Macros: LINKS, the groups that a thread lists; for a node with more groups it reads the neighbours again
// for each group. A thread processes a node. A round consists of `wish` (the move that each node prefers),
// `update_weights` (its gain if better wishes are granted first), `enlist` (moves by group) and `admit` (the
// best moves that fit).
// Bytes moved: the edges, 4 or 8 each, and a label for each, twice.

#include "cut.cuh"

// Copies the labels to a finer level.
extern "C" __global__ void spread(const i64 n, const u32* __restrict__ map, const u32* __restrict__ coarse, u32* __restrict__ label) {
    for EACH (v, n) label[v] = coarse[map[v]];
}

struct Best {
    int links;
    u32 tie, group;

    __device__ void offer(int other_links, u32 other, u32 round) {
        const u32 other_tie = hash(other, round);
        const bool more = links != other_links ? other_links > links : tie != other_tie ? other_tie > tie : other > group;
        if (group != NONE && !more) return;
        links = other_links;
        tie = other_tie;
        group = other;
    }
};

// The better group of each node, if it has one with space, else NONE; and the gain of that move.
extern "C" __global__ void wish(GRAPH, const u32 round, const u64 cap, const u32* __restrict__ label, const u32* __restrict__ rows, const u32* __restrict__ resting, u32* __restrict__ to, int* __restrict__ gain) {
    THE_GRAPH;
    for EACH (i, n) {
        const u32 v = (u32)i;
        to[v] = NONE;
        if (resting[v]) continue;
        const i64 begin = ptr[v], end = ptr[v + 1];
        const u32 own = label[v];
        const u64 size_v = graph.size_of(v);
        u32 who[LINKS];
        int sum[LINKS], listed = 0, inside = 0;
        bool all = true;
        for (i64 e = begin; e < end && all; ++e) {
            if (!graph.edge(v, col[e])) continue;
            const u32 group = label[col[e]];
            const int w = (int)graph.weight_of(e);
            if (group == own) {
                inside += w;
                continue;
            }
            int k = 0;
            while (k < listed && who[k] != group) ++k;
            if (k == LINKS) {
                all = false;
            } else if (k == listed) {
                who[k] = group;
                sum[k] = w;
                ++listed;
            } else {
                sum[k] += w;
            }
        }
        Best best = {0, 0, NONE};
        if (all) {
            for (int k = 0; k < listed; ++k)
                if (rows[who[k]] + size_v <= cap) best.offer(sum[k], who[k], round);
        } else {
            inside = 0;
            // One group after another, in ascending order.
            for (i64 last = -1;;) {
                u32 group = NONE;
                int links = 0;
                for (i64 e = begin; e < end; ++e) {
                    if (!graph.edge(v, col[e])) continue;
                    const u32 other = label[col[e]];
                    if ((i64)other <= last || other > group) continue;
                    if (other < group) links = 0;
                    group = other;
                    links += (int)graph.weight_of(e);
                }
                if (group == NONE) break;
                last = group;
                if (group == own) inside = links;
                else if (rows[group] + size_v <= cap) best.offer(links, group, round);
            }
        }
        if (best.group == NONE) continue;
        const int more = best.links - inside;
        if (more >= 0 || -more * 4ll < inside) {
            to[v] = best.group;
            gain[v] = more;
        }
    }
}

__device__ bool better(int gain, u32 node, int other_gain, u32 other, u32 round) {
    return gain != other_gain ? gain > other_gain : hash(node, round) > hash(other, round);
}

// The gain of a move once neighbours with better wishes have moved, or 0; and the number of moves into each
// group.
extern "C" __global__ void update_weights(GRAPH, const u32 round, const u32* __restrict__ label, const u32* __restrict__ to, const int* __restrict__ gain, int* __restrict__ keep, u32* __restrict__ moves) {
    THE_GRAPH;
    for EACH (i, n) {
        const u32 v = (u32)i, target = to[v];
        keep[v] = 0;
        if (target == NONE) continue;
        const u32 own = label[v];
        const int first = gain[v];
        int sum = 0;
        for (i64 e = ptr[v]; e < ptr[v + 1]; ++e) {
            const u32 u = col[e];
            if (!graph.edge(v, u)) continue;
            u32 group = label[u];
            if (to[u] != NONE && better(gain[u], u, first, v, round)) group = to[u];
            const int w = (int)graph.weight_of(e);
            if (group == target) sum += w;
            if (group == own) sum -= w;
        }
        if (sum > 0) {
            keep[v] = sum;
            atomicAdd(&moves[target], 1);
        }
    }
}

// Lists the moves into each group, in any order; `admit` ranks them.
extern "C" __global__ void enlist(const i64 n, const u32* __restrict__ to, const int* __restrict__ keep, const i64* __restrict__ begin, u32* __restrict__ cursor, u32* __restrict__ list) {
    for EACH (v, n)
        if (keep[v] > 0) list[begin[to[v]] + atomicAdd(&cursor[to[v]], 1)] = (u32)v;
}

// A move is made if it fits together with all better moves. `after` starts as a copy of `rows`; integer sums
// do not depend on the order.
extern "C" __global__ void admit(const i64 n, const u32* __restrict__ size, const u32 round, const u64 cap, const u32* __restrict__ to, const int* __restrict__ keep, const i64* __restrict__ begin, const u32* __restrict__ list, const u32* __restrict__ rows, u32* __restrict__ after, u32* __restrict__ label, u32* __restrict__ resting) {
    for EACH (i, n) {
        const u32 v = (u32)i;
        resting[v] = 0;
        const int own = keep[v];
        if (own == 0) continue;
        const u32 target = to[v], size_v = size ? size[v] : 1, rank = hash(v, round);
        u64 sum = (u64)rows[target] + size_v;
        for (i64 k = begin[target]; k < begin[target + 1] && sum <= cap; ++k) {
            const u32 u = list[k];
            if (keep[u] > own || (keep[u] == own && hash(u, round) < rank)) sum += size ? size[u] : 1;
        }
        if (sum > cap) continue;
        atomicAdd(&after[target], size_v);
        atomicSub(&after[label[v]], size_v);
        label[v] = target;
        resting[v] = 1;
    }
}
