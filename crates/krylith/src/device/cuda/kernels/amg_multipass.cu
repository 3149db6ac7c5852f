// amg_multipass: multipass interpolation with truncation (see `multipass` in precond/multilevel/host/interpolate.rs), with the same roundings.
//
// Macros: LANES of a warp that have a row, THREADS of a block, SLOTS of a row's table in shared memory.
// A node is reached in the pass after one of its strong neighbours; nodes that stay are pass 0. A pass lists its nodes with room for their rows (`multipass_reach`), then
// computes the rows (`multipass_rows`): whole, as records that later passes read, and truncated, into rows of `stride` places. A row that
// no table takes raises `full`: then the host does this level. Bytes moved: the matrix about once, 4 a node and pass, 16 a weight before truncation
// and 12 after.

#include "amg_table.cuh"
#include "scan.cuh"

#define NEVER 0xffffffffu

struct Record {
    double weight;
    u32 column;
    u32 unused;
};

// Nodes that stay are of pass 0 and have their row, the others of none, and no row.
extern "C" __global__ void __launch_bounds__(THREADS) multipass_begin(const i64 n, const i64 stride, const i64* __restrict__ number, u32* __restrict__ pass, u32* __restrict__ length, u32* __restrict__ counts, u32* __restrict__ to_col, double* __restrict__ to_values) {
    for EACH (i, n) {
        const i64 k = number[i];
        const bool stays = number[i + 1] > k;
        pass[i] = stays ? 0 : NEVER;
        length[i] = stays;
        counts[i] = stays;
        if (stays) {
            to_col[i * stride] = (u32)k;
            to_values[i * stride] = 1;
        }
    }
}

// The nodes that the pass after `last` reaches, and where their records go: found[0] nodes, and room for found[1] records, an upper bound of what they need.
extern "C" __global__ void __launch_bounds__(256) multipass_reach(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const int shift, const u8* __restrict__ flags, const u32* __restrict__ pass, const u32* __restrict__ length, const u32 last, u32* __restrict__ list, i64* __restrict__ place, u64* found) {
    __shared__ u64 sums[2];
    const int lanes = 1 << shift, rows = 256 >> shift;
    for (i64 first = blockIdx.x * (i64)rows; first < n; first += gridDim.x * (i64)rows) {
        const i64 i = first + (threadIdx.x >> shift);
        const bool open = i < n && pass[i] == NEVER;
        const i64 end = open ? ptr[i + 1] : 0;
        u64 room = 0;
        bool reached = false;
        for (i64 p = (open ? ptr[i] : 0) + (threadIdx.x & (lanes - 1)); p < end; p += lanes) {
            if (!(flags[p] & STRONG)) continue;
            const u32 j = col[p], of = pass[j];
            reached = reached || of == last;
            if (of != NEVER) room += length[j];
        }
        for (int step = 1; step < lanes; step *= 2) {
            room += __shfl_xor_sync(FULL, room, step);
            reached |= __shfl_xor_sync(FULL, (int)reached, step) != 0;
        }
        // Sums over the block, of the first lane of each row.
        const bool leads = reached && (threadIdx.x & (lanes - 1)) == 0;
        u64 nodes, records;
        const u64 node = block_exclusive((u64)leads, nodes), record = block_exclusive(leads ? room : 0, records);
        if (threadIdx.x == 0 && nodes > 0) {
            sums[0] = atomicAdd(&found[0], nodes);
            sums[1] = atomicAdd(&found[1], records);
        }
        __syncthreads();
        if (leads) {
            list[sums[0] + node] = (u32)i;
            place[sums[0] + node] = (i64)(sums[1] + record);
        }
        __syncthreads();  // sums are read
    }
}

// The rows of the listed nodes, which are those of the pass after `last`.
extern "C" __global__ void __launch_bounds__(THREADS) multipass_rows(const i64 count, const u32* __restrict__ list, const i64* __restrict__ place, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const u8* __restrict__ flags, const i64* __restrict__ number, const u32 last, const u32 most, const i64 stride, u32* pass, u32* length, u64* address, Record* records, u32* __restrict__ counts, u32* __restrict__ to_col, double* __restrict__ to_values, u32* full) {
    constexpr int AT_ONCE = THREADS / LANES;
    __shared__ double sums[AT_ONCE][SLOTS];
    __shared__ u32 keys[AT_ONCE][SLOTS];
    __shared__ u32 orders[AT_ONCE][SLOTS];
    const Output to = {nullptr, stride, counts, to_col, to_values};
    const Group<LANES> group;
    const int own = threadIdx.x / LANES;
    const Table table(keys[own], sums[own], orders[own], SLOTS);
    for (i64 first = blockIdx.x * (i64)AT_ONCE; first < count; first += gridDim.x * (i64)AT_ONCE) {
        const i64 t = first + own;
        const bool here = t < count;
        const u32 i = here ? list[t] : 0;
        const i64 begin = here ? ptr[i] : 0, end = here ? ptr[i + 1] : 0;
        clear(group, table);
        __syncwarp();
        // Whether the row is negative: its diagonal entry.
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
            const bool opposite = entry && j != i && (negative ? -v : v) < 0;
            const u32 of = flag & STRONG ? pass[j] : NEVER;
            // Nodes of this pass may have been marked already.
            const bool gives = of <= last;
            const u64 row = gives && of != 0 ? address[j] : 0;
            const u32 row_length = gives ? length[j] : 0, self = gives && of == 0 ? (u32)number[j] : NONE;
            const u32 opposites = group.ballot(opposite), givers = group.ballot(gives), entries = group.ballot(entry);
            for (int k = 0; __any_sync(FULL, entries >> k != 0); ++k) {
                const double a_ij = group.from(v, k);
                const u64 from = group.from(row, k);
                const u32 weights = group.from(row_length, k), node = group.from(self, k);
                if (entries >> k & 1) {
                    if (opposites >> k & 1) all = __dadd_rn(all, a_ij);
                    else diagonal = __dadd_rn(diagonal, a_ij);
                }
                if (givers >> k & 1) {
                    those = __dadd_rn(those, a_ij);
                    const Record* const others = (const Record*)from;
                    for (u32 e = group.lane; e < weights; e += LANES) {
                        const u32 column = node == NONE ? others[e].column : node;
                        const double w = node == NONE ? others[e].weight : 1;
                        fits = fits && table.insert(column);
                        const u32 slot = fits ? table.find(column) : NONE;
                        if (slot != NONE) table.sum[slot] = __dadd_rn(table.sum[slot], __dmul_rn(a_ij, w));
                    }
                }
                __syncwarp();
                if (LANES == 32 && k == 31) break;
            }
        }
        fits = group.ballot(!fits) == 0;
        const u32 left = divide(group, table, -__ddiv_rn(all, those), diagonal);
        if (here && fits) {
            const i64 at = place[t];
            for (u32 e = group.lane; e < left; e += LANES) records[at + e] = {table.sum[e], table.key[e], 0};
        }
        const double scale = truncate(group, table, left, most);
        if (here && fits) {
            const u32 done = put(group, table, left, scale, i, (const i64*)nullptr, to);
            if (group.lane == 0) {
                counts[i] = done;
                length[i] = left;
                address[i] = (u64)(records + place[t]);
                pass[i] = last + 1;
            }
        }
        if (here && !fits && group.lane == 0) *full = 1;
        __syncwarp();
    }
}
