// The small dense steps of GMRES for kernels: the very text that the CPU includes (space/arnoldi/*.inc).
//
// Constants HALT, COLUMNS, REASON, LIMIT, TAKEN, LEFT, ESTIMATE, INVARIANT, NOT_FINITE, BREAKDOWN and HUGE come
// from the Rust ones. A step runs in one thread; it costs a few microseconds, hidden behind the vector update.

typedef unsigned long long usize;

// Where the numbers stand in the scalars; the twin of arnoldi::Layout.
struct Layout {
    usize norm, target, scale, trusted, gram, history, dots, h, r, cs, sn, start, gamma, y, ld, len, rho, rank;
};

// The common subset of Rust and C++.
#define let auto
#define mut

__device__ inline usize columns(const int* flags) { return flags[COLUMNS]; }
__device__ inline void set_columns(int* flags, usize n) { flags[COLUMNS] = (int)n; }
__device__ inline void halt_after(int* flags, usize j) { flags[HALT] = (int)j + 2; }

__device__ inline int last_column(const Layout& l) { return (int)l.ld - 1; }

__device__ inline void rotate(double* s, const Layout& l, usize c)
#include "rotate.inc"
__device__ inline void start(double* s, const Layout& l)
#include "start.inc"
__device__ inline void begin(double* s, int* flags, const Layout& l)
#include "begin.inc"
__device__ inline void classical(double* s, int* flags, const Layout& l, usize j)
#include "classical.inc"
__device__ inline bool delayed_open(double* s, int* flags, const Layout& l, usize j)
#include "delayed_open.inc"
__device__ inline void delayed_entry(double* s, const Layout& l, usize j, usize i)
#include "delayed_entry.inc"
__device__ inline void delayed_close(double* s, int* flags, const Layout& l, usize j)
#include "delayed_close.inc"
__device__ inline void solve_open(double* s, int* flags, const Layout& l)
#include "solve_open.inc"
__device__ inline void solve_pivot(double* s, const Layout& l, usize i)
#include "solve_pivot.inc"
__device__ inline void solve_entry(double* s, const Layout& l, usize i, usize k)
#include "solve_entry.inc"

#undef let
#undef mut

// One thread would wait for every line of the state in turn: all ask for it at once, and it is found in L1.
__device__ inline void fetch(const double* s, const Layout& l) {
    for (usize i = threadIdx.x; i < l.len; i += blockDim.x) asm volatile("" ::"d"(s[i]));
}

// The Hessenberg step of the delayed variant, by one block: what is a sum for each entry runs with a thread an entry.
__device__ inline void delayed(double* s, int* flags, const Layout& l, usize j) {
    __shared__ bool begun;
    fetch(s, l);
    __syncthreads();
    if (threadIdx.x == 0) begun = delayed_open(s, flags, l, j);
    __syncthreads();
    if (!begun) return;
    for (usize i = threadIdx.x; i <= j; i += blockDim.x) delayed_entry(s, l, j, i);
    __syncthreads();
    if (threadIdx.x == 0) delayed_close(s, flags, l, j);
}

// y = R^-1 gamma, by one block: a column leaves all rows at once.
__device__ inline void solve(double* s, int* flags, const Layout& l) {
    fetch(s, l);
    __syncthreads();
    if (threadIdx.x == 0) solve_open(s, flags, l);
    __syncthreads();
    for (usize i = columns(flags); i-- > 0;) {
        if (threadIdx.x == 0) solve_pivot(s, l, i);
        __syncthreads();
        for (usize k = threadIdx.x; k < i; k += blockDim.x) solve_entry(s, l, i, k);
        __syncthreads();
    }
}
