// vanka_patches: z = (R A R^T)^-1 R x for all patches, by their dense inverses.
//
// Macros: VALUE double or float (storage; arithmetic is in double).
// Bytes moved: sizeof(VALUE) per number of an inverse, and 24 per place (8 for z, 4 for its patch, and the
// unknown and its x once). x and the list of unknowns are read again from the caches for each row.
//
// A place is a row of a patch. Patches stand one after the other, from first[p] on, and `members` has the
// unknown of each place. The inverse of patch p begins at at[p] and is stored by columns. A thread computes
// one number of z, so the threads of a patch read a run of each column. The order of a sum is that of the
// columns.

extern "C" __global__ void __launch_bounds__(256)
vanka_patches(const int* halt, const long long places, const unsigned* __restrict__ patch, const long long* __restrict__ first, const long long* __restrict__ at, const unsigned* __restrict__ members, const VALUE* __restrict__ inverses, const double* __restrict__ x, double* __restrict__ z) {
    if (halt && *halt) return;
    const long long place = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (place >= places) return;
    const unsigned p = patch[place];
    const long long begin = first[p];
    const int n = (int)(first[p + 1] - begin);
    const VALUE* column = inverses + at[p] + (place - begin);
    const unsigned* of = members + begin;
    double sum = 0.0;
#pragma unroll 8
    for (int c = 0; c < n; ++c) sum = fma((double)__ldcs(column + (long long)c * n), x[of[c]], sum);
    z[place] = sum;
}
