// all_reduce: values[i], 0 <= i < n, summed over the GPUs of a host, in place; the same bits on every rank (peers.cuh).
//
// For sums that no kernel of their own could add: projections and sweeps do it in their last block, which costs no launch.
// Arguments: halt as everywhere; n <= peers->capacity. Launch one block of a multiple of 32 threads, at most 512.
// Bytes over the links: 16 n (size - 1) each way.

#include "peers.cuh"

extern "C" __global__ void __launch_bounds__(512)
all_reduce_values(const int* halt, double* values, int n, Group* peers) {
    if (halt && *halt) return;
    all_reduce(peers, values, n);
}
