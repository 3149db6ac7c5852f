//! A preconditioner built from the matched matrix: M⁻¹ = D_c F⁻¹ P D_r, where F approximates P D_r A D_c. The
//! permutation P and the diagonal scales D_r and D_c come from a matching ([`Matching`]).
//!
//! As with [`Equilibrated`], the operator, residuals and tolerances remain those of A. Blocks are split, so
//! that scalar rows are permuted. The permutation is a product with a matrix of one entry per row, which
//! every device supports. An update of values keeps the permutation and the scales. On several ranks, each
//! rank gathers the whole matrix and computes the matching. Then each row moves to the rank of its new
//! position. One application with n unknowns moves F, 10 n numbers, and 12 bytes per row for the permutation.

use super::{Boxed, PrecondInfo, Preconditioner, SharedOperator, by_name};
use crate::comm::{Communicator, agree};
use crate::halo::RowNumbers;
use crate::matching::{Matching, MatchingFound, gathered};
use crate::matrix::Csr;
use crate::operator::{LinearOperator, PointBlock, TermValues, Terms};
use crate::precond::{Equilibrated, PrecondSpec, Scaling};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::space::Precision;
use crate::text::{count, plural, seconds};
use crate::{Error, Result};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// The preconditioner D_c F⁻¹ P D_r.
struct Matched<S: SolverSpace> {
    scaled: Equilibrated<S, Permuted<S>>,
    system: System,
    operator: Option<SharedOperator<S>>,
}

/// F⁻¹ P, or P alone if F is the identity.
struct Permuted<S: SolverSpace> {
    permutation: PointBlock<S>,
    work: RefCell<S::Vector>,
    inner: Boxed<S>,
}

/// The matching, and the distribution of rows over ranks.
struct System {
    matching: Arc<Matching>,
    /// Global numbers of own unknowns, if several ranks share the rows.
    numbers: Option<Vec<u64>>,
}

impl System {
    /// Gathers the whole matrix with scalar rows. Collective.
    fn whole(comm: &dyn Communicator, terms: &Terms, numbers: Option<&[u64]>) -> Result<Csr> {
        let own = agree(comm, scalars(terms))?;
        match numbers {
            None => Ok(own),
            Some(numbers) => gathered::whole(comm, terms, &own, numbers),
        }
    }

    /// Extracts own rows of a global matrix. Collective.
    fn own(&self, comm: &dyn Communicator, whole: &Csr) -> Result<Terms<'static>> {
        match &self.numbers {
            None => Terms::csr(whole),
            Some(numbers) => gathered::part(comm, whole, numbers),
        }
    }

    /// Extracts the entries of own unknowns from a global vector.
    fn of_own(&self, whole: Vec<f64>) -> Vec<f64> {
        match &self.numbers {
            None => whole,
            Some(numbers) => numbers.iter().map(|&i| whole[i as usize]).collect(),
        }
    }
}

/// Builds the preconditioner `wanted` for the matched matrix. Collective.
pub(super) fn build<S: SolverSpace>(
    space: &S,
    local: &LocalProblem,
    wanted: &PrecondSpec,
    precision: Precision,
    a: &SharedOperator<S>,
    found: &MatchingFound,
    notes: &mut Vec<String>,
) -> Result<(Boxed<S>, PrecondInfo)> {
    let start = Instant::now();
    let survey = profile::begin(SetupPart::SystemAnalysis);
    let comm = space.comm();
    let numbers = local.numbers.map(|numbers| gathered::unknowns(numbers, local.terms.block()));
    let csr = System::whole(comm, local.terms, numbers.as_deref())?;
    let system = System { matching: agree(comm, found.or_find(&csr))?, numbers };
    let matching = &system.matching;
    let scaled = system.own(comm, &matching.scaled(&csr)?)?;
    drop(csr);
    let n = matching.rows().len();
    let permutation = system.own(comm, &permutation(matching)?)?;
    let permutation = PointBlock::new(space, &permutation, Precision::F64, false)?;
    drop(survey);
    let moved = matching.rows().iter().enumerate().filter(|(place, row)| *place != **row as usize).count();
    let time = seconds(start.elapsed().as_secs_f64());
    let detail =
        format!("rows matched with columns: {} of {} moved, in {time}", count(moved), plural(n, "row"));
    let unmatched = matching.unmatched();
    if !unmatched.is_empty() {
        let first: Vec<usize> = unmatched.iter().map(|&row| row as usize).collect();
        let rows = crate::solver::Indices::of(&first);
        notes.push(format!("rows {rows} match no column: the matrix is structurally singular"));
    }
    // Nodes, coordinates and planned subdomains belong to A, not to the permuted matrix.
    let numbers = system.numbers.as_deref().map(RowNumbers::List);
    let nodes =
        LocalProblem { numbers, near: None, coordinates: None, grid: None, subdomains: None, ..*local };
    let local = &LocalProblem { terms: &scaled, ..nodes };
    let operator = match wanted.multiplies() {
        true => Some(Rc::new(RefCell::new(PointBlock::new(space, &scaled, precision, false)?))),
        false => None,
    };
    let place = |e| match e {
        Error::SingularBlock { row, kind, remedy } => {
            Error::SingularBlock { row: matching.rows()[row] as usize, kind, remedy }
        }
        Error::Pivot { row, kind, remedy } => {
            Error::Pivot { row: matching.rows()[row] as usize, kind, remedy }
        }
        e => e,
    };
    let made = by_name(space, &scaled, local, wanted, precision, operator.as_ref().unwrap_or(a), notes);
    let (inner, mut info) = made.map_err(place)?;
    info.details.push(detail);
    info.keeps_symmetry = false;
    let [rows, columns] =
        [matching.row_scales(), matching.column_scales()].map(|scales| system.of_own(scales));
    let scaling = Scaling { rows, columns };
    let permuted = Permuted { permutation, work: RefCell::new(space.vector()?), inner };
    let scaled = Equilibrated::new(space, &scaling, Some(permuted))?;
    Ok((Some(Box::new(Matched { scaled, system, operator })), info))
}

/// Returns P as a matrix.
fn permutation(matching: &Matching) -> Result<Csr> {
    let n = matching.rows().len();
    Csr::new(n, n, (0..=n).collect(), matching.rows().to_vec(), vec![1.0; n])
}

/// Returns the matrix of a single term with scalar rows.
fn scalars(terms: &Terms) -> Result<Csr> {
    let [(c, a)] = &terms.terms[..] else {
        return Err(Error::Unsupported(
            "matching: a sum of terms cannot be matched; use `matching=auto`".into(),
        ));
    };
    let mut csr = a.to_csr();
    let c = c[(0, 0)];
    if c != 1.0 {
        csr.values_mut().iter_mut().for_each(|v| *v *= c);
    }
    Ok(csr)
}

impl<S: SolverSpace> LinearOperator<S> for Permuted<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let Some(inner) = &self.inner else { return self.permutation.apply(space, x, y) };
        let work = &mut *self.work.borrow_mut();
        self.permutation.apply(space, x, work)?;
        inner.apply(space, work, y)
    }
    fn has_transpose(&self) -> bool {
        self.inner.as_ref().is_none_or(|p| p.has_transpose())
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let Some(inner) = &self.inner else { return self.permutation.apply_transpose(space, x, y) };
        let work = &mut *self.work.borrow_mut();
        inner.apply_transpose(space, x, work)?;
        self.permutation.apply_transpose(space, work, y)
    }
    fn key(&self) -> u64 {
        self.permutation.key() ^ self.inner.as_ref().map_or(0, |p| p.key().rotate_left(12))
    }
    fn bytes(&self) -> u64 {
        self.permutation.bytes() + self.inner.as_ref().map_or(0, |p| p.bytes())
    }
    fn recordable(&self) -> bool {
        self.permutation.recordable() && self.inner.as_ref().is_none_or(|p| p.recordable())
    }
}

impl<S: SolverSpace> LinearOperator<S> for Matched<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.scaled.apply(space, x, y)
    }
    fn has_transpose(&self) -> bool {
        self.scaled.has_transpose()
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.scaled.apply_transpose(space, x, y)
    }
    fn key(&self) -> u64 {
        self.scaled.key()
    }
    fn bytes(&self) -> u64 {
        self.scaled.bytes()
    }
    fn recordable(&self) -> bool {
        self.scaled.recordable()
    }
}

impl<S: SolverSpace> Matched<S> {
    /// Returns the permuted and scaled terms. Collective.
    fn permuted(&self, comm: &dyn Communicator, terms: &Terms) -> Result<Terms<'static>> {
        let system = &self.system;
        let whole = System::whole(comm, terms, system.numbers.as_deref())?;
        system.own(comm, &system.matching.scaled(&whole)?)
    }
}

impl<S: SolverSpace> Preconditioner<S> for Matched<S> {
    fn update_values(&mut self, space: &S, terms: &Terms, _: TermValues) -> Result<()> {
        let scaled = self.permuted(space.comm(), terms)?;
        if let Some(a) = &self.operator {
            a.borrow_mut().update_values(space, 0, scaled.terms[0].1.numbers())?;
        }
        let inner = self.scaled.inner_mut().and_then(|p| p.inner.as_mut());
        inner.map_or(Ok(()), |p| p.update_values(space, &scaled, TermValues::from(&scaled)))
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        let scaled = self.permuted(space.comm(), terms)?;
        let permutation = self.system.own(space.comm(), &permutation(&self.system.matching)?)?;
        if let Some(a) = &self.operator {
            a.borrow_mut().prepare_transpose(space, &scaled)?;
        }
        let Some(permuted) = self.scaled.inner_mut() else { return Ok(()) };
        permuted.permutation.prepare_transpose(space, &permutation)?;
        permuted.inner.as_mut().map_or(Ok(()), |p| p.prepare_transpose(space, &scaled))
    }
    fn take_events(&mut self) -> Vec<String> {
        let inner = self.scaled.inner_mut().and_then(|p| p.inner.as_mut());
        inner.map_or_else(Vec::new, |p| p.take_events())
    }
}
