// Levels of a triangle's rows, all subdomains at once: Alg. 4.2 of the paper that `ildu0/mod.rs` names.
//
// Constants: THREADS threads per block; UPPER is 1 for the upper triangle, 0 for the lower one. Each
// subdomain has one thread block. `columns` are 32-bit columns of the whole matrix, as in the CSR arrays of
// the factorisation. `marked` has one byte in shared memory per row of the largest subdomain; the launch sets
// its size. `level` is the paper's hmap.
//
// A row gets the present level if all rows that it needs have a lower one. So it never sees a level that was
// assigned in the same round. The comparison with "level" in Alg. 4.2 says the same.
//
// Bytes moved: row pointers and columns once per level, unless a cache holds them; one level per row.

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
