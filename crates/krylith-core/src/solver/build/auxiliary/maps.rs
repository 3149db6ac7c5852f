//! The maps P and R of a correction in an auxiliary space, on one rank or over ranks. R is Pᵀ unless the
//! caller gave it, which one rank can take.
//!
//! Over ranks, the caller gave the whole P, or own rows of it; its columns are numbers of the auxiliary
//! space. Each block of auxiliary unknowns belongs to the rank that has most entries of its columns.

use super::super::LocalProblem;
use super::super::ghosts::{Columns, GhostRows, of_rows};
use super::placed;
use crate::comm::wire::{Reader, packed};
use crate::comm::{Communicator, agree};
use crate::halo::{Halo, Numbering, RowNumbers, to_owners};
use crate::matrix::{Bsr, Csr};
use crate::operator::Terms;
use crate::precond::AuxSpec;
use crate::precond::NearNull;
use crate::precond::multilevel::ranks::rows::rows_of;
use crate::precond::multilevel::ranks::{FarRows, all_to_all};
use crate::solver::SolverSpace;
use crate::{Error, Result};
use std::collections::HashMap;
use std::sync::Arc;

/// Largest entry of P, relative to the largest of its row, that counts as a rounding error.
const ROUNDING: f64 = 1e-13;

/// Number of consecutive blocks for which one rank counts the entries.
const RUN: u64 = 64;

/// P and R.
pub(super) struct Maps {
    /// Own rows of P.
    pub p: Csr,
    /// Own rows of P, and those of ghosts.
    pub all: Csr,
    /// Own rows of R.
    pub restriction: Csr,
    /// Columns over ranks.
    pub columns: Option<Shared>,
    /// Number of unknowns of the auxiliary space.
    pub total: usize,
    /// Own rows of P with the rows of boundary values.
    given: Csr,
}

/// The columns of P and of its transpose over ranks.
pub(super) struct Shared {
    /// The halo of the fine unknowns that Pᵀ uses.
    pub fine: Arc<Halo>,
    /// Auxiliary unknowns that own rows of P use.
    pub own: Arc<Columns>,
    /// Auxiliary unknowns that own rows and those of ghosts use.
    pub all: Arc<Columns>,
}

impl Shared {
    /// Returns the numbers of own blocks of the auxiliary space.
    pub fn own(&self) -> Vec<u64> {
        self.own.own().to_vec()
    }
}

impl Maps {
    /// Takes the matrix of the caller. `a` are own rows of the system. Collective.
    ///
    /// # Errors
    /// No such matrix; a matrix of another size.
    pub fn new<S: SolverSpace>(
        space: &S,
        terms: &Terms,
        local: &LocalProblem,
        spec: &AuxSpec,
        a: &Csr,
    ) -> Result<Self> {
        let (name, comm) = (&spec.matrix, space.comm());
        let (given, n) = (local.fields.matrix(name)?, terms.rows());
        let whole = given.rows() == local.unknowns;
        let fits = (whole || (given.rows() == n && local.numbers.is_some()))
            && given.columns() % spec.block == 0
            && given.columns() > 0;
        let checked = match fits {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "aux: the matrix `{name}` is {}×{}; it needs {} rows, and columns that form blocks of {}",
                given.rows(),
                given.columns(),
                local.unknowns,
                spec.block
            ))),
        };
        agree(comm, checked)?;
        let alone = agree(comm, space.alone(a, None))?;
        let total = given.columns();
        let (Some(numbers), Some(halo)) = (local.numbers, terms.halo.as_ref()) else {
            let p = placed(space, &own_part(&given, &alone)?)?;
            let restriction = match &spec.restriction {
                None => {
                    let transposed = space.transposed(&Bsr::from_csr(&p, 1)?)?;
                    Csr::from_storage(transposed.storage().clone())
                }
                Some(name) => placed(space, &restriction(local, name, (total, n), &alone)?)?,
            };
            let given = (*given).clone();
            return Ok(Self { all: p.clone(), p, restriction, columns: None, total, given });
        };
        if let Some(name) = &spec.restriction {
            return Err(Error::Unsupported(format!(
                "aux: a system over ranks has R = Pᵀ; omit R={name}, or solve on one rank"
            )));
        }
        let (b, size) = (terms.block(), spec.block);
        // Own rows with columns of the auxiliary space.
        let row = |i: usize| if whole { numbers.at(i / b) as usize * b + i % b } else { i };
        let used = || (0..n).flat_map(|i| given.row(row(i)).0.iter().map(|&j| u64::from(j) / size as u64));
        let own = shares(comm, used(), (total / size) as u64)?;
        let (coarse, numbering) = Halo::build(comm, &own, used())?;
        let columns = Arc::new(Columns::new(size, coarse, numbering));
        let given = agree(comm, columns.localized(n, |i| given.row(row(i))))?;
        let p = agree(comm, own_part(&given, &alone))?;
        let fine = Arc::new(columns_of(comm, halo, numbers, b)?);
        let (transposed, rows) = transposed_over_ranks(comm, &p, &columns, &fine)?;
        let p = agree(comm, placed(space, &p))?;
        let transposed = agree(comm, placed(space, &transposed))?;
        let (ghosts, all) = GhostRows::new(space, fine.scalars(), &p, &columns)?;
        let shared = Shared { fine: rows.scalars(), own: columns, all: ghosts.to.clone() };
        Ok(Self { p, all, restriction: transposed, columns: Some(shared), total, given })
    }

    /// Returns vectors of the auxiliary space that P maps near the near-null vectors of the system: the
    /// values of the rows of P that only copy, and elsewhere averages weighted by P. Collective.
    pub fn near(&self, local: &LocalProblem) -> Result<Vec<Vec<f64>>> {
        let columns = self.given.columns();
        let vectors = local.near.map_or_else(Vec::new, NearNull::vectors);
        let near = vectors.iter().map(|v| {
            // Copied values and their number, weighted values and their weight.
            let mut sums = vec![0.0; 4 * columns];
            for (i, v) in v.iter().enumerate() {
                let (col, values) = self.given.row(i);
                let copies = matches!((col, values), ([_], [w]) if *w == 1.0);
                let first = if copies { 0 } else { 2 };
                for (&j, w) in col.iter().zip(values) {
                    sums[4 * j as usize + first] += w.abs() * v;
                    sums[4 * j as usize + first + 1] += w.abs();
                }
            }
            if let Some(shared) = &self.columns {
                to_owners(local.comm, &shared.own.scalars(), 4, &mut sums, |a, b| a + b)?;
                sums.truncate(4 * self.restriction.rows());
            }
            let value = |of: &[f64]| match of {
                [copied, count, ..] if *count > 0.0 => copied / count,
                [.., sum, weight] if *weight > 0.0 => sum / weight,
                _ => 0.0,
            };
            Ok(sums.chunks_exact(4).map(value).collect())
        });
        near.collect()
    }
}

/// Returns the matrix R of the caller without the columns of boundary values.
fn restriction(
    local: &LocalProblem,
    name: &str,
    (rows, columns): (usize, usize),
    alone: &[bool],
) -> Result<Csr> {
    let r = local.fields.matrix(name)?;
    if (r.rows(), r.columns()) != (rows, columns) {
        return Err(Error::invalid(format!(
            "aux: the matrix `{name}` is {}×{}; as R it needs {rows} rows, one for each column of P, and {columns} \
             columns",
            r.rows(),
            r.columns()
        )));
    }
    Ok(own_part(&r.transpose(), alone)?.transpose())
}

/// Returns the columns of the system.
fn columns_of(comm: &dyn Communicator, halo: &Halo, numbers: RowNumbers, b: usize) -> Result<Columns> {
    let own: Vec<f64> = (0..halo.own).map(|i| numbers.at(i) as f64).collect();
    let all: Vec<u64> = halo.with_ghosts(comm, 1, &own)?.into_iter().map(|v| v as u64).collect();
    Ok(Columns::new(b, halo.clone(), agree(comm, Numbering::of(comm.rank(), &all))?))
}

/// Returns own rows of Pᵀ, and the columns that they use. Collective.
fn transposed_over_ranks(
    comm: &dyn Communicator,
    p: &Csr,
    columns: &Columns,
    fine: &Columns,
) -> Result<(Csr, Columns)> {
    let halo = columns.scalars();
    let turned = agree(comm, Bsr::from_csr(&p.transpose(), 1))?;
    let ghosts: Vec<u32> = (halo.own as u32..(halo.own + halo.ghosts) as u32).collect();
    let sent = rows_of(&turned, &ghosts);
    let number = |i: u32| fine.number(i);
    let messages = halo.neighbours.iter();
    let messages = messages.map(|n| (n.rank, FarRows::message(&sent, n.receive.clone(), 1, &number)));
    let messages = all_to_all(comm, messages)?;
    let mut far = FarRows::default();
    for n in &halo.neighbours {
        far.take(&mut Reader::new(&messages[n.rank], n.rank), n.send.len(), 1)?;
    }
    let used = fine.with(comm, far.col.iter().copied())?;
    // Entries of own rows, and then those that other ranks sent.
    let mut rows: Vec<Vec<(u32, f64)>> = (0..halo.own)
        .map(|j| {
            let entries = turned.row_ptr()[j]..turned.row_ptr()[j + 1];
            entries.map(|p| (turned.col()[p], turned.values()[p])).collect()
        })
        .collect();
    let mut at = 0;
    for (&row, &length) in halo.send.iter().zip(&far.lengths) {
        let entries = at..at + length as usize;
        rows[row as usize].extend(entries.clone().map(|p| (used.place(far.col[p]), far.values[p])));
        at = entries.end;
    }
    let made = agree(comm, of_rows(rows.into_iter(), halo.own, used.width()))?;
    Ok((made, used))
}

/// Returns the blocks that this rank owns among `blocks`, given the block of each entry of its rows: each
/// block belongs to the rank that has most of its entries. Collective.
fn shares(comm: &dyn Communicator, used: impl Iterator<Item = u64>, blocks: u64) -> Result<Vec<u64>> {
    let size = comm.size() as u64;
    let mut counts: HashMap<u64, u64> = HashMap::new();
    used.for_each(|block| *counts.entry(block).or_default() += 1);
    let mut told: Vec<Vec<u64>> = vec![Vec::new(); comm.size()];
    for (block, count) in counts {
        told[(block / RUN % size) as usize].extend([block, count]);
    }
    let told = comm.all_to_all(told.iter().map(|list| packed(list)).collect())?;
    // The rank with most entries of each block that this rank counts; the lowest among equals.
    let mut best: HashMap<u64, (u64, usize)> = HashMap::new();
    for (rank, bytes) in told.iter().enumerate() {
        let list: Vec<u64> = Reader::new(bytes, rank).all()?;
        for pair in list.chunks_exact(2) {
            let best = best.entry(pair[0]).or_insert((0, rank));
            if pair[1] > best.0 {
                *best = (pair[1], rank);
            }
        }
    }
    let mut given: Vec<Vec<u64>> = vec![Vec::new(); comm.size()];
    let runs = (comm.rank() as u64..blocks.div_ceil(RUN)).step_by(comm.size());
    for block in runs.flat_map(|run| run * RUN..blocks.min((run + 1) * RUN)) {
        let rank = best.get(&block).map_or(comm.rank(), |best| best.1);
        given[rank].push(block);
    }
    let given = comm.all_to_all(given.iter().map(|list| packed(list)).collect())?;
    let mut own = Vec::new();
    for (rank, bytes) in given.iter().enumerate() {
        own.extend(Reader::new(bytes, rank).all::<u64>()?);
    }
    own.sort_unstable();
    Ok(own)
}

/// Returns P without the rows of unknowns that no other unknown determines, and without the rounding errors
/// of a caller who computed P.
fn own_part(p: &Csr, alone: &[bool]) -> Result<Csr> {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for (i, alone) in alone.iter().enumerate() {
        let row = p.row(i);
        let largest = row.1.iter().fold(0.0f64, |max, v| max.max(v.abs()));
        let least = if *alone { f64::INFINITY } else { ROUNDING * largest };
        for (&j, &v) in row.0.iter().zip(row.1).filter(|(_, v)| v.abs() > least) {
            col.push(j);
            values.push(v);
        }
        row_ptr.push(col.len());
    }
    Csr::new(p.rows(), p.columns(), row_ptr, col, values)
}
