// amg_block_products: values of a product of block matrices whose pattern is known.
//
// Macros, at most 8 each: INNER, the number of columns of a left block, and of rows of a right block;
// COLUMNS, the number of columns of a right block. The blocks of the left factor have `m` rows.
//
// A warp computes a row of blocks, or one of the `split` parts of their rows, in shared memory, or in global
// memory if it is too long. A lane multiplies one row of a left block by a right block. Lanes with summands
// of the same number add them one after another, in the order of the left row: results are deterministic.
//
// Bytes moved: 8 m INNER + 4 per entry of the left factor, and 8 INNER COLUMNS + 4 per entry of the right
// factor that it meets, from caches where rows are near; 8 m COLUMNS per entry of the product.

typedef long long i64;
typedef unsigned u32;

constexpr int SLOTS = 384, KEYS = 64;  // numbers and columns of a row in the shared memory of a warp
constexpr int THREADS = 128, WARPS = THREADS / 32;
constexpr u32 FULL = ~0u;
// Rows of blocks are read and summed in pairs if these are aligned.
constexpr int PAIR = COLUMNS % 2 == 0 ? 2 : 1, PAIRS = COLUMNS / PAIR;
struct alignas(8 * PAIR) Pair { double v[PAIR]; };

struct Matrix { const i64* ptr; const u32* col; double* val; };

// With `turned`, entry p of the left factor is the transpose of the block at position left.val[p] of
// `blocks`; otherwise it is block p of `blocks`. `wrong` becomes 1 if the product has a column that the
// pattern lacks.
extern "C" __global__ void __launch_bounds__(THREADS)
block_products(const i64 rows, const int m, const int split, const int turned, const Matrix left, const double* __restrict__ blocks, const Matrix right, const Matrix to, int* wrong) {
    __shared__ alignas(16) double all[WARPS][SLOTS];
    __shared__ u32 keys[WARPS][KEYS];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, step = turned ? m : 1;
    const int high = m / split, pair_step = 32 / high, r_step = 32 % high;  // `high` rows of each block
    const i64 units = rows * split;
    for (i64 unit = blockIdx.x * (i64)WARPS + warp; unit < units; unit += gridDim.x * (i64)WARPS) {
        const i64 row = unit / split, begin = to.ptr[row], end = left.ptr[row + 1];
        const int base = (int)(unit % split) * high, columns = (int)(to.ptr[row + 1] - begin), numbers = columns * high * COLUMNS;
        double* const own = to.val + begin * m * COLUMNS;
        const bool fits = numbers <= SLOTS, near = columns <= KEYS;
        // Block e has its `high` rows at sums + e * stride.
        double* const sums = fits ? all[warp] : own + base * COLUMNS;
        const int stride = (fits ? high : m) * COLUMNS;
        const u32* const cols = near ? keys[warp] : to.col + begin;
        for (int x = lane; x < numbers; x += 32) sums[x / (high * COLUMNS) * stride + x % (high * COLUMNS)] = 0;
        for (int x = lane; near && x < columns; x += 32) keys[warp][x] = to.col[begin + x];
        __syncwarp();
        bool known = true;
        for (i64 p0 = left.ptr[row]; p0 < end; p0 += 32) {
            // The next entries of the left factor, one per lane: where their blocks and the rows of the right
            // factor that they meet begin, and the total length of these rows.
            i64 from = 0, meets = 0;
            int length = 0;
            if (p0 + lane < end) {
                const i64 p = p0 + lane;
                const u32 j = left.col[p];
                from = (turned ? (i64)left.val[p] : p) * m * INNER;
                meets = right.ptr[j];
                length = (int)(right.ptr[j + 1] - meets);
            }
            int upto = length;
            for (int d = 1; d < 32; d *= 2) {
                const int before = __shfl_up_sync(FULL, upto, d);
                if (lane >= d) upto += before;
            }
            const int total = __shfl_sync(FULL, upto, 31);
            meets -= upto - length;
            int pair = lane / high, r = lane % high;
            for (int item = 0; item < total * high; item += 32) {
                int owner = 0;
                for (int half = 16; half > 0; half /= 2)
                    if (__shfl_sync(FULL, upto, owner + half - 1) <= pair) owner += half;
                const i64 x = __shfl_sync(FULL, from, owner), q = __shfl_sync(FULL, meets, owner) + pair;
                int slot = -1;
                Pair sum[PAIRS] = {};
                if (pair < total) {
                    const double* const xs = blocks + x + (turned ? base + r : (base + r) * INNER);
                    const Pair* const ys = reinterpret_cast<const Pair*>(right.val + q * INNER * COLUMNS);
#pragma unroll
                    for (int s = 0; s < INNER; ++s) {
                        const double factor = __ldg(xs + s * step);
#pragma unroll
                        for (int c = 0; c < PAIRS; ++c) {
                            const Pair y = ys[s * PAIRS + c];
#pragma unroll
                            for (int d = 0; d < PAIR; ++d) sum[c].v[d] += factor * y.v[d];
                        }
                    }
                    const u32 key = right.col[q];
                    int low = 0, top = columns;
                    while (low < top) {
                        const int middle = (low + top) / 2;
                        if (cols[middle] < key) low = middle + 1;
                        else top = middle;
                    }
                    if (low < columns && cols[low] == key) slot = low * stride + r * COLUMNS;
                    else known = false;
                }
                const u32 same = __match_any_sync(FULL, slot);
                const int turn = slot < 0 ? -1 : __popc(same & ((1u << lane) - 1));
                int round = 0;
                do {
                    if (turn == round) {
                        Pair* const at = reinterpret_cast<Pair*>(sums + slot);
#pragma unroll
                        for (int c = 0; c < PAIRS; ++c) {
                            Pair v = at[c];
#pragma unroll
                            for (int d = 0; d < PAIR; ++d) v.v[d] += sum[c].v[d];
                            at[c] = v;
                        }
                    }
                    __syncwarp();
                } while (__any_sync(FULL, turn > round++));
                pair += pair_step;
                r += r_step;
                if (r >= high) {
                    r -= high;
                    ++pair;
                }
            }
        }
        if (!known) *wrong = 1;
        for (int x = lane; fits && x < numbers; x += 32)
            own[x / (high * COLUMNS) * m * COLUMNS + base * COLUMNS + x % (high * COLUMNS)] = sums[x];
        __syncwarp();
    }
}
