// Sums in twice the working precision (Dot2 of Ogita, Rump and Oishi): a number and its rounding error.

struct Twofold { double hi, lo; };
// No contraction to fused operations here: the rounding error has to be known.
__device__ __forceinline__ void add(Twofold& s, double v) {
    const double sum = __dadd_rn(s.hi, v), z = __dsub_rn(sum, s.hi);
    s.lo = __dadd_rn(s.lo, __dadd_rn(__dsub_rn(s.hi, __dsub_rn(sum, z)), __dsub_rn(v, z)));
    s.hi = sum;
}
__device__ __forceinline__ void add_product(Twofold& s, double a, double b) {
    const double product = __dmul_rn(a, b);
    s.lo = __dadd_rn(s.lo, __fma_rn(a, b, -product));
    add(s, product);
}
