// tile: how a box of grid cells is cut into the tiles of block-Jacobi, and how a warp walks through one.
//
// A warp has a tile of (32 / (TY * TZ)) * lx by TY by TZ cells: TY * TZ * groups = 32 lines along x, a lane each, y fastest. At step l a
// lane is at x = l - y - z of its line, so the neighbours below it in y and z were done one step before, by other lanes of the warp, and
// the one in x by itself: what they hold comes by a shuffle. Groups stand side by side in x and are tiles of their own.
//
// Coefficients of a tile stand in the order in which steps want them: [row][x, y, z, s][lane] with row = l mod lx, and [row][x, y, z][lane] where
// there is another half. Each lane is at each row exactly once, so nothing is stored twice and every step reads 32 neighbours.

struct Boxes {
    int n[3];             // cells of the box in x, y, z; x fastest
    int lx, log_y, log_z; // a line's cells; TY = 1 << log_y, TZ = 1 << log_z
    int across[2];        // tiles of a warp in x and in y
    int tiles;            // of a warp, in all
    int pitch;            // numbers from one line to the next in shared memory
};

constexpr unsigned ALL = 0xffffffff;
constexpr int LOWER = 4 * 32, UPPER = 3 * 32;  // numbers of a row

// The line of a tile that a number below 32 stands for, by its first cell.
struct Line {
    int x, y, z;     // in the box
    int in_y, in_z;  // in the tile
};

struct Tile {
    int x, y, z;  // first cell
    __device__ __forceinline__ Tile(const Boxes& b, int t) {
        x = t % b.across[0] * (b.lx << (5 - b.log_y - b.log_z));
        y = t / b.across[0] % b.across[1] << b.log_y;
        z = t / b.across[0] / b.across[1] << b.log_z;
    }
    __device__ __forceinline__ Line line(const Boxes& b, int of) const {
        Line line;
        line.in_y = of & ((1 << b.log_y) - 1);
        line.in_z = of >> b.log_y & ((1 << b.log_z) - 1);
        line.x = x + (of >> (b.log_y + b.log_z)) * b.lx;
        line.y = y + line.in_y;
        line.z = z + line.in_z;
        return line;
    }
};

__device__ __forceinline__ int steps_of(const Boxes& b) { return b.lx + (1 << b.log_y) + (1 << b.log_z) - 2; }
