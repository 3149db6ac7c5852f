//! Drops stored zeros before the pattern is analysed. Callers still give new values for all stored entries.

use super::solution::{Event, EventKind};
use super::{Solver, engines};
use crate::comm::Communicator;
use crate::halo::Halo;
use crate::interrupt::Limits;
use crate::matrix::zeros::{Kept, keep_mirrored, zero_blocks, zeros, zeros_of_sample};
use crate::matrix::{Bsr, ZerosChoice};
use crate::operator::Terms;
use crate::options::Options;
use crate::problem::Problem;
use crate::profile;
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// Zero blocks are dropped if they are more than this share of the blocks that a term stores.
const MANY: f64 = 0.1;
/// Zero blocks are counted if they are more than this share of a sample.
const FEW: f64 = 0.05;

/// Record of the dropped zeros.
pub(super) struct Dropped<'a> {
    /// The problem as given, with the values of the last update.
    pub whole: Problem<'a>,
    /// The kept blocks of each term; `None` if all are kept.
    kept: Vec<Option<Arc<Kept>>>,
    /// The remark for reports.
    pub note: String,
}

/// Drops the stored zeros of a problem if the options request it, and returns a record of them. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub(super) fn without<'a>(
    problem: Problem<'a>,
    options: &Options,
) -> Result<(Problem<'a>, Option<Dropped<'a>>)> {
    let choice = options.zeros.unwrap_or_default();
    let terms = &problem.terms;
    // Terms with a shared pattern must have one afterwards, because their products are computed together. All
    // ranks decide together.
    let two = choice != ZerosChoice::Keep && terms.terms.len() == 2;
    let mut apart = [f64::from(u8::from(two && !terms.shared_pattern()))];
    if two {
        problem.comm.sum(&mut apart)?;
    }
    let groups: &[&[usize]] = match terms.terms.len() {
        2 if apart == [0.0] => &[&[0, 1]],
        1 => &[&[0]],
        _ => &[&[0], &[1]],
    };
    let (mut kept, mut counts) = (vec![None; terms.terms.len()], [0.0; 2]);
    for group in groups.iter().filter(|_| choice != ZerosChoice::Keep) {
        let matrices: Vec<&Bsr> = group.iter().map(|&t| &*terms.terms[t].1).collect();
        let Some((found, [dropped, stored])) = kept_of(&matrices, terms, &*problem.comm, choice)? else {
            continue;
        };
        group.iter().for_each(|&t| kept[t] = Some(found.clone()));
        counts = [counts[0] + dropped, counts[1] + stored];
    }
    if kept.iter().all(Option::is_none) {
        return Ok((problem, None));
    }
    let mut less = problem.clone();
    for group in groups {
        let Some(kept) = &kept[group[0]] else { continue };
        let matrices: Vec<&Bsr> = group.iter().map(|&t| &*terms.terms[t].1).collect();
        for (&t, a) in group.iter().zip(kept.of(&matrices)) {
            less.terms.terms[t].1 = Cow::Owned(a);
        }
    }
    less.given = Vec::new();
    let blocks = if less.block() > 1 { "blocks" } else { "entries" };
    let [dropped, stored] = counts;
    let note = format!(
        "stored zeros dropped: {} of {} {blocks} ({:.0} %); zeros=keep keeps them",
        crate::text::count(dropped as usize),
        crate::text::count(stored as usize),
        100.0 * dropped / stored
    );
    Ok((less, Some(Dropped { whole: problem, kept, note })))
}

/// For matrices with one pattern, returns the blocks to keep, and the numbers of dropped and stored blocks on
/// all ranks; `None` if zeros are kept. Collective.
fn kept_of(
    matrices: &[&Bsr],
    terms: &Terms,
    comm: &dyn Communicator,
    choice: ZerosChoice,
) -> Result<Option<(Arc<Kept>, [f64; 2])>> {
    let all = matrices[0].blocks() as f64;
    let enough = |zeros: f64, all: f64| zeros > 0.0 && (choice == ZerosChoice::Drop || zeros > MANY * all);
    if choice == ZerosChoice::Auto {
        let mut counts = [probable(matrices)?, all];
        comm.sum(&mut counts)?;
        if !(counts[0] > FEW * counts[1]) {
            return Ok(None);
        }
    }
    let mut counts = [zeros(matrices) as f64, all];
    comm.sum(&mut counts)?;
    if !enough(counts[0], counts[1]) {
        return Ok(None);
    }
    let mut zero = zero_blocks(matrices);
    // Compare with the other ranks before changing anything, so that a mirrored pair of zeros is dropped on
    // both ranks.
    let far = match &terms.halo {
        Some(halo) => mirrored_elsewhere(matrices[0], halo, comm, &zero)?,
        None => Vec::new(),
    };
    keep_mirrored(matrices[0], &mut zero);
    far.into_iter().for_each(|p| zero[p] = false);
    let mut counts = [zero.iter().filter(|zero| **zero).count() as f64, all];
    comm.sum(&mut counts)?;
    Ok(enough(counts[0], counts[1]).then(|| (Arc::new(Kept::all_but(&zero)), counts)))
}

/// Estimates the number of blocks that are zero in all of these matrices, from a sample. Blocks that are only
/// on a device are counted there, so that entries come to the host only if there are many zeros. Two matrices
/// on a device count as full.
fn probable(matrices: &[&Bsr]) -> Result<f64> {
    if !matrices.iter().any(|a| a.storage().is_on_device_alone()) {
        return Ok(zeros_of_sample(matrices));
    }
    let [a] = matrices else { return Ok(0.0) };
    Ok(a.storage().count_zero_blocks(a.block() * a.block())?.unwrap_or(0) as f64)
}

/// Returns the zero blocks (i, j) in ghost columns for which block (j, i), on the rank that owns j, is not
/// zero. Collective.
fn mirrored_elsewhere(a: &Bsr, halo: &Halo, comm: &dyn Communicator, zero: &[bool]) -> Result<Vec<usize>> {
    // The position of a node in the message to a neighbour is its position among the ghosts on that rank.
    let mut asked: Vec<Vec<usize>> = vec![Vec::new(); comm.size()];
    let mut questions: Vec<Vec<u8>> = vec![Vec::new(); comm.size()];
    let mut sent = vec![u32::MAX; halo.own];
    for n in &halo.neighbours {
        let own = &halo.send[n.send.clone()];
        own.iter().enumerate().for_each(|(k, &i)| sent[i as usize] = k as u32);
        let ghosts = halo.own + n.receive.start..halo.own + n.receive.end;
        for &i in own {
            for p in a.row_ptr()[i as usize]..a.row_ptr()[i as usize + 1] {
                let j = a.col()[p] as usize;
                if zero[p] && ghosts.contains(&j) {
                    asked[n.rank].push(p);
                    for word in [(j - ghosts.start) as u32, sent[i as usize]] {
                        questions[n.rank].extend(word.to_le_bytes());
                    }
                }
            }
        }
    }
    let received = comm.all_to_all(questions)?;
    let mut answers: Vec<Vec<u8>> = vec![Vec::new(); comm.size()];
    for n in &halo.neighbours {
        let word = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap_or_default()) as usize;
        answers[n.rank] = received[n.rank]
            .chunks_exact(8)
            .map(|pair| {
                let (row, ghost) = (halo.send[n.send.clone()].get(word(&pair[..4])), word(&pair[4..]));
                let Some(&row) = row else { return 0 };
                let columns = a.row_ptr()[row as usize]..a.row_ptr()[row as usize + 1];
                let column = (halo.own + n.receive.start + ghost) as u32;
                let at = a.col()[columns.clone()].iter().position(|&j| j == column);
                u8::from(at.is_some_and(|at| !zero[columns.start + at]))
            })
            .collect();
    }
    let answers = comm.all_to_all(answers)?;
    let nonzero = |(places, answers): (Vec<usize>, Vec<u8>)| {
        places.into_iter().zip(answers).filter(|(_, answer)| *answer != 0).map(|(place, _)| place)
    };
    Ok(asked.into_iter().zip(answers).flat_map(nonzero).collect())
}

impl Solver<'_> {
    /// Sets up the problem again as it was given, because with the new values some fixed rows or dropped
    /// zeros are no longer such.
    pub(super) fn take_whole(&mut self) -> Result<()> {
        let (fixed, dropped) = (self.fixed.take(), self.dropped.take());
        let by_fixed = fixed.is_some();
        let given = fixed.map(|fixed| fixed.given).or(dropped.map(|dropped| dropped.whole));
        let Some(mut whole) = given else { return Ok(()) };
        // The whole problem already has the new values, but not the coefficients.
        for (to, from) in whole.terms.terms.iter_mut().zip(&self.problem.terms.terms) {
            to.0 = from.0.clone();
        }
        whole.stages = self.problem.stages.clone();
        (whole.fields, whole.near) = (self.problem.fields.clone(), self.problem.near.clone());
        self.problem = whole;
        (self.rows, self.adjoint) = (None, None);
        let limits = Limits { cancel: self.cancel.clone(), deadline: None };
        let made = {
            let _entered = limits.enter();
            engines(&self.problem, &self.options, &mut self.workers)
        };
        match made {
            Ok(solution) => self.solution = solution,
            Err(e) => {
                self.broken = Some(e.to_string()); // the state belongs to the old pattern
                return Err(e);
            }
        }
        self.setup = profile::take();
        let why = match by_fixed {
            false => {
                "new values are not zero where stored zeros had been dropped; from now on zeros are kept"
            }
            true => {
                "new values are not zero in rows that had only a diagonal entry, or where stored zeros had been \
                 dropped; from now on the system is solved as given"
            }
        };
        let why = format!("the system was set up again: {why}");
        self.pending = Some(Event::new(EventKind::Choice, None, why));
        Ok(())
    }
}

impl Dropped<'_> {
    /// Copies new values of a term from the whole problem to the reduced one; returns false if a dropped
    /// entry is no longer zero. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn update(&self, term: usize, less: &mut Terms) -> Result<bool> {
        let (kept, whole) = (&self.kept[term], &self.whole.terms.terms[term].1);
        let unit = whole.block() * whole.block();
        let mut missed = [f64::from(u8::from(kept.as_ref().is_some_and(|k| k.misses(unit, whole.values()))))];
        self.whole.comm.sum(&mut missed)?;
        if missed[0] > 0.0 {
            return Ok(false);
        }
        let to =
            less.terms.get_mut(term).ok_or_else(|| Error::Internal("a term without its zeros".into()))?;
        let to = to.1.to_mut().values_mut();
        match kept {
            Some(kept) => kept.gather(unit, whole.values(), to),
            None => to.copy_from_slice(whole.values()),
        }
        Ok(true)
    }
}
