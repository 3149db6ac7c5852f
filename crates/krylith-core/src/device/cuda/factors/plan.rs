//! The part of factors that does not depend on values, in the memory of a GPU. It is analysed there, or on
//! the host where there is fill.
//!
//! On the device one thread block analyses a subdomain (`kernels/ildu_plan.cu`); the host reads a few sums
//! between the passes. The result equals that of [`Plan::new`], number for number.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{Entry, Function};
use super::kernels::{ildu_boxes, ildu_count, ildu_finish, ildu_home, ildu_inspect, ildu_order, ildu_plan};
use super::{MOST_ROWS, Matrix, scan};
use crate::operator::Terms;
use crate::partition::Subdomains;
use crate::precond::{Outline, Plan};
use crate::{Error, Result};
use std::ops::Deref;
use std::sync::Arc;

/// Threads for the analysis of a subdomain.
pub(in crate::device::cuda) const THREADS: usize = 256;

/// Patterns, order and levels of all subdomains.
#[doc(hidden)]
pub struct CudaPlan {
    /// Counts of the plan.
    pub outline: Outline,
    /// First position of each subdomain, and the end.
    pub starts: Buffer<i64>,
    /// First position of each level, relative to its subdomain. A subdomain's levels start at its first
    /// position.
    pub levels: Buffer<u32>,
    /// Number of levels of each subdomain.
    pub depths: Buffer<u32>,
    /// First entry of each position.
    pub row_starts: Buffer<i64>,
    /// Position of each entry's column in its subdomain.
    pub columns: Buffer<u16>,
    /// Diagonal entry of each position.
    pub diagonal: Buffer<i64>,
    /// Block row at each position.
    pub rows: Buffer<u32>,
    /// Block rows of each subdomain, ascending.
    pub ascending: Buffer<u32>,
    /// True if `ascending` is 0, 1, 2, …
    pub consecutive: bool,
    /// Position in its subdomain of each row of `ascending`.
    pub slots: Buffer<u16>,
    /// For each pattern: the block of each entry in that matrix, or `u32::MAX`.
    sources: Vec<Buffer<u32>>,
}

impl Deref for CudaPlan {
    type Target = Outline;
    fn deref(&self) -> &Outline {
        &self.outline
    }
}

impl CudaPlan {
    /// Returns the source block of each entry in term `t`.
    pub fn sources(&self, t: usize) -> &Buffer<u32> {
        &self.sources[t.min(self.sources.len() - 1)]
    }

    /// Uploads a plan that was made on the host.
    pub fn upload(device: &Arc<Device>, plan: &Plan) -> Result<Self> {
        let (what, n) = ("incomplete factors", plan.rows.len());
        let mut ascending = plan.rows.clone();
        let (mut slots, mut levels) = (vec![0u16; n], vec![0u32; n]);
        let mut depths = Vec::with_capacity(plan.count());
        for p in 0..plan.count() {
            let own = plan.ptr[p]..plan.ptr[p + 1];
            if own.len() > MOST_ROWS {
                return Err(Error::Unsupported(format!(
                    "a subdomain has {} block rows, too many for a GPU; use subdomains of at most {MOST_ROWS} block rows",
                    own.len()
                )));
            }
            let rows = &plan.rows[own.clone()];
            let mut order: Vec<u16> = (0..rows.len() as u32).map(|k| k as u16).collect();
            order.sort_unstable_by_key(|&k| rows[k as usize]);
            for (at, k) in own.clone().zip(order) {
                (ascending[at], slots[at]) = (rows[k as usize], k);
            }
            let own_levels = &plan.levels[plan.level_ptr[p]..plan.level_ptr[p + 1]];
            levels[own.start..own.start + own_levels.len()].copy_from_slice(own_levels);
            depths.push(own_levels.len() as u32);
        }
        let consecutive = ascending.iter().enumerate().all(|(i, &row)| row as usize == i);
        let signed = |v: &[usize]| -> Vec<i64> { v.iter().map(|&i| i as i64).collect() };
        let short: Vec<u16> = plan.columns.iter().map(|&c| c as u16).collect();
        Ok(Self {
            outline: plan.outline.clone(),
            starts: device.upload(&signed(&plan.ptr), what)?,
            levels: device.upload(&levels, what)?,
            depths: device.upload(&depths, what)?,
            row_starts: device.upload(&signed(&plan.row_ptr), what)?,
            columns: device.upload(&short, what)?,
            diagonal: device.upload(&signed(&plan.diagonal), what)?,
            rows: device.upload(&plan.rows, what)?,
            ascending: device.upload(&ascending, what)?,
            consecutive,
            slots: device.upload(&slots, what)?,
            sources: plan.sources.iter().map(|s| device.upload(s, what)).collect::<Result<_>>()?,
        })
    }

    /// Analyses the terms' patterns without fill, where they are on the device.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn analyse(space: &Cuda, terms: &Terms, subdomains: &Subdomains) -> Result<Self> {
        let (device, what) = (space.device(), "incomplete factors");
        let (n, count, largest) = (terms.block_rows(), subdomains.count(), subdomains.largest());
        let shared = terms.shared_pattern();
        let patterns = if shared { 1 } else { terms.terms.len() };
        let resident =
            terms.terms[..patterns].iter().map(|t| space.resident(&t.1)).collect::<Result<Vec<_>>>()?;
        // An argument of kernels: row pointers and columns.
        let pattern = |t: usize| -> Matrix {
            resident.get(t).map_or([0; 2], |m| [m.row_ptr.pointer(), m.col.pointer()])
        };
        let (a, b) = (pattern(0), pattern(1));
        let (starts, ascending, home) = rows(device, subdomains)?;
        let counts = device.allocate::<u32>(n, what)?;
        let totals = device.allocate::<i64>(3 * (count + 1), what)?;
        let scattered = device.zeros::<i32>(1, what)?;
        load(device, ildu_count, patterns)?
            .on(device, count, THREADS)
            .run(&starts, &ascending, &home, n as u32, a, b, &counts, &totals, &scattered)?;
        scan(device, 3, count, &totals)?;
        let (mut sums, mut flag, mut suspected) = ([0i64; 3], [0i32], [0i32]);
        device.read(&totals, 3 * count, &mut sums)?;
        device.read(&scattered, 0, &mut flag)?;
        let [entries, stored, dropped] = sums.map(|n| n as usize);

        // The pattern in numbers of the subdomains, and a check of the natural order.
        let offsets = device.allocate::<u32>(n, what)?;
        let at = device.allocate::<u16>(entries, what)?;
        let from =
            (0..patterns).map(|_| device.allocate::<u32>(entries, what)).collect::<Result<Vec<_>>>()?;
        let (words, spare) = (device.allocate::<u32>(n, what)?, device.allocate::<u32>(n, what)?);
        let (suspect, suspects) = (device.allocate::<u32>(count, what)?, device.zeros::<i32>(1, what)?);
        let shared = |kernel: &cudarc::driver::CudaFunction, row: usize| {
            let bytes = (row * largest).next_multiple_of(16);
            device.allow_shared(kernel, THREADS, bytes).map(|_| bytes)
        };
        let inspect = load(device, ildu_inspect, patterns)?;
        let bytes = shared(&inspect, 5)?;
        inspect.on(device, count, THREADS).shared(bytes).run(
            &starts,
            &ascending,
            &home,
            n as u32,
            a,
            b,
            &counts,
            &totals,
            &offsets,
            &at,
            &from[0],
            from.get(1),
            &words,
            &spare,
            &suspect,
            &suspects,
            largest as i32,
        )?;
        device.read(&suspects, 0, &mut suspected)?;
        if suspected[0] > 0 {
            let order = device.function(&ildu_order::of())?;
            let bytes = shared(&order, 6)?;
            let room = || device.allocate::<u32>(n, what);
            let (place, parent, degree) = (room()?, room()?, room()?);
            order.on(device, count, THREADS).shared(bytes).run(
                &starts,
                &counts,
                &totals,
                &offsets,
                &at,
                &suspect,
                &words,
                &place,
                &parent,
                &degree,
                &spare,
                largest as i32,
            )?;
        }
        let mut plan = Self {
            outline: Outline { entries, stored, dropped, ..Outline::of(terms, subdomains) },
            starts,
            levels: device.allocate(n, what)?,
            depths: device.allocate(count, what)?,
            row_starts: device.allocate(n + 1, what)?,
            columns: device.allocate(entries, what)?,
            diagonal: device.allocate(n, what)?,
            rows: device.allocate(n, what)?,
            ascending,
            consecutive: flag[0] == 0,
            slots: device.allocate(n, what)?,
            sources: (0..patterns).map(|_| device.allocate(entries, what)).collect::<Result<_>>()?,
        };
        let finish = load(device, ildu_finish, patterns)?;
        let bytes = shared(&finish, 6)?;
        finish.on(device, count, THREADS).shared(bytes).run(
            &plan.starts,
            &plan.ascending,
            &words,
            &counts,
            &totals,
            &offsets,
            &at,
            &from[0],
            from.get(1),
            spare.pointer(),
            &plan.rows,
            &plan.slots,
            &plan.levels,
            &plan.depths,
            &plan.row_starts,
            &plan.columns,
            &plan.diagonal,
            &plan.sources[0],
            plan.sources.get(1),
            largest as i32,
        )?;
        let mut depths = vec![0u32; count];
        device.read(&plan.depths, 0, &mut depths)?;
        plan.outline.deepest = depths.into_iter().max().unwrap_or(0) as usize;
        Ok(plan)
    }

    /// Returns the plan on the host, without the fields that only the host uses. For tests.
    ///
    /// # Errors
    /// A failure of the device.
    #[cfg(any(test, feature = "testing"))]
    pub fn to_host(&self) -> Result<Plan> {
        let Outline { block_rows: n, subdomains, entries, .. } = self.outline;
        let device = self.starts.device();
        fn read<T: Copy + Default>(device: &Device, from: &Buffer<T>, len: usize) -> Result<Vec<T>> {
            let mut host = vec![T::default(); len];
            device.read(from, 0, &mut host).map(|()| host)
        }
        let unsigned = |v: Vec<i64>| -> Vec<usize> { v.into_iter().map(|i| i as usize).collect() };
        let ptr = unsigned(read(device, &self.starts, subdomains + 1)?);
        let (all, depths) = (read(device, &self.levels, n)?, read(device, &self.depths, subdomains)?);
        let (mut levels, mut level_ptr) = (Vec::new(), vec![0]);
        for (first, depth) in ptr.iter().zip(depths) {
            levels.extend_from_slice(&all[*first..first + depth as usize]);
            level_ptr.push(levels.len());
        }
        let sources = self.sources.iter().map(|s| read(device, s, entries)).collect::<Result<Vec<_>>>()?;
        let sources = (0..self.outline.blocks.len()).map(|t| sources[t.min(sources.len() - 1)].clone());
        Ok(Plan {
            outline: self.outline.clone(),
            ptr,
            rows: read(device, &self.rows, n)?,
            level_ptr,
            levels,
            row_ptr: unsigned(read(device, &self.row_starts, n + 1)?),
            columns: read(device, &self.columns, entries)?.into_iter().map(u32::from).collect(),
            diagonal: unsigned(read(device, &self.diagonal, n)?),
            sources: sources.collect(),
            patterns: Vec::new(),
        })
    }

    /// True if a device with `room` bytes of shared memory per thread block analyses such subdomains
    /// itself.
    pub fn can_analyse(subdomains: &Subdomains, fill: usize, room: usize) -> bool {
        let largest = subdomains.largest();
        // Six bytes of shared memory per row, besides the counters of the sort.
        fill == 0 && subdomains.count() > 0 && largest <= MOST_ROWS && 6 * largest + (9 << 10) <= room
    }
}

fn load<K: Entry>(device: &Device, entry: K, patterns: usize) -> Result<Function<K>> {
    device.function(&ildu_plan(entry, patterns))
}

/// First position of each subdomain, its block rows in ascending order, and for each row its subdomain and
/// its number in that subdomain.
type Rows = (Buffer<i64>, Buffer<u32>, Buffer<[u32; 2]>);

/// Uploads [`Rows`].
fn rows(device: &Arc<Device>, subdomains: &Subdomains) -> Result<Rows> {
    let (what, n, count) = ("subdomains", subdomains.block_rows(), subdomains.count());
    let home = device.allocate::<[u32; 2]>(n, what)?;
    if let Some(boxes) = subdomains.as_boxes() {
        let (starts, rows) = (device.allocate::<i64>(count + 1, what)?, device.allocate::<u32>(n, what)?);
        let ([nx, ny, nz], [sx, sy, sz]) = (boxes.grid.map(|n| n as i32), boxes.size.map(|n| n as i32));
        let (kernel, threads) = (load(device, ildu_boxes, 1)?, THREADS);
        kernel.on(device, count, threads).run(nx, ny, nz, sx, sy, sz, &starts, &rows, &home)?;
        return Ok((starts, rows, home));
    }
    let (lists, ptr) = subdomains.all_rows();
    let rows = device.upload(lists, what)?;
    let starts = device.allocate::<i64>(count + 1, what)?;
    // SAFETY: allocated for as many numbers of the same size, which are below 2⁶³.
    unsafe { device.send(ptr, starts.pointer())? };
    load(device, ildu_home, 1)?.on(device, count, THREADS).run(&starts, &rows, &home)?;
    Ok((starts, rows, home))
}
