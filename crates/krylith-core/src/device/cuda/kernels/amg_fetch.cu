// amg_fetch: rows that GPUs send to each other, with the numbers of their columns, and places for these
// numbers: own nodes come first, then the nodes of other ranks in the order of a list. A table has these.
//
// Bytes moved: per entry of size b² numbers, 4 + 8 b² read and 8 + 8 b² written to pack; the reverse, and 8
// from the table, to unpack.

#include "amg.cuh"

#define EMPTY 0xffffffffffffffffull

// Packs rows one after another; a warp per row. The first entry of the first row has place `first`. Columns
// below `own` have the numbers from `start` on, the others those of a list.
extern "C" __global__ void __launch_bounds__(256) fetch_pack(const i64 count, const u32* __restrict__ nodes, const i64 size, const i64* __restrict__ ptr, const u32* __restrict__ col, const double* __restrict__ values, const i64* __restrict__ place, const i64 first, const u32 own, const u64 start, const u64* __restrict__ others, double* __restrict__ to_values, u64* __restrict__ to_numbers, u32* __restrict__ to_lengths) {
    const int lane = threadIdx.x % 32;
    for (i64 k = (blockIdx.x * 256ll + threadIdx.x) / 32; k < count; k += gridDim.x * 8ll) {
        const i64 begin = ptr[nodes[k]], length = ptr[nodes[k] + 1ll] - begin, to = place[k] - first;
        if (lane == 0) to_lengths[k] = (u32)length;
        for (i64 e = lane; e < length; e += 32) {
            const u32 j = col[begin + e];
            to_numbers[to + e] = j < own ? start + j : others[j - own];
        }
        for (i64 e = lane; e < length * size; e += 32) to_values[to * size + e] = values[begin * size + e];
    }
}

// A table of numbers by open addressing; `mask` + 1 slots, a power of two.
__device__ __forceinline__ u64 slot_of(const u64 number) { return (number * 0x9e3779b97f4a7c15ull) >> 20; }

// Returns the slot of a number, which is added where it is missing, or EMPTY if the table is full.
__device__ __forceinline__ u64 find_or_add(const u64 number, const u64 mask, u64* keys, bool& added) {
    u64 slot = slot_of(number) & mask;
    added = false;
    for (u64 tries = 0; tries <= mask; ++tries, slot = (slot + 1) & mask) {
        u64 key = *(volatile u64*)(keys + slot);
        if (key == EMPTY) {
            key = atomicCAS(keys + slot, EMPTY, number);
            added = key == EMPTY;
            if (added) return slot;
        }
        if (key == number) return slot;
    }
    return EMPTY;
}

// Gives the numbers of a list consecutive places.
extern "C" __global__ void __launch_bounds__(256) fetch_places(const i64 count, const u64* __restrict__ numbers, const u32 first, const u64 mask, u64* keys, u32* __restrict__ places) {
    for EACH (k, count) {
        bool added;
        const u64 slot = find_or_add(numbers[k], mask, keys, added);
        if (slot != EMPTY) places[slot] = first + (u32)k;
    }
}

// Collects the numbers outside begin..end that are not in the table, each once, in any order. If there are
// more than `most`, *found is greater than that and some are missing.
extern "C" __global__ void __launch_bounds__(256) fetch_new(const i64 entries, const u64* __restrict__ numbers, const u64 begin, const u64 end, const u64 mask, u64* keys, const u32 most, u64* __restrict__ fresh, u32* found) {
    for EACH (p, entries) {
        const u64 number = numbers[p];
        if (number >= begin && number < end) continue;
        if (*(volatile u32*)found > most) return;
        bool added;
        const u64 slot = find_or_add(number, mask, keys, added);
        if (slot == EMPTY) atomicMax(found, most + 1);
        if (!added) continue;
        const u32 at = atomicAdd(found, 1u);
        if (at < most) fresh[at] = number;
    }
}

// Unpacks rows: numbers become places, which ascend in each row; a warp per row. `unsorted` is scratch.
extern "C" __global__ void __launch_bounds__(256) fetch_unpack(const i64 rows, const i64 size, const i64* __restrict__ ptr, const u64* __restrict__ numbers, const double* __restrict__ values, const u64 begin, const u64 end, const u64 mask, const u64* __restrict__ keys, const u32* __restrict__ places, u32* unsorted, u32* __restrict__ to_col, double* __restrict__ to_values) {
    const int lane = threadIdx.x % 32;
    for (i64 i = (blockIdx.x * 256ll + threadIdx.x) / 32; i < rows; i += gridDim.x * 8ll) {
        const i64 first = ptr[i], last = ptr[i + 1];
        for (i64 p = first + lane; p < last; p += 32) {
            const u64 number = numbers[p];
            u64 slot = slot_of(number) & mask;
            const bool own = number >= begin && number < end;
            while (!own && keys[slot] != number) slot = (slot + 1) & mask;
            unsorted[p] = own ? (u32)(number - begin) : places[slot];
        }
        __syncwarp();
        for (i64 p = first + lane; p < last; p += 32) {
            const u32 j = unsorted[p];
            i64 at = first;
            for (i64 q = first; q < last; ++q) at += unsorted[q] < j;
            to_col[at] = j;
            for (i64 e = 0; e < size; ++e) to_values[at * size + e] = values[p * size + e];
        }
        __syncwarp();
    }
}

// Row pointers of a part, moved; without a part, those of empty rows.
extern "C" __global__ void __launch_bounds__(256) fetch_pointers(const i64 count, const i64* __restrict__ from, const i64 by, i64* __restrict__ to) {
    for EACH (k, count) to[k] = from ? from[k] + by : by;
}
