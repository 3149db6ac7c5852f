//! A cycle for several systems at once, on vectors whose numbers alternate. Its levels are those of the
//! hierarchy with I ⊗ A in place of A, and share the arrays. So each level's matrix is read once for all
//! systems, and a small level costs as many launches as for one.

use super::coarsest::Inverse;
use super::cycle::{Coarse, Cycle, Work, cycle};
use super::level::Level;
use super::parts::owned;
use super::smoother::{LevelWorkspace, Smoother};
use super::transfers::Transfers;
use super::{Coarsen, MultilevelOptions};
use crate::Result;
use crate::operator::{Interleaved, PointBlock, Terms, fresh_key};
use crate::space::Precision;
use std::cell::RefCell;
use std::rc::Rc;

/// The smallest width. Larger ones are powers of two.
const FEWEST: usize = 4;

/// The levels for several systems, and what a cycle over them needs.
pub(super) struct Wide<S: Coarsen> {
    width: usize,
    levels: Vec<Level<S>>,
    work: Vec<Work<S>>,
    b: S::Vector,
    x: S::Vector,
    key: u64,
}

/// Returns the number of columns of vectors for `count` systems.
fn width_for(count: usize) -> usize {
    count.max(FEWEST).next_power_of_two()
}

impl<S: Coarsen> Wide<S> {
    /// Returns true if the device and every level support several systems.
    pub fn supports(levels: &[Level<S>], options: &MultilevelOptions) -> bool {
        // Two Krylov steps need scalars of their own for each system.
        options.cycle != Cycle::K
            && options.precision == Precision::F64
            && levels.iter().all(|level| level.space.interleaves() && fits(level))
    }

    /// Makes the levels for `count` systems; `None` if the device or a level does not support that.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(levels: &[Level<S>], options: &MultilevelOptions, count: usize) -> Result<Option<Self>> {
        let (width, mut wide) = (width_for(count), Vec::new());
        for level in levels {
            let Some(made) = widened(level, width)? else { return Ok(None) };
            wide.push(made);
        }
        let (first, on) = (&levels[0], &wide[0].space);
        if let (true, Some(a)) = (first.shared, &first.operator) {
            // The method multiplies by the same matrix.
            let gains = first.space.gains_by_columns(a.borrow().product());
            if let (false, Some(product)) = (gains, first.space.interleaved(Some(&first.terms), None, width)?)
            {
                let made = Interleaved::new(product, width, [on.vector()?, on.vector()?]);
                a.borrow_mut().multiply_columns_by(made);
            }
        }
        let work = wide.iter().enumerate().map(|(depth, level)| {
            let coarse = wide.get(depth + 1).map(|below| {
                Coarse::new(&below.space, options.cycle, depth + 1, below.inverse.is_some(), true)
            });
            let room = LevelWorkspace::new(&level.space, level.smoother.as_ref())?;
            Ok(Work { rooms: vec![room], coarse: coarse.transpose()? })
        });
        let work = work.collect::<Result<Vec<_>>>()?;
        let (b, x) = (on.vector()?, on.vector()?);
        Ok(Some(Self { width, levels: wide, work, b, x, key: fresh_key() }))
    }

    /// Returns true if these levels suit `count` systems.
    pub fn suits(&self, count: usize) -> bool {
        self.width == width_for(count)
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    pub fn key(&self) -> u64 {
        self.key
    }

    /// Computes `x[k] ← B b[k]`.
    pub fn apply(&mut self, on: &S, b: &[&S::Vector], x: &mut [&mut S::Vector]) -> Result<()> {
        on.interleave(b, self.width, &mut self.b)?;
        cycle(&self.levels, &mut self.work, false, &mut [(&self.b, &mut self.x)])?;
        on.separate(&self.x, self.width, x)
    }
}

/// Returns true if the level has one term of one stage on one rank, and parts that work on several systems.
fn fits<S: Coarsen>(level: &Level<S>) -> bool {
    let terms = &level.terms;
    let transfers = level.transfer.as_ref().is_none_or(|t| {
        let components = t.products.is_none() || t.nodal.is_some();
        components && t.joint.is_none()
    });
    terms.halo.is_none()
        && (terms.stages(), terms.terms.len()) == (1, 1)
        && level.smoother.as_ref().is_none_or(Smoother::is_polynomial)
        && level.inverse.as_ref().is_none_or(|inverse| inverse.product().is_some())
        && transfers
}

/// Returns a level for several systems.
fn widened<S: Coarsen>(level: &Level<S>, width: usize) -> Result<Option<Level<S>>> {
    let (on, terms) = (&level.space, &level.terms);
    let smoother = level.smoother.as_ref().and_then(Smoother::widened);
    let mut transfer = None;
    if let Some(t) = &level.transfer {
        let Some(made) = t.widened(on, width)? else { return Ok(None) };
        transfer = Some(made);
    }
    let mut inverse = None;
    if let Some(narrow) = level.inverse.as_ref().and_then(Inverse::product) {
        let Some(product) = on.interleaved(None, Some(narrow.product()), width)? else { return Ok(None) };
        inverse = Some(Inverse::of_product(PointBlock::of_columns(product)));
    }
    let mut operator = None;
    if level.operator.is_some() {
        let Some(product) = on.interleaved(Some(terms), None, width)? else { return Ok(None) };
        operator = Some(Rc::new(RefCell::new(PointBlock::of_columns(product))));
    }
    let (space, terms) = (on.beside(terms.rows() * width)?, owned(terms));
    Ok(Some(Level { space, terms, operator, shared: false, smoother, transfer, inverse, turned: None }))
}

impl<S: Coarsen> Transfers<S> {
    /// Returns P and R for several systems.
    fn widened(&self, on: &S, width: usize) -> Result<Option<Self>> {
        let (matrices, order) = (self.matrices.clone(), self.order * width);
        let wide = |products| Self { matrices, order, products, adds: true, joint: None, nodal: None };
        if self.products.is_none() && self.order > 1 {
            return Ok(on.interpolates(order).then(|| wide(None)));
        }
        // These act on single components, as matrices of blocks.
        let (p, r) = (Terms::bsr(&self.matrices.prolongation), Terms::bsr(&self.matrices.restriction));
        let made = (on.interleaved(Some(&p), None, width)?, on.interleaved(Some(&r), None, width)?);
        let (Some(p), Some(r)) = made else { return Ok(None) };
        Ok(Some(wide(Some([PointBlock::of_columns(p), PointBlock::of_columns(r)]))))
    }
}
