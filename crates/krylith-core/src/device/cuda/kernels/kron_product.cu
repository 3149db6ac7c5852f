// y = (A (x) M + B (x) L) x with point-block matrices M, L of one pattern; TERMS 1: (A (x) M) x; with STAGES
// 1 the plain product.
// Constants:
// - BLOCK, STAGES, TERMS; VALUE (double or float as stored).
// - SLOTS and SLOT_TABLE: packed place of entry (term, r, c), -1: zero in every block; both absent: dense.
// - THREADS; SLICES (divides BLOCK): groups of rows whose packed values are contiguous.
// - TILE: most blocks of a tile, <= 1020.
// - BY_ROWS: mapping, see below; dense and SLICES 1 only.
// - SHARES: by blocks, threads that share a block (SLICES or, with SLICES 1, any number up to BLOCK); by
//   rows, lanes that share a row (a power of two).
// - DEPTH: tiles in flight; CTAS: launch bound; ACCUMULATE; HALO (1: some columns are ghosts, see below).
//
// Bytes moved at least: the values once, one byte per block (two if TILE > 256), 4 bytes per distinct node of
// a tile, 6 bytes per row, x and y.
//
// Mapping: resident CTAs loop over tiles of whole rows. Values, indices and x of the next tile are copied to
// shared memory asynchronously while the present tile is multiplied: values as one contiguous copy, and each
// run of x once per tile, however many blocks use it. Every memory access is coalesced for any BLOCK. By
// blocks: one thread per block (and share of its rows) multiplies, its products go to shared memory, and each
// row is summed in the order of its blocks. By rows: one lane per (row, component, share of its blocks) keeps
// all stages in registers, which is faster for small blocks with several stages.
//
// HALO 1 takes six more arguments. The launch processes tiles begin <= t < tile_count; those from
// first_boundary on have ghosts: columns >= own, at ghosts + (column - own) * RUN. With an exchange
// (halo.cuh) the ghosts belong to it and `ghosts` is not read. A launch with send != 0 starts an epoch, and a
// further launch of the same product (terms of other patterns) with send == 0 reads the same ghosts. A
// sending launch must be made even if there is no tile. With exchange null nothing is sent and nothing is
// waited for: other transports bring the ghosts, and interior and boundary tiles are two launches.
// kron_long_rows follows them all, as without ghosts.
#ifndef TERMS
#define TERMS 2
#endif
#ifndef VALUE
#define VALUE double
#endif
#ifndef SLICES
#define SLICES 1
#endif
#ifndef TILE
#define TILE (THREADS / SLICES)
#endif
#ifndef DEPTH
#define DEPTH 2
#endif
#ifndef BY_ROWS
#define BY_ROWS 0
#endif
#ifndef SHARES
#define SHARES SLICES
#endif
#ifndef CTAS
#define CTAS 1
#endif
#ifndef ACCUMULATE
#define ACCUMULATE 0
#endif
#ifndef SLOTS
#define SLOTS (TERMS * BLOCK * BLOCK)
#endif
#ifndef HALO
#define HALO 0
#endif

constexpr int RUN = BLOCK * STAGES;                   // numbers of one node, contiguous in x and y
constexpr int PAIR = RUN % 2 == 0 ? 2 : 1;            // numbers copied at once through shared memory
constexpr int PIECES = RUN / PAIR;
// odd in units of PAIR: neighbouring runs use different banks
constexpr int STRIDE = PAIR == 2 ? (PIECES | 1) * 2 : RUN;
constexpr int LANES = THREADS / SHARES;               // threads of one share, a multiple of 32
constexpr int ROWS = BLOCK / SLICES;                  // rows of a slice
constexpr int OWN = SLOTS / SLICES;                   // slots per slice
constexpr int FULL = 16 / sizeof(VALUE);
constexpr int VECTOR = OWN % FULL == 0 ? FULL : OWN % 2 == 0 ? 2 : 1;  // contiguous slots of a block
constexpr int ODD = SLOTS * sizeof(VALUE) % 16;
// a tile's width is a multiple of this, so that tiles are multiples of 16 bytes
constexpr int ROUND = ODD == 0 ? 1 : ODD == 8 ? 2 : 4;

#if HALO
#include "halo.cuh"
#endif

struct Coefficients { double a[TERMS][STAGES][STAGES]; };
// A and tau B, row-major. Constant memory of this module, which each operator loads for itself: a new tau is
// a copy of s * s numbers, and recorded graphs stay valid.
__constant__ Coefficients coefficients;
struct Header { unsigned position; int blocks, nodes, rows; };  // the first 16 bytes of a tile's record
template <int bytes> struct Local { typedef unsigned short type; };
template <> struct Local<1> { typedef unsigned char type; };
typedef Local<TILE <= 256 ? 1 : 2>::type LocalNode;

// Place of entry (r, c) of a term among the packed values of a block; -1: zero in every block.
__device__ __forceinline__ constexpr int slot(int term, int r, int c) {
#ifdef SLOT_TABLE
    constexpr int table[TERMS * BLOCK * BLOCK] = {SLOT_TABLE};
    return table[(term * BLOCK + r) * BLOCK + c];
#else
    return ((r / ROWS * BLOCK + c) * ROWS + r % ROWS) * TERMS + term;
#endif
}

// Values are read once: in the L2 cache they should evict values, not x, which later tiles read again.
__device__ __forceinline__ unsigned long long read_once() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}
__device__ __forceinline__ void copy_once(unsigned address, const void* from, unsigned long long policy) {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "l"(policy));
}
template <int bytes> __device__ __forceinline__ void copy(void* to, const void* from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(bytes));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }

template <class T, int n> struct alignas(n * sizeof(T)) Packet { T v[n]; };

// The products of `count` rows of a block, from row `first` on, with its run of x, including A and B. Slot j
// of the block: stage[(j / VECTOR * width) * VECTOR + j % VECTOR].
template <int first, int count>
__device__ __forceinline__ void multiply(const VALUE* stage, int width, const double* run, double* out) {
    // columns read at once, so that pairs are not split
    constexpr int STEP = PAIR == 2 && STAGES % 2 == 1 ? 2 : 1;
    double sum[TERMS][count][STAGES];
    bool used[TERMS][count], here[SLOTS / VECTOR];
#pragma unroll
    for (int t = 0; t < TERMS; ++t)
#pragma unroll
        for (int r = 0; r < count; ++r) used[t][r] = false;
#pragma unroll
    for (int j = 0; j < SLOTS / VECTOR; ++j) here[j] = false;
    VALUE own[SLOTS];
#pragma unroll
    for (int c0 = 0; c0 < BLOCK; c0 += STEP) {
        double v[STEP * STAGES];
#pragma unroll
        for (int i = 0; i < STEP * STAGES; i += PAIR) {
            const Packet<double, PAIR> p = *(const Packet<double, PAIR>*)(run + c0 * STAGES + i);
#pragma unroll
            for (int h = 0; h < PAIR; ++h) v[i + h] = p.v[h];
        }
#pragma unroll
        for (int c = c0; c < c0 + STEP; ++c)
#pragma unroll
            for (int r = 0; r < count; ++r)
#pragma unroll
                for (int t = 0; t < TERMS; ++t) {
                    const int s = slot(t, first + r, c), j = s / VECTOR;
                    if (s < 0) continue;
                    if (!here[j]) {
                        const Packet<VALUE, VECTOR> p = *(const Packet<VALUE, VECTOR>*)(stage + j * VECTOR * width);
#pragma unroll
                        for (int h = 0; h < VECTOR; ++h) own[j * VECTOR + h] = p.v[h];
                        here[j] = true;
                    }
                    const double a = (double)own[s];
#pragma unroll
                    for (int k = 0; k < STAGES; ++k) {
                        const double b = v[(c - c0) * STAGES + k];
                        sum[t][r][k] = used[t][r] ? fma(a, b, sum[t][r][k]) : a * b;
                    }
                    used[t][r] = true;
                }
    }
    double result[count * STAGES];
#pragma unroll
    for (int r = 0; r < count; ++r)
#pragma unroll
        for (int k = 0; k < STAGES; ++k) {
            double y = 0.0;
#pragma unroll
            for (int t = 0; t < TERMS; ++t)
                if (used[t][r])
#pragma unroll
                    for (int q = 0; q < STAGES; ++q) y = fma(coefficients.a[t][k][q], sum[t][r][q], y);
            result[r * STAGES + k] = y;
        }
    constexpr int WIDE = count * STAGES % 2 == 0 && first * STAGES % 2 == 0 ? PAIR : 1;
#pragma unroll
    for (int i = 0; i < count * STAGES; i += WIDE) {
        Packet<double, WIDE> p;
#pragma unroll
        for (int h = 0; h < WIDE; ++h) p.v[h] = result[i + h];
        *(Packet<double, WIDE>*)(out + i) = p;
    }
}

// The work of each thread of a block. Shares of equal rows of a dense block are alike and use the same code.
#ifdef SLOT_TABLE
constexpr bool ALIKE = false;
#else
constexpr bool ALIKE = SHARES == SLICES;
#endif
template <int s>
__device__ __forceinline__ void multiply_share(int share, const VALUE* stage, int width, const double* run, double* out) {
    constexpr int FIRST = s * BLOCK / SHARES, COUNT = (s + 1) * BLOCK / SHARES - FIRST;
    if constexpr (ALIKE) multiply<0, ROWS>(stage + share * OWN * width, width, run, out + share * (ROWS * STAGES));
    else if (s == SHARES - 1 || share == s) multiply<FIRST, COUNT>(stage, width, run, out + FIRST * STAGES);
    else if constexpr (s + 1 < SHARES) multiply_share<s + 1>(share, stage, width, run, out);
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS)
kron_product(const int* halt, const int tile_count, const unsigned* __restrict__ starts, const char* __restrict__ records,
             const VALUE* __restrict__ values, const double* __restrict__ x, double* __restrict__ y,
             double* __restrict__ parts, const int node_capacity, const int record_capacity
#if HALO
             , const int begin, const int first_boundary, const int own, const double* ghosts, Exchange* exchange, const int send
#endif
) {
#if !HALO
    constexpr int begin = 0;
#endif
    const int halted = halt ? *halt : 0;
    constexpr int STAGE = (TILE + ROUND - 1) / ROUND * ROUND * SLOTS, RING = 2 * DEPTH - 1;
    extern __shared__ __align__(16) char shared[];
    VALUE* const stages = (VALUE*)shared;  // [DEPTH][STAGE]: values of this tile and the next
    // [DEPTH][node_capacity][STRIDE]: their x, once per node
    double* const runs = (double*)(stages + DEPTH * STAGE);
    // [RING][record_capacity]: records of these and later tiles
    char* const ring = (char*)(runs + DEPTH * node_capacity * STRIDE + DEPTH * node_capacity * STRIDE % 2);
    // [TILE][STRIDE]: contribution of each block to its row
    double* const sums = (double*)(ring + RING * record_capacity);
    const int share = threadIdx.x / LANES, lane = threadIdx.x % LANES, step = gridDim.x;

    const unsigned long long policy = read_once();
    // Some copies with a policy become illegal instructions if part of the shared address is in a uniform
    // register (ptxas 13.0). The shuffle of each lane with itself hides from the compiler that the base and
    // the first stage, zero, are uniform.
    const unsigned base = (unsigned)__cvta_generic_to_shared(stages) + threadIdx.x * 16, hidden = __shfl_sync(~0u, base, threadIdx.x % 32);
    const int zero = (int)(hidden - base);

#if HALO
    const double* far = ghosts - (long long)own * RUN;
    auto column = [&](int node) { return (node < own ? x : far) + (long long)node * RUN; };
#else
    auto column = [&](int node) { return x + (long long)node * RUN; };
#endif
    auto locate = [&](int t) { return t < tile_count ? make_uint2(starts[t], starts[t + 1]) : make_uint2(0, 0); };
    auto copy_record = [&](const uint2& place, int slot) {
        const int bytes = (place.y - place.x) * 16;
        for (int i = threadIdx.x * 16; i < bytes; i += THREADS * 16) copy<16>(ring + slot * record_capacity + i, records + (unsigned long long)place.x * 16 + i);
    };
    // loads the values and the x of the tile whose record is in that slot
    auto copy_tile = [&](int slot, int stage) {
        const Header tile = *(const Header*)(ring + slot * record_capacity);
        const int bytes = (tile.blocks + ROUND - 1) / ROUND * ROUND * (SLOTS * (int)sizeof(VALUE)), end = tile.nodes * PIECES;
        const char* from = (const char*)values + (unsigned long long)tile.position * (4 * SLOTS * sizeof(VALUE));
        const int* nodes = (const int*)(ring + slot * record_capacity + sizeof(Header));
        for (int i = 0; i < bytes - (int)threadIdx.x * 16; i += THREADS * 16)
            copy_once(hidden + stage * (STAGE * (int)sizeof(VALUE)) + i, from + threadIdx.x * 16 + i, policy);
        for (int i = threadIdx.x; i < end; i += THREADS) {
            const int node = i / PIECES, piece = i % PIECES;
            copy<PAIR * 8>(runs + (stage * node_capacity + node) * STRIDE + piece * PAIR, column(nodes[node]) + piece * PAIR);
        }
    };
    auto target = [&](int row, int e) {  // row < 0: part ~row of a row longer than a tile
        return row < 0 ? parts + (long long)~row * RUN + e : y + (long long)row * RUN + e;
    };

    const int first = begin + blockIdx.x;
    for (int i = 0; i < RING - 1; ++i) copy_record(locate(first + i * step), i);
    commit();
    uint2 ahead = locate(first + (RING - 1) * step);
    if (halted) return;
#if HALO
    // Tickets use the space of the last stage, which is filled only after everything is sent. A static
    // variable would shift the stages off their 128-byte lines, which costs a fifth of the speed.
    u64* const tickets = (u64*)(stages + (DEPTH - 1) * STAGE);
    u64 epoch = 0;
    bool sending = exchange && send, ready = !exchange, failed = false;
    // CTAs with one tile less than others draw first, so that they send most of the data.
    const bool early = blockIdx.x >= (unsigned)(tile_count - begin) % gridDim.x;
    if (exchange) {
        if (threadIdx.x == 0 && !send) tickets[0] = exchange->ticket;
        if (threadIdx.x == 0 && send && early) tickets[0] = atomicAdd(&exchange->ticket, 1ull);
        failed = exchange->group->failed;  // in an earlier launch, or by another CTA in this one
    }
    // Sends the remaining chunks before any wait, so that neighbours that wait for this rank can continue.
    auto send_rest = [&] {
        if (!sending) return;
        sending = false;
        if (!early) {
            if (threadIdx.x == 0) tickets[0] = atomicAdd(&exchange->ticket, 1ull);
            __syncthreads();
        }
        epoch = (tickets[0] >> EPOCH_SHIFT) + 1;
        send_all(exchange, tickets, x);
    };
    // Returns when the ghosts of this epoch have arrived, or false if they will not arrive.
    auto await = [&] {
        send_rest();
        far = exchange->ghosts[epoch & 1] - (long long)own * RUN;
        return ready = await_neighbours(exchange, epoch);
    };
#endif
    asm volatile("cp.async.wait_all;" ::: "memory");
#if HALO
    if (__syncthreads_or(failed)) return;
    if (exchange && !send) epoch = tickets[0] >> EPOCH_SHIFT;
#else
    __syncthreads();
#endif
    for (int i = 0; i < DEPTH - 1; ++i) {
#if HALO
        if (!ready && first + i * step < tile_count && first + i * step >= first_boundary && !await()) return;
#endif
        if (first + i * step < tile_count) copy_tile(i, zero + i);
        commit();
    }
#if HALO
    send_rest();  // while the first tile is in flight
#endif
    int stage = zero, slot = 0;
    for (int t = first; t < tile_count; t += step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 2) : "memory");
        // this tile and the record DEPTH - 1 ahead have arrived; the last tile is no longer needed
        __syncthreads();
#if HALO
        const int next = t + (DEPTH - 1) * step;
        if (!ready && next < tile_count && next >= first_boundary && !await()) return;
#endif
        if (t + (DEPTH - 1) * step < tile_count) copy_tile((slot + DEPTH - 1) % RING, stage == 0 ? DEPTH - 1 : stage - 1);
        copy_record(ahead, slot == 0 ? RING - 1 : slot - 1);
        commit();
        ahead = locate(t + RING * step);
        const char* record = ring + slot * record_capacity;
        const Header tile = *(const Header*)record;
        const int* ids = (const int*)(record + sizeof(Header)) + tile.nodes;
        const unsigned short* ends = (const unsigned short*)(ids + tile.rows);
        const LocalNode* locals = (const LocalNode*)(ends + tile.rows);
        const int width = (tile.blocks + ROUND - 1) / ROUND * ROUND;
#if BY_ROWS
        constexpr int UNROLL = BLOCK == 1 ? 5 : BLOCK == 2 ? 3 : 1;
        constexpr int TOGETHER = STAGES % 2 == 0 ? 2 : 1;  // numbers of x and y that are copied at once
        constexpr int ENTRY = VECTOR % TERMS == 0 ? TERMS : 1;  // contiguous values of one entry
        const int lanes = tile.rows * (BLOCK * SHARES);
        for (int o = threadIdx.x; o < (lanes + 31 & ~31); o += THREADS) {
            const int part = o % SHARES, r = o / SHARES % BLOCK, i = o / (SHARES * BLOCK);
            double sum[TERMS][STAGES] = {};
            if (o < lanes) {
                const VALUE* mine = stages + stage * STAGE;
                const double* run = runs + stage * node_capacity * STRIDE;
                const int end = ends[i];
#pragma unroll UNROLL
                for (int p = (i ? ends[i - 1] : 0) + part; p < end; p += SHARES) {
                    const int local = locals[p] * STRIDE;
#pragma unroll
                    for (int c = 0; c < BLOCK; ++c) {
                        const int s = (c * BLOCK + r) * TERMS;
                        Packet<VALUE, ENTRY> entry[TERMS / ENTRY];
#pragma unroll
                        for (int t = 0; t < TERMS; t += ENTRY)
                            entry[t / ENTRY] = *(const Packet<VALUE, ENTRY>*)(mine + ((s + t) / VECTOR * width + p) * VECTOR + (s + t) % VECTOR);
#pragma unroll
                        for (int k = 0; k < STAGES; k += TOGETHER) {
                            const Packet<double, TOGETHER> v = *(const Packet<double, TOGETHER>*)(run + local + c * STAGES + k);
#pragma unroll
                            for (int t = 0; t < TERMS; ++t)
#pragma unroll
                                for (int h = 0; h < TOGETHER; ++h) sum[t][k + h] = fma((double)entry[t / ENTRY].v[t % ENTRY], v.v[h], sum[t][k + h]);
                        }
                    }
                }
            }
#pragma unroll
            for (int d = 1; d < SHARES; d *= 2)
#pragma unroll
                for (int t = 0; t < TERMS; ++t)
#pragma unroll
                    for (int k = 0; k < STAGES; ++k) sum[t][k] += __shfl_xor_sync(~0u, sum[t][k], d);
            if (o < lanes && part == 0) {
                const int row = ids[i];
                double* to = target(row, r * STAGES);
#pragma unroll
                for (int k = 0; k < STAGES; k += TOGETHER) {
                    Packet<double, TOGETHER> p;
#pragma unroll
                    for (int h = 0; h < TOGETHER; ++h) {
                        double result = ACCUMULATE && row >= 0 ? to[k + h] : 0.0;
#pragma unroll
                        for (int t = 0; t < TERMS; ++t)
#pragma unroll
                            for (int q = 0; q < STAGES; ++q) result = fma(coefficients.a[t][k + h][q], sum[t][q], result);
                        p.v[h] = result;
                    }
                    *(Packet<double, TOGETHER>*)(to + k) = p;
                }
            }
        }
#else
#pragma unroll
        for (int p = lane; p < TILE; p += LANES)
            if (p < tile.blocks)
                multiply_share<0>(share, stages + stage * STAGE + p * VECTOR, width,
                                  runs + (stage * node_capacity + locals[p]) * STRIDE, sums + p * STRIDE);
        __syncthreads();
        for (int o = threadIdx.x; o < tile.rows * RUN; o += THREADS) {
            const int r = o / RUN, e = o % RUN, end = ends[r];
            double sum = 0.0;
#pragma unroll 5
            for (int p = r ? ends[r - 1] : 0; p < end; ++p) sum += sums[p * STRIDE + e];
            const int row = ids[r];
            double* to = target(row, e);
            *to = ACCUMULATE && row >= 0 ? *to + sum : sum;
        }
#endif
        stage = stage == DEPTH - 1 ? 0 : stage + 1;
        slot = slot == RING - 1 ? 0 : slot + 1;
    }
#if HALO
    if (!ready && send && blockIdx.x == 0) await();  // a sending launch ends after its neighbours have sent
#endif
}

// Rows longer than a tile: adds their parts in order. One thread per number; launched only if such rows
// exist. long_rows: row, first part, end part for each.
extern "C" __global__ void kron_long_rows(const int* halt, int count, const int* __restrict__ long_rows, const double* __restrict__ parts, double* __restrict__ y) {
    if (halt && *halt) return;
    const int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= count * RUN) return;
    const int* it = long_rows + o / RUN * 3;
    double sum = 0.0;
    for (int p = it[1]; p < it[2]; ++p) sum += parts[(long long)p * RUN + o % RUN];
    double* out = y + (long long)it[0] * RUN + o % RUN;
    *out = ACCUMULATE ? *out + sum : sum;
}

#include "kron_pack.cuh"
#include "kron_residual.cuh"
