// tile: division of a box of grid cells into the tiles of block-Jacobi, and the walk of a warp through a
// tile.
//
// A warp has a tile of (32 / (TY * TZ)) * lx by TY by TZ cells: TY * TZ * groups = 32 lines along x, one per
// lane, y fastest. At step l a lane is at x = l - y - z of its line. Other lanes of the warp have processed
// the lower neighbours in y and z one step before, and the lane itself the one in x; their numbers come by a
// shuffle. Groups are adjacent in x and are separate tiles.
//
// Coefficients of a tile are stored in the order of the steps: [row][x, y, z, s][lane] with row = l mod lx,
// and [row][x, y, z][lane] if there is another half. Each lane is at each row exactly once, so nothing is
// stored twice and every step reads 32 neighbours.

struct Boxes {
    int n[3];             // cells of the box in x, y, z; x fastest
    int lx, log_y, log_z; // cells per line; TY = 1 << log_y, TZ = 1 << log_z
    int across[2];        // tiles of warps in x and in y
    int tiles;            // tiles of warps in all
    int pitch;            // numbers between two lines in shared memory
};

constexpr unsigned ALL = 0xffffffff;
constexpr int LOWER = 4 * 32, UPPER = 3 * 32;  // numbers per row

// A line of a tile, numbered below 32, by its first cell.
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
