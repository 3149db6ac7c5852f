//! Solves with the factors of Schwarz's subdomains on a GPU: launches of `kernels/schwarz_solve.cu`.

mod cost;

use super::super::Cuda;
use super::super::compiler::{Defines, Kernel};
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, Function, Of, Reals, Set, kernels};
use super::super::multilevel::transposed_positions;
use super::super::resident::Resident;
use super::super::specialisations::{define, value, vectors};
use super::factor::Factorizer;
use super::order::{self, Order, Orders};
use crate::Result;
use crate::comm::time_limit;
use crate::operator::not_prepared;
use crate::precond::range::{RANGE, middle};
use crate::precond::{SchwarzPlan, TriangularSolve};
use crate::space::Precision;
use std::sync::Arc;

kernels! {
    SCHWARZ_SOLVE in "schwarz_solve.cu", all_kernels;
    fn schwarz_exact
        | "schwarz_exact_rows" | "schwarz_random" | "schwarz_ordered" | "schwarz_jacobi" (s: Sweep);
    fn schwarz_split(
        rows: i32, row_ptr: At<i64>, column: At<u32>, diagonal: At<i64>, lower_begin: At<i64>,
        upper_begin: At<i64>, lower: At<u32>, upper: At<u32>,
    );
    fn schwarz_pack(
        rows: i32, row_ptr: At<i64>, diagonal: At<i64>, lower_begin: At<i64>, upper_begin: At<i64>,
        factors: At<f64>, inverses: At<f64>, lower: Reals, inverse: Reals, upper: Reals, shift: i32,
        most: i32, faulty: At<u32>,
    );
    fn schwarz_range(rows: i32, inverses: At<f64>, range: At<u32>);
    fn schwarz_near(rows: i32, begin: At<i64>, column: At<u32>, near: At<u16>);
    fn schwarz_turn(blocks: i64, places: At<f64>, from: Reals, to: Reals);
    fn schwarz_reverse(count: i64, last: u32, from: At<u32>, to: At<u32>);
    fn schwarz_reverse_begins(count: i64, last: i64, from: At<i64>, to: At<i64>);
}

const WHAT: &str = "factors of subdomains with overlap";
/// Warps per thread block.
const WARPS: usize = 4;
/// Rows per warp in exact solves with runs; `32 / LANES` of `schwarz_exact`.
pub(super) const EXACT_ROWS: usize = 4;
/// Exponent of 1 in the bits of a number.
const BIAS: i32 = 1023;
/// Marks a row that writes no result, because another subdomain owns its node.
const NONE: u32 = u32::MAX;

/// One of the two triangles; the upper one is stored from the end.
struct Triangle {
    /// Beginnings of rows, and columns; without values.
    pattern: Resident,
    /// Columns as distances of 16 bits, if solves read these.
    near: Option<Buffer<u16>>,
    values: Buffer<u8>,
    order: Buffer<u32>,
    /// Rows per item of `order`: `EXACT_ROWS`, or one.
    per: usize,
    /// Rows before the first one that the first item has.
    skipped: usize,
    /// Number of levels of `order`.
    depth: usize,
    /// Shared memory of a thread block that substitutes.
    shared: usize,
}

/// Both triangles, and the inverse of the diagonal after the first one.
struct Triangles {
    lower: Triangle,
    upper: Triangle,
    inverse: Buffer<u8>,
}

/// Vectors of a solve with one of the triangles: right-hand side and result; and the runs of sweeps.
struct Side {
    runs: Buffer<u32>,
    w: Buffer<u8>,
    v: Buffer<u8>,
}

/// The triangles of the transpose.
struct Transposed {
    triangles: Triangles,
    /// For each block of the lower and of the upper triangle, from the last one on, its place in the other
    /// triangle of M.
    places: [Arc<Buffer<f64>>; 2],
    turn: Function<schwarz_turn>,
}

/// Both triangles, and the data of a solve.
pub(super) struct Solves {
    forward: Triangles,
    transposed: Option<Transposed>,
    /// For the lower and the upper triangle.
    sides: [Side; 2],
    pub target: Buffer<u32>,
    pub tickets: Buffer<u32>,
    faulty: Buffer<u32>,
    kind: Kind,
    /// Mirrors `struct Scale` in `kernels/schwarz.cuh`.
    scale: Buffer<u64>,
    /// The exponent of the power of two that divides D⁻¹.
    shift: i32,
    range: Function<schwarz_range>,
    most: usize,
    limit: u64,
    functions: Functions,
}

struct Functions {
    pack: Function<schwarz_pack>,
    exact: Function<schwarz_exact>,
    exact_rows: Function<schwarz_exact>,
    random: Function<schwarz_exact>,
    ordered: Function<schwarz_exact>,
    jacobi: Function<schwarz_exact>,
}

impl Functions {
    /// Returns the exact solve with a triangle.
    fn substitution(&self, triangle: &Triangle) -> &Function<schwarz_exact> {
        if triangle.per == 1 { &self.exact_rows } else { &self.exact }
    }
}

/// Mirrors `struct Sweep` in `kernels/schwarz_solve.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::device::cuda) struct Sweep {
    halt: u64,
    rows: i32,
    most: i32,
    count: i32,
    sweeps: i32,
    last: i32,
    skipped: i32,
    runs: u64,
    begin: u64,
    column: u64,
    values: u64,
    w: u64,
    from: u64,
    v: u64,
    ticket: u64,
    limit: u64,
    inverse: u64,
    next_w: u64,
    next_v: u64,
    target: u64,
    out: u64,
    scale: u64,
}

/// Numbers of 8 bytes in `struct Scale`.
const SCALE: usize = 3;

/// Constants of `schwarz_solve.cu`.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    /// Order of a block.
    pub block: usize,
    /// Precisions of stored factors, and of vectors over the rows.
    pub precisions: [Precision; 2],
    /// True if solves read columns as distances of 16 bits.
    pub near: bool,
}

impl Kind {
    fn defines(self) -> Defines {
        let [stored, compute] = self.precisions;
        let near = define("NEAR", u32::from(self.near));
        let plain = [define("ORDER", self.block), value(stored), define("WARPS", WARPS), near];
        plain.into_iter().chain(vectors(compute)).collect()
    }

    /// Returns a kernel.
    pub fn of<K: Entry>(self, entry: K) -> Of<K> {
        entry.with(self.defines())
    }

    /// Returns the bytes of a stored block.
    fn size(self) -> usize {
        self.block * self.block * self.precisions[0].bytes()
    }
}

/// Precisions of stored factors and of vectors.
const PRECISIONS: [[Precision; 2]; 3] =
    [[Precision::F64, Precision::F64], [Precision::F32, Precision::F64], [Precision::F32, Precision::F32]];

fn all_kernels(set: Set) -> Vec<Kernel> {
    let each = |precisions: [Precision; 2]| {
        let distances = set.choose([true, false], [true]);
        let of = move |near| {
            super::blocks(set).map(move |block| Kind { block, precisions, near }.of(schwarz_exact).into())
        };
        distances.into_iter().flat_map(of)
    };
    set.choose(PRECISIONS.to_vec(), [PRECISIONS[0]]).into_iter().flat_map(each).collect()
}

/// Returns where each row begins, and the end of the last one, from the lengths of the rows in order.
fn begins(lengths: impl Iterator<Item = i64>) -> Vec<i64> {
    let mut sum = 0;
    let add = |length| {
        sum += length;
        sum
    };
    std::iter::once(0).chain(lengths.map(add)).collect()
}

impl Triangle {
    /// Allocates a triangle whose rows begin at `begin`, for blocks of `size` bytes.
    fn new(device: &Arc<Device>, begin: &[i64], size: usize, order: &Order) -> Result<Self> {
        let blocks = begin.last().map_or(0, |&end| end as usize);
        let column = device.allocate(blocks, WHAT)?;
        Ok(Self {
            pattern: Resident::new(device.upload(begin, WHAT)?, column, device.allocate(0, WHAT)?),
            near: None,
            values: device.allocate(blocks * size, WHAT)?,
            order: device.upload(&order.items, WHAT)?,
            per: order.per,
            skipped: 0,
            depth: order.depth,
            shared: order.shared(device, WARPS, 0),
        })
    }

    /// Lays out the transpose, counted from the other end, without values, and returns the place of each of
    /// its blocks from the last one on. The reverse order needs no analysis.
    fn turned(&self, device: &Arc<Device>, kind: Kind) -> Result<(Self, Arc<Buffer<f64>>)> {
        let Self { pattern, values, order, per, depth, shared, .. } = self;
        let (rows, blocks, items) = (pattern.row_ptr.len() - 1, pattern.col.len(), order.len());
        let turned = match blocks {
            0 => pattern.clone(),
            _ => transposed_positions(device, pattern, rows)?,
        };
        let (begin, column) = (device.allocate(rows + 1, WHAT)?, device.allocate(blocks, WHAT)?);
        let to_order = device.allocate::<u32>(items, WHAT)?;
        let reverse = device.function(&kind.of(schwarz_reverse))?;
        for (count, last, from, to) in
            [(blocks, rows, &*turned.col, &column), (items, items, order, &to_order)]
        {
            let last = last.wrapping_sub(1) as u32;
            reverse.on(device, grid(device, count), 32 * WARPS).run(count as i64, last, from, to)?;
        }
        let begins = device.function(&kind.of(schwarz_reverse_begins))?;
        begins.on(device, grid(device, rows + 1), 32 * WARPS).run(
            rows as i64 + 1,
            blocks as i64,
            &turned.row_ptr,
            &begin,
        )?;
        let mut made = Self {
            near: None,
            pattern: Resident::new(begin, column, device.allocate(0, WHAT)?),
            values: device.allocate(values.len(), WHAT)?,
            order: to_order,
            skipped: per * items - rows,
            per: *per,
            depth: *depth,
            shared: *shared,
        };
        made.measure_distances(device, kind)?;
        Ok((made, turned.values))
    }

    /// Computes the distances of 16 bits from the columns, if solves read these.
    fn measure_distances(&mut self, device: &Arc<Device>, kind: Kind) -> Result<()> {
        if kind.near {
            let (rows, near) =
                (self.pattern.row_ptr.len() - 1, device.allocate(self.pattern.col.len(), WHAT)?);
            let measure = device.function(&kind.of(schwarz_near))?;
            measure.on(device, grid(device, rows), 32 * WARPS).run(
                rows as i32,
                &self.pattern.row_ptr,
                &self.pattern.col,
                &near,
            )?;
            self.near = Some(near);
        }
        Ok(())
    }

    /// Returns the address of the columns that solves read, and the bytes of all.
    fn columns(&self) -> (u64, usize) {
        let blocks = self.pattern.col.len();
        match &self.near {
            Some(near) => (near.pointer(), 2 * blocks),
            None => (self.pattern.col.pointer(), 4 * blocks),
        }
    }
}

impl Solves {
    pub fn new(
        device: &Arc<Device>,
        plan: &SchwarzPlan,
        by: &Factorizer,
        orders: &Orders,
        precisions: [Precision; 2],
        per: usize,
    ) -> Result<Self> {
        let (b, rows, what) = (plan.block, plan.rows(), WHAT);
        let kind = Kind { block: b, precisions, near: plan.is_near() };
        let runs = order::runs(plan, per);
        let from_end: Vec<u32> = runs.iter().rev().map(|&i| rows as u32 - i).collect();
        let side = |runs: &[u32]| -> Result<Side> {
            let vector = || device.zeros(rows * b * precisions[1].bytes(), what);
            Ok(Side { runs: device.upload(runs, what)?, w: vector()?, v: vector()? })
        };
        let mut target = vec![NONE; rows];
        plan.result.iter().enumerate().for_each(|(node, &row)| target[rows - 1 - row as usize] = node as u32);
        let sweep = |name| device.function(&schwarz_exact.named(name, kind.defines()));
        let size = kind.size();
        let lower: Vec<i64> = begins((0..rows).map(|i| plan.diagonal[i] - plan.row_ptr[i]));
        let upper: Vec<i64> = begins((0..rows).rev().map(|i| plan.row_ptr[i + 1] - plan.diagonal[i] - 1));
        let forward = Triangles {
            lower: Triangle::new(device, &lower, size, &orders.lower)?,
            upper: Triangle::new(device, &upper, size, &orders.upper)?,
            inverse: device.allocate(rows * size, what)?,
        };
        let mut solves = Self {
            forward,
            transposed: None,
            sides: [side(&runs)?, side(&from_end)?],
            target: device.upload(&target, what)?,
            tickets: device.zeros(2, what)?,
            faulty: device.zeros(1, what)?,
            kind,
            scale: device.zeros(SCALE, what)?,
            shift: 0,
            range: device.function(&kind.of(schwarz_range))?,
            most: per,
            limit: time_limit()?.as_nanos() as u64,
            functions: Functions {
                pack: device.function(&kind.of(schwarz_pack))?,
                exact: sweep("schwarz_exact")?,
                exact_rows: sweep("schwarz_exact_rows")?,
                random: sweep("schwarz_random")?,
                ordered: sweep("schwarz_ordered")?,
                jacobi: sweep("schwarz_jacobi")?,
            },
        };
        for triangle in [&solves.forward.lower, &solves.forward.upper] {
            device.allow_shared(solves.functions.substitution(triangle), 32 * WARPS, triangle.shared)?;
        }
        if rows > 0 {
            let split = device.function(&kind.of(schwarz_split))?;
            let Triangles { lower, upper, .. } = &solves.forward;
            split.on(device, grid(device, rows), 32 * WARPS).run(
                rows as i32,
                &by.row_ptr,
                &by.column,
                &by.diagonal,
                &lower.pattern.row_ptr,
                &upper.pattern.row_ptr,
                &lower.pattern.col,
                &upper.pattern.col,
            )?;
            solves.forward.lower.measure_distances(device, kind)?;
            solves.forward.upper.measure_distances(device, kind)?;
        }
        Ok(solves)
    }

    /// Lays out the triangles of the transpose, and packs them.
    pub fn prepare_transpose(&mut self, device: &Arc<Device>) -> Result<()> {
        let kind = self.kind;
        let Triangles { lower, upper, inverse } = &self.forward;
        let ((first, of_upper), (second, of_lower)) =
            (upper.turned(device, kind)?, lower.turned(device, kind)?);
        let inverse = device.allocate(inverse.len(), WHAT)?;
        self.transposed = Some(Transposed {
            triangles: Triangles { lower: first, upper: second, inverse },
            places: [of_upper, of_lower],
            turn: device.function(&kind.of(schwarz_turn))?,
        });
        self.pack_transposed(device)
    }

    /// Returns the addresses of the right-hand side of the lower triangle, and of its result.
    pub fn begin(&self) -> [u64; 2] {
        let [lower, _] = &self.sides;
        [lower.w.pointer(), lower.v.pointer()]
    }

    /// Returns true if vectors over the rows are in f32.
    pub fn is_narrow(&self) -> bool {
        self.computed() == Precision::F32
    }

    /// Returns the precision of vectors over the rows.
    pub fn computed(&self) -> Precision {
        self.kind.precisions[1]
    }

    /// Returns the address of the scale of vectors in f32, and the exponent that results have besides.
    pub fn scale(&self) -> (u64, i32) {
        (self.scale.pointer(), self.shift)
    }

    /// Packs new factors. Returns false if the range of the numbers is too large for f32.
    pub fn pack(&mut self, device: &Arc<Device>, by: &Factorizer) -> Result<bool> {
        let rows = self.target.len();
        if self.is_narrow() {
            let (range, mut found) = (device.upload(&[0xffff_u32, 0], WHAT)?, [0; 2]);
            self.range.on(device, grid(device, rows), 32 * WARPS).run(rows as i32, &by.inverses, &range)?;
            device.read(&range, 0, &mut found)?;
            let [low, high] = found.map(|e| e as i32 - BIAS);
            let shift = if low > high { Some(0) } else { middle(low, high).filter(|_| high <= BIAS) };
            let Some(shift) = shift else { return Ok(false) };
            self.shift = shift;
        }
        let to = &self.forward;
        device.clear(&mut self.faulty)?;
        self.functions.pack.on(device, grid(device, rows), 32 * WARPS).run(
            rows as i32,
            &by.row_ptr,
            &by.diagonal,
            &to.lower.pattern.row_ptr,
            &to.upper.pattern.row_ptr,
            &by.factors,
            &by.inverses,
            to.lower.values.pointer(),
            to.inverse.pointer(),
            to.upper.values.pointer(),
            self.shift,
            if self.is_narrow() { RANGE } else { i32::MAX },
            &self.faulty,
        )?;
        if self.is_narrow() && self.faulty(device)? {
            return Ok(false);
        }
        self.pack_transposed(device)?;
        Ok(true)
    }

    /// Packs the transposes of new factors, where they are laid out.
    fn pack_transposed(&self, device: &Device) -> Result<()> {
        let Some(Transposed { triangles: to, places: [of_upper, of_lower], turn }) = &self.transposed else {
            return Ok(());
        };
        let from = &self.forward;
        let size = self.kind.size();
        for (places, from, to) in [
            (Some(&**of_upper), &from.upper.values, &to.lower.values),
            (Some(&**of_lower), &from.lower.values, &to.upper.values),
            (None, &from.inverse, &to.inverse),
        ] {
            let blocks = to.len() / size;
            turn.on(device, grid(device, blocks), 32 * WARPS).run(
                blocks as i64,
                places,
                from.pointer(),
                to.pointer(),
            )?;
        }
        Ok(())
    }

    /// True if a packed number is not finite, or its range is too large; waits.
    pub fn faulty(&self, device: &Device) -> Result<bool> {
        let mut faulty = [0];
        device.read(&self.faulty, 0, &mut faulty)?;
        Ok(faulty != [0])
    }

    /// Solves with both triangles: reads the lower triangle's w, and writes y on own nodes.
    pub fn solve(&self, space: &Cuda, how: TriangularSolve, deterministic: bool, y: u64) -> Result<()> {
        self.run_both(space, how, deterministic, &self.forward, [self.target.pointer(), y])
    }

    /// Solves with both triangles of the transpose: reads the lower triangle's w. Returns the address of the
    /// results, which are those of rows from the end.
    pub fn solve_transposed(&self, space: &Cuda, how: TriangularSolve, deterministic: bool) -> Result<u64> {
        let transposed = self.transposed.as_ref().ok_or_else(not_prepared)?;
        self.run_both(space, how, deterministic, &transposed.triangles, [0; 2])?;
        let [lower, upper] = &self.sides;
        Ok(match how {
            // Sweeps write to the vectors in turn.
            TriangularSolve::Jacobi { sweeps } if sweeps % 2 == 1 => lower.v.pointer(),
            _ => upper.v.pointer(),
        })
    }

    /// Launches the solves with both triangles. The result goes to `out` at the nodes `target`, if any.
    fn run_both(
        &self,
        space: &Cuda,
        how: TriangularSolve,
        deterministic: bool,
        triangles: &Triangles,
        [target, out]: [u64; 2],
    ) -> Result<()> {
        let Triangles { lower, upper, inverse } = triangles;
        let [lower_side, upper_side] = &self.sides;
        let rows = self.target.len() as i32;
        let exact = how == TriangularSolve::Exact;
        let triangle = |t: &Triangle, side: &Side, ticket: usize| Sweep {
            halt: space.halt(),
            rows,
            most: if exact { t.per } else { self.most } as i32,
            count: if exact { t.order.len() } else { side.runs.len() - 1 } as i32,
            sweeps: 1,
            last: 1,
            skipped: t.skipped as i32,
            runs: if exact { t.order.pointer() } else { side.runs.pointer() },
            begin: t.pattern.row_ptr.pointer(),
            column: t.columns().0,
            values: t.values.pointer(),
            w: side.w.pointer(),
            from: 0,
            v: side.v.pointer(),
            ticket: self.tickets.at(ticket),
            limit: self.limit,
            inverse: 0,
            next_w: 0,
            next_v: 0,
            target: 0,
            out: 0,
            scale: self.scale.pointer(),
        };
        let in_place = exact || (!deterministic && matches!(how, TriangularSolve::Random { .. }));
        let both = [
            Sweep {
                inverse: inverse.pointer(),
                next_w: upper_side.w.pointer(),
                next_v: if in_place { upper_side.v.pointer() } else { 0 },
                ..triangle(lower, lower_side, 0)
            },
            Sweep { target, out, ..triangle(upper, upper_side, 1) },
        ];
        for (sweep, triangle) in both.into_iter().zip([lower, upper]) {
            match how {
                TriangularSolve::Exact => {
                    self.run(space, self.functions.substitution(triangle), triangle.shared, sweep)?;
                }
                TriangularSolve::Random { sweeps } if !deterministic => {
                    self.run(space, &self.functions.random, 0, Sweep { sweeps: sweeps as i32, ..sweep })?;
                }
                TriangularSolve::Random { sweeps } => {
                    self.ping_pong(space, &self.functions.ordered, sweeps, sweep)?;
                }
                TriangularSolve::Jacobi { sweeps } => {
                    self.ping_pong(space, &self.functions.jacobi, sweeps, sweep)?;
                }
            }
        }
        Ok(())
    }

    /// Runs sweeps, each of which reads the result of the one before; the first one reads w.
    fn ping_pong(
        &self,
        space: &Cuda,
        function: &Function<schwarz_exact>,
        sweeps: usize,
        one: Sweep,
    ) -> Result<()> {
        let [lower, upper] = &self.sides;
        let to = [lower.v.pointer(), upper.v.pointer()];
        let mut from = one.w;
        for k in 0..sweeps {
            let v = to[k % 2];
            self.run(space, function, 0, Sweep { from, v, last: (k + 1 == sweeps) as i32, ..one })?;
            from = v;
        }
        Ok(())
    }

    fn run(
        &self,
        space: &Cuda,
        function: &Function<schwarz_exact>,
        shared: usize,
        sweep: Sweep,
    ) -> Result<()> {
        let (device, grid) = (space.device(), (sweep.count as usize).div_ceil(WARPS));
        function.on(device, grid, 32 * WARPS).shared(shared).run(sweep)
    }
}

fn grid(device: &Device, rows: usize) -> usize {
    rows.div_ceil(WARPS).clamp(1, 16 * device.multiprocessors())
}
