//! The part of one field: which unknowns of it this rank has, its matrix, and its preconditioner.
//!
//! Over ranks, a field is numbered by the places of its unknowns in the caller's list. If each rank listed
//! only its own unknowns, the ranks are numbered one after the other.

use super::ghosts::Columns;
use super::{LocalProblem, PrecondInfo, Preconditioner, SharedOperator, Untouched, by_name};
use crate::comm::agree;
use crate::fields::{Field, Fields};
use crate::halo::{Halo, RowNumbers};
use crate::matrix::{Bsr, Csr, Dense};
use crate::operator::{PointBlock, Terms};
use crate::precond::assemble::{Grouped, Numbered};
use crate::precond::{NullSpace, PrecondSpec};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::count;
use crate::{Error, Result};
use std::borrow::Cow;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;

/// A field as one rank has it.
#[derive(Clone)]
pub(super) struct OwnField {
    /// Its name, and the near-null vectors and coordinates of own unknowns.
    pub field: Field,
    /// Local numbers of own unknowns, in the order of the field.
    pub unknowns: Vec<u32>,
    /// Numbers in the field of own blocks; `None` if this rank has the whole field.
    pub blocks: Option<Vec<u64>>,
    /// Number of unknowns of the field on all ranks.
    pub total: usize,
    /// Places of own unknowns in this rank's list, if ranks list different unknowns.
    pub places: Option<Vec<usize>>,
}

/// Returns the numbers of a field's unknowns in vectors of `stages` stages.
pub(super) fn in_stages(unknowns: &[u32], stages: usize) -> Vec<u32> {
    let s = stages as u32;
    unknowns.iter().flat_map(|&i| (0..s).map(move |k| i * s + k)).collect()
}

impl OwnField {
    /// A field that this rank has as a whole.
    pub fn whole(field: Field) -> Self {
        let (unknowns, total) = (field.unknowns().to_vec(), field.unknowns().len());
        Self { field, unknowns, blocks: None, total, places: None }
    }

    /// Finds the own unknowns of the field that `label` names. Collective over ranks.
    ///
    /// # Errors
    /// A field that does not exist; a block of the field whose unknowns belong to several ranks.
    pub fn find(local: &LocalProblem, label: &str) -> Result<Self> {
        let field = local.fields.field(label)?;
        let Some(numbers) = local.numbers else { return Ok(Self::whole(field)) };
        let (b, list) = (local.terms.block(), field.unknowns());
        let own = local_number(numbers);
        let find = |&i: &u32| own(u64::from(i) / b as u64).map(|node| node * b as u32 + i % b as u32);
        let (places, unknowns): (Vec<usize>, Vec<u32>) =
            list.iter().enumerate().filter_map(|(place, i)| Some((place, find(i)?))).unzip();
        // Numbers of own unknowns of all ranks.
        let mut counts = vec![0.0; local.comm.size()];
        counts[local.comm.rank()] = unknowns.len() as f64;
        local.comm.sum(&mut counts)?;
        let total = counts.iter().sum::<f64>() as usize;
        let first: f64 = counts[..local.comm.rank()].iter().sum();
        let mut short = [f64::from(u8::from(list.len() != total))];
        local.comm.sum(&mut short)?;
        // Every rank listed the whole field.
        let whole = short[0] == 0.0;
        let size = field.block();
        let number = |k: usize| if whole { places[k] } else { first as usize + k };
        let blocks = (0..unknowns.len()).step_by(size).map(|k| {
            let together = k + size <= unknowns.len()
                && number(k).is_multiple_of(size)
                && (k..k + size).all(|i| number(i) == number(k) + i - k);
            match together {
                true => Ok((number(k) / size) as u64),
                false => Err(Error::invalid(format!(
                    "field `{}`: the unknowns of a block of {size} belong to several ranks; give each block to one",
                    field.name()
                ))),
            }
        });
        let blocks = agree(local.comm, blocks.collect::<Result<Vec<u64>>>())?;
        let field = field.restricted(&places);
        Ok(Self { field, unknowns, blocks: Some(blocks), total, places: (!whole).then_some(places) })
    }

    /// Returns the fields inside this one, which `label` names, with its numbers.
    ///
    /// # Errors
    /// A field that does not exist.
    pub fn inner(&self, local: &LocalProblem, label: &str) -> Result<Fields> {
        let inner = local.fields.within(label)?;
        let (Some(places), Some(blocks)) = (&self.places, &self.blocks) else { return Ok(inner) };
        let size = self.field.block();
        let own = places.iter().enumerate();
        let number: HashMap<u32, u32> = own
            .map(|(k, &place)| (place as u32, (blocks[k / size] as usize * size + k % size) as u32))
            .collect();
        Ok(inner.mapped(|place| number.get(&place).copied()))
    }
}

/// Returns the local number of a block row, if it is this rank's own.
fn local_number(numbers: RowNumbers) -> Box<dyn Fn(u64) -> Option<u32> + '_> {
    if let Some(run) = numbers.as_run() {
        return Box::new(move |node| run.contains(&node).then(|| (node - run.start) as u32));
    }
    let own: HashMap<u64, u32> = (0..numbers.len()).map(|i| (numbers.at(i), i as u32)).collect();
    Box::new(move |node| own.get(&node).copied())
}

/// Returns the fields of the parts, checked: together they have each unknown once. Collective.
pub(super) fn fields_of(local: &LocalProblem, labels: &[&str], name: &str) -> Result<Vec<OwnField>> {
    let names: Vec<&str> = labels.iter().flat_map(|label| label.split('+')).collect();
    labels.iter().try_for_each(|label| local.fields.field(label).map(drop))?;
    if let Some((_, twice)) = names.iter().enumerate().find(|(i, name)| names[..*i].contains(name)) {
        return Err(Error::invalid(format!("{name}: the field `{twice}` is in two parts")));
    }
    let missing: Vec<&str> =
        local.fields.all().iter().map(Field::name).filter(|f| !names.contains(f)).collect();
    if !missing.is_empty() {
        return Err(Error::invalid(format!(
            "{name}: no part has the fields {}; every field needs a part",
            missing.join(", ")
        )));
    }
    let fields: Vec<OwnField> =
        labels.iter().map(|label| OwnField::find(local, label)).collect::<Result<_>>()?;
    let found: usize = fields.iter().map(|own| own.unknowns.len()).sum();
    let all = match found * local.terms.stages() == local.terms.rows() {
        true => Ok(()),
        false => Err(Error::invalid(format!(
            "{name}: the parts have {} of this rank's {} unknowns; every unknown needs a field",
            count(found),
            count(local.terms.rows() / local.terms.stages())
        ))),
    };
    agree(local.comm, all)?;
    Ok(fields)
}

/// Refuses sums of several terms, which fields cannot cut.
pub(super) fn one_matrix(local: &LocalProblem, name: &str) -> Result<()> {
    match local.terms.terms.len() == 1 && local.terms.stages() == 1 {
        true => Ok(()),
        false => Err(Error::Unsupported(format!(
            "{name} needs one matrix; this system is a Kronecker sum. Write stage({name}(…)), which treats one stage after the other"
        ))),
    }
}

/// The unknowns of each field in this rank's rows and columns.
pub(super) struct Layout {
    /// Rows, and columns with ghosts.
    pub sets: Vec<Numbered>,
    /// Columns of the fields over ranks.
    pub columns: Vec<Option<Arc<Columns>>>,
    /// Columns of the system that are ghosts of each field, and their numbers in the field.
    ghosts: Vec<Vec<(u32, u64)>>,
    /// Number of columns of the system.
    width: usize,
}

impl Layout {
    /// Numbers own and ghost unknowns of the fields. Collective.
    pub fn new(local: &LocalProblem, fields: &[OwnField]) -> Result<Self> {
        let (b, width) = (local.terms.block(), local.terms.terms[0].1.columns());
        let Some(halo) = &local.terms.halo else {
            let sets = fields.iter().map(|own| Numbered::new(&own.unknowns, width)).collect();
            let (columns, ghosts) = (vec![None; fields.len()], vec![Vec::new(); fields.len()]);
            return Ok(Self { sets, columns, ghosts, width });
        };
        // The field of each own unknown and its number there, as one number that f64 holds exactly.
        const FIELD: f64 = (1u64 << 44) as f64;
        let mut codes = vec![-1.0; halo.own * b];
        for (f, own) in fields.iter().enumerate() {
            let size = own.field.block();
            for (k, &i) in own.unknowns.iter().enumerate() {
                let block = own.blocks.as_ref().map_or(k / size, |blocks| blocks[k / size] as usize);
                codes[i as usize] = f as f64 * FIELD + (block * size + k % size) as f64;
            }
        }
        let codes = halo.with_ghosts(local.comm, b, &codes)?;
        let (sets, columns) = (Vec::new(), Vec::new());
        let mut made = Self { sets, columns, ghosts: Vec::new(), width };
        for (f, own) in fields.iter().enumerate() {
            let size = own.field.block();
            let ghosts = codes.iter().zip(0u32..).skip(halo.own * b);
            let ghosts = ghosts.filter(|(code, _)| **code >= 0.0 && (**code / FIELD) as usize == f);
            let ghosts = ghosts.map(|(code, column)| (column, (code - f as f64 * FIELD) as u64));
            let ghosts: Vec<(u32, u64)> = ghosts.collect();
            let none = Vec::new();
            let blocks = own.blocks.as_ref().unwrap_or(&none);
            let (own_halo, numbering) =
                Halo::build(local.comm, blocks, ghosts.iter().map(|(_, number)| number / size as u64))?;
            let columns = Arc::new(Columns::new(size, own_halo, numbering));
            made.ghosts.push(ghosts);
            made.sets.push(made.set_in(f, own, &columns));
            made.columns.push(Some(columns));
        }
        Ok(made)
    }

    /// Returns the set of field `f` with the places of its ghosts among `columns`.
    pub fn set_in(&self, f: usize, own: &OwnField, columns: &Columns) -> Numbered {
        let places = self.ghosts[f].iter().map(|&(column, number)| (column, columns.place(number)));
        Numbered::new(&own.unknowns, self.width).with_ghosts(places, columns.width())
    }

    /// Returns the halo of field `f` in blocks, over ranks.
    pub fn halo(&self, f: usize) -> Option<Arc<Halo>> {
        self.columns[f].as_ref().map(|columns| columns.halo.clone())
    }

    /// Returns the halo of field `f` in single unknowns, over ranks.
    pub fn scalar_halo(&self, f: usize) -> Option<Arc<Halo>> {
        self.columns[f].as_ref().map(|columns| columns.scalars())
    }
}

/// A block of a matrix as a scalar matrix.
pub(super) struct SubMatrix<S: SolverSpace> {
    pub csr: Csr,
    /// What new values need; `None` for a whole matrix of scalars.
    cut: Option<S::Cut>,
}

impl<S: SolverSpace> SubMatrix<S> {
    /// Cuts the entries in these rows and columns out of `a`.
    pub fn new(space: &S, a: &Bsr, rows: &Numbered, columns: &Numbered) -> Result<Self> {
        let (csr, cut) = space.cut(a, rows, columns)?;
        Ok(Self { csr, cut: Some(cut) })
    }

    /// Returns all entries of `a`.
    pub fn whole(space: &S, a: &Bsr) -> Result<Self> {
        if a.block() == 1 {
            return Ok(Self { csr: Csr::from_storage(a.storage().clone()), cut: None });
        }
        let all = |n: usize| Numbered::new(&(0..n as u32).collect::<Vec<_>>(), n);
        Self::new(space, a, &all(a.rows()), &all(a.columns()))
    }

    /// Takes new values from those of the whole matrix.
    pub fn update(&mut self, space: &S, a: &Bsr) -> Result<()> {
        match &self.cut {
            Some(cut) => space.cut_again(a, cut, &mut self.csr),
            None => {
                self.csr = Csr::from_storage(a.storage().clone());
                Ok(())
            }
        }
    }
}

/// Copies a matrix to the device of `space`.
pub(super) fn placed<S: SolverSpace>(space: &S, a: &Csr) -> Result<Csr> {
    let placed = space.place(&Terms::csr(a)?)?;
    Ok(Csr::from_storage(placed.terms[0].1.storage().clone()))
}

/// The matrix of a part in its own space, as blocks and as an operator. It is a sum of terms like the system.
pub(super) struct PartMatrix<S: SolverSpace> {
    grouped: Vec<Grouped>,
    coefficients: Vec<Dense>,
    pub operator: SharedOperator<S>,
    halo: Option<Arc<Halo>>,
    precision: Precision,
}

impl<S: SolverSpace> PartMatrix<S> {
    /// Uploads a scalar matrix in blocks of this size, over ranks with its halo. Collective.
    pub fn new(
        space: &S,
        csr: &Csr,
        block: usize,
        precision: Precision,
        halo: Option<Arc<Halo>>,
    ) -> Result<Self> {
        Self::sum(space, &[(Dense::identity(1), csr)], block, precision, halo)
    }

    /// Uploads a sum of terms C ⊗ A. Collective.
    pub fn sum(
        space: &S,
        terms: &[(Dense, &Csr)],
        block: usize,
        precision: Precision,
        halo: Option<Arc<Halo>>,
    ) -> Result<Self> {
        let made = (|| {
            let grouped =
                terms.iter().map(|(_, csr)| space.grouped(csr, block)).collect::<Result<Vec<_>>>()?;
            // One copy on the device serves the operator and the set-up of the preconditioner.
            let all = terms.iter().zip(&grouped).map(|((c, _), of)| (c.clone(), Cow::Borrowed(&of.bsr)));
            let placed = space.place(&Terms::new(all.collect())?.with_halo(halo.clone()))?;
            let placed: Vec<Bsr> = placed.terms.into_iter().map(|(_, bsr)| bsr.into_owned()).collect();
            let with = |(mut of, bsr): (Grouped, Bsr)| {
                of.bsr = bsr;
                of
            };
            Ok(grouped.into_iter().zip(placed).map(with).collect())
        })();
        let grouped: Vec<Grouped> = agree(space.comm(), made)?;
        let coefficients: Vec<Dense> = terms.iter().map(|(c, _)| c.clone()).collect();
        let placed = terms_of(&coefficients, &grouped, &halo);
        let operator = agree(space.comm(), PointBlock::new(space, &placed, precision, false))?;
        Ok(Self { grouped, coefficients, operator: Rc::new(RefCell::new(operator)), halo, precision })
    }

    /// Returns the matrix as terms.
    pub fn terms(&self) -> Terms<'_> {
        terms_of(&self.coefficients, &self.grouped, &self.halo)
    }

    /// Takes new values of a matrix of one term.
    pub fn update(&mut self, space: &S, csr: &Csr) -> Result<()> {
        self.update_terms(space, &[csr], &[Dense::identity(1)])
    }

    /// Takes new values of the first matrices, and new coefficients of all.
    pub fn update_terms(&mut self, space: &S, csr: &[&Csr], coefficients: &[Dense]) -> Result<()> {
        for (csr, grouped) in csr.iter().zip(&mut self.grouped) {
            space.group_again(csr, grouped)?;
        }
        self.coefficients = coefficients.to_vec();
        renew(space, &self.terms(), &self.operator, self.precision)
    }
}

fn terms_of<'g>(coefficients: &[Dense], grouped: &'g [Grouped], halo: &Option<Arc<Halo>>) -> Terms<'g> {
    let terms = coefficients.iter().zip(grouped).map(|(c, of)| (c.clone(), Cow::Borrowed(&of.bsr)));
    Terms { terms: terms.collect(), halo: halo.clone() }
}

/// Gives an operator new values and coefficients. Values that break the structure found inside the blocks
/// need a new one.
pub(super) fn renew<S: SolverSpace>(
    space: &S,
    terms: &Terms,
    operator: &SharedOperator<S>,
    precision: Precision,
) -> Result<()> {
    let updated = (|| {
        let mut operator = operator.borrow_mut();
        for (t, (_, a)) in terms.terms.iter().enumerate() {
            operator.update_values(space, t, a.numbers())?;
        }
        if terms.stages() == 1 {
            return Ok(());
        }
        let coefficients: Vec<Dense> = terms.terms.iter().map(|(c, _)| c.clone()).collect();
        space.update_coefficients(operator.product_mut(), &coefficients)
    })();
    if space.any(updated.is_err())? {
        *operator.borrow_mut() = agree(space.comm(), PointBlock::new(space, terms, precision, false))?;
    }
    Ok(())
}

/// Builds the preconditioner of one part for its matrix. Collective.
pub(super) fn inverse_of<S: SolverSpace>(
    space: &S,
    matrix: &PartMatrix<S>,
    (own, inner): (&OwnField, &Fields),
    null: &[Vec<f64>],
    local: &LocalProblem,
    wanted: &PrecondSpec,
    notes: &mut Vec<String>,
) -> Result<(Box<dyn Preconditioner<S>>, PrecondInfo)> {
    let (terms, field) = (matrix.terms(), &own.field);
    let near = field.near().map_err(|e| in_field(field.name(), e))?;
    let sub = LocalProblem {
        terms: &terms,
        numbers: own.blocks.as_deref().map(RowNumbers::List),
        unknowns: own.total * terms.stages(),
        coordinates: field.coordinates(),
        grid: None,
        null,
        near: near.as_ref(),
        subdomains: None,
        stages: None,
        fields: inner,
        ..*local
    };
    let made = by_name(space, &terms, &sub, wanted, matrix.precision, &matrix.operator, notes);
    let (inverse, info) = made.map_err(|e| in_field(field.name(), e))?;
    let inverse = match inverse {
        Some(inverse) => inverse,
        None => Box::new(agree(space.comm(), Untouched::new(space, &[], None))?),
    };
    if null.is_empty() {
        return Ok((inverse, info));
    }
    Ok((Box::new(agree(space.comm(), NullSpace::new(space, null, Some(inverse)))?), info))
}

/// Names the field in an error about its block of the matrix.
fn in_field(name: &str, e: Error) -> Error {
    match e {
        Error::SingularBlock { row, kind, .. } => Error::invalid(format!(
            "field `{name}`: its own block of the matrix has a {kind} diagonal block in row {row}; if the equations of `{name}` \
             are a constraint, make it the last part, with a Schur complement: schur=upper, S=selfp or a matrix"
        )),
        Error::Invalid(text) => Error::Invalid(format!("field `{name}`: {text}")),
        Error::Unsupported(text) => Error::Unsupported(format!("field `{name}`: {text}")),
        e => e,
    }
}
