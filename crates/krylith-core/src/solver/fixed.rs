//! Fixed unknowns: those whose own row has only a diagonal entry, although other rows use them.
//!
//! Unknowns without any entry in their row and column are treated alike, with x = 0: A′ has 1 on their
//! diagonal. Such rows are left where all nodes of an element have given values, as the pressures of corner
//! tetrahedra in an enclosed flow. Their entry of b has to be zero.
//!
//! Many codes impose a boundary value by replacing row i with dᵢ xᵢ = bᵢ, and leave column i unchanged. Then
//! A is not symmetric even if the equations are, and coarse levels mix fixed and other unknowns. Methods also
//! iterate for values that one division gives.
//!
//! F are the fixed unknowns, D is their diagonal, and E has the entries of other rows in the columns F. The
//! devices solve A′ x = b′ with A′ = A − E and b′ = b − E x_F, where x_F = D⁻¹ b_F. Up to rounding, both
//! systems have the same residual, so the stopping criterion remains that of A x = b. For Aᵀ y = c, the
//! devices solve A′ᵀ y = c for the other unknowns, and y_F = D⁻¹ (c_F − Eᵀ y) follows. There
//! `relative_to=r0` means the residual of the guess after y_F was set to zero.

use super::Solver;
use super::attempt::least_part;
use super::host_criterion::HostCriterion;
use super::recognise::ScalarRows;
use super::solution::{Event, EventKind};
use crate::comm::agree;
use crate::halo::to_owners;
use crate::matrix::zeros::Kept;
use crate::matrix::{Arrays, Bsr, check_finite};
use crate::memory::{Numbers, NumbersMut};
use crate::operator::Terms;
use crate::problem::Problem;
use crate::space::{Criterion, Outcome, RelativeTo, Stop};
use crate::text::{count, plural};
use crate::{Error, Result};
use rayon::prelude::*;
use std::borrow::Cow;

/// Any method solves smaller systems at once.
const LEAST: usize = 256;

/// Why a solver is broken if a solve does not come back.
const PANIC: &str = "a solve has panicked";

/// An entry of another row in the column of a fixed unknown.
struct Coupling {
    /// Its position among the stored numbers.
    place: usize,
    /// The own unknown of its row, and the own or ghost unknown of its column.
    row: u32,
    column: u32,
}

/// The fixed unknowns of a system, and what the devices do not see.
pub(super) struct Fixed<'a> {
    /// The problem as given, with the values of the last update.
    pub given: Problem<'a>,
    /// Each own fixed unknown, and the position of its diagonal among the stored numbers.
    unknowns: Vec<(u32, usize)>,
    /// The entries of E in own rows, row by row.
    couplings: Vec<Coupling>,
    /// The blocks that A′ keeps: all but those in which E is alone.
    kept: Kept,
    /// The positions of the other entries of E among the numbers of A′.
    zeroed: Vec<usize>,
    /// Unknowns without entries, with the positions of their diagonals among the numbers of A′.
    empty: Vec<(u32, usize)>,
    /// The remark for reports.
    pub note: String,
    /// Host vectors of a solve: the right-hand side and the solution.
    vectors: [Vec<f64>; 2],
}

/// Separates the fixed unknowns of a problem. Returns the problem that the devices solve, and a record of the
/// others if there are any. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub(super) fn without(problem: Problem<'_>) -> Result<(Problem<'_>, Option<Fixed<'_>>)> {
    let Some(Found { fixed, unknowns, couplings, empty }) = found(&problem)? else {
        return Ok((problem, None));
    };
    let a = &problem.terms.terms[0].1;
    let (kept, zeroed) = separated(a, &fixed, &couplings);
    let (mut without, empty) = with_diagonals(kept.of(&[a]).swap_remove(0), empty)?;
    let values = without.values_mut();
    zeroed.iter().for_each(|&place| values[place] = 0.0);
    empty.iter().for_each(|&(_, place)| values[place] = 1.0);
    let mut less = problem.clone();
    less.terms.terms[0].1 = Cow::Owned(without);
    less.given = Vec::new();
    if !empty.is_empty() {
        // A′ does not map these unknowns to zero.
        let clear = |v: &mut Vec<f64>| empty.iter().for_each(|&(u, _)| v[u as usize] = 0.0);
        less.null.to_mut().iter_mut().for_each(clear);
    }
    let mut rows = [unknowns.len() as f64];
    problem.comm.sum(&mut rows)?;
    let note = note(rows[0] as usize, empty.len());
    let vectors = Default::default();
    Ok((less, Some(Fixed { given: problem, unknowns, couplings, kept, zeroed, empty, note, vectors })))
}

/// Returns the remark for reports.
fn note(rows: usize, empty: usize) -> String {
    let fixed = match rows {
        0 => None,
        1 => {
            Some("1 row has only a diagonal entry, and other rows use its unknown; it is solved first".into())
        }
        _ => Some(format!(
            "{} rows have only a diagonal entry, and other rows use their unknowns; they are solved first",
            count(rows)
        )),
    };
    let empty = match empty {
        0 => None,
        _ => Some(format!("{} without entries in row and column are set to zero", plural(empty, "unknown"))),
    };
    fixed.into_iter().chain(empty).collect::<Vec<String>>().join("; ")
}

/// What was found in a matrix.
struct Found {
    /// True for own and ghost unknowns that are fixed or empty.
    fixed: Vec<bool>,
    /// The own fixed unknowns, with the positions of their diagonals.
    unknowns: Vec<(u32, usize)>,
    /// The entries of other rows in these columns.
    couplings: Vec<Coupling>,
    /// The unknowns without entries in row and column.
    empty: Vec<u32>,
}

/// Finds the fixed unknowns of a problem. `None` if no other row refers to one, and no row is empty.
/// Collective.
fn found(problem: &Problem) -> Result<Option<Found>> {
    let (terms, comm) = (&problem.terms, &*problem.comm);
    let [(c, a)] = &terms.terms[..] else { return Ok(None) };
    if problem.unknowns < LEAST || terms.stages() != 1 || c[(0, 0)] != 1.0 {
        return Ok(None);
    }
    // The host needs the entries only if a device finds such rows.
    let looked = if terms.halo.is_none() { a.storage().refers_to_fixed_rows(a.block()) } else { Ok(None) };
    let looked = agree(comm, looked)?.unwrap_or(!a.storage().is_on_device_alone());
    let mut nowhere = [f64::from(u8::from(!looked))];
    comm.sum(&mut nowhere)?;
    if nowhere[0] > 0.0 {
        return Ok(None);
    }
    let alone = ScalarRows::of(a).alone();
    let unknowns = fixed_unknowns(a, &alone);
    let empty = if terms.halo.is_none() { empty_unknowns(a, &alone) } else { Vec::new() };
    let mut fixed = vec![false; terms.rows()];
    unknowns.iter().map(|(u, _)| u).chain(&empty).for_each(|&u| fixed[u as usize] = true);
    let mut rows = [(unknowns.len() + empty.len()) as f64];
    comm.sum(&mut rows)?;
    if rows[0] == 0.0 {
        return Ok(None);
    }
    if let Some(halo) = &terms.halo {
        let flags: Vec<f64> = fixed.iter().map(|fixed| f64::from(u8::from(*fixed))).collect();
        let all = halo.with_ghosts(comm, a.block(), &flags)?;
        fixed = all.into_iter().map(|flag| flag != 0.0).collect();
    }
    let couplings = couplings(a, &fixed);
    let values = a.values();
    let refers = !empty.is_empty() || couplings.iter().any(|e| values[e.place] != 0.0);
    let mut refers = [f64::from(u8::from(refers))];
    comm.sum(&mut refers)?;
    Ok((refers[0] > 0.0).then_some(Found { fixed, unknowns, couplings, empty }))
}

/// Finds the unknowns whose rows have only a diagonal, and the positions of these among the stored numbers.
fn fixed_unknowns(a: &Bsr, alone: &[bool]) -> Vec<(u32, usize)> {
    let (b, arrays) = (a.block(), Arrays::of(a));
    let place = |u: usize| {
        let (i, r) = (u / b, u % b);
        let at = arrays.row(i).find(|&p| arrays.col[p] as usize == i)?;
        let place = at * b * b + r * b + r;
        (arrays.values[place] != 0.0).then_some((u as u32, place))
    };
    let all = (0..alone.len()).into_par_iter().with_min_len(1024);
    all.filter(|&u| alone[u]).filter_map(place).collect()
}

/// Finds the unknowns without nonzero entries in row and column whose rows store some zero, so that A′ has
/// room for a diagonal entry.
fn empty_unknowns(a: &Bsr, alone: &[bool]) -> Vec<u32> {
    let (b, arrays, rows) = (a.block(), Arrays::of(a), ScalarRows::of(a));
    let has_room = |i: usize| match b {
        1 => !arrays.row(i).is_empty(),
        _ => arrays.row(i).any(|p| arrays.col[p] as usize == i),
    };
    let mut empty: Vec<u32> = (0..alone.len())
        .filter(|&u| alone[u] && rows.row(u).next().is_none() && has_room(u / b))
        .map(|u| u as u32)
        .collect();
    if !empty.is_empty() {
        let mut is_empty = vec![false; alone.len()];
        empty.iter().for_each(|&u| is_empty[u as usize] = true);
        let met: Vec<usize> = (0..alone.len())
            .into_par_iter()
            .with_min_len(1024)
            .flat_map_iter(|i| rows.row(i).map(|(j, _)| j).filter(|&j| is_empty[j]))
            .collect();
        met.into_iter().for_each(|j| is_empty[j] = false);
        empty.retain(|&u| is_empty[u as usize]);
    }
    empty
}

/// Returns the matrix with room for the diagonals of empty unknowns, and their positions. Where no diagonal
/// is stored, a stored zero of the row takes its column.
///
/// # Errors
/// An internal error of Krylith.
fn with_diagonals(a: Bsr, empty: Vec<u32>) -> Result<(Bsr, Vec<(u32, usize)>)> {
    let b = a.block();
    let mut places = Vec::with_capacity(empty.len());
    let mut moved: Vec<(usize, u32)> = Vec::new();
    for u in empty {
        let (i, r) = (u as usize / b, u as usize % b);
        let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
        let p = match a.col()[row.clone()].binary_search(&(i as u32)) {
            Ok(at) => row.start + at,
            Err(at) => {
                let p = row.start + at.min(row.len() - 1);
                moved.push((p, i as u32));
                p
            }
        };
        places.push((u, p * b * b + r * b + r));
    }
    if moved.is_empty() {
        return Ok((a, places));
    }
    let mut col = a.col().to_vec();
    moved.into_iter().for_each(|(p, i)| col[p] = i);
    let (rows, columns) = (a.block_rows(), a.block_columns());
    let a = Bsr::new(b, rows, columns, a.row_ptr().to_vec(), col, a.values().to_vec())?;
    Ok((a, places))
}

/// Finds the stored entries of other rows in the columns of fixed unknowns, row by row.
fn couplings(a: &Bsr, fixed: &[bool]) -> Vec<Coupling> {
    let (b, arrays) = (a.block(), Arrays::of(a));
    let node: Vec<bool> = fixed.chunks_exact(b).map(|node| node.contains(&true)).collect();
    let of_row = |i: usize| {
        let (arrays, node) = (&arrays, &node);
        let entries = arrays.row(i).filter(move |&p| node[arrays.col[p] as usize]).flat_map(move |p| {
            (0..b * b).map(move |e| (p * b * b + e, i * b + e / b, arrays.col[p] as usize * b + e % b))
        });
        entries
            .filter(|&(_, row, column)| fixed[column] && !fixed[row])
            .map(|(place, row, column)| Coupling { place, row: row as u32, column: column as u32 })
    };
    (0..a.block_rows()).into_par_iter().with_min_len(256).flat_map_iter(of_row).collect()
}

/// Returns the blocks that stay without these entries, and the positions of the other entries among the
/// numbers that stay. A block goes if all its rows or columns are those of fixed unknowns.
fn separated(a: &Bsr, fixed: &[bool], couplings: &[Coupling]) -> (Kept, Vec<usize>) {
    let (b, unit) = (a.block(), a.block() * a.block());
    let alone = |e: &Coupling| {
        let (row, column) = (e.row as usize / b * b, e.column as usize / b * b);
        (0..unit).all(|k| fixed[row + k / b] || fixed[column + k % b])
    };
    let blocks = couplings.chunk_by(|x, y| x.place / unit == y.place / unit);
    let (gone, partial): (Vec<_>, Vec<_>) = blocks.partition(|entries| alone(&entries[0]));
    let kept = Kept::without(gone.iter().map(|entries| entries[0].place / unit).collect(), a.blocks());
    let place = |e: &Coupling| kept.before(e.place / unit) * unit + e.place % unit;
    let zeroed = partial.into_iter().flatten().map(place).collect();
    (kept, zeroed)
}

impl Fixed<'_> {
    /// Copies new values from the given problem to the terms that the devices solve. Returns false if a fixed
    /// row has other entries than its diagonal now. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn update(&self, less: &mut Terms) -> Result<bool> {
        let whole = &self.given.terms.terms[0].1;
        let rows = ScalarRows::of(whole);
        let changed = |&(u, place): &(u32, usize)| {
            whole.values()[place] == 0.0 || rows.row(u as usize).any(|(j, _)| j != u as usize)
        };
        let mut is_empty = vec![false; if self.empty.is_empty() { 0 } else { whole.rows() }];
        self.empty.iter().for_each(|&(u, _)| is_empty[u as usize] = true);
        let used = |&(u, _): &(u32, usize)| rows.row(u as usize).next().is_some();
        let coupled = |e: &Coupling| is_empty[e.column as usize] && whole.values()[e.place] != 0.0;
        let filled =
            self.empty.iter().any(used) || !is_empty.is_empty() && self.couplings.iter().any(coupled);
        let mut changed = [f64::from(u8::from(filled || self.unknowns.iter().any(changed)))];
        self.given.comm.sum(&mut changed)?;
        if changed[0] > 0.0 {
            return Ok(false);
        }
        let to = less.terms.first_mut().ok_or_else(|| Error::Internal("a problem without a term".into()))?;
        let to = to.1.to_mut().values_mut();
        self.kept.gather(whole.block() * whole.block(), whole.values(), to);
        self.zeroed.iter().for_each(|&place| to[place] = 0.0);
        self.empty.iter().for_each(|&(_, place)| to[place] = 1.0);
        Ok(true)
    }

    /// Adds E x, or Eᵀ x, to y. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn add_product(&self, transposed: bool, x: &[f64], y: &mut [f64]) -> Result<()> {
        let (values, own) = (self.given.terms.terms[0].1.values(), x.len());
        let (comm, halo, b) = (&*self.given.comm, &self.given.terms.halo, self.given.block());
        if !transposed {
            let x = match halo {
                None => Cow::Borrowed(x),
                Some(halo) => Cow::Owned(halo.with_ghosts(comm, b, x)?),
            };
            let add = |e: &Coupling| y[e.row as usize] += values[e.place] * x[e.column as usize];
            self.couplings.iter().for_each(add);
            self.subtract_empty(&x, y);
            return Ok(());
        }
        let ghosts = halo.as_ref().map_or(0, |halo| halo.ghosts * b);
        let mut sums = vec![0.0; own + ghosts];
        for e in &self.couplings {
            sums[e.column as usize] += values[e.place] * x[e.row as usize];
        }
        if let Some(halo) = halo {
            to_owners(comm, halo, b, &mut sums, |own, more| own + more)?;
        }
        y.iter_mut().zip(sums).for_each(|(y, more)| *y += more);
        self.subtract_empty(x, y);
        Ok(())
    }

    /// Subtracts what the diagonals of empty unknowns have added to A′ x.
    fn subtract_empty(&self, x: &[f64], y: &mut [f64]) {
        self.empty.iter().for_each(|&(u, _)| y[u as usize] -= x[u as usize]);
    }

    /// Returns the norm of b in the rows of empty unknowns.
    fn unreachable(&self, b: &[f64]) -> f64 {
        self.empty.iter().fold(0.0, |norm: f64, &(u, _)| norm.hypot(b[u as usize]))
    }

    /// Divides the numbers of fixed unknowns by their diagonals.
    fn divide(&self, x: &mut [f64]) {
        let values = self.given.terms.terms[0].1.values();
        self.unknowns.iter().for_each(|&(u, place)| x[u as usize] /= values[place]);
    }

    /// Computes the right-hand side and the initial x of the devices. Returns the former with their stopping
    /// criterion and ‖b‖₂ of the given system.
    fn begin(&self, transposed: bool, stop: Stop, b: &[f64], x: &mut [f64]) -> Result<(Vec<f64>, Stop, f64)> {
        let original = self.given.original();
        let norm = original.norm(b)?;
        let first = stop.relative_to == RelativeTo::R0 && !transposed;
        let reference = match stop.criterion {
            _ if stop.reference.is_some() => stop.reference,
            Criterion::Residual if first => Some(original.norm(&original.residual(b, x)?)?),
            Criterion::Rows if !transposed => {
                let criterion = HostCriterion::new(original, stop);
                let r0 = if first { criterion.of(b, x, &original.residual(b, x)?)?.value } else { 0.0 };
                Some(criterion.reference(b, norm, r0)?)
            }
            _ => None,
        };
        let mut rhs = b.to_vec();
        for &(u, _) in &self.unknowns {
            let u = u as usize;
            (rhs[u], x[u]) = if transposed { (0.0, 0.0) } else { (b[u], b[u]) };
        }
        self.empty.iter().for_each(|&(u, _)| (rhs[u as usize], x[u as usize]) = (0.0, 0.0));
        if !transposed {
            self.divide(x);
            let mut product = vec![0.0; b.len()];
            self.add_product(false, x, &mut product)?;
            rhs.iter_mut().zip(product).for_each(|(b, more)| *b -= more);
        }
        let known = |norm: &f64| *norm > 0.0 && norm.is_finite();
        let given_norm = Some(norm).filter(|norm| stop.is_usual() && known(norm));
        Ok((rhs, Stop { reference: reference.filter(known), given_norm, ..stop }, norm))
    }

    /// Computes the right-hand side and the initial x of one of several columns, and the tolerance relative
    /// to this right-hand side.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn begin_column(
        &self,
        transposed: bool,
        stop: Stop,
        b: &[f64],
        x: &mut [f64],
    ) -> Result<(Vec<f64>, f64)> {
        let (rhs, own, _) = self.begin(transposed, stop, b, x)?;
        let norm = self.given.original().norm(&rhs)?;
        let share = own.given_norm.map_or(1.0, |given| given / norm);
        let share = if share > 0.0 && share.is_finite() { share } else { 1.0 };
        Ok((rhs, stop.rtol * share))
    }

    /// Sets the fixed unknowns of an x that the devices have found.
    fn end(&self, transposed: bool, b: &[f64], x: &mut [f64]) -> Result<()> {
        let mut exact = b.to_vec();
        if transposed {
            let mut product = vec![0.0; x.len()];
            self.add_product(true, x, &mut product)?;
            exact.iter_mut().zip(product).for_each(|(b, more)| *b -= more);
        }
        self.divide(&mut exact);
        self.unknowns.iter().for_each(|&(u, _)| x[u as usize] = exact[u as usize]);
        self.empty.iter().for_each(|&(u, _)| x[u as usize] = 0.0);
        Ok(())
    }
}

impl Solver<'_> {
    /// Sets the fixed unknowns of x, and runs `solve` for the others, with b′ and a stopping criterion that
    /// means the same for A x = b. Without fixed unknowns it runs `solve` directly. Collective.
    pub(super) fn without_fixed(
        &mut self,
        transposed: bool,
        b: Numbers,
        mut x: NumbersMut,
        solve: impl FnOnce(&mut Self, Stop, Numbers, NumbersMut) -> Result<()>,
    ) -> Result<()> {
        let Some(mut fixed) = self.fixed.take() else { return solve(self, self.stop, b, x) };
        // A panic must not leave a solver of A′.
        self.broken.get_or_insert_with(|| PANIC.into());
        let done = self.separately(&mut fixed, transposed, b, x.reborrow(), solve);
        self.broken.take_if(|why| why == PANIC);
        self.fixed = Some(fixed);
        done
    }

    fn separately(
        &mut self,
        fixed: &mut Fixed,
        transposed: bool,
        b: Numbers,
        mut x: NumbersMut,
        solve: impl FnOnce(&mut Self, Stop, Numbers, NumbersMut) -> Result<()>,
    ) -> Result<()> {
        let [mut b_here, mut x_here] = std::mem::take(&mut fixed.vectors);
        let from_gpu = b.gpu().is_some();
        x_here.resize(x.len(), 0.0);
        let read = b.on_host(&mut b_here).and_then(|b| {
            x.as_array().read(&mut x_here)?;
            if from_gpu {
                check_finite("b", b)?
            }
            Ok(b)
        });
        let b = agree(&*fixed.given.comm, read)?;
        let stop = self.stop;
        let (rhs, inner, norm) = self.workers.first(|| fixed.begin(transposed, stop, b, &mut x_here))?;
        let found = solve(self, inner, Numbers::from(&rhs), NumbersMut::from(&mut x_here));
        let ended = found.and_then(|()| {
            self.workers.first(|| {
                fixed.end(transposed, b, &mut x_here)?;
                if transposed || stop.is_usual() {
                    return Ok(None);
                }
                let original = fixed.given.original();
                let r = original.residual(b, &x_here)?;
                HostCriterion::new(original, stop).of(b, &x_here, &r).map(Some)
            })
        });
        let exact = ended?;
        x.write(&x_here)?;
        let unreachable = fixed.unreachable(b);
        let history = &mut self.solution.history;
        let reference = history.reference;
        history.rhs_norm = norm;
        // Row norms and |A′||x| + |b′| are at most those of the given system, so the quotients of the devices
        // are too large.
        if let Some(exact) = exact.filter(|_| norm > 0.0 && reference > 0.0) {
            history.true_relative_residual = exact.plain / norm;
            history.criterion_value = history.criterion_value.min(exact.value / reference);
            if let Some(last) = history.residuals.last_mut() {
                *last = history.criterion_value;
            }
            let met = history.criterion_value <= stop.relative_target(history);
            if met && history.outcome == Outcome::RoundingLimit {
                (history.outcome, history.reason) = (Outcome::Converged, None);
            }
        }
        if unreachable > 0.0 && norm > 0.0 {
            let share = unreachable / norm;
            history.true_relative_residual = history.true_relative_residual.hypot(share);
            history.criterion_value = history.criterion_value.hypot(share);
            if unreachable > least_part(&stop, norm) {
                (history.outcome, history.reason) = (Outcome::Inconsistent, None);
                let detail = format!(
                    "b is not zero in {} without entries: no x brings ‖b − A x‖/‖b‖ below {share:.1e}",
                    plural(fixed.empty.len(), "row")
                );
                self.solution.events.push(Event::new(EventKind::Inconsistent, None, detail));
            }
        }
        fixed.vectors = [b_here, x_here];
        Ok(())
    }
}
