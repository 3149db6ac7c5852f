// Triangular solves level by level, Alg. 4.3 of the paper that `ildu0/mod.rs` names: its lower solves, and
// its separate and fused applications.
//
//   dag_ec_no_lds        x = D⁻¹ (I + L)⁻¹ b, edges, vector in global memory, rows divided level by level
//   dag_ec_lds           the same with the vector in shared memory
//   dag_ec_lds_ud        the same, unit diagonal, all rows divided at the end; also the LD of dag_ec_ILD_U0
//   dag_ec_U0            x = (I + U)⁻¹ b, edges: the U of dag_ec_ILD_U0
//   dag_ec_ILDU0_fused   x = (I + U)⁻¹ D⁻¹ (I + L)⁻¹ b, edges
//   dag_vc_ILDU0_fused   the same, one thread per row: always the same order of summation
//
// Constants: B block size, THREADS threads per block. Each subdomain has one thread block. The vector in
// shared memory has (rows of the largest subdomain)·B numbers; the launch sets its size.
//
// Arrays, all owned by the caller. Rows and columns are 16-bit numbers within the subdomain.
//   first[s]             first row of subdomain s
//   levels[s]            its first level
//   row_ptr[l]           position in `rows` of the first row of level l
//   entry_ptr[q]         first entry of the row at position q of `rows`; `columns` has the columns of entries
//   edge_ptr[l]          first entry of level l; `pairs` has row·2¹⁶ + column of entries
//   values               blocks in the order of the entries, row-major
//   inverse              D⁻¹ by row
// For dag_ec_no_lds and dag_ec_lds the triangle is (I + L) D without its diagonal.
//
// The paper leaves open how a thread finds the row of its entry, and the order of the entries. Here entries
// are in the order of levels, each with its row and column in 4 bytes. Within a level, the first entries of
// all rows precede their second entries, so atomics of a warp seldom collide. A thread reads a whole block,
// as the paper says for BSR.
//
// Bytes moved: each array argument of a kernel once, b and x once. Without shared memory for the vector, also
// each gather and atomic, unless a cache serves it.

// v[i] = inverse · v[i]
__device__ __forceinline__ void divide(double* v, int i, const double* __restrict__ inverse, size_t row) {
    double t[B];
    #pragma unroll
    for (int r = 0; r < B; ++r) t[r] = v[i * B + r];
    #pragma unroll
    for (int r = 0; r < B; ++r) {
        double s = 0;
        #pragma unroll
        for (int c = 0; c < B; ++c) s += inverse[(row * B + r) * B + c] * t[c];
        v[i * B + r] = s;
    }
}

// For each level, v[row] −= block · v[column] over all its edges at once. DIVIDE divides the rows of a level
// before the next one.
template <bool DIVIDE>
__device__ __forceinline__ void edges(double* v, int level, int last, const int* __restrict__ edge_ptr,
                                      const unsigned* __restrict__ pairs, const double* __restrict__ values,
                                      const int* __restrict__ row_ptr, const unsigned short* __restrict__ rows,
                                      const double* __restrict__ inverse, int begin) {
    int from = edge_ptr[level];
    for (; level < last; ++level) {
        const int to = edge_ptr[level + 1];
        for (int e = from + threadIdx.x; e < to; e += THREADS) {
            const unsigned pair = pairs[e];
            const int i = pair >> 16, j = pair & 0xFFFF;
            double a[B * B];
            #pragma unroll
            for (int k = 0; k < B * B; ++k) a[k] = values[(size_t)e * (B * B) + k];
            #pragma unroll
            for (int r = 0; r < B; ++r) {
                double s = 0;
                #pragma unroll
                for (int c = 0; c < B; ++c) s += a[r * B + c] * v[j * B + c];
                atomicAdd(&v[i * B + r], -s);
            }
        }
        from = to;
        __syncthreads();
        if (DIVIDE) {
            for (int q = row_ptr[level] + threadIdx.x; q < row_ptr[level + 1]; q += THREADS)
                divide(v, rows[q], inverse, (size_t)begin + rows[q]);
            __syncthreads();
        }
    }
}

// Level after level, with one thread per row
__device__ __forceinline__ void vertices(double* v, int level, int last, const int* __restrict__ row_ptr,
                                         const unsigned short* __restrict__ rows, const int* __restrict__ entry_ptr,
                                         const unsigned short* __restrict__ columns,
                                         const double* __restrict__ values) {
    int from = row_ptr[level];
    for (; level < last; ++level) {
        const int to = row_ptr[level + 1];
        for (int q = from + threadIdx.x; q < to; q += THREADS) {
            const int i = rows[q];
            double sum[B];
            #pragma unroll
            for (int r = 0; r < B; ++r) sum[r] = v[i * B + r];
            for (int e = entry_ptr[q]; e < entry_ptr[q + 1]; ++e) {
                const int j = columns[e];
                double a[B * B];
                #pragma unroll
                for (int k = 0; k < B * B; ++k) a[k] = values[(size_t)e * (B * B) + k];
                #pragma unroll
                for (int r = 0; r < B; ++r)
                    #pragma unroll
                    for (int c = 0; c < B; ++c) sum[r] -= a[r * B + c] * v[j * B + c];
            }
            #pragma unroll
            for (int r = 0; r < B; ++r) v[i * B + r] = sum[r];
        }
        from = to;
        __syncthreads();
    }
}

// Copies a subdomain's numbers to or from shared memory
__device__ __forceinline__ void copy(double* to, const double* from, int numbers) {
    for (int i = threadIdx.x; i < numbers; i += THREADS) to[i] = from[i];
}

// Multiplies all rows of a subdomain by their inverse diagonal blocks
__device__ __forceinline__ void divide_all(double* v, int rows, const double* __restrict__ inverse, int begin) {
    for (int i = threadIdx.x; i < rows; i += THREADS) divide(v, i, inverse, (size_t)begin + i);
    __syncthreads();
}

#define SUBDOMAIN                                                                     \
    const int s = blockIdx.x, begin = first[s], count = first[s + 1] - begin;         \
    const double* bs = b + (size_t)begin * B;                                         \
    double* xs = x + (size_t)begin * B;

extern "C" __global__ void __launch_bounds__(THREADS)
dag_ec_no_lds(const int* __restrict__ first, const int* __restrict__ levels, const int* __restrict__ edge_ptr,
              const unsigned* __restrict__ pairs, const double* __restrict__ values,
              const int* __restrict__ row_ptr, const unsigned short* __restrict__ rows,
              const double* __restrict__ inverse, const double* __restrict__ b, double* x) {
    SUBDOMAIN
    copy(xs, bs, count * B);
    __syncthreads();
    edges<true>(xs, levels[s], levels[s + 1], edge_ptr, pairs, values, row_ptr, rows, inverse, begin);
}

extern "C" __global__ void __launch_bounds__(THREADS)
dag_ec_lds(const int* __restrict__ first, const int* __restrict__ levels, const int* __restrict__ edge_ptr,
           const unsigned* __restrict__ pairs, const double* __restrict__ values,
           const int* __restrict__ row_ptr, const unsigned short* __restrict__ rows,
           const double* __restrict__ inverse, const double* __restrict__ b, double* __restrict__ x) {
    extern __shared__ double v[];
    SUBDOMAIN
    copy(v, bs, count * B);
    __syncthreads();
    edges<true>(v, levels[s], levels[s + 1], edge_ptr, pairs, values, row_ptr, rows, inverse, begin);
    copy(xs, v, count * B);
}

extern "C" __global__ void __launch_bounds__(THREADS)
dag_ec_lds_ud(const int* __restrict__ first, const int* __restrict__ levels, const int* __restrict__ edge_ptr,
              const unsigned* __restrict__ pairs, const double* __restrict__ values,
              const double* __restrict__ inverse, const double* __restrict__ b, double* __restrict__ x) {
    extern __shared__ double v[];
    SUBDOMAIN
    copy(v, bs, count * B);
    __syncthreads();
    edges<false>(v, levels[s], levels[s + 1], edge_ptr, pairs, values, nullptr, nullptr, nullptr, begin);
    divide_all(v, count, inverse, begin);
    copy(xs, v, count * B);
}

extern "C" __global__ void __launch_bounds__(THREADS)
dag_ec_U0(const int* __restrict__ first, const int* __restrict__ levels, const int* __restrict__ edge_ptr,
          const unsigned* __restrict__ pairs, const double* __restrict__ values, const double* __restrict__ b,
          double* __restrict__ x) {
    extern __shared__ double v[];
    SUBDOMAIN
    copy(v, bs, count * B);
    __syncthreads();
    edges<false>(v, levels[s], levels[s + 1], edge_ptr, pairs, values, nullptr, nullptr, nullptr, begin);
    copy(xs, v, count * B);
}

extern "C" __global__ void __launch_bounds__(THREADS)
dag_ec_ILDU0_fused(const int* __restrict__ first, const int* __restrict__ lower_levels,
                   const int* __restrict__ lower_edge_ptr, const unsigned* __restrict__ lower_pairs,
                   const double* __restrict__ lower_values, const double* __restrict__ inverse,
                   const int* __restrict__ upper_levels, const int* __restrict__ upper_edge_ptr,
                   const unsigned* __restrict__ upper_pairs, const double* __restrict__ upper_values,
                   const double* __restrict__ b, double* __restrict__ x) {
    extern __shared__ double v[];
    SUBDOMAIN
    copy(v, bs, count * B);
    __syncthreads();
    edges<false>(v, lower_levels[s], lower_levels[s + 1], lower_edge_ptr, lower_pairs, lower_values, nullptr, nullptr,
                 nullptr, begin);
    divide_all(v, count, inverse, begin);
    edges<false>(v, upper_levels[s], upper_levels[s + 1], upper_edge_ptr, upper_pairs, upper_values, nullptr, nullptr,
                 nullptr, begin);
    copy(xs, v, count * B);
}

extern "C" __global__ void __launch_bounds__(THREADS)
dag_vc_ILDU0_fused(const int* __restrict__ first, const int* __restrict__ lower_levels,
                   const int* __restrict__ lower_row_ptr, const unsigned short* __restrict__ lower_rows,
                   const int* __restrict__ lower_entry_ptr, const unsigned short* __restrict__ lower_columns,
                   const double* __restrict__ lower_values, const double* __restrict__ inverse,
                   const int* __restrict__ upper_levels, const int* __restrict__ upper_row_ptr,
                   const unsigned short* __restrict__ upper_rows, const int* __restrict__ upper_entry_ptr,
                   const unsigned short* __restrict__ upper_columns, const double* __restrict__ upper_values,
                   const double* __restrict__ b, double* __restrict__ x) {
    extern __shared__ double v[];
    SUBDOMAIN
    copy(v, bs, count * B);
    __syncthreads();
    vertices(v, lower_levels[s], lower_levels[s + 1], lower_row_ptr, lower_rows, lower_entry_ptr, lower_columns,
             lower_values);
    divide_all(v, count, inverse, begin);
    vertices(v, upper_levels[s], upper_levels[s + 1], upper_row_ptr, upper_rows, upper_entry_ptr, upper_columns,
             upper_values);
    copy(xs, v, count * B);
}
