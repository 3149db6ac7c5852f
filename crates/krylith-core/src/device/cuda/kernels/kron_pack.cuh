// kron_pack: copies values from natural order [block][r][c] to the packed order of each tile, [slice][OWN /
// VECTOR][width][VECTOR], for set-up and update_values, without any new analysis. Included by
// kron_product.cu, whose layout it writes.
//
// natural: the values of one term of the group, with number `term`; other terms keep their slots. sources:
// for each slot term * BLOCK * BLOCK + r * BLOCK + c of an entry that it holds.
// Bytes moved: the natural values, and the term's slots. One CTA per tile; chunks of its blocks pass through
// shared memory, so that both sides access whole cache lines.
//
// broken[0] becomes 1 if an entry differs from the one that its slot holds, or is nonzero where all entries
// were zero; broken[1] if a stored number is NaN or infinite.

extern "C" __global__ void kron_pack(const unsigned* __restrict__ starts, const char* __restrict__ records, const long long* __restrict__ row_starts,
                                     const long long* __restrict__ part_starts, const int* __restrict__ sources,
                                     const double* __restrict__ natural, const int term, VALUE* __restrict__ values, int* broken) {
    // NUMBERS is odd, against bank conflicts.
    constexpr int ENTRIES = BLOCK * BLOCK, NUMBERS = ENTRIES | 1, PIECE = 1536 / NUMBERS;
    __shared__ long long from[TILE];  // position of each block of the tile in natural order
    __shared__ double piece[PIECE * NUMBERS];
    const char* record = records + (unsigned long long)starts[blockIdx.x] * 16;
    const Header tile = *(const Header*)record;
    const int blocks = tile.blocks, width = (blocks + ROUND - 1) / ROUND * ROUND, rows = tile.rows;
    const int* ids = (const int*)(record + sizeof(Header)) + tile.nodes;
    const unsigned short* ends = (const unsigned short*)(ids + rows);
    for (int i = threadIdx.x; i < rows; i += blockDim.x) {
        const int begin = i ? ends[i - 1] : 0;
        const long long first = ids[i] < 0 ? part_starts[~ids[i]] : row_starts[ids[i]];
        for (int p = begin; p < ends[i]; ++p) from[p] = (first + p - begin) * ENTRIES;
    }
    VALUE* const packed = values + (unsigned long long)tile.position * (4 * SLOTS);
    for (int p0 = 0; p0 < blocks; p0 += PIECE) {
        const int n = min(PIECE, blocks - p0);
        __syncthreads();  // the last chunk has been used, and positions are known
        for (int i = threadIdx.x; i < n * ENTRIES; i += blockDim.x) {
            const int p = i / ENTRIES, entry = i % ENTRIES;
            piece[p * NUMBERS + entry] = natural[from[p0 + p] + entry];
        }
        __syncthreads();
        for (int i = threadIdx.x; i < n * SLOTS; i += blockDim.x) {
            const int p = i / VECTOR % n, s = i / (VECTOR * n) * VECTOR + i % VECTOR, entry = sources[s] - term * ENTRIES;
            if (entry < 0 || entry >= ENTRIES) continue;
            const double value = piece[p * NUMBERS + entry];
            packed[(s / VECTOR * width + p0 + p) * VECTOR + s % VECTOR] = (VALUE)value;
            if (!(fabs(value) <= 1.7976931348623157e308)) broken[1] = 1;
        }
#ifdef SLOT_TABLE
        for (int i = threadIdx.x; i < n * ENTRIES; i += blockDim.x) {
            const int p = i / ENTRIES, entry = i % ENTRIES, s = slot(term, entry / BLOCK, entry % BLOCK);
            if (piece[p * NUMBERS + entry] != (s < 0 ? 0.0 : piece[p * NUMBERS + sources[s] - term * ENTRIES])) broken[0] = 1;
        }
#endif
    }
}
