// Published products y = A x of CSR matrices, for comparison: 64-bit row pointers, 32-bit columns, f64. Each
// reads 12 bytes per entry, 8 to 16 per row, and x by columns; each writes y once.
//
//   csr_vector       Bell and Garland 2009, as in CUSP: WIDTH threads per row.
//   merge_*          Merrill and Garland 2016: each thread takes ITEMS row ends and entries. A block's part
//                    of its last row is added afterwards.
//   adaptive         Greathouse and Daga 2014, 2015: whole rows with at most PIECE entries in total share a
//                    block and its shared memory. A longer row has a block to itself. A row of more than
//                    GIANT entries has several, which add their sums by atomics.
//
// WIDTH: threads per row of csr_vector. ITEMS: row ends and entries per thread of merge_product.
typedef long long i64;
#define VECTOR_THREADS 256
#define MERGE_THREADS 128
#define TILE (MERGE_THREADS * ITEMS)
#define THREADS 256
#define PIECE 1024
#define GIANT 16384

extern "C" __global__ void __launch_bounds__(VECTOR_THREADS)
    csr_vector(const i64* __restrict__ ptr, const unsigned* __restrict__ col, const double* __restrict__ val,
               const double* __restrict__ x, double* __restrict__ y, i64 rows) {
    const int lane = threadIdx.x % WIDTH;
    const unsigned group = WIDTH == 32 ? 0xffffffffu : ((1u << (WIDTH % 32)) - 1) << (threadIdx.x % 32 / WIDTH * WIDTH);
    const i64 step = (i64)gridDim.x * (VECTOR_THREADS / WIDTH);
    for (i64 row = (i64)blockIdx.x * (VECTOR_THREADS / WIDTH) + threadIdx.x / WIDTH; row < rows; row += step) {
        const i64 begin = ptr[row], end = ptr[row + 1];
        double sum = 0;
        if (WIDTH == 32 && end - begin > 32) {
            // Long rows start on a multiple of 32, so that reads are aligned.
            i64 j = begin - (begin & 31) + lane;
            if (j >= begin) sum += val[j] * x[col[j]];
            for (j += 32; j < end; j += 32) sum += val[j] * x[col[j]];
        } else {
            for (i64 j = begin + lane; j < end; j += WIDTH) sum += val[j] * x[col[j]];
        }
        for (int o = WIDTH / 2; o > 0; o /= 2) sum += __shfl_xor_sync(group, sum, o);
        if (lane == 0) y[row] = sum;
    }
}

// Row in which each block's share of the path begins: row ends consumed before diagonal b·TILE.
extern "C" __global__ void merge_search(const i64* __restrict__ ptr, i64* __restrict__ first, i64 rows, i64 entries,
                                        i64 blocks) {
    const i64 b = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (b > blocks) return;
    i64 diagonal = b * TILE;
    if (diagonal > rows + entries) diagonal = rows + entries;
    i64 low = diagonal > entries ? diagonal - entries : 0;
    i64 high = diagonal < rows ? diagonal : rows;
    while (low < high) {
        const i64 middle = (low + high) / 2;
        if (ptr[middle + 1] <= diagonal - 1 - middle) low = middle + 1;
        else high = middle;
    }
    first[b] = low;
}

extern "C" __global__ void __launch_bounds__(MERGE_THREADS)
    merge_product(const i64* __restrict__ ptr, const unsigned* __restrict__ col, const double* __restrict__ val,
                  const double* __restrict__ x, double* __restrict__ y, const i64* __restrict__ first,
                  double* __restrict__ carry, i64 rows, i64 entries) {
    __shared__ double products[TILE];
    __shared__ double sums[TILE];
    __shared__ int ends[TILE + 1];
    __shared__ int keys[MERGE_THREADS];
    __shared__ double values[MERGE_THREADS];
    const i64 b = blockIdx.x;
    const i64 all = rows + entries;
    const i64 diagonal = b * TILE, next = diagonal + TILE < all ? diagonal + TILE : all;
    const i64 row = first[b], entry = diagonal - row;
    const int own_rows = (int)(first[b + 1] - row), own = (int)(next - first[b + 1] - entry);
    for (int i = threadIdx.x; i < own_rows; i += MERGE_THREADS) ends[i] = (int)(ptr[row + i + 1] - entry);
    if (threadIdx.x == 0) ends[own_rows] = 0x7fffffff; // the row that goes on in the next block
    for (int i = threadIdx.x; i < own; i += MERGE_THREADS) products[i] = val[entry + i] * x[col[entry + i]];
    __syncthreads();

    const int length = own_rows + own;
    const int from = min((int)threadIdx.x * ITEMS, length), to = min(from + ITEMS, length);
    int low = max(from - own, 0), high = min(from, own_rows);
    while (low < high) {
        const int middle = (low + high) / 2;
        if (ends[middle] <= from - 1 - middle) low = middle + 1;
        else high = middle;
    }
    int i = low, j = from - low;
    double sum = 0;
    for (int step = from; step < to; ++step) {
        if (j < ends[i]) {
            sum += products[j++];
        } else {
            sums[i++] = sum;
            sum = 0;
        }
    }
    // The partial sum of each thread for the row in which its share ends, summed over threads that end in the
    // same row.
    keys[threadIdx.x] = i;
    values[threadIdx.x] = sum;
    __syncthreads();
    for (int o = 1; o < MERGE_THREADS; o *= 2) {
        double more = 0;
        if ((int)threadIdx.x >= o && keys[threadIdx.x - o] == i) more = values[threadIdx.x - o];
        __syncthreads();
        values[threadIdx.x] += more;
        __syncthreads();
    }
    const bool last = threadIdx.x == MERGE_THREADS - 1 || keys[threadIdx.x + 1] != i;
    if (last && i < own_rows) sums[i] += values[threadIdx.x];
    if (threadIdx.x == MERGE_THREADS - 1) carry[b] = i == own_rows ? values[threadIdx.x] : 0;
    __syncthreads();
    for (int k = threadIdx.x; k < own_rows; k += MERGE_THREADS) y[row + k] = sums[k];
}

// Adds the partial sums of blocks for the rows in which they end; a warp first adds those of its blocks for
// one row.
extern "C" __global__ void merge_fix(const i64* __restrict__ first, const double* __restrict__ carry, double* y, i64 rows,
                                     i64 blocks) {
    const i64 b = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    const int lane = threadIdx.x % 32;
    const i64 row = b < blocks ? first[b + 1] : -1;
    double sum = b < blocks ? carry[b] : 0;
    for (int o = 1; o < 32; o *= 2) {
        const double more = __shfl_up_sync(0xffffffffu, sum, o);
        const i64 other = __shfl_up_sync(0xffffffffu, row, o);
        if (lane >= o && other == row) sum += more;
    }
    const i64 after = __shfl_down_sync(0xffffffffu, row, 1);
    if (b < blocks && row < rows && (lane == 31 || after != row) && sum != 0) atomicAdd(y + row, sum);
}

// Sets to zero the rows to which several blocks add.
extern "C" __global__ void clear_rows(const unsigned* __restrict__ list, double* __restrict__ y, i64 count) {
    const i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < count) y[list[i]] = 0;
}

// pieces: first row, rows, and which GIANT entries of a row that has several blocks, from 1; 0 otherwise.
extern "C" __global__ void __launch_bounds__(THREADS)
    adaptive(const i64* __restrict__ ptr, const unsigned* __restrict__ col, const double* __restrict__ val,
             const double* __restrict__ x, double* __restrict__ y, const unsigned* __restrict__ pieces) {
    __shared__ double products[PIECE];
    const unsigned row = pieces[3 * (i64)blockIdx.x], count = pieces[3 * (i64)blockIdx.x + 1];
    const unsigned giant = pieces[3 * (i64)blockIdx.x + 2];
    const i64 begin = ptr[row], end = ptr[row + count];
    if (count > 1 || end - begin <= PIECE) {
        const int entries = (int)(end - begin);
        for (int j = threadIdx.x; j < entries; j += THREADS) products[j] = val[begin + j] * x[col[begin + j]];
        __syncthreads();
        // A power of two of threads per row, at most a warp.
        int width = 1;
        while (width < 32 && 2 * width * count <= THREADS) width *= 2;
        const int lane = threadIdx.x % width;
        const unsigned rounds = (count + THREADS / width - 1) / (THREADS / width);
        for (unsigned round = 0; round < rounds; ++round) {
            const unsigned i = round * (THREADS / width) + threadIdx.x / width;
            double sum = 0;
            if (i < count) {
                const int last = (int)(ptr[row + i + 1] - begin);
                for (int j = (int)(ptr[row + i] - begin) + lane; j < last; j += width) sum += products[j];
            }
            for (int o = width / 2; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
            if (i < count && lane == 0) y[row + i] = sum;
        }
        return;
    }
    i64 from = begin, to = end;
    if (giant > 0) {
        from = begin + (i64)(giant - 1) * GIANT;
        to = from + GIANT < end ? from + GIANT : end;
    }
    double sum = 0;
    for (i64 j = from + threadIdx.x; j < to; j += THREADS) sum += val[j] * x[col[j]];
    for (int o = 16; o > 0; o /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, o);
    if (threadIdx.x % 32 == 0) products[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < THREADS / 32; ++w) sum += products[w];
        if (giant > 0) atomicAdd(y + row, sum);
        else y[row] = sum;
    }
}
