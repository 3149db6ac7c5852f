//! Passes over the entries of terms in the memory of a GPU: launches of `kernels/passes.cu`.
//!
//! Where ranks share a system, each rank sends its column maxima to the owners of the columns through the
//! host, as on a CPU.

use super::Cuda;
use super::compiler::Kernel;
use super::driver::Buffer;
use super::launch::{Address, At, Entry, Of, kernels};
use super::resident::Resident;
use super::specialisations::define;
use crate::comm::agree;
use crate::halo::RowNumbers;
use crate::matrix::Dense;
use crate::matrix::WEAK_DIAGONAL as WEAK;
use crate::operator::Terms;
use crate::precond::{Factors, Scaling};
use crate::space::Space;
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;

kernels! {
    PASSES in "passes.cu", |set| maxima_of(set.choose(1..=8, [1, 2, 3, 4, 5]));
    fn entry_maxima(
        row_ptr: At<i64>, col: At<u32>, values: At<f64>, rows: i32, blocks: i64, weight: f64,
        row_maxima: At<u64>, column_maxima: At<u64>, diagonal: At<f64>, extent: At<u64>,
    );
    fn scaled_maxima = "entry_maxima"(
        row_ptr: At<i64>, col: At<u32>, values: At<f64>, rows: i32, blocks: i64, weight: f64,
        row_maxima: At<u64>, column_maxima: At<u64>, row_factors: At<f64>, column_factors: At<f64>,
    );
    fn survey(
        count: i32, terms: i32, stages: i32, of: Address, rows0: At<f64>, rows1: At<f64>, columns0: At<f64>,
        columns1: At<f64>, diagonal0: At<f64>, diagonal1: At<f64>, weak: f64, found: At<u64>,
    );
    fn convective(
        row_ptr: At<i64>, col: At<u32>, values: At<f64>, rows: i32, step: i32, counts: At<u64>,
    );
    fn mixed_couplings(
        row_ptr: At<i64>, col: At<u32>, values: At<f64>, rows: i32, step: i32, threshold: f64,
        counts: At<u64>,
    );
    fn judge_constants(row_ptr: At<i64>, values: At<f64>, rows: i32, judged: At<u64>);
    fn scale_factors(count: i32, maxima: At<f64>, factors: At<f64>);
    fn ones(count: i32, to: At<f64>);
    fn raise(count: i32, run: i32, nodes: At<u32>, theirs: At<f64>, own: At<f64>);
    fn repeat(count: i32, stages: i32, from: At<f64>, to: At<f64>);
    fn powers_of_two(count: i32, factors: At<f64>);
    fn scaled_values(
        row_ptr: At<i64>, col: At<u32>, values: At<f64>, rows: i32, blocks: i64, row_factors: At<f64>,
        column_factors: At<f64>, to: At<f64>, wrong: At<i32>,
    );
}

kernels! {
    RANDOM in "random.cu", |_| vec![random_numbers.plain().into()];
    fn random_numbers(count: i64, seed: u64, numbers: At<u64>, first: u64, order: i32, to: At<f64>);
}

/// Blocks of a matrix that a thread block of `passes.cu` reads.
fn window(block: usize) -> usize {
    2048 / block
}

/// Returns a kernel of `passes.cu`: a pass over the entries of a matrix, scaled or unscaled.
pub(crate) fn passes<K: Entry>(entry: K, block: usize, scaled: bool) -> Of<K> {
    entry.with(vec![define("BLOCK", block), define("SCALED", scaled as u32)])
}

/// Returns the passes over matrices of the given block sizes.
fn maxima_of(blocks: Vec<usize>) -> Vec<Kernel> {
    let of = |block| [passes(entry_maxima, block, false).into(), passes(scaled_maxima, block, true).into()];
    blocks.into_iter().flat_map(of).collect()
}

/// Threads per thread block where each thread processes one number.
const THREADS: usize = 256;

/// Magnitudes of the entries of terms, for this rank's own unknowns.
pub(crate) struct Magnitudes {
    /// Smallest and largest magnitude of all nonzero entries; infinity and zero where there are none.
    pub entries: [f64; 2],
    /// The same for the largest entry of each row.
    pub rows: [f64; 2],
    /// The same for the largest entry of each column.
    pub columns: [f64; 2],
    /// Number of unknowns with an empty row, with an empty column, and without a diagonal entry.
    pub counts: [usize; 3],
    /// Blocks of the longest block row if it has more than 256; else 0.
    pub longest_row: usize,
    /// Number of unknowns whose diagonal entry, in the first stage, is [`WEAK`] or missing.
    pub weak: usize,
    terms: Vec<TermMaxima>,
}

/// Maxima of one term: the largest magnitude of each scalar row and of each scalar column (with ghosts), and
/// the diagonal entries.
pub(crate) struct TermMaxima<V = Buffer<f64>> {
    pub rows: V,
    pub columns: V,
    pub diagonal: V,
}

impl Magnitudes {
    /// Copies the arrays behind the counts to the host, term by term.
    pub(crate) fn maxima(&self) -> Result<Vec<TermMaxima<Vec<f64>>>> {
        let fetch = |v: &Buffer<f64>| {
            let mut host = vec![0.0; v.len()];
            v.device().read(v, 0, &mut host).map(|()| host)
        };
        let terms = self.terms.iter();
        terms
            .map(|t| {
                Ok(TermMaxima {
                    rows: fetch(&t.rows)?,
                    columns: fetch(&t.columns)?,
                    diagonal: fetch(&t.diagonal)?,
                })
            })
            .collect()
    }
}

/// Converts a coefficient to `Term` of `kernels/passes.cu`.
fn coefficient(c: &Dense) -> [f64; 7] {
    let s = c.rows();
    let stages = |has: &dyn Fn(usize) -> bool| (0..s).filter(|&k| has(k)).map(|k| f64::from(1 << k)).sum();
    let mut out = [0.0; 7];
    out[0] = c.largest();
    out[1] = stages(&|k| (0..s).any(|l| c[(k, l)] != 0.0));
    out[2] = stages(&|k| (0..s).any(|l| c[(l, k)] != 0.0));
    (0..s).for_each(|k| out[3 + k] = c[(k, k)]);
    out
}

impl Cuda {
    /// Returns the matrices of terms if all are in the memory of this GPU and have a shape that the kernels
    /// support.
    fn all_at_hand(&self, terms: &Terms) -> Option<Vec<Arc<Resident>>> {
        let fits = terms.block() <= 8 && terms.stages() <= 4 && terms.terms.len() <= 2;
        terms.terms.iter().map(|(_, a)| self.at_hand(a).filter(|_| fits)).collect()
    }

    /// Returns the magnitudes of the entries of terms; `None` if they are not in the memory of this GPU.
    /// Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that is lost or failed.
    pub(crate) fn magnitudes(&self, terms: &Terms) -> Result<Option<Magnitudes>> {
        let Some(matrices) = self.all_at_hand(terms) else { return Ok(None) };
        let (b, n, device) = (terms.block(), terms.block_rows(), self.device());
        let what = "the largest entries of rows and columns";
        let (inf, none) = (f64::INFINITY.to_bits(), 0u64);
        // Extents of entries, rows and columns, counts, the longest row, and the number of weak diagonal
        // entries.
        let found = device.upload(&[inf, none, inf, none, inf, none, 0, 0, 0, 0, 0], what)?;
        let mut maxima = Vec::with_capacity(matrices.len());
        for ((c, a), on) in terms.terms.iter().zip(&matrices) {
            let mut of = TermMaxima {
                rows: device.zeros::<f64>(n * b, what)?,
                columns: device.zeros::<f64>(a.columns(), what)?,
                diagonal: device.zeros::<f64>(n * b, what)?,
            };
            let function = device.function(&passes(entry_maxima, b, false))?;
            let windows = a.blocks().div_ceil(window(b));
            if windows > 0 {
                function.on(device, windows, THREADS).run(
                    &on.row_ptr,
                    &on.col,
                    &on.values,
                    n as i32,
                    a.blocks() as i64,
                    c.largest(),
                    of.rows.pointer(),
                    of.columns.pointer(),
                    &of.diagonal,
                    &found,
                )?;
            }
            self.columns_to_owners(terms, &mut of.columns)?;
            maxima.push(of);
        }
        let coefficients: Vec<[f64; 7]> = terms.terms.iter().map(|(c, _)| coefficient(c)).collect();
        let coefficients = device.upload(&coefficients, what)?;
        let function = device.function(&passes(survey, 1, false))?;
        let second = maxima.last();
        if let (Some(one), Some(two), true) = (maxima.first(), second, n > 0) {
            function.on(device, (n * b).div_ceil(THREADS).min(8 * device.multiprocessors()), THREADS).run(
                (n * b) as i32,
                maxima.len() as i32,
                terms.stages() as i32,
                &coefficients,
                &one.rows,
                &two.rows,
                &one.columns,
                &two.columns,
                &one.diagonal,
                &two.diagonal,
                WEAK,
                found.at(2),
            )?;
        }
        let mut host = [0; 11];
        device.read(&found, 0, &mut host)?;
        let extent = |k: usize| [f64::from_bits(host[k]), f64::from_bits(host[k + 1])];
        Ok(Some(Magnitudes {
            entries: extent(0),
            rows: extent(2),
            columns: extent(4),
            counts: [6, 7, 8].map(|k| host[k] as usize),
            longest_row: host[9] as usize,
            weak: host[10] as usize,
            terms: maxima,
        }))
    }

    /// Returns the share of couplings of a single matrix that convection dominates, in a sample of rows.
    /// `None` for other terms, and if they are not in the memory of this GPU.
    ///
    /// # Errors
    /// Out of device memory.
    pub(crate) fn convective(&self, terms: &Terms) -> Result<Option<f64>> {
        /// Number of rows in the sample.
        const SAMPLE: usize = 1 << 16;
        let single = terms.terms.len() == 1 && terms.stages() == 1 && terms.halo.is_none();
        let Some(matrices) = self.all_at_hand(terms).filter(|_| single) else { return Ok(None) };
        let (device, rows, mut found) = (self.device(), terms.block_rows(), [0u64; 2]);
        let counts = device.zeros::<u64>(2, "couplings")?;
        let step = (rows / SAMPLE).max(1);
        let grid = (rows.div_ceil(step) * 8).div_ceil(THREADS).max(1);
        let function = device.function(&passes(convective, terms.block(), false))?;
        let a = &matrices[0];
        function.on(device, grid, THREADS).run(
            &a.row_ptr,
            &a.col,
            &a.values,
            rows as i32,
            step as i32,
            &counts,
        )?;
        device.read(&counts, 0, &mut found)?;
        Ok(Some(found[1] as f64 / found[0].max(1) as f64))
    }

    /// Counts the couplings between nodes in every `step`-th block row of a single matrix, and those whose
    /// entries off the diagonal sum to more than `threshold` times those on it. `None` for other terms, and
    /// if they are not in the memory of this GPU.
    ///
    /// # Errors
    /// Out of device memory.
    pub(crate) fn mixed_couplings(
        &self,
        terms: &Terms,
        step: usize,
        threshold: f64,
    ) -> Result<Option<[u64; 2]>> {
        let single = terms.terms.len() == 1 && terms.stages() == 1;
        let Some(matrices) = self.all_at_hand(terms).filter(|_| single) else { return Ok(None) };
        let (device, rows, mut found) = (self.device(), terms.block_rows(), [0u64; 2]);
        let counts = device.zeros::<u64>(2, "couplings")?;
        let grid = (rows.div_ceil(step) * 8).div_ceil(THREADS).max(1);
        let function = device.function(&passes(mixed_couplings, terms.block(), false))?;
        let a = &matrices[0];
        function.on(device, grid, THREADS).run(
            &a.row_ptr,
            &a.col,
            &a.values,
            rows as i32,
            step as i32,
            threshold,
            &counts,
        )?;
        device.read(&counts, 0, &mut found)?;
        Ok(Some(found))
    }

    /// Rules out constant null vectors of a single matrix in the memory of this GPU by its row sums. Returns
    /// two sets of bits, of the constants that are ruled out and of those that have entries: bit c for
    /// component c, and bit b for all b > 1 components. `None` for other terms.
    ///
    /// # Errors
    /// Out of device memory.
    pub(crate) fn judge_constants(&self, terms: &Terms) -> Result<Option<[u64; 2]>> {
        let single = terms.terms.len() == 1 && terms.stages() == 1;
        let Some(matrices) = self.all_at_hand(terms).filter(|_| single) else { return Ok(None) };
        let (b, device, mut found) = (terms.block(), self.device(), [0; 2]);
        let judged = device.zeros::<u64>(2, "row sums")?;
        let grid = terms.rows().div_ceil(THREADS / 8).clamp(1, 8 * device.multiprocessors());
        let function = device.function(&passes(judge_constants, b, false))?;
        let (a, rows) = (&matrices[0], terms.block_rows() as i32);
        function.on(device, grid, THREADS).run(&a.row_ptr, &a.values, rows, &judged)?;
        device.read(&judged, 0, &mut found)?;
        Ok(Some(found))
    }

    /// Returns scale factors of terms and the scaled terms; `None` if they are not in the memory of this
    /// GPU. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that is lost or failed; an entry that overflows.
    pub(crate) fn equilibrated(&self, terms: &Terms) -> Result<Option<(Factors<Self>, Terms<'static>)>> {
        let Some(matrices) = self.all_at_hand(terms) else { return Ok(None) };
        let (b, device, what) = (terms.block(), self.device(), "scale factors");
        let (own, columns) = (terms.terms[0].1.rows(), terms.terms[0].1.columns());
        let one = device.function(&passes(ones, 1, false))?;
        let (r, mut c) = (device.allocate(own, what)?, device.allocate(columns, what)?);
        for factors in [&r, &c] {
            self.each(factors, |grid, n| one.on(device, grid, THREADS).run(n, factors))?;
        }
        let row_maxima = device.zeros::<f64>(own, what)?;
        let mut column_maxima = device.zeros::<f64>(columns, what)?;
        let maxima = device.function(&passes(scaled_maxima, b, true))?;
        let factors = device.function(&passes(scale_factors, 1, false))?;
        let powers = device.function(&passes(powers_of_two, 1, false))?;
        for _ in 0..Scaling::PASSES {
            for ((coefficient, a), on) in terms.terms.iter().zip(&matrices) {
                let windows = a.blocks().div_ceil(window(b));
                if windows == 0 {
                    continue;
                }
                maxima.on(device, windows, THREADS).run(
                    &on.row_ptr,
                    &on.col,
                    &on.values,
                    a.block_rows() as i32,
                    a.blocks() as i64,
                    coefficient.largest(),
                    row_maxima.pointer(),
                    column_maxima.pointer(),
                    &r,
                    &c,
                )?;
            }
            self.columns_to_owners(terms, &mut column_maxima)?;
            for (maxima, of) in [(&row_maxima, &r), (&column_maxima, &c)] {
                self.each(maxima, |grid, n| factors.on(device, grid, THREADS).run(n, maxima, of))?;
            }
            if let Some(halo) = terms.halo.as_ref().filter(|_| self.comm().size() > 1) {
                self.ghosts_from_owners(halo, b, &mut c)?;
            }
        }
        for of in [&r, &c] {
            self.each(of, |grid, n| powers.on(device, grid, THREADS).run(n, of))?;
        }
        let made = self.scaled(terms, &matrices, &r, &c).and_then(|scaled| {
            let stages = terms.stages();
            Ok((Factors { rows: self.repeated(&r, stages)?, columns: self.repeated(&c, stages)? }, scaled))
        });
        agree(self.comm(), made).map(Some)
    }

    /// Repeats the factors once per stage, which gives a vector of this space.
    fn repeated(&self, factors: &Buffer<f64>, stages: usize) -> Result<Buffer<f64>> {
        let (device, to) = (self.device(), self.vector()?);
        let function = device.function(&passes(repeat, 1, false))?;
        let grid = to.len().div_ceil(THREADS);
        if grid > 0 {
            let (count, stages) = (to.len() as i32, stages as i32);
            function.on(device, grid, THREADS).run(count, stages, factors, &to)?
        }
        Ok(to)
    }

    /// Computes R A C of every term, in new arrays of values.
    fn scaled(
        &self,
        terms: &Terms,
        matrices: &[Arc<Resident>],
        r: &Buffer<f64>,
        c: &Buffer<f64>,
    ) -> Result<Terms<'static>> {
        let (b, device) = (terms.block(), self.device());
        let function = device.function(&passes(scaled_values, b, false))?;
        let wrong = device.zeros::<i32>(1, "a flag")?;
        let mut scaled = Vec::with_capacity(matrices.len());
        for ((coefficient, a), on) in terms.terms.iter().zip(matrices) {
            let values = device.allocate::<f64>(on.values.len(), "a scaled matrix")?;
            let windows = a.blocks().div_ceil(window(b));
            if windows > 0 {
                function.on(device, windows, THREADS).run(
                    &on.row_ptr,
                    &on.col,
                    &on.values,
                    a.block_rows() as i32,
                    a.blocks() as i64,
                    r,
                    c,
                    &values,
                    &wrong,
                )?;
            }
            let storage = a.storage().with_device_values(Arc::new(on.with_values(values)));
            scaled.push((coefficient.clone(), Cow::Owned(a.with_storage(storage))));
        }
        let mut found = [0];
        device.read(&wrong, 0, &mut found)?;
        if found[0] != 0 {
            // The host finds the entry, for the error.
            let mut scaling = Scaling { rows: vec![0.0; r.len()], columns: vec![0.0; c.len()] };
            device.read(r, 0, &mut scaling.rows)?;
            device.read(c, 0, &mut scaling.columns)?;
            return scaling.scaled(terms);
        }
        Ok(Terms { terms: scaled, halo: terms.halo.clone() })
    }

    /// Returns random numbers in (−1, 1). Number i of node n is that of the index numbers[n]·order + i, or of
    /// its own position without `numbers`.
    ///
    /// # Errors
    /// Out of device memory.
    pub(crate) fn random(
        &self,
        seed: u64,
        numbers: Option<RowNumbers>,
        order: usize,
        to: &mut Buffer<f64>,
    ) -> Result<()> {
        let (count, device) = (to.len(), self.device());
        let function = device.function(&random_numbers.plain())?;
        let (mut first, mut list) = (0, None);
        match numbers {
            Some(RowNumbers::Run { first: at, .. }) => first = at * order as u64,
            Some(RowNumbers::List(numbers)) => list = Some(device.upload(numbers, "numbers of nodes")?),
            None => {}
        }
        let at = list.as_ref().map_or(0, |n| n.pointer());
        let grid = count.div_ceil(THREADS).clamp(1, 16 * device.multiprocessors());
        let (count, order) = (count as i64, order as i32);
        function.on(device, grid, THREADS).run(count, seed, at, first, order, &*to)
    }

    /// Combines this rank's column maxima with those of other ranks. Collective where the terms are
    /// distributed.
    fn columns_to_owners(&self, terms: &Terms, maxima: &mut Buffer<f64>) -> Result<()> {
        match terms.halo.as_ref().filter(|_| self.comm().size() > 1) {
            Some(halo) => self.larger_to_owners(halo, terms.block(), maxima),
            None => Ok(()),
        }
    }

    /// Launches a kernel with one thread per number, if there are any numbers. `launch` gets the grid and the
    /// number count.
    fn each(&self, of: &Buffer<f64>, launch: impl FnOnce(usize, i32) -> Result<()>) -> Result<()> {
        match i32::try_from(of.len()) {
            Ok(0) => Ok(()),
            Ok(count) => launch(of.len().div_ceil(THREADS), count),
            Err(_) => Err(Error::Unsupported(format!(
                "the matrix has {} columns, too many for one GPU; distribute it over several GPUs",
                of.len()
            ))),
        }
    }
}
