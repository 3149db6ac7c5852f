// One small step of a method on its own (step.cuh). One block; one thread if the step has no parallel work.
// The traffic is negligible.

#include "step.cuh"

extern "C" __global__ void step(const int* halt, MethodScalars* scalars, usize iteration) {
    if (halt && *halt) return;
    small_step(scalars, iteration);
}
