// Levels of a triangle's rows, all subdomains at once (Alg. 4.2).
//
// Constants: THREADS threads a block; UPPER 0 or 1, which triangle. One thread block a subdomain. `columns` are 32-bit
// and count in the whole matrix, as in the CSR arrays that the factorisation works on. `marked` takes a byte a row of
// the largest subdomain in shared memory, sized at the launch; `level` is the paper's hmap.
//
// What had to be settled: a row is promoted when all it needs have a level below the present one, so that a promotion in
// the same round is never seen; Alg. 4.2's comparison with "level" says the same.
//
// Bytes moved: row pointers and columns once a level, unless a cache holds them; a level a row.

extern "C" __global__ void __launch_bounds__(THREADS)
assign_levels(const int* __restrict__ first, const int* __restrict__ row_ptr, const int* __restrict__ columns,
              int* level) {
    extern __shared__ unsigned char marked[];
    __shared__ int added;
    const int begin = first[blockIdx.x], end = first[blockIdx.x + 1], none = 0x7FFFFFFF;
    for (int i = begin + threadIdx.x; i < end; i += THREADS) {
        marked[i - begin] = 0;
        level[i] = none;
    }
    __syncthreads();
    for (int present = 0;; ++present) {
        if (threadIdx.x == 0) added = 0;
        __syncthreads();
        for (int i = begin + threadIdx.x; i < end; i += THREADS) {
            if (level[i] != none) continue;
            bool valid = true;
            for (int p = row_ptr[i]; p < row_ptr[i + 1] && valid; ++p) {
                const int j = columns[p];
                if (UPPER ? j > i : j < i) valid = level[j] < present;
            }
            if (valid) {
                marked[i - begin] = 1;
                atomicOr(&added, 1);
            }
        }
        __syncthreads();
        for (int i = begin + threadIdx.x; i < end; i += THREADS) {
            if (marked[i - begin]) {
                level[i] = present;
                marked[i - begin] = 0;
            }
        }
        const bool more = added;
        __syncthreads();
        if (!more) break;
    }
}
