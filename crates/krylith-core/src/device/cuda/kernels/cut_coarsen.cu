// cut_coarsen: the next coarser level of a graph: pairs by handshakes, and the graph of the pairs (see
// partition/multilevel/coarsen.rs).
//
// Macros: WARPS per thread block of `contract`, SLOTS of a warp's table, LONGEST row of a matrix. A thread
// processes a node; in `contract` a warp processes a pair.
// Bytes moved: a round of `propose` reads col (and weight) of the free nodes, 4 or 8 per edge, and a partner
// for each edge; `contract` reads them twice and writes 8 per coarse edge.

#include "cut.cuh"

// Raises `unfit` if the pattern differs from that of its transpose, or has a row above LONGEST.
extern "C" __global__ void symmetric(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, u32* unfit) {
    for EACH (i, n) {
        const i64 begin = ptr[i], end = ptr[i + 1];
        bool fits = end - begin <= LONGEST;
        for (i64 e = begin; fits && e < end; ++e) {
            const u32 j = col[e];
            if (j == i || j >= n) continue;
            i64 low = ptr[j], high = ptr[j + 1];
            while (low < high) {
                const i64 middle = (low + high) / 2;
                if (col[middle] < i) low = middle + 1;
                else high = middle;
            }
            fits = low < ptr[j + 1] && col[low] == i;
        }
        if (!fits) *unfit = 1;
    }
}

extern "C" __global__ void alone(const i64 n, u32* __restrict__ mate) {
    for EACH (v, n) mate[v] = (u32)v;
}

// The rating of an edge: as `rating` on the host, with the same roundings.
__device__ u64 rating(const Graph& graph, u32 v, u32 u, i64 e, u32 level) {
    const u64 tie = mix(((v ^ u) * 0x9e3779b9u) ^ (v + u + level));
    if (!graph.weight) return tie;
    const float w = (float)graph.weight[e];
    const float sizes = __fmul_rn((float)graph.size_of(v), (float)graph.size_of(u));
    return (u64)__float_as_uint(__fdiv_rn(__fmul_rn(w, w), sizes)) << 32 | tie;
}

// The best free neighbour of each free node. Reads `mate`, writes `want`.
extern "C" __global__ void propose(GRAPH, const u32 level, const u64 limit, const u32* __restrict__ mate, u32* __restrict__ want) {
    THE_GRAPH;
    for EACH (i, n) {
        const u32 v = (u32)i;
        if (mate[v] != v) continue;
        const u64 own = graph.size_of(v);
        u64 best = 0;
        u32 who = NONE;
        for (i64 e = ptr[v]; e < ptr[v + 1]; ++e) {
            const u32 u = col[e];
            if (!graph.edge(v, u) || mate[u] != u || own + graph.size_of(u) > limit) continue;
            const u64 r = rating(graph, v, u, e, level);
            if (who == NONE || r > best || (r == best && u > who)) {
                best = r;
                who = u;
            }
        }
        want[v] = who;
    }
}

// Joins mutual proposals. Each node writes its own partner. The other node was free, so its wish is from this
// round.
extern "C" __global__ void join(const i64 n, const u32* __restrict__ want, u32* __restrict__ mate) {
    for EACH (v, n) {
        if (mate[v] != v) continue;
        const u32 u = want[v];
        if (u != NONE && want[u] == v) mate[v] = u;
    }
}

// Marks the first node of each pair, and counts the nodes that found no partner.
extern "C" __global__ void leaders(const i64 n, const u32* __restrict__ mate, u32* __restrict__ leads, u32* lonely) {
    u32 own = 0;
    for EACH (v, n) {
        leads[v] = mate[v] >= v;
        own += mate[v] == v;
    }
    for (int step = 16; step > 0; step /= 2) own += __shfl_down_sync(0xffffffffu, own, step);
    if (threadIdx.x % 32 == 0 && own > 0) atomicAdd(lonely, own);
}

// Lists the pairs in the order of their first nodes, numbered by `number`, and writes the pair of each node.
extern "C" __global__ void pair(const i64 n, const u32* __restrict__ size, const u32* __restrict__ mate, const i64* __restrict__ number, u32* __restrict__ map, u32* __restrict__ pairs, u32* __restrict__ sizes) {
    for EACH (v, n) {
        const u32 u = mate[v];
        const bool leads = u >= v;
        const i64 c = number[leads ? v : u];
        map[v] = (u32)c;
        if (!leads) continue;
        pairs[2 * c] = (u32)v;
        pairs[2 * c + 1] = u;
        const u32 own = size ? size[v] : 1;
        sizes[c] = u == v ? own : own + (size ? size[u] : 1);
    }
}

// The edges of each pair, where edges to the same pair become one. Where `place` is null, only their number
// is written; otherwise the edges themselves from place on. A pair's edges are in the order of a table, which
// may differ between runs; no result depends on it.
extern "C" __global__ void contract(GRAPH, const i64 count, const u32* __restrict__ pairs, const u32* __restrict__ map, const i64* __restrict__ place, u32* __restrict__ degree, u32* __restrict__ to, u32* __restrict__ weights, u32* overflow) {
    __shared__ u32 keys[WARPS][SLOTS];
    __shared__ u32 sums[WARPS][SLOTS];
    THE_GRAPH;
    const int lane = threadIdx.x % 32;
    u32* const key = keys[threadIdx.x / 32];
    u32* const sum = sums[threadIdx.x / 32];
    for (i64 c = blockIdx.x * (i64)WARPS + threadIdx.x / 32; c < count; c += (i64)gridDim.x * WARPS) {
        const u32 member[2] = {pairs[2 * c], pairs[2 * c + 1]};
        const int members = member[0] == member[1] ? 1 : 2;
        i64 raw = 0;
        for (int k = 0; k < members; ++k) raw += ptr[member[k] + 1] - ptr[member[k]];
        u32 slots = 64;
        while (slots < 2 * raw && slots < SLOTS) slots *= 2;
        for (u32 s = lane; s < slots; s += 32) {
            key[s] = NONE;
            sum[s] = 0;
        }
        __syncwarp();
        for (int k = 0; k < members; ++k) {
            for (i64 e = ptr[member[k]] + lane; e < ptr[member[k] + 1]; e += 32) {
                if (!graph.edge(member[k], col[e])) continue;
                const u32 other = map[col[e]];
                if (other == c) continue;
                u32 slot = (other * 0x9e3779b9u >> 7) & (slots - 1), tries = 0;
                for (; tries < slots; ++tries) {
                    const u32 found = atomicCAS(&key[slot], NONE, other);
                    if (found == NONE || found == other) break;
                    slot = (slot + 1) & (slots - 1);
                }
                if (tries < slots) atomicAdd(&sum[slot], graph.weight_of(e));
                else *overflow = 1;
            }
        }
        __syncwarp();
        u32 before = 0;
        for (u32 s = lane; s < slots; s += 32) {
            const bool used = key[s] != NONE;
            const u32 all = __ballot_sync(0xffffffffu, used);
            if (place && used) {
                const i64 at = place[c] + before + __popc(all & ((1u << lane) - 1));
                to[at] = key[s];
                weights[at] = sum[s];
            }
            before += __popc(all);
        }
        if (!place && lane == 0) degree[c] = before;
        __syncwarp();
    }
}
