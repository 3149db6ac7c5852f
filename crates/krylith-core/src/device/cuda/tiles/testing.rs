//! Tiles made on the host by the GPU's rule: the reference that tests compare with byte by byte.

use super::{HEADER, SAMPLES, Windows, most_nodes};
use rayon::prelude::*;

impl Windows {
    /// Returns the first row and the width of a window.
    fn of(&self, w: usize) -> (usize, usize) {
        let (slab, chunk) = (w / self.chunks, w % self.chunks);
        let base = slab * self.planes * self.stride + chunk * self.width;
        (base, self.width.min(self.stride - chunk * self.width))
    }

    /// Returns the rows of window `w`, ascending.
    fn rows_of(&self, w: usize) -> impl Iterator<Item = usize> + '_ {
        let (base, width) = self.of(w);
        let all = (0..self.planes).flat_map(move |k| (0..width).map(move |j| base + k * self.stride + j));
        all.take_while(|&i| i < self.rows)
    }

    /// Returns the place of row `i` in window `w`.
    fn place(&self, w: usize, i: usize) -> Option<usize> {
        let (base, width) = self.of(w);
        let d = i.checked_sub(base)?;
        let (k, j) = (d / self.stride, d % self.stride);
        (k < self.planes && j < width).then_some(k * width + j)
    }
}

/// The tiles of a pattern, as `kernels/kron_product.cu` reads them.
pub struct Tiling {
    /// Start of each record, in units of 16 bytes; one more at the end.
    pub starts: Vec<u32>,
    /// Records: header, columns, rows, ends, local column of each block.
    pub records: Vec<u8>,
    /// Row, first part and end part of each row that is longer than a tile.
    pub long_rows: Vec<i32>,
    /// First block of each part.
    pub part_starts: Vec<i64>,
    /// Blocks of storage, padding included.
    pub positions: usize,
    /// Largest number of distinct columns of a tile.
    pub nodes: usize,
    /// Longest record, in bytes.
    pub record: usize,
    /// The first tile with ghost columns; all later tiles have some, too.
    pub first_boundary: usize,
}

/// A block pattern.
#[derive(Clone, Copy)]
pub struct Pattern<'a> {
    pub row_ptr: &'a [usize],
    pub col: &'a [u32],
    pub columns: usize,
}

impl Pattern<'_> {
    fn rows(&self) -> usize {
        self.row_ptr.len() - 1
    }
    fn len(&self, i: usize) -> usize {
        self.row_ptr[i + 1] - self.row_ptr[i]
    }
    fn row(&self, i: usize) -> &[u32] {
        &self.col[self.row_ptr[i]..self.row_ptr[i + 1]]
    }
}

/// Rows of one tile, or a part of one long row: its first block and its number.
struct Tile {
    rows: Vec<u32>,
    part: Option<(usize, i32)>,
}

/// The tiles of a window without and with ghosts, and its rows that are longer than a tile, without and with
/// ghosts.
struct Made {
    short: [Vec<Vec<u32>>; 2],
    long: Vec<(usize, bool)>,
}

impl Tiling {
    /// Makes tiles of at most `tile` blocks; `cluster` puts rows together that share columns. Columns from
    /// `own` on are ghosts.
    pub fn new(pattern: Pattern, tile: usize, cluster: bool, own: usize) -> Self {
        let rows = pattern.rows();
        let windows = match cluster {
            true => Windows::strided(rows, stride(pattern, own)),
            false => Windows::consecutive(rows),
        };
        let made: Vec<Made> = (0..windows.count)
            .into_par_iter()
            .map_init(|| Builder::new(pattern, windows, tile, cluster, own), |builder, w| builder.window(w))
            .collect();
        let mut out = Self {
            starts: vec![0],
            records: Vec::new(),
            long_rows: Vec::new(),
            part_starts: Vec::new(),
            positions: 0,
            nodes: 1,
            record: HEADER,
            first_boundary: 0,
        };
        let mut tiles: [Vec<Tile>; 2] = [Vec::new(), Vec::new()];
        for Made { short, long } in made {
            for (tiles, short) in tiles.iter_mut().zip(short) {
                tiles.extend(short.into_iter().map(|rows| Tile { rows, part: None }));
            }
            for (i, ghosts) in long {
                let first = out.part_starts.len() as i32;
                for begin in (pattern.row_ptr[i]..pattern.row_ptr[i + 1]).step_by(tile) {
                    let part = Some((begin, out.part_starts.len() as i32));
                    tiles[ghosts as usize].push(Tile { rows: vec![i as u32], part });
                    out.part_starts.push(begin as i64);
                }
                out.long_rows.extend([i as i32, first, out.part_starts.len() as i32]);
            }
        }
        let [mut tiles, boundary] = tiles;
        out.first_boundary = tiles.len();
        tiles.extend(boundary);
        let records: Vec<(Vec<u8>, usize, usize)> =
            tiles.par_iter().map(|t| record(pattern, t, tile)).collect();
        for (mut record, blocks, nodes) in records {
            record[..4].copy_from_slice(&((out.positions / 4) as u32).to_le_bytes());
            out.positions += blocks.next_multiple_of(4);
            out.nodes = out.nodes.max(nodes);
            out.record = out.record.max(record.len());
            out.records.extend_from_slice(&record);
            out.starts.push((out.records.len() / 16) as u32);
        }
        out
    }

    #[cfg(test)]
    pub fn count(&self) -> usize {
        self.starts.len() - 1
    }
}

/// Returns the record of a tile, and the numbers of its blocks and distinct columns. The position is filled
/// in later.
fn record(pattern: Pattern, t: &Tile, tile: usize) -> (Vec<u8>, usize, usize) {
    let row = t.rows[0] as usize;
    let blocks: Vec<u32> = match t.part {
        Some((first, _)) => pattern.col[first..(first + tile).min(pattern.row_ptr[row + 1])].to_vec(),
        None => t.rows.iter().flat_map(|&i| pattern.row(i as usize)).copied().collect(),
    };
    let mut nodes = blocks.clone();
    nodes.sort_unstable();
    nodes.dedup();
    let mut out = Vec::new();
    for n in [0, blocks.len(), nodes.len(), t.rows.len()] {
        out.extend((n as u32).to_le_bytes());
    }
    nodes.iter().for_each(|n| out.extend(n.to_le_bytes()));
    match t.part {
        Some((_, part)) => out.extend((!part).to_le_bytes()),
        None => t.rows.iter().for_each(|i| out.extend(i.to_le_bytes())),
    }
    let mut end = 0;
    for &i in &t.rows {
        end = if t.part.is_some() { blocks.len() } else { end + pattern.len(i as usize) };
        out.extend((end as u16).to_le_bytes());
    }
    for b in &blocks {
        let local = nodes.binary_search(b).expect("every column is listed") as u16;
        if tile <= 256 {
            out.push(local as u8);
        } else {
            out.extend(local.to_le_bytes());
        }
    }
    out.resize(out.len().next_multiple_of(16), 0);
    (out, blocks.len(), nodes.len())
}

/// Returns the distance from a row to its last column that is no ghost: the median over some rows.
fn stride(pattern: Pattern, own: usize) -> usize {
    let rows = pattern.rows();
    let samples = rows.min(SAMPLES);
    let ahead = |t: usize| {
        let i = t * rows / samples;
        let last = pattern.row(i).iter().rev().find(|&&c| (c as usize) < own);
        last.map_or(0, |&c| (c as usize).saturating_sub(i))
    };
    let mut all: Vec<usize> = (0..samples).map(ahead).collect();
    all.sort_unstable();
    all.get(samples / 2).copied().unwrap_or(0)
}

/// Marks a row that is not free: in a tile already, or kept for later.
const NONE: usize = usize::MAX;

/// Scratch of one thread.
struct Builder<'a> {
    pattern: Pattern<'a>,
    windows: Windows,
    tile: usize,
    cluster: bool,
    own: usize,
    /// The present window.
    window: usize,
    rows: Vec<usize>,
    /// Number of blocks of each row of the window that is free.
    free: Vec<usize>,
    /// Number of columns that each row shares with the tile.
    gain: Vec<usize>,
    candidates: Vec<usize>,
    columns: std::collections::HashSet<u32>,
}

impl<'a> Builder<'a> {
    fn new(pattern: Pattern<'a>, windows: Windows, tile: usize, cluster: bool, own: usize) -> Self {
        let (rows, free, gain, candidates) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let columns = Default::default();
        Self { pattern, windows, tile, cluster, own, window: 0, rows, free, gain, candidates, columns }
    }

    fn window(&mut self, w: usize) -> Made {
        let (p, tile) = (self.pattern, self.tile);
        self.window = w;
        self.rows = self.windows.rows_of(w).collect();
        let ghosts = |i: usize| self.own < p.columns && p.row(i).iter().any(|&c| c as usize >= self.own);
        let (long, short): (Vec<usize>, Vec<usize>) = self.rows.iter().partition(|&&i| p.len(i) > tile);
        let long = long.into_iter().map(|i| (i, ghosts(i))).collect();
        let boundary: std::collections::HashSet<usize> = short.into_iter().filter(|&i| ghosts(i)).collect();
        let short = [false, true].map(|late| {
            let free =
                |&i: &usize| if p.len(i) > tile || boundary.contains(&i) != late { NONE } else { p.len(i) };
            self.free = self.rows.iter().map(free).collect();
            self.gain = vec![0; self.rows.len()];
            self.tiles()
        });
        Made { short, long }
    }

    fn next_free(&self, from: usize) -> Option<usize> {
        (from..self.free.len()).find(|&l| self.free[l] != NONE)
    }

    /// Returns the tiles of the free rows; each starts with the lowest free row.
    fn tiles(&mut self) -> Vec<Vec<u32>> {
        let most = if self.cluster { most_nodes(self.tile) } else { self.tile };
        let (tile, mut tiles, mut low) = (self.tile, Vec::new(), 0);
        while let Some(next) = self.next_free(low) {
            low = next;
            let (mut rows, mut blocks, mut nodes) = (Vec::new(), 0, 0);
            self.columns.clear();
            self.candidates.clear();
            let mut chosen = Some(next);
            while let Some(l) = chosen {
                let length = std::mem::replace(&mut self.free[l], NONE);
                rows.push(self.rows[l] as u32);
                blocks += length;
                nodes += self.list(self.rows[l]);
                if rows.len() == tile {
                    break;
                }
                let new = |l: usize| self.free[l].saturating_sub(self.gain[l]);
                let fits = |l: usize| blocks + self.free[l] <= tile && nodes + new(l) <= most;
                // Take the free row with the fewest new columns, the lowest of equals; without candidates,
                // the lowest free row.
                let free = self.candidates.iter().copied().filter(|&l| self.free[l] != NONE);
                chosen = free.filter(|&l| fits(l)).min_by_key(|&l| (new(l), l));
                chosen = chosen.or_else(|| self.next_free(low).filter(|&l| fits(l)));
            }
            self.candidates.iter().for_each(|&l| self.gain[l] = 0);
            rows.sort_unstable();
            tiles.push(rows);
        }
        tiles
    }

    /// Lists the columns of row `i`. For a new column, the gain of all free rows that use it increases.
    /// Returns the number of new columns.
    fn list(&mut self, i: usize) -> usize {
        let (p, mut new) = (self.pattern, 0);
        for &c in p.row(i) {
            if !self.columns.insert(c) {
                continue;
            }
            new += 1;
            let c = c as usize;
            // In a symmetric pattern, the rows that use a column are the columns of its row; otherwise this
            // is only a guess.
            if !self.cluster || c >= p.rows() || p.len(c) > self.tile {
                continue;
            }
            for &row in p.row(c) {
                let Some(l) = self.windows.place(self.window, row as usize) else { continue };
                if self.free.get(l).is_none_or(|&free| free == NONE) {
                    continue;
                }
                self.gain[l] += 1;
                if self.gain[l] == 1 {
                    self.candidates.push(l);
                }
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::super::WINDOW;
    use super::*;

    /// Reads the records back, and checks that every block of every row occurs once, in order, and that
    /// ghosts come last.
    fn check(row_ptr: &[usize], col: &[u32], columns: usize, tile: usize, cluster: bool, own: usize) {
        let pattern = Pattern { row_ptr, col, columns };
        let t = Tiling::new(pattern, tile, cluster, own);
        assert!(t.first_boundary <= t.count());
        let mut found: Vec<Option<Vec<u32>>> = vec![None; row_ptr.len() - 1];
        let mut parts: Vec<Vec<u32>> = vec![Vec::new(); t.part_starts.len()];
        let mut position = 0;
        for k in 0..t.count() {
            let r = &t.records[t.starts[k] as usize * 16..t.starts[k + 1] as usize * 16];
            let word = |i: usize| u32::from_le_bytes(r[4 * i..4 * i + 4].try_into().unwrap());
            let (blocks, nodes, rows) = (word(1) as usize, word(2) as usize, word(3) as usize);
            assert_eq!(word(0) as usize * 4, position);
            position += blocks.next_multiple_of(4);
            assert!(blocks <= tile && nodes <= t.nodes && r.len() <= t.record && rows <= tile);
            let ends = 4 * (4 + nodes + rows);
            let end =
                |i: usize| u16::from_le_bytes(r[ends + 2 * i..ends + 2 * i + 2].try_into().unwrap()) as usize;
            let locals = ends + 2 * rows;
            let local = |p: usize| match tile <= 256 {
                true => r[locals + p] as usize,
                false => {
                    u16::from_le_bytes(r[locals + 2 * p..locals + 2 * p + 2].try_into().unwrap()) as usize
                }
            };
            for i in 0..rows {
                let begin = if i == 0 { 0 } else { end(i - 1) };
                let columns: Vec<u32> = (begin..end(i)).map(|p| word(4 + local(p))).collect();
                let row = word(4 + nodes + i) as i32;
                let of = if row >= 0 { row } else { long_row(&t, !row) } as usize;
                let ghosts = col[row_ptr[of]..row_ptr[of + 1]].iter().any(|&c| c as usize >= own);
                assert_eq!(ghosts, k >= t.first_boundary, "row {of} in tile {k}, own {own}");
                if row >= 0 {
                    assert!(found[row as usize].replace(columns).is_none());
                } else {
                    parts[!row as usize] = columns;
                }
            }
        }
        assert_eq!(position, t.positions);
        for long in t.long_rows.chunks_exact(3) {
            let whole = (long[1]..long[2]).flat_map(|p| parts[p as usize].clone()).collect();
            assert!(found[long[0] as usize].replace(whole).is_none());
        }
        for i in 0..row_ptr.len() - 1 {
            assert_eq!(found[i].as_deref(), Some(&col[row_ptr[i]..row_ptr[i + 1]]), "row {i}");
        }
    }

    /// Returns the row of a part.
    fn long_row(t: &Tiling, part: i32) -> i32 {
        let long = t.long_rows.chunks_exact(3).find(|l| (l[1]..l[2]).contains(&part));
        long.expect("every part belongs to a row")[0]
    }

    /// Rows of a line of nodes, each coupled to its neighbours.
    #[test]
    fn without_ghosts_the_tiles_are_the_same_and_with_them_interior_rows_come_first() {
        let n = 100usize;
        let (mut row_ptr, mut col) = (vec![0], Vec::new());
        for i in 0..n {
            col.extend((i.saturating_sub(1)..=(i + 1).min(n - 1)).map(|c| c as u32));
            row_ptr.push(col.len());
        }
        let pattern = Pattern { row_ptr: &row_ptr, col: &col, columns: n };
        let all = Tiling::new(pattern, 30, true, n);
        assert_eq!(all.first_boundary, all.count());
        // Of the first 60 rows, the last has a ghost.
        let pattern = Pattern { row_ptr: &row_ptr[..61], col: &col[..row_ptr[60]], columns: n };
        let cut = Tiling::new(pattern, 30, true, 60);
        assert_eq!(cut.first_boundary, cut.count() - 1);
        let last = &cut.records[cut.starts[cut.count() - 1] as usize * 16..];
        let words: Vec<u32> =
            last.chunks_exact(4).take(8).map(|w| u32::from_le_bytes(w.try_into().unwrap())).collect();
        assert_eq!(words[1..8], [3, 3, 1, 58, 59, 60, 59], "blocks, nodes, rows, the nodes, the row");
    }

    #[test]
    fn every_block_is_in_one_tile() {
        let mut state = 1u64;
        let mut random = |n: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % n
        };
        for (rows, columns) in [(1, 40), (33, 33), (700, 700), (50, 3), (0, 0)] {
            let (mut row_ptr, mut col) = (vec![0], Vec::new());
            for i in 0..rows {
                let len = if i == 40 { columns } else { random(20) };
                let mut row: Vec<u32> =
                    (0..len).map(|k| if i == 40 { k } else { random(columns) } as u32).collect();
                row.sort_unstable();
                row.dedup();
                col.extend(row);
                row_ptr.push(col.len());
            }
            for tile in [16, 60, 255, 465] {
                for cluster in [false, true] {
                    for own in [0, columns / 2, columns - columns.min(1), columns] {
                        check(&row_ptr, &col, columns, tile, cluster, own);
                    }
                }
            }
        }
    }

    #[test]
    fn every_row_is_in_one_window() {
        for (rows, stride) in
            [(0, 0), (1, 1), (5000, 0), (5000, 1), (5000, 700), (9000, 4100), (20_001, 2049)]
        {
            for windows in [Windows::consecutive(rows), Windows::strided(rows, stride)] {
                let mut times = vec![0; rows];
                for w in 0..windows.count {
                    for (l, i) in windows.rows_of(w).enumerate() {
                        times[i] += 1;
                        assert_eq!(windows.place(w, i), Some(l));
                        assert!(l < WINDOW);
                        let elsewhere = (0..windows.count).filter(|&v| windows.place(v, i).is_some());
                        assert!(i % 97 != 0 || elsewhere.count() == 1);
                    }
                }
                assert!(times.iter().all(|&n| n == 1), "{windows:?}");
            }
        }
    }

    /// A box of nodes, each coupled to itself and to the neighbours at `offsets` and their opposites.
    fn mesh(n: usize, offsets: &[[usize; 3]], number: impl Fn(usize) -> usize) -> (Vec<usize>, Vec<u32>) {
        let mut rows = vec![Vec::new(); n * n * n];
        let at = |p: [usize; 3]| number((p[2] * n + p[1]) * n + p[0]);
        for i in 0..n * n * n {
            let p = [i % n, i / n % n, i / (n * n)];
            rows[number(i)].push(number(i) as u32);
            for o in offsets {
                let q: [usize; 3] = std::array::from_fn(|k| p[k] + o[k]);
                if q.iter().all(|&x| x < n) {
                    rows[at(p)].push(at(q) as u32);
                    rows[at(q)].push(at(p) as u32);
                }
            }
        }
        let mut row_ptr = vec![0];
        let mut col = Vec::new();
        for mut row in rows {
            row.sort_unstable();
            col.extend(row);
            row_ptr.push(col.len());
        }
        (row_ptr, col)
    }

    /// Counts the columns that all tiles list, per row, which is the cost of x. One window of all rows gives
    /// 2.72 and 4.63 on large meshes, consecutive rows give 5.0 and 7.3.
    #[test]
    fn clustered_tiles_list_few_columns() {
        const AXES: [[usize; 3]; 3] = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
        const TETRAHEDRA: [[usize; 3]; 7] =
            [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]];
        let n = 32;
        // Shuffles numbers within runs of 128 rows: 75 and 128 have no common divisor.
        let mixed = |i: usize| i / 128 * 128 + i * 75 % 128;
        let cases: [(&[[usize; 3]], bool, f64); 4] =
            [(&AXES, false, 2.95), (&TETRAHEDRA, false, 4.95), (&AXES, true, 3.6), (&TETRAHEDRA, true, 5.6)];
        for (offsets, mix, most) in cases {
            let (row_ptr, col) = mesh(n, offsets, |i| if mix { mixed(i) } else { i });
            let pattern = Pattern { row_ptr: &row_ptr, col: &col, columns: n * n * n };
            let t = Tiling::new(pattern, 240, true, n * n * n);
            let word = |at: usize| u32::from_le_bytes(t.records[at..at + 4].try_into().unwrap()) as usize;
            let nodes: usize = (0..t.count()).map(|k| word(t.starts[k] as usize * 16 + 8)).sum();
            let mean = nodes as f64 / (n * n * n) as f64;
            assert!(mean < most, "{} neighbours, mixed {mix}: {mean}", 2 * offsets.len());
            assert!(t.positions * 100 < col.len() * 108, "tiles are full");
        }
    }
}
