//! Tiles of block rows for the fused product: which rows a group of threads takes together, and their indices.
//!
//! A tile is a set of whole rows with at most `tile` blocks. Its distinct block columns are listed once and its
//! blocks name them by a byte (or two), so x is fetched once a tile however many blocks use it. Rows that share
//! columns are put together greedily (`cluster`), which halves the traffic of x on meshes. A row that is longer
//! than a tile is cut into parts, whose sums a second kernel adds in order. The result does not depend on threads.
//!
//! Where columns from some number on are ghosts (nodes of other ranks), no tile mixes rows with and without ghosts:
//! first come all tiles that can be multiplied before the ghosts have arrived.

use rayon::prelude::*;

/// Rows are clustered within segments of this many, independently and in parallel.
const SEGMENT: usize = 65_536;
/// Bytes of a record's header: position, blocks, nodes, rows.
const HEADER: usize = 16;

/// The tiles of a pattern, as `kernels/kron_product.cu` reads them.
pub(super) struct Tiling {
    /// Where each record starts, in units of 16 bytes; one more at the end.
    pub(super) starts: Vec<u32>,
    /// Records: header, columns, rows, ends, local column of each block.
    pub(super) records: Vec<u8>,
    /// Row, first part and end part of each row that is longer than a tile.
    pub(super) long_rows: Vec<i32>,
    /// First block of each part.
    pub(super) part_starts: Vec<i64>,
    /// Blocks of storage, padding included.
    pub(super) positions: usize,
    /// Most distinct columns of a tile.
    pub(super) nodes: usize,
    /// Longest record, in bytes.
    pub(super) record: usize,
    /// The first tile with ghost columns; all after it have some too.
    pub(super) first_boundary: usize,
}

/// A block pattern.
#[derive(Clone, Copy)]
pub(super) struct Pattern<'a> {
    pub(super) row_ptr: &'a [usize],
    pub(super) col: &'a [u32],
    pub(super) columns: usize,
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

/// Rows that go together; `part` is the first block where the tile is a part of one long row.
struct Tile {
    rows: Vec<u32>,
    part: Option<usize>,
}

impl Tiling {
    /// Tiles of at most `tile` blocks; `cluster` puts rows together that share columns. Columns from `own` on are
    /// ghosts.
    pub(super) fn new(pattern: Pattern, tile: usize, cluster: bool, own: usize) -> Self {
        let rows = pattern.rows();
        let boundary = |i: usize| own < pattern.columns && pattern.row(i).iter().any(|&c| c as usize >= own);
        let (interior, ghosts): (Vec<_>, Vec<_>) = (0..rows.div_ceil(SEGMENT))
            .into_par_iter()
            .map_init(
                || Builder::new(pattern, tile, cluster),
                |builder, s| {
                    let (low, high) = (s * SEGMENT, ((s + 1) * SEGMENT).min(rows));
                    let boundary: Vec<bool> = (low..high).map(boundary).collect();
                    let interior = builder.segment(low, high, boundary.clone());
                    (interior, builder.segment(low, high, boundary.iter().map(|b| !b).collect()))
                },
            )
            .unzip();
        let mut tiles: Vec<Tile> = interior.into_iter().flatten().collect();
        let first_boundary = tiles.len();
        tiles.extend(ghosts.into_iter().flatten());

        let mut out = Self {
            starts: vec![0],
            records: Vec::new(),
            long_rows: Vec::new(),
            part_starts: Vec::new(),
            positions: 0,
            nodes: 1,
            record: HEADER,
            first_boundary,
        };
        // Parts are numbered in order; a long row's consecutive tiles form one entry.
        let numbers: Vec<i32> = tiles
            .iter()
            .map(|t| {
                let Some(first) = t.part else { return 0 };
                let (row, part) = (t.rows[0] as i32, out.part_starts.len() as i32);
                match out.long_rows.last_chunk_mut::<3>() {
                    Some([last, _, end]) if *last == row => *end = part + 1,
                    _ => out.long_rows.extend([row, part, part + 1]),
                }
                out.part_starts.push(first as i64);
                part
            })
            .collect();
        let records: Vec<(Vec<u8>, usize, usize)> =
            tiles.par_iter().zip(&numbers).map(|(t, &part)| record(pattern, t, part, tile)).collect();
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
    pub(super) fn count(&self) -> usize {
        self.starts.len() - 1
    }
}

/// The record of a tile, with blocks and distinct columns counted; the position is filled in later.
fn record(pattern: Pattern, t: &Tile, part: i32, tile: usize) -> (Vec<u8>, usize, usize) {
    let row = t.rows[0] as usize;
    let blocks: Vec<u32> = match t.part {
        Some(first) => pattern.col[first..(first + tile).min(pattern.row_ptr[row + 1])].to_vec(),
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
        Some(_) => out.extend((!part).to_le_bytes()),
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

/// Scratch of one thread.
struct Builder<'a> {
    pattern: Pattern<'a>,
    tile: usize,
    cluster: bool,
    /// Most distinct columns, which bounds the shared memory of a tile.
    most_nodes: usize,
    /// Tile that last listed a column.
    seen: Vec<u32>,
    /// Tile that last counted a row's gain, and that gain: its columns that the tile already has.
    touched: Vec<u32>,
    gain: Vec<u32>,
    number: u32,
}

impl<'a> Builder<'a> {
    fn new(pattern: Pattern<'a>, tile: usize, cluster: bool) -> Self {
        let share = match tile {
            0..=32 => 0.8,
            33..=64 => 0.62,
            65..=128 => 0.5,
            129..=256 => 0.42,
            _ => 0.36,
        };
        let most_nodes = if cluster { ((tile as f64 * share) as usize).max(16) } else { tile };
        let (seen, touched, gain) = (vec![0; pattern.columns], vec![0; SEGMENT], vec![0; SEGMENT]);
        Self { pattern, tile, cluster, most_nodes, seen, touched, gain, number: 0 }
    }

    /// Tiles of the rows `low..high` that are not `used`, each begun with the lowest row that is still free.
    fn segment(&mut self, low: usize, high: usize, mut used: Vec<bool>) -> Vec<Tile> {
        let (p, tile) = (self.pattern, self.tile);
        let mut tiles = Vec::new();
        let mut candidates: Vec<usize> = Vec::new();
        for next in low..high {
            if used[next - low] {
                continue;
            }
            if p.len(next) > tile {
                used[next - low] = true;
                let parts = (p.row_ptr[next]..p.row_ptr[next + 1]).step_by(tile);
                tiles.extend(parts.map(|first| Tile { rows: vec![next as u32], part: Some(first) }));
                continue;
            }
            self.number += 1;
            candidates.clear();
            let (mut rows, mut blocks, mut nodes) = (Vec::new(), 0, 0);
            let (mut scan, mut chosen) = (next, Some(next));
            while let Some(i) = chosen {
                used[i - low] = true;
                rows.push(i as u32);
                blocks += p.len(i);
                nodes += self.list(i, low, high, &used, &mut candidates);
                chosen = None;
                if rows.len() == tile {
                    break;
                }
                // The free neighbour that brings the fewest new columns, the lowest of equals.
                let mut least = usize::MAX;
                candidates.retain(|&c| !used[c - low]);
                for &c in &candidates {
                    let new = p.len(c).saturating_sub(self.gain[c - low] as usize);
                    let fits = blocks + p.len(c) <= tile && nodes + new <= self.most_nodes;
                    if fits && (new < least || (new == least && Some(c) < chosen)) {
                        (least, chosen) = (new, Some(c));
                    }
                }
                if chosen.is_none() {
                    while scan < high && used[scan - low] {
                        scan += 1;
                    }
                    if scan < high && p.len(scan) <= tile && blocks + p.len(scan) <= tile {
                        let known =
                            if self.touched[scan - low] == self.number { self.gain[scan - low] } else { 0 };
                        let new = p.len(scan).saturating_sub(known as usize);
                        chosen = (nodes + new <= self.most_nodes).then_some(scan);
                    }
                }
            }
            rows.sort_unstable();
            tiles.push(Tile { rows, part: None });
        }
        // Numbers only grow; the rows of the next segment start afresh.
        self.touched.fill(0);
        tiles
    }

    /// Lists the columns of row `i`; where they are new, the rows that use them gain. Returns how many were new.
    fn list(
        &mut self,
        i: usize,
        low: usize,
        high: usize,
        used: &[bool],
        candidates: &mut Vec<usize>,
    ) -> usize {
        let (p, mut new) = (self.pattern, 0);
        for &c in p.row(i) {
            let c = c as usize;
            if std::mem::replace(&mut self.seen[c], self.number) == self.number {
                continue;
            }
            new += 1;
            // The rows that use a column are its row's columns where the pattern is symmetric; else only a guess.
            if !self.cluster || c < low || c >= high || p.len(c) > self.tile {
                continue;
            }
            for &row in p.row(c) {
                let row = row as usize;
                if row < low || row >= high || used[row - low] {
                    continue;
                }
                if std::mem::replace(&mut self.touched[row - low], self.number) != self.number {
                    self.gain[row - low] = 0;
                    candidates.push(row);
                }
                self.gain[row - low] += 1;
            }
        }
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reads the records back and checks that every block of every row is there once, in order, and ghosts come last.
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

    /// The row that a part belongs to.
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
}
