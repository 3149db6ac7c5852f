//! Factors of subdomains on a GPU: analysed on the host, factorised and applied on the device.
//!
//! The plan's pattern stays on the device beside the factors, so that new values are a copy, three kernels and no analysis.

mod shape;
mod stream;

pub use shape::IlduShape;

use super::Cuda;
use super::driver::{Buffer, launch};
use super::specialisations;
use crate::operator::TermValues;
use crate::precond::{PivotKind, Pivots, Plan, Stride, SubdomainFactors};
use crate::space::Store;
use crate::{Error, Result};
use cudarc::driver::CudaFunction;
use std::sync::Arc;
use stream::Stream;

/// Most subdomains, chunks and threads aside: what a 16-bit local column can name.
const MOST_ROWS: usize = 1 << 16;

/// Pattern and values of all subdomains' factors.
pub struct CudaFactors {
    plan: Arc<Plan>,
    shape: IlduShape,
    shared: usize,
    functions: Functions,
    starts: Buffer<i64>,
    level_starts: Buffer<i64>,
    levels: Buffer<u32>,
    row_starts: Buffer<i64>,
    columns: Buffer<u16>,
    diagonal: Buffer<i64>,
    // Block row of each position, to name bad pivots.
    rows: Buffer<u32>,
    sources: Vec<Buffer<u32>>,
    coefficients: Buffer<f64>,
    // Values of one term as they come, unless they can be read where they are.
    natural: Buffer<f64>,
    work: Buffer<f64>,
    pivots: Buffer<u64>,
    // Block rows ascending in each subdomain, unless they are consecutive, and the position of each.
    gathered: Option<Buffer<u32>>,
    slots: Buffer<u16>,
    runs: Buffer<i64>,
    chunks: Buffer<[u32; 2]>,
    places: Buffer<u8>,
    values: Buffer<u8>,
}

struct Functions {
    form: CudaFunction,
    factor: CudaFunction,
    pack: CudaFunction,
    solve: CudaFunction,
}

impl SubdomainFactors for Cuda {
    type Factors = CudaFactors;

    fn most_rows(&self, order: usize) -> usize {
        let shape = IlduShape::choose(order, usize::MAX);
        (self.device().shared_memory().saturating_sub(shape.ring()) / (8 * order)).min(MOST_ROWS)
    }

    fn prepare_factors(&self, plan: &Arc<Plan>, store: Store) -> Result<CudaFactors> {
        let (device, order) = (self.device(), plan.order);
        let count = plan.ptr.len() - 1;
        let largest = (0..count).map(|p| plan.ptr[p + 1] - plan.ptr[p]).max().unwrap_or(0);
        if !(1..=32).contains(&order) {
            return Err(Error::Unsupported(format!(
                "factors with blocks of order {order}; a GPU takes 1 to 32"
            )));
        }
        let shape = IlduShape::choose(order, 8 * largest * order);
        let (shared, room) = (shape.ring() + largest * order * 8, device.shared_memory());
        if shared > room || largest > MOST_ROWS {
            return Err(Error::Unsupported(format!(
                "a subdomain of {largest} block rows with blocks of order {order} on a GPU, whose blocks of threads have \
                 {room} bytes of their own memory: take subdomains of at most {} block rows",
                self.most_rows(order)
            )));
        }
        let Stream { chunks, runs, places, values } =
            stream::lay_out(plan, store.bytes(), shape.stage, shape.warps)?;
        let (mut rows, mut slots) = (plan.rows.clone(), vec![0u16; plan.rows.len()]);
        for p in 0..count {
            let own = plan.ptr[p]..plan.ptr[p + 1];
            let mut ascending: Vec<(u32, u16)> =
                plan.rows[own.clone()].iter().enumerate().map(|(i, &row)| (row, i as u16)).collect();
            ascending.sort_unstable();
            for (at, (row, slot)) in own.zip(ascending) {
                (rows[at], slots[at]) = (row, slot);
            }
        }
        let consecutive = rows.iter().enumerate().all(|(i, &row)| row as usize == i);
        let functions = Functions {
            form: device.function(&specialisations::ildu_form(order))?,
            factor: device.function(&specialisations::ildu_factor(order))?,
            pack: device.function(&specialisations::ildu_pack(order, store, &shape))?,
            solve: device.function(&specialisations::ildu_solve(order, store, &shape, !consecutive))?,
        };
        device.allow_shared(&functions.solve, 32 * shape.warps, shared)?;
        device.allow_shared(&functions.factor, IlduShape::FACTOR_THREADS, IlduShape::factor_shared(order))?;
        let what = "incomplete factors";
        let signed = |v: &[usize]| -> Vec<i64> { v.iter().map(|&i| i as i64).collect() };
        let short: Vec<u16> = plan.columns.iter().map(|&c| c as u16).collect();
        let entries = plan.columns.len();
        Ok(CudaFactors {
            shape,
            shared,
            functions,
            starts: device.upload(&signed(&plan.ptr), what)?,
            level_starts: device.upload(&signed(&plan.level_ptr), what)?,
            levels: device.upload(&plan.levels, what)?,
            row_starts: device.upload(&signed(&plan.row_ptr), what)?,
            columns: device.upload(&short, what)?,
            diagonal: device.upload(&signed(&plan.diagonal), what)?,
            rows: device.upload(&plan.rows, what)?,
            sources: plan.sources.iter().map(|s| device.upload(s, what)).collect::<Result<_>>()?,
            coefficients: device.zeros(order * order, what)?,
            natural: device.zeros(0, what)?,
            work: device.zeros(entries * order * order, what)?,
            pivots: device.zeros(2, what)?,
            gathered: if consecutive { None } else { Some(device.upload(&rows, what)?) },
            slots: device.upload(&slots, what)?,
            runs: device.upload(&runs, what)?,
            chunks: device.upload(&chunks, what)?,
            places: device.upload(&places, what)?,
            values: device.zeros(values as usize, what)?,
            plan: plan.clone(),
        })
    }

    fn factorize(&self, f: &mut CudaFactors, new: &TermValues, shift: Option<f64>) -> Result<Pivots> {
        let (device, plan) = (self.device(), f.plan.clone());
        let (entries, count) = (plan.columns.len(), plan.ptr.len() - 1);
        if count == 0 {
            return Ok(Pivots::default());
        }
        let block = plan.block(new);
        for (t, (c, values)) in new.iter().enumerate() {
            device.write(c.values(), &mut f.coefficients, 0)?;
            device.reading(values, &mut f.natural, |natural| {
                // SAFETY: the parameter types are the kernel's; sources name blocks of this pattern, whose number the
                // caller checked.
                unsafe {
                    launch!(
                        device,
                        &f.functions.form,
                        16 * device.multiprocessors(),
                        256,
                        0,
                        entries as i64,
                        block as i32,
                        c.rows() as i32,
                        (t == 0) as i32,
                        f.coefficients.pointer(),
                        f.sources[t].pointer(),
                        natural,
                        f.work.pointer()
                    )
                }
            })?;
        }
        device.write(&[u64::MAX, 0], &mut f.pivots, 0)?;
        // SAFETY: the parameter types are the kernels'; all arrays are the plan's.
        unsafe {
            launch!(
                device,
                &f.functions.factor,
                count,
                IlduShape::FACTOR_THREADS,
                IlduShape::factor_shared(plan.order),
                f.starts.pointer(),
                f.level_starts.pointer(),
                f.levels.pointer(),
                f.row_starts.pointer(),
                f.columns.pointer(),
                f.diagonal.pointer(),
                f.rows.pointer(),
                shift.unwrap_or(0.0),
                f.work.pointer(),
                f.pivots.pointer()
            )?;
            launch!(
                device,
                &f.functions.pack,
                count,
                IlduShape::FACTOR_THREADS,
                0,
                f.starts.pointer(),
                f.runs.pointer(),
                f.row_starts.pointer(),
                f.diagonal.pointer(),
                f.chunks.pointer(),
                f.places.pointer(),
                f.work.pointer(),
                f.values.pointer()
            )?;
        }
        let mut found = [0u64; 2];
        device.read(&f.pivots, 0, &mut found)?;
        let kind = match found[0] & 3 {
            0 => PivotKind::Zero,
            1 => PivotKind::Tiny,
            _ => PivotKind::NotFinite,
        };
        let first = (found[0] != u64::MAX).then_some(((found[0] >> 2) as u32, kind));
        Ok(Pivots { bad: found[1] as u32 as usize, first, shifted: (found[1] >> 32) as usize })
    }

    fn solve_factors(&self, f: &CudaFactors, at: Stride, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        let (device, plan) = (self.device(), &f.plan);
        let numbers = plan.block_rows * plan.order * at.step;
        if x.len() != numbers || y.len() != numbers {
            return Err(Error::invalid(format!(
                "factors of {} block rows of order {}, {} numbers apart, cannot take {} numbers",
                plan.block_rows,
                plan.order,
                at.step,
                x.len()
            )));
        }
        let count = plan.ptr.len() - 1;
        if count == 0 {
            return Ok(()); // a rank without rows
        }
        // SAFETY: the parameter types are the kernel's; lengths were checked, arrays are the plan's.
        unsafe {
            launch!(
                device,
                &f.functions.solve,
                count,
                32 * f.shape.warps,
                f.shared,
                self.halt(),
                f.starts.pointer(),
                f.runs.pointer(),
                f.gathered.as_ref().map_or(0, Buffer::pointer),
                f.slots.pointer(),
                f.chunks.pointer(),
                f.places.pointer(),
                f.values.pointer(),
                at.step as i32,
                at.offset as i32,
                x.pointer(),
                y.pointer()
            )
        }
    }

    fn factors_bytes(f: &CudaFactors) -> u64 {
        let plan = &f.plan;
        // The stream, slots and rows twice, x and y; what starts a subdomain.
        let stream = f.values.len() + f.places.len() + 8 * f.chunks.len();
        let rows = plan.block_rows * (2 * (2 + if f.gathered.is_some() { 4 } else { 0 }) + 16 * plan.order);
        (stream + rows + 32 * plan.ptr.len()) as u64
    }

    fn read_factors(&self, f: &CudaFactors) -> Result<Vec<f64>> {
        let plan = &f.plan;
        let order = plan.order;
        let mut work = vec![0.0; f.work.len()];
        self.device().read(&f.work, 0, &mut work)?;
        // What is kept of the lower part is L D: (L D)_ij D_j^-1 is asked for.
        let size = order * order;
        let mut out = work.clone();
        for p in 0..plan.ptr.len() - 1 {
            for i in plan.ptr[p]..plan.ptr[p + 1] {
                for e in plan.row_ptr[i]..plan.diagonal[i] {
                    let d = plan.diagonal[plan.ptr[p] + plan.columns[e] as usize];
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
