// dia_pairs: a residual or a smoother step of a cycle in f32 with a matrix by diagonals (dia.cu, smooth.cuh),
// where each thread computes two neighbouring rows. One load of a thread then brings two stored numbers, 4
// bytes in bf16 and 8 in f32, and twice as many bytes are on the way at once as with one row per thread.
// dia_pairs_march goes from plane to plane as dia_march does; its planes have an even number of rows.
//
// Constants: VALUE, float or bf16, and APART as in dia.cu; COUNT, the number of diagonals; SYMMETRIC, SMOOTH
// and RESULT as there; REAL, float; THREADS, and CTAS (resident, limited by registers).
// Alignment: diagonals start at multiples of 16 numbers, and arrays of the caller in f32 at 8 bytes.
// Bytes moved at least: for each row 4 or 2 per stored number, 4 each of x, b and the result, and those of a
// step (smooth.cuh).
//
// The first row of a pair is even. Coefficients and vectors at the rows of a pair are one aligned load. Those
// at neighbours are two loads, for any offset; most come from the caches. The last row of an odd number has
// no pair, and one thread computes it alone. Sums have the order of dia.cu, and the same bits.

#include "bf16.cuh"
#include "smooth.cuh"

typedef long long i64;
#include "dia.cuh"

// Numbers of two neighbouring rows.
struct Two { REAL at[2]; };
__device__ __forceinline__ Two two(const float* from) {
    const float2 v = *(const float2*)from;
    return {v.x, v.y};
}

// Two neighbouring coefficients as stored.
template <class T> struct Stored;
template <> struct Stored<float> { typedef float2 Pair; };
template <> struct Stored<bf16> { typedef unsigned Pair; };
typedef Stored<VALUE>::Pair Pair;
__device__ __forceinline__ Two widened(const float2& v) { return {v.x, v.y}; }
__device__ __forceinline__ Two widened(unsigned v) { return {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)}; }
__device__ __forceinline__ Pair pair_at(const VALUE* __restrict__ values, i64 at) { return __ldg((const Pair*)(values + at)); }
__device__ __forceinline__ Pair pair_once(const VALUE* __restrict__ values, i64 at) { return __ldcs((const Pair*)(values + at)); }
// As own_number of dia.cu.
__device__ __forceinline__ Pair own_pair(const VALUE* __restrict__ values, int k, i64 stride, unsigned i) {
    return k == 0 || k == COUNT - 1 ? pair_once(values, k * stride + i) : pair_at(values, k * stride + i);
}

// What `number` gives for rows j and j + 1, and 0 for a row that does not exist. j wraps around if it is
// negative.
template <class Number> __device__ __forceinline__ Two either(unsigned j, unsigned rows, const Number& number) {
    return {j < rows ? number(j) : ZERO, j + 1 < rows ? number(j + 1) : ZERO};
}
// Numbers of x in rows i and i + 1, where i is even and both exist.
__device__ __forceinline__ Two two_of(const Numbers& at, unsigned i) {
#if SMOOTH == 2
    const float2 d = __ldg((const float2*)(at.d + i)), b = __ldg((const float2*)(at.b + i));
    return {at.c * d.x * b.x, at.c * d.y * b.y};
#else
    const float2 x = __ldg((const float2*)(at.x + i));
    return {x.x, x.y};
#endif
}

// The sums of two rows.
struct Sums { RowSum of[2]; };
__device__ __forceinline__ void take(Sums& sums, const Two& a, const Two& v) {
#pragma unroll
    for (int h = 0; h < 2; ++h) take_product(sums.of[h], a.at[h], v.at[h]);
}

// As own_numbers of smooth.cuh, where `x` has the numbers of x.
struct Owns { Own of[2]; };
__device__ __forceinline__ Owns own_of_both(const Smooth& of, unsigned i) {
    const Two b = of.b ? two(of.b + i) : Two{}, d = of.d ? two(of.d + i) : Two{}, p = of.d && of.last == 2 ? two(of.p + i) : Two{};
    Two own = d;
#if APART
    if (of.own && !of.d) own = two(of.own + i);
#endif
    Owns owns;
#pragma unroll
    for (int h = 0; h < 2; ++h) owns.of[h] = {b.at[h], d.at[h], ZERO, p.at[h], own.at[h]};
    return owns;
}
__device__ __forceinline__ void finish(const Smooth& of, Owns& owns, const Two& x, unsigned i, REAL c, const Sums& sums, RESULTS* __restrict__ y) {
    REAL results[2], steps[2];
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        owns.of[h].x = x.at[h];
        results[h] = stepped(of, owns.of[h], whole(owns.of[h], c * sums.of[h]), steps[h]);
    }
    if (of.d && of.keeps) *(float2*)(of.p + i) = make_float2(steps[0], steps[1]);
#ifdef RESULT
    // A vector in f64 may begin anywhere.
    y[i] = RESULT_OF(of, results[0]);
    y[i + 1] = RESULT_OF(of, results[1]);
#else
    *(float2*)(y + i) = make_float2(results[0], results[1]);
#endif
}

// The last row of an odd number.
__device__ __forceinline__ void last_row(unsigned rows, const Offsets& offsets, const VALUE* __restrict__ values, i64 stride, const Numbers& at, REAL c,
                                         const Smooth& of, RESULTS* __restrict__ y) {
    const unsigned i = rows - 1;
    const Own own = own_numbers(of, i);
    RowSum sum = {};
#if SYMMETRIC
#pragma unroll
    for (int k = COUNT - 1; k > 0; --k) {
        const unsigned j = i - (unsigned)offsets.at[k];
        if (j < rows) take_product(sum, number(values, k * stride + j), at(j));
    }
    // There is no column above.
    if (FIRST == 0) take_product(sum, number(values, i), at(i));
#else
#pragma unroll
    for (int k = 0; k < COUNT; ++k) {
        const unsigned j = i + (unsigned)offsets.at[k];
        if (j < rows && (FIRST == 0 || offsets.at[k] != 0)) take_product(sum, number(values, k * stride + i), at(j));
    }
#endif
    y[i] = RESULT_OF(of, smoothed(of, own, (i64)i, whole(own, c * sum)));
}

// items: runs of 2 THREADS rows, or of as many rows of `steps` planes each, plane by plane.
template <bool MARCH>
__device__ __forceinline__ void multiply(const int* halt, const unsigned rows, const Offsets& offsets, const VALUE* __restrict__ values, const i64 stride,
                                         const REAL* __restrict__ x, RESULTS* __restrict__ y, const double* __restrict__ coefficient, const int items,
                                         const int steps, const Smooth& of) {
    if (halt && *halt) return;
    const Numbers at = NUMBERS;
    const REAL c = (REAL)*coefficient;
    if (rows % 2 && blockIdx.x == gridDim.x - 1 && threadIdx.x == 0) last_row(rows, offsets, values, stride, at, c, of, y);
    constexpr int LAST = COUNT - 1;
    Two after[COUNT];
#if SYMMETRIC
    // A march has the numbers of its outermost diagonals from other steps.
    constexpr int END = MARCH ? LAST : COUNT;
    Two lower[COUNT], before[COUNT];
    auto ask_neighbours = [&](unsigned i) {
#pragma unroll
        for (int k = END - 1; k > 0; --k) {
            const unsigned j = i - (unsigned)offsets.at[k];
            lower[k] = either(j, rows, [&](unsigned j) { return number(values, k * stride + j); });
            before[k] = either(j, rows, at);
        }
#pragma unroll
        for (int k = 1; k < END; ++k) after[k] = either(i + (unsigned)offsets.at[k], rows, at);
    };
    auto ask_own = [&](Pair (&own)[COUNT], unsigned i) {
#pragma unroll
        for (int k = FIRST; k < COUNT; ++k) own[k] = own_pair(values, k, stride, i);
    };
    auto take_neighbours = [&](Sums& sums, const Pair (&own)[COUNT], const Two& here) {
#pragma unroll
        for (int k = END - 1; k > 0; --k) take(sums, lower[k], before[k]);
        if (FIRST == 0) take(sums, widened(own[0]), here);
#pragma unroll
        for (int k = 1; k < END; ++k) take(sums, widened(own[k]), after[k]);
    };
#endif
    if (!MARCH) {
        for (int item = blockIdx.x; item < items; item += gridDim.x) {
            const unsigned i = 2 * ((unsigned)item * THREADS + threadIdx.x);
            if (i + 1 >= rows) continue;
            Pair now[COUNT];
            Sums sums = {};
#if SYMMETRIC
            ask_own(now, i);
            Owns owns = own_of_both(of, i);
            const Two here = two_of(at, i);
            ask_neighbours(i);
            take_neighbours(sums, now, here);
#else
            auto skipped = [&](int k) { return FIRST == 1 && offsets.at[k] == 0; };
#pragma unroll
            for (int k = 0; k < COUNT; ++k) now[k] = skipped(k) ? Pair{} : pair_once(values, k * stride + i);
            Owns owns = own_of_both(of, i);
            const Two here = two_of(at, i);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) after[k] = skipped(k) ? Two{} : either(i + (unsigned)offsets.at[k], rows, at);
#pragma unroll
            for (int k = 0; k < COUNT; ++k) take(sums, widened(now[k]), after[k]);
#endif
            finish(of, owns, here, i, c, sums, y);
        }
        return;
    }
    const unsigned march = offsets.at[LAST], tiles = (march / 2 + THREADS - 1) / THREADS;
    for (int item = blockIdx.x; item < items; item += gridDim.x) {
        const unsigned in_plane = 2 * (item % tiles * THREADS + threadIdx.x);
        const i64 from = (i64)(item / tiles) * steps * march + in_plane;
        if (in_plane >= march || from + 1 >= rows) continue;
        unsigned i = (unsigned)from;
        Two below = i >= march ? two_of(at, i - march) : Two{}, here = two_of(at, i), above = either(i + march, rows, at);
#if SYMMETRIC
        Pair coupling = i >= march ? pair_at(values + LAST * stride, i - march) : Pair{}, now[COUNT];
        ask_own(now, i);
#endif
        for (int t = 0; t < steps && i + 1 < rows; ++t, i += march) {
            Owns owns = own_of_both(of, i);
            Sums sums = {};
            const unsigned ahead = i + march;
            const bool more = t + 1 < steps && ahead + 1 < rows;
            const Two beyond = more ? either(ahead + march, rows, at) : Two{};
#if SYMMETRIC
            // Data from memory, one step before it is used.
            Pair next[COUNT] = {};
            if (more) ask_own(next, ahead);
            ask_neighbours(i);
            take(sums, widened(coupling), below);
            take_neighbours(sums, now, here);
            take(sums, widened(now[LAST]), above);
            coupling = now[LAST];
#pragma unroll
            for (int k = FIRST; k < COUNT; ++k) now[k] = next[k];
#else
            Pair now[COUNT];
#pragma unroll
            for (int k = 0; k < COUNT; ++k)
                if (FIRST == 0 || k != COUNT / 2) now[k] = pair_once(values, k * stride + i);
#pragma unroll
            for (int k = 1; k < LAST; ++k)
                if (k != COUNT / 2) after[k] = either(i + (unsigned)offsets.at[k], rows, at);
            take(sums, widened(now[0]), below);
#pragma unroll
            for (int k = 1; k < LAST; ++k)
                if (FIRST == 0 || k != COUNT / 2) take(sums, widened(now[k]), k == COUNT / 2 ? here : after[k]);
            take(sums, widened(now[LAST]), above);
#endif
            finish(of, owns, here, i, c, sums, y);
            below = here;
            here = above;
            above = beyond;
        }
    }
}

#define PAIRS(name, march)                                                                                                                          \
    extern "C" __global__ void __launch_bounds__(THREADS, CTAS)                                                                                     \
    name(const int* halt, const unsigned rows, const Offsets offsets, const VALUE* __restrict__ values, const i64 stride,                           \
         const REAL* __restrict__ x, RESULTS* __restrict__ y, const double* __restrict__ coefficient, const int items, const int steps,             \
         const Smooth of) {                                                                                                                         \
        multiply<march>(halt, rows, offsets, values, stride, x, y, coefficient, items, steps, of);                                                  \
    }
PAIRS(dia_pairs, false)
PAIRS(dia_pairs_march, true)
