// schwarz: shared by the kernels of Schwarz's subdomains.
//
// Macros: ORDER (b, order of a block, 1 to 8), WARPS (per thread block of the solves).
//
// The subdomain matrices of a GPU are diagonal blocks of one block matrix with the pattern S of its
// incomplete factors. Warps deliberately read numbers while others write them. Every shared number goes to
// the second-level cache and back by single accesses of 4 or 8 bytes, which are atomic.
//
// With REAL as float, vectors over the rows are in f32, multiplied by a power of two (struct Scale).

typedef long long i64;
typedef unsigned long long u64;

#ifndef REAL
#define REAL double
#endif
constexpr bool SCALED = sizeof(REAL) == 4;

// The scale of vectors in f32: 2^-exponent times x. All numbers start at 0.
struct Scale {
    int exponent, result;  // `result` is that of the results
    u64 largest;           // bits of the largest |x[i]|, which order as the numbers do
    unsigned blocks, again;
};

constexpr unsigned ALL = 0xffffffffu;
constexpr unsigned NONE = 0xffffffffu;  // no own node, no stored block
constexpr int B = ORDER, E = ORDER * ORDER;

__device__ __forceinline__ double peek(const double* at) {
    double value;
    asm volatile("ld.relaxed.gpu.global.f64 %0, [%1];" : "=d"(value) : "l"(at));
    return value;
}
__device__ __forceinline__ void put(double* at, double value) { asm volatile("st.relaxed.gpu.global.f64 [%0], %1;" ::"l"(at), "d"(value) : "memory"); }
__device__ __forceinline__ float peek(const float* at) {
    float value;
    asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(at));
    return value;
}
__device__ __forceinline__ void put(float* at, float value) { asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(at), "f"(value) : "memory"); }
__device__ __forceinline__ unsigned peek(const unsigned* at) {
    unsigned value;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at));
    return value;
}

// True if a wait has lasted longer than `limit` nanoseconds; it reads the clock about every 4096 polls.
__device__ __forceinline__ bool too_long(unsigned& looks, u64& since, u64 limit) {
    if (++looks % 4096) return false;
    u64 now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    if (!since) since = now;
    return now - since > limit;
}

__device__ __forceinline__ double not_a_number() { return __longlong_as_double(0x7ff8000000000000ll); }

// Marks an element of a vector that is not computed yet. Arithmetic never produces this NaN, which has its
// own payload.
__device__ __forceinline__ void set_unset(double& value) { value = __longlong_as_double(0x7ff8dead5eed0001ll); }
__device__ __forceinline__ void set_unset(float& value) { value = __int_as_float(0x7fd5eed1); }
__device__ __forceinline__ REAL unset() {
    REAL value;
    set_unset(value);
    return value;
}
__device__ __forceinline__ bool is_unset(double value) { return __double_as_longlong(value) == 0x7ff8dead5eed0001ll; }
__device__ __forceinline__ bool is_unset(float value) { return __float_as_int(value) == 0x7fd5eed1; }
