//! Vectors of several systems with one matrix, which a method solves together.
//!
//! [`Columns`] is a space whose vectors have one vector of another space for each right-hand side, and whose
//! scalars have one set for each. So a method runs unchanged, and every right-hand side has its own scalars,
//! its own guard and its own end. Passes over vectors run for one right-hand side after the other. What pays
//! is the operator: it gets all vectors at once
//! ([`LinearOperator::apply_columns`](crate::operator::LinearOperator::apply_columns)), so that a product
//! reads its matrix once.
//!
//! The vectors are separate arrays. Their numbers could also alternate, which suits matrices with scattered
//! columns. But then every pass, every preconditioner and the caller's arrays would need a second layout.
//! Products that gain from alternating numbers interleave their arguments themselves.

use super::{Clock, FLAGS, Phase, Phases, Precision, Schedule, SmallStep, Space, Sweep, check_columns};
use crate::Result;
use crate::comm::Communicator;
use std::cell::{Cell, RefCell};
use std::ops::Range;

/// The space of several vectors of another space. Work applies to the right-hand sides that are selected.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::Space;
/// use krylith_core::space::Columns;
/// let space = Columns::new(Cpu::new(3, 1), 2)?;
/// let mut x = space.vector()?; // two vectors of zeros
/// space.select([1]);
/// space.write(&[1.0, 2.0, 3.0], &mut x)?;
/// assert_eq!(x, [vec![0.0; 3], vec![1.0, 2.0, 3.0]]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Columns<S: Space> {
    space: S,
    width: usize,
    /// Bit k: column k is selected.
    selected: Cell<u32>,
    /// Bit k: the guard of column k is known to be raised.
    halted: Cell<u32>,
    guarded: Cell<bool>,
    /// Places for the columns of a basis while an operator writes to them, once there is a basis.
    lent: RefCell<Vec<S::Vector>>,
}

impl<S: Space> Columns<S> {
    /// Makes the space of `width` vectors of `space`.
    ///
    /// # Errors
    /// Too many columns.
    pub fn new(space: S, width: usize) -> Result<Self> {
        check_columns(width)?;
        let (selected, halted, guarded) = (Cell::new(0), Cell::new(0), Cell::new(false));
        let columns = Self { space, width, selected, halted, guarded, lent: RefCell::default() };
        columns.select(0..width);
        Ok(columns)
    }

    /// Returns the space of one vector.
    pub fn one(&self) -> &S {
        &self.space
    }

    /// Returns the number of vectors.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Selects the columns to which later work applies.
    pub fn select(&self, columns: impl IntoIterator<Item = usize>) {
        self.selected.set(columns.into_iter().fold(0, |bits, k| bits | 1 << k));
    }

    /// Returns the selected columns.
    pub fn selected(&self) -> impl Iterator<Item = usize> + use<S> {
        bits(self.selected.get())
    }

    /// Returns the selected columns whose guard is not known to be raised.
    pub fn live(&self) -> impl Iterator<Item = usize> + use<S> {
        let halted = if self.guarded.get() { self.halted.get() } else { 0 };
        bits(self.selected.get() & !halted)
    }

    /// Runs `work` for every live column, under its guard.
    fn each(
        &self,
        scalars: &mut [S::Scalars],
        mut work: impl FnMut(&S, usize, &mut S::Scalars) -> Result<()>,
    ) -> Result<()> {
        for k in self.live() {
            self.space.guard(self.guarded.get().then_some(&scalars[k]));
            work(&self.space, k, &mut scalars[k])?;
        }
        self.space.guard(None);
        Ok(())
    }

    /// Lets work for all columns do nothing once all selected ones have ended, where work is guarded.
    pub(crate) fn guard_shared(&self) -> Result<()> {
        if self.guarded.get() {
            return self.space.guard_watched();
        }
        self.space.guard(None);
        Ok(())
    }

    /// Records whether the guard of column k is raised.
    fn look(&self, k: usize, scalars: &S::Scalars) {
        let bit = 1 << k;
        let others = self.halted.get() & !bit;
        self.halted.set(if self.space.halted(scalars) { others | bit } else { others });
    }

    /// Returns the first selected column.
    fn first(&self) -> usize {
        self.selected.get().trailing_zeros() as usize
    }
}

/// The positions of the bits that are set, from the lowest on.
fn bits(mut left: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        (left != 0).then(|| {
            let k = left.trailing_zeros() as usize;
            left &= left - 1;
            k
        })
    })
}

impl<S: Space> Clock for Columns<S> {
    fn mark(&self, phase: Phase) {
        self.space.mark(phase);
    }
    fn take_phases(&self) -> Option<Phases> {
        self.space.take_phases()
    }
}

/// The host reads and writes scalars of the first selected column alone, or writes the same to all.
impl<S: Space> Schedule for Columns<S> {
    type Scalars = Vec<S::Scalars>;
    type Recording = S::Recording;

    fn scalars(&self, len: usize) -> Result<Self::Scalars> {
        (0..self.width).map(|_| self.space.scalars(len)).collect()
    }
    fn write_scalars(
        &self,
        to: &mut Self::Scalars,
        at: usize,
        host: &[f64],
        flags: &[i32; FLAGS],
    ) -> Result<()> {
        self.selected().try_for_each(|k| {
            self.space.write_scalars(&mut to[k], at, host, flags)?;
            self.look(k, &to[k]);
            Ok(())
        })
    }
    fn read_scalars(
        &self,
        from: &Self::Scalars,
        at: usize,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()> {
        self.space.read_scalars(&from[self.first()], at, host, flags)
    }
    fn guard(&self, scalars: Option<&Self::Scalars>) {
        self.guarded.set(scalars.is_some());
        if let Some(scalars) = scalars {
            self.space.watch(scalars, self.selected.get());
        }
    }
    fn halted(&self, scalars: &Self::Scalars) -> bool {
        self.selected().all(|k| self.space.halted(&scalars[k]))
    }
    fn record(
        &self,
        recording: &mut Self::Recording,
        key: Option<u64>,
        mut work: impl FnMut(&Self) -> Result<()>,
    ) -> Result<()> {
        // A graph for one column of many would be made for a single replay.
        let many = self.width == 1 || self.selected().nth(1).is_some();
        let key = key.filter(|_| many).map(|key| key ^ u64::from(self.selected.get()) << 32);
        self.space.record(recording, key, |_| work(self))
    }
    fn launches(&self, mut work: impl FnMut(&Self) -> Result<()>) -> Result<Option<usize>> {
        let all = self.space.launches(|_| work(self))?;
        // A graph of many columns pays for more launches.
        Ok(all.map(|all| all.div_ceil(self.width)))
    }
    fn pipeline_depth(&self) -> usize {
        self.space.pipeline_depth()
    }
}

impl<S: Space> Space for Columns<S> {
    type Vector = Vec<S::Vector>;
    type Basis = Vec<S::Basis>;

    fn comm(&self) -> &dyn Communicator {
        self.space.comm()
    }
    fn len(&self) -> usize {
        self.space.len()
    }
    fn vector(&self) -> Result<Self::Vector> {
        (0..self.width).map(|_| self.space.vector()).collect()
    }
    fn basis(&self, columns: usize, precision: Precision) -> Result<Self::Basis> {
        // Nothing may be allocated while work is recorded.
        let mut lent = self.lent.borrow_mut();
        while lent.len() < self.width {
            lent.push(self.space.vector()?);
        }
        (0..self.width).map(|_| self.space.basis(columns, precision)).collect()
    }
    fn write(&self, host: &[f64], to: &mut Self::Vector) -> Result<()> {
        self.selected().try_for_each(|k| self.space.write(host, &mut to[k]))
    }
    fn read(&self, from: &Self::Vector, host: &mut [f64]) -> Result<()> {
        self.space.read(&from[self.first()], host)
    }
    fn copy(&self, from: &Self::Vector, to: &mut Self::Vector) -> Result<()> {
        self.selected().try_for_each(|k| self.space.copy(&from[k], &mut to[k]))
    }
    fn turn(&self, from: &Self::Vector, to: &mut Self::Vector, back: bool) -> Result<()> {
        self.live().try_for_each(|k| self.space.turn(&from[k], &mut to[k], back))
    }
    fn wait(&self) -> Result<()> {
        self.space.wait()
    }

    fn sweep<K, const A: usize, const X: usize, const Y: usize, const O: usize>(
        &self,
        kernel: K,
        scalars: &mut Self::Scalars,
        a: [usize; A],
        x: [&Self::Vector; X],
        mut y: [&mut Self::Vector; Y],
        o: [usize; O],
    ) -> Result<()>
    where
        K: Sweep<A, X, Y, O>,
    {
        self.each(scalars, |space, k, scalars| {
            let y = y.each_mut().map(|y| &mut y[k]);
            space.sweep(kernel, scalars, a, x.map(|x| &x[k]), y, o)
        })
    }

    fn project(
        &self,
        v: &Self::Basis,
        columns: Range<usize>,
        x: &Self::Vector,
        scalars: &mut Self::Scalars,
        to: usize,
    ) -> Result<()> {
        let one = |space: &S, k: usize, scalars: &mut S::Scalars| {
            space.project(&v[k], columns.clone(), &x[k], scalars, to)
        };
        self.each(scalars, one)
    }
    fn subtract(
        &self,
        v: &Self::Basis,
        columns: Range<usize>,
        x: &mut Self::Vector,
        scalars: &mut Self::Scalars,
        from: usize,
        norm2: Option<usize>,
    ) -> Result<()> {
        self.each(scalars, |space, k, scalars| {
            space.subtract(&v[k], columns.clone(), &mut x[k], scalars, from, norm2)
        })
    }
    fn expand(
        &self,
        v: &Self::Basis,
        x: &mut Self::Vector,
        scalars: &mut Self::Scalars,
        from: usize,
    ) -> Result<()> {
        self.each(scalars, |space, k, scalars| space.expand(&v[k], &mut x[k], scalars, from))
    }
    fn append(
        &self,
        v: &mut Self::Basis,
        column: usize,
        x: &mut Self::Vector,
        scalars: &mut Self::Scalars,
        norm: usize,
    ) -> Result<()> {
        self.each(scalars, |space, k, scalars| space.append(&mut v[k], column, &mut x[k], scalars, norm))
    }

    fn with_column(
        &self,
        v: &mut Self::Basis,
        k: usize,
        write: impl FnOnce(&mut Self::Vector) -> Result<()>,
    ) -> Result<()> {
        let mut lent = self.lent.take();
        let mut write = Some(write);
        let done = lend(&self.space, v, k, &mut lent, 0, &mut |columns| {
            write.take().map_or(Ok(()), |write| write(columns))
        });
        self.lent.replace(lent);
        done
    }
    fn project_pair(
        &self,
        v: &Self::Basis,
        j: usize,
        w: &Self::Vector,
        z: &Self::Vector,
        scalars: &mut Self::Scalars,
        to: usize,
    ) -> Result<()> {
        self.each(scalars, |space, k, scalars| space.project_pair(&v[k], j, &w[k], &z[k], scalars, to))
    }
    fn update_pair<T: SmallStep>(
        &self,
        v: &mut Self::Basis,
        j: usize,
        w: &mut Self::Vector,
        z: &Self::Vector,
        scalars: &mut Self::Scalars,
        from: usize,
        beside: T,
    ) -> Result<()> {
        self.each(scalars, |space, k, scalars| {
            space.update_pair(&mut v[k], j, &mut w[k], &z[k], scalars, from, beside)?;
            self.look(k, scalars);
            Ok(())
        })
    }
    fn step<T: SmallStep>(&self, step: T, scalars: &mut Self::Scalars, j: usize) -> Result<()> {
        self.each(scalars, |space, k, scalars| {
            space.step(step, scalars, j)?;
            self.look(k, scalars);
            Ok(())
        })
    }
}

/// Lets `write` fill column `k` of every basis from number `at` on.
fn lend<S: Space>(
    space: &S,
    bases: &mut [S::Basis],
    k: usize,
    columns: &mut Vec<S::Vector>,
    at: usize,
    write: &mut dyn FnMut(&mut Vec<S::Vector>) -> Result<()>,
) -> Result<()> {
    let Some((first, others)) = bases.split_first_mut() else { return write(columns) };
    space.with_column(first, k, |column| {
        std::mem::swap(column, &mut columns[at]);
        let done = lend(space, others, k, columns, at + 1, write);
        std::mem::swap(column, &mut columns[at]);
        done
    })
}
