//! Kronecker sums of two problems of one matrix each, whole or distributed over ranks.
//!
//! Distributed M and L have halos of their own. The sum has one halo: the ranks exchange the global numbers
//! of the ghosts of both, and distribute the rows of both again.

use super::{Given, Problem};
use crate::comm::{Communicator, agree, gather};
use crate::matrix::{Bsr, Dense, KroneckerSum};
use crate::partition::{RowBlocks, Rows, distribute};
use crate::text::plural;
use crate::{Error, Result};

impl Problem<'_> {
    /// Creates the problem A⊗M + τB⊗L from two problems of one matrix each, with the same block size. New
    /// values of M and L are given in the order of their own problems: for a scalar matrix [in
    /// blocks](Self::csr_in_blocks), in the order of the scalar matrix.
    ///
    /// M and L may be distributed over the same ranks, with the same rows in the same order on each rank.
    /// Then the sum is distributed, too, all ranks give the same A, B and τ, and the call is collective.
    ///
    /// # Errors
    /// As [`KroneckerSum::new`]; problems of several terms; one distributed problem and one that is not.
    /// Different rows of M and L, or different A, B or τ between ranks, are errors on all ranks.
    ///
    /// # Examples
    /// ```
    /// use krylith::{Problem, Solver, matrix::{Csr, Dense}};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (1, 0, 1.0), (1, 1, 4.0)])?;
    /// let of = |a| Problem::csr_in_blocks(a, Some(2));
    /// let sum = Problem::kronecker_of(Dense::identity(1), Dense::identity(1), 0.5, &of(&a)?, &of(&a)?)?;
    /// let mut solver = Solver::new(&sum, &"device=cpu".parse()?)?;
    /// solver.update_term(0, &[2.0, 1.0, 2.0])?; // the three entries of M
    /// let mut x = [0.0; 2];
    /// solver.solve(&[4.0, 5.5], &mut x)?; // 2 + 0.5·4, and 1 + 0.5·1 below
    /// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-5));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    ///
    /// Two ranks, each with one row of M and of L:
    /// ```
    /// use krylith::{Problem, Solver, comm::{Communicator, Team}, matrix::{Csr, Dense}};
    /// let x = Team::run(2, |comm| {
    ///     let (i, one) = (comm.rank() as u32, Dense::identity(1));
    ///     let m = Problem::distributed_csr(comm.clone(), &Csr::from_triplets(1, 2, &[(0, i, 2.0)])?, None)?;
    ///     let l = Csr::from_triplets(1, 2, &[(0, 0, 1.0), (0, 1, 1.0)])?;
    ///     let l = Problem::distributed_csr(comm, &l, None)?;
    ///     let sum = Problem::kronecker_of(one.clone(), one, 0.5, &m, &l)?; // rows (2.5 0.5) and (0.5 2.5)
    ///     let mut x = [0.0];
    ///     Solver::new(&sum, &"device=cpu".parse()?)?.solve(&[3.0], &mut x)?;
    ///     Ok(x[0])
    /// })?;
    /// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-5));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn kronecker_of(a: Dense, b: Dense, tau: f64, m: &Problem, l: &Problem) -> Result<Problem<'static>> {
        if let Some(of) = [m, l].into_iter().find(|of| of.numbers.is_some()) {
            return over_ranks(&*of.comm, (a, b, tau), [m, l]);
        }
        let [of_m, of_l] = [one_matrix(m, "M")?, one_matrix(l, "L")?];
        let sum = KroneckerSum::new(a, b, tau, of_m.clone(), of_l.clone())?;
        let given = [m, l].map(|of| of.given.first().cloned().flatten()).to_vec();
        Ok(Problem { given, ..Problem::kronecker(&sum)?.into_owned() })
    }
}

/// Returns the only matrix of a problem.
fn one_matrix<'p>(of: &'p Problem, name: &str) -> Result<&'p Bsr> {
    match &of.terms.terms[..] {
        [(_, matrix)] if of.stages() == 1 => Ok(matrix),
        _ => Err(Error::invalid(format!("{name} of a Kronecker sum must be a problem of one matrix"))),
    }
}

/// Returns an error if the ranks give different A, B or τ, the same on every rank. Collective.
pub(crate) fn same_coefficients(comm: &dyn Communicator, [a, b]: [&Dense; 2], tau: f64) -> Result<()> {
    if comm.size() == 1 {
        return Ok(());
    }
    let values = [tau].into_iter().chain([a, b].into_iter().flat_map(|c| c.values().iter().copied()));
    let mine: Vec<u8> = values.flat_map(f64::to_le_bytes).collect();
    let all = gather(comm, &mine)?;
    let Some(rank) = all.iter().position(|other| *other != all[0]) else { return Ok(()) };
    // A and B have s² numbers each.
    let stages = |bytes: &[u8]| (bytes.len() / 16).isqrt();
    let tau = |bytes: &[u8]| bytes.first_chunk().map_or(f64::NAN, |first| f64::from_le_bytes(*first));
    let (first, other) = (&all[0][..], &all[rank][..]);
    let why = if stages(first) != stages(other) {
        format!("rank {rank} has {}; rank 0 has {}", plural(stages(other), "stage"), stages(first))
    } else if tau(first).to_bits() != tau(other).to_bits() {
        format!("tau is {} on rank {rank}, and {} on rank 0", tau(other), tau(first))
    } else {
        format!("A or B of rank {rank} differs from that of rank 0")
    };
    Err(Error::invalid(format!(
        "the ranks give different Kronecker sums: {why}; give the same A, B and tau on every rank"
    )))
}

/// Creates the sum from this rank's rows of M and L.
fn over_ranks(
    comm: &dyn Communicator,
    (a, b, tau): (Dense, Dense, f64),
    of: [&Problem; 2],
) -> Result<Problem<'static>> {
    agree(comm, check(comm, [&a, &b], tau, of))?;
    same_coefficients(comm, [&a, &b], tau)?;
    let [m, l] = of;
    let terms = [global_rows(m)?, global_rows(l)?];
    let scaled = b.values().iter().map(|v| tau * v).collect();
    let coefficients = [a.clone(), Dense::new(b.rows(), b.columns(), scaled)?];
    let numbers = m.numbers.as_deref().unwrap_or_default().to_vec();
    let terms = coefficients.into_iter().zip(terms).collect();
    let mut part = distribute(comm, Rows { numbers, block: m.block(), terms })?;
    for (term, of) in of.into_iter().enumerate() {
        let moved = part.given.get_mut(term).and_then(Option::take);
        let order = match of.given.first().and_then(Option::as_deref) {
            Some(Given::Rows(order)) => Some(order.clone().then(moved.as_ref())),
            _ => moved,
        };
        if let Some(place) = part.given.get_mut(term) {
            *place = order;
        }
    }
    Ok(Problem { stages: Some((a, b)), ..Problem::part(m.comm.clone(), part)? })
}

/// Returns an error if this rank's parts do not fit together.
fn check(comm: &dyn Communicator, [a, b]: [&Dense; 2], tau: f64, [m, l]: [&Problem; 2]) -> Result<()> {
    let blocks = [one_matrix(m, "M")?, one_matrix(l, "L")?].map(Bsr::block);
    let (Some(of_m), Some(of_l)) = (&m.numbers, &l.numbers) else {
        let (is, is_not) = if m.numbers.is_some() { ("M", "L") } else { ("L", "M") };
        return Err(Error::invalid(format!(
            "{is} is distributed over ranks, and {is_not} is whole; give this rank's rows of both"
        )));
    };
    let ranks = |of: &Problem| (of.comm.rank(), of.comm.size());
    if [ranks(m), ranks(l)].iter().any(|of| *of != (comm.rank(), comm.size())) {
        return Err(Error::invalid(format!(
            "M is on rank {} of {}, and L on rank {} of {}; use the same communicator for both",
            ranks(m).0,
            ranks(m).1,
            ranks(l).0,
            ranks(l).1
        )));
    }
    KroneckerSum::check(a, b, tau, blocks, [m, l].map(|of| (of.unknowns, of.unknowns)))?;
    if of_m.len() != of_l.len() {
        return Err(Error::invalid(format!(
            "rank {} has {} of M and {} of L; both need the same rows on every rank",
            comm.rank(),
            plural(of_m.len(), "block row"),
            of_l.len()
        )));
    }
    match of_m.iter().zip(of_l.iter()).position(|(of_m, of_l)| of_m != of_l) {
        None => Ok(()),
        Some(i) => Err(Error::invalid(format!(
            "local block row {i} of rank {} has number {} in M and {} in L; both need the same rows in the \
             same order on every rank",
            comm.rank(),
            of_m[i],
            of_l[i]
        ))),
    }
}

/// Returns the rows of a distributed matrix with global columns. Collective.
fn global_rows(of: &Problem) -> Result<RowBlocks> {
    let rows = of.global_rows()?;
    rows.into_iter().next().ok_or_else(|| Error::Internal("a problem without a matrix".into()))
}

impl Problem<'_> {
    /// Returns this rank's rows of each term of a distributed problem, in storage order and with global
    /// columns. Collective.
    pub(crate) fn global_rows(&self) -> Result<Vec<RowBlocks>> {
        let numbers = self.numbers.as_deref().unwrap_or_default();
        let missing = || Error::Internal("rows of a rank without their halo".into());
        let halo = self.terms.halo.as_ref().ok_or_else(missing)?;
        // An exchange moves the bits of numbers and does not compute with them.
        let own: Vec<f64> = numbers.iter().map(|&number| f64::from_bits(number)).collect();
        let global = halo.with_ghosts(&*self.comm, 1, &own)?;
        let rows = self.terms.terms.iter().map(|(_, a)| RowBlocks {
            row_ptr: a.row_ptr().to_vec(),
            col: a.col().iter().map(|&j| global[j as usize].to_bits()).collect(),
            values: a.values().to_vec(),
        });
        Ok(rows.collect())
    }
}
