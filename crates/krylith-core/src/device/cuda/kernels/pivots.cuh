// pivots: inverses and defects of the pivots of incomplete factors, which ildu_factor.cu and
// schwarz_factor.cu share.
//
// Macros: ORDER (order of a block).

constexpr double TINY_PIVOT = 1e-14;  // relative to the largest entry of the row

// first: row * 4 + kind of the bad pivot of the first row
struct Pivots { unsigned long long first; unsigned bad, shifted; };
constexpr int ZERO = 0, TINY = 1, NOT_FINITE = 2, GOOD = 3;

// Inverse by Gauss-Jordan with row pivoting, by one warp: the twin of device/cpu/elimination.rs. scale: the
// largest entry of each scalar row of the matrix. `a` is overwritten; all lanes return the same. Pivots below
// `tiny` of their row are bad.
__device__ int invert(double* a, double* inverse, const double* scale, double* factor, double tiny, int lane) {
    constexpr int ENTRIES = ORDER * ORDER;
    bool finite = true;
    for (int e = 0; e < ENTRIES; ++e) finite &= isfinite(a[e]);
    if (!finite) return NOT_FINITE;
    __syncwarp();
    for (int e = lane; e < ENTRIES; e += 32) {
        // rows with different units are compared relative to the entries of the matrix
        const double unit = scale[e / ORDER] > 0 ? scale[e / ORDER] : 1;
        a[e] /= unit;
        inverse[e] = e / ORDER == e % ORDER ? 1 / unit : 0;
    }
    __syncwarp();
    for (int c = 0; c < ORDER; ++c) {
        int pivot = c;
        for (int r = c + 1; r < ORDER; ++r)
            if (fabs(a[r * ORDER + c]) > fabs(a[pivot * ORDER + c])) pivot = r;
        const double p = a[pivot * ORDER + c];
        if (p == 0 || !(fabs(p) >= tiny)) return p == 0 ? ZERO : TINY;
        __syncwarp();
        const double d = 1 / p;
        for (int k = lane; k < ORDER; k += 32) {
            const double u = a[c * ORDER + k], v = inverse[c * ORDER + k];
            const double s = a[pivot * ORDER + k], t = inverse[pivot * ORDER + k];
            a[pivot * ORDER + k] = u;
            inverse[pivot * ORDER + k] = v;
            a[c * ORDER + k] = s * d;
            inverse[c * ORDER + k] = t * d;
        }
        __syncwarp();
        for (int r = lane; r < ORDER; r += 32) factor[r] = a[r * ORDER + c];
        __syncwarp();
        for (int k = lane; k < ORDER; k += 32) {
            const double s = a[c * ORDER + k], t = inverse[c * ORDER + k];
            for (int r = 0; r < ORDER; ++r) {
                if (r == c) continue;
                a[r * ORDER + k] -= factor[r] * s;
                inverse[r * ORDER + k] -= factor[r] * t;
            }
        }
        __syncwarp();
    }
    for (int e = 0; e < ENTRIES; ++e) finite &= isfinite(inverse[e]);
    return finite ? GOOD : NOT_FINITE;
}

// Counts a pivot that is bad or was shifted; one lane calls it.
__device__ __forceinline__ void count_pivot(Pivots* pivots, unsigned row, int kind, bool shifted) {
    if (kind != GOOD) {
        atomicAdd(&pivots->bad, 1u);
        atomicMin(&pivots->first, (unsigned long long)row * 4 + kind);
    } else if (shifted) {
        atomicAdd(&pivots->shifted, 1u);
    }
}
