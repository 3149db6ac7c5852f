// ildu: layout of the factors of a subdomain in memory. Shared by ildu_stream.cu, which computes the layout,
// ildu_factor.cu, which writes the values, and ildu_solve.cu, which reads both.
//
// Macros: ORDER (b times s, order of a block, 1 to 32), VALUE (double or float as stored; factors are
// computed in double), WARPS (of the solve).
//
// A subdomain is a run of chunks. A chunk is brought to shared memory by one copy. It consists of its place,
// which describes its contents, and its values. A chunk is processed in steps. In a step each warp has one
// slice, or none (no rows). A slice is up to ROWS rows of one level, with one lane for each scalar row. Every
// row of a slice has as many blocks as the longest one, minus those of earlier slices. If the bit of a step
// is set in `sync`, all threads synchronise after it, because later steps may use its results.
//
//   place of a chunk:  Header, slices [step][warp], and for each slice columns [k][row] and, if LISTED,
//                      positions [row] (unsigned short, local to the subdomain), padded to 16 bytes
//   values of a slice: [k * ORDER + column][row * ORDER + r], followed by the inverse diagonal blocks if
//                      DIAGONAL is set

constexpr int ROWS = 32 / ORDER;           // block rows of a slice
constexpr int ENTRIES = ORDER * ORDER;     // numbers per block
constexpr int DIAGONAL = 1, LISTED = 2, UPPER = 4;

struct alignas(16) Header {
    unsigned short steps, bytes;  // bytes: size of the place, in units of 16
    unsigned spare;
    unsigned long long sync;
};
struct alignas(16) Slice {
    // first of its values, from the start of the chunk's values, in units of 16 bytes
    unsigned short values;
    unsigned short columns;    // first of its columns, in unsigned shorts from the start of the place
    unsigned short positions;  // the same for its positions; if not LISTED, the first position
    unsigned short blocks;     // blocks per row, K
    unsigned char rows, flags;
    unsigned short skipped;    // blocks of earlier slices
    unsigned spare;
};
// their starts, in units of 16 bytes; each ends where the next starts
struct Chunk { unsigned place, values; };

__device__ __forceinline__ const Slice* slices_of(const char* place) { return (const Slice*)(place + sizeof(Header)); }
// Local position of a row of a slice.
__device__ __forceinline__ int position_of(const Slice& s, const char* place, int row) {
    return s.flags & LISTED ? ((const unsigned short*)place)[s.positions + row] : s.positions + row;
}
