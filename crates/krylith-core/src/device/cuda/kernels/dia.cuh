// Matrices stored by diagonals, shared by dia.cu and dia_pairs.cu: numbers of x, and sums of rows. Both say
// what the constants are.

// Numbers of x; with SMOOTH 2 those of the first step from zero, c D^-1 b, which are not stored anywhere.
#if defined(SMOOTH) && SMOOTH == 2
struct Numbers {
    const REAL* __restrict__ d;
    const REAL* __restrict__ b;
    REAL c;
    __device__ __forceinline__ REAL operator()(i64 i) const { return c * __ldg(d + i) * __ldg(b + i); }
};
#define NUMBERS {of.d, of.b, (REAL)*of.first}
#else
struct Numbers {
    const REAL* __restrict__ x;
    __device__ __forceinline__ REAL operator()(i64 i) const { return __ldg(x + i); }
};
#define NUMBERS {x}
#endif

// The sum of a row. Without the main diagonal, also the l1 norm of the rest.
#if APART == 2
struct RowSum { REAL sum, norm; };
__device__ __forceinline__ RowSum first_product(REAL a, REAL v) { return {a * v, fabs(a)}; }
__device__ __forceinline__ void take_product(RowSum& row, REAL a, REAL v) {
    row.sum = fma(a, v, row.sum);
    row.norm += fabs(a);
}
__device__ __forceinline__ RowSum operator*(REAL c, const RowSum& row) { return {c * row.sum, fabs(c) * row.norm}; }
__device__ __forceinline__ REAL whole(const Own& own, const RowSum& row) {
    return fma(1 / own.own - copysign(row.norm, own.own), own.x, row.sum);
}
#else
typedef REAL RowSum;
__device__ __forceinline__ RowSum first_product(REAL a, REAL v) { return a * v; }
__device__ __forceinline__ void take_product(RowSum& row, REAL a, REAL v) { row = fma(a, v, row); }
__device__ __forceinline__ REAL whole(const Own&, REAL row) { return row; }
#endif
// The first diagonal of symmetric storage that is read.
constexpr int FIRST = APART == 2 ? 1 : 0;

struct Offsets { int at[COUNT]; };

__device__ __forceinline__ REAL number(const VALUE* __restrict__ values, i64 at) { return (REAL)__ldg(values + at); }
// A diagonal that is read once.
__device__ __forceinline__ REAL number_once(const VALUE* __restrict__ values, i64 at) { return (REAL)__ldcs(values + at); }
constexpr REAL ZERO = 0;
