// amg_galerkin: shared by the kernels of sparse products. Matrices are block rows in compressed form. The
// product and one of the factors, as LEFT says, have values of BLOCK x BLOCK numbers per entry; the other
// factor has scalars.

typedef long long i64;

constexpr unsigned EMPTY = 0xffffffff;
constexpr int BB = BLOCK * BLOCK;

struct Matrix { const i64* ptr; const unsigned* col; const double* val; };

// The index of `key` in the ascending `keys`, or -1.
__device__ __forceinline__ int search(const unsigned* keys, const int count, const unsigned key) {
    int low = 0, high = count;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (keys[middle] < key) low = middle + 1;
        else high = middle;
    }
    return low < count && keys[low] == key ? low : -1;
}

// Adds entry p of the left factor times a run of `length` entries of the right factor, from q on, to the row
// at `to`, whose columns are `keys`. Lanes have different numbers of the run, so no two add to the same
// number. Returns false if a column is missing.
__device__ __forceinline__ bool add_run(const Matrix& left, const Matrix& right, const i64 p, const i64 q, const int length, const unsigned* keys, const int count, double* to, const int lane, const int lanes) {
    bool known = true;
    const double weight = LEFT ? 0.0 : __ldg(left.val + p);
    for (i64 x = lane; x < length * (i64)BB; x += lanes) {
        const i64 e = q + x / BB;
        const int c = (int)(x % BB), at = search(keys, count, __ldg(right.col + e));
        if (at < 0) {
            known = false;
            continue;
        }
        const double product = LEFT ? __dmul_rn(__ldg(left.val + p * BB + c), __ldg(right.val + e)) : __dmul_rn(weight, __ldg(right.val + e * BB + c));
        double& sum = to[(i64)at * BB + c];
        sum = __dadd_rn(sum, product);
    }
    return known;
}
