// schwarz: shared by the kernels of Schwarz's subdomains.
//
// Macros: ORDER (b, order of a block, 1 to 8), WARPS (per thread block of the solves).
//
// The subdomain matrices of a GPU are diagonal blocks of one block matrix with the pattern S of its
// incomplete factors. Warps deliberately read numbers while others write them. Every shared number goes to
// the second-level cache and back by single 8-byte accesses, which are atomic.

typedef long long i64;
typedef unsigned long long u64;

constexpr unsigned ALL = 0xffffffffu;
constexpr unsigned NONE = 0xffffffffu;  // no own node, no stored block
constexpr int B = ORDER, E = ORDER * ORDER;

__device__ __forceinline__ double peek(const double* at) {
    double value;
    asm volatile("ld.relaxed.gpu.global.f64 %0, [%1];" : "=d"(value) : "l"(at));
    return value;
}
__device__ __forceinline__ void put(double* at, double value) { asm volatile("st.relaxed.gpu.global.f64 [%0], %1;" ::"l"(at), "d"(value) : "memory"); }
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
__device__ __forceinline__ double unset() { return __longlong_as_double(0x7ff8dead5eed0001ll); }
__device__ __forceinline__ bool is_unset(double value) { return __double_as_longlong(value) == 0x7ff8dead5eed0001ll; }
