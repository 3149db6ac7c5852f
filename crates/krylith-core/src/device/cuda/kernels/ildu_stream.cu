// ildu_stream: positions of the blocks of the factors in the stream that ildu_solve reads, with one thread
// block per subdomain.
//
// Macros: those of ildu.cuh, THREADS, STAGE (most bytes of a chunk), WRITE (0: sums gets the number of chunks
// and of the 16-byte units of places and values of each subdomain; 1: sums has those before each subdomain,
// and chunks and places are written).
// transposed: 0 for L D and U, with the diagonal blocks before U; 1 for the factors of the transpose, with
// the diagonal blocks behind the upper triangle.
// Bytes moved: 2 per block and 16 per row read twice, places written once.
//
// Levels are processed one by one. All threads sort the rows of a level if that saves padding. One warp then
// cuts them into slices and fills chunks one after another, because the space left depends on the present
// contents.

#include "ildu.cuh"
#include "scan.cuh"

constexpr int MOST_STEPS = 64;  // one bit for each says whether all threads synchronise after it

// State of the chunk that is being filled, in every lane of the first warp.
struct Filling {
    int steps, open, indices, values;  // closed steps; slices of the open group; indices; bytes of values
    unsigned long long sync;
    long long chunk, place, value;     // the chunk's number, and its start in units of 16 bytes
};

struct Level {
    const unsigned short *rows, *lengths;
    int count;
};

__device__ __forceinline__ int up16(int bytes) { return (bytes + 15) & ~15; }
__device__ __forceinline__ int place_bytes(int steps, int indices) { return 16 + 16 * WARPS * steps + up16(2 * indices); }
__device__ __forceinline__ int value_bytes(int rows, int blocks) { return up16(blocks * rows * ENTRIES * (int)sizeof(VALUE)); }
// True if a slice with this many rows and blocks, with or without diagonal blocks, still fits into the chunk.
__device__ __forceinline__ bool fits(const Filling& f, int rows, int blocks, int diagonal) {
    const int steps = f.steps + f.open / WARPS + 1, values = value_bytes(rows, blocks + diagonal);
    return steps <= MOST_STEPS && place_bytes(steps, f.indices + (blocks + 1) * rows) + f.values + values <= STAGE;
}

__device__ __forceinline__ void end_group(Filling& f, Slice* table, int lane) {
    if (f.open == 0) return;
    const int steps = (f.open + WARPS - 1) / WARPS;
    if (WRITE)
        for (int i = f.open + lane; i < steps * WARPS; i += 32) ((uint4*)table)[f.steps * WARPS + i] = make_uint4(0, 0, 0, 0);
    f.steps += steps;
    f.sync |= 1ull << (f.steps - 1);
    f.open = 0;
}

__device__ void close(Filling& f, Slice* table, const unsigned short* indices, Chunk* chunks, char* places, int lane) {
    end_group(f, table, lane);
    if (f.steps == 0) return;
    const int before = 16 + 16 * WARPS * f.steps, bytes = place_bytes(f.steps, f.indices);
    if (WRITE) {
        __syncwarp();
        char* place = places + 16 * f.place;
        if (lane == 0) {
            chunks[f.chunk] = {(unsigned)f.place, (unsigned)f.value};
            // After a chunk all threads synchronise anyway.
            *(Header*)place = {(unsigned short)f.steps, (unsigned short)(bytes / 16), 0u, f.sync & ~(1ull << (f.steps - 1))};
        }
        for (int i = lane; i < f.steps * WARPS; i += 32) {
            Slice s = table[i];
            if (s.rows) s.columns += before / 2;
            if (s.rows && (s.flags & LISTED)) s.positions += before / 2;
            ((Slice*)(place + 16))[i] = s;
        }
        unsigned short* to = (unsigned short*)(place + before);
        for (int i = lane; i < (bytes - before) / 2; i += 32) to[i] = i < f.indices ? indices[i] : 0;
        __syncwarp();
    }
    f.chunk += 1;
    f.place += bytes / 16;
    f.value += f.values / 16;
    f.steps = f.open = f.indices = f.values = 0;
    f.sync = 0;
}

// Number of blocks with padding: the sum over slices of their longest row times their rows.
__device__ int padded(const unsigned short* lengths, int count, bool sorted) {
    int sum = 0, total;
    for (int c = threadIdx.x; c * ROWS < count; c += THREADS) {
        const int begin = c * ROWS, end = min(count, begin + ROWS);
        int most = lengths[begin];
        if (!sorted)
            for (int r = begin + 1; r < end; ++r) most = max(most, (int)lengths[r]);
        sum += most * (end - begin);
    }
    block_exclusive(sum, total);
    return total;
}

extern "C" __global__ void __launch_bounds__(THREADS)
ildu_stream(const long long* __restrict__ starts, const unsigned* __restrict__ levels, const unsigned* __restrict__ depths,
            const long long* __restrict__ row_starts, const long long* __restrict__ diagonal, const unsigned short* __restrict__ columns,
            long long* sums, Chunk* chunks, char* places, int largest, int transposed) {
    extern __shared__ __align__(16) char memory[];
    unsigned short* const indices = (unsigned short*)memory;  // [STAGE / 2] of the chunk, with WRITE
    // [MOST_STEPS * WARPS] of the chunk, with WRITE
    Slice* const table = (Slice*)(memory + (WRITE ? up16(STAGE) : 0));
    unsigned short* const lists = (unsigned short*)(table + (WRITE ? MOST_STEPS * WARPS : 0));
    // rows of the level and their blocks
    unsigned short *const natural = lists, *const natural_lengths = lists + largest;
    unsigned short *const sorted = lists + 2 * largest, *const sorted_lengths = lists + 3 * largest;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const long long first = starts[blockIdx.x];
    const int size = (int)(starts[blockIdx.x + 1] - first), depth = depths[blockIdx.x];
    levels += first;
    row_starts += first;
    diagonal += first;
    Filling f = {};
    if (WRITE) {
        f.chunk = sums[3ll * blockIdx.x];
        f.place = sums[3ll * blockIdx.x + 1];
        f.value = sums[3ll * blockIdx.x + 2];
    }

    for (int turn = 0; turn < 2 * depth; ++turn) {
        const bool upper = turn >= depth;
        const int last_block = upper == (transposed != 0);  // 1 if rows end with their diagonal blocks
        const int l = upper ? 2 * depth - 1 - turn : turn;
        const int begin = levels[l], end = l + 1 < depth ? levels[l + 1] : size;
        // Rows without blocks, diagonal ones included, are done already.
        int count = 0;
        for (int from = begin; from < end; from += THREADS) {
            const int q = from + threadIdx.x;
            int length = 0, total;
            if (q < end) length = (int)(upper ? row_starts[q + 1] - diagonal[q] - 1 : diagonal[q] - row_starts[q]);
            const int keep = q < end && (last_block || length > 0), place = count + block_exclusive(keep, total);
            if (keep) {
                natural[place] = (unsigned short)q;
                natural_lengths[place] = (unsigned short)length;
            }
            count += total;
        }
        __syncthreads();
        if (count == 0) continue;
        bool differ = false;
        for (int r = threadIdx.x; r < count; r += THREADS) differ |= natural_lengths[r] != natural_lengths[0];
        Level level = {natural, natural_lengths, count};
        if (__syncthreads_or(differ)) {
            for (int r = threadIdx.x; r < count; r += THREADS) {
                const int own = natural_lengths[r];
                int rank = 0;
                for (int s = 0; s < count; ++s) rank += natural_lengths[s] > own || (natural_lengths[s] == own && s < r);
                sorted[rank] = natural[r];
                sorted_lengths[rank] = (unsigned short)own;
            }
            __syncthreads();
            const int before = padded(natural_lengths, count, false), after = padded(sorted_lengths, count, true);
            if (before > after && (long long)(before - after) * (ENTRIES * (int)sizeof(VALUE) + 2) > 2ll * count)
                level = {sorted, sorted_lengths, count};
        }
        if (warp == 0) {
            const Filling empty = {};
            for (int done = 0; done < count;) {
                int rows = min(count - done, ROWS);
                const int length = lane < rows ? level.lengths[done + lane] : 0;
                auto most = [&](int rows) { return (int)__reduce_max_sync(0xffffffffu, (unsigned)(lane < rows ? length : 0)); };
                int all = most(rows);
                while (rows > 1 && !fits(empty, rows, all, last_block)) all = most(--rows);
                for (int skipped = 0;;) {
                    // A row that fits no chunk is cut into parts, which wait for each other.
                    int take = all - skipped, last = last_block;
                    while (take > 0 && !fits(empty, rows, take, last)) {
                        if (last == 0 || take == 1) --take;
                        last = 0;
                    }
                    const bool whole = skipped + take == all && last == last_block;
                    if (!fits(f, rows, take, last)) close(f, table, indices, chunks, places, lane);
                    const int row = lane < rows ? level.rows[done + lane] : 0;
                    const int next = __shfl_down_sync(0xffffffffu, row, 1);
                    const bool listed = __any_sync(0xffffffffu, lane + 1 < rows && next != row + 1);
                    const int at = f.indices;
                    if (WRITE) {
                        // Padding multiplies the row's own number by zero.
                        for (int i = lane; i < take * rows; i += 32) {
                            const int own = level.rows[done + i % rows];
                            const long long e = (upper ? diagonal[own] + 1 : row_starts[own]) + skipped + i / rows;
                            indices[at + i] = e < (upper ? row_starts[own + 1] : diagonal[own]) ? columns[e] : (unsigned short)own;
                        }
                        if (listed && lane < rows) indices[at + take * rows + lane] = (unsigned short)row;
                        if (lane == 0) {
                            Slice s = {};
                            s.values = (unsigned short)(f.values / 16);
                            s.columns = (unsigned short)at;
                            s.positions = (unsigned short)(listed ? at + take * rows : row);
                            s.blocks = (unsigned short)take;
                            s.rows = (unsigned char)rows;
                            s.flags = (unsigned char)((last ? DIAGONAL : 0) | (listed ? LISTED : 0) | (upper ? UPPER : 0));
                            s.skipped = (unsigned short)skipped;
                            table[f.steps * WARPS + f.open] = s;
                        }
                    }
                    f.indices += take * rows + (listed ? rows : 0);
                    f.values += value_bytes(rows, take + last);
                    f.open += 1;
                    skipped += take;
                    if (whole) break;
                    end_group(f, table, lane);
                }
                done += rows;
            }
            end_group(f, table, lane);
        }
        __syncthreads();  // the lists are free
    }
    if (warp == 0) {
        close(f, table, indices, chunks, places, lane);
        if (!WRITE && lane == 0) {
            sums[3ll * blockIdx.x] = f.chunk;
            sums[3ll * blockIdx.x + 1] = f.place;
            sums[3ll * blockIdx.x + 2] = f.value;
        }
        if (WRITE && lane == 0 && blockIdx.x == gridDim.x - 1) chunks[f.chunk] = {(unsigned)f.place, (unsigned)f.value};
    }
}
