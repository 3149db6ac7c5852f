// amg: shared by the kernels that choose the coarse points of a level and interpolate from them: flags of
// entries, and loops.

typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;

#define FULL 0xffffffffu

// Flags of an entry a_ij, j != i: i depends strongly on j; the sign of a_ij differs from that of a_ii; j is a
// coarse point.
#define STRONG 1
#define OPPOSITE 2
#define COARSE 4
// The highest bit of a column of the coarse part of a matrix: STRONG.
#define TOP 0x80000000u

#define EACH(i, n) (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)
// The first of the 32 >> shift rows that this warp processes at once.
#define EACH_WARP_OF_ROWS(first, n) \
    (i64 first = ((blockIdx.x * (i64)blockDim.x + threadIdx.x) >> 5) << (5 - shift); first < (n); first += ((gridDim.x * (i64)blockDim.x) >> 5) << (5 - shift))

// As `splitmix64` of space/mod.rs.
__device__ __forceinline__ u64 splitmix64(u64 seed, u64 index) {
    u64 z = ((seed << 32 ^ index) + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Breaks ties between nodes by their numbers: the global ones where there are several ranks, otherwise the
// local ones.
__device__ __forceinline__ bool after(const u64* __restrict__ numbers, u32 i, u32 j) { return numbers ? numbers[i] > numbers[j] : i > j; }
