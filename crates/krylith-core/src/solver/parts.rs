//! Distribution of a problem, all of whose rows this process has, to several devices.
//!
//! GPUs cut their own rows if contiguous runs of rows are as good as any partition. That is so for the rows
//! of a grid in whole layers of boxes, and for all rows if the preconditioner has no subdomains. Each GPU
//! then takes its run of the raw arrays (`device/cuda/part.rs`). In all other cases the threads of the host
//! assign and cut rows (`partition/split.rs`).

use crate::comm::{Communicator, Team};
use crate::halo::OwnRows;
use crate::matrix::{Bsr, Dense};
use crate::memory::{Numbers, NumbersMut};
use crate::operator::Terms;
use crate::options::Options;
#[cfg(feature = "cuda")]
use crate::partition::PartitionSpec;
use crate::partition::{LocalSubdomains, Part, Partition, RowNumbers, assign_whole, split};
use crate::precond::NearNull;
use crate::problem::{LocalProblem, Problem};
use crate::{Error, Result};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;
#[cfg(feature = "cuda")]
use {
    crate::device::cuda::part::{RunOnDevice, halos, pointer},
    crate::partition::{MANY_GHOSTS, Partitioner, layer},
};

/// The parts of all devices.
pub(super) struct Parts {
    parts: Vec<One>,
    /// Owners of rows; `None` if devices cut contiguous runs.
    partition: Option<Partition>,
    /// The rows of each part, if they are contiguous from part to part.
    runs: Option<Vec<Range<u64>>>,
    /// Number of vector entries per block row.
    run: usize,
    /// The reason for this partition.
    pub reason: String,
}

/// Returns the rows of all parts if they are contiguous from part to part.
fn in_sequence(parts: &[One]) -> Option<Vec<Range<u64>>> {
    let runs: Vec<Range<u64>> =
        parts.iter().map(|one| one.rows.borrowed().as_run()).collect::<Option<_>>()?;
    let follow = runs.first().is_some_and(|run| run.start == 0)
        && runs.windows(2).all(|pair| pair[0].end == pair[1].start);
    follow.then_some(runs)
}

/// The part of one device.
struct One {
    rows: OwnRows,
    terms: Terms<'static>,
    null: Vec<Vec<f64>>,
    near: Option<NearNull>,
    subdomains: Option<LocalSubdomains>,
    comm: Arc<dyn Communicator>,
    /// For each term and each block of this part, the index of the block in the whole matrix. The first
    /// update computes these indices.
    sources: Vec<Vec<usize>>,
    /// The run that the device cut.
    #[cfg(feature = "cuda")]
    cut: Option<RunOnDevice>,
}

impl Parts {
    /// Assigns block rows and subdomains to devices.
    pub fn new(problem: &Problem, options: &Options, ordinals: &[usize]) -> Result<Self> {
        #[cfg(feature = "cuda")]
        if let Some(parts) = Self::on_devices(problem, options, ordinals)? {
            return Ok(parts);
        }
        Self::on_host(problem, options, ordinals.len())
    }

    /// Computes the partition, and cuts the matrix, on the host.
    fn on_host(problem: &Problem, options: &Options, count: usize) -> Result<Self> {
        let (terms, run) = (&problem.terms, problem.block() * problem.stages());
        let spec = options.precond_or_auto().subdomains(run);
        let wanted = options.partition.unwrap_or_default();
        let points = problem.coordinates.as_ref().map(|points| &points[..]);
        let whole = assign_whole(terms, points, problem.grid, count, wanted, spec, options.planes())?;
        let team = Team::new(count)?;
        let parts = split(terms, &whole.partition)?.into_iter().zip(team).map(|(part, comm)| {
            let Part { rows, terms, .. } = part;
            let subdomains = whole.local(&rows)?;
            let rows = OwnRows::List(rows);
            Ok(One {
                null: own_rows(&problem.null, rows.borrowed(), run),
                near: problem.near.as_ref().map(|near| near.of_nodes(rows.borrowed(), run)),
                rows,
                terms,
                subdomains,
                comm: Arc::new(comm),
                sources: Vec::new(),
                #[cfg(feature = "cuda")]
                cut: None,
            })
        });
        let parts = parts.collect::<Result<Vec<_>>>()?;
        let runs = in_sequence(&parts);
        Ok(Self { parts, partition: Some(whole.partition), runs, run, reason: whole.reason })
    }

    /// Cuts contiguous runs of rows on the devices that will own them; `None` if runs are not balanced, need
    /// too many ghosts, or would cut subdomains.
    #[cfg(feature = "cuda")]
    fn on_devices(problem: &Problem, options: &Options, ordinals: &[usize]) -> Result<Option<Self>> {
        use crate::profile::{self, SetupPart};
        let (terms, run, count) = (&problem.terms, problem.block() * problem.stages(), ordinals.len());
        let Some(cuts) = runs(problem, options, count)? else { return Ok(None) };
        let upload = profile::begin(SetupPart::Upload);
        let ranges: Vec<_> = cuts.windows(2).map(|w| w[0]..w[1]).collect();
        let made = RunOnDevice::cut_all(ordinals, terms, &ranges)?;
        drop(upload);
        let share = |(rows, (cut, _)): (&Range<usize>, &(RunOnDevice, _))| {
            cut.ghosts.len() as f64 / rows.len() as f64
        };
        let most = ranges.iter().zip(&made).map(share).fold(0.0, f64::max);
        if most > MANY_GHOSTS && options.partition.is_none_or(|p| p == PartitionSpec::Auto) {
            return Ok(None);
        }
        let halos = halos(&ranges, &made.iter().map(|(cut, _)| &cut.ghosts[..]).collect::<Vec<_>>());
        let parts = made.into_iter().zip(halos).zip(ranges).zip(Team::new(count)?);
        let parts = parts.map(|((((cut, terms), halo), rows), comm)| {
            let rows = OwnRows::Run(rows.start as u64..rows.end as u64);
            let null = own_rows(&problem.null, rows.borrowed(), run);
            let near = problem.near.as_ref().map(|near| near.of_nodes(rows.borrowed(), run));
            let terms = Terms { halo: Some(Arc::new(halo)), ..terms };
            One {
                null,
                near,
                rows,
                terms,
                subdomains: None,
                comm: Arc::new(comm),
                sources: Vec::new(),
                cut: Some(cut),
            }
        });
        let reason = format!("runs of rows with at most {most:.2} ghosts per node, cut on the devices");
        let parts: Vec<One> = parts.collect();
        let runs = in_sequence(&parts);
        Ok(Some(Self { parts, partition: None, runs, run, reason }))
    }

    /// Returns the part of one device.
    pub fn local<'p>(&'p self, number: usize, problem: &'p Problem) -> LocalProblem<'p> {
        let One { rows, terms, null, near, subdomains, comm, .. } = &self.parts[number];
        LocalProblem {
            terms,
            comm: &**comm,
            numbers: Some(rows.borrowed()),
            null,
            near: near.as_ref(),
            subdomains: subdomains.as_ref(),
            ..problem.part_of_one()
        }
    }

    /// Returns the communicator of a device's thread.
    pub fn comm(&self, number: usize) -> &Arc<dyn Communicator> {
        &self.parts[number].comm
    }

    /// Returns the communicators of all devices.
    pub fn team(&self) -> Vec<Arc<dyn Communicator>> {
        self.parts.iter().map(|one| one.comm.clone()).collect()
    }

    /// Returns the range of each device in a global vector, if the ranges are contiguous and there are at
    /// most `most` devices.
    pub fn runs(&self, most: usize) -> Option<impl Iterator<Item = Range<usize>>> {
        let range = |run: &Range<u64>| run.start as usize * self.run..run.end as usize * self.run;
        let runs = self.runs.as_ref().filter(|runs| runs.len() <= most);
        runs.map(|runs| runs.iter().map(range))
    }

    /// Copies a device's rows from a global vector, which may be on the host or on a GPU.
    pub fn take_own(&self, number: usize, whole: Numbers, to: &mut [f64]) -> Result<()> {
        let mut scratch = Vec::new();
        let whole = whole.on_host(&mut scratch)?;
        self.parts[number].rows.borrowed().take(self.run, whole, to);
        Ok(())
    }

    /// Copies a device's rows into a global vector.
    pub fn put_own(&self, number: usize, from: &[f64], whole: &mut NumbersMut) -> Result<()> {
        let rows = self.parts[number].rows.borrowed();
        if let Some(host) = whole.as_host() {
            rows.put(self.run, from, host);
            return Ok(());
        }
        let mut host = whole.as_array().to_vec()?;
        rows.put(self.run, from, &mut host);
        whole.write(&host)
    }

    /// Distributes new values of a term.
    pub fn update_values(&mut self, terms: &Terms, term: usize) -> Result<()> {
        let Some(partition) = &self.partition else { return self.update_runs(terms, term) };
        if self.parts.iter().any(|one| one.sources.is_empty()) {
            for t in 0..terms.terms.len() {
                let sources = sources(&terms.terms[t].1, partition)?;
                self.parts.iter_mut().zip(sources).for_each(|(one, sources)| one.sources.push(sources));
            }
        }
        let (square, values) = (terms.block() * terms.block(), terms.terms[term].1.values());
        for one in &mut self.parts {
            let matrix = one.terms.terms[term].1.to_mut().values_mut();
            for (block, &from) in matrix.chunks_exact_mut(square).zip(&one.sources[term]) {
                block.copy_from_slice(&values[from * square..][..square]);
            }
        }
        Ok(())
    }

    /// Distributes new values to runs that were cut on the devices, in parallel.
    #[cfg(feature = "cuda")]
    fn update_runs(&mut self, terms: &Terms, term: usize) -> Result<()> {
        let whole = &terms.terms[term].1;
        let updated: Vec<Result<Bsr>> = std::thread::scope(|scope| {
            let update = |one: &One| match &one.cut {
                Some(cut) => cut.update(term, whole, &one.terms.terms[term].1),
                None => Err(Error::Internal("a part without a cut".into())),
            };
            let threads: Vec<_> = self.parts.iter().map(|one| scope.spawn(move || update(one))).collect();
            let lost = || Err(Error::Internal("a thread that takes new values was lost".into()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
        });
        for (one, updated) in self.parts.iter_mut().zip(updated) {
            one.terms.terms[term].1 = Cow::Owned(updated?);
        }
        Ok(())
    }

    #[cfg(not(feature = "cuda"))]
    fn update_runs(&mut self, _: &Terms, _: usize) -> Result<()> {
        Err(Error::Internal("parts without a partition".into()))
    }

    /// Sets new coefficients of a term on every device.
    pub fn for_coefficients(&mut self, term: usize, mut set: impl FnMut(&mut Dense)) {
        self.parts.iter_mut().for_each(|one| set(&mut one.terms.terms[term].0));
    }
}

/// Extracts these rows from global vectors.
fn own_rows(vectors: &[Vec<f64>], rows: RowNumbers, run: usize) -> Vec<Vec<f64>> {
    let own = |whole: &Vec<f64>| {
        let mut own = vec![0.0; rows.len() * run];
        rows.take(run, whole, &mut own);
        own
    };
    vectors.iter().map(own).collect()
}

/// Largest load of a run, relative to the mean. If it is exceeded, the host computes another partition.
#[cfg(feature = "cuda")]
const UNEVEN: f64 = 1.1;

/// Returns the first row of the run of each of `count` devices, and the end of the last run. Runs have about
/// equally many blocks, and consist of whole subdomains if the preconditioner uses some.
#[cfg(feature = "cuda")]
fn runs(problem: &Problem, options: &Options, count: usize) -> Result<Option<Vec<usize>>> {
    let (terms, n) = (&problem.terms, problem.terms.block_rows());
    let by_runs = matches!(
        options.partition.unwrap_or_default(),
        PartitionSpec::Auto | PartitionSpec::By(Partitioner::Nonzeros)
    );
    let spec = options.precond_or_auto().subdomains(problem.block() * problem.stages());
    let planes = options.planes().zip(problem.grid).filter(|(_, grid)| grid.iter().product::<usize>() == n);
    let layer = match (planes, spec) {
        // Each device gets whole tiles, as `assign_planes` assigns them.
        (Some((planes, [nx, ny, nz])), _) => {
            Some(nx * ny * if nz.div_ceil(planes) >= count { planes } else { 1 })
        }
        (None, None) => Some(1),
        (None, Some(spec)) => problem.grid.and_then(|grid| layer(grid, n, spec)),
    };
    let Some(layer) = layer.filter(|_| by_runs && terms.halo.is_none() && count <= n) else {
        return Ok(None);
    };
    let before = |i: usize| -> Result<usize> {
        terms.terms.iter().map(|(_, a)| pointer(a, i)).sum::<Result<usize>>().map(|blocks| blocks + i)
    };
    let (total, layers) = (before(n)?, n.div_ceil(layer));
    let row = |k: usize| (k * layer).min(n);
    let mut cuts = vec![0];
    for device in 1..count {
        let wanted = (total as u128 * device as u128 / count as u128) as usize;
        // Find the layer whose first block is nearest to this device's share.
        let (mut low, mut high) = (0, layers);
        while low < high {
            let middle = (low + high) / 2;
            if before(row(middle))? < wanted { low = middle + 1 } else { high = middle }
        }
        let nearer = low > 0 && wanted - before(row(low - 1))? < before(row(low))?.abs_diff(wanted);
        cuts.push(row(if nearer { low - 1 } else { low }));
    }
    cuts.push(n);
    let shares = cuts.windows(2).map(|w| Ok(before(w[1])? - before(w[0])?)).collect::<Result<Vec<_>>>()?;
    let most = shares.iter().max().copied().unwrap_or(0) as f64 * count as f64 / total as f64;
    let fits = cuts.windows(2).all(|w| w[0] < w[1]) && most <= UNEVEN;
    Ok(fits.then_some(cuts))
}

/// Returns the index in the whole matrix of each block of each part. It splits a matrix whose values are
/// these indices.
fn sources(a: &Bsr, partition: &Partition) -> Result<Vec<Vec<usize>>> {
    if a.blocks() as u64 >= 1 << f64::MANTISSA_DIGITS {
        return Err(Error::Unsupported(format!(
            "the matrix has {} blocks; updates on several devices support fewer than 2^53",
            a.blocks()
        )));
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
        let mut parts = Parts::on_host(&problem, &options, 3).unwrap();
        a.values_mut().iter_mut().for_each(|v| *v = 1000.0 - *v);
        let new = Problem::bsr(&a).unwrap();
        parts.update_values(&new.terms, 0).unwrap();
        let expected = split(&new.terms, parts.partition.as_ref().unwrap()).unwrap();
        for (number, expected) in expected.iter().enumerate() {
            let local = parts.local(number, &problem);
            assert_eq!(local.terms.terms[0].1, expected.terms.terms[0].1, "{number}");
            // Copy a vector to the parts and back.
            let whole: Vec<f64> = (0..2 * n).map(|v| v as f64).collect();
            let (mut own, mut back) = (vec![0.0; local.terms.rows()], vec![-1.0; 2 * n]);
            parts.take_own(number, Numbers::from(&whole), &mut own).unwrap();
            parts.put_own(number, &own, &mut NumbersMut::from(&mut back)).unwrap();
            let rows = local.numbers.unwrap();
            for (i, v) in back.iter().enumerate() {
                assert_eq!(
                    *v,
                    if (0..rows.len()).any(|k| rows.at(k) == i as u64 / 2) { i as f64 } else { -1.0 }
                );
            }
        }
    }
}
