// The small dense steps of GMRES for kernels: the very text that the CPU includes (space/arnoldi/*.inc).
//
// Constants HALT, COLUMNS, REASON, LIMIT, TAKEN, LEFT, ESTIMATE, INVARIANT, NOT_FINITE, BREAKDOWN and HUGE come
// from the Rust ones. A step runs in one thread; it costs a few microseconds, hidden behind the vector update.

typedef unsigned long long usize;

// Where the numbers stand in the scalars; the twin of arnoldi::Layout.
struct Layout {
    usize norm, target, scale, trusted, gram, history, dots, h, r, cs, sn, start, gamma, y, ld, len, rank;
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
__device__ inline void delayed(double* s, int* flags, const Layout& l, usize j)
#include "delayed.inc"
__device__ inline void solve(double* s, int* flags, const Layout& l)
#include "solve.inc"

#undef let
#undef mut
