// amg_interpolate: extended+i interpolation with truncation (see precond/multilevel/host/interpolate.rs),
// with the same roundings.
//
// Macros: LANES per row, THREADS per thread block, SLOTS of a row's table in shared memory. The table of a
// row has the nodes it interpolates from, C, and their sums. The strong entries of the row and of the rows of
// its strong fine neighbours first fill the table; the same rows are then read again and summed. Lanes
// process entries of one neighbour's row, whose columns differ, so no two lanes write the same sum.
// Neighbours are processed in ascending order, and b_ik is added by ascending columns. Of a neighbour's row
// only the coarse part is read (`coarse_part` in amg_split.cu), and its entry of column i is searched. Rows
// whose table would be too small are listed, and `interpolate_long` computes them with tables in global
// memory.
// Bytes moved: from memory about once, the matrix and a byte of flags per entry; from caches, 16 bytes per
// entry of a node's coarse part, each time the node is a strong fine neighbour; 12 bytes per weight.

#include "amg_table.cuh"

// a_ki where its sign differs from that of a_kk, else 0.
__device__ double opposite_entry(const Matrix& a, u32 k, u32 i) {
    i64 low = a.ptr[k], high = a.ptr[k + 1];
    const i64 end = high;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (a.col[middle] < i) low = middle + 1;
        else high = middle;
    }
    return low < end && a.col[low] == i && (a.flags[low] & OPPOSITE) ? a.values[low] : 0;
}

// The slot of entry q of a coarse part; NONE where its node is not in the table, and its value is then 0.
__device__ __forceinline__ u32 place(const Matrix& a, const Table& table, i64 q, i64 end, u32& column, double& value) {
    value = 0;
    column = NONE;
    if (q >= end) return NONE;
    column = a.part_col[q] & ~TOP;
    const double v = a.part_values[q];
    const u32 slot = table.find(column);
    if (slot != NONE) value = v;
    return slot;
}

// Sums the couplings to the nodes of the table; returns the diagonal plus the other couplings.
template <int L> __device__ double sum_up(const Group<L>& group, const Matrix& a, const Table& table, u32 i, i64 begin, i64 end) {
    double diagonal = 0;
    for (i64 at = begin; __any_sync(FULL, at < end); at += L) {
        const i64 p = at + group.lane;
        const u32 flag = p < end ? a.flags[p] : 0, k = p < end ? a.col[p] : NONE;
        const double v = p < end ? a.values[p] : 0;
        if (flag & COARSE) {
            const u32 slot = table.find(k);
            if (slot != NONE) table.sum[slot] = v;
        }
        const u32 own = group.ballot(k == i);
        const double found = group.from(v, Group<L>::lowest(own));
        if (own) diagonal = found;
    }
    __syncwarp();
    for (i64 at = begin; __any_sync(FULL, at < end); at += L) {
        const i64 p = at + group.lane;
        const u32 flag = p < end ? a.flags[p] : 0, k = p < end ? a.col[p] : i;
        const double v = p < end ? a.values[p] : 0;
        const bool other = k != i, far = other && (flag & STRONG) && !(flag & COARSE);
        const bool weak = other && !far && !((flag & COARSE) && table.find(k) != NONE);
        const i64 row = far ? a.part[k] : 0, row_end = far ? a.part[k + 1] : 0;
        const double a_ki = far ? opposite_entry(a, k, i) : 0;
        const u32 fine = group.ballot(far);
        u32 left = group.ballot(far || weak);
        while (__any_sync(FULL, left != 0)) {
            const int who = Group<L>::lowest(left);
            const bool through = fine >> who & left >> who & 1;  // along the row of a fine neighbour
            const double a_ik = group.from(v, who), from_back = group.from(a_ki, who);
            const i64 first = group.from(row, who), from_end = group.from(row_end, who);
            const i64 last = through ? from_end : first;
            const double back = through ? from_back : 0;
            if (left && !through) diagonal = __dadd_rn(diagonal, a_ik);
            left &= left - 1;
            // b_ik by ascending columns; nodes that are not in the table count as 0.
            double b = 0, value = 0;
            u32 slot = NONE;
            bool pending = back != 0;
            for (i64 part = first; __any_sync(FULL, part < last); part += L) {
                u32 column = NONE;
                if (part < last) slot = place(a, table, part + group.lane, last, column, value);
                const u32 here = __popc(group.ballot(column != NONE)), before = __popc(group.ballot(column < i));
                for (u32 k = 0; k < L && __any_sync(FULL, k < here); ++k) {
                    const double next = group.from(value, k);
                    if (k >= here) continue;
                    if (pending && k == before) {
                        b = __dadd_rn(b, back);
                        pending = false;
                    }
                    b = __dadd_rn(b, next);
                }
            }
            if (pending) b = __dadd_rn(b, back);
            if (through && b == 0) diagonal = __dadd_rn(diagonal, a_ik);
            const double share = through && b != 0 ? __ddiv_rn(a_ik, b) : 0;
            const i64 stop = through && b != 0 ? last : first;
            for (i64 part = first; part < stop; part += L) {
                u32 column;
                if (last - first > L) slot = place(a, table, part + group.lane, last, column, value);
                if (slot != NONE) table.sum[slot] = __dadd_rn(table.sum[slot], __dmul_rn(share, value));
            }
            if (through && b != 0 && back != 0) diagonal = __dadd_rn(diagonal, __dmul_rn(share, back));
            __syncwarp();
        }
    }
    return diagonal;
}

// Computes a whole row of P. Returns false, and writes nothing, where the table is too small.
template <int L> __device__ bool weigh(const Group<L>& group, const Matrix& a, const Table& table, i64 i, bool here, u32 most, const u64* __restrict__ numbers, const Output& to, u64& bound) {
    const i64 number = here ? a.number[i] : 0;
    const bool stays = here && a.number[i + 1] > number;
    const i64 begin = here && !stays ? a.ptr[i] : 0, end = here && !stays ? a.ptr[i + 1] : 0;
    clear(group, table);
    __syncwarp();
    const bool fits = gather(group, a, table, false, (u32)i, begin, end, bound);
    __syncwarp();
    const double diagonal = sum_up(group, a, table, (u32)i, begin, fits ? end : begin);
    __syncwarp();
    const u32 count = divide(group, table, -1, diagonal);
    const double scale = truncate(group, table, count, most, numbers);
    if (!here || !fits) return fits;
    u32 done = 1;
    if (!stays) done = put(group, table, count, scale, i, a.number, to);
    else if (to.col && group.lane == 0) {
        to.col[to.begin(i)] = (u32)number;
        to.values[to.begin(i)] = 1;
    }
    if (to.counts && group.lane == 0) to.counts[i] = done;
    return true;
}

#define PARAMETERS const i64 n, const Matrix a, const u32 most, const u64* __restrict__ numbers, const i64* __restrict__ place, const i64 stride, u32* counts, u32* to_col, double* to_values
#define THE_OUTPUT const Output to = {place, stride, counts, to_col, to_values}

// Rows with tables in shared memory. The others are listed in `rows`; found[0] counts them, and found[1]
// becomes the most nodes that one of them may have.
extern "C" __global__ void __launch_bounds__(THREADS) interpolate(PARAMETERS, u32* __restrict__ rows, u32* found) {
    constexpr int AT_ONCE = THREADS / LANES;
    __shared__ double sums[AT_ONCE][SLOTS];
    __shared__ u32 keys[AT_ONCE][SLOTS];
    __shared__ u32 orders[AT_ONCE][SLOTS];
    THE_OUTPUT;
    const Group<LANES> group;
    const int own = threadIdx.x / LANES;
    const Table table(keys[own], sums[own], orders[own], SLOTS);
    for (i64 first = blockIdx.x * (i64)AT_ONCE; first < n; first += gridDim.x * (i64)AT_ONCE) {
        const i64 i = first + own;
        u64 bound;
        const bool fits = weigh(group, a, table, i, i < n, most, numbers, to, bound);
        if (!fits && group.lane == 0) {
            rows[atomicAdd(&found[0], 1u)] = (u32)i;
            atomicMax(&found[1], (u32)(bound < NONE ? bound : NONE));
        }
        __syncwarp();
    }
}

// The listed rows, one warp each, with tables of `slots` for each warp of the grid.
extern "C" __global__ void __launch_bounds__(32) interpolate_long(PARAMETERS, const u32* __restrict__ rows, const u32 count, const u32 slots, u32* __restrict__ keys, double* __restrict__ sums, u32* __restrict__ orders) {
    THE_OUTPUT;
    const Group<32> group;
    const i64 own = blockIdx.x * (i64)slots;
    const Table table(keys + own, sums + own, orders + own, slots);
    for (u32 t = blockIdx.x; t < count; t += gridDim.x) {
        u64 bound;
        weigh(group, a, table, rows[t], true, most, numbers, to, bound);
        __syncwarp();
    }
}

// Moves rows of `stride` places together.
extern "C" __global__ void __launch_bounds__(THREADS) close_up(const i64 n, const i64 stride, const i64* __restrict__ place, const u32* __restrict__ col, const double* __restrict__ values, u32* __restrict__ to_col, double* __restrict__ to_values) {
    for EACH (t, n * stride) {
        const i64 i = t / stride, k = t - i * stride, begin = place[i];
        if (k >= place[i + 1] - begin) continue;
        to_col[begin + k] = col[t];
        to_values[begin + k] = values[t];
    }
}
