// amg_galerkin_wide: rows of a sparse product that are too long for shared memory. A thread block processes a
// row; its columns are a bitmap in global memory.
// Macros: FILL, BLOCK and LEFT as in amg_galerkin.cu.
// Bytes moved: `words` * 8 per row besides those of amg_galerkin.cu; sums are kept in the row itself.

#include "amg_galerkin.cuh"
#include "scan.cuh"

constexpr int THREADS = 256;

// `maps` has `words` zeros for each thread block, and is zero again at the end; other parameters as in
// amg_galerkin.cu.
extern "C" __global__ void __launch_bounds__(THREADS)
amg_wide_rows(const i64 count, const unsigned* __restrict__ rows, const Matrix left, const Matrix right, const int diagonal, const int known,
              unsigned* __restrict__ counts, const i64* __restrict__ to, unsigned* to_col, double* to_val, int* wrong, const i64 words, unsigned* maps) {
    unsigned* const map = maps + blockIdx.x * words;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (i64 at = blockIdx.x; at < count; at += gridDim.x) {
        const unsigned row = rows ? rows[at] : (unsigned)at;
        const i64 begin = left.ptr[row], end = left.ptr[row + 1];
        if (!known) {
            if (diagonal && threadIdx.x == 0) atomicOr(map + row / 32, 1u << row % 32);
            for (i64 p = begin + warp; p < end; p += THREADS / 32) {
                const unsigned k = __ldg(left.col + p);
                const i64 last = __ldg(right.ptr + k + 1);
                for (i64 q = __ldg(right.ptr + k) + lane; q < last; q += 32) {
                    const unsigned j = __ldg(right.col + q);
                    atomicOr(map + j / 32, 1u << j % 32);
                }
            }
            __syncthreads();
            i64 columns = 0;
            for (i64 first = 0; first < words; first += THREADS) {
                const i64 w = first + threadIdx.x;
                unsigned bits = w < words ? __ldcg(map + w) : 0u;
                if (bits) __stcg(map + w, 0u);
                int total, place = block_exclusive(__popc(bits), total);
#if FILL
                for (; bits; bits &= bits - 1) to_col[to[row] + columns + place++] = (unsigned)(32 * w) + __ffs(bits) - 1;
#endif
                columns += total;
            }
#if !FILL
            if (threadIdx.x == 0) counts[row] = (unsigned)columns;
#endif
            __syncthreads();
        }
#if FILL
        const i64 begin_to = to[row];
        const int columns = (int)(to[row + 1] - begin_to);
        double* const own = to_val + begin_to * BB;
        for (i64 x = threadIdx.x; x < columns * (i64)BB; x += THREADS) own[x] = 0.0;
        __syncthreads();
        bool bad = false;
        for (i64 p = begin; p < end; ++p) {
            const unsigned k = __ldg(left.col + p);
            const i64 q = __ldg(right.ptr + k);
            bad |= !add_run(left, right, p, q, (int)(__ldg(right.ptr + k + 1) - q), to_col + begin_to, columns, own, threadIdx.x, THREADS);
            __syncthreads();
        }
        if (bad) *wrong = 1;
#endif
    }
}
