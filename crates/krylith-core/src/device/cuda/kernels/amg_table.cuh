// amg_table: tables of the nodes that a row interpolates from, and groups of lanes that fill them. The
// weights of a row are the sums of its table, divided, sorted and truncated with the same roundings as on the
// host.

#include "amg.cuh"

#define NONE 0xffffffffu
#define DROPPED 0x80000000u

// Target of the weights: those of row i start at place[i], or at i * stride where `place` is null. If the
// columns are null, rows are only counted. `counts` may be null.
struct Output {
    const i64* place;
    i64 stride;
    u32* counts;
    u32* col;
    double* values;

    __device__ i64 begin(i64 i) const { return place ? place[i] : i * stride; }
};

// Open addressing with a power of two of slots, at least 2.
struct Keys {
    u32* key;
    u32 slots;

    __device__ u32 first(u32 node) const { return (node * 0x9e3779b9u) >> __clz(slots - 1); }

    // The slot of a node, which is inserted if it is new; NONE if the table is full. Most nodes are already
    // there, so it searches before it inserts.
    __device__ u32 place(u32 node) const {
        u32 slot = first(node);
        for (u32 tries = 0; tries < slots; ++tries) {
            u32 found = *(volatile u32*)&key[slot];
            if (found == NONE) {
                found = atomicCAS(&key[slot], NONE, node);
                if (found == NONE) return slot;
            }
            if (found == node) return slot;
            slot = (slot + 1) & (slots - 1);
        }
        return NONE;
    }

    // Returns false if the table is full.
    __device__ bool insert(u32 node) const { return place(node) != NONE; }

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

struct Table : Keys {
    double* sum;
    u32* order;

    __device__ Table(u32* key, double* sum, u32* order, u32 slots) : Keys{key, slots}, sum(sum), order(order) {}
};

// A group of L lanes. The groups of a warp process their rows in step, so that all lanes take part in every
// shuffle.
template <int L> struct Group {
    int lane, base;

    __device__ Group() : lane(threadIdx.x % L), base(threadIdx.x % 32 / L * L) {}
    // Bit k is the value of v in lane k of this group.
    __device__ u32 ballot(bool v) const {
        const u32 all = __ballot_sync(FULL, v) >> base;
        return L == 32 ? all : all & ((1u << (L % 32)) - 1);
    }
    template <class T> __device__ T from(T v, int k) const { return __shfl_sync(FULL, v, k, L); }
    // Mask of this group's lanes in the warp.
    __device__ u32 mask() const { return L == 32 ? FULL : ((1u << (L % 32)) - 1) << base; }
    // The lowest lane of a set, 0 for an empty one.
    __device__ static int lowest(u32 set) { return set ? __ffs(set) - 1 : 0; }
};

template <int L> __device__ void clear(const Group<L>& group, const Keys& table) {
    for (u32 s = group.lane; s < table.slots; s += L) table.key[s] = NONE;
}

template <int L> __device__ void clear(const Group<L>& group, const Table& table) {
    for (u32 s = group.lane; s < table.slots; s += L) {
        table.key[s] = NONE;
        table.sum[s] = 0;
    }
}

// A matrix of n rows, with flags for its entries, and its part of COARSE and OPPOSITE entries.
struct Matrix {
    const i64* __restrict__ ptr;
    const u32* __restrict__ col;
    const double* __restrict__ values;
    const u8* __restrict__ flags;
    const i64* __restrict__ part;
    const u32* __restrict__ part_col;
    const double* __restrict__ part_values;
    // number[i + 1] > number[i] if node i is a coarse point; its number is number[i].
    const i64* __restrict__ number;
};

// Inserts the coarse columns of row i's strong entries, and those of the rows that its strong entries lead
// to: the rows of its fine neighbours, or with `all` of every neighbour. Returns false if the table is full;
// `most` becomes an upper bound of the number of nodes.
template <int L> __device__ bool gather(const Group<L>& group, const Matrix& a, const Keys& table, bool all, u32 i, i64 begin, i64 end, u64& most) {
    bool fits = true;
    u64 reads = 0;
    for (i64 at = begin; __any_sync(FULL, at < end); at += L) {
        const i64 p = at + group.lane;
        const u32 flag = p < end ? a.flags[p] : 0, k = p < end ? a.col[p] : 0;
        if ((flag & STRONG) && (flag & COARSE)) {
            fits = fits && table.insert(k);
            reads += 1;
        }
        const bool far = (flag & STRONG) && (all || !(flag & COARSE));
        const i64 row = far ? a.part[k] : 0, row_end = far ? a.part[k + 1] : 0;
        reads += row_end - row;
        u32 left = group.ballot(row < row_end);
        while (__any_sync(FULL, left != 0)) {
            const int who = Group<L>::lowest(left);
            const i64 first = group.from(row, who), last = group.from(row_end, who);
            if (left) {
                for (i64 q = first + group.lane; q < last; q += L) {
                    const u32 j = a.part_col[q];
                    if ((j & TOP) && (j & ~TOP) != i) fits = fits && table.insert(j & ~TOP);
                }
            }
            left &= left - 1;
            __syncwarp();
        }
    }
    for (int step = 1; step < L; step *= 2) reads += __shfl_xor_sync(FULL, reads, step);
    most = reads;
    return group.ballot(!fits) == 0;
}

// Moves those used entries among the first `slots` that `takes` accepts to the front of the table, and
// returns their number. `takes(sum)` may change the sum.
template <int L, class F> __device__ u32 to_front(const Group<L>& group, const Table& table, u32 slots, F takes) {
    u32 done = 0;
    for (u32 first = 0; __any_sync(FULL, first < slots); first += L) {
        const u32 s = first + group.lane;
        const u32 node = s < slots ? table.key[s] : NONE;
        double sum = node != NONE ? table.sum[s] : 0;
        const bool keeps = node != NONE && takes(sum);
        const u32 all = group.ballot(keeps);
        __syncwarp();  // the slots have been read
        if (keeps) {
            const u32 to = done + __popc(all & ((1u << group.lane) - 1));
            table.key[to] = node;
            table.sum[to] = sum;
        }
        done += __popc(all);
        __syncwarp();
    }
    return done;
}

// Moves the nonzero weights `scale` times sum over `diagonal` to the front of the table, and returns their
// number; 0 if a weight is not finite.
template <int L> __device__ u32 divide(const Group<L>& group, const Table& table, double scale, double diagonal) {
    const u32 used = to_front(group, table, table.slots, [](double&) { return true; });
    bool broken = diagonal == 0;
    const u32 count = to_front(group, table, used, [&](double& sum) {
        sum = __dmul_rn(scale, __ddiv_rn(sum, diagonal));
        broken = broken || !isfinite(sum);
        return sum != 0;
    });
    return group.ballot(broken) ? 0 : count;
}

// Sorts the first `count` entries of the table by key. `order` has their places, or DROPPED where `most`
// other weights (0: any number) are larger, or equally large and before them by `numbers` (see `after`).
// Returns the factor that keeps the row sum, which is 1 if nothing is dropped.
template <int L> __device__ double truncate(const Group<L>& group, const Table& table, u32 count, u32 most, const u64* __restrict__ numbers) {
    for (u32 e = group.lane; e < count; e += L) {
        const u32 node = table.key[e];
        u32 before = 0;
        for (u32 f = 0; f < count; ++f) before += table.key[f] < node;
        table.order[before] = e;
    }
    __syncwarp();
    const bool cuts = most > 0 && count > most;
    if (cuts) {
        for (u32 e = group.lane; e < count; e += L) {
            const u32 own = table.order[e], node = table.key[own];
            const float size = fabsf(__double2float_rn(table.sum[own]));
            u32 before = 0;
            for (u32 f = 0; f < count; ++f) {
                const float other = fabsf(__double2float_rn(table.sum[f]));
                before += other > size || (other == size && after(numbers, node, table.key[f]));
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
    bool finite = true;
    for (u32 e = 0; e < count; ++e) {
        const u32 own = table.order[e];
        if (!(own & DROPPED)) finite = finite && isfinite(__dmul_rn(table.sum[own], scale));
    }
    return finite ? scale : 1;
}

// Writes the weights of row i that `truncate` has kept, and returns their number. Column k of the table
// becomes number[k], or k where that is null. Groups of a warp may call it separately.
template <int L> __device__ u32 put(const Group<L>& group, const Table& table, u32 count, double scale, i64 i, const i64* __restrict__ number, const Output& to) {
    const i64 place = to.begin(i);
    const u32 mine = group.mask();
    u32 done = 0;
    for (u32 e = group.lane; e < count + group.lane; e += L) {
        const u32 own = e < count ? table.order[e] : DROPPED;
        const bool keeps = !(own & DROPPED);
        const u32 all = (__ballot_sync(mine, keeps) & mine) >> group.base;
        if (keeps && to.col) {
            const i64 at = place + done + __popc(all & ((1u << group.lane) - 1));
            const u32 k = table.key[own];
            to.col[at] = number ? (u32)number[k] : k;
            to.values[at] = __dmul_rn(table.sum[own], scale);
        }
        done += __popc(all);
    }
    return done;
}
