// kron_pack: values from natural order [block][r][c] to the packed order of each tile, [slice][OWN / VECTOR][width][VECTOR], as
// update_values needs it: nothing is analysed again. Included by kron_product.cu, whose layout it writes.
//
// sources: for each slot term * BLOCK * BLOCK + r * BLOCK + c of an entry that holds its number. A term whose pointer is null keeps its
// slots. Bytes moved: the natural values of the terms given, and their slots. One CTA a tile.
//
// broken[0] becomes 1 where an entry differs from the one that its slot is taken from, or is not zero where all were; broken[1] where a
// stored number is NaN or infinite.

extern "C" __global__ void kron_pack(const unsigned* __restrict__ starts, const char* __restrict__ records, const long long* __restrict__ row_starts,
                                     const long long* __restrict__ part_starts, const int* __restrict__ sources,
                                     const double* __restrict__ m, const double* __restrict__ l, VALUE* __restrict__ values, int* broken) {
    __shared__ long long from[TILE];  // where each block of the tile lies in natural order
    constexpr int ENTRIES = BLOCK * BLOCK;
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
    __syncthreads();
    auto natural = [&](int entry, int p) { return entry < ENTRIES ? m[from[p] + entry] : l[from[p] + entry - ENTRIES]; };
    for (int i = threadIdx.x; i < width * SLOTS; i += blockDim.x) {
        const int p = i / VECTOR % width, s = i / (VECTOR * width) * VECTOR + i % VECTOR, entry = sources[s];
        if (entry < ENTRIES ? m == nullptr : l == nullptr) continue;
        const double value = p < blocks ? natural(entry, p) : 0.0;
        values[(unsigned long long)tile.position * (4 * SLOTS) + i] = (VALUE)value;
        if (!(fabs(value) <= 1.7976931348623157e308)) broken[1] = 1;
    }
#ifdef SLOT_TABLE
    for (int i = threadIdx.x; i < blocks * TERMS * ENTRIES; i += blockDim.x) {
        const int p = i / (TERMS * ENTRIES), entry = i % (TERMS * ENTRIES);
        if (entry < ENTRIES ? m == nullptr : l == nullptr) continue;
        const int s = slot(entry / ENTRIES, entry / BLOCK % BLOCK, entry % BLOCK);
        if (natural(entry, p) != (s < 0 ? 0.0 : natural(sources[s], p))) broken[0] = 1;
    }
#endif
}
