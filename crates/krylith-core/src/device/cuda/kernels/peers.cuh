// peers: sums over the GPUs of one host, by stores into each other's memory. Included by kernels that reduce
// over ranks.
//
// Every rank has a mailbox in its own device memory, mapped by all: [2][size][capacity] letters of 16 bytes,
// indexed by parity of the epoch, sender and value. An all-reduce stores each value together with its epoch,
// as one 16-byte store, into every rank's mailbox (including its own). It then polls its own mailbox until
// all letters of this epoch have arrived, and adds them in the order of ranks, so every rank gets the same
// bits. No fence, no flag and no second trip are needed.
//
// Two halves are enough. A rank stores letters of epoch e only in a later launch (or after a barrier) than
// the one that collected e - 1. It collected e - 1 only after every rank had stored it, hence after every
// rank had collected e - 2, whose place e takes. So no rank can be two epochs ahead of another. A letter is
// never seen half-written: 16 bytes stored and loaded as one .b128 with .relaxed.sys are one access in the
// memory model of PTX (8.3 on, sm_70 on), and a letter of another epoch is ignored.
//
// Every wait ends: about every 4096 polls (a few milliseconds) a thread reads the abort word and the clock. A
// wait that times out sets `failed`. Its sums are NaN, so a method that checks its scalars halts; later calls
// return at once.
//
// All ranks of a group must make the same calls with the same n in the same order. Launches that halt make
// none; the flag *halt is computed from sums, hence the same on all ranks.
//
// Cost for n <= 64 numbers: one store to each rank and one trip over the link.
// Bytes over the links: 16 n (size - 1) each way.

typedef unsigned long long u64;

constexpr int MAX_RANKS = 16;

// A value with the epoch in which it was sent; 16-byte aligned. All are zero before the first all-reduce,
// because epochs start at 1.
struct __align__(16) Letter {
    u64 value;  // the bits of a double
    u64 epoch;
};

// One rank's view of the group; stored in each rank's own device memory, and written by the host before the
// first launch. 8-byte aligned, 168 bytes, no padding. The host may read `failed` at any time (by a copy in
// another stream or after a launch).
struct Group {
    unsigned rank;                   // this rank; < size
    unsigned size;                   // number of ranks; 1 to MAX_RANKS
    unsigned capacity;               // most values of one all-reduce; the same on all ranks
    // 0; else 1 + the awaited rank when the time limit or the abort word ended a wait
    unsigned failed;
    u64 epoch;                       // all-reduces done; starts at 0, counted by the kernels
    u64 limit;                       // longest wait in nanoseconds
    // word in pinned host memory, mapped for this GPU; nonzero: give up. Never null
    const volatile unsigned* abort;
    Letter* mailbox[MAX_RANKS];      // every rank's mailbox at this GPU's address; the first `size` are used
};

// Data of a thread for one all-reduce, loaded once. Load it before the values are known, to hide the latency.
struct Round {
    const Letter* inbox;  // this rank's letters of this epoch
    Letter* to[2];        // targets of this thread's letters, minus the number of the value; null: none
    u64 epoch;
    unsigned size, capacity;
    bool failed;
};

__device__ __forceinline__ Round open_round(const Group* group) {
    Round round;
    round.epoch = group->epoch + 1;
    round.size = group->size, round.capacity = group->capacity, round.failed = group->failed;
    const unsigned half = (unsigned)(round.epoch & 1) * round.size, lane = threadIdx.x % 8;
    const u64 own = (u64)(half + group->rank) * round.capacity;
    round.inbox = group->mailbox[group->rank] + (u64)half * round.capacity;
#pragma unroll
    for (int i = 0; i < 2; ++i) round.to[i] = lane + 8 * i < round.size ? group->mailbox[lane + 8 * i] + own : nullptr;
    return round;
}

// Sends value i, which is x, to every rank. Eight neighbouring threads (threadIdx.x / 8 equal) call it
// together with the same i and x.
__device__ __forceinline__ void post(const Round& round, int i, double x) {
    if (round.failed) return;
#pragma unroll
    for (int h = 0; h < 2; ++h)
        if (round.to[h])
            asm volatile("{ .reg .b128 l; mov.b128 l, {%1, %2}; st.relaxed.sys.global.b128 [%0], l; }" ::"l"(round.to[h] + i),
                         "l"(__double_as_longlong(x)), "l"(round.epoch)
                         : "memory");
}

__device__ __forceinline__ Letter look(const Letter* at) {
    Letter letter;
    asm volatile("{ .reg .b128 l; ld.relaxed.sys.global.b128 l, [%2]; mov.b128 {%0, %1}, l; }"
                 : "=l"(letter.value), "=l"(letter.epoch) : "l"(at) : "memory");
    return letter;
}

// Called after one more unsuccessful poll for `rank`; returns whether to give up. `since` is 0 at first, then
// the time of the first check.
__device__ __forceinline__ bool give_up(Group* group, unsigned rank, unsigned& looks, u64& since) {
    if (++looks % 4096) return false;
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (!since) since = now;
    const bool over = *group->abort || now - since > group->limit || *(volatile unsigned*)&group->failed;
    if (over) atomicCAS(&group->failed, 0u, 1 + rank);
    return over;
}

// Value i summed over the ranks, in their order; NaN if this or an earlier wait timed out. Called by one
// thread.
__device__ __forceinline__ double collect(Group* group, const Round& round, int i) {
    const double nan = __longlong_as_double(0x7ff8000000000000);
    constexpr int AT_ONCE = 8;  // letters loaded together, to share the latency
    if (round.failed) return nan;
    double sum = 0;
    for (unsigned first = 0; first < round.size; first += AT_ONCE) {
        Letter letters[AT_ONCE];
        unsigned looks = 0;
        u64 since = 0;
        for (;;) {
            unsigned missing = ~0u;
#pragma unroll
            for (int u = 0; u < AT_ONCE; ++u)
                if (first + u < round.size) letters[u] = look(round.inbox + (u64)(first + u) * round.capacity + i);
#pragma unroll
            for (int u = AT_ONCE - 1; u >= 0; --u)
                if (first + u < round.size && letters[u].epoch != round.epoch) missing = first + u;
            if (missing == ~0u) break;
            if (give_up(group, missing, looks, since)) return nan;
        }
#pragma unroll
        for (int u = 0; u < AT_ONCE; ++u)
            if (first + u < round.size) sum += __longlong_as_double(letters[u].value);
    }
    return sum;
}

// Ends the round; the whole block calls it, after everything of this round was posted and collected.
__device__ __forceinline__ void close_round(Group* group) {
    __syncthreads();
    if (threadIdx.x == 0) group->epoch += 1;
}

// Sums values[0 .. n] over the ranks, in place; n <= capacity. Called by one whole block of the launch, with
// a multiple of 8 threads. The values must be visible to the block: written before the launch, or before a
// barrier.
__device__ __forceinline__ void all_reduce(Group* group, double* values, int n) {
    const Round round = open_round(group);
    for (int i = threadIdx.x / 8; i < n; i += blockDim.x / 8) post(round, i, values[i]);
    __syncthreads();  // all threads that post a value have read it before it is replaced
    for (int i = threadIdx.x; i < n; i += blockDim.x) values[i] = collect(group, round, i);
    close_round(group);
}
