// ildu_order: the reverse Cuthill-McKee order of subdomains whose natural order is suspect, used where it is
// better: the GPU version of precond/incomplete/order.rs. One thread block per subdomain; those that are not
// suspect return at once.
//
// Macros: THREADS. A front of the search is a pass over all couplings of the subdomain, from the cache, so
// that no transposed pattern is needed. The rows of the front are then sorted by (place of the parent,
// degree, number), which is the order of the queue.

#include "ildu_plan.cuh"

// Scratch of each row: place in the queue (NONE: not visited), parent's place, degree, and candidates of the
// next front.
struct Search { unsigned *place, *parent, *degree, *list; };

// One search from `root`, whose front starts at queue[begin]. Returns the end of the queue.
__device__ int search(const Subdomain& s, const Search& t, int root, int begin, unsigned short* queue) {
    if (threadIdx.x == 0) {
        queue[begin] = (unsigned short)root;
        t.place[root] = begin;
    }
    __syncthreads();
    int from = begin, to = begin + 1;
    while (from < to) {
        for_couplings(s, [&](int k, int j) {
            const unsigned one = ((volatile unsigned*)t.place)[k], other = ((volatile unsigned*)t.place)[j];
            if (other == NONE && one >= from && one < to) atomicMin(t.parent + j, one);
            else if (one == NONE && other >= from && other < to) atomicMin(t.parent + k, other);
        });
        __syncthreads();
        int count = 0;
        for (int first = 0; first < s.size; first += THREADS) {
            const int k = first + threadIdx.x;
            int total;
            const bool take = k < s.size && t.place[k] == NONE && ((volatile unsigned*)t.parent)[k] != NONE;
            const int at = count + block_exclusive((int)take, total);
            if (take) t.list[at] = k;
            count += total;
        }
        __syncthreads();
        for (int r = threadIdx.x; r < count; r += THREADS) {
            const unsigned k = t.list[r], parent = t.parent[k], degree = t.degree[k];
            int rank = 0;
            for (int q = 0; q < count; ++q) {
                const unsigned other = t.list[q], p = t.parent[other], d = t.degree[other];
                rank += p < parent || (p == parent && (d < degree || (d == degree && other < k)));
            }
            queue[to + rank] = (unsigned short)k;
        }
        __syncthreads();
        for (int q = to + threadIdx.x; q < to + count; q += THREADS) t.place[queue[q]] = q;
        from = to;
        to += count;
        __syncthreads();
    }
    return to;
}

extern "C" __global__ void __launch_bounds__(THREADS)
ildu_order(const long long* __restrict__ starts, const unsigned* __restrict__ counts, const long long* __restrict__ totals,
           const unsigned* __restrict__ offsets, const unsigned short* __restrict__ at, const unsigned* __restrict__ suspect, unsigned* words,
           unsigned* place, unsigned* parent, unsigned* degree, unsigned* list, int largest) {
    if (!suspect[blockIdx.x]) return;
    extern __shared__ unsigned memory[];
    __shared__ int lowest;
    unsigned* const word = memory;
    unsigned short* const queue = (unsigned short*)(memory + largest);
    const long long first = starts[blockIdx.x], base = totals[3ll * blockIdx.x];
    const int size = (int)(starts[blockIdx.x + 1] - first);
    const Subdomain s = {size, offsets + first, counts + first, at + base};
    const Search t = {place + first, parent + first, degree + first, list + first};
    unsigned deep = 0;
    __shared__ unsigned deepest;
    if (threadIdx.x == 0) deepest = 0;
    __syncthreads();
    for (int k = threadIdx.x; k < size; k += THREADS) {
        t.place[k] = t.parent[k] = NONE;
        t.degree[k] = 0;
        deep = max(deep, words[first + k] >> 16);
        word[k] = k;
    }
    atomicMax(&deepest, deep);
    __syncthreads();
    const int natural_levels = deepest + 1;
    const long long natural_profile = profile_of(s, word, t.list);
    // In both directions: an entry on both sides of the diagonal counts twice.
    for_couplings(s, [&](int k, int j) {
        atomicAdd(t.degree + k, 1u);
        atomicAdd(t.degree + j, 1u);
    });
    __syncthreads();

    for (int end = 0, known = 0; end < size;) {
        // The lowest row that no search has visited.
        if (threadIdx.x == 0) lowest = size;
        __syncthreads();
        for (int begin = known; lowest == size; begin += THREADS) {
            const int k = begin + threadIdx.x;
            const bool is_new = k < size && t.place[k] == NONE;
            __syncthreads();
            if (is_new) atomicMin(&lowest, k);
            __syncthreads();
        }
        const int begin = end;
        int root = lowest;
        known = root + 1;
        // The last row of a search is far from its start. Two searches move the start there; the third gives
        // the order.
        for (int turn = 0; turn < 3; ++turn) {
            if (turn > 0) {
                for (int q = begin + threadIdx.x; q < end; q += THREADS) t.place[queue[q]] = t.parent[queue[q]] = NONE;
                __syncthreads();
            }
            end = search(s, t, root, begin, queue);
            root = queue[end - 1];
            __syncthreads();
        }
    }
    // Reversed; levels start at 0.
    for (int k = threadIdx.x; k < size; k += THREADS) word[k] = size - 1 - t.place[k];
    __syncthreads();
    const long long profile = profile_of(s, word, t.list);
    const int levels = raise_levels(s, word, (unsigned char*)queue);  // the queue is no longer needed
    if (2 * profile < natural_profile || 2 * levels < natural_levels)
        for (int k = threadIdx.x; k < size; k += THREADS) words[first + k] = word[k];
}
