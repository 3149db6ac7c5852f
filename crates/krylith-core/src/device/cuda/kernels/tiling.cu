// tiling: groups block rows into tiles for a CTA of the product, and writes their indices: records as
// kron_product.cu reads them, made from row pointers and columns in device memory. The rule is that of
// tiles.rs, whose host code is the reference, byte by byte.
//
// Rows are cut into windows of at most WINDOW (struct Windows). In a window one warp makes tiles of at most
// `tile` blocks, so windows are independent, and atomics never decide which row is taken. There are five
// kernels; all lengths are kernel arguments:
//   tiling_stride   distance of the last column of a row from the row, the median of some rows
//   tiling_cut      the rows of each window in the order of tiles, the starts of tiles, and counts
//   tiling_scan     exclusive sums of counts
//   tiling_place    the rows of each tile; parts of rows longer than a tile
//   tiling_records  the record of each tile: first its length, then, with `records`, its bytes
//
// Constants: none.
// Bytes moved: row pointers three times, columns three times (those of clustered rows about once more for
// each new column of a tile, from the L1 and L2 caches), records once.

// TABLE: at least twice the blocks of any tile, 1020
constexpr int WINDOW = 1024, TABLE = 2048, SAMPLES = 256;
constexpr unsigned GHOSTS = 0x4000, LONG = 0x8000, NONE = 0xffff, EMPTY = 0xffffffff;
constexpr unsigned ALL = 0xffffffff;

// Window w has the rows base + k * stride + j with k < planes and j < width (less in the last chunk of a
// plane). It thus combines rows that have distant numbers but are near each other in a mesh. With one plane,
// windows are consecutive rows.
struct Windows { int rows, planes, stride, width, chunks; };

struct Window {
    long long base;
    int rows, planes, stride, width;
    __device__ Window(const Windows& all, int w) : rows(all.rows), planes(all.planes), stride(all.stride) {
        const int slab = w / all.chunks, chunk = w % all.chunks;
        base = (long long)slab * planes * stride + (long long)chunk * all.width;
        width = max(1, min(all.width, stride - chunk * all.width));
    }
    // The row at place l, or -1.
    __device__ int row(int l) const {
        const long long i = base + (long long)(l / width) * stride + l % width;
        return l < planes * width && i < rows ? (int)i : -1;
    }
    // The place of a row, or -1.
    __device__ int place(unsigned row) const {
        if (row < base) return -1;
        const unsigned d = (unsigned)(row - base), k = d / (unsigned)stride, j = d - k * (unsigned)stride;
        return k < (unsigned)planes && j < (unsigned)width ? (int)(k * width + j) : -1;
    }
};

extern "C" __global__ void __launch_bounds__(SAMPLES)
tiling_stride(const int rows, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, const unsigned own, int* stride) {
    __shared__ int ahead[SAMPLES];
    const int samples = min(rows, SAMPLES), t = threadIdx.x;
    if (t < samples) {
        const int i = (int)((long long)t * rows / samples);
        long long low = row_ptr[i], high = row_ptr[i + 1];  // the columns of the row that are not ghosts
        const long long begin = low;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (col[middle] < own) low = middle + 1;
            else high = middle;
        }
        const unsigned last = low > begin ? col[low - 1] : 0;
        ahead[t] = last > (unsigned)i ? (int)(last - i) : 0;
    }
    __syncthreads();
    if (t >= samples) return;
    int rank = 0;
    for (int k = 0; k < samples; ++k) rank += ahead[k] < ahead[t] || (ahead[k] == ahead[t] && k < t);
    if (rank == samples / 2) *stride = ahead[t];
}

// order: at w * WINDOW the rows of window w, tile after tile, and backwards from the end of that range its
// rows longer than a tile. first: at w * (WINDOW + 1) the start of each tile among them, and the end of the
// last. tiles: the number without ghosts, and with ghosts. counts, each of windows + 1 numbers: tiles without
// ghosts, including parts; with ghosts; parts; rows longer than a tile. most_nodes 0: consecutive rows.
// Otherwise a tile starts with the first free row. It then takes the free row with the fewest new columns,
// the first of equal ones, among those that share a column (assuming a symmetric pattern), else the first
// free one.
extern "C" __global__ void __launch_bounds__(128)
tiling_cut(const Windows all, const int windows, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, const unsigned own, const int halo,
           const int tile, const int most_nodes, unsigned* __restrict__ order, unsigned* __restrict__ first, int2* __restrict__ tiles, unsigned* __restrict__ counts) {
    // blocks of a free row; | GHOSTS: has ghosts, comes later; LONG, | 1 with ghosts; NONE
    __shared__ unsigned short state[WINDOW];
    __shared__ unsigned gain[WINDOW];             // number of columns that the row shares with the tile
    __shared__ unsigned short candidates[WINDOW]; // places whose gain is nonzero
    __shared__ unsigned table[TABLE];             // the tile's columns, hashed
    __shared__ unsigned fresh[32];
    __shared__ int candidate_count;
    const int w = blockIdx.x, lane = threadIdx.x % 32;
    const unsigned below = (1u << lane) - 1;
    const Window window(all, w);
    for (int l = threadIdx.x; l < WINDOW; l += blockDim.x) {
        const int i = window.row(l);
        unsigned s = NONE;
        if (i >= 0) {
            const long long begin = row_ptr[i], end = row_ptr[i + 1];
            const bool ghosts = halo && end > begin && col[end - 1] >= own;
            s = end - begin > tile ? LONG | ghosts : (unsigned)(end - begin) | (ghosts ? GHOSTS : 0);
        }
        state[l] = (unsigned short)s;
        gain[l] = 0;
    }
    __syncthreads();
    if (threadIdx.x >= 32) return;

    unsigned* const rows = order + (long long)w * WINDOW;
    unsigned* const begins = first + (long long)w * (WINDOW + 1);
    int longs = 0;
    unsigned parts = 0, ghost_parts = 0;
    for (int l = lane; l < WINDOW; l += 32) {
        const unsigned s = state[l];
        const bool is = s != NONE && s >= LONG;
        const unsigned mask = __ballot_sync(ALL, is);
        if (is) {
            const int i = window.row(l);
            const unsigned n = (unsigned)((row_ptr[i + 1] - row_ptr[i] + tile - 1) / tile);
            (s & 1 ? ghost_parts : parts) += n;
            rows[WINDOW - 1 - longs - __popc(mask & below)] = i;
        }
        longs += __popc(mask);
    }
    parts = __reduce_add_sync(ALL, parts);
    ghost_parts = __reduce_add_sync(ALL, ghost_parts);

    int size = 32;  // size of the hash table: twice the most columns of a tile
    while (size < 2 * tile) size *= 2;
    const int shift = 32 - (31 - __clz(size));
    // True if the column is new.
    auto insert = [&](unsigned c) {
        for (unsigned h = c * 2654435761u >> shift;; h = (h + 1) & (size - 1)) {
            const unsigned old = atomicCAS(&table[h], EMPTY, c);
            if (old == EMPTY || old == c) return old == EMPTY;
        }
    };
    // The first free place from l on, or WINDOW.
    auto next_free = [&](int l) {
        for (; l < WINDOW; l += 32) {
            const unsigned mask = __ballot_sync(ALL, l + lane < WINDOW && state[l + lane] < GHOSTS);
            if (mask) return l + __ffs(mask) - 1;
        }
        return WINDOW;
    };
    // Lists the columns of row i. For a new column, the gain of all free rows that use it increases. Returns
    // the number of new columns.
    auto list = [&](int i, int length) {
        const long long begin = row_ptr[i];
        int added = 0;
        for (int q0 = 0; q0 < length; q0 += 32) {
            const unsigned c = q0 + lane < length ? col[begin + q0 + lane] : 0;
            const bool is_new = q0 + lane < length && insert(c);
            const unsigned mask = __ballot_sync(ALL, is_new);
            const int count = __popc(mask);
            if (is_new) fresh[__popc(mask & below)] = c;
            __syncwarp();
            for (int k = lane / 8; k < count; k += 4) {
                const unsigned j = fresh[k];
                if (j >= (unsigned)all.rows) continue;
                const long long from = row_ptr[j], to = row_ptr[j + 1];
                if (to - from > tile) continue;
                for (long long q = from + lane % 8; q < to; q += 8) {
                    const int l = window.place(col[q]);
                    if (l >= 0 && state[l] < GHOSTS && atomicAdd(&gain[l], 1u) == 0)
                        candidates[atomicAdd(&candidate_count, 1)] = (unsigned short)l;
                }
            }
            __syncwarp();
            added += count;
        }
        return added;
    };

    int made = 0, written = 0, interior = 0;
    for (int phase = 0; phase <= (halo ? 1 : 0); ++phase) {
        if (phase == 1) {
            interior = made;
            for (int l = lane; l < WINDOW; l += 32) {
                const unsigned s = state[l];
                state[l] = (unsigned short)(s >= GHOSTS && s < LONG ? s - GHOSTS : NONE);
            }
            __syncwarp();
        }
        for (int low = next_free(0); low < WINDOW; low = next_free(low)) {
            if (lane == 0) begins[made] = written;
            ++made;
            int taken = 0, blocks = 0;
            if (most_nodes == 0) {
                for (bool full = false; !full && low < WINDOW;) {
                    const int l = low + lane;
                    const unsigned s = l < WINDOW ? state[l] : NONE;
                    const bool free = s < GHOSTS;
                    int sum = free ? s : 0;
                    for (int d = 1; d < 32; d *= 2) {
                        const int before = __shfl_up_sync(ALL, sum, d);
                        if (lane >= d) sum += before;
                    }
                    const unsigned mask = __ballot_sync(ALL, free);
                    const int rank = __popc(mask & below);
                    const unsigned over = __ballot_sync(ALL, free && (blocks + sum > tile || taken + rank >= tile));
                    const int stop = over ? __ffs(over) - 1 : 32;
                    if (free && lane < stop) rows[written + taken + rank] = window.row(l);
                    taken += __popc(stop == 32 ? mask : mask & ((1u << stop) - 1));
                    const int last = __shfl_sync(ALL, sum, stop > 0 ? stop - 1 : 0);
                    if (stop > 0) blocks += last;
                    low += stop;
                    full = over != 0;
                }
                written += taken;
                continue;
            }
            for (int k = lane; k < size; k += 32) table[k] = EMPTY;
            if (lane == 0) candidate_count = 0;
            __syncwarp();
            int nodes = 0;
            for (int chosen = low; chosen < WINDOW;) {
                const int i = window.row(chosen), length = state[chosen];
                __syncwarp();
                if (lane == 0) {
                    state[chosen] = (unsigned short)NONE;
                    rows[written + taken] = i;
                }
                __syncwarp();
                ++taken;
                blocks += length;
                nodes += list(i, length);
                chosen = WINDOW;
                if (taken == tile) break;
                unsigned best = ALL;
                const int n = candidate_count;
                for (int k = lane; k < n; k += 32) {
                    const unsigned l = candidates[k], s = state[l];
                    if (s >= GHOSTS) continue;
                    const unsigned added = s - min(gain[l], s);
                    if (blocks + (int)s <= tile && nodes + (int)added <= most_nodes) best = min(best, added << 16 | l);
                }
                best = __reduce_min_sync(ALL, best);
                if (best != ALL) {
                    chosen = best & 0xffff;
                    continue;
                }
                low = next_free(low);
                if (low == WINDOW) break;
                const int s = state[low], added = s - (int)min(gain[low], (unsigned)s);
                if (blocks + s <= tile && nodes + added <= most_nodes) chosen = low;
            }
            __syncwarp();
            for (int k = lane; k < candidate_count; k += 32) gain[candidates[k]] = 0;
            __syncwarp();
            written += taken;
        }
    }
    if (!halo) interior = made;
    if (lane == 0) {
        begins[made] = written;
        tiles[w] = make_int2(interior, made - interior);
        counts[w] = interior + parts;
        counts[windows + 1 + w] = made - interior + ghost_parts;
        counts[2 * (windows + 1) + w] = parts + ghost_parts;
        counts[3 * (windows + 1) + w] = longs;
    }
}

// Exclusive sums, in place, of arrays of n + 1 numbers, one a CTA; the last number becomes the sum of all.
extern "C" __global__ void __launch_bounds__(1024) tiling_scan(unsigned* data, const long long n) {
    __shared__ unsigned warps[32];
    data += blockIdx.x * (n + 1);
    unsigned carry = 0;
    for (long long at = 0; at < n; at += 4096) {
        const long long mine = at + threadIdx.x * 4;
        unsigned v[4], own = 0;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            v[j] = mine + j < n ? data[mine + j] : 0;
            own += v[j];
        }
        unsigned sum = own;
#pragma unroll
        for (int d = 1; d < 32; d *= 2) {
            const unsigned before = __shfl_up_sync(ALL, sum, d);
            if (threadIdx.x % 32 >= d) sum += before;
        }
        if (threadIdx.x % 32 == 31) warps[threadIdx.x / 32] = sum;
        __syncthreads();
        if (threadIdx.x < 32) {
            unsigned all = warps[threadIdx.x];
#pragma unroll
            for (int d = 1; d < 32; d *= 2) {
                const unsigned before = __shfl_up_sync(ALL, all, d);
                if (threadIdx.x >= d) all += before;
            }
            warps[threadIdx.x] = all;
        }
        __syncthreads();
        unsigned next = carry + sum - own + (threadIdx.x >= 32 ? warps[threadIdx.x / 32 - 1] : 0);
        carry += warps[31];
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            if (mine + j < n) data[mine + j] = next;
            next += v[j];
        }
        __syncthreads();  // the sums of warps have been read
    }
    if (threadIdx.x == 0) data[n] = carry;
}

// rows > 0: that many rows of `order` from begin on. rows < 0: part `part` of a long row, -rows blocks from
// begin on.
struct Tile { long long begin; int rows, part; };

extern "C" __global__ void __launch_bounds__(128)
tiling_place(const int windows, const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, const unsigned own, const int halo, const int tile,
             const unsigned* __restrict__ order, const unsigned* __restrict__ first, const int2* __restrict__ tiles, const unsigned* __restrict__ sums,
             Tile* __restrict__ out, int* __restrict__ long_rows, long long* __restrict__ part_starts) {
    const int w = blockIdx.x;
    const unsigned* const boundary = sums + windows + 1;
    const unsigned* const parts = sums + 2 * (windows + 1);
    const unsigned* const longs = sums + 3 * (windows + 1);
    const unsigned* const begins = first + (long long)w * (WINDOW + 1);
    const int2 count = tiles[w];
    unsigned next[2] = {sums[w], sums[windows] + boundary[w]}, part = parts[w];
    for (int t = threadIdx.x; t < count.x + count.y; t += blockDim.x) {
        const unsigned at = t < count.x ? next[0] + t : next[1] + t - count.x;
        out[at] = {(long long)w * WINDOW + begins[t], (int)(begins[t + 1] - begins[t]), 0};
    }
    next[0] += count.x;
    next[1] += count.y;
    const unsigned from = longs[w], some = longs[w + 1] - from;
    for (unsigned k = 0; k < some; ++k) {
        const unsigned i = order[(long long)w * WINDOW + WINDOW - 1 - k];
        const long long begin = row_ptr[i], end = row_ptr[i + 1];
        const int ghosts = halo && col[end - 1] >= own;
        const unsigned n = (unsigned)((end - begin + tile - 1) / tile);
        for (unsigned p = threadIdx.x; p < n; p += blockDim.x) {
            const long long at = begin + (long long)p * tile;
            out[next[ghosts] + p] = {at, -(int)min((long long)tile, end - at), (int)(part + p)};
            part_starts[part + p] = at;
        }
        if (threadIdx.x == 0) {
            int* const to = long_rows + 3 * (long long)(from + k);
            to[0] = (int)i;
            to[1] = (int)part;
            to[2] = (int)(part + n);
        }
        next[ghosts] += n;
        part += n;
    }
}

// Sum of the values of all threads before this one; `total` becomes the sum of all.
__device__ __forceinline__ int sum_before(int value, int& total, int* warps) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    int sum = value;
#pragma unroll
    for (int d = 1; d < 32; d *= 2) {
        const int before = __shfl_up_sync(ALL, sum, d);
        if (lane >= d) sum += before;
    }
    if (lane == 31) warps[warp] = sum;
    __syncthreads();
    int others = 0;
    total = 0;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        if (k < warp) others += warps[k];
        total += warps[k];
    }
    __syncthreads();
    return others + sum - value;
}

// One CTA of 128 threads per tile. Without `records` it writes the record's length in units of 16 bytes and
// the tile's positions in units of four blocks, and limits: most nodes, longest record. With `records`,
// `starts` and `positions` are the sums of those. Shared memory: the least power of two >= tile, and 3 * tile
// words.
extern "C" __global__ void __launch_bounds__(128)
tiling_records(const long long* __restrict__ row_ptr, const unsigned* __restrict__ col, const unsigned* __restrict__ order, const Tile* __restrict__ tiles,
               const int tile, const int unsorted, unsigned* __restrict__ starts, unsigned* __restrict__ positions, unsigned* limits, char* __restrict__ records) {
    extern __shared__ unsigned shared[];
    __shared__ int warps[4];
    // columns of the blocks in their order; first the rows in their order
    unsigned* const blocks = shared;
    unsigned* const ids = blocks + tile;   // rows, ascending
    unsigned* const ends = ids + tile;     // end of each row among the blocks
    unsigned* const nodes = ends + tile;   // distinct columns, ascending
    const Tile t = tiles[blockIdx.x];
    const int count = t.rows > 0 ? t.rows : 1;
    int length = 0, total;
    if (t.rows < 0) {
        length = -t.rows;
        if (threadIdx.x == 0) {
            ids[0] = ~t.part;
            ends[0] = length;
        }
        for (int p = threadIdx.x; p < length; p += blockDim.x) blocks[p] = col[t.begin + p];
        __syncthreads();
    } else {
        unsigned* const to = unsorted ? blocks : ids;
        for (int i = threadIdx.x; i < count; i += blockDim.x) to[i] = order[t.begin + i];
        __syncthreads();
        if (unsorted) {
            for (int i = threadIdx.x; i < count; i += blockDim.x) {
                int rank = 0;
                for (int k = 0; k < count; ++k) rank += blocks[k] < blocks[i];
                ids[rank] = blocks[i];
            }
            __syncthreads();
        }
        for (int at = 0; at < count; at += blockDim.x) {
            const int i = at + threadIdx.x, own = i < count ? (int)(row_ptr[ids[i] + 1] - row_ptr[ids[i]]) : 0;
            const int before = sum_before(own, total, warps);
            if (i < count) ends[i] = length + before + own;
            length += total;
        }
        __syncthreads();
        for (int i = threadIdx.x / 8; i < count; i += blockDim.x / 8) {
            const long long from = row_ptr[ids[i]];
            const int begin = i ? ends[i - 1] : 0, own = ends[i] - begin;
            for (int q = threadIdx.x % 8; q < own; q += 8) blocks[begin + q] = col[from + q];
        }
        __syncthreads();
    }
    int width = 1;
    while (width < length) width *= 2;
    for (int p = threadIdx.x; p < width; p += blockDim.x) nodes[p] = p < length ? blocks[p] : EMPTY;
    __syncthreads();
    for (int k = 2; k <= width; k *= 2)
        for (int j = k / 2; j > 0; j /= 2) {
            for (int p = threadIdx.x; p < width; p += blockDim.x) {
                const int q = p ^ j;
                const unsigned a = nodes[p];
                if (q > p) {
                    const unsigned b = nodes[q];
                    if ((a > b) == ((p & k) == 0)) {
                        nodes[p] = b;
                        nodes[q] = a;
                    }
                }
            }
            __syncthreads();
        }
    // Drops equal ones in place: elements move to the front, behind everything that is still to be read.
    int distinct = 0;
    for (int at = 0; at < length; at += blockDim.x) {
        const int p = at + threadIdx.x;
        const unsigned own = p < length ? nodes[p] : 0;
        const bool is_new = p < length && (p == 0 || nodes[p - 1] != own);
        const int before = sum_before(is_new, total, warps);
        if (is_new) nodes[distinct + before] = own;
        distinct += total;
        __syncthreads();
    }
    const int wide = tile <= 256 ? 1 : 2, bytes = 16 + 4 * distinct + 6 * count + length * wide, padded = (bytes + 15) / 16 * 16;
    if (records == nullptr) {
        if (threadIdx.x == 0) {
            starts[blockIdx.x] = padded / 16;
            positions[blockIdx.x] = (length + 3) / 4;
            atomicMax(&limits[0], (unsigned)distinct);
            atomicMax(&limits[1], (unsigned)padded);
        }
        return;
    }
    char* const to = records + (unsigned long long)starts[blockIdx.x] * 16;
    unsigned* const words = (unsigned*)to;
    if (threadIdx.x == 0) {
        words[0] = positions[blockIdx.x];
        words[1] = length;
        words[2] = distinct;
        words[3] = count;
    }
    for (int k = threadIdx.x; k < distinct; k += blockDim.x) words[4 + k] = nodes[k];
    unsigned short* const short_ends = (unsigned short*)(words + 4 + distinct + count);
    for (int i = threadIdx.x; i < count; i += blockDim.x) {
        words[4 + distinct + i] = ids[i];
        short_ends[i] = (unsigned short)ends[i];
    }
    char* const locals = (char*)(short_ends + count);
    for (int p = threadIdx.x; p < length; p += blockDim.x) {
        int low = 0, high = distinct;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (nodes[middle] < blocks[p]) low = middle + 1;
            else high = middle;
        }
        if (wide == 1) locals[p] = (char)low;
        else ((unsigned short*)locals)[p] = (unsigned short)low;
    }
    for (int p = bytes + threadIdx.x; p < padded; p += blockDim.x) to[p] = 0;
}
