// csr_ghosts: the part of a product of scalar rows on several GPUs that is not y = c A_own x (csr.cu), for
// the rows that have ghosts.
//
//   csr_send      starts the exchange: stores the numbers that neighbours need into their ghosts
//   csr_ghosts    waits for the ghosts g and adds: y += c A_ghost g, where no row has many ghosts
//   csr_await     waits for the ghosts and copies them to where csr.cu reads them, for rows with many ghosts
//                 and for residuals
//   csr_add_rows, csr_add_residuals   add the results of csr.cu for those rows
//
// With `smooths`, y has the results of smoother steps, to which A_ghost g is added (smooth.cuh).
//
// Constants: VALUE (double or float as stored), THREADS.
// Bytes moved at least: over the links 8 per number sent; for each entry of A_ghost the value, 4 and a ghost;
// for each of its rows 12, and y twice.
// Mapping: 2^log neighbouring lanes share a row, as many as a mean row has entries. Sums depend only on the
// pattern, so they are reproducible.

#ifndef VALUE
#define VALUE double
#endif
constexpr int RUN = 1, PAIR = 1, PIECES = RUN / PAIR;
#include "halo.cuh"
#include "smooth.cuh"
#include "twofold.cuh"

typedef long long i64;

extern "C" __global__ void __launch_bounds__(THREADS) csr_send(const int* halt, const double* x, Exchange* exchange) {
    if (halt && *halt) return;
    begin_exchange(exchange, x);
}

// Reads the ghosts of an exchange, or without one those at `ghosts`, which have already arrived.
extern "C" __global__ void __launch_bounds__(THREADS)
csr_ghosts(const int* halt, const int count, const unsigned* __restrict__ rows, const i64* __restrict__ starts, const unsigned* __restrict__ columns,
           const VALUE* __restrict__ values, const int log, const double* ghosts, double* __restrict__ y, const double* __restrict__ coefficient,
           Exchange* exchange, const int smooths, const Smooth of) {
    if (halt && *halt) return;
    if (exchange) ghosts = awaited_ghosts(exchange);
    if (!ghosts) return;
    const double c = *coefficient;
    const int lanes = 1 << log;
    const i64 all = (i64)count << log, whole = (all + 31) & ~31ll;
    for (i64 o = blockIdx.x * (i64)THREADS + threadIdx.x; o < whole; o += (i64)gridDim.x * THREADS) {
        const i64 r = o >> log;
        double sum = 0.0;
        if (o < all) {
            const i64 end = starts[r + 1];
            for (i64 p = starts[r] + (o & (lanes - 1)); p < end; p += lanes) sum = fma((double)values[p], ghosts[columns[p]], sum);
        }
        for (int d = 1; d < lanes; d *= 2) sum += __shfl_xor_sync(~0u, sum, d);
        if (o >= all || (o & (lanes - 1)) != 0) continue;
        if (smooths) add_late(of, y, rows[r], c * sum);
        else y[rows[r]] = fma(c, sum, y[rows[r]]);
    }
}

// After a timeout nothing is copied, and later results are invalid: the group records the failure.
extern "C" __global__ void __launch_bounds__(THREADS) csr_await(const int* halt, const int count, double* __restrict__ to, Exchange* exchange) {
    if (halt && *halt) return;
    const double* const ghosts = awaited_ghosts(exchange);
    if (!ghosts) return;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) to[i] = ghosts[i];
}

extern "C" __global__ void __launch_bounds__(THREADS)
csr_add_rows(const int* halt, const int count, const unsigned* __restrict__ rows, const double* __restrict__ sums, double* __restrict__ y,
             const int smooths, const Smooth of) {
    if (halt && *halt) return;
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    if (smooths) add_late(of, y, rows[i], sums[i]);
    else y[rows[i]] += sums[i];
}

// r + low is b minus the product of the own columns, more_r + more_low is the product of the ghosts; r
// becomes the total, rounded once.
extern "C" __global__ void __launch_bounds__(THREADS)
csr_add_residuals(const int* halt, const int count, const unsigned* __restrict__ rows, const double* __restrict__ more_r,
                  const double* __restrict__ more_low, const double* __restrict__ more_m, const double* __restrict__ low, double* __restrict__ r,
                  double* __restrict__ m) {
    if (halt && *halt) return;
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i >= count) return;
    const unsigned row = rows[i];
    Twofold all = {r[row], low[row]};
    add(all, more_r[i]);
    r[row] = __dadd_rn(all.hi, __dadd_rn(all.lo, more_low[i]));
    m[row] += more_m[i];
}
