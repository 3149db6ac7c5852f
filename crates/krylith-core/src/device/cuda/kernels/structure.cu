// structure: finds the entries of b x b blocks that differ in some block, and those that are nonzero in some
// block, for operator/structure.rs. Bits are compared, except for the sign of zero.
//
// values: `blocks` blocks of `entries` (1 to 64) numbers. found[e], bit k < e: entries e and k differ in some
// block; found[entries], bit e: entry e is nonzero in some block. found starts as zeros; bits are only set,
// so the order of CTAs does not matter.
// Constants: none.
// Bytes moved at least: the values once, or a part of them if a first check finds that no two entries are
// equal and none is zero.
//
// A CTA keeps for each entry the first one that has equalled it in all blocks so far, and compares only with
// that one. If one differs, which happens at most `entries` times, its class is divided with the present
// blocks.

typedef unsigned long long u64;
constexpr int THREADS = 256, EACH = 8, ROOM = THREADS * EACH, MOST = 64;

extern "C" __global__ void __launch_bounds__(THREADS) structure(const int entries, const long long blocks, const double* __restrict__ values, u64* found) {
    __shared__ long long number[ROOM];
    __shared__ int like[MOST];
    __shared__ u64 apart[MOST];
    __shared__ u64 not_zero;
    const int together = ROOM / entries, tid = threadIdx.x;
    int entry[EACH];
#pragma unroll
    for (int j = 0; j < EACH; ++j) entry[j] = (tid + j * THREADS) % entries;
    if (tid < MOST) like[tid] = 0;
    if (tid == 0) not_zero = 0;
    u64 mine = 0;
    for (long long first = (long long)blockIdx.x * together; first < blocks; first += (long long)gridDim.x * together) {
        const int here = (int)min((long long)together, blocks - first), count = here * entries;
        const double* from = values + first * entries;
        __syncthreads();  // the last numbers are no longer needed
        double v[EACH];
#pragma unroll
        for (int j = 0; j < EACH; ++j) v[j] = tid + j * THREADS < count ? __ldcs(from + tid + j * THREADS) : 0.0;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            if (v[j] != 0.0) mine |= 1ull << entry[j];
            number[tid + j * THREADS] = v[j] == 0.0 ? 0 : __double_as_longlong(v[j]);
        }
        __syncthreads();
        bool differs = false;
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            const int at = tid + j * THREADS;
            if (at < count) differs |= number[at] != number[at - entry[j] + like[entry[j]]];
        }
        if (!__syncthreads_or(differs)) continue;
        if (tid < entries) apart[tid] = 0;
        if (mine) atomicOr(&not_zero, mine);
        __syncthreads();
        for (int q = tid; q < entries * entries; q += THREADS) {
            const int e = q / entries, k = q % entries;
            if (k >= e || like[k] != like[e]) continue;
            for (int p = 0; p < here; ++p)
                if (number[p * entries + e] != number[p * entries + k]) {
                    atomicOr(&apart[e], 1ull << k);
                    break;
                }
        }
        __syncthreads();
        int now = tid;
        if (tid < entries)
            for (int k = tid - 1; k >= 0; --k)
                if (like[k] == like[tid] && !(apart[tid] >> k & 1)) now = k;
        __syncthreads();
        if (tid < entries) like[tid] = now;
        const bool alone = tid >= entries || (now == tid && (not_zero >> tid & 1));
        if (__syncthreads_and(alone)) break;
    }
    if (mine) atomicOr(&not_zero, mine);
    __syncthreads();
    if (tid < entries) {
        u64 bits = 0;
        for (int k = 0; k < tid; ++k)
            if (like[k] != like[tid]) bits |= 1ull << k;
        if (bits) atomicOr(&found[tid], bits);
    }
    if (tid == 0 && not_zero) atomicOr(&found[entries], not_zero);
}
