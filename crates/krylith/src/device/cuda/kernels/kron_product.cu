// y = (A (x) M + B (x) L) x with point-block matrices M, L of one pattern; TERMS 1: (A (x) M) x, with STAGES 1 the plain product.
// Constants: BLOCK, STAGES, TERMS, VALUE (double or float as stored), SLOTS and SLOT_TABLE (packed place of entry (term, r, c), -1: zero
// in every block; both absent: dense), THREADS, SLICES (divides BLOCK; threads that share a block), TILE (most blocks of a tile, <= 1020),
// BY_ROWS (mapping, below; dense and SLICES 1 only) with SPLIT (lanes a row), DEPTH (tiles in flight), CTAS (launch bound), ACCUMULATE.
// Bytes it must move: the values once, one byte a block (two where TILE > 256), 4 bytes a distinct node of a tile, 6 bytes a row, x and y.
// Mapping: resident CTAs walk tiles of whole rows. Values, indices and x of the next tile are copied to shared memory asynchronously while
// this one is multiplied: one contiguous piece of values, each x run once a tile however many blocks use it. Every access to memory is
// coalesced for any BLOCK. By blocks: one thread a block (and slice) multiplies, its products go to shared memory, and each row is summed in
// the order of its blocks. By rows: one lane a (row, component, stage), which pays for small blocks with several stages.
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
#ifndef SPLIT
#define SPLIT 1
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

constexpr int RUN = BLOCK * STAGES;                   // numbers of one node, contiguous in x and y
constexpr int PAIR = RUN % 2 == 0 ? 2 : 1;            // numbers moved at once through shared memory
constexpr int PIECES = RUN / PAIR;
constexpr int STRIDE = PAIR == 2 ? (PIECES | 1) * 2 : RUN;  // odd in units of PAIR: neighbouring runs fall into different banks
constexpr int LANES = THREADS / SLICES;               // threads of one slice, a multiple of 32
constexpr int ROWS = BLOCK / SLICES;                  // rows of a block that one thread owns
constexpr int OWN = SLOTS / SLICES;                   // slots of one slice
constexpr int FULL = 16 / sizeof(VALUE);
constexpr int VECTOR = OWN % FULL == 0 ? FULL : OWN % 2 == 0 ? 2 : 1;  // slots of a block that lie together
constexpr int ODD = SLOTS * sizeof(VALUE) % 16;
constexpr int ROUND = ODD == 0 ? 1 : ODD == 8 ? 2 : 4;  // a tile's width is a multiple of this, so that tiles are whole 16-byte pieces

struct Coefficients { double a[TERMS][STAGES][STAGES]; };
// A and tau B, row-major. Constant memory of this module, which each operator loads for itself: a new tau is a copy of
// s * s numbers, and recorded graphs stay valid.
__constant__ Coefficients coefficients;
struct Header { unsigned position; int blocks, nodes, rows; };  // the first 16 bytes of a tile's record
template <int bytes> struct Local { typedef unsigned short type; };
template <> struct Local<1> { typedef unsigned char type; };
typedef Local<TILE <= 256 ? 1 : 2>::type LocalNode;

// Where entry (r, c) of a term lies among the packed values of a block; -1: zero in every block.
__device__ __forceinline__ constexpr int slot(int term, int r, int c) {
#ifdef SLOT_TABLE
    constexpr int table[TERMS * BLOCK * BLOCK] = {SLOT_TABLE};
    return table[(term * BLOCK + r) * BLOCK + c];
#else
    return ((r / ROWS * BLOCK + c) * ROWS + r % ROWS) * TERMS + term;
#endif
}

template <int bytes> __device__ __forceinline__ void copy(void* to, const void* from) {
    const unsigned address = (unsigned)__cvta_generic_to_shared(to);
    if constexpr (bytes == 16) asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address), "l"(from));
    else asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(bytes));
}
__device__ __forceinline__ void commit() { asm volatile("cp.async.commit_group;"); }

template <class T, int n> struct alignas(n * sizeof(T)) Packet { T v[n]; };

// The products of one slice of a block with its x run, A and B folded in. Value j of the slice: own[(j / VECTOR * width) * VECTOR + j % VECTOR].
template <int slice>
__device__ __forceinline__ void multiply(const VALUE* stage, int width, const double* run, double* out) {
    constexpr int STEP = PAIR == 2 && STAGES % 2 == 1 ? 2 : 1;  // columns read at once, so that pairs stay whole
    double sum[TERMS][ROWS][STAGES];
    bool used[TERMS][ROWS];
#pragma unroll
    for (int t = 0; t < TERMS; ++t)
#pragma unroll
        for (int r = 0; r < ROWS; ++r) used[t][r] = false;
    VALUE own[OWN];
    int loaded = 0;
#pragma unroll
    for (int c0 = 0; c0 < BLOCK; c0 += STEP) {
        double v[STEP * STAGES];
#pragma unroll
        for (int i = 0; i < STEP * STAGES; i += PAIR) {
            const Packet<double, PAIR> p = *(const Packet<double, PAIR>*)(run + c0 * STAGES + i);
#pragma unroll
            for (int h = 0; h < PAIR; ++h) v[i + h] = p.v[h];
        }
        int need = 0;
#pragma unroll
        for (int e = 0; e < STEP * ROWS * TERMS; ++e) {
            const int s = slot(e % TERMS, slice * ROWS + e / TERMS % ROWS, c0 + e / (TERMS * ROWS)) - slice * OWN + 1;
            if (s > need) need = s;
        }
#pragma unroll
        for (int j = 0; j < OWN; j += VECTOR)
            if (j >= loaded && j < need) {
                const Packet<VALUE, VECTOR> p = *(const Packet<VALUE, VECTOR>*)(stage + j * width);
#pragma unroll
                for (int h = 0; h < VECTOR; ++h) own[j + h] = p.v[h];
            }
        if (need > loaded) loaded = (need + VECTOR - 1) / VECTOR * VECTOR;
#pragma unroll
        for (int c = c0; c < c0 + STEP; ++c)
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int t = 0; t < TERMS; ++t) {
                    const int s = slot(t, slice * ROWS + r, c);
                    if (s < 0) continue;
                    const double a = (double)own[s - slice * OWN];
#pragma unroll
                    for (int k = 0; k < STAGES; ++k) {
                        const double b = v[(c - c0) * STAGES + k];
                        sum[t][r][k] = used[t][r] ? fma(a, b, sum[t][r][k]) : a * b;
                    }
                    used[t][r] = true;
                }
    }
    double result[ROWS * STAGES];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
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
    constexpr int WIDE = (ROWS * STAGES) % 2 == 0 ? PAIR : 1;
#pragma unroll
    for (int i = 0; i < ROWS * STAGES; i += WIDE) {
        Packet<double, WIDE> p;
#pragma unroll
        for (int h = 0; h < WIDE; ++h) p.v[h] = result[i + h];
        *(Packet<double, WIDE>*)(out + i) = p;
    }
}

#ifdef SLOT_TABLE
constexpr bool ALIKE = SLICES == 1;  // every slice reads its own entries of the table
#else
constexpr bool ALIKE = true;  // dense slices are alike: one code for all
#endif
template <int s>
__device__ __forceinline__ void multiply_slice(int slice, const VALUE* stage, int width, const double* run, double* out) {
    if (ALIKE || slice == s || s == SLICES - 1) multiply<s>(stage, width, run, out);
    else if constexpr (s + 1 < SLICES) multiply_slice<s + 1>(slice, stage, width, run, out);
}

extern "C" __global__ void __launch_bounds__(THREADS, CTAS)
kron_product(const int* halt, const int tile_count, const unsigned* __restrict__ starts, const char* __restrict__ records,
             const VALUE* __restrict__ values, const double* __restrict__ x, double* __restrict__ y,
             double* __restrict__ parts, const int node_capacity, const int record_capacity) {
    const int halted = halt ? *halt : 0;
    constexpr int STAGE = (TILE + ROUND - 1) / ROUND * ROUND * SLOTS, RING = 2 * DEPTH - 1;
    extern __shared__ __align__(16) char shared[];
    VALUE* const stages = (VALUE*)shared;                                     // [DEPTH][STAGE]: values of this tile and the next
    double* const runs = (double*)(stages + DEPTH * STAGE);                   // [DEPTH][node_capacity][STRIDE]: their x, each node once
    char* const ring = (char*)(runs + DEPTH * node_capacity * STRIDE + DEPTH * node_capacity * STRIDE % 2);  // [RING][record_capacity]: their records and those after
    double* const sums = (double*)(ring + RING * record_capacity);            // [TILE][STRIDE]: what each block adds to its row
    const int slice = threadIdx.x / LANES, lane = threadIdx.x % LANES, step = gridDim.x;

    auto locate = [&](int t) { return t < tile_count ? make_uint2(starts[t], starts[t + 1]) : make_uint2(0, 0); };
    auto copy_record = [&](const uint2& place, int slot) {
        const int bytes = (place.y - place.x) * 16;
        for (int i = threadIdx.x * 16; i < bytes; i += THREADS * 16) copy<16>(ring + slot * record_capacity + i, records + (unsigned long long)place.x * 16 + i);
    };
    auto copy_tile = [&](int slot, int stage) {  // asks for the values and the x of the tile whose record is in that slot
        const Header tile = *(const Header*)(ring + slot * record_capacity);
        const int bytes = (tile.blocks + ROUND - 1) / ROUND * ROUND * (SLOTS * (int)sizeof(VALUE)), end = tile.nodes * PIECES;
        const char* from = (const char*)values + (unsigned long long)tile.position * (4 * SLOTS * sizeof(VALUE));
        const int* nodes = (const int*)(ring + slot * record_capacity + sizeof(Header));
        for (int i = threadIdx.x * 16; i < bytes; i += THREADS * 16) copy<16>((char*)(stages + stage * STAGE) + i, from + i);
        for (int i = threadIdx.x; i < end; i += THREADS) {
            const int node = i / PIECES, piece = i % PIECES;
            copy<PAIR * 8>(runs + (stage * node_capacity + node) * STRIDE + piece * PAIR, x + (long long)nodes[node] * RUN + piece * PAIR);
        }
    };
    auto store = [&](int row, int e, double value) {  // row < 0: part ~row of a row longer than a tile
        double* to = row < 0 ? parts + (long long)~row * RUN + e : y + (long long)row * RUN + e;
        if (ACCUMULATE && row >= 0) value += *to;
        *to = value;
    };

    for (int i = 0; i < RING - 1; ++i) copy_record(locate(blockIdx.x + i * step), i);
    commit();
    uint2 ahead = locate(blockIdx.x + (RING - 1) * step);
    if (halted) return;
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncthreads();
    for (int i = 0; i < DEPTH - 1; ++i) {
        if ((int)blockIdx.x + i * step < tile_count) copy_tile(i, i);
        commit();
    }
#if BY_ROWS
    constexpr int WIDE = STAGES == 3 ? 4 : STAGES;  // lanes of one component: its stages
    double mix[TERMS][STAGES];                      // the row of A and B that this thread's stage takes
#pragma unroll
    for (int t = 0; t < TERMS; ++t)
#pragma unroll
        for (int q = 0; q < STAGES; ++q)
#pragma unroll
            for (int k = 0; k < STAGES; ++k)
                if (k == 0 || threadIdx.x % WIDE == k) mix[t][q] = coefficients.a[t][k][q];
#endif
    int stage = 0, slot = 0;
    for (int t = blockIdx.x; t < tile_count; t += step) {
        asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 2) : "memory");
        __syncthreads();  // this tile is here, and the record DEPTH - 1 ahead; everything of the last tile is used up
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
        const int numbers = tile.rows * (BLOCK * SPLIT * WIDE);
        for (int o = threadIdx.x; o < (numbers + 31 & ~31); o += THREADS) {
            const int k = o % WIDE, part = o / WIDE % SPLIT, r = o / (WIDE * SPLIT) % BLOCK, i = o / (WIDE * SPLIT * BLOCK);
            double sum[TERMS] = {};
            if (o < numbers && k < STAGES) {
                const VALUE* mine = stages + stage * STAGE;
                const double* run = runs + stage * node_capacity * STRIDE + k;
                const int end = ends[i];
#pragma unroll UNROLL
                for (int p = (i ? ends[i - 1] : 0) + part; p < end; p += SPLIT) {
                    const int local = locals[p] * STRIDE;
#pragma unroll
                    for (int c = 0; c < BLOCK; ++c) {
                        const double v = run[local + c * STAGES];
                        constexpr int ENTRY = TERMS == 2 && VECTOR % 2 == 0 ? 2 : 1;
                        const int s = (c * BLOCK + r) * TERMS;
                        Packet<VALUE, ENTRY> entry[TERMS / ENTRY];
#pragma unroll
                        for (int t = 0; t < TERMS; t += ENTRY)
                            entry[t / ENTRY] = *(const Packet<VALUE, ENTRY>*)(mine + ((s + t) / VECTOR * width + p) * VECTOR + (s + t) % VECTOR);
#pragma unroll
                        for (int t = 0; t < TERMS; ++t) sum[t] = fma((double)entry[t / ENTRY].v[t % ENTRY], v, sum[t]);
                    }
                }
            }
#pragma unroll
            for (int d = WIDE; d < WIDE * SPLIT; d *= 2)
#pragma unroll
                for (int t = 0; t < TERMS; ++t) sum[t] += __shfl_xor_sync(~0u, sum[t], d);
            double result = 0.0;
#pragma unroll
            for (int t = 0; t < TERMS; ++t)
#pragma unroll
                for (int q = 0; q < STAGES; ++q) {
                    const double other = STAGES == 1 ? sum[t] : __shfl_sync(~0u, sum[t], q, WIDE);
                    result = fma(mix[t][q], other, result);
                }
            if (o < numbers && k < STAGES && part == 0) {
                store(ids[i], r * STAGES + k, result);
            }
        }
#else
#pragma unroll
        for (int p = lane; p < TILE; p += LANES)
            if (p < tile.blocks)
                multiply_slice<0>(slice, stages + stage * STAGE + slice * OWN * width + p * VECTOR, width,
                                  runs + (stage * node_capacity + locals[p]) * STRIDE, sums + p * STRIDE + slice * (ROWS * STAGES));
        __syncthreads();
        for (int o = threadIdx.x; o < tile.rows * RUN; o += THREADS) {
            const int r = o / RUN, e = o % RUN, end = ends[r];
            double sum = 0.0;
#pragma unroll 5
            for (int p = r ? ends[r - 1] : 0; p < end; ++p) sum += sums[p * STRIDE + e];
            store(ids[r], e, sum);
        }
#endif
        stage = stage == DEPTH - 1 ? 0 : stage + 1;
        slot = slot == RING - 1 ? 0 : slot + 1;
    }
}

// Rows longer than a tile: adds their parts in order. One thread a number; launched only where such rows exist.
// long_rows: row, first part, end part for each.
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
