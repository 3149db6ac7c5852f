// amg: what the kernels share that choose the nodes of a coarser level and interpolate from them: flags of entries, and loops.

typedef unsigned char u8;
typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;

#define FULL 0xffffffffu

// Flags of an entry a_ij, j != i: i depends strongly on j; its sign is not that of a_ii; j stays in the coarser level.
#define STRONG 1
#define OPPOSITE 2
#define COARSE 4
// The highest bit of a column of the coarse part of a matrix: STRONG.
#define TOP 0x80000000u

#define EACH(i, n) (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)
// The first rows of this warp, which takes 32 >> shift at once.
#define EACH_WARP_OF_ROWS(first, n) \
    (i64 first = ((blockIdx.x * (i64)blockDim.x + threadIdx.x) >> 5) << (5 - shift); first < (n); first += ((gridDim.x * (i64)blockDim.x) >> 5) << (5 - shift))

// As `splitmix64` of space/mod.rs.
__device__ __forceinline__ u64 splitmix64(u64 seed, u64 index) {
    u64 z = ((seed << 32 ^ index) + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// Of nodes that are alike in all else the order of their numbers decides: in the whole system where there are ranks, else here.
__device__ __forceinline__ bool after(const u64* __restrict__ numbers, u32 i, u32 j) { return numbers ? numbers[i] > numbers[j] : i > j; }
