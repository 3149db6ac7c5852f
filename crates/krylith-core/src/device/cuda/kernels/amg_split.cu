// amg_split: strong couplings, and the coarse points by PMIS (see precond/multilevel/host/split.rs).
//
// 2^shift lanes of a warp share a row. Every decision is a maximum, a comparison or a count, so nothing
// depends on the order of execution. Each entry has a byte of flags.
// Bytes moved: 13 per entry for strength and its flags, and an atomic addition for each strong entry; a round
// of PMIS reads 5 bytes per entry of the undecided nodes, and 8 more per strong entry.

#include "amg.cuh"

// States of a node.
#define UNDECIDED 0
#define STAYS 1
#define GOES 2

// STRONG and OPPOSITE of each entry; the number of strong entries of a column is added to `counts`.
extern "C" __global__ void __launch_bounds__(256) strong_entries(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const int shift, const double theta, u8* __restrict__ flags, u32* __restrict__ counts) {
    const int lane = threadIdx.x % 32, lanes = 1 << shift;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        const i64 begin = (i < n ? ptr[i] : 0) + (lane & (lanes - 1)), end = i < n ? ptr[i + 1] : 0;
        double below = 0, above = 0;  // the largest of -a_ik and of a_ik, k != i
        bool negative = false;
        for (i64 p = begin; p < end; p += lanes) {
            const double v = values[p];
            if (col[p] == i) negative = negative || v < 0;
            else {
                below = fmax(below, -v);
                above = fmax(above, v);
            }
        }
        for (int step = 1; step < lanes; step *= 2) {
            below = fmax(below, __shfl_xor_sync(FULL, below, step));
            above = fmax(above, __shfl_xor_sync(FULL, above, step));
            negative |= __shfl_xor_sync(FULL, (int)negative, step) != 0;
        }
        const double limit = __dmul_rn(theta, negative ? above : below);
        for (i64 p = begin; p < end; p += lanes) {
            const u32 j = col[p];
            const double v = negative ? values[p] : -values[p];
            const bool opposite = j != i && v > 0, strong = opposite && v >= limit;
            flags[p] = (opposite ? OPPOSITE : 0) | (strong ? STRONG : 0);
            if (strong) atomicAdd(&counts[j], 1u);
        }
    }
}

// The weight of a node: the number of nodes that depend on it, then 40 bits of a hash of its number
// (numbers[i] with several ranks, otherwise nodes[i]), plus 1, because a decided node weighs 0. A node on
// which no other depends becomes a fine point, unless `lonely_stay`.
extern "C" __global__ void __launch_bounds__(256) pmis_begin(const i64 n, const u64 seed, const u32* __restrict__ nodes, const u64* __restrict__ numbers, const int lonely_stay, const u32* __restrict__ counts, u64* __restrict__ weight, u8* __restrict__ state) {
    for EACH (i, n) {
        const u64 count = counts[i], number = numbers ? numbers[i] : nodes ? (u64)nodes[i] : (u64)i;
        const bool goes = count == 0 && !lonely_stay;
        weight[i] = goes ? 0 : (count << 40 | splitmix64(seed, number) >> 24) + 1;
        state[i] = goes ? GOES : UNDECIDED;
    }
}

// Of two undecided nodes with a strong entry between them, the lighter one loses this round. A decided node
// weighs 0. `list` has the *count undecided nodes; if it is null, all n are checked. If `flags` is null, all
// entries are strong. Both numbers of `left` become 0.
extern "C" __global__ void __launch_bounds__(256) pmis_lose(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const int shift, const u8* __restrict__ flags, const u64* __restrict__ weight, const u64* __restrict__ numbers, const u32* __restrict__ list, const u32* __restrict__ count, const u32 round, u8* lost, u32* left) {
    const int lane = threadIdx.x % 32, lanes = 1 << shift;
    const i64 nodes = list ? (i64)*count : n;
    if (blockIdx.x == 0 && threadIdx.x == 0) left[0] = left[1] = 0;
    for EACH_WARP_OF_ROWS (first, nodes) {
        const i64 t = first + (lane >> shift);
        if (t >= nodes) continue;
        const u32 i = list ? list[t] : (u32)t;
        const u64 own = weight[i];
        if (own == 0) continue;
        bool loses = false;
        const i64 end = ptr[i + 1];
        for (i64 p = ptr[i] + (lane & (lanes - 1)); p < end; p += lanes) {
            if (flags && !(flags[p] & STRONG)) continue;
            const u32 j = col[p];
            const u64 other = weight[j];
            if (other == 0) continue;
            if (own > other || (own == other && after(numbers, i, j))) lost[j] = (u8)round;
            else loses = true;
        }
        if (loses) lost[i] = (u8)round;
    }
}

// Undecided nodes that did not lose become coarse points; those with a strong entry to a coarse point become
// fine points. The others are appended to `next`, whose length is left[0]; left[1] counts those of them below
// `own`, unless that is negative. Other threads may see a node as undecided or as decided in this launch;
// with the lost flag both lead to the same decision.
extern "C" __global__ void __launch_bounds__(256) pmis_decide(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const int shift, const u8* __restrict__ flags, u64* weight, const u32* __restrict__ list, const u32* __restrict__ count, const u32 round, const i64 own, const u8* __restrict__ lost, u8* state, u32* __restrict__ next, u32* left) {
    __shared__ u32 places[9];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, lanes = 1 << shift, rows = 256 >> shift;
    const i64 nodes = list ? (i64)*count : n;
    for (i64 first = blockIdx.x * (i64)rows; first < nodes; first += gridDim.x * (i64)rows) {
        const i64 t = first + (threadIdx.x >> shift);
        const u32 i = t < nodes ? (list ? list[t] : (u32)t) : 0;
        const bool open = t < nodes && weight[i] != 0, stays = open && lost[i] != (u8)round;
        const bool asks = open && !stays;
        bool goes = false;
        const i64 end = asks ? ptr[i + 1] : 0;
        for (i64 p = (asks ? ptr[i] : 0) + (lane & (lanes - 1)); p < end && !goes; p += lanes) {
            if (flags && !(flags[p] & STRONG)) continue;
            const u32 j = col[p];
            const u8 of = state[j];
            goes = of == STAYS || (of == UNDECIDED && lost[j] != (u8)round);
        }
        const u32 group = lanes == 32 ? FULL : ((1u << lanes) - 1) << (lane & ~(lanes - 1));
        goes = (__ballot_sync(FULL, goes) & group) != 0;
        const bool leads = (lane & (lanes - 1)) == 0;
        if (leads && (stays || goes)) {
            state[i] = stays ? STAYS : GOES;
            weight[i] = 0;
        }
        const bool again = leads && asks && !goes;
        const u32 all = __ballot_sync(FULL, again);
        const u32 mine = __ballot_sync(FULL, again && i < own);
        if (lane == 0) places[warp] = __popc(all) | __popc(mine) << 16;  // at most 256 of each
        __syncthreads();
        if (threadIdx.x == 0) {
            u32 sum = 0;
            for (int w = 0; w < 8; ++w) {
                const u32 own = places[w];
                places[w] = sum;
                sum += own;
            }
            places[8] = sum > 0 ? atomicAdd(left, sum & 0xffff) : 0;
            if (sum >> 16) atomicAdd(left + 1, sum >> 16);
        }
        __syncthreads();
        if (again) next[places[8] + (places[warp] & 0xffff) + __popc(all & ((1u << lane) - 1))] = i;
        __syncthreads();  // places have been read
    }
}

// 1 for each coarse point, else 0.
extern "C" __global__ void __launch_bounds__(256) pmis_staying(const i64 n, const u8* __restrict__ state, u32* __restrict__ stays) {
    for EACH (i, n) stays[i] = state[i] == STAYS;
}

// COARSE of each entry in the column of a coarse point, and the number of such entries of each row that are
// OPPOSITE too.
extern "C" __global__ void __launch_bounds__(256) coarse_columns(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const int shift, const u8* __restrict__ state, u8* __restrict__ flags, u32* __restrict__ counts) {
    const int lane = threadIdx.x % 32, lanes = 1 << shift;
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        const i64 end = i < n ? ptr[i + 1] : 0;
        u32 count = 0;
        for (i64 p = (i < n ? ptr[i] : 0) + (lane & (lanes - 1)); p < end; p += lanes) {
            if (state[col[p]] != STAYS) continue;
            const u8 flag = flags[p];
            flags[p] = flag | COARSE;
            count += (flag & OPPOSITE) != 0;
        }
        for (int step = 1; step < lanes; step *= 2) count += __shfl_xor_sync(FULL, count, step);
        if (i < n && (lane & (lanes - 1)) == 0) counts[i] = count;
    }
}

// Copies the entries that are COARSE and OPPOSITE, row by row from place[i] on: other rows read these of a
// row that they interpolate through. The highest bit of a column marks STRONG; `to_values` may be null.
extern "C" __global__ void __launch_bounds__(256) coarse_part(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const int shift, const u8* __restrict__ flags, const i64* __restrict__ place, u32* __restrict__ to_col, double* __restrict__ to_values) {
    const int lane = threadIdx.x % 32, lanes = 1 << shift;
    const u32 group = lanes == 32 ? FULL : ((1u << lanes) - 1) << (lane & ~(lanes - 1));
    for EACH_WARP_OF_ROWS (first, n) {
        const i64 i = first + (lane >> shift);
        const i64 end = i < n ? ptr[i + 1] : 0;
        i64 to = i < n ? place[i] : 0;
        for (i64 at = i < n ? ptr[i] : 0; __any_sync(FULL, at < end); at += lanes) {
            const i64 p = at + (lane & (lanes - 1));
            const u8 flag = p < end ? flags[p] : 0;
            const bool takes = (flag & COARSE) && (flag & OPPOSITE);
            const u32 all = __ballot_sync(FULL, takes) & group;
            if (takes) {
                const i64 own = to + __popc(all & ((1u << lane) - 1));
                to_col[own] = col[p] | (flag & STRONG ? TOP : 0);
                if (to_values) to_values[own] = values[p];
            }
            to += __popc(all);
        }
    }
}

// Lists the coarse points in ascending order; number[i] of them come before node i.
extern "C" __global__ void __launch_bounds__(256) staying_nodes(const i64 n, const i64* __restrict__ number, u32* __restrict__ nodes) {
    for EACH (i, n) {
        const i64 k = number[i];
        if (number[i + 1] > k) nodes[k] = (u32)i;
    }
}

// Keeps only those coarse points that the second PMIS has chosen again.
extern "C" __global__ void __launch_bounds__(256) stay_again(const i64 count, const u32* __restrict__ nodes, const u8* __restrict__ again, u8* __restrict__ state) {
    for EACH (k, count) {
        if (again[k] != STAYS) state[nodes[k]] = GOES;
    }
}
