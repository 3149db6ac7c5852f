// arrays: copies and checks a caller's matrix on the device: indices of any width become 64-bit row pointers
// and 32-bit columns.
//
// If the row pointers start at 1, both they and the columns count from 1, and *base becomes 1.
//
// Macros: ROW, COLUMN (types of the caller's row pointers and columns). `wrong` becomes 1 where an array
// breaks the rules of the format; the host then finds the fault.
// Bytes moved: each array read and written once, the pattern read once more.

typedef unsigned char u8;

// Row pointers must go from 0 to `entries` and must not decrease.
extern "C" __global__ void take_row_pointers(long long rows, long long entries, const ROW* __restrict__ from, long long* __restrict__ to, int* base, int* wrong) {
    const long long first = from[0] == 1;
    if (blockIdx.x == 0 && threadIdx.x == 0) *base = (int)first;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i <= rows; i += (long long)gridDim.x * blockDim.x) {
        const long long p = (long long)from[i] - first, next = i < rows ? (long long)from[i + 1] - first : entries;
        if (p < 0 || p > next || next > entries || (i == 0 && p != 0) || (i == rows && p != entries)) *wrong = 1;
        to[i] = p;
    }
}

extern "C" __global__ void take_columns(long long entries, long long columns, const COLUMN* __restrict__ from, unsigned* __restrict__ to, const int* base, int* wrong) {
    const long long first = *base;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < entries; i += (long long)gridDim.x * blockDim.x) {
        const long long j = (long long)from[i] - first;
        if (j < 0 || j >= columns) *wrong = 1;
        to[i] = (unsigned)j;
    }
}

// Columns must ascend in each row: where they do not, a new row must start. It checks entry by entry, so that
// a long row is shared among threads, too.
extern "C" __global__ void check_columns(long long rows, long long entries, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, int* wrong) {
    for (long long p = 1 + blockIdx.x * (long long)blockDim.x + threadIdx.x; p < entries; p += (long long)gridDim.x * blockDim.x) {
        if (col[p - 1] < col[p]) continue;
        long long low = 0, high = rows;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (row_ptr[middle] < p) low = middle + 1; else high = middle;
        }
        if (row_ptr[low] != p) *wrong = 1;
    }
}

extern "C" __global__ void take_values(long long count, const double* __restrict__ from, double* __restrict__ to, int* wrong) {
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < count; i += (long long)gridDim.x * blockDim.x) {
        const double v = from[i];
        if (!(fabs(v) <= 1.7976931348623157e308)) *wrong = 1;
        to[i] = v;
    }
}

// `differ` becomes 1 where two patterns of the same shape differ.
extern "C" __global__ void compare_patterns(long long pointers, long long entries, const long long* __restrict__ one, const long long* __restrict__ two,
                                            const unsigned* __restrict__ col, const unsigned* __restrict__ other, int* differ) {
    bool same = true;
    const long long first = blockIdx.x * (long long)blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    for (long long i = first; i < pointers; i += step) same &= one[i] == two[i];
    for (long long p = first; p < entries; p += step) same &= col[p] == other[p];
    if (!same) *differ = 1;
}

// Adds the number of blocks of `square` numbers that are all zero to *count.
extern "C" __global__ void zero_blocks(long long blocks, int square, const double* __restrict__ values, unsigned long long* count) {
    unsigned long long own = 0;
    for (long long p = blockIdx.x * (long long)blockDim.x + threadIdx.x; p < blocks; p += (long long)gridDim.x * blockDim.x) {
        bool zero = true;
        for (int k = 0; k < square && zero; ++k) zero = values[p * square + k] == 0.0;
        own += zero;
    }
#pragma unroll
    for (int d = 16; d > 0; d /= 2) own += __shfl_xor_sync(~0u, own, d);
    if (threadIdx.x % 32 == 0 && own > 0) atomicAdd(count, own);
}

// Flags the unknowns whose rows have a diagonal alone; `any` becomes 1 if there is one.
extern "C" __global__ void fixed_rows(long long rows, int block, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col,
                                      const double* __restrict__ values, u8* flags, int* any) {
    for (long long u = blockIdx.x * (long long)blockDim.x + threadIdx.x; u < rows * block; u += (long long)gridDim.x * blockDim.x) {
        const long long i = u / block;
        const int r = (int)(u % block);
        bool alone = true, diagonal = false;
        for (long long p = row_ptr[i]; p < row_ptr[i + 1] && alone; ++p) {
            for (int c = 0; c < block; ++c) {
                if (values[(p * block + r) * block + c] == 0.0) continue;
                const bool own = col[p] == i && c == r;
                diagonal |= own;
                alone &= own;
            }
        }
        flags[u] = alone && diagonal;
        if (alone && diagonal) *any = 1;
    }
}

// `found` becomes 1 if a row that is not flagged has an entry in the column of one that is.
extern "C" __global__ void refers_to_fixed(long long rows, int block, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col,
                                           const double* __restrict__ values, const u8* __restrict__ flags, int* found) {
    const int lane = threadIdx.x % 8;
    bool refers = false;
    for (long long i = (blockIdx.x * (long long)blockDim.x + threadIdx.x) / 8; i < rows; i += (long long)gridDim.x * blockDim.x / 8) {
        for (long long p = row_ptr[i] + lane; p < row_ptr[i + 1]; p += 8) {
            for (int c = 0; c < block; ++c) {
                if (!flags[(long long)col[p] * block + c]) continue;
                for (int r = 0; r < block; ++r) refers |= !flags[i * block + r] && values[(p * block + r) * block + c] != 0.0;
            }
        }
    }
    if (refers) *found = 1;
}

// Counts the negative, zero and positive entries on the diagonal.
extern "C" __global__ void diagonal_signs(long long rows, int block, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col,
                                          const double* __restrict__ values, unsigned long long* counts) {
    unsigned long long negative = 0, zero = 0, positive = 0;
    for (long long u = blockIdx.x * (long long)blockDim.x + threadIdx.x; u < rows * block; u += (long long)gridDim.x * blockDim.x) {
        const long long i = u / block;
        const int r = (int)(u % block);
        double d = 0.0;
        for (long long p = row_ptr[i]; p < row_ptr[i + 1]; ++p) {
            if (col[p] == i) d += values[(p * block + r) * block + r];
        }
        negative += d < 0.0;
        zero += d == 0.0;
        positive += d > 0.0;
    }
    unsigned long long own[3] = {negative, zero, positive};
#pragma unroll
    for (int k = 0; k < 3; ++k) {
#pragma unroll
        for (int d = 16; d > 0; d /= 2) own[k] += __shfl_xor_sync(~0u, own[k], d);
        if (threadIdx.x % 32 == 0 && own[k] > 0) atomicAdd(counts + k, own[k]);
    }
}
