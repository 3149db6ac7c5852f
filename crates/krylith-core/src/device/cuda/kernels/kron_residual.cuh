// kron_residual: r = b - y and m = |b| + |A (x) M + B (x) L| |x|, each number summed in twice the working
// precision and then rounded (Dot2 of Ogita, Rump and Oishi): the residual that decides convergence, and a
// bound for its rounding errors. Included by kron_product.cu, whose tiles it reads; at most one launch per
// batch of iterations.
//
// Bytes moved at least: those of a product, b read and m written. Eight lanes share a scalar row with all its
// stages, and each processes every eighth block: neighbouring lanes read neighbouring numbers of a slot.
// Values come directly from memory.
//
// Terms of other patterns follow with ACCUMULATE: they continue from r, from its rounding error `low`, and
// from m. Rows longer than a tile are summed in parts of three numbers, which kron_residual_long subtracts.
// With HALO the ghosts have already arrived: those of the exchange's last epoch, or with exchange null those
// at `ghosts`.

#include "twofold.cuh"

constexpr int TOGETHER_LANES = 8;
#ifdef SLOT_TABLE
__constant__ const short residual_slots[TERMS * BLOCK * BLOCK] = {SLOT_TABLE};
#endif

// Start and results of entry e of a row.
struct Residual { const double* b; double* r; double* low; double* m; };
__device__ __forceinline__ void begin_residual(const Residual& to, long long e, Twofold& sum, double& size) {
#if ACCUMULATE
    sum = {to.r[e], to.low[e]};
    size = to.m[e];
#else
    sum = {to.b[e], 0.0};
    size = fabs(to.b[e]);
#endif
}
__device__ __forceinline__ void end_residual(const Residual& to, long long e, const Twofold& sum, double size) {
    const double rounded = __dadd_rn(sum.hi, sum.lo);
    to.r[e] = rounded;
    if (to.low) to.low[e] = __dadd_rn(__dsub_rn(sum.hi, rounded), sum.lo);
    to.m[e] = size;
}

extern "C" __global__ void kron_residual(const int* halt, const int tile_count, const unsigned* __restrict__ starts, const char* __restrict__ records,
                                         const VALUE* __restrict__ values, const double* __restrict__ x, const double* __restrict__ b,
                                         double* r, double* low, double* m, double* __restrict__ parts
#if HALO
                                         , const int own, const double* ghosts, const Exchange* exchange
#endif
) {
    if (halt && *halt) return;
    const Residual to = {b, r, low, m};
#if HALO
    const double* far = (exchange ? exchange->ghosts[(exchange->ticket >> EPOCH_SHIFT) & 1] : ghosts) - (long long)own * RUN;
    auto column = [&](int node) { return (node < own ? x : far) + (long long)node * RUN; };
#else
    auto column = [&](int node) { return x + (long long)node * RUN; };
#endif
    // Packed place of entry (t, r, c), as a table in shared memory: constant memory would be slow, because
    // rows differ between lanes.
    __shared__ short slots[TERMS * BLOCK * BLOCK];
    for (int e = threadIdx.x; e < TERMS * BLOCK * BLOCK; e += blockDim.x)
#ifdef SLOT_TABLE
        slots[e] = residual_slots[e];
#else
        slots[e] = (short)slot(e / (BLOCK * BLOCK), e / BLOCK % BLOCK, e % BLOCK);
#endif
    __syncthreads();
    for (int t = blockIdx.x; t < tile_count; t += gridDim.x) {
        const char* record = records + (unsigned long long)starts[t] * 16;
        const Header tile = *(const Header*)record;
        const int* nodes = (const int*)(record + sizeof(Header));
        const int* ids = nodes + tile.nodes;
        const unsigned short* ends = (const unsigned short*)(ids + tile.rows);
        const LocalNode* locals = (const LocalNode*)(ends + tile.rows);
        const VALUE* mine = values + (unsigned long long)tile.position * (4 * SLOTS);
        const int width = (tile.blocks + ROUND - 1) / ROUND * ROUND, lanes = tile.rows * (BLOCK * TOGETHER_LANES);
        for (int o = threadIdx.x; o < (lanes + 31 & ~31); o += blockDim.x) {
            const int lane = o % TOGETHER_LANES, row = o / TOGETHER_LANES % BLOCK, i = o / (TOGETHER_LANES * BLOCK);
            Twofold sum[TERMS][STAGES] = {};
            double size[TERMS][STAGES] = {};
            const int end = o < lanes ? ends[i] : 0;
            for (int p = (o < lanes && i ? ends[i - 1] : 0) + lane; p < end; p += TOGETHER_LANES) {
                const double* run = column(nodes[locals[p]]);
#pragma unroll 1
                for (int c = 0; c < BLOCK; ++c)
#pragma unroll
                    for (int t = 0; t < TERMS; ++t) {
                        const int s = slots[(t * BLOCK + row) * BLOCK + c];
                        const double a = s < 0 ? 0.0 : (double)mine[(s / VECTOR * width + p) * VECTOR + s % VECTOR];
#pragma unroll
                        for (int k = 0; k < STAGES; ++k) {
                            const double v = run[c * STAGES + k];
                            add_product(sum[t][k], a, v);
                            size[t][k] += fabs(a * v);
                        }
                    }
            }
#pragma unroll
            for (int d = 1; d < TOGETHER_LANES; d *= 2)
#pragma unroll
                for (int t = 0; t < TERMS; ++t)
#pragma unroll
                    for (int k = 0; k < STAGES; ++k) {
                        const double lo = __shfl_xor_sync(~0u, sum[t][k].lo, d), hi = __shfl_xor_sync(~0u, sum[t][k].hi, d);
                        size[t][k] += __shfl_xor_sync(~0u, size[t][k], d);
                        add(sum[t][k], hi);
                        sum[t][k].lo = __dadd_rn(sum[t][k].lo, lo);
                    }
            if (o >= lanes || lane > 0) continue;
            const int id = ids[i];
#pragma unroll
            for (int k = 0; k < STAGES; ++k) {
                const long long e = (long long)(id < 0 ? ~id : id) * RUN + row * STAGES + k;
                Twofold all = {0.0, 0.0};
                double magnitude = 0.0;
                if (id >= 0) begin_residual(to, e, all, magnitude);
#pragma unroll
                for (int t = 0; t < TERMS; ++t)
#pragma unroll
                    for (int q = 0; q < STAGES; ++q) {
                        const double a = -coefficients.a[t][k][q];
                        add_product(all, a, sum[t][q].hi);
                        all.lo = __dadd_rn(all.lo, __dmul_rn(a, sum[t][q].lo));
                        magnitude += fabs(a) * size[t][q];
                    }
                if (id >= 0) {
                    end_residual(to, e, all, magnitude);
                } else {
                    parts[3 * e] = all.hi;
                    parts[3 * e + 1] = all.lo;
                    parts[3 * e + 2] = magnitude;
                }
            }
        }
    }
}

// Rows longer than a tile: subtracts their parts in order. One thread per number; launched only if such rows
// exist.
extern "C" __global__ void kron_residual_long(const int* halt, int count, const int* __restrict__ long_rows, const double* __restrict__ parts,
                                              const double* __restrict__ b, double* r, double* low, double* m) {
    if (halt && *halt) return;
    const int o = blockIdx.x * blockDim.x + threadIdx.x;
    if (o >= count * RUN) return;
    const Residual to = {b, r, low, m};
    const int* it = long_rows + o / RUN * 3;
    const long long e = (long long)it[0] * RUN + o % RUN;
    Twofold sum;
    double size;
    begin_residual(to, e, sum, size);
    for (int p = it[1]; p < it[2]; ++p) {
        const double* part = parts + 3 * ((long long)p * RUN + o % RUN);
        add(sum, part[0]);
        sum.lo = __dadd_rn(sum.lo, part[1]);
        size += part[2];
    }
    end_residual(to, e, sum, size);
}
