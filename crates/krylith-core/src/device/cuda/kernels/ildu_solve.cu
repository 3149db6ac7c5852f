// ildu_solve: y = (I + U)^-1 D^-1 (I + L)^-1 x in every subdomain at once, in one launch with one thread
// block per subdomain.
//
// Macros: those of ildu.cuh, STAGE (most bytes of a chunk, a multiple of 16), DEPTH (chunks in flight, at
// least 2), GATHERED (1: the rows of a subdomain are not consecutive, 0: they are), REAL (float: the vector
// of a subdomain and all arithmetic are in f32, and VALUE is float too; otherwise double).
// Bytes moved at least: each value once, 2 bytes per block, 16 per slice, 4 per row for its slot, 2 or 8 more
// if positions are LISTED or rows GATHERED, x and y.
//
// Stored are L D (lower), D^-1 and U (upper, unit): z_i = D_i^-1 (x_i - sum_j (L D)_ij z_j), then y_i = z_i -
// sum_j U_ij y_j. D is thus used together with its row, and everything is one stream that is read once, in
// the order of use. The stream does not wait for the recurrence: the next DEPTH - 1 chunks are always in
// flight, by bulk copies of one thread where the GPU supports them (sm_90), otherwise by asynchronous copies
// of all threads. The vector stays in shared memory from x to y. A row is summed in a fixed order, so results
// always have the same bits.
//
// The transpose has another stream: U^T (lower), D^-T and (L D)^T (upper): z_i = x_i - sum_j U_ji^T z_j, then
// y_i = D_i^-T (z_i - sum_j (L D)_ji^T y_j).
//
// With REAL as float, a subdomain's part of x is multiplied by the power of two that brings its largest
// number near 1, and read twice, the second time from a cache. `shifts` has the exponents of ildu_range.
//
// step, offset: number i of the factors is at i * step + offset of x and y; all other numbers of y are kept.
// This serves one stage of several.

#include "ildu.cuh"

#ifndef REAL
#define REAL double
#endif
constexpr int THREADS = 32 * WARPS;
constexpr bool SCALED = sizeof(REAL) == 4;

// 2^e in two factors, because one may overflow.
struct Power {
    double f, g;
    __device__ __forceinline__ explicit Power(int e) : f(ldexp(1.0, e / 2)), g(ldexp(1.0, e - e / 2)) {}
    __device__ __forceinline__ double times(double v) const { return v * f * g; }
};

// The exponent of the largest number of a thread block, from its bits; 0 if that is 0 or not finite.
__device__ __forceinline__ int common_exponent(unsigned long long most) {
    __shared__ unsigned long long part[WARPS];
#pragma unroll
    for (int d = 16; d; d /= 2) most = max(most, __shfl_xor_sync(0xffffffffu, most, d));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = most;
    __syncthreads();
    for (int w = 0; w < WARPS; ++w) most = max(most, part[w]);
    const int e = (int)(most >> 52);
    return most == 0 || e == 0x7ff ? 0 : max(e, 1) - 1023;
}

__device__ __forceinline__ unsigned address_of(const void* shared) { return (unsigned)__cvta_generic_to_shared(shared); }
__device__ __forceinline__ unsigned long long read_once() {
    unsigned long long policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

#if __CUDA_ARCH__ >= 900
// Chunks arrive by bulk copies; each stage has a barrier that counts its bytes.
struct Ring {
    // True for the threads that start copies: only they need the positions of chunks.
    __device__ static bool copies() { return threadIdx.x == 0; }
    unsigned long long* full;
    unsigned long long policy;
    __device__ void start(unsigned long long* barriers) {
        full = barriers;
        policy = read_once();
        if (threadIdx.x == 0) {
            for (int d = 0; d < DEPTH; ++d) asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address_of(full + d)));
            asm volatile("fence.mbarrier_init.release.cluster;");
        }
        __syncthreads();
    }
    __device__ void copy(char* to, const char* from, unsigned bytes, int stage) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(address_of(to)),
                     "l"(from), "r"(bytes), "r"(address_of(full + stage)), "l"(policy)
                     : "memory");
    }
    // Called by the threads that copy; `wanted` says whether there is a chunk.
    __device__ void fetch(bool wanted, char* to, const char* place, const char* values, Chunk begin, Chunk end, int stage) {
        if (!wanted) return;
        const unsigned own = 16 * (end.place - begin.place), rest = 16 * (end.values - begin.values);
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address_of(full + stage)), "r"(own + rest) : "memory");
        copy(to, place + 16ull * begin.place, own, stage);
        if (rest) copy(to + own, values + 16ull * begin.values, rest, stage);
    }
    __device__ void wait(int stage, unsigned parity) {
        asm volatile(
            "{\n.reg .pred p;\nagain: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\ndone:\n}" ::"r"(address_of(full + stage)),
            "r"(parity)
            : "memory");
    }
};
#else
struct Ring {
    __device__ static bool copies() { return true; }
    __device__ void start(unsigned long long*) {}
    __device__ void fetch(bool wanted, char* to, const char* place, const char* values, Chunk begin, Chunk end, int) {
        if (wanted) {
            const int own = (int)(end.place - begin.place), all = own + (int)(end.values - begin.values);
            const char *p = place + 16ull * begin.place, *v = values + 16ull * begin.values;
            for (int i = threadIdx.x; i < all; i += THREADS)
                asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(to + 16 * i)), "l"(i < own ? p + 16 * i : v + 16 * (i - own)));
        }
        asm volatile("cp.async.commit_group;");
    }
    __device__ void wait(int, unsigned) { asm volatile("cp.async.wait_group %0;" ::"n"(DEPTH - 2)); }
};
#endif

// The sum of one scalar row over K blocks. A small K is known at compile time: no loop, and all loads at
// once.
template <int KNOWN>
__device__ __forceinline__ REAL subtract(REAL sum, const VALUE*& a, const unsigned short* columns, const REAL* v, int K, int rows, int width) {
    const int count = KNOWN ? KNOWN : K;
    auto block = [&]() {
        const REAL* from = v + (int)*columns * ORDER;
        columns += rows;
#pragma unroll
        for (int c = 0; c < ORDER; ++c, a += width) sum = fma(-(REAL)*a, from[c], sum);
    };
    if constexpr (KNOWN) {
#pragma unroll
        for (int k = 0; k < KNOWN; ++k) block();
    } else {
#pragma unroll 2
        for (int k = 0; k < count; ++k) block();
    }
    return sum;
}

// One slice: a lane for each scalar row.
__device__ __forceinline__ void solve_slice(const Slice& s, const char* place, const char* values, REAL* v, int lane) {
    const int rows = s.rows, width = rows * ORDER, row = lane / ORDER, K = s.blocks;
    const bool own = lane < width;
    REAL *at = v, sum = 0;
    const VALUE* a = (const VALUE*)(values + 16 * (int)s.values) + lane;
    if (own) {
        at += position_of(s, place, row) * ORDER + (lane - row * ORDER);
        sum = *at;
        const unsigned short* columns = (const unsigned short*)place + s.columns + row;
        if (K == 3) sum = subtract<3>(sum, a, columns, v, K, rows, width);
        else if (K == 2) sum = subtract<2>(sum, a, columns, v, K, rows, width);
        else if (K == 1) sum = subtract<1>(sum, a, columns, v, K, rows, width);
        else sum = subtract<0>(sum, a, columns, v, K, rows, width);
    }
    if (s.flags & DIAGONAL) {
        if constexpr (ORDER == 1) {
            if (own) sum *= (REAL)*a;
        } else {
            REAL z = 0;
#pragma unroll
            for (int c = 0; c < ORDER; ++c, a += width) {
                const REAL other = __shfl_sync(0xffffffffu, sum, (row * ORDER + c) & 31);
                if (own) z = fma((REAL)*a, other, z);
            }
            sum = z;
        }
    }
    // Padding reads the row's own numbers, times zero, so it must not do so while another lane writes them.
    if constexpr (ORDER > 1) __syncwarp();
    if (own) *at = sum;
}

extern "C" __global__ void __launch_bounds__(THREADS)
ildu_solve(const int* halt, const long long* __restrict__ starts, const long long* __restrict__ sums, const unsigned* __restrict__ rows,
           const unsigned short* __restrict__ slots, const Chunk* __restrict__ chunks, const char* __restrict__ places,
           const char* __restrict__ values, const int* __restrict__ shifts, const int step, const int offset, const double* __restrict__ x,
           double* __restrict__ y) {
    if (halt && *halt) return;
    extern __shared__ __align__(16) char memory[];
    __shared__ unsigned long long barriers[DEPTH];
    REAL* v = (REAL*)(memory + DEPTH * STAGE);
    const long long first = starts[blockIdx.x];  // first position of the subdomain
    const int numbers = (int)(starts[blockIdx.x + 1] - first) * ORDER;
    // sums: chunks before each subdomain, and two numbers that are not used here
    const long long chunk = sums[3ll * blockIdx.x];
    const Chunk* table = chunks + chunk;
    const int count = (int)(sums[3ll * blockIdx.x + 3] - chunk);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;

    Ring ring;
    ring.start(barriers);
    Chunk next, after;
    if (ring.copies()) {
        next = table[0];
#pragma unroll
        for (int d = 0; d + 1 < DEPTH; ++d) {
            after = table[min(d + 1, count)];
            ring.fetch(d < count, memory + d * STAGE, places, values, next, after, d);
            next = after;
        }
        after = table[min(DEPTH, count)];
    }

    auto place_of = [&](int i) {
        const long long number = GATHERED ? (long long)rows[first + i / ORDER] * ORDER + i % ORDER : first * ORDER + i;
        return number * step + offset;
    };
    auto slot_of = [&](int i) { return slots[first + i / ORDER] * ORDER + i % ORDER; };
    int exponent = 0;
    if constexpr (SCALED) {
        unsigned long long most = 0;
        for (int i = threadIdx.x; i < numbers; i += THREADS) most = max(most, (unsigned long long)__double_as_longlong(fabs(x[place_of(i)])));
        exponent = common_exponent(most);
        const Power scale(-exponent);
        for (int i = threadIdx.x; i < numbers; i += THREADS) v[slot_of(i)] = (REAL)scale.times(x[place_of(i)]);
    } else {
        for (int i = threadIdx.x; i < numbers; i += THREADS) v[slot_of(i)] = x[place_of(i)];
    }

    for (int c = 0, stage = 0, free = DEPTH - 1, parity = 0; c < count; ++c) {
        ring.wait(stage, parity);
        __syncthreads();  // all threads see the chunk; the one before it is finished, and its stage is free
        if (ring.copies()) {
            ring.fetch(c + DEPTH - 1 < count, memory + free * STAGE, places, values, next, after, free);
            next = after;
            after = table[min(c + DEPTH + 1, count)];
        }

        const char* place = memory + stage * STAGE;
        const Header header = *(const Header*)place;
        const char* a = place + 16 * header.bytes;
        const Slice* own = slices_of(place) + warp;
        unsigned long long sync = header.sync;
        for (int i = header.steps; i > 0; --i, own += WARPS, sync >>= 1) {
            const Slice s = *own;
            if (s.rows) solve_slice(s, place, a, v, lane);
            if (sync & 1) __syncthreads();
        }
        free = stage;
        if (++stage == DEPTH) {
            stage = 0;
            parity ^= 1;
        }
    }
    __syncthreads();
    if constexpr (SCALED) {
        const Power scale(exponent + shifts[blockIdx.x]);
        for (int i = threadIdx.x; i < numbers; i += THREADS) y[place_of(i)] = scale.times((double)v[slot_of(i)]);
    } else {
        for (int i = threadIdx.x; i < numbers; i += THREADS) y[place_of(i)] = v[slot_of(i)];
    }
}
