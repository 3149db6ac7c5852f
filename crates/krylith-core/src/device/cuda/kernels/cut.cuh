// cut: shared by the kernels of the graph cut: hashes, as on the host, and a graph's edges.
//
// The graph of a level is `ptr` (n + 1), `col`, `weight` of each edge (null: 1) and `size` of each node
// (null: 1). Level 0 is the pattern of a matrix; its diagonal and the columns of ghosts, from n on, are not
// edges.

typedef unsigned u32;
typedef unsigned long long u64;
typedef long long i64;

#define NONE 0xffffffffu
#define EACH(i, n) (i64 i = blockIdx.x * (i64)blockDim.x + threadIdx.x; i < (n); i += (i64)gridDim.x * blockDim.x)

struct Graph {
    i64 n;
    const i64* ptr;
    const u32* col;
    const u32* weight;
    const u32* size;

    __device__ bool edge(u32 v, u32 u) const { return u != v && u < n; }
    __device__ u32 weight_of(i64 e) const { return weight ? weight[e] : 1; }
    __device__ u32 size_of(u32 v) const { return size ? size[v] : 1; }
};

#define GRAPH const i64 n, const i64* __restrict__ ptr, const u32* __restrict__ col, const u32* __restrict__ weight, const u32* __restrict__ size
#define THE_GRAPH \
    const Graph graph = {n, ptr, col, weight, size}

// The finaliser of MurmurHash3.
__device__ u32 mix(u32 x) {
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

__device__ u32 hash(u32 a, u32 b) { return mix(a ^ mix(b)); }
