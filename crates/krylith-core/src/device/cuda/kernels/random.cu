// Random numbers in (-1, 1) that depend only on a seed and an index: splitmix64, as `random` of space/mod.rs.
//
// Number i of node n has the index numbers[n] * order + i, or first + its own index if `numbers` is null.
// Bytes moved: the numbers, and 8 per node.

typedef unsigned long long u64;

extern "C" __global__ void random_numbers(const long long count, const u64 seed, const u64* __restrict__ numbers, const u64 first, const int order, double* __restrict__ to) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
        const u64 index = numbers ? numbers[i / order] * order + i % order : first + i;
        u64 z = ((seed << 32 ^ index) + 1) * 0x9E3779B97F4A7C15ull;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        to[i] = (double)((z ^ (z >> 31)) >> 11) / 4503599627370496.0 - 1.0;
    }
}
