//! Block-Jacobi with tiles on the CPU: one thread computes and applies a tile, in the order of rows.
//!
//! The factors are q = 1/d̃, where d̃ is the diagonal after elimination, and h, the two triangles of the
//! matrix with inverted signs. All are stored in the order of rows. The forward solve is w_i = q_i (x_i + Σ
//! h_ij w_j) and the backward solve y_i = w_i + q_i Σ h_ji y_j, where w is stored in y. The contributions of
//! earlier lines to a line are computed for whole vectors. The rest is a chain of one multiplication and
//! addition per cell. Four lines run at once, each one chunk behind the line before, so that four chains hide
//! each other's latency.
//!
//! Memory traffic of one application in f64: forward 48 bytes per cell, backward 40. If a slab fits the
//! cache, the backward solve reads from the cache.

use super::elimination::Stored;
use super::{Cpu, CpuScalars, Wide, basis};
use crate::operator::{Dots, LinearOperator, TermValues, Terms, check_lengths, fresh_key};
use crate::precond::{
    DIFFERS, PivotKind, TINY_PIVOT, TileFactor, TileFactors, TileReport, TileShape, Tiling,
};
use crate::space::{HALT, Precision};
use crate::threads::{Disjoint, share};
use crate::{Error, Result};
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Mutex;

/// Cells of a line that are processed at once.
const CHUNK: usize = 32;
/// Lines that run at once.
const LINES: usize = 4;
/// Cells and planes of a slab.
const SLAB: (usize, usize) = (1 << 16, 8);

/// Factors in host memory.
#[doc(hidden)]
pub struct CpuTiles {
    tiling: Tiling,
    factor: TileFactor,
    factors: Factors,
    /// Sums of each tile.
    partials: RefCell<Vec<[f64; 2]>>,
    /// New values that came from a GPU.
    scratch: [Vec<f64>; 2],
    key: u64,
}

enum Factors {
    F64(Halves<f64>),
    F32(Halves<f32>),
}

/// q, and h for the lower neighbours in x, y and z; also for the upper neighbours, stored with the upper
/// cell, where they differ.
struct Halves<T> {
    inverse: Vec<T>,
    lower: [Vec<T>; 3],
    upper: Option<[Vec<T>; 3]>,
}

/// One tile of a box.
struct Tile {
    /// First cell and number of cells, in x, y and z.
    from: [usize; 3],
    cells: [usize; 3],
    /// Row distance between neighbouring cells in x, y and z.
    strides: [usize; 3],
}

impl Tile {
    fn new(tiling: &Tiling, number: usize) -> Self {
        let [nx, ny, _] = tiling.cells;
        let [across, deep, _] = tiling.counts();
        let at = [number % across, number / across % deep, number / across / deep];
        let from: [usize; 3] = std::array::from_fn(|k| at[k] * tiling.tile[k]);
        let cells = std::array::from_fn(|k| tiling.tile[k].min(tiling.cells[k] - from[k]));
        Self { from, cells, strides: [1, nx, nx * ny] }
    }

    /// Returns the row of a line's first cell.
    fn line(&self, y: usize, z: usize) -> usize {
        self.from[0] + (self.from[1] + y) * self.strides[1] + (self.from[2] + z) * self.strides[2]
    }
}

impl TileFactors for Cpu {
    type Tiles = CpuTiles;

    fn tile(&self, shape: TileShape, cells: [usize; 3], _: TileFactor, _: Precision) -> Result<[usize; 3]> {
        let whole = cells.map(|n| n.max(1));
        let [nx, ny, _] = whole;
        Ok(match shape {
            TileShape::Whole => whole,
            TileShape::Auto | TileShape::Slab => [nx, ny, (SLAB.0 / (nx * ny)).max(SLAB.1)],
            TileShape::Box(tile) => tile,
        })
    }

    fn prepare_tiles(
        &self,
        _: &Terms,
        tiling: &Tiling,
        factor: TileFactor,
        precision: Precision,
    ) -> Result<CpuTiles> {
        let n = tiling.len();
        let factors = match precision {
            Precision::F64 => Factors::F64(Halves::allocate(n, factor)?),
            Precision::F32 => Factors::F32(Halves::allocate(n, factor)?),
        };
        let partials = vec![[0.0; 2]; tiling.counts().iter().product()];
        let (partials, scratch) = (RefCell::new(partials), Default::default());
        Ok(CpuTiles { tiling: *tiling, factor, factors, partials, scratch, key: fresh_key() })
    }

    fn factorize_tiles(
        &self,
        tiles: &mut CpuTiles,
        terms: &Terms,
        values: &TermValues,
    ) -> Result<TileReport> {
        let CpuTiles { tiling, factor, factors, scratch, .. } = tiles;
        let host = values.on_host(scratch)?;
        let Some((c, values)) = host[0] else { return Ok(TileReport::default()) };
        let a = &terms.terms[0].1;
        let matrix = Matrix { row_ptr: a.row_ptr(), col: a.col(), values, coefficient: c[(0, 0)] };
        Ok(match factors {
            Factors::F64(halves) => factorize(self, tiling, *factor, &matrix, halves),
            Factors::F32(halves) => factorize(self, tiling, *factor, &matrix, halves),
        })
    }
}

impl CpuTiles {
    /// Computes `y ← M⁻¹ x` or, if `transposed`, `y ← M⁻ᵀ x`, and the requested sums over x and y.
    fn solve(
        &self,
        space: &Cpu,
        transposed: bool,
        x: &[f64],
        y: &mut [f64],
        sums: Option<(&mut CpuScalars, Dots)>,
    ) -> Result<()> {
        let n = self.tiling.len();
        check_lengths(n, n, x.len(), y.len())?;
        if let Some((scalars, _)) = &sums
            && space.guarded.get()
            && scalars.flags[HALT] != 0
        {
            return Ok(());
        }
        let mut partials = self.partials.borrow_mut();
        let count = partials.len();
        let pieces = space.pool().pieces(self.bytes() as usize).min(count);
        {
            let (y, out) = (Disjoint::new(y), Disjoint::new(&mut partials));
            let (with_sums, tiling, factors) = (sums.is_some(), &self.tiling, &self.factors);
            space.pool().run(pieces, |piece| {
                pulp::Arch::new().dispatch(Wide(
                    #[inline(always)]
                    || {
                        for number in share(count, piece, pieces) {
                            let tile = Tile::new(tiling, number);
                            let found = match factors {
                                Factors::F64(halves) => solve(&tile, halves, transposed, x, &y, with_sums),
                                Factors::F32(halves) => solve(&tile, halves, transposed, x, &y, with_sums),
                            };
                            // SAFETY: each tile has its own sums.
                            unsafe { out.range(number..number + 1)[0] = found };
                        }
                    },
                ));
            });
        }
        let Some((scalars, dots)) = sums else { return Ok(()) };
        let mut all = [0.0; 2];
        for sums in partials.iter() {
            all[0] += sums[0];
            all[1] += sums[1];
        }
        let (slot, all) = match dots {
            Dots::Xy(slot) => (slot, &mut all[1..]),
            Dots::XxXy(slot) => (slot, &mut all[..]),
        };
        space.total(all)?;
        scalars.values[slot..slot + all.len()].copy_from_slice(all);
        Ok(())
    }
}

impl LinearOperator<Cpu> for CpuTiles {
    fn apply(&self, space: &Cpu, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        self.solve(space, false, x, y, None)
    }
    fn apply_with_dots(
        &self,
        space: &Cpu,
        x: &Vec<f64>,
        y: &mut Vec<f64>,
        scalars: &mut CpuScalars,
        dots: Dots,
    ) -> Result<bool> {
        self.solve(space, false, x, y, Some((scalars, dots))).map(|()| true)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &Cpu, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        self.solve(space, true, x, y, None)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        let numbers = if self.factor == TileFactor::Ic0 { 4 } else { 7 };
        let bytes = match self.factors {
            Factors::F64(_) => 8,
            Factors::F32(_) => 4,
        };
        (self.tiling.len() * (numbers * bytes + 16)) as u64
    }
}

impl<T: Stored> Halves<T> {
    fn allocate(n: usize, factor: TileFactor) -> Result<Self> {
        let one = || crate::threads::zeros::<T>(n, "block-Jacobi factors");
        let three = || Ok::<_, Error>([one()?, one()?, one()?]);
        let upper = if factor == TileFactor::Ilu0 { Some(three()?) } else { None };
        Ok(Self { inverse: one()?, lower: three()?, upper })
    }
}

/// Own rows of a scalar matrix.
struct Matrix<'a> {
    row_ptr: &'a [usize],
    col: &'a [u32],
    values: &'a [f64],
    coefficient: f64,
}

/// Factorises all tiles, each on one thread.
fn factorize<T: Stored>(
    space: &Cpu,
    tiling: &Tiling,
    factor: TileFactor,
    matrix: &Matrix,
    to: &mut Halves<T>,
) -> TileReport {
    let (pool, found) = (space.pool(), Mutex::new(TileReport::default()));
    let count: usize = tiling.counts().iter().product();
    let pieces = pool.pieces(size_of_val(matrix.values)).min(count);
    let inverse = Disjoint::new(&mut to.inverse);
    let lower = to.lower.each_mut().map(|v| Disjoint::new(v));
    let upper = to.upper.as_mut().map(|upper| upper.each_mut().map(|v| Disjoint::new(v)));
    pool.run(pieces, |piece| {
        let (mut report, mut planes) = (TileReport::default(), Planes::default());
        for number in share(count, piece, pieces) {
            let tile = Tile::new(tiling, number);
            let one = factorize_tile(&tile, tiling, factor, matrix, &mut planes, |row, q, own, other| {
                let at = row..row + 1;
                // SAFETY: each row belongs to one tile, and each tile to one thread.
                unsafe {
                    inverse.range(at.clone())[0] = T::narrow(q);
                    for k in 0..3 {
                        lower[k].range(at.clone())[0] = T::narrow(own[k]);
                        if let Some(upper) = &upper {
                            upper[k].range(at.clone())[0] = T::narrow(other[k]);
                        }
                    }
                }
            });
            report = report.with(one);
        }
        let mut all = found.lock().unwrap_or_else(|e| e.into_inner());
        *all = all.with(report);
    });
    found.into_inner().unwrap_or_else(|e| e.into_inner())
}

/// Results of earlier cells of a tile that later cells need, each for one plane: 1/d̃, and the entries for
/// the upper neighbours in y and z.
#[derive(Default)]
struct Planes {
    inverse: Vec<f64>,
    next_y: Vec<f64>,
    next_z: Vec<f64>,
}

/// Computes d̃ by its recurrence, in the order of rows; `store` gets each row with 1/d̃ and both halves with
/// inverted signs.
fn factorize_tile(
    tile: &Tile,
    tiling: &Tiling,
    factor: TileFactor,
    a: &Matrix,
    planes: &mut Planes,
    mut store: impl FnMut(usize, f64, [f64; 3], [f64; 3]),
) -> TileReport {
    let ([cx, cy, cz], n) = (tile.cells, tiling.len());
    let mut report = TileReport::default();
    for plane in [&mut planes.inverse, &mut planes.next_y, &mut planes.next_z] {
        plane.clear();
        plane.resize(cx * cy, 0.0);
    }
    for (z, y) in (0..cz).flat_map(|z| (0..cy).map(move |y| (z, y))) {
        let first = tile.line(y, z);
        let (mut inverse, mut next_x) = (0.0, 0.0);
        for x in 0..cx {
            let (row, at) = (first + x, [x, y, z]);
            let in_plane = y * cx + x;
            let (mut d, mut largest, mut off) = (0.0, 0.0f64, false);
            let (mut own, mut next) = ([0.0; 3], [0.0; 3]);
            for p in a.row_ptr[row]..a.row_ptr[row + 1] {
                let j = a.col[p] as usize;
                if j >= n {
                    continue; // belongs to another rank
                }
                let v = a.coefficient * a.values[p];
                if j == row {
                    (d, largest) = (v, largest.max(v.abs()));
                    continue;
                }
                let there = |k: &usize| {
                    let cell = tile.from[*k] + at[*k];
                    let (stride, cells) = (tile.strides[*k], tiling.cells[*k]);
                    (cell > 0 && j + stride == row) || (cell + 1 < cells && j == row + stride)
                };
                let Some(k) = (0..3).find(there) else {
                    off = true;
                    continue;
                };
                if j < row && at[k] > 0 {
                    (own[k], largest) = (v, largest.max(v.abs()));
                }
                if j > row && at[k] + 1 < tile.cells[k] {
                    (next[k], largest) = (v, largest.max(v.abs()));
                }
            }
            let other = [
                if x > 0 { next_x } else { 0.0 },
                if y > 0 { planes.next_y[in_plane - cx] } else { 0.0 },
                if z > 0 { planes.next_z[in_plane] } else { 0.0 },
            ];
            if z > 0 {
                d -= own[2] * other[2] * planes.inverse[in_plane];
            }
            if y > 0 {
                d -= own[1] * other[1] * planes.inverse[in_plane - cx];
            }
            if x > 0 {
                d -= own[0] * other[0] * inverse;
            }
            let differ = |k: usize| (own[k] - other[k]).abs() > DIFFERS * (own[k].abs() + other[k].abs());
            let mut one = TileReport { off_stencil: off.then_some(row), ..TileReport::default() };
            if factor == TileFactor::Ic0 && (0..3).any(differ) {
                one.unsymmetric = Some(row);
            }
            let size = if factor == TileFactor::Ic0 { d } else { d.abs() };
            let usable = size > 0.0 && size >= TINY_PIVOT * largest;
            if !(usable && d.is_finite() && (1.0 / d).is_finite()) {
                let finite = d.is_finite() && largest.is_finite();
                if finite && largest > 0.0 && (1.0 / largest).is_finite() {
                    (d, one.shifted) = (largest, 1);
                } else {
                    let zero = finite && !(largest > 0.0);
                    let kind = if zero { PivotKind::Zero } else { PivotKind::NotFinite };
                    (d, one.bad) = (1.0, Some((row, kind)));
                }
            }
            if one != TileReport::default() {
                report = report.with(one);
            }
            inverse = 1.0 / d;
            (planes.inverse[in_plane], next_x) = (inverse, next[0]);
            (planes.next_y[in_plane], planes.next_z[in_plane]) = (next[1], next[2]);
            store(row, inverse, own.map(|v| -v), other.map(|v| -v));
        }
    }
    report
}

/// Lines that run at once, each one chunk behind the line before. The result of a cell is `add` plus `times`
/// times the result of the cell before it.
struct Chains {
    add: [[f64; CHUNK]; LINES],
    times: [[f64; CHUNK]; LINES],
    carry: [f64; LINES],
}

impl Chains {
    /// Solves v ← add + times · v along every chunk, up or down.
    #[inline(always)]
    fn run(&mut self, up: bool) {
        let mut carry = self.carry;
        for k in 0..CHUNK {
            let k = if up { k } else { CHUNK - 1 - k };
            for j in 0..LINES {
                carry[j] = self.times[j][k].mul_add(carry[j], self.add[j][k]);
                self.add[j][k] = carry[j];
            }
        }
        self.carry = carry;
    }
}

/// Solves one tile, from x to y. If `transposed`, the triangles change places. Returns the sums (x, x) and
/// (x, y), or zeros where they are not needed.
#[inline(always)]
fn solve<T: Stored>(
    tile: &Tile,
    f: &Halves<T>,
    transposed: bool,
    x: &[f64],
    y: &Disjoint<f64>,
    sums: bool,
) -> [f64; 2] {
    let other = f.upper.as_ref().unwrap_or(&f.lower);
    let [lower, upper] = if transposed { [other, &f.lower] } else { [&f.lower, other] };
    let [cx, cy, cz] = tile.cells;
    let (chunks, mut found) = (cx.div_ceil(CHUNK), [0.0; 2]);
    let zero = || [[0.0; CHUNK]; LINES];
    let mut chains = Chains { add: zero(), times: zero(), carry: [0.0; LINES] };
    // The numbers of y, of which other threads write other ranges.
    // SAFETY: rows of this tile belong to this thread, and no two ranges that are held at once overlap.
    let rows = |range: Range<usize>| unsafe { y.range(range) };
    for z in 0..cz {
        for y0 in (0..cy).step_by(LINES) {
            let lines = LINES.min(cy - y0);
            for m in 0..chunks + lines - 1 {
                let under_way = m.saturating_sub(chunks - 1)..lines.min(m + 1);
                for j in under_way.clone() {
                    let (chunk, line) = (m - j, y0 + j);
                    let at = tile.line(line, z) + chunk * CHUNK;
                    let len = CHUNK.min(cx - chunk * CHUNK);
                    let all = at..at + len;
                    let (add, times) = (&mut chains.add[j][..len], &mut chains.times[j][..len]);
                    add.copy_from_slice(&x[all.clone()]);
                    if sums {
                        found[0] += basis::dot(add, add);
                    }
                    for (k, has) in [(1, line > 0), (2, z > 0)] {
                        if has {
                            let below = rows(at - tile.strides[k]..at - tile.strides[k] + len);
                            multiply_add(add, &lower[k][all.clone()], below);
                        }
                    }
                    let (q, h) = (&f.inverse[all.clone()], &lower[0][all]);
                    for k in 0..len {
                        let q = q[k].widen();
                        add[k] *= q;
                        times[k] = q * h[k].widen();
                    }
                    if chunk == 0 {
                        chains.carry[j] = 0.0;
                    }
                }
                chains.run(true);
                for j in under_way {
                    let at = tile.line(y0 + j, z) + (m - j) * CHUNK;
                    let len = CHUNK.min(cx - (m - j) * CHUNK);
                    rows(at..at + len).copy_from_slice(&chains.add[j][..len]);
                }
            }
        }
    }
    for z in (0..cz).rev() {
        for y0 in (0..cy).step_by(LINES) {
            let lines = LINES.min(cy - y0);
            for m in 0..chunks + lines - 1 {
                let under_way = m.saturating_sub(chunks - 1)..lines.min(m + 1);
                for j in under_way.clone() {
                    let (chunk, line) = (m - j, cy - 1 - y0 - j);
                    // Chunks from the end; the last one may be short and is stored at the end of its space.
                    let end = cx - chunk * CHUNK;
                    let len = CHUNK.min(end);
                    let at = tile.line(line, z) + end - len;
                    let all = at..at + len;
                    let add = &mut chains.add[j][CHUNK - len..];
                    let times = &mut chains.times[j][CHUNK - len..];
                    add.fill(0.0);
                    for (k, has) in [(1, line + 1 < cy), (2, z + 1 < cz)] {
                        if has {
                            let above = at + tile.strides[k]..at + tile.strides[k] + len;
                            multiply_add(add, &upper[k][above.clone()], rows(above));
                        }
                    }
                    let (q, w) = (&f.inverse[all.clone()], rows(all));
                    // The cell after the last one of the line belongs to another tile.
                    let after = if chunk == 0 { len - 1 } else { len };
                    let h = &upper[0][at + 1..at + 1 + after];
                    for k in 0..len {
                        add[k] = q[k].widen().mul_add(add[k], w[k]);
                    }
                    for k in 0..after {
                        times[k] = q[k].widen() * h[k].widen();
                    }
                    if chunk == 0 {
                        times[len - 1] = 0.0;
                        chains.carry[j] = 0.0;
                    }
                }
                chains.run(false);
                for j in under_way {
                    let end = cx - (m - j) * CHUNK;
                    let len = CHUNK.min(end);
                    let at = tile.line(cy - 1 - y0 - j, z) + end - len;
                    let solved = &chains.add[j][CHUNK - len..];
                    rows(at..at + len).copy_from_slice(solved);
                    if sums {
                        found[1] += basis::dot(&x[at..at + len], solved);
                    }
                }
            }
        }
    }
    found
}

/// Computes `to += h · v`.
#[inline(always)]
fn multiply_add<T: Stored>(to: &mut [f64], h: &[T], v: &[f64]) {
    for ((to, h), v) in to.iter_mut().zip(h).zip(v) {
        *to = h.widen().mul_add(*v, *to);
    }
}
