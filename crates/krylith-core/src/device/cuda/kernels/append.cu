// append: x /= s[norm], and the same into a column of the basis (rounded if the basis is float).
//
// Macros: VALUE, double or float. Bytes moved: n * (16 + sizeof(VALUE)).

extern "C" __global__ void append(const int* halt, long long n, const double* s, VALUE* v, double* x) {
    if (halt && *halt) return;
    const double norm = *s;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += (long long)gridDim.x * blockDim.x) {
        const double value = x[i] / norm;
        x[i] = value;
        v[i] = (VALUE)value;
    }
}
