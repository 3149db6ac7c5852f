// One small dense step on its own: start, begin, classical or solve.
//
// Macros: STEP_START, STEP_BEGIN, STEP_CLASSICAL, STEP_DELAYED or STEP_SOLVE. One block; one thread where a step has no parts that
// are independent. No traffic worth counting.

#include "arnoldi.cuh"

extern "C" __global__ void step(const int* halt, double* s, int* flags, const Layout layout, usize j) {
    if (halt && *halt) return;
#if defined(STEP_START)
    start(s, layout);
#elif defined(STEP_BEGIN)
    begin(s, flags, layout);
#elif defined(STEP_CLASSICAL)
    classical(s, flags, layout, j);
#elif defined(STEP_DELAYED)
    delayed(s, flags, layout, j);
#else
    solve(s, flags, layout);
#endif
}
