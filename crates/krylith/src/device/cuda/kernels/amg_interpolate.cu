// amg_interpolate: extended+i interpolation with truncation (see precond/multilevel/host/interpolate.rs), with the same roundings.
//
// Macros: LANES of a warp that have a row, THREADS of a block, SLOTS of a row's table in shared memory.
// A row's table has the nodes it interpolates from, C, and their sums. First the entries of the row and of its strong fine neighbours' rows
// fill it, then the same entries are read again and summed: lanes take entries of a neighbour's row, whose columns differ, so no two
// write one sum, and neighbours come one after another in ascending order. b_ik is added by ascending columns. Rows for which a table is too small
// are listed, and `interpolate_long` does them with tables in global memory.
// Bytes moved: the matrix and a byte of flags an entry, from memory about once; from caches as often as a node is somebody's strong fine
// neighbour, 13 bytes an entry and pass; 12 bytes a weight.

#include "amg.cuh"

#define NONE 0xffffffffu
#define SELF 0xfffffffeu
#define DROPPED 0x80000000u

// A = (ptr, col, values, flags), n rows; number[i + 1] > number[i] where node i stays, as number[i].
struct Matrix {
    const i64* __restrict__ ptr;
    const u32* __restrict__ col;
    const double* __restrict__ values;
    const u8* __restrict__ flags;
    const i64* __restrict__ number;
};

// Where weights go: those of row i from place[i] on, or from i * stride where `place` is null; null columns: rows are only counted. `counts` may be null.
struct Output {
    const i64* place;
    i64 stride;
    u32* counts;
    u32* col;
    double* values;
};

// Open addressing: a power of two of slots, at least 2.
struct Table {
    u32* key;
    double* sum;
    u32* order;
    u32 slots;

    __device__ u32 first(u32 node) const { return (node * 0x9e3779b9u) >> __clz(slots - 1); }

    // False where the table is full.
    __device__ bool insert(u32 node) const {
        u32 slot = first(node);
        for (u32 tries = 0; tries < slots; ++tries) {
            const u32 found = atomicCAS(&key[slot], NONE, node);
            if (found == NONE || found == node) return true;
            slot = (slot + 1) & (slots - 1);
        }
        return false;
    }

    __device__ u32 find(u32 node) const {
        u32 slot = first(node);
        for (u32 tries = 0; tries < slots; ++tries) {
            const u32 found = key[slot];
            if (found == node) return slot;
            if (found == NONE) return NONE;
            slot = (slot + 1) & (slots - 1);
        }
        return NONE;
    }
};

// A group of LANES lanes. Groups of a warp go through their rows in step, so that every shuffle has all lanes.
template <int LANES> struct Group {
    int lane, base;

    __device__ Group() : lane(threadIdx.x % LANES), base(threadIdx.x % 32 / LANES * LANES) {}
    // Bit k: what lane k of this group says.
    __device__ u32 ballot(bool v) const {
        const u32 all = __ballot_sync(FULL, v) >> base;
        return LANES == 32 ? all : all & ((1u << (LANES % 32)) - 1);
    }
    template <class T> __device__ T from(T v, int k) const { return __shfl_sync(FULL, v, k, LANES); }
    // The first lane of a set, 0 of an empty one.
    __device__ static int lowest(u32 set) { return set ? __ffs(set) - 1 : 0; }
};

// The strong coarse neighbours of row i and of its strong fine neighbours, into the table. False where it is full; `most` becomes an upper bound of their number.
template <int LANES> __device__ bool gather(const Group<LANES>& group, const Matrix& a, const Table& table, i64 begin, i64 end, u64& most) {
    bool fits = true;
    u64 reads = 0;
    for (i64 at = begin; __any_sync(FULL, at < end); at += LANES) {
        const i64 p = at + group.lane;
        const u32 flag = p < end ? a.flags[p] : 0, k = p < end ? a.col[p] : 0;
        if ((flag & STRONG) && (flag & COARSE)) {
            fits = fits && table.insert(k);
            reads += 1;
        }
        const bool far = (flag & STRONG) && !(flag & COARSE);
        const i64 row = far ? a.ptr[k] : 0, row_end = far ? a.ptr[k + 1] : 0;
        reads += row_end - row;
        u32 left = group.ballot(far);
        while (__any_sync(FULL, left != 0)) {
            const int who = Group<LANES>::lowest(left);
            const i64 first = group.from(row, who), last = group.from(row_end, who);
            if (left) {
                for (i64 q = first + group.lane; q < last; q += LANES) {
                    const u32 of = a.flags[q], j = a.col[q];
                    if ((of & STRONG) && (of & COARSE)) fits = fits && table.insert(j);
                }
            }
            left &= left - 1;
            __syncwarp();
        }
    }
    for (int step = 1; step < LANES; step *= 2) reads += __shfl_xor_sync(FULL, reads, step);
    most = reads;
    return group.ballot(!fits) == 0;
}

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
template <int LANES> __device__ double sum_up(const Group<LANES>& group, const Matrix& a, const Table& table, u32 i, i64 begin, i64 end) {
    double diagonal = 0;
    for (i64 at = begin; __any_sync(FULL, at < end); at += LANES) {
        const i64 p = at + group.lane;
        const u32 flag = p < end ? a.flags[p] : 0, k = p < end ? a.col[p] : NONE;
        const double v = p < end ? a.values[p] : 0;
        if (flag & COARSE) {
            const u32 slot = table.find(k);
            if (slot != NONE) table.sum[slot] = v;
        }
        const u32 own = group.ballot(k == i);
        const double found = group.from(v, Group<LANES>::lowest(own));
        if (own) diagonal = found;
    }
    __syncwarp();
    for (i64 at = begin; __any_sync(FULL, at < end); at += LANES) {
        const i64 p = at + group.lane;
        const u32 flag = p < end ? a.flags[p] : 0, k = p < end ? a.col[p] : i;
        const double v = p < end ? a.values[p] : 0;
        const bool other = k != i, far = other && (flag & STRONG) && !(flag & COARSE);
        const bool weak = other && !far && !((flag & COARSE) && table.find(k) != NONE);
        const i64 row = far ? a.ptr[k] : 0, row_end = far ? a.ptr[k + 1] : 0;
        const u32 fine = group.ballot(far);
        u32 left = group.ballot(far || weak);
        while (__any_sync(FULL, left != 0)) {
            const int who = Group<LANES>::lowest(left);
            const bool through = fine >> who & left >> who & 1;  // along the row of a fine neighbour
            const double a_ik = group.from(v, who);
            const i64 first = group.from(row, who), from_end = group.from(row_end, who);
            const i64 last = through ? from_end : first;
            if (left && !through) diagonal = __dadd_rn(diagonal, a_ik);
            left &= left - 1;
            double b = 0, value = 0;
            u32 slot = NONE;
            for (i64 part = first; __any_sync(FULL, part < last); part += LANES) {
                double new_value = 0;
                const bool reads = part < last;
                const u32 new_slot = reads ? place(a, table, i, part + group.lane, last, new_value) : NONE;
                if (reads) {
                    slot = new_slot;
                    value = new_value;
                }
                if (LANES <= 8) {
                    // What has no place is 0, and adds nothing.
#pragma unroll
                    for (int k = 0; k < LANES; ++k) b = __dadd_rn(b, group.from(new_value, k));
                } else {
                    u32 in = group.ballot(new_slot != NONE);
                    while (__any_sync(FULL, in != 0)) {
                        const double next = group.from(new_value, Group<LANES>::lowest(in));
                        if (in) b = __dadd_rn(b, next);
                        in &= in - 1;
                    }
                }
            }
            if (through && b == 0) diagonal = __dadd_rn(diagonal, a_ik);
            const double share = through && b != 0 ? __ddiv_rn(a_ik, b) : 0;
            const i64 stop = through && b != 0 ? last : first;
            for (i64 part = first; __any_sync(FULL, part < stop); part += LANES) {
                const bool takes = part < stop;
                if (takes && last - first > LANES) slot = place(a, table, i, part + group.lane, last, value);
                if (takes && slot < SELF) table.sum[slot] = __dadd_rn(table.sum[slot], __dmul_rn(share, value));
                const u32 own = group.ballot(takes && slot == SELF);
                const double back = group.from(value, Group<LANES>::lowest(own));
                if (own) diagonal = __dadd_rn(diagonal, __dmul_rn(share, back));
            }
            __syncwarp();
        }
    }
    return diagonal;
}

// Weights from sums, to the front of the table: how many. 0 where a weight is not finite.
template <int LANES> __device__ u32 divide(const Group<LANES>& group, const Table& table, double diagonal) {
    u32 done = 0;
    bool broken = diagonal == 0;
    for (u32 s = 0; s < table.slots; s += LANES) {
        const u32 node = table.key[s + group.lane];
        const double w = node == NONE ? 0 : -__ddiv_rn(table.sum[s + group.lane], diagonal);
        broken = broken || !isfinite(w);
        const u32 all = group.ballot(w != 0);
        __syncwarp();  // the slots are read
        if (w != 0) {
            const u32 to = done + __popc(all & ((1u << group.lane) - 1));
            table.key[to] = node;
            table.sum[to] = w;
        }
        done += __popc(all);
        __syncwarp();
    }
    return group.ballot(broken) ? 0 : done;
}

// The first `count` of the table by ascending nodes: `order` has their places, DROPPED where `most` others are larger (or as large, and lower). The factor that keeps
// the row's sum is returned, 1 where nothing is dropped.
template <int LANES> __device__ double truncate(const Group<LANES>& group, const Table& table, u32 count, u32 most) {
    for (u32 e = group.lane; e < count; e += LANES) {
        const u32 node = table.key[e];
        u32 before = 0;
        for (u32 f = 0; f < count; ++f) before += table.key[f] < node;
        table.order[before] = e;
    }
    __syncwarp();
    const bool cuts = most > 0 && count > most;
    if (cuts) {
        for (u32 e = group.lane; e < count; e += LANES) {
            const u32 own = table.order[e], node = table.key[own];
            const float size = fabsf(__double2float_rn(table.sum[own]));
            u32 before = 0;
            for (u32 f = 0; f < count; ++f) {
                const float other = fabsf(__double2float_rn(table.sum[f]));
                before += other > size || (other == size && table.key[f] < node);
            }
            if (before >= most) table.order[e] = own | DROPPED;
        }
    }
    __syncwarp();
    if (!cuts) return 1;
    double total = 0, kept = 0;
    for (u32 e = 0; e < count; ++e) {
        const u32 own = table.order[e];
        const double w = table.sum[own & ~DROPPED];
        total = __dadd_rn(total, w);
        if (!(own & DROPPED)) kept = __dadd_rn(kept, w);
    }
    const double scale = __ddiv_rn(total, kept);
    return isfinite(scale) ? scale : 1;
}

// A row of P, all of it. False where the table is too small: nothing was written.
template <int LANES> __device__ bool weigh(const Group<LANES>& group, const Matrix& a, const Table& table, i64 i, bool here, u32 most, const Output& to, u64& bound) {
    const i64 number = here ? a.number[i] : 0;
    const bool stays = here && a.number[i + 1] > number;
    const i64 begin = here && !stays ? a.ptr[i] : 0, end = here && !stays ? a.ptr[i + 1] : 0;
    for (u32 s = group.lane; s < table.slots; s += LANES) {
        table.key[s] = NONE;
        table.sum[s] = 0;
    }
    __syncwarp();
    const bool fits = gather(group, a, table, begin, end, bound);
    __syncwarp();
    const i64 stop = fits ? end : begin;
    const double diagonal = sum_up(group, a, table, (u32)i, begin, stop);
    __syncwarp();
    const u32 count = divide(group, table, diagonal);
    const double scale = truncate(group, table, count, most);
    if (!here || !fits) return fits;
    const i64 place = to.place ? to.place[i] : i * to.stride;
    u32 done = 0;
    if (stays) {
        done = 1;
        if (to.col && group.lane == 0) {
            to.col[place] = (u32)number;
            to.values[place] = 1;
        }
    } else {
        const u32 mine = LANES == 32 ? FULL : ((1u << (LANES % 32)) - 1) << group.base;
        for (u32 e = group.lane; e < count + group.lane; e += LANES) {
            const u32 own = e < count ? table.order[e] : DROPPED;
            const bool keeps = !(own & DROPPED);
            const u32 all = __ballot_sync(mine, keeps) >> group.base;
            if (keeps && to.col) {
                const i64 at = place + done + __popc(all & ((1u << group.lane) - 1));
                to.col[at] = (u32)a.number[table.key[own]];
                to.values[at] = __dmul_rn(table.sum[own], scale);
            }
            done += __popc(all & (mine >> group.base));
        }
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
    const Table table = {keys[own], sums[own], orders[own], SLOTS};
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
    const Table table = {keys + own, sums + own, orders + own, slots};
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
