// replicated: kernels for GPUs that share the rows of a product and each need the whole result: the division
// of the rows, found on the GPU that holds the row pointers, and the waits for each other.
//
// Bytes moved by longest_row: 8 per row, once; by row_pointers and search_rows: a few words, with one thread
// per search; by rebase: 16 per row; by wait_for_all: a flag of 8 bytes to each other GPU.

#include "peers.cuh"

typedef long long i64;

// The first of the longest rows as a key: length << 32 | 2^32 - 1 - row, so that the largest key is the
// answer. *key starts as 0.
extern "C" __global__ void __launch_bounds__(256) longest_row(const i64 rows, const i64* __restrict__ row_ptr, u64* key) {
    u64 best = 0;
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < rows; i += (i64)gridDim.x * blockDim.x) {
        const u64 own = (u64)(row_ptr[i + 1] - row_ptr[i]) << 32 | (0xffffffffu - (unsigned)i);
        best = own > best ? own : best;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) {
        const u64 other = __shfl_xor_sync(~0u, best, d);
        best = other > best ? other : best;
    }
    if (threadIdx.x % 32 == 0 && best) atomicMax(key, best);
}

constexpr int POINTERS = 8, SEARCHES = 32;

struct Rows { i64 row[POINTERS]; };

// Number of entries before some rows. One block of POINTERS threads.
extern "C" __global__ void row_pointers(const Rows asked, const int count, const i64* __restrict__ row_ptr, i64* __restrict__ to) {
    const int i = threadIdx.x;
    if (i < count) to[i] = row_ptr[asked.row[i]];
}

// Mirrors `Search` in partition/replicated.rs, with the fold that it works on.
struct Search { i64 start, skipped, entries, low, high, wanted; };
struct Searches { Search search[SEARCHES]; };

// The row in low..high before which the number of entries is nearest to `wanted`, and that number. One block
// of SEARCHES threads.
extern "C" __global__ void search_rows(const Searches all, const int count, const i64* __restrict__ row_ptr, i64* __restrict__ to) {
    if ((int)threadIdx.x >= count) return;
    const Search s = all.search[threadIdx.x];
    auto before = [&](i64 v) { return v <= s.start ? row_ptr[v] : row_ptr[v + s.skipped] - s.entries; };
    i64 low = s.low, high = s.high;
    while (low < high) {
        const i64 middle = low + (high - low) / 2;
        if (before(middle) < s.wanted) low = middle + 1;
        else high = middle;
    }
    i64 here = before(low);
    if (low > s.low) {
        const i64 last = before(low - 1), away = here > s.wanted ? here - s.wanted : s.wanted - here;
        if (s.wanted - last < away) --low, here = last;
    }
    to[2 * threadIdx.x] = low;
    to[2 * threadIdx.x + 1] = here;
}

// Row pointers of a run of rows, counted from entry `base`; in place if both are the same array.
extern "C" __global__ void rebase(const i64 count, const i64 base, const i64* from, i64* to) {
    for (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < count; i += (i64)gridDim.x * blockDim.x) to[i] = from[i] - base;
}

// A GPU's wait for all others. One in each GPU's memory, written by the host before the first launch; 160
// bytes.
struct Meeting {
    // number of waits done; starts at 0, counted by the kernel, so that recorded launches can be replayed
    u64 epoch;
    unsigned rank, size;  // of this GPU; and the number of GPUs, at most MAX_RANKS
    Group* group;         // for `failed`, the abort word and the time limit; never null
    const u64* flags;     // one per rank, which that rank raises; start at 0
    u64* flag[MAX_RANKS]; // the word of this rank among the flags of each
};

// Waits until all GPUs have reached this barrier as often as this one. All earlier work in a GPU's stream,
// including stores and copies into the memory of other GPUs, is done and visible to all when their launches
// of this kernel end. One warp. It ignores halts, because copies between two barriers are always made, so all
// ranks must call it at the same point of the program. *broken becomes NaN if this or an earlier wait timed
// out; if it is null, nothing is written.
extern "C" __global__ void __launch_bounds__(32) wait_for_all(Meeting* meeting, double* broken) {
    Group* const group = meeting->group;
    const unsigned rank = threadIdx.x;
    const u64 epoch = meeting->epoch + 1;
    bool over = *(volatile unsigned*)&group->failed;
    if (rank < meeting->size && !over) {
        asm volatile("fence.acq_rel.sys;" ::: "memory");
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(meeting->flag[rank]), "l"(epoch) : "memory");
        unsigned looks = 0;
        u64 since = 0, seen;
        for (;;) {
            asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(meeting->flags + rank) : "memory");
            if (seen >= epoch) break;
            if ((over = give_up(group, rank, looks, since))) break;
        }
    }
    over = __any_sync(~0u, over);
    if (threadIdx.x > 0) return;
    meeting->epoch = epoch;
    if (over && broken) *broken = __longlong_as_double(0x7ff8000000000000);
}
