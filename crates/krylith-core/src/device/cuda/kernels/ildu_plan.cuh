// ildu_plan: shared by the kernels of the analysis. One thread block processes a subdomain, whose pattern is
// in scratch memory, row after row, in the numbers of the subdomain.
//
// Macros: THREADS.

#include "scan.cuh"

constexpr unsigned NONE = 0xffffffffu;
constexpr int GROUP = 8;                       // lanes that share a row
constexpr int GROUPS = THREADS / GROUP, WARPS = THREADS / 32;

// The pattern of a subdomain, including its diagonal.
struct Subdomain {
    int size;
    const unsigned *offsets, *counts;  // for each row, entries from `at` on
    const unsigned short* at;          // columns, in any order
};

// Calls visit(k, j) for every entry off the diagonal.
template <class Visit> __device__ __forceinline__ void for_couplings(const Subdomain& s, Visit visit) {
    const int group = threadIdx.x / GROUP, lane = threadIdx.x % GROUP;
    for (int k = group; k < s.size; k += GROUPS)
        for (unsigned e = s.offsets[k] + lane, end = s.offsets[k] + s.counts[k]; e < end; e += GROUP) {
            const int j = s.at[e];
            if (j != k) visit(k, j);
        }
}

// word: level << 16 | place in the order of elimination; every level starts at 0. The level of a row is the
// length of the longest path to it. Levels are raised until none changes; the result does not depend on the
// order of the threads. changed: scratch, one byte per row. Returns the number of levels.
//
// Rows whose level has changed raise later rows, which is sufficient in a symmetric pattern. A final pass
// over all couplings, in both directions, detects whether the pattern is symmetric.
__device__ int raise_levels(const Subdomain& s, unsigned* word, unsigned char* changed) {
    __shared__ unsigned deepest;
    volatile unsigned* const levels = word;
    volatile unsigned char* const marks = changed;
    if (threadIdx.x == 0) deepest = 0;
    for (int k = threadIdx.x; k < s.size; k += THREADS) marks[k] = 1;
    __syncthreads();
    bool more;
    do {
        do {
            more = false;
            for (int k = threadIdx.x; k < s.size; k += THREADS) {
                if (!marks[k]) continue;
                marks[k] = 0;
                __threadfence_block();  // a thread that raises this row from here on marks it again
                const unsigned own = levels[k], wanted = (own >> 16) + 1;
                for (unsigned e = s.offsets[k], end = e + s.counts[k]; e < end; ++e) {
                    const int j = s.at[e];
                    const unsigned other = levels[j];
                    if ((other & 0xffff) <= (own & 0xffff) || other >> 16 >= wanted) continue;
                    atomicMax(word + j, wanted << 16 | (other & 0xffff));
                    __threadfence_block();
                    marks[j] = 1;
                    more = true;
                }
            }
        } while (__syncthreads_or(more));
        for_couplings(s, [&](int k, int j) {
            const unsigned one = levels[k], other = levels[j];
            const bool later = (one & 0xffff) > (other & 0xffff);
            const unsigned low = later ? other : one, high = later ? one : other, wanted = (low >> 16) + 1;
            if (high >> 16 < wanted) {
                atomicMax(word + (later ? k : j), wanted << 16 | (high & 0xffff));
                marks[later ? k : j] = 1;
                more = true;
            }
        });
    } while (__syncthreads_or(more));
    unsigned deep = 0;
    for (int k = threadIdx.x; k < s.size; k += THREADS) deep = max(deep, word[k] >> 16);
    atomicMax(&deepest, deep);
    __syncthreads();
    const int count = (int)deepest + 1;
    __syncthreads();
    return count;
}

// Sum over rows of the distance between the diagonal and the first entry, in both directions, in the order of
// places. first: scratch.
__device__ long long profile_of(const Subdomain& s, const unsigned* word, unsigned* first) {
    for (int k = threadIdx.x; k < s.size; k += THREADS) first[k] = word[k] & 0xffff;
    __syncthreads();
    for_couplings(s, [&](int k, int j) {
        const unsigned one = word[k] & 0xffff, other = word[j] & 0xffff;
        const int high = one > other ? k : j;
        const unsigned low = min(one, other);
        if (low < ((volatile unsigned*)first)[high]) atomicMin(first + high, low);
    });
    __syncthreads();
    long long sum = 0, total;
    for (int k = threadIdx.x; k < s.size; k += THREADS) sum += (word[k] & 0xffff) - ((volatile unsigned*)first)[k];
    block_exclusive(sum, total);
    return total;
}
