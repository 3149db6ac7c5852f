//! Factors of subdomains on a GPU, which analyses, lays out, computes and applies them.
//!
//! The plan's pattern stays on the device beside the factors, so new values take three kernels and no
//! analysis.
//!
//! One thread block processes a subdomain. The chain of levels bounds the time of a triangular solve, not the
//! number of bytes. So loading is decoupled from computing: the factors are one stream of chunks in the order
//! of use. Bulk copies bring the next chunk while this one is used, and the vector stays in shared memory.
//!
//! The ILDU paper found kernels faster that process the edges of the dependency graph with atomics. `krylith
//! bench ildu0` measures them for comparison. They gain nothing here, because the stream leaves no latency to
//! hide (`bench/runs/2026-11-21-h200-ildu0`).
//!
//! A set-up counts and gathers entries (`ildu_plan.cu`), replaces bad orders (`ildu_order.cu`), lays out the
//! stream (`ildu_stream.cu`), and factorizes and packs (`ildu_factor.cu`). Between these steps the host reads
//! a few sums, which give the size of the memory that the next step needs.
//!
//! With `compute=f32` the vector in shared memory is in f32, so more subdomains fit on a multiprocessor.
//! Their scales are found after each factorisation. If the range of a subdomain is too large, all become f64.
//!
//! Transposed solves have a stream of their own, which the same kernel reads. Its pattern is transposed
//! (`ildu_transpose.cu`); levels and the factors in `work` are those of the forward solve.

mod kernels;
mod plan;
mod shape;

pub(in crate::device::cuda) use kernels::{
    ILDU_FACTOR, ILDU_ORDER, ILDU_PLAN, ILDU_SOLVE, ILDU_STREAM, ILDU_TRANSPOSE,
};
pub(crate) use kernels::{ildu_count, ildu_factor, ildu_form, ildu_pack, ildu_plan, ildu_solve, ildu_stream};
use kernels::{ildu_range, ildu_transpose};
pub use plan::CudaPlan;
pub(in crate::device::cuda) use plan::THREADS as PLAN_THREADS;
pub use shape::IlduShape;

use super::Cuda;
use super::driver::{Buffer, Device};
use super::launch::Function;
use super::scan::scan_columns;
use crate::operator::{TermValues, Terms, not_prepared};
use crate::partition::Subdomains;
use crate::precond::{
    FactorQuality, IlduOptions, IncompleteFactors, Outline, Pivots, Plan, Stride, SubdomainFactors,
};
use crate::space::Precision;
use crate::{Error, Result};
use std::sync::Arc;

/// Largest number of block rows of a subdomain, as positions have 16 bits.
const MOST_ROWS: usize = (1 << 16) - 1;
/// Row pointers and columns of a matrix, as kernels take them; 0 for a missing array.
type Matrix = [u64; 2];

/// Pattern and values of all subdomains' factors.
pub struct CudaFactors {
    plan: Arc<CudaPlan>,
    precision: Precision,
    shape: IlduShape,
    shared: usize,
    functions: Functions,
    coefficients: Buffer<f64>,
    // Values of one term in natural order, unless they can be read in place.
    natural: Buffer<f64>,
    work: Buffer<f64>,
    pivots: Buffer<u64>,
    stream: Stream,
    transposed: Option<Transposed>,
    narrow: Option<Narrow>,
}

/// What solves in f32 need besides their stream.
struct Narrow {
    /// For each subdomain the exponent of the power of two that divides D⁻¹.
    shifts: Buffer<i32>,
    /// Not 0 if the range of a subdomain is too large for f32.
    too_wide: Buffer<u32>,
    range: Function<ildu_range>,
}

/// The stream of the transpose, and what packs it.
struct Transposed {
    row_starts: Buffer<i64>,
    diagonal: Buffer<i64>,
    /// For each entry, that of the factors, from the subdomain's first on.
    from: Buffer<u32>,
    stream: Stream,
}

/// Values of all subdomains in the order of use, and the arrays that place them.
struct Stream {
    /// First chunk of each subdomain, and the places and values before it, in units of 16 bytes.
    sums: Buffer<i64>,
    /// Start of each chunk's places and values, in units of 16 bytes; one more than there are chunks.
    chunks: Buffer<[u32; 2]>,
    places: Buffer<u8>,
    values: Buffer<u8>,
}

struct Functions {
    form: Function<ildu_form>,
    factor: Function<ildu_factor>,
    pack: Function<ildu_pack>,
    solve: Function<ildu_solve>,
}

/// Largest number of block rows of a subdomain, if a thread block may have `shared` bytes of shared memory.
pub(crate) fn most_rows(order: usize, shared: usize) -> usize {
    let shape = IlduShape::choose(order, usize::MAX);
    (shared.saturating_sub(shape.ring()) / (8 * order)).min(MOST_ROWS)
}

impl Device {
    /// Largest number of block rows of a subdomain on this GPU.
    pub(crate) fn most_rows(&self, order: usize) -> usize {
        most_rows(order, self.shared_memory())
    }
}

impl SubdomainFactors for Cuda {
    type Plan = CudaPlan;
    type Factors = CudaFactors;

    fn most_rows(&self, order: usize) -> usize {
        self.device().most_rows(order)
    }

    fn cut_graph(&self, terms: &Terms, rows: usize) -> Result<Option<Subdomains>> {
        self.subdomains(terms, rows)
    }

    fn analyse(&self, terms: &Terms, subdomains: &Subdomains, fill: usize) -> Result<Arc<CudaPlan>> {
        Plan::check(terms, subdomains)?;
        let room = self.device().shared_memory();
        let plan = match CudaPlan::can_analyse(subdomains, fill, room) {
            true => CudaPlan::analyse(self, terms, subdomains)?,
            false => CudaPlan::upload(self.device(), &Plan::new(terms, subdomains, fill)?)?,
        };
        Ok(Arc::new(plan))
    }
}

impl IncompleteFactors<Cuda> for CudaFactors {
    type Plan = CudaPlan;
    type Options = IlduOptions;
    type How = Option<f64>;
    type Solve = Stride;

    fn prepare(space: &Cuda, plan: &Arc<CudaPlan>, options: IlduOptions) -> Result<Self> {
        let (precision, number) = (options.stored(), options.compute.bytes());
        let (device, order, largest) = (space.device(), plan.outline.order, plan.outline.largest);
        if !(1..=32).contains(&order) {
            return Err(Error::Unsupported(format!(
                "incomplete factors on a GPU do not support blocks of order {order}; orders 1 to 32 are supported"
            )));
        }
        let shape = IlduShape::choose(order, number * largest * order);
        let (shared, room) = (shape.ring() + largest * order * number, device.shared_memory());
        if shared > room || largest > MOST_ROWS {
            return Err(Error::Unsupported(format!(
                "a subdomain has {largest} block rows of order {order}, too many for a GPU with {room} bytes of shared \
                 memory per thread block; use subdomains of at most {} block rows",
                space.most_rows(order)
            )));
        }
        let functions = Functions {
            form: device.function(&ildu_form::of(order))?,
            factor: device.function(&ildu_factor::of(order))?,
            pack: device.function(&ildu_pack::of(order, precision, &shape))?,
            solve: device.function(&ildu_solve::of(order, &options, &shape, !plan.consecutive))?,
        };
        device.allow_shared(&functions.solve, 32 * shape.warps, shared)?;
        device.allow_shared(&functions.factor, IlduShape::FACTOR_THREADS, IlduShape::factor_shared(order))?;
        let what = "incomplete factors";
        let narrow = match options.is_narrow() {
            false => None,
            true => Some(Narrow {
                shifts: device.zeros(plan.outline.subdomains, what)?,
                too_wide: device.zeros(1, what)?,
                range: device.function(&ildu_range::of(order))?,
            }),
        };
        Ok(CudaFactors {
            narrow,
            shape,
            shared,
            functions,
            coefficients: device.zeros(order * order, what)?,
            natural: device.zeros(0, what)?,
            work: device.allocate(plan.outline.entries * order * order, what)?,
            pivots: device.zeros(2, what)?,
            stream: Stream::lay_out(device, plan, None, precision, &shape)?,
            transposed: None,
            precision,
            plan: plan.clone(),
        })
    }

    fn factorize(&mut self, space: &Cuda, new: &TermValues, shift: Option<f64>) -> Result<FactorQuality> {
        let (f, device) = (self, space.device());
        let plan = f.plan.clone();
        let (entries, count) = (plan.outline.entries, plan.outline.subdomains);
        if count == 0 {
            return Ok(Pivots::default().into());
        }
        let block = plan.outline.block(new);
        for (t, (c, values)) in new.iter().enumerate() {
            device.write(c.values(), &mut f.coefficients, 0)?;
            device.reading(values, &mut f.natural, |natural| {
                f.functions.form.on(device, 16 * device.multiprocessors(), 256).run(
                    entries as i64,
                    block as i32,
                    c.rows() as i32,
                    (t == 0) as i32,
                    &f.coefficients,
                    plan.sources(t).pointer(),
                    natural,
                    &f.work,
                )
            })?;
        }
        device.write(&[u64::MAX, 0], &mut f.pivots, 0)?;
        f.functions
            .factor
            .on(device, count, IlduShape::FACTOR_THREADS)
            .shared(IlduShape::factor_shared(plan.outline.order))
            .run(
                &plan.starts,
                &plan.depths,
                &plan.levels,
                &plan.row_starts,
                &plan.columns,
                &plan.diagonal,
                &plan.rows,
                shift.unwrap_or(0.0),
                &f.work,
                &f.pivots,
            )?;
        if let Some(Narrow { shifts, too_wide, range }) = &mut f.narrow {
            device.clear(too_wide)?;
            let launch = range.on(device, count, IlduShape::FACTOR_THREADS);
            launch.run(&plan.starts, &plan.row_starts, &plan.diagonal, &f.work, &*shifts, &*too_wide)?;
        }
        f.pack(device, &f.stream, [&plan.row_starts, &plan.diagonal], None)?;
        if let Some(t) = &f.transposed {
            f.pack(device, &t.stream, [&t.row_starts, &t.diagonal], Some(&t.from))?;
        }
        let (mut found, mut wide) = ([0u64; 2], [0u32]);
        device.read(&f.pivots, 0, &mut found)?;
        if let Some(narrow) = &f.narrow {
            device.read(&narrow.too_wide, 0, &mut wide)?;
        }
        if wide != [0] {
            f.promote(space)?;
            return f.factorize(space, new, shift);
        }
        Ok(Pivots::of_kernel(found).into())
    }

    fn is_narrow(&self) -> bool {
        self.narrow.is_some()
    }

    fn prepare_transpose(&mut self, space: &Cuda) -> Result<()> {
        if self.transposed.is_none() {
            let t = Transposed::new(space.device(), &self.plan, self.precision, &self.shape)?;
            self.pack(space.device(), &t.stream, [&t.row_starts, &t.diagonal], Some(&t.from))?;
            self.transposed = Some(t);
        }
        Ok(())
    }

    fn solve(
        &self,
        space: &Cuda,
        at: Stride,
        transposed: bool,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
    ) -> Result<()> {
        let (f, device, plan) = (self, space.device(), &self.plan);
        let stream = match transposed {
            false => &f.stream,
            true => &f.transposed.as_ref().ok_or_else(not_prepared)?.stream,
        };
        let Outline { order, block_rows, subdomains, .. } = plan.outline;
        let numbers = block_rows * order * at.step;
        if x.len() != numbers || y.len() != numbers {
            return Err(Error::invalid(format!(
                "factors of {block_rows} block rows of order {order} with stride {} do not fit a vector of {} numbers",
                at.step,
                x.len()
            )));
        }
        if subdomains == 0 {
            return Ok(()); // a rank without rows
        }
        f.functions.solve.on(device, subdomains, 32 * f.shape.warps).shared(f.shared).run(
            space.halt(),
            &plan.starts,
            &stream.sums,
            (!plan.consecutive).then_some(&plan.ascending),
            &plan.slots,
            &stream.chunks,
            &stream.places,
            &stream.values,
            f.narrow.as_ref().map(|narrow| &narrow.shifts),
            at.step as i32,
            at.offset as i32,
            x,
            &*y,
        )
    }

    fn bytes(&self, _: Stride) -> u64 {
        let (plan, stream) = (&self.plan, &self.stream);
        let Outline { order, block_rows, subdomains, .. } = plan.outline;
        // The stream, slots and rows twice, x and y, and the start data of each subdomain.
        let bytes = stream.values.len() + stream.places.len() + 8 * stream.chunks.len();
        let rows = block_rows * (2 * (2 + if plan.consecutive { 0 } else { 4 }) + 16 * order);
        (bytes + rows + 32 * (subdomains + 1)) as u64
    }
}

impl CudaFactors {
    /// Copies the factors to a stream with these rows and diagonals; those of the transpose with the entries
    /// `from` which its entries come.
    fn pack(
        &self,
        device: &Device,
        stream: &Stream,
        [row_starts, diagonal]: [&Buffer<i64>; 2],
        from: Option<&Buffer<u32>>,
    ) -> Result<()> {
        let count = self.plan.outline.subdomains;
        if count == 0 {
            return Ok(());
        }
        self.functions.pack.on(device, count, IlduShape::FACTOR_THREADS).run(
            &self.plan.starts,
            &stream.sums,
            row_starts,
            diagonal,
            from,
            &stream.chunks,
            &stream.places,
            &self.work,
            self.narrow.as_ref().map(|narrow| &narrow.shifts),
            &stream.values,
        )
    }

    /// Replaces all factors by factors in f64, without their values.
    fn promote(&mut self, space: &Cuda) -> Result<()> {
        let transposed = self.transposed.take().is_some();
        *self = Self::prepare(space, &self.plan.clone(), IlduOptions::default())?;
        if transposed { self.prepare_transpose(space) } else { Ok(()) }
    }
}

impl Transposed {
    /// Transposes the pattern and lays out its stream, without values.
    fn new(device: &Arc<Device>, plan: &CudaPlan, precision: Precision, shape: &IlduShape) -> Result<Self> {
        let what = "transposed incomplete factors";
        let Outline { block_rows, subdomains, entries, largest, .. } = plan.outline;
        let (row_starts, diagonal) =
            (device.allocate(block_rows + 1, what)?, device.allocate(block_rows, what)?);
        let (from, columns) = (device.allocate(entries, what)?, device.allocate(entries, what)?);
        if subdomains > 0 {
            let transpose = device.function(&ildu_transpose::of())?;
            device.allow_shared(&transpose, PLAN_THREADS, 4 * largest)?;
            transpose.on(device, subdomains, PLAN_THREADS).shared(4 * largest).run(
                &plan.starts,
                &plan.row_starts,
                &plan.columns,
                &device.allocate::<u16>(entries, what)?,
                &device.allocate::<u32>(entries, what)?,
                &row_starts,
                &columns,
                &diagonal,
                &from,
            )?;
        }
        let pattern = Some(([&row_starts, &diagonal], &columns));
        let stream = Stream::lay_out(device, plan, pattern, precision, shape)?;
        Ok(Self { row_starts, diagonal, from, stream })
    }
}

#[cfg(any(test, feature = "testing"))]
impl crate::precond::testing::ReadFactors for Cuda {
    fn read_factors(&self, f: &CudaFactors) -> Result<Vec<f64>> {
        let (device, plan) = (self.device(), &f.plan);
        let Outline { order, block_rows, subdomains, entries, .. } = plan.outline;
        let (mut work, mut columns) = (vec![0.0; f.work.len()], vec![0u16; entries]);
        let (mut starts, mut row_starts) = (vec![0i64; subdomains + 1], vec![0i64; block_rows + 1]);
        let mut diagonal = vec![0i64; block_rows];
        device.read(&f.work, 0, &mut work)?;
        device.read(&plan.columns, 0, &mut columns)?;
        device.read(&plan.starts, 0, &mut starts)?;
        device.read(&plan.row_starts, 0, &mut row_starts)?;
        device.read(&plan.diagonal, 0, &mut diagonal)?;
        // The lower part is stored as L D; the caller asks for (L D)_ij D_j^-1.
        let size = order * order;
        let mut out = work.clone();
        for p in 0..subdomains {
            for i in starts[p] as usize..starts[p + 1] as usize {
                for e in row_starts[i] as usize..diagonal[i] as usize {
                    let d = diagonal[starts[p] as usize + columns[e] as usize] as usize;
                    for r in 0..order {
                        for c in 0..order {
                            let term =
                                |m: usize| work[e * size + r * order + m] * work[d * size + m * order + c];
                            out[e * size + r * order + c] = (0..order).map(term).sum();
                        }
                    }
                }
            }
        }
        Ok(out)
    }
}

impl Stream {
    /// Lays out the factors of a plan, or their transposes, whose rows, diagonals and columns are given.
    /// There are two passes: the first counts, the second writes.
    ///
    /// # Errors
    /// Factors that exceed 32-bit offsets; out of device memory.
    fn lay_out(
        device: &Arc<Device>,
        plan: &CudaPlan,
        transposed: Option<([&Buffer<i64>; 2], &Buffer<u16>)>,
        precision: Precision,
        shape: &IlduShape,
    ) -> Result<Self> {
        let (what, count) = ("incomplete factors", plan.outline.subdomains);
        let own = ([&plan.row_starts, &plan.diagonal], &plan.columns);
        let ([row_starts, diagonal], columns) = transposed.unwrap_or(own);
        let (order, largest) = (plan.outline.order, plan.outline.largest);
        let sums = device.zeros::<i64>(3 * (count + 1), what)?;
        let run = |write: bool, chunks: u64, places: u64| {
            let function = device.function(&ildu_stream::of(order, precision, shape, write))?;
            let shared = shape.layout_shared(largest, write);
            device.allow_shared(&function, IlduShape::LAYOUT_THREADS, shared)?;
            function.on(device, count, IlduShape::LAYOUT_THREADS).shared(shared).run(
                &plan.starts,
                &plan.levels,
                &plan.depths,
                row_starts,
                diagonal,
                columns,
                &sums,
                chunks,
                places,
                largest as i32,
                transposed.is_some() as i32,
            )
        };
        let mut totals = [0i64; 3];
        if count > 0 {
            run(false, 0, 0)?;
            scan(device, 3, count, &sums)?;
            device.read(&sums, 3 * count, &mut totals)?;
        }
        let [chunks, places, values] = totals.map(|n| n as usize);
        if places.max(values) > u32::MAX as usize {
            return Err(Error::Unsupported(
                "the incomplete factors need more than 64 GB on one GPU; use more GPUs or f32 storage".into(),
            ));
        }
        let chunks = device.zeros(chunks + 1, what)?;
        let (places, values) = (device.allocate(16 * places, what)?, device.allocate(16 * values, what)?);
        if count > 0 {
            run(true, chunks.pointer(), places.pointer())?;
        }
        Ok(Self { sums, chunks, places, values })
    }
}

/// Replaces `columns` interleaved columns of `count` numbers by their exclusive prefix sums, with the totals
/// behind them.
fn scan(device: &Device, columns: usize, count: usize, values: &Buffer<i64>) -> Result<()> {
    assert!(values.len() >= columns * (count + 1));
    let function = device.function(&scan_columns::of(columns))?;
    function.on(device, 1, 1024).run(count as i64, values)
}
