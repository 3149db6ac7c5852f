// halo: the exchange of a product among GPUs of one host, inside the product's own launch. Included by
// kron_product.cu, whose constants RUN, PAIR, PIECES and THREADS it uses.
//
// Columns below `own` are this rank's nodes, read from x; column own + g is ghost g, a node of another rank,
// read from `ghosts`. CTAs first store the runs that neighbours need directly into their ghosts, and the last
// CTA to finish raises a flag at each neighbour. Then all CTAs process tiles without ghosts. Before its first
// tile with ghosts a CTA waits for the flags of all neighbours.
// Bytes over the links: 8 RUN for each entry of `nodes`, each way, hidden behind the tiles without ghosts.
//
// Epochs. Exchange number e = 1, 2, … of a rank fills half e & 1 of its neighbours' ghosts and raises their
// flags to e. Neighbourhood is mutual, even if one side sends nothing: every rank to which this rank sends
// raises a flag here. A sending launch ends only after it has seen flag e of all neighbours (its first CTA
// waits even if it has no tile with ghosts).
//
// Without any acknowledgement nothing is overwritten too early. When A stores for epoch e into B, an earlier
// launch of A has seen B's flag e - 1. B raised it in its launch of e - 1. That launch started after B's
// launches of e - 2 had ended, which were the last readers of the half that A now fills. This relies only on
// the order of launches in a rank's stream, so products may follow each other directly. Flags only grow, and
// a wait tests for "at least e", because a neighbour may be one epoch ahead. A launch that halts draws no
// ticket, sends nothing and raises no flag, on any rank: *halt is the same on all. A wait that times out sets
// Group::failed. y is then incomplete, and further launches return at once; group, exchange, mailboxes and
// flags of all ranks must then be set up again.
//
// Sending is split into chunks, which CTAs take by ticket. A chunk always belongs to a running CTA, and a CTA
// waits for neighbours only when no chunk is left. So no launch depends on the number of its resident CTAs or
// on the order in which they start. The single word `ticket` counts both tickets and epochs. Each CTA draws
// until it finds no chunk, so a launch draws chunks + gridDim.x tickets, and the CTA that draws the last one
// starts the next epoch.
//
// Other GPUs write ghosts while this launch runs. This launch reads ghosts only after an acquire of the flags
// (which invalidates L1) and a barrier. The buffers of ghosts hold no other data of a launch.

#include "peers.cuh"

// A neighbour of this rank; 40 bytes, no padding.
struct Neighbour {
    unsigned rank;      // the neighbour's number in the group
    unsigned unused;
    int begin, end;     // range of the neighbour in Exchange::nodes; may be empty
    // Target of the run of node `begin` in its ghosts, by parity of the epoch, at this GPU's address; 16-byte
    // aligned if RUN is even. The runs of begin .. end are contiguous.
    double* ghosts[2];
    u64* flag;          // the word of this rank among the neighbour's flags, at this GPU's address
};

// Stored once in each rank's device memory, written by the host before the first launch; 656 bytes, no
// padding. One exchange serves all products with the same RUN = BLOCK * STAGES and the same ghosts, one
// launch after another in one stream.
struct Exchange {
    u64 ticket;                            // epochs << EPOCH_SHIFT | tickets drawn in this one; starts at 0
    unsigned sent;                         // chunks sent in this epoch; starts at 0
    int neighbours;                        // at most MAX_RANKS - 1
    Group* group;                          // for `failed`, the abort word and the time limit; never null
    const double* ghosts[2];               // this rank's ghosts, by parity of the epoch; 16-byte aligned
    const int* nodes;                      // own nodes to send, by neighbour
    // one per neighbour, in the same order, which the neighbour raises; start at 0
    const u64* flags;
    // the first begins at 0, each further one at the end of the one before
    Neighbour neighbour[MAX_RANKS - 1];
};

constexpr int EPOCH_SHIFT = 24;  // chunks + gridDim.x < 2^24

__device__ __forceinline__ unsigned drawn(u64 ticket) { return (unsigned)ticket & ((1u << EPOCH_SHIFT) - 1); }

template <int numbers> struct PieceOf { typedef double type; };
template <> struct PieceOf<2> { typedef double2 type; };
typedef PieceOf<PAIR>::type Piece;

// Piece number `at` of x, which is in memory or computed.
__device__ __forceinline__ Piece piece(const double* x, long long at) { return ((const Piece*)x)[at]; }
template <class From> __device__ __forceinline__ Piece piece(const From& x, long long at) { return x(at); }

// Stores one chunk of the `total` pieces that are sent: `each` pieces per thread, all loaded before the first
// is stored.
template <int each, class From>
__device__ __forceinline__ void send_chunk(const Exchange* exchange, int chunk, int total, int parity, const From& x) {
    const int first = chunk * each * THREADS + threadIdx.x;
    Piece pieces[each];
#pragma unroll
    for (int i = 0; i < each; ++i) {
        const int at = first + i * THREADS;
        if (at < total) pieces[i] = piece(x, (long long)exchange->nodes[at / PIECES] * PIECES + at % PIECES);
    }
    int n = 0;
#pragma unroll
    for (int i = 0; i < each; ++i) {
        const int at = first + i * THREADS, entry = at / PIECES;
        if (at >= total) return;
        while (entry >= exchange->neighbour[n].end) ++n;
        ((Piece*)exchange->neighbour[n].ghosts[parity])[at - exchange->neighbour[n].begin * PIECES] = pieces[i];
    }
}

// Sends chunks until none is left. `slot` is shared memory: slot[0] holds the ticket that this CTA drew,
// visible to all its threads.
template <class From>
__device__ __forceinline__ void send_all(Exchange* exchange, u64* slot, const From& x) {
    const int count = exchange->neighbours;
    const int total = count ? exchange->neighbour[count - 1].end * PIECES : 0;
    // Few pieces per thread spread the work over the CTAs; many pieces share the latency of a chunk.
    const int share = gridDim.x * THREADS, each = total <= share / 2 ? 1 : total <= share ? 2 : 4;
    const unsigned chunks = max(1, (total + each * THREADS - 1) / (each * THREADS));
    const u64 epoch = (slot[0] >> EPOCH_SHIFT) + 1;
    u64 ticket = slot[0];
    unsigned mine = 0;
    while (drawn(ticket) < chunks) {
        u64 next;
        // in flight while this chunk is sent
        if (threadIdx.x == 0) next = atomicAdd(&exchange->ticket, 1ull);
        const int chunk = drawn(ticket), parity = (int)(epoch & 1);
        switch (each) {
            case 1: send_chunk<1>(exchange, chunk, total, parity, x); break;
            case 2: send_chunk<2>(exchange, chunk, total, parity, x); break;
            default: send_chunk<4>(exchange, chunk, total, parity, x);
        }
        ++mine;
        if (threadIdx.x == 0) slot[mine & 1] = next;
        __syncthreads();  // also orders every store of this chunk before thread 0's fence
        ticket = slot[mine & 1];
    }
    if (threadIdx.x != 0) return;
    if (drawn(ticket) == chunks + gridDim.x - 1) exchange->ticket = epoch << EPOCH_SHIFT;
    if (!mine) return;
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    if (atomicAdd(&exchange->sent, mine) + mine != chunks) return;
    exchange->sent = 0;
    asm volatile("fence.acq_rel.sys;" ::: "memory");  // orders the other CTAs' stores before the flags, too
    for (int n = 0; n < count; ++n)
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(exchange->neighbour[n].flag), "l"(epoch) : "memory");
}

// Waits until all neighbours have sent. The whole CTA calls it; false if the wait timed out.
__device__ __forceinline__ bool await_neighbours(const Exchange* exchange, u64 epoch) {
    bool over = false;
    if ((int)threadIdx.x < exchange->neighbours) {
        Group* group = exchange->group;
        const unsigned rank = exchange->neighbour[threadIdx.x].rank;
        unsigned looks = 0;
        u64 since = 0, seen;
        for (;;) {
            asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(seen) : "l"(exchange->flags + threadIdx.x) : "memory");
            if (seen >= epoch) break;
            if ((over = give_up(group, rank, looks, since))) break;
        }
    }
    return !__syncthreads_or(over);
}

// For products whose launch sends at its start: every block of the launch takes part.
template <class From>
__device__ __forceinline__ void begin_exchange(Exchange* exchange, const From& x) {
    __shared__ u64 tickets[2];
    if (!exchange || exchange->group->failed) return;  // an earlier launch failed: do not wait
    if (threadIdx.x == 0) tickets[0] = atomicAdd(&exchange->ticket, 1ull);
    __syncthreads();
    send_all(exchange, tickets, x);
}

// The ghosts of an exchange that an earlier launch started, or null if the wait timed out. The whole CTA
// calls it.
__device__ __forceinline__ const double* awaited_ghosts(Exchange* exchange) {
    const u64 epoch = exchange->ticket >> EPOCH_SHIFT;
    const bool whole = __syncthreads_and(!exchange->group->failed);
    return whole && await_neighbours(exchange, epoch) ? exchange->ghosts[epoch & 1] : nullptr;
}
