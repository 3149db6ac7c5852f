// amg_interpolate: extended+i interpolation with truncation (see precond/multilevel/host/interpolate.rs), with the same roundings.
//
// Macros: LANES of a warp that have a row, THREADS of a block, SLOTS of a row's table in shared memory.
// A row's table has the nodes it interpolates from, C, and their sums. First the entries of the row and of its strong fine neighbours' rows
// fill it, then the same entries are read again and summed: lanes take entries of a neighbour's row, whose columns differ, so no two
// write one sum, and neighbours come one after another in ascending order. b_ik is added by ascending columns. Rows for which a table is too small
// are listed, and `interpolate_long` does them with tables in global memory.
// Bytes moved: the matrix and a byte of flags an entry, from memory about once; from caches as often as a node is somebody's strong fine
// neighbour, 13 bytes an entry and pass; 12 bytes a weight.

#include "amg_table.cuh"

#define SELF 0xfffffffeu

// A = (ptr, col, values, flags), n rows; number[i + 1] > number[i] where node i stays, as number[i].
struct Matrix {
    const i64* __restrict__ ptr;
    const u32* __restrict__ col;
    const double* __restrict__ values;
    const u8* __restrict__ flags;
    const i64* __restrict__ number;
};

// A part of row k: entries of the sign that counts whose columns are row i itself or in its table; NONE where there is nothing.
__device__ __forceinline__ u32 place(const Matrix& a, const Table& table, u32 i, i64 q, i64 end, double& value) {
    value = 0;
    if (q >= end) return NONE;
    const u32 flag = a.flags[q], j = a.col[q];
    const double v = a.values[q];
    if (!(flag & OPPOSITE)) return NONE;
    const u32 slot = j == i ? SELF : flag & COARSE ? table.find(j) : NONE;
    if (slot != NONE) value = v;
    return slot;
}

// Sums of the couplings to the nodes of the table; the diagonal with what is added to it is returned.
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
        const i64 row = far ? a.ptr[k] : 0, row_end = far ? a.ptr[k + 1] : 0;
        const u32 fine = group.ballot(far);
        u32 left = group.ballot(far || weak);
        while (__any_sync(FULL, left != 0)) {
            const int who = Group<L>::lowest(left);
            const bool through = fine >> who & left >> who & 1;  // along the row of a fine neighbour
            const double a_ik = group.from(v, who);
            const i64 first = group.from(row, who), from_end = group.from(row_end, who);
            const i64 last = through ? from_end : first;
            if (left && !through) diagonal = __dadd_rn(diagonal, a_ik);
            left &= left - 1;
            double b = 0, value = 0;
            u32 slot = NONE;
            for (i64 part = first; __any_sync(FULL, part < last); part += L) {
                double new_value = 0;
                const bool reads = part < last;
                const u32 new_slot = reads ? place(a, table, i, part + group.lane, last, new_value) : NONE;
                if (reads) {
                    slot = new_slot;
                    value = new_value;
                }
                if (L <= 8) {
                    // What has no place is 0, and adds nothing.
#pragma unroll
                    for (int k = 0; k < L; ++k) b = __dadd_rn(b, group.from(new_value, k));
                } else {
                    u32 in = group.ballot(new_slot != NONE);
                    while (__any_sync(FULL, in != 0)) {
                        const double next = group.from(new_value, Group<L>::lowest(in));
                        if (in) b = __dadd_rn(b, next);
                        in &= in - 1;
                    }
                }
            }
            if (through && b == 0) diagonal = __dadd_rn(diagonal, a_ik);
            const double share = through && b != 0 ? __ddiv_rn(a_ik, b) : 0;
            const i64 stop = through && b != 0 ? last : first;
            for (i64 part = first; __any_sync(FULL, part < stop); part += L) {
                const bool takes = part < stop;
                if (takes && last - first > L) slot = place(a, table, i, part + group.lane, last, value);
                if (takes && slot < SELF) table.sum[slot] = __dadd_rn(table.sum[slot], __dmul_rn(share, value));
                const u32 own = group.ballot(takes && slot == SELF);
                const double back = group.from(value, Group<L>::lowest(own));
                if (own) diagonal = __dadd_rn(diagonal, __dmul_rn(share, back));
            }
            __syncwarp();
        }
    }
    return diagonal;
}

// A row of P, all of it. False where the table is too small: nothing was written.
template <int L> __device__ bool weigh(const Group<L>& group, const Matrix& a, const Table& table, i64 i, bool here, u32 most, const Output& to, u64& bound) {
    const i64 number = here ? a.number[i] : 0;
    const bool stays = here && a.number[i + 1] > number;
    const i64 begin = here && !stays ? a.ptr[i] : 0, end = here && !stays ? a.ptr[i + 1] : 0;
    clear(group, table);
    __syncwarp();
    const bool fits = gather(group, a.ptr, a.col, a.flags, table, false, (u32)i, begin, end, bound);
    __syncwarp();
    const double diagonal = sum_up(group, a, table, (u32)i, begin, fits ? end : begin);
    __syncwarp();
    const u32 count = divide(group, table, -1, diagonal);
    const double scale = truncate(group, table, count, most);
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

#define PARAMETERS const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const u8* __restrict__ flags, const i64* __restrict__ number, const u32 most, const i64* __restrict__ place, const i64 stride, u32* counts, u32* to_col, double* to_values
#define THE_MATRIX const Matrix a = {ptr, col, values, flags, number}
#define THE_OUTPUT const Output to = {place, stride, counts, to_col, to_values}

// Rows in shared memory. The others are listed in `rows`; found[0] counts them, found[1] becomes the most nodes that one of them may have.
extern "C" __global__ void __launch_bounds__(THREADS) interpolate(PARAMETERS, u32* __restrict__ rows, u32* found) {
    constexpr int AT_ONCE = THREADS / LANES;
    __shared__ double sums[AT_ONCE][SLOTS];
    __shared__ u32 keys[AT_ONCE][SLOTS];
    __shared__ u32 orders[AT_ONCE][SLOTS];
    THE_MATRIX;
    THE_OUTPUT;
    const Group<LANES> group;
    const int own = threadIdx.x / LANES;
    const Table table(keys[own], sums[own], orders[own], SLOTS);
    for (i64 first = blockIdx.x * (i64)AT_ONCE; first < n; first += gridDim.x * (i64)AT_ONCE) {
        const i64 i = first + own;
        u64 bound;
        const bool fits = weigh(group, a, table, i, i < n, most, to, bound);
        if (!fits && group.lane == 0) {
            rows[atomicAdd(&found[0], 1u)] = (u32)i;
            atomicMax(&found[1], (u32)(bound < NONE ? bound : NONE));
        }
        __syncwarp();
    }
}

// The listed rows, a warp each, with tables of `slots` for each warp of the grid.
extern "C" __global__ void __launch_bounds__(32) interpolate_long(PARAMETERS, const u32* __restrict__ rows, const u32 count, const u32 slots, u32* __restrict__ keys, double* __restrict__ sums, u32* __restrict__ orders) {
    THE_MATRIX;
    THE_OUTPUT;
    const Group<32> group;
    const i64 own = blockIdx.x * (i64)slots;
    const Table table(keys + own, sums + own, orders + own, slots);
    for (u32 t = blockIdx.x; t < count; t += gridDim.x) {
        u64 bound;
        weigh(group, a, table, rows[t], true, most, to, bound);
        __syncwarp();
    }
}

// Rows of `stride` places to rows one behind the other.
extern "C" __global__ void __launch_bounds__(THREADS) close_up(const i64 n, const i64 stride, const i64* __restrict__ place, const u32* __restrict__ col, const double* __restrict__ values, u32* __restrict__ to_col, double* __restrict__ to_values) {
    for EACH (t, n * stride) {
        const i64 i = t / stride, k = t - i * stride, begin = place[i];
        if (k >= place[i + 1] - begin) continue;
        to_col[begin + k] = col[t];
        to_values[begin + k] = values[t];
    }
}
