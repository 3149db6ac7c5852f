//! Builds the levels of monolithic multigrid: interpolation for each field from its own couplings, and the
//! Galerkin products of the whole matrix.
//!
//! A field that has no constraints is coarsened by its diagonal block of the matrix, the constraints by the
//! Schur complement with the diagonal of the other fields. Both coarsenings are classical.

use super::part::{PartMatrix, SubMatrix};
use crate::matrix::{Bsr, Csr};
use crate::operator::{PointBlock, TermValues, Terms};
use crate::precond::assemble::{Numbered, Weight, inverted, values_of};
use crate::precond::{
    CoarsenKind, Coarsening, CoarsestInverse, Patches, Preconditioner, Rows, SharedOperator, Vanka,
    VankaCycle, VankaLevel, VankaOptions,
};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::{Error, Result};
use rayon::prelude::*;
use std::sync::Arc;

/// Number of unknowns from which a level is not coarsened further: a dense inverse of it is small.
const COARSEST: usize = 1500;
/// A coarse level with more than this share of the unknowns is the last.
const STALLED: f64 = 0.8;

/// Threshold of strong connections.
const STRENGTH: f64 = 0.25;

/// Factor of ω on coarse levels. On P2–P1 Stokes with 12³ cells and ω = 0.6, factors of 0.5, 0.75 and 1 need
/// 24, 35 and 28 iterations.
const COARSE: f64 = 0.5;

/// A field on one level.
pub(super) struct LevelField {
    /// Its unknowns, in blocks.
    pub unknowns: Vec<u32>,
    pub block: usize,
    pub is_constraint: bool,
}

/// The cycle with the matrices that it was made from.
pub(super) struct Fieldwise<S: SolverSpace> {
    pub(super) cycle: VankaCycle<S>,
    a: Bsr,
    scalar: SubMatrix<S>,
    steps: Vec<Step<S>>,
}

/// The step from a level to the next.
struct Step<S: SolverSpace> {
    /// P and Pᵀ.
    transfer: [Csr; 2],
    /// A P and PᵀAP.
    products: [Csr; 2],
    /// PᵀAP in the next level's space.
    matrix: PartMatrix<S>,
}

/// Sizes of the levels, and the number of stored numbers.
pub(super) struct Sizes {
    pub unknowns: Vec<usize>,
    pub numbers: usize,
}

/// Coarsens at most `most − 1` times.
///
/// # Errors
/// Local systems that are singular; a coarsest level that is too large; out of device memory.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    a: &SharedOperator<S>,
    mut fields: Vec<LevelField>,
    (options, sweeps, most): (VankaOptions, usize, usize),
    finest: Vanka<S>,
) -> Result<(Fieldwise<S>, Sizes)> {
    let matrix = &*terms.terms[0].1;
    let scalar = SubMatrix::whole(space, matrix)?;
    let mut sizes = Sizes { unknowns: vec![matrix.rows()], numbers: finest.stored() };
    let (mut steps, mut levels) = (Vec::<Step<S>>::new(), Vec::new());
    let mut smoother = Some(finest);
    let mut on = space.beside(matrix.rows())?;
    while let Some(smooths) = smoother.take() {
        let fine = steps.last().map_or(&scalar.csr, |step| &step.products[1]);
        let coarse = match fine.rows() <= COARSEST || levels.len() + 1 >= most {
            true => None,
            false => interpolation(space, fine, &fields, levels.len())?,
        };
        let Some((p, next)) = coarse else { break };
        let transposed = p.transpose();
        let product = space.product(None, fine, Weight::ONE, &p)?;
        let galerkin = space.product(None, &transposed, Weight::ONE, &product)?;
        sizes.unknowns.push(galerkin.rows());
        sizes.numbers += galerkin.nonzeros() + 2 * p.nonzeros();
        let below = space.beside(galerkin.rows())?;
        let matrix = PartMatrix::new(&below, &galerkin, 1, options.precision, None)?;
        if galerkin.rows() > COARSEST && levels.len() + 2 < most {
            let constraints = next.iter().filter(|field| field.is_constraint);
            let mut constraints: Vec<u32> =
                constraints.flat_map(|field| field.unknowns.iter().copied()).collect();
            constraints.sort_unstable();
            let options = VankaOptions { damping: COARSE * options.damping, ..options };
            let terms = matrix.terms();
            let a = &*terms.terms[0].1;
            let patches = Patches::new(Rows { a, values: a.values() }, constraints)?;
            super::vanka::fits(&patches, options)?;
            let between = space.beside(Vanka::<S>::width(&patches, options.kind))?;
            let made = Vanka::new(&below, between, &terms, Arc::new(patches), options)?;
            sizes.numbers += made.stored();
            smoother = Some(made);
        }
        let operators = [
            PointBlock::csr(&below, &transposed, Precision::F64)?,
            PointBlock::csr(&on, &p, Precision::F64)?,
        ];
        let own = steps.last().map_or_else(|| a.clone(), |step: &Step<S>| step.matrix.operator.clone());
        levels.push(VankaLevel::new(on, &below, own, smooths, operators)?);
        steps.push(Step { transfer: [p, transposed], products: [product, galerkin], matrix });
        (on, fields) = (below, next);
    }
    let coarsest = match steps.last() {
        Some(step) => CoarsestInverse::new(&on, &step.matrix.terms(), Precision::F64, true)?,
        None => None,
    };
    let coarsest = coarsest.ok_or_else(|| {
        Error::invalid(format!(
            "vanka:levels={most}: the coarsest level has {} unknowns, too many for a direct solve; give more levels, or leave \
             levels out",
            sizes.unknowns.last().copied().unwrap_or(0)
        ))
    })?;
    let cycle = VankaCycle { levels, coarsest: (on, coarsest), sweeps };
    Ok((Fieldwise { cycle, a: matrix.clone(), scalar, steps }, sizes))
}

/// Returns P from the next level, and its fields; `None` if the level cannot be coarsened.
fn interpolation<S: SolverSpace>(
    space: &S,
    a: &Csr,
    fields: &[LevelField],
    level: usize,
) -> Result<Option<(Csr, Vec<LevelField>)>> {
    let n = a.rows();
    let matrix = Bsr::from_storage(1, a.storage().clone());
    let set = |unknowns: &[u32]| Numbered::new(unknowns, n);
    let others: Vec<u32> =
        fields.iter().filter(|f| !f.is_constraint).flat_map(|f| f.unknowns.clone()).collect();
    let others = set(&others);
    let block = |rows: &Numbered, columns: &Numbered| {
        SubMatrix::new(space, &matrix, rows, columns).map(|made| made.csr)
    };
    let inverse = inverted(space.diagonal(&block(&others, &others)?, false)?);
    let how = Coarsening { strength: STRENGTH, aggressive: 0, ..Coarsening::of(CoarsenKind::Classical) };
    let mut next: Vec<LevelField> = Vec::new();
    // For each unknown the field, its place in it, and the rows of P of each field.
    let (mut place, mut parts) = (vec![(0u32, 0u32); n], Vec::new());
    let mut width = 0;
    for (f, field) in fields.iter().enumerate() {
        // The first unknowns of the blocks stand for all: their entries have signs, which blocks hide.
        let first: Vec<u32> = field.unknowns.iter().step_by(field.block).copied().collect();
        let own = set(&first);
        field.unknowns.iter().zip(0..).for_each(|(&i, k)| place[i as usize] = (f as u32, k));
        let d = block(&own, &own)?;
        let of_field = match field.is_constraint {
            false => d,
            true => {
                let weight = Weight { diagonal: Some(&inverse), sign: -1.0 };
                space.product(Some(&d), &block(&own, &others)?, weight, &block(&others, &own)?)?
            }
        };
        let couplings = space.couplings(&Terms::csr(&of_field)?)?;
        let Some(transfer) = space.transfer(&couplings, &how, level)? else { return Ok(None) };
        let unknowns = transfer.prolongation.block_columns() * field.block;
        let range = width as u32..(width + unknowns) as u32;
        next.push(LevelField { unknowns: range.collect(), ..*field });
        parts.push((transfer.prolongation, field.block, width));
        width += unknowns;
    }
    if width as f64 > STALLED * n as f64 {
        return Ok(None);
    }
    let row = |i: usize| {
        let (f, k) = place[i];
        let ((p, block, first), k) = (&parts[f as usize], k as usize);
        let entries = p.row_ptr()[k / block]..p.row_ptr()[k / block + 1];
        entries.map(move |at| ((first + p.col()[at] as usize * block + k % block) as u32, p.values()[at]))
    };
    let mut row_ptr = Vec::with_capacity(n + 1);
    row_ptr.push(0);
    (0..n).for_each(|i| row_ptr.push(row_ptr[i] + row(i).len()));
    let (col, values) = (0..n).into_par_iter().flat_map_iter(row).unzip();
    Ok(Some((Csr::new(n, width, row_ptr, col, values)?, next)))
}

impl<S: SolverSpace> Preconditioner<S> for Fieldwise<S> {
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        self.a = space.with_values(&self.a, values_of(values.term(0))?)?;
        self.scalar.update(space, &self.a)?;
        let (on, inverse) = &mut self.cycle.coarsest;
        let count = self.steps.len();
        for k in 0..count {
            let level = &mut self.cycle.levels[k];
            let (before, rest) = self.steps.split_at_mut(k);
            match before.last() {
                None => level.smoother.update_values(&level.space, terms, values)?,
                Some(step) => {
                    let terms = step.matrix.terms();
                    level.smoother.update_values(&level.space, &terms, TermValues::from(&terms))?;
                }
            }
            let fine = before.last().map_or(&self.scalar.csr, |step| &step.products[1]);
            let Step { transfer: [p, transposed], products: [product, galerkin], matrix } = &mut rest[0];
            space.product_again(None, fine, Weight::ONE, p, product)?;
            space.product_again(None, transposed, Weight::ONE, product, galerkin)?;
            let below = self.cycle.levels.get(k + 1).map_or(&*on, |below| &below.space);
            matrix.update(below, galerkin)?;
        }
        match self.steps.last() {
            Some(step) => inverse.update_values(on, &step.matrix.terms()),
            None => Ok(()),
        }
    }
}
