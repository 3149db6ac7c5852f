// amg_smooth: prolongation by aggregates after one step of Jacobi's method (see `smoothed` in
// precond/multilevel/host/aggregate.rs), with the same roundings.
//
// Macros: LANES per row, THREADS per thread block, SLOTS of a row's table in shared memory. Lanes look up the
// aggregates of a row's entries, then add their contributions one after another. A row that fits no table
// raises `full`, and the host then computes this level.
// Bytes moved: 13 per entry and 4 for its aggregate, 12 per weight.

#include "amg_table.cuh"

// ω; the damping of the step is ω over a bound of the largest eigenvalue.
#define OMEGA (4.0 / 3.0)

extern "C" __global__ void __launch_bounds__(THREADS) smooth_rows(const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const u8* __restrict__ flags, const u32* __restrict__ aggregate, const i64* __restrict__ place, u32* counts, u32* to_col, double* to_values, u32* full) {
    constexpr int AT_ONCE = THREADS / LANES;
    __shared__ double sums[AT_ONCE][SLOTS];
    __shared__ u32 keys[AT_ONCE][SLOTS];
    __shared__ u32 orders[AT_ONCE][SLOTS];
    const Output to = {place, 0, counts, to_col, to_values};
    const Group<LANES> group;
    const int mine = threadIdx.x / LANES;
    const Table table(keys[mine], sums[mine], orders[mine], SLOTS);
    for (i64 first = blockIdx.x * (i64)AT_ONCE; first < n; first += gridDim.x * (i64)AT_ONCE) {
        const i64 i = first + mine;
        const bool here = i < n;
        const i64 begin = here ? ptr[i] : 0, end = here ? ptr[i + 1] : 0;
        clear(group, table);
        __syncwarp();
        double own = 0, lumped = 0, norm = 0;
        for (i64 at = begin; __any_sync(FULL, at < end); at += LANES) {
            const i64 p = at + group.lane;
            const double v = p < end ? values[p] : 0;
            const bool diagonal = p < end && col[p] == i;
            const u32 strong = group.ballot(!diagonal && p < end && (flags[p] & STRONG)), it = group.ballot(diagonal), entries = group.ballot(p < end);
            for (int k = 0; k < LANES && __any_sync(FULL, entries >> k != 0); ++k) {
                const double a = group.from(v, k);
                if (!(entries >> k & 1)) continue;
                if (it >> k & 1) own = a;
                if (strong >> k & 1) norm = __dadd_rn(norm, fabs(a));
                else lumped = __dadd_rn(lumped, a);
            }
        }
        const double size = __ddiv_rn(OMEGA, __dadd_rn(norm, fabs(lumped)));
        const bool moves = __dmul_rn(lumped, own) > 0 && isfinite(size);
        const double step = own < 0 ? size : -size;
        // The node's own aggregate starts with 1.
        bool fits = true;
        if (here && group.lane == 0 && aggregate[i] != NONE) {
            table.sum[table.place(aggregate[i])] = 1;
        }
        __syncwarp();
        for (i64 at = begin; __any_sync(FULL, at < end); at += LANES) {
            const i64 p = at + group.lane;
            const u32 k = p < end ? col[p] : NONE;
            const bool takes = moves && p < end && (k == i || (flags[p] & STRONG)) && aggregate[k] != NONE;
            u32 slot = NONE;
            double share = 0;
            if (takes) {
                if (fits) slot = table.place(aggregate[k]);
                fits = slot != NONE;
                share = __dmul_rn(step, k == i ? lumped : values[p]);
            }
            const u32 all = group.ballot(slot != NONE);
            for (int e = 0; e < LANES && __any_sync(FULL, all >> e != 0); ++e) {
                if (group.lane == e && slot != NONE) table.sum[slot] = __dadd_rn(table.sum[slot], share);
                __syncwarp();
            }
        }
        fits = group.ballot(!fits) == 0;
        const u32 used = to_front(group, table, table.slots, [](double&) { return true; });
        truncate(group, table, used, 0, nullptr);
        if (here && !fits && group.lane == 0) *full = 1;
        if (here && fits) {
            if (to.col) put(group, table, used, 1, i, (const i64*)nullptr, to);
            if (to.counts && group.lane == 0) to.counts[i] = used;
        }
        __syncwarp();
    }
}
