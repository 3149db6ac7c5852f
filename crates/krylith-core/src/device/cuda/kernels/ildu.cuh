// ildu: how the factors of a subdomain stand in memory. Shared by ildu_stream.cu, which lays them out, ildu_factor.cu, which writes
// the values, and ildu_solve.cu, which reads both.
//
// Macros: ORDER (b times s, order of a block, 1 to 32), VALUE (double or float as stored; arithmetic is in double), WARPS (that solve).
//
// A subdomain is a run of chunks, and a chunk is what one copy to shared memory brings: its place, which says what goes where,
// and its values. A chunk is done in steps. In a step each warp has one slice (or none: no rows): up to ROWS rows of one level, a lane
// for each of their scalar rows, of every row as many blocks as of the one that has most, less those that earlier slices took.
// Where the bit of a step is set in `sync`, all threads wait for each other after it: what follows may use what it made.
//
//   place of a chunk:  Header, slices [step][warp], and for each slice columns [k][row] and, where they are LISTED, positions [row]
//                      (unsigned short, local to the subdomain), padded to 16 bytes
//   values of a slice: [k * ORDER + column][row * ORDER + r], behind them the inverse diagonal blocks where DIAGONAL is set

constexpr int ROWS = 32 / ORDER;           // block rows of a slice
constexpr int ENTRIES = ORDER * ORDER;     // numbers of a block
constexpr int DIAGONAL = 1, LISTED = 2, UPPER = 4;

struct alignas(16) Header {
    unsigned short steps, bytes;  // bytes of the place, in units of 16
    unsigned spare;
    unsigned long long sync;
};
struct alignas(16) Slice {
    unsigned short values;     // first of its values from the beginning of the chunk's, in units of 16 bytes
    unsigned short columns;    // first of its columns, in unsigned shorts from the beginning of the place
    unsigned short positions;  // the same of its positions; where they are not LISTED, the first position
    unsigned short blocks;     // blocks of each row, K
    unsigned char rows, flags;
    unsigned short skipped;    // blocks that earlier slices took
    unsigned spare;
};
struct Chunk { unsigned place, values; };  // where they begin, in units of 16 bytes; they end where the next begins

__device__ __forceinline__ const Slice* slices_of(const char* place) { return (const Slice*)(place + sizeof(Header)); }
// Local position of a row of a slice.
__device__ __forceinline__ int position_of(const Slice& s, const char* place, int row) {
    return s.flags & LISTED ? ((const unsigned short*)place)[s.positions + row] : s.positions + row;
}
