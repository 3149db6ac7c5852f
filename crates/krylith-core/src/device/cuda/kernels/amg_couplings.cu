// amg_couplings: the scalar matrix by which nodes of one or two block matrices are coarsened, and the l1
// norms of smoothers.
//
// Macros: BLOCK (b).
// Bytes moved: amg_norms 8 b^2 + 8 per entry; amg_union 24 per entry, 12 written; amg_l1 8 b^2 + 4 per entry
// and 8 (b s)^2 per node.

typedef long long i64;

constexpr int BB = BLOCK * BLOCK;
constexpr unsigned NONE = 0xffffffff;

// Pattern and numbers of a term; without a pattern there is no term.
struct Term { const i64* ptr; const unsigned* col; const double* val; };

// Calls f(column, entry of the first or -1, entry of the second or -1) for each column of row i, ascending.
template <class F> __device__ __forceinline__ void union_row(const Term& first, const Term& second, const i64 i, F f) {
    i64 p = first.ptr[i], q = second.ptr ? second.ptr[i] : 0;
    const i64 p_end = first.ptr[i + 1], q_end = second.ptr ? second.ptr[i + 1] : 0;
    while (p < p_end || q < q_end) {
        const unsigned a = p < p_end ? first.col[p] : NONE, b = q < q_end ? second.col[q] : NONE, j = a < b ? a : b;
        f(j, a == j ? p++ : -1ll, b == j ? q++ : -1ll);
    }
}

// Computes Frobenius norms of blocks.
extern "C" __global__ void __launch_bounds__(256)
amg_norms(const i64 entries, const double* __restrict__ val, double* __restrict__ norms) {
    for (i64 p = blockIdx.x * 256ll + threadIdx.x; p < entries; p += gridDim.x * 256ll) {
        double sum = 0.0;
#pragma unroll
        for (int c = 0; c < BB; ++c) sum = __dadd_rn(sum, __dmul_rn(val[p * BB + c], val[p * BB + c]));
        norms[p] = __dsqrt_rn(sum);
    }
}

// Multiplies values by a factor.
extern "C" __global__ void __launch_bounds__(256)
amg_scale(const i64 count, const double factor, const double* __restrict__ from, double* __restrict__ to) {
    for (i64 p = blockIdx.x * 256ll + threadIdx.x; p < count; p += gridDim.x * 256ll) to[p] = __dmul_rn(from[p], factor);
}

// The values of the terms are norms. Without `to`, counts the columns of each row, including the diagonal;
// otherwise writes columns and couplings.
extern "C" __global__ void __launch_bounds__(256)
amg_union(const i64 rows, const Term first, const Term second, const double norm, const double other, unsigned* __restrict__ counts, const i64* __restrict__ to, unsigned* __restrict__ to_col, double* __restrict__ to_val) {
    const i64 i = blockIdx.x * 256ll + threadIdx.x;
    if (i >= rows) return;
    i64 at = to ? to[i] : 0, diagonal = -1;
    double sum = 0.0;
    auto on_diagonal = [&] {
        if (to) to_col[at] = (unsigned)i;
        diagonal = at++;
    };
    union_row(first, second, i, [&](unsigned j, i64 p, i64 q) {
        if (j >= i && diagonal < 0) on_diagonal();
        if (j == i) return;
        if (to) {
            double size = 0.0;
            if (p >= 0) size = __dadd_rn(size, __dmul_rn(norm, first.val[p]));
            if (q >= 0) size = __dadd_rn(size, __dmul_rn(other, second.val[q]));
            to_col[at] = j;
            to_val[at] = -size;
            sum = __dadd_rn(sum, size);
        }
        ++at;
    });
    if (diagonal < 0) on_diagonal();
    if (to) to_val[diagonal] = sum;
    else counts[i] = (unsigned)at;
}

// Writes the diagonal block of each node, of order b s and by rows, as a block-diagonal matrix. The l1 norm
// of the other entries of a row is added to its diagonal entry, with the sign of that entry. A thread
// processes a row. Coefficients: s x s numbers of the first term, then of the second.
extern "C" __global__ void __launch_bounds__(256)
amg_l1(const i64 nodes, const int stages, const Term first, const Term second, const double* __restrict__ coefficients, i64* __restrict__ ptr, unsigned* __restrict__ col, double* __restrict__ to) {
    const int order = BLOCK * stages;
    const i64 thread = blockIdx.x * 256ll + threadIdx.x, i = thread / order;
    if (i >= nodes) return;
    const int row = (int)(thread % order), r = row / stages, k = row % stages;
    const double *const one = coefficients + k * stages, *const two = one + stages * stages;
    if (row == 0) {
        ptr[i + 1] = i + 1;
        col[i] = (unsigned)i;
    }
    double* const own = to + thread * order;
    double norm = 0.0;
    for (int c = 0; c < order; ++c) own[c] = 0.0;
    union_row(first, second, i, [&](unsigned j, i64 p, i64 q) {
        for (int c = 0; c < BLOCK; ++c)
            for (int l = 0; l < stages; ++l) {
                double v = 0.0;
                if (p >= 0) v = __dadd_rn(v, __dmul_rn(one[l], first.val[p * BB + r * BLOCK + c]));
                if (q >= 0) v = __dadd_rn(v, __dmul_rn(two[l], second.val[q * BB + r * BLOCK + c]));
                if (j != i) norm = __dadd_rn(norm, fabs(v));
                else own[c * stages + l] = v;
            }
    });
    const double diagonal = own[row];
    own[row] = __dadd_rn(diagonal, diagonal < 0.0 ? -norm : norm);
}
