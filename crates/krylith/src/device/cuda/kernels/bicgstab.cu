// The small steps of BiCGSTAB: the very text that the CPU includes (space/bicgstab/*.inc).
//
// Macros: one of STEP_RESTART, STEP_BEGIN, STEP_COEFFICIENTS, STEP_MERGED, STEP_TURN, STEP_END and STEP_VERIFY; the
// constants of the flags, of the reasons, and VANISHES, GROWTH, TRUSTED and HUGE from the Rust ones. One thread. No traffic
// worth counting.

typedef unsigned long long usize;

// Where the numbers stand in the scalars; the twin of bicgstab::Layout.
struct Layout {
    usize norm, target, best, history, rho, alpha, omega, beta, sigma, vv, ts, tt, ss, rs, rt, rho_next, rr, size, shift,
        stretch, len;
};

// The common subset of Rust and C++.
#define let auto
#define mut

__device__ inline usize taken(const int* flags) { return flags[TAKEN]; }
__device__ inline int longest(const Layout& l) { return (int)l.stretch; }

__device__ inline void restart(double* s, int* flags, const Layout& l)
#include "bicgstab/restart.inc"
__device__ inline void begin(double* s, int* flags, const Layout& l)
#include "bicgstab/begin.inc"
__device__ inline bool coefficients(double* s, int* flags, const Layout& l)
#include "bicgstab/coefficients.inc"
__device__ inline void predict(double* s, int* flags, const Layout& l)
#include "bicgstab/predict.inc"
__device__ inline void turn(double* s, int* flags, const Layout& l)
#include "bicgstab/turn.inc"
__device__ inline void end(int* flags)
#include "bicgstab/end.inc"
__device__ inline void verify(double* s, int* flags, const Layout& l)
#include "bicgstab/verify.inc"

#undef let
#undef mut

extern "C" __global__ void step(const int* halt, double* s, int* flags, const Layout layout, usize j) {
    if (halt && *halt) return;
#if defined(STEP_RESTART)
    restart(s, flags, layout);
#elif defined(STEP_BEGIN)
    begin(s, flags, layout);
#elif defined(STEP_COEFFICIENTS)
    coefficients(s, flags, layout);
#elif defined(STEP_MERGED)
    if (coefficients(s, flags, layout)) {
        predict(s, flags, layout);
        turn(s, flags, layout);
    }
#elif defined(STEP_TURN)
    turn(s, flags, layout);
    end(flags);
#elif defined(STEP_END)
    end(flags);
#else
    verify(s, flags, layout);
#endif
}
