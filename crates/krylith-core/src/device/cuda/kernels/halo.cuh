// halo: the exchange of a product among GPUs of one host, inside the product's own launch. Included by
// kron_product.cu, whose constants RUN, PAIR, PIECES and THREADS it uses.
//
// Columns below `own` are this rank's nodes, read from x; column own + g is ghost g, a node of another rank, read from
// `ghosts`. CTAs first store the runs that neighbours need straight into their ghosts, and the last to finish raises a flag at
// each neighbour; then all walk tiles without ghosts; before its first tile with ghosts a CTA waits for the flags of all
// neighbours. Bytes over the links: 8 RUN for each entry of `nodes`, each way; hidden behind the tiles without ghosts.
//
// Epochs. Exchange number e = 1, 2, … of a rank fills half e & 1 of its neighbours' ghosts and raises their flags to e. To be
// a neighbour is mutual, also where nothing is sent one way: all that this rank sends to raise a flag here. A sending launch
// ends only after it has seen flag e of all neighbours (its first CTA waits even if it has no tile with ghosts).
// Nothing is overwritten too early, with no acknowledgement: when A stores for epoch e into B, an earlier launch of A has seen
// B's flag e - 1. B raised it in its launch of e - 1, which began when B's launches of e - 2, all readers of the half
// that A now fills, had ended. This uses nothing but the order of launches in a rank's stream, so products may follow
// each other with nothing between. Flags only grow, and "at least e" is asked for: a neighbour may be one ahead.
// A launch that halts draws no ticket, sends and raises nothing, on any rank: *halt is the same on all.
// A wait that was given up sets Group::failed; y is then not complete, and further launches return at once. Group, exchange, mailboxes
// and flags of all ranks must be set up anew after that.
//
// Sending is split into chunks, which CTAs take by ticket: a chunk is always in the hands of a CTA that runs, and a CTA
// waits for neighbours only when no chunk is left. So no launch depends on how many of its CTAs are resident together,
// or in which order they start. The one word `ticket` counts both tickets and epochs. Each CTA draws until it finds no chunk,
// so chunks + gridDim.x tickets are drawn a launch, and whoever draws the last one begins the next epoch.
//
// Ghosts are written by other GPUs while this launch runs. They are read only after an acquire of the flags (which
// drops what L1 holds) and a barrier, and no other data of a launch lies in their buffers.

#include "peers.cuh"

// A rank that this one exchanges with; 40 bytes, no padding.
struct Neighbour {
    unsigned rank;      // its number in the group
    unsigned unused;
    int begin, end;     // its part of Exchange::nodes; may be empty
    double* ghosts[2];  // where the run of node `begin` goes in its ghosts, by parity of the epoch, as this GPU addresses it;
                        // 16-byte aligned if RUN is even. The runs of begin .. end follow each other
    u64* flag;          // the word of this rank among its flags, as this GPU addresses it
};

// One in each rank's device memory, written by the host before the first launch; 656 bytes, no padding. One exchange serves all
// products of one RUN = BLOCK * STAGES with the same ghosts, one launch after another in one stream.
struct Exchange {
    u64 ticket;                            // epochs << EPOCH_SHIFT | tickets drawn in this one; starts at 0
    unsigned sent;                         // chunks sent in this epoch; starts at 0
    int neighbours;                        // at most MAX_RANKS - 1
    Group* group;                          // for `failed`, the abort word and the time limit; never null
    const double* ghosts[2];               // this rank's ghosts, by parity of the epoch; 16-byte aligned
    const int* nodes;                      // own nodes to send, neighbour by neighbour
    const u64* flags;                      // one for each neighbour, in the same order, raised by it; start at 0
    Neighbour neighbour[MAX_RANKS - 1];    // begin of the first is 0, begin of each further one the end of the one before
};

constexpr int EPOCH_SHIFT = 24;  // chunks + gridDim.x < 2^24

__device__ __forceinline__ unsigned drawn(u64 ticket) { return (unsigned)ticket & ((1u << EPOCH_SHIFT) - 1); }

template <int numbers> struct PieceOf { typedef double type; };
template <> struct PieceOf<2> { typedef double2 type; };
typedef PieceOf<PAIR>::type Piece;

// Stores one chunk of the `total` pieces that are sent: `each` of them a thread, all loaded before the first is stored.
template <int each>
__device__ __forceinline__ void send_chunk(const Exchange* exchange, int chunk, int total, int parity, const double* x) {
    const int first = chunk * each * THREADS + threadIdx.x;
    Piece pieces[each];
#pragma unroll
    for (int i = 0; i < each; ++i) {
        const int at = first + i * THREADS;
        if (at < total) pieces[i] = ((const Piece*)x)[(long long)exchange->nodes[at / PIECES] * PIECES + at % PIECES];
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

// Sends chunks until none is left. `slot` is shared memory: slot[0] holds the ticket that this CTA drew, seen by all its threads.
__device__ __forceinline__ void send_all(Exchange* exchange, u64* slot, const double* x) {
    const int count = exchange->neighbours;
    const int total = count ? exchange->neighbour[count - 1].end * PIECES : 0;
    // Few pieces a thread spread the work over the CTAs; many share the latency of a chunk.
    const int share = gridDim.x * THREADS, each = total <= share / 2 ? 1 : total <= share ? 2 : 4;
    const unsigned chunks = max(1, (total + each * THREADS - 1) / (each * THREADS));
    const u64 epoch = (slot[0] >> EPOCH_SHIFT) + 1;
    u64 ticket = slot[0];
    unsigned mine = 0;
    while (drawn(ticket) < chunks) {
        u64 next;
        if (threadIdx.x == 0) next = atomicAdd(&exchange->ticket, 1ull);  // under way while this chunk is sent
        const int chunk = drawn(ticket), parity = (int)(epoch & 1);
        switch (each) {
            case 1: send_chunk<1>(exchange, chunk, total, parity, x); break;
            case 2: send_chunk<2>(exchange, chunk, total, parity, x); break;
            default: send_chunk<4>(exchange, chunk, total, parity, x);
        }
        ++mine;
        if (threadIdx.x == 0) slot[mine & 1] = next;
        __syncthreads();  // also: every store of this chunk comes before thread 0's fence
        ticket = slot[mine & 1];
    }
    if (threadIdx.x != 0) return;
    if (drawn(ticket) == chunks + gridDim.x - 1) exchange->ticket = epoch << EPOCH_SHIFT;
    if (!mine) return;
    asm volatile("fence.acq_rel.sys;" ::: "memory");
    if (atomicAdd(&exchange->sent, mine) + mine != chunks) return;
    exchange->sent = 0;
    asm volatile("fence.acq_rel.sys;" ::: "memory");  // the other CTAs' stores come before the flags too
    for (int n = 0; n < count; ++n)
        asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(exchange->neighbour[n].flag), "l"(epoch) : "memory");
}

// Waits until all neighbours have sent. The whole CTA calls it; false if the wait was given up.
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

// For products whose launch sends at its very beginning: every block of the launch takes part.
__device__ __forceinline__ void begin_exchange(Exchange* exchange, const double* x) {
    __shared__ u64 tickets[2];
    if (!exchange || exchange->group->failed) return;  // of an earlier launch: nobody waits in this one
    if (threadIdx.x == 0) tickets[0] = atomicAdd(&exchange->ticket, 1ull);
    __syncthreads();
    send_all(exchange, tickets, x);
}

// The ghosts of an exchange that an earlier launch began, or null where the wait was given up. The whole CTA calls it.
__device__ __forceinline__ const double* awaited_ghosts(Exchange* exchange) {
    const u64 epoch = exchange->ticket >> EPOCH_SHIFT;
    const bool whole = __syncthreads_and(!exchange->group->failed);
    return whole && await_neighbours(exchange, epoch) ? exchange->ghosts[epoch & 1] : nullptr;
}
