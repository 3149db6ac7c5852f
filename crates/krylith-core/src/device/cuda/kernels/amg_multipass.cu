// amg_multipass: multipass interpolation and a step of Jacobi's method, both truncated (see
// precond/multilevel/host/multipass.rs), with the same roundings.
//
// Macros: LANES per row, THREADS per thread block, SLOTS of a row's table in shared memory. A node is reached
// in the pass after one of its strong neighbours; coarse points are pass 0. A pass lists its nodes
// (`multipass_reach`) and computes their rows from those of earlier passes (`multipass_rows`). A row has at
// most `stride` weights in as many places. Jacobi's step computes a second set of such rows from the first. A
// row that fits no table raises `full`, and the host then computes this level.
// Bytes moved: the matrix about twice; 9 per entry of nodes not yet reached, in each pass; 12 per place each
// time a node is a strong neighbour, mostly from caches.

#include "amg_table.cuh"
#include "scan.cuh"

#define NEVER 0xffffffffu

// Rows of `stride` places.
struct Rows {
    u32* counts;
    u32* col;
    double* values;
};

// Coarse points are in pass 0 and get their row; other nodes have no pass and no row yet.
extern "C" __global__ void __launch_bounds__(THREADS) multipass_begin(const i64 n, const i64 stride, const i64* __restrict__ number, u32* __restrict__ pass, const Rows to) {
    for EACH (i, n) {
        const i64 k = number[i];
        const bool stays = number[i + 1] > k;
        pass[i] = stays ? 0 : NEVER;
        to.counts[i] = stays;
        if (stays) {
            to.col[i * stride] = (u32)k;
            to.values[i * stride] = 1;
        }
    }
}

// Lists the *count nodes that the pass after `last` reaches.
extern "C" __global__ void __launch_bounds__(256) multipass_reach(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const int shift, const u8* __restrict__ flags, const u32* __restrict__ pass, const u32 last, u32* __restrict__ list, u32* count) {
    __shared__ u32 place;
    const int lanes = 1 << shift, rows = 256 >> shift;
    for (i64 first = blockIdx.x * (i64)rows; first < n; first += gridDim.x * (i64)rows) {
        const i64 i = first + (threadIdx.x >> shift);
        const bool open = i < n && pass[i] == NEVER;
        const i64 end = open ? ptr[i + 1] : 0;
        bool reached = false;
        for (i64 p = (open ? ptr[i] : 0) + (threadIdx.x & (lanes - 1)); p < end && !reached; p += lanes) {
            reached = (flags[p] & STRONG) && pass[col[p]] == last;
        }
        for (int step = 1; step < lanes; step *= 2) reached |= __shfl_xor_sync(FULL, (int)reached, step) != 0;
        const bool leads = reached && (threadIdx.x & (lanes - 1)) == 0;
        u32 nodes;
        const u32 node = block_exclusive((u32)leads, nodes);
        if (threadIdx.x == 0 && nodes > 0) place = atomicAdd(count, nodes);
        __syncthreads();
        if (leads) list[place + node] = (u32)i;
        __syncthreads();  // place has been read
    }
}

// Computes the rows of the *count listed nodes, those of the pass after `last`, from rows of passes up to
// `last`; `from` and `to` may be the same. Where `list` is null, it makes Jacobi's step for all n nodes.
// Couplings to nodes without a row are then added to the diagonal, and a row that would be empty, or belongs
// to a coarse point, is copied. `numbers` are those of columns.
extern "C" __global__ void __launch_bounds__(THREADS) multipass_rows(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const u8* __restrict__ flags, const u32* __restrict__ list, const u32* __restrict__ count, const u32 last, const i64 stride, const u64* __restrict__ numbers, u32* pass, const Rows from, const Rows to, u32* full) {
    constexpr int AT_ONCE = THREADS / LANES;
    __shared__ double sums[AT_ONCE][SLOTS];
    __shared__ u32 keys[AT_ONCE][SLOTS];
    __shared__ u32 orders[AT_ONCE][SLOTS];
    const Output out = {nullptr, stride, nullptr, to.col, to.values};
    const Group<LANES> group;
    const int own = threadIdx.x / LANES;
    const Table table(keys[own], sums[own], orders[own], SLOTS);
    const i64 nodes = list ? (i64)*count : n;
    for (i64 first = blockIdx.x * (i64)AT_ONCE; first < nodes; first += gridDim.x * (i64)AT_ONCE) {
        const i64 t = first + own;
        const bool here = t < nodes;
        const u32 i = !here ? 0 : list ? list[t] : (u32)t;
        const bool combines = here && (list || (pass[i] != 0 && pass[i] != NEVER));
        const i64 begin = combines ? ptr[i] : 0, end = combines ? ptr[i + 1] : 0;
        clear(group, table);
        // True if the diagonal entry of the row is negative.
        bool negative = false;
        for (i64 p = begin + group.lane; p < end; p += LANES) negative = negative || (col[p] == i && values[p] < 0);
        __syncwarp();
        negative = group.ballot(negative) != 0;
        double diagonal = 0, all = 0, those = 0;
        bool fits = true;
        for (i64 at = begin; __any_sync(FULL, at < end); at += LANES) {
            const i64 p = at + group.lane;
            const bool entry = p < end;
            const u32 flag = entry ? flags[p] : 0, j = entry ? col[p] : 0;
            const double v = entry ? values[p] : 0;
            // Nodes of this pass may be marked already, and do not count.
            const u32 length = (flag & STRONG) && pass[j] <= last ? from.counts[j] : 0;
            const bool opposite = list && entry && j != i && (negative ? -v : v) < 0;
            const u32 givers = group.ballot(length > 0), scaled = group.ballot(opposite || length > 0), entries = group.ballot(entry);
            for (int k = 0; k < LANES && __any_sync(FULL, entries >> k != 0); ++k) {
                const double a_ij = group.from(v, k);
                const u32 node = group.from(j, k), weights = group.from(length, k);
                if (entries >> k & 1) {
                    if (scaled >> k & 1) all = __dadd_rn(all, a_ij);
                    else diagonal = __dadd_rn(diagonal, a_ij);
                }
                if (givers >> k & 1) {
                    those = __dadd_rn(those, a_ij);
                    if (group.lane < weights) {
                        const i64 e = node * stride + group.lane;
                        const u32 column = from.col[e];
                        const double w = from.values[e];
                        const u32 slot = fits ? table.place(column) : NONE;
                        fits = slot != NONE;
                        if (slot != NONE) table.sum[slot] = __dadd_rn(table.sum[slot], __dmul_rn(a_ij, w));
                    }
                }
                __syncwarp();
            }
        }
        fits = group.ballot(!fits) == 0;
        const u32 left = divide(group, table, -__ddiv_rn(all, those), diagonal);
        const double scale = truncate(group, table, left, (u32)stride, numbers);
        if (here && !fits && group.lane == 0) *full = 1;
        if (here && fits) {
            u32 done = 0;
            if (combines && (left > 0 || list)) done = put(group, table, left, scale, i, (const i64*)nullptr, out);
            else {
                done = from.counts[i];
                if (group.lane < done) {
                    to.col[i * stride + group.lane] = from.col[i * stride + group.lane];
                    to.values[i * stride + group.lane] = from.values[i * stride + group.lane];
                }
            }
            if (group.lane == 0) {
                to.counts[i] = done;
                if (list) pass[i] = last + 1;
            }
        }
        __syncwarp();
    }
}
