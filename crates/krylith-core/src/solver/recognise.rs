//! Recognises coupled systems from the matrix alone, on the host, in the time of about ten products.
//!
//! Found fields are added to the problem, so that the rules of `auto` can name them. Nothing is looked for if
//! the user named a preconditioner or fields, and for sums of terms. Of a matrix that is only on a GPU, one
//! rank recognises saddle points.

mod cells;
mod curl;
mod elastic;
mod nodes;
mod ranks;
mod ritz;
pub(super) mod saddle;

use super::fixed::{self, Fixed};
use super::zeros::{self, Dropped};
use crate::Result;
use crate::fields::{Field, Recognised};
use crate::matrix::{Arrays, Bsr};
use crate::method::MethodName;
use crate::options::Options;
use crate::precond::PrecondSpec;
use crate::problem::Problem;
use crate::text::count;
use rayon::prelude::*;
use std::sync::Arc;

/// Smaller systems are solved at once by any attempt.
const LEAST: usize = 1000;

/// A problem for the devices, with records of what was separated from it.
pub(super) struct Prepared<'a> {
    pub problem: Problem<'a>,
    pub fixed: Option<Fixed<'a>>,
    pub dropped: Option<Dropped<'a>>,
    /// A remark on what was recognised beside the fields.
    pub recognised: Option<&'static str>,
}

impl Prepared<'_> {
    /// Returns the remarks for reports.
    pub fn remarks(&self) -> Vec<String> {
        remarks(self.fixed.as_ref(), self.dropped.as_ref(), self.recognised)
    }
}

/// Returns the remarks for reports.
pub(super) fn remarks(
    fixed: Option<&Fixed>,
    dropped: Option<&Dropped>,
    recognised: Option<&'static str>,
) -> Vec<String> {
    let separated = fixed.map(|fixed| &fixed.note).into_iter().chain(dropped.map(|dropped| &dropped.note));
    separated.cloned().chain(recognised.map(Into::into)).collect()
}

/// Separates fixed unknowns and stored zeros, and adds what `auto` may use: the fields of a coupled system,
/// or the rigid motions of an elastic body. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub(super) fn prepared<'a>(problem: Problem<'a>, options: &Options) -> Result<Prepared<'a>> {
    let (problem, mut fixed) = fixed::without(problem)?;
    let (mut problem, dropped) = zeros::without(problem, options)?;
    let motions = elastic::rigid_motions(&problem)?;
    let recognised = motions.is_some().then_some(elastic::NOTE);
    problem.near = problem.near.or(motions);
    if let Some((list, found)) = of(&problem, options)? {
        let mut fields = problem.checked_fields(list)?;
        fields.mark(found);
        problem.fields = Arc::new(fields);
        fixed.iter_mut().for_each(|fixed| fixed.given.fields = problem.fields.clone());
    }
    Ok(Prepared { problem, fixed, dropped, recognised })
}

/// The fields of a coupled system, and what it is.
type Found = (Vec<Field>, Recognised);

/// Returns the fields of a coupled system; `None` if it is not recognised or `auto` may not use it. Over
/// ranks they have global numbers. Collective.
///
/// # Errors
/// A rank that has ended or failed.
fn of(problem: &Problem, options: &Options) -> Result<Option<Found>> {
    let open = *options.precond_or_auto() == PrecondSpec::Auto
        && !options.method.is_some_and(MethodName::needs_symmetry)
        && problem.fields.all().is_empty();
    let [(c, a)] = &problem.terms.terms[..] else { return Ok(None) };
    let plain = problem.terms.stages() == 1 && c[(0, 0)] == 1.0;
    let fits = (LEAST..=u32::MAX as usize).contains(&problem.unknowns);
    if !open || !plain || !fits {
        return Ok(None);
    }
    match problem.numbers.as_deref() {
        Some(numbers) if problem.comm.size() > 1 => {
            let b = a.block();
            let number = |i: usize| numbers[i / b] as usize * b + i % b;
            let found = if a.storage().is_on_device_alone() { None } else { found_in(a) };
            ranks::agreed(&*problem.comm, found, number)
        }
        None if problem.terms.halo.is_none() && may_show(a)? => Ok(found_in(a)),
        _ => Ok(None),
    }
}

/// Returns the reason why no coupled system is recognised in a problem of one rank, in words. `None` if
/// fields are named. It takes the time of a few products.
pub(super) fn reason(problem: &Problem, options: &Options) -> Option<String> {
    if !problem.fields.all().is_empty() {
        return None;
    }
    let why = match &problem.terms.terms[..] {
        _ if *options.precond_or_auto() != PrecondSpec::Auto => "the options name a preconditioner".into(),
        _ if options.method.is_some_and(MethodName::needs_symmetry) => "the options name CG".into(),
        [(_, a)] if problem.terms.stages() == 1 => {
            if problem.unknowns < LEAST {
                format!("there are fewer than {} unknowns", count(LEAST))
            } else if a.storage().is_on_device_alone() {
                "the matrix is only on a GPU".into()
            } else {
                return Some(format!("no coupled system, because {}", missing(&ScalarRows::of_own(a))));
            }
        }
        _ => "the operator is a sum of matrices".into(),
    };
    Some(format!("no coupled system was looked for, because {why}"))
}

/// Returns what a matrix lacks of a saddle point.
fn missing(a: &ScalarRows) -> String {
    let Some(diagonal) = a.diagonal() else { return "a row is empty or not finite".into() };
    let of_sign = |sign: f64| diagonal.iter().filter(|d| sign * **d > 0.0).count();
    let (positive, negative) = (of_sign(1.0), of_sign(-1.0));
    let (n, others) = (a.rows, a.rows - positive.max(negative));
    let sign = if positive >= negative { 1.0 } else { -1.0 };
    let constraint: Vec<bool> = diagonal.iter().map(|d| sign * d <= 0.0).collect();
    let (zero, rarer) = (n - positive - negative, positive.min(negative));
    let some = match (zero, rarer) {
        (0, 0) => {
            return "no diagonal entry is zero or of the rarer sign, and no cells or edges are seen".into();
        }
        (_, 0) => format!("{} of {} diagonal entries are zero", count(zero), count(n)),
        (0, _) => format!("{} of {} diagonal entries have the rarer sign", count(rarer), count(n)),
        _ => format!("{} of {} diagonal entries are zero or of the rarer sign", count(others), count(n)),
    };
    let coupled = || {
        let rows = (0..n).into_par_iter().with_min_len(1024);
        rows.filter(|&i| constraint[i] && a.row(i).any(|(j, _)| constraint[j])).count()
    };
    if !saddle::may_be(others, n) {
        let is_few = 2 * others < n;
        return if is_few { format!("only {some}") } else { format!("{some}, too many for constraints") };
    }
    let why = match rarer {
        0 => match coupled() {
            0 => {
                "but many of them couple to no other unknown, or the block of the others is indefinite".into()
            }
            some => format!("and {} of them couple to each other", count(some)),
        },
        _ if !ritz::is_symmetric(a, &vec![true; n]) => "but the matrix is not symmetric".into(),
        _ => "but their block or that of the others is indefinite".to_string(),
    };
    format!("{some}, {why}")
}

/// Returns what the block of own rows and columns is.
fn found_in(a: &Bsr) -> Option<Found> {
    let a = ScalarRows::of_own(a);
    let diagonal = a.diagonal()?;
    saddle::find(&a, &diagonal).or_else(|| curl::find(&a, &diagonal)).or_else(|| cells::find(&a))
}

/// Returns true if the host has the matrix, or should fetch it because its diagonal may be that of a saddle
/// point. Other coupled systems are not recognised on a device.
fn may_show(a: &Bsr) -> Result<bool> {
    let storage = a.storage();
    let Some([negative, zero, positive]) = storage.diagonal_signs(a.block())? else {
        return Ok(!storage.is_on_device_alone());
    };
    let others = negative.min(positive) + zero;
    Ok(saddle::may_be(others as usize, a.block_rows() * a.block()))
}

/// Returns about `most` of `count` numbers, one at a random place of each stretch, so that periods in the
/// order of nodes do not matter: with quadratic elements every second node may be a vertex.
pub(super) fn sample(count: usize, most: usize) -> impl Iterator<Item = usize> + Clone {
    let step = (count / most).max(1);
    let hash = |k: usize| (k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..count / step).map(move |k| k * step + hash(k) as usize % step)
}

/// The rows of a matrix in point blocks.
pub(super) struct ScalarRows<'a> {
    a: Arrays<'a>,
    block: usize,
    rows: usize,
    /// Entries in columns from here on are left out.
    columns: usize,
}

impl<'a> ScalarRows<'a> {
    pub fn of(a: &'a Bsr) -> Self {
        let (rows, columns) = (a.block_rows() * a.block(), a.columns());
        Self { a: Arrays::of(a), block: a.block(), rows, columns }
    }

    /// The same without the columns of ghosts.
    pub fn of_own(a: &'a Bsr) -> Self {
        let rows = a.block_rows() * a.block();
        Self { columns: rows, ..Self::of(a) }
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Returns the number of stored entries.
    fn entries(&self) -> usize {
        self.a.values.len()
    }

    /// Returns the number of entries that are stored in a row.
    fn stored(&self, i: usize) -> usize {
        self.a.row(i / self.block).len() * self.block
    }

    /// Returns columns and values of the nonzero entries of a row.
    #[inline]
    pub fn row(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        let n = self.columns;
        self.whole_row(i).filter(move |(j, _)| *j < n)
    }

    /// Returns an entry; zero if it is not stored.
    pub fn entry(&self, i: usize, j: usize) -> f64 {
        self.row(i).find(|(k, _)| *k == j).map_or(0.0, |(_, v)| v)
    }

    /// The same as [`row`](Self::row) with columns of ghosts.
    #[inline]
    fn whole_row(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        let (b, r) = (self.block, i % self.block);
        let entries = self.a.row(i / b).flat_map(move |p| {
            let values = &self.a.values[p * b * b + r * b..p * b * b + (r + 1) * b];
            let first = self.a.col[p] as usize * b;
            values.iter().enumerate().map(move |(c, v)| (first + c, *v))
        });
        entries.filter(|(_, v)| *v != 0.0)
    }

    /// Returns columns and values of the entries of a row, some of which may be zero, if blocks have order 1.
    /// Loops over them are several times as fast.
    #[inline]
    fn scalar_row(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        let n = self.columns;
        self.whole_scalar_row(i).filter(move |(j, _)| *j < n)
    }

    /// The same with columns of ghosts.
    #[inline]
    fn whole_scalar_row(&self, i: usize) -> impl Iterator<Item = (usize, f64)> {
        let columns = self.a.col[self.a.row(i)].iter().map(|j| *j as usize);
        columns.zip(self.a.values[self.a.row(i)].iter().copied())
    }

    /// Returns the diagonal; `None` if a row is empty or a value is not finite.
    fn diagonal(&self) -> Option<Vec<f64>> {
        fn of(i: usize, row: impl Iterator<Item = (usize, f64)>) -> Option<f64> {
            let (mut diagonal, mut sum) = (0.0, 0.0);
            for (j, v) in row {
                diagonal += if j == i { v } else { 0.0 };
                sum += v.abs();
            }
            (sum > 0.0 && sum.is_finite()).then_some(diagonal)
        }
        let of = |i: usize| match self.block {
            1 => of(i, self.whole_scalar_row(i)),
            _ => of(i, self.whole_row(i)),
        };
        (0..self.rows).into_par_iter().with_min_len(1024).map(of).collect()
    }

    /// Marks the rows that have only a diagonal entry.
    pub fn alone(&self) -> Vec<bool> {
        let alone = |i: usize| self.whole_row(i).all(|(j, _)| j == i);
        (0..self.rows).into_par_iter().with_min_len(1024).map(alone).collect()
    }

    /// Returns A x in the rows that `of` selects, and zero in others.
    fn times(&self, of: &[bool], x: &[f64]) -> Vec<f64> {
        let row = |i: usize| match (of[i], self.block) {
            (false, _) => 0.0,
            (true, 1) => self.scalar_row(i).map(|(j, v)| v * x[j]).sum(),
            (true, _) => self.row(i).map(|(j, v)| v * x[j]).sum(),
        };
        (0..self.rows).into_par_iter().with_min_len(1024).map(row).collect()
    }
}
