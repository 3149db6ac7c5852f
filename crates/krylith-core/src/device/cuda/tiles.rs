//! Tiles of block rows for the fused product: the rows that a group of threads processes together, and their
//! indices.
//!
//! A tile is a set of whole rows with at most `tile` blocks. Its distinct block columns are listed once, and
//! its blocks refer to them by one byte (or two). The kernel therefore reads x once per tile, independent of
//! the number of blocks that use it. Rows that share columns are grouped greedily (`cluster`), which halves
//! the traffic of x on meshes. A row that is longer than a tile is cut into parts, whose sums a second kernel
//! adds in order.
//!
//! Tiles are made inside [`Windows`] of rows, which are independent. A GPU makes them (`tiling.rs`);
//! `testing.rs` follows the same rule on the host, as the reference that tests compare with byte by byte.
//!
//! Where columns from some number on are ghosts (nodes of other ranks), no tile mixes rows with and without
//! ghosts. The tiles without ghosts come first: they can be multiplied before the ghosts arrive.

#[cfg(any(test, feature = "testing"))]
pub(super) mod testing;

/// Largest number of rows of a window; the kernel has the same constant.
pub(super) const WINDOW: usize = 1024;
/// Number of runs of rows that form a window, if rows are clustered.
const PLANES: usize = 4;
/// Number of rows that are sampled to find the stride; the kernel has the same constant.
pub(super) const SAMPLES: usize = 256;
/// Bytes of a record's header: position, blocks, nodes, rows.
pub(super) const HEADER: usize = 16;

/// Division of rows into windows.
///
/// Window w has the rows base + k · stride + j with k < planes and j < width. It thus combines rows that have
/// distant numbers but are near each other in a mesh. With one plane, windows are consecutive rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Windows {
    pub(super) rows: usize,
    pub(super) planes: usize,
    pub(super) stride: usize,
    pub(super) width: usize,
    pub(super) chunks: usize,
    pub(super) count: usize,
}

impl Windows {
    /// Returns windows of consecutive rows.
    pub(super) fn consecutive(rows: usize) -> Self {
        let chunks = rows.div_ceil(WINDOW).max(1);
        let count = if rows == 0 { 0 } else { chunks };
        Self { rows, planes: 1, stride: rows.max(1), width: WINDOW, chunks, count }
    }

    /// Returns windows of runs that are `stride` rows apart; in a mesh numbered plane by plane, the stride is
    /// a plane.
    pub(super) fn strided(rows: usize, stride: usize) -> Self {
        let planes = PLANES.min(rows / stride.max(1));
        if planes < 2 || planes * stride <= WINDOW {
            return Self::consecutive(rows);
        }
        let chunks = stride.div_ceil(WINDOW / planes);
        let count = rows.div_ceil(planes * stride) * chunks;
        Self { rows, planes, stride, width: stride.div_ceil(chunks), chunks, count }
    }
}

/// Largest number of distinct columns of a tile, which bounds its shared memory.
pub(super) fn most_nodes(tile: usize) -> usize {
    let share = match tile {
        0..=32 => 0.8,
        33..=64 => 0.62,
        65..=128 => 0.5,
        129..=256 => 0.42,
        _ => 0.36,
    };
    ((tile as f64 * share) as usize).max(16)
}
