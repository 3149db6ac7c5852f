//! The operations of methods on a [`Cpu`].

use super::{CHUNK, Cpu, CpuBasis, CpuScalars, basis};
use crate::comm::Communicator;
use crate::space::{
    COLUMNS, Clock, FLAGS, HALT, MOST_COLUMNS, Phase, Phases, Precision, Schedule, SmallStep, Space, Sweep,
    check_pairs, random,
};
use crate::threads::Disjoint;
use crate::{Error, Result};
use std::ops::Range;
use std::time::Instant;

/// Elements that a sweep processes in parallel lanes, so that sums vectorise.
const LANES: usize = 8;
/// Largest number of sums of a sweep that needs no allocation.
pub(super) const MAX_SUMS: usize = 8;

impl Space for Cpu {
    type Vector = Vec<f64>;
    type Basis = CpuBasis;

    fn comm(&self) -> &dyn Communicator {
        &*self.comm
    }
    fn len(&self) -> usize {
        self.len
    }
    fn vector(&self) -> Result<Vec<f64>> {
        crate::threads::zeros(self.len, "a vector")
    }
    fn basis(&self, columns: usize, precision: Precision) -> Result<CpuBasis> {
        self.widen(2 * columns + 3);
        CpuBasis::new(self.len, columns, precision)
    }
    fn write(&self, host: &[f64], to: &mut Vec<f64>) -> Result<()> {
        same_length(host.len(), to.len())?;
        to.copy_from_slice(host);
        Ok(())
    }
    fn read(&self, from: &Vec<f64>, host: &mut [f64]) -> Result<()> {
        same_length(host.len(), from.len())?;
        host.copy_from_slice(from);
        Ok(())
    }
    fn copy(&self, from: &Vec<f64>, to: &mut Vec<f64>) -> Result<()> {
        same_length(from.len(), to.len())?;
        let to = Disjoint::new(to);
        // SAFETY: strips do not overlap.
        self.for_strips(
            2,
            #[inline(always)]
            |_, range| unsafe { to.range(range.clone()) }.copy_from_slice(&from[range]),
        );
        Ok(())
    }
    fn turn(&self, from: &Vec<f64>, to: &mut Vec<f64>, back: bool) -> Result<()> {
        same_length(from.len(), to.len())?;
        check_pairs(from.len())?;
        let (to, sign) = (Disjoint::new(to), if back { -1.0 } else { 1.0 });
        self.for_strips(
            2,
            #[inline(always)]
            |_, range| {
                // SAFETY: strips do not overlap, and begin at multiples of `CHUNK`, which is even.
                let to = unsafe { to.range(range.clone()) };
                for (to, from) in to.chunks_exact_mut(2).zip(from[range].chunks_exact(2)) {
                    (to[0], to[1]) = (-sign * from[1], sign * from[0]);
                }
            },
        );
        Ok(())
    }
    fn block(&self, columns: usize) -> Result<Vec<Vec<f64>>> {
        self.make_block(columns)
    }
    fn fill_random(&self, seed: u64, to: &mut Vec<f64>) -> Result<()> {
        let to = Disjoint::new(to);
        self.for_strips(
            1,
            #[inline(always)]
            |_, range| {
                // SAFETY: strips do not overlap.
                let to = unsafe { to.range(range.clone()) };
                to.iter_mut().zip(range).for_each(|(to, i)| *to = random(seed, i as u64));
            },
        );
        Ok(())
    }
    fn wait(&self) -> Result<()> {
        Ok(())
    }

    fn sweep<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &self,
        _: K,
        scalars: &mut CpuScalars,
        a: [usize; A],
        x: [&Vec<f64>; X],
        y: [&mut Vec<f64>; Y],
        o: [usize; O],
    ) -> Result<()>
    where
        K: Sweep<A, X, Y, O>,
    {
        if self.stops(scalars) {
            return Ok(());
        }
        let mut sums = self.sums_of::<K, A, X, Y, O>(scalars, a, x, y)?;
        self.total(&mut sums)?;
        for k in 0..O {
            scalars.values[o[k]] = sums[k];
        }
        Ok(())
    }

    fn sweep_ahead<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &self,
        _: K,
        scalars: &mut CpuScalars,
        a: [usize; A],
        x: [&Vec<f64>; X],
        y: [&mut Vec<f64>; Y],
        o: [usize; O],
    ) -> Result<()>
    where
        K: Sweep<A, X, Y, O>,
    {
        const { assert!(O <= MAX_SUMS) };
        if self.stops(scalars) {
            return Ok(());
        }
        let sums = self.sums_of::<K, A, X, Y, O>(scalars, a, x, y)?;
        let mut ahead = self.ahead.get();
        ahead.count = O;
        for k in 0..O {
            (ahead.sums[k], ahead.slots[k]) = (sums[k], o[k]);
        }
        if self.comm.size() > 1 && O > 0 {
            self.waiting(|| self.comm.start_sum(&mut ahead.sums[..O]))?;
        }
        self.ahead.set(ahead);
        Ok(())
    }
    fn arrive(&self, scalars: &mut CpuScalars) -> Result<()> {
        // A halted sweep has not started a reduction.
        let mut ahead = self.ahead.take();
        let sums = &mut ahead.sums[..ahead.count];
        if self.comm.size() > 1 && !sums.is_empty() {
            self.waiting(|| self.comm.finish_sum(sums))?;
        }
        for (sum, slot) in sums.iter().zip(ahead.slots) {
            scalars.values[slot] = *sum;
        }
        Ok(())
    }

    fn project(
        &self,
        v: &CpuBasis,
        columns: Range<usize>,
        x: &Vec<f64>,
        scalars: &mut CpuScalars,
        to: usize,
    ) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        let k = columns.len();
        self.sum_strips(
            k + 1,
            k,
            &mut scalars.values[to..],
            #[inline(always)]
            |range, out| {
                chunks(
                    range,
                    #[inline(always)]
                    |chunk| v.columns().dots(columns.clone(), chunk.clone(), [&x[chunk]], [&mut *out]),
                );
            },
        );
        self.total(&mut scalars.values[to..to + k])
    }
    fn subtract(
        &self,
        v: &CpuBasis,
        columns: Range<usize>,
        x: &mut Vec<f64>,
        scalars: &mut CpuScalars,
        from: usize,
        norm2: Option<usize>,
    ) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        let mut sum = [0.0];
        {
            let x = Disjoint::new(x);
            let coefficients = &scalars.values[from..from + columns.len()];
            self.sum_strips(
                columns.len() + 1,
                1,
                &mut sum,
                #[inline(always)]
                |range, out| {
                    chunks(
                        range,
                        #[inline(always)]
                        |chunk| {
                            // SAFETY: chunks do not overlap.
                            let x = unsafe { x.range(chunk.clone()) };
                            v.columns().subtract(columns.clone(), chunk, [coefficients], [&mut *x]);
                            if norm2.is_some() {
                                out[0] += basis::dot(x, x);
                            }
                        },
                    );
                },
            );
        }
        if let Some(slot) = norm2 {
            self.total(&mut sum)?;
            scalars.values[slot] = sum[0];
        }
        Ok(())
    }
    fn expand(&self, v: &CpuBasis, x: &mut Vec<f64>, scalars: &mut CpuScalars, from: usize) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        let x = Disjoint::new(x);
        let columns = 0..scalars.flags[COLUMNS] as usize;
        let coefficients = &scalars.values[from..from + columns.len()];
        self.for_strips(
            columns.len() + 1,
            #[inline(always)]
            |_, range| {
                chunks(
                    range,
                    #[inline(always)]
                    |chunk| {
                        // SAFETY: chunks do not overlap.
                        let x = unsafe { x.range(chunk.clone()) };
                        x.fill(0.0);
                        v.columns().subtract(columns.clone(), chunk, [coefficients], [&mut *x]);
                        x.iter_mut().for_each(|x| *x = -*x);
                    },
                );
            },
        );
        Ok(())
    }
    fn append(
        &self,
        v: &mut CpuBasis,
        column: usize,
        x: &mut Vec<f64>,
        scalars: &mut CpuScalars,
        norm: usize,
    ) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        let norm = scalars.values[norm];
        let ((_, v), x) = (v.split(column), Disjoint::new(x));
        self.for_strips(
            2,
            #[inline(always)]
            |_, range| {
                // SAFETY: strips do not overlap.
                let x = unsafe { x.range(range.clone()) };
                x.iter_mut().for_each(|x| *x /= norm);
                // SAFETY: strips do not overlap.
                unsafe { v.store(range, x) };
            },
        );
        Ok(())
    }

    fn with_column(
        &self,
        v: &mut CpuBasis,
        k: usize,
        write: impl FnOnce(&mut Vec<f64>) -> Result<()>,
    ) -> Result<()> {
        v.with_column(k, write)
    }
    fn project_pair(
        &self,
        v: &CpuBasis,
        j: usize,
        w: &Vec<f64>,
        z: &Vec<f64>,
        scalars: &mut CpuScalars,
        to: usize,
    ) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        self.sum_strips(
            j + 2,
            2 * j + 3,
            &mut scalars.values[to..],
            #[inline(always)]
            |range, out| {
                let (dots, gram) = out.split_at_mut(2 * j);
                let (r, t) = dots.split_at_mut(j);
                chunks(
                    range,
                    #[inline(always)]
                    |chunk| {
                        let (w, z) = (&w[chunk.clone()], &z[chunk.clone()]);
                        v.columns().dots(0..j, chunk, [w, z], [&mut *r, &mut *t]);
                        gram[0] += basis::dot(w, w);
                        gram[1] += basis::dot(w, z);
                        gram[2] += basis::dot(z, z);
                    },
                );
            },
        );
        self.total(&mut scalars.values[to..to + 2 * j + 3])
    }
    fn update_pair<T: SmallStep>(
        &self,
        v: &mut CpuBasis,
        j: usize,
        w: &mut Vec<f64>,
        z: &Vec<f64>,
        scalars: &mut CpuScalars,
        from: usize,
        beside: T,
    ) -> Result<()> {
        self.step(beside, scalars, j)?;
        let halt = scalars.flags[HALT];
        if self.guarded.get() && halt != 0 && halt != j as i32 + 2 {
            return Ok(()); // the step found nothing to update
        }
        let r = &scalars.values[from..from + j];
        let t = &scalars.values[from + j..from + 2 * j];
        let gram = &scalars.values[from + 2 * j..];
        let rho2 = gram[0] - r.iter().map(|r| r * r).sum::<f64>();
        let rho = rho2.sqrt();
        let tj = (gram[1] - r.iter().zip(t).map(|(r, t)| r * t).sum::<f64>()) / rho;
        let ((v, writer), w) = (v.split(j), Disjoint::new(w));
        self.for_strips(
            j + 4,
            #[inline(always)]
            |_, range| {
                chunks(
                    range,
                    #[inline(always)]
                    |chunk| {
                        // SAFETY: chunks do not overlap.
                        let w = unsafe { w.range(chunk.clone()) };
                        let (mut buffer, n) = ([0.0; CHUNK], chunk.len());
                        let next = &mut buffer[..n];
                        next.copy_from_slice(&z[chunk.clone()]);
                        v.subtract(0..j, chunk.clone(), [r, t], [&mut *w, &mut *next]);
                        for (w, next) in w.iter_mut().zip(next) {
                            let q = *w / rho;
                            *next = (*next - tj * q) / rho;
                            *w = q;
                        }
                        // SAFETY: chunks do not overlap.
                        unsafe { writer.store(chunk, w) };
                        w.copy_from_slice(&buffer[..n]);
                    },
                );
            },
        );
        Ok(())
    }
    fn block_products(
        &self,
        x: &[Vec<f64>],
        y: &[Vec<f64>],
        scalars: &mut CpuScalars,
        to: usize,
    ) -> Result<()> {
        if self.stops(scalars) { Ok(()) } else { self.products_of_blocks(x, y, &mut scalars.values[to..]) }
    }
    fn block_update(
        &self,
        basis: &[Vec<f64>],
        products: &[Vec<f64>],
        r: &Vec<f64>,
        q: &mut [Vec<f64>],
        aq: &mut [Vec<f64>],
        scalars: &mut CpuScalars,
        b: usize,
        to: usize,
    ) -> Result<()> {
        if self.stops(scalars) {
            return Ok(());
        }
        let mut combination = [0.0; MOST_COLUMNS * MOST_COLUMNS];
        let s = basis.len();
        combination[..s * s].copy_from_slice(&scalars.values[b..b + s * s]);
        self.update_by_blocks([basis, products], r, [q, aq], &combination[..s * s], &mut scalars.values[to..])
    }
    fn block_advance(
        &self,
        q: &[Vec<f64>],
        aq: &[Vec<f64>],
        x: &mut Vec<f64>,
        r: &mut Vec<f64>,
        scalars: &mut CpuScalars,
        a: usize,
    ) -> Result<()> {
        if !self.stops(scalars) {
            self.advance_by_blocks([q, aq], [x, r], &scalars.values[a..a + q.len()]);
        }
        Ok(())
    }
    fn step<T: SmallStep>(&self, _: T, scalars: &mut CpuScalars, j: usize) -> Result<()> {
        if !self.stops(scalars) {
            T::run(&mut scalars.values, &mut scalars.flags, j);
        }
        Ok(())
    }
}

impl Clock for Cpu {
    fn mark(&self, phase: Phase) {
        let now = Instant::now();
        if let (before, Some(since)) = self.clock.get() {
            let mut phases = self.phases.get();
            phases.add(before, (now - since).as_secs_f64());
            self.phases.set(phases);
        }
        self.clock.set((phase, Some(now)));
    }
    fn take_phases(&self) -> Option<Phases> {
        self.clock.set((Phase::Other, None));
        Some(self.phases.take())
    }
}

/// Nothing is recorded and nothing runs ahead: each operation runs when it is called.
impl Cpu {
    /// Runs one fused pass over this rank's part, and returns its sums before the reduction over the ranks.
    #[inline]
    fn sums_of<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &self,
        scalars: &CpuScalars,
        a: [usize; A],
        x: [&Vec<f64>; X],
        y: [&mut Vec<f64>; Y],
    ) -> Result<[f64; O]>
    where
        K: Sweep<A, X, Y, O>,
    {
        for n in x.iter().map(|x| x.len()).chain(y.iter().map(|y| y.len())) {
            same_length(n, self.len)?;
        }
        let a = a.map(|slot| scalars.values[slot]);
        let y = y.map(|y| Disjoint::new(y));
        let mut sums = [0.0; O];
        self.sum_strips(
            X + Y,
            O,
            &mut sums,
            #[inline(always)]
            |range, out| {
                let x: [&[f64]; X] = std::array::from_fn(|k| &x[k][range.clone()]);
                // SAFETY: strips do not overlap.
                let y: [&mut [f64]; Y] = std::array::from_fn(|k| unsafe { y[k].range(range.clone()) });
                let n = range.len();
                let mut lanes = [[0.0; O]; LANES];
                let mut i = 0;
                while i < n {
                    let width = LANES.min(n - i);
                    for (lane, sums) in lanes.iter_mut().enumerate().take(width) {
                        let at = i + lane;
                        let (updated, o) = K::at(
                            a,
                            std::array::from_fn(|k| x[k][at]),
                            std::array::from_fn(|k| y[k][at]),
                            *sums,
                        );
                        for k in 0..Y {
                            y[k][at] = updated[k];
                        }
                        *sums = o;
                    }
                    i += width;
                }
                for sums in lanes {
                    for k in 0..O {
                        out[k] += sums[k];
                    }
                }
            },
        );
        Ok(sums)
    }
}

impl Schedule for Cpu {
    type Scalars = CpuScalars;
    type Recording = ();

    fn scalars(&self, len: usize) -> Result<CpuScalars> {
        self.widen(MAX_SUMS);
        Ok(CpuScalars { values: vec![0.0; len], flags: [0; FLAGS] })
    }
    fn write_scalars(
        &self,
        to: &mut CpuScalars,
        at: usize,
        host: &[f64],
        flags: &[i32; FLAGS],
    ) -> Result<()> {
        to.values[at..at + host.len()].copy_from_slice(host);
        to.flags = *flags;
        Ok(())
    }
    fn read_scalars(
        &self,
        from: &CpuScalars,
        at: usize,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()> {
        host.copy_from_slice(&from.values[at..at + host.len()]);
        *flags = from.flags;
        Ok(())
    }
    fn guard(&self, scalars: Option<&CpuScalars>) {
        self.guarded.set(scalars.is_some());
    }
    fn record(&self, _: &mut (), _: Option<u64>, mut work: impl FnMut(&Self) -> Result<()>) -> Result<()> {
        let done = work(self);
        self.mark(Phase::Other);
        done
    }
    fn peek(&self, scalars: &CpuScalars, slot: usize) -> Option<f64> {
        (self.comm.size() == 1).then(|| scalars.values[slot])
    }
}

impl Cpu {
    /// True if work on these scalars is guarded, and they tell it to stop.
    pub(super) fn stops(&self, scalars: &CpuScalars) -> bool {
        self.guarded.get() && scalars.flags[HALT] != 0
    }
}

/// Runs `f` over the chunks of a strip, in order.
#[inline(always)]
fn chunks(range: Range<usize>, mut f: impl FnMut(Range<usize>)) {
    let mut at = range.start;
    while at < range.end {
        let end = (at + CHUNK).min(range.end);
        f(at..end);
        at = end;
    }
}

fn same_length(given: usize, expected: usize) -> Result<()> {
    if given == expected {
        return Ok(());
    }
    Err(Error::invalid(format!("a vector has {given} numbers; {expected} were expected")))
}
