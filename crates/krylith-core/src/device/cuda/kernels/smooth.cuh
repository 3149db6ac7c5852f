// Turns a row's number s of A x into a residual, r = b - s, or a step of a polynomial smoother, in the pass
// of the product. csr.cu includes it if SMOOTH is defined. The result of a step must not overwrite x, whose
// numbers other rows still read. Results are linear in s, so the products with ghosts are added later.
//
// Bytes per row besides those of the product: 8 of b; for a step 8 each of d and x (from caches), 8 if p is
// read and 8 if it is written. REAL is the type of vectors and of the arithmetic, double or float.

// APART: 0 if the values of the matrix have its main diagonal; that is the default. In bf16 they do not, so
// that it can be in f32. 1: `own` is the diagonal with its coefficient. 2: `own` is D^-1, and the diagonal
// follows from it and from the sizes of the other entries of the row (dia.cu).
// RESULT, if defined, is double. Results then have this type and are multiplied by 2^of.exponent[0].

#ifndef REAL
#define REAL double
#endif

#ifndef APART
#define APART 0
#endif

struct Smooth {
    const REAL* x;
    const REAL* b;    // null for 0
    const REAL* d;    // D^-1; null: r = b - s, or b + s with `keeps`
    REAL* p;          // the last direction, replaced by the next one
    const double* a;  // weight of the last direction
    const double* c;
    const double* first;  // null; otherwise x = first D^-1 b, which is not stored anywhere
    int last;         // the last direction: 0 none, 1 x, 2 p
    int keeps;        // p is written
    const int* exponent;  // of results of type RESULT
    const REAL* own;      // see APART; null if there is no diagonal to add
};

// The row's own numbers, loaded before its sum is known.
struct Own { REAL b, d, x, p, own; };
__device__ __forceinline__ Own own_numbers(const Smooth& of, long long i) {
    Own own = {of.b ? of.b[i] : 0, 0, 0, 0, 0};
    if (of.d) {
        own.d = of.d[i];
        own.x = of.first ? (REAL)*of.first * own.d * own.b : of.x[i];
        if (of.last == 2) own.p = of.p[i];
    }
#if APART
    if (of.own) {
        own.own = APART == 2 && of.d ? own.d : of.own[i];
        if (!of.d) own.x = of.x[i];
    }
#endif
    return own;
}
// The row's result. If it is a step, `step` becomes the next direction.
__device__ __forceinline__ REAL stepped(const Smooth& of, const Own& own, REAL s, REAL& step) {
#if APART == 1
    s = fma(own.own, own.x, s);
#endif
    if (!of.d) return of.keeps ? own.b + s : own.b - s;
    const REAL rest = own.b - s;
    step = (REAL)*of.c * own.d * rest;
    if (of.last) step = fma((REAL)*of.a, of.last == 1 ? own.x : own.p, step);
    return own.x + step;
}
__device__ __forceinline__ REAL smoothed(const Smooth& of, const Own& own, long long i, REAL s) {
    REAL step;
    const REAL result = stepped(of, own, s, step);
    if (of.d && of.keeps) of.p[i] = step;
    return result;
}
#ifdef RESULT
#define RESULTS double
__device__ __forceinline__ double as_result(double v, int e) { return e ? ldexp(v, e) : v; }
#define RESULT_OF(of, value) as_result((double)(value), *(of).exponent)
#else
#define RESULTS REAL
#define RESULT_OF(of, value) (value)
#endif
// Adds s to the number of the row from which y[i] was computed.
__device__ __forceinline__ void add_late(const Smooth& of, REAL* __restrict__ y, long long i, double s) {
    const double more = !of.d ? (of.keeps ? s : -s) : -(*of.c * of.d[i] * s);
    y[i] += more;
    if (of.d && of.keeps) of.p[i] += more;
}
