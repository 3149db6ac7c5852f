//! A problem that stands whole in this process, given to several of its devices.

use crate::comm::{Communicator, Team};
use crate::matrix::{Bsr, Dense};
use crate::memory::{Numbers, NumbersMut};
use crate::operator::Terms;
use crate::options::Options;
use crate::partition::{LocalSubdomains, Part, Partition, PartitionSpec, assign, assign_planes, split};
use crate::problem::{LocalProblem, Problem};
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// The parts of all devices.
pub(super) struct Parts {
    parts: Vec<One>,
    partition: Partition,
    /// Numbers of a node.
    run: usize,
    /// Why each part has these rows.
    pub reason: String,
}

/// What one device holds.
struct One {
    part: Part,
    null: Vec<Vec<f64>>,
    subdomains: Option<LocalSubdomains>,
    comm: Arc<dyn Communicator>,
    /// Of each term, where each of the part's blocks stands among the blocks of the whole; found at the first update.
    sources: Vec<Vec<usize>>,
}

impl Parts {
    /// Assigns block rows and subdomains to `count` devices.
    pub fn new(problem: &Problem, options: &Options, count: usize) -> Result<Self> {
        let (terms, run) = (&problem.terms, problem.block() * problem.stages());
        let spec = options.precond_or_auto().subdomains(run);
        let wanted = options.partition.unwrap_or_default();
        let points = problem.coordinates.as_deref();
        let planes = options.planes().zip(problem.grid).filter(|_| wanted == PartitionSpec::Auto);
        let planes =
            planes.map(|(planes, grid)| assign_planes(terms, grid, count, planes)).transpose()?.flatten();
        let whole = match planes {
            Some(planes) => planes,
            None => assign(terms, points, problem.grid, count, wanted, spec)?,
        };
        let team = Team::new(count)?;
        let parts = split(terms, &whole.partition)?.into_iter().zip(team).map(|(part, comm)| {
            let null = problem.null.iter().map(|n| own(&part.rows, run, n).collect()).collect();
            let subdomains = whole.local(&part.rows)?;
            Ok(One { part, null, subdomains, comm: Arc::new(comm), sources: Vec::new() })
        });
        let parts = parts.collect::<Result<_>>()?;
        Ok(Self { parts, partition: whole.partition, run, reason: whole.reason })
    }

    /// One device's part of the problem.
    pub fn local<'p>(&'p self, number: usize, problem: &'p Problem) -> LocalProblem<'p> {
        let One { part, null, subdomains, comm, .. } = &self.parts[number];
        LocalProblem {
            terms: &part.terms,
            comm: &**comm,
            numbers: Some(&part.rows),
            null,
            subdomains: subdomains.as_ref(),
            ..problem.part_of_one()
        }
    }

    /// The end of a device's thread in the team.
    pub fn comm(&self, number: usize) -> &Arc<dyn Communicator> {
        &self.parts[number].comm
    }

    /// All ends.
    pub fn team(&self) -> Vec<Arc<dyn Communicator>> {
        self.parts.iter().map(|one| one.comm.clone()).collect()
    }

    /// Copies a device's rows out of a vector of the whole, which may be anywhere.
    pub fn take_own(&self, number: usize, whole: Numbers, to: &mut [f64]) -> Result<()> {
        let rows = &self.parts[number].part.rows;
        let mut scratch = Vec::new();
        let whole = whole.on_host(&mut scratch)?;
        to.iter_mut().zip(own(rows, self.run, whole)).for_each(|(to, v)| *to = v);
        Ok(())
    }

    /// Copies a device's rows into a vector of the whole.
    pub fn put_own(&self, number: usize, from: &[f64], whole: &mut NumbersMut) -> Result<()> {
        let put = |whole: &mut [f64]| {
            let rows = self.parts[number].part.rows.iter().map(|&i| i as usize * self.run);
            rows.zip(from.chunks_exact(self.run))
                .for_each(|(at, values)| whole[at..at + self.run].copy_from_slice(values));
        };
        if let Some(host) = whole.as_host() {
            put(host);
            return Ok(());
        }
        let mut host = whole.as_array().to_vec()?;
        put(&mut host);
        whole.write(&host)
    }

    /// New values of a term of the whole.
    pub fn update_values(&mut self, terms: &Terms, term: usize) -> Result<()> {
        if self.parts.iter().any(|one| one.sources.is_empty()) {
            for t in 0..terms.terms.len() {
                let sources = sources(&terms.terms[t].1, &self.partition)?;
                self.parts.iter_mut().zip(sources).for_each(|(one, sources)| one.sources.push(sources));
            }
        }
        let (square, values) = (terms.block() * terms.block(), terms.terms[term].1.values());
        for one in &mut self.parts {
            let matrix = one.part.terms.terms[term].1.to_mut().values_mut();
            for (block, &from) in matrix.chunks_exact_mut(square).zip(&one.sources[term]) {
                block.copy_from_slice(&values[from * square..][..square]);
            }
        }
        Ok(())
    }

    /// New coefficients of a term, on every device.
    pub fn for_coefficients(&mut self, term: usize, mut set: impl FnMut(&mut Dense)) {
        self.parts.iter_mut().for_each(|one| set(&mut one.part.terms.terms[term].0));
    }
}

/// A device's rows of a vector of the whole.
fn own<'a>(rows: &'a [u64], run: usize, whole: &'a [f64]) -> impl Iterator<Item = f64> + 'a {
    rows.iter().flat_map(move |&i| &whole[i as usize * run..][..run]).copied()
}

/// Of each part's blocks the place in the whole: what the cut makes of a matrix whose numbers are its places.
fn sources(a: &Bsr, partition: &Partition) -> Result<Vec<Vec<usize>>> {
    if a.blocks() as u64 >= 1 << f64::MANTISSA_DIGITS {
        return Err(Error::Unsupported(format!("{} blocks are too many to be counted in f64", a.blocks())));
    }
    let places = (0..a.blocks()).map(|p| p as f64).collect();
    let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
    let places = Bsr::new(1, a.block_rows(), a.block_columns(), row_ptr, col, places)?;
    let terms = Terms { terms: vec![(Dense::identity(1), Cow::Owned(places))], halo: None };
    let parts = split(&terms, partition)?;
    Ok(parts
        .into_iter()
        .map(|part| part.terms.terms[0].1.values().iter().map(|&place| place as usize).collect())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;

    #[test]
    fn new_values_reach_the_parts_that_hold_them() {
        let n = 12;
        let columns = |i: usize| [i.saturating_sub(3), i, (i + 5).min(n - 1)];
        let (mut row_ptr, mut col) = (vec![0], Vec::new());
        for i in 0..n {
            let mut columns = columns(i).to_vec();
            columns.dedup();
            col.extend(columns.iter().map(|&j| j as u32));
            row_ptr.push(col.len());
        }
        let values: Vec<f64> = (0..4 * col.len()).map(|v| v as f64).collect();
        let mut a = Bsr::new(2, n, n, row_ptr, col, values).unwrap();
        let problem = Problem::bsr(&a).unwrap().into_owned();
        let options: Options = "precond=ildu:rows=2,cut=runs".parse().unwrap();
        let mut parts = Parts::new(&problem, &options, 3).unwrap();
        a.values_mut().iter_mut().for_each(|v| *v = 1000.0 - *v);
        let new = Problem::bsr(&a).unwrap();
        parts.update_values(&new.terms, 0).unwrap();
        let expected = split(&new.terms, &parts.partition).unwrap();
        for (number, expected) in expected.iter().enumerate() {
            let local = parts.local(number, &problem);
            assert_eq!(local.terms.terms[0].1, expected.terms.terms[0].1, "{number}");
            // A vector there and back.
            let whole: Vec<f64> = (0..2 * n).map(|v| v as f64).collect();
            let (mut own, mut back) = (vec![0.0; local.terms.rows()], vec![-1.0; 2 * n]);
            parts.take_own(number, Numbers::from(&whole), &mut own).unwrap();
            parts.put_own(number, &own, &mut NumbersMut::from(&mut back)).unwrap();
            let rows = local.numbers.unwrap();
            for (i, v) in back.iter().enumerate() {
                assert_eq!(*v, if rows.contains(&(i as u64 / 2)) { i as f64 } else { -1.0 });
            }
        }
    }
}
