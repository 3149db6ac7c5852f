// csr_ghosts: what a product of scalar rows on several GPUs does beside y = c A_own x (csr.cu), for the rows that have ghosts.
//
//   csr_send       begins the exchange: stores what neighbours need into their ghosts
//   csr_ghosts     waits for the ghosts g and adds: y += c A_ghost g, where no row has many
//   csr_await      waits for the ghosts and copies them to where csr.cu reads them, where some row has many, and for residuals
//   csr_add_rows, csr_add_residuals   add what csr.cu made of those rows to theirs
//
// Constants: VALUE (double or float as stored), THREADS.
// Bytes it must move: over the links 8 a number sent; of each entry of A_ghost the value, 4 and a ghost; of each of its rows 12, and y twice.
// Mapping: 2^log neighbouring lanes take a row, as many as a mean row has entries. Sums depend on the pattern alone: they are the same every time.

#ifndef VALUE
#define VALUE double
#endif
constexpr int RUN = 1, PAIR = 1, PIECES = RUN / PAIR;
#include "halo.cuh"
#include "twofold.cuh"

typedef long long i64;

extern "C" __global__ void __launch_bounds__(THREADS) csr_send(const int* halt, const double* x, Exchange* exchange) {
    if (halt && *halt) return;
    begin_exchange(exchange, x);
}

// Of an exchange its ghosts, else those at `ghosts`, which are there.
extern "C" __global__ void __launch_bounds__(THREADS)
csr_ghosts(const int* halt, const int count, const unsigned* __restrict__ rows, const i64* __restrict__ starts, const unsigned* __restrict__ columns,
           const VALUE* __restrict__ values, const int log, const double* ghosts, double* __restrict__ y, const double* __restrict__ coefficient,
           Exchange* exchange) {
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
        if (o < all && (o & (lanes - 1)) == 0) y[rows[r]] = fma(c, sum, y[rows[r]]);
    }
}

// Where the wait was given up nothing is copied, and what follows is of no use: the failure is in the group.
extern "C" __global__ void __launch_bounds__(THREADS) csr_await(const int* halt, const int count, double* __restrict__ to, Exchange* exchange) {
    if (halt && *halt) return;
    const double* const ghosts = awaited_ghosts(exchange);
    if (!ghosts) return;
    for (int i = blockIdx.x * THREADS + threadIdx.x; i < count; i += gridDim.x * THREADS) to[i] = ghosts[i];
}

extern "C" __global__ void __launch_bounds__(THREADS)
csr_add_rows(const int* halt, const int count, const unsigned* __restrict__ rows, const double* __restrict__ sums, double* __restrict__ y) {
    if (halt && *halt) return;
    const int i = blockIdx.x * THREADS + threadIdx.x;
    if (i < count) y[rows[i]] += sums[i];
}

// r + low is what the own columns left of b, more_r + more_low what the ghosts take off; r becomes the sum of all, rounded once.
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
