// scan_columns: exclusive sums of COLUMNS interleaved columns of 64-bit numbers, in place, by one thread
// block; row `count` becomes the totals. For offsets of subdomains or tiles, from thousands to some hundred
// thousand.
// Bytes moved: 16 per number.

#include "scan.cuh"

extern "C" __global__ void __launch_bounds__(1024) scan_columns(long long count, long long* values) {
    for (int c = 0; c < COLUMNS; ++c) {
        long long before = 0;
        for (long long begin = 0; begin < count; begin += blockDim.x) {
            const long long i = begin + threadIdx.x;
            long long total;
            const long long own = i < count ? values[i * COLUMNS + c] : 0, sum = block_exclusive(own, total);
            if (i < count) values[i * COLUMNS + c] = before + sum;
            before += total;
        }
        if (threadIdx.x == 0) values[count * COLUMNS + c] = before;
    }
}
