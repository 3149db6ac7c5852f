//! The search for constant null vectors in the entries of A. They exist if no boundary condition fixes a
//! constant, as in pure Neumann problems, enclosed flow and free bodies.
//!
//! For such a constant, sums over the entries of each row of A are zero up to rounding. The sums are over all
//! columns, over those of one field or range, or over unknowns without a diagonal entry, such as the
//! pressures of a saddle point. In almost every other system the first rows already rule out such constants,
//! and the search ends there.

mod fields;

use crate::Result;
use crate::matrix::{Arrays, Dense};
use crate::operator::Terms;
use crate::precond::NearNull;
use crate::problem::LocalProblem;
use crate::text::{count, plural};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A row sum counts as zero up to this share of the sum of its magnitudes, because entries are sums of
/// rounded numbers of finite elements.
const ROUNDING: f64 = 1e-12;
/// A row sum also counts as zero up to this share of the sum of all magnitudes in the row. Assembly leaves
/// rounding errors where entries cancel.
const LEFT_OVER: f64 = 2e-16;
/// Number of rows that one thread checks before it wakes others.
const FIRST: usize = 64;
/// Number of rows that a thread takes at a time.
const ROWS: usize = 1024;
/// Largest number of disconnected parts of a graph that are treated as bodies.
const MOST: usize = 16;
/// Largest ‖A n‖ / ‖|A| |n|‖ at which a rotation counts as a null vector. It allows for rounded coordinates.
const ROTATION: f64 = 1e-11;

/// The null vectors of A among constants and rigid motions, which are cheap to test.
///
/// # Examples
/// ```
/// use krylith::{Problem, matrix::Csr};
/// // Two bodies that nothing holds, and nothing connects.
/// let spring = |i| [(i, i, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0), (i + 1, i + 1, 1.0)];
/// let a = Csr::from_triplets(4, 4, &[spring(0), spring(2)].concat())?;
/// let found = Problem::csr(&a)?.diagnosis()?.constants;
/// assert_eq!(found.to_string(), "constants in each of 2 disconnected parts");
/// assert_eq!(found.vectors, [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 1.0]]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Constants {
    /// This rank's rows of each vector.
    pub vectors: Vec<Vec<f64>>,
    /// True if [`Problem::constant_null_vectors`](crate::Problem::constant_null_vectors) finds the same
    /// vectors; false for rigid motions.
    pub named: bool,
    words: String,
}

impl std::fmt::Display for Constants {
    /// Writes a description such as `constants of field 2`.
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.words)
    }
}

/// Depth of the search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::solver) enum Depth {
    /// No search.
    Nothing,
    /// Searches only as far as costs almost nothing for systems without such constants. If a device has
    /// judged the row sums, these are its bits; see
    /// [`judge_constants`](crate::solver::SolverSpace::judge_constants).
    First(Option<[u64; 2]>),
    /// Also searches for disconnected parts of the system, and for constants of fields and ranges.
    Parts,
}

impl Constants {
    /// Creates constants that another rank has found.
    pub(in crate::solver) fn of_words(vectors: Vec<Vec<f64>>, named: bool, words: String) -> Self {
        Self { vectors, named, words }
    }

    /// Returns true if no vector was found.
    pub fn is_none(&self) -> bool {
        self.vectors.is_empty()
    }

    /// Searches the entries on the host. The result may be empty, and is the same on every rank.
    /// `whole_diagonal` is true if no own diagonal entry is known to be missing or zero. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub(in crate::solver) fn find(local: &LocalProblem, depth: Depth, whole_diagonal: bool) -> Result<Self> {
        if depth == Depth::Nothing {
            return Ok(Self::default());
        }
        let judged = if let Depth::First(judged) = depth { judged } else { None };
        let places = Places::find(local, judged)?;
        let alone = local.comm.size() == 1 && local.numbers.is_none();
        if let Some(vectors) = places.vectors(local) {
            let parts = if alone { scalar(local.terms).and_then(|a| pieces(a, |_| true)) } else { None };
            if let Some(parts) = parts.filter(|parts| parts.len() > 1) {
                return Ok(Self::of_parts(parts, "constants"));
            }
            let deep = if alone && depth == Depth::Parts { scalar(local.terms) } else { None };
            return match deep.and_then(|a| fields::find(a, local.fields.all(), 2)) {
                Some((vectors, words)) => Ok(Self { vectors, words, named: true }),
                None => Self { vectors, words: places.words(), named: true }.with_rotations(local),
            };
        }
        // Only these look at entries on the host, which may have to be copied there.
        if !alone || depth != Depth::Parts && whole_diagonal {
            return Ok(Self::default());
        }
        let Some(a) = scalar(local.terms) else { return Ok(Self::default()) };
        if depth == Depth::Parts
            && let Some(parts) = pieces(a, |_| true)
        {
            return Ok(Self::of_parts(parts, "constants"));
        }
        let holes = if whole_diagonal { Vec::new() } else { holes(a) };
        let some = holes.iter().filter(|hole| **hole).count();
        if some > 0
            && some < holes.len()
            && let Some(parts) = pieces(a, |j| holes[j])
        {
            let words = format!("constants of the {} unknowns without a diagonal entry", count(some));
            return Ok(Self::of_parts(parts, &words));
        }
        let of_fields = (depth == Depth::Parts).then(|| fields::find(a, local.fields.all(), 1)).flatten();
        Ok(of_fields.map_or_else(Self::default, |(vectors, words)| Self { vectors, words, named: true }))
    }

    fn of_parts(vectors: Vec<Vec<f64>>, of: &str) -> Self {
        let n = vectors.first().map_or(0, Vec::len);
        let whole = vectors.len() == 1 && vectors[0].iter().all(|v| *v != 0.0);
        let words = match vectors.len() {
            1 if whole || of != "constants" => of.into(),
            1 => {
                let size = vectors[0].iter().filter(|v| **v != 0.0).count();
                format!("{of} of {} of {} unknowns", count(size), count(n))
            }
            parts => format!("{of} in each of {}", plural(parts, "disconnected part")),
        };
        Self { vectors, words, named: true }
    }

    /// Adds rotations if the fields are displacements of a free body.
    fn with_rotations(mut self, local: &LocalProblem) -> Result<Self> {
        let b = local.order();
        let known =
            if local.terms.stages() == 1 && self.vectors.len() == b { own_points(local) } else { None };
        let rigid = known.and_then(|points| NearNull::rigid(b, points));
        let Some(modes) = rigid.map(|rigid| rigid.vectors()) else { return Ok(self) };
        for mode in modes.into_iter().skip(b) {
            if local.original().null_share(&mode)? <= ROTATION {
                self.vectors.push(mode);
                (self.words, self.named) = ("rigid motions".into(), false);
            }
        }
        Ok(self)
    }
}

/// Returns the coordinates of nodes, if this rank has the whole system.
fn own_points(local: &LocalProblem) -> Option<Vec<[f64; 3]>> {
    local.coordinates.filter(|_| local.comm.size() == 1 && local.numbers.is_none()).map(<[_]>::to_vec)
}

/// Returns the matrix of the terms if it is the only one and has scalar rows.
fn scalar<'a>(terms: &'a Terms) -> Option<Arrays<'a>> {
    match &terms.terms[..] {
        [(c, a)] if terms.block() * terms.stages() == 1 && c[(0, 0)] != 0.0 => Some(Arrays::of(a)),
        _ => None,
    }
}

/// Marks unknowns without a diagonal entry.
fn holes(a: Arrays) -> Vec<bool> {
    let has = |i: usize| a.row(i).any(|p| a.col[p] as usize == i && a.values[p] != 0.0);
    (0..a.row_ptr.len() - 1).into_par_iter().with_min_len(ROWS).map(|i| !has(i)).collect()
}

/// Returns the constant of each connected part of these columns in which all row sums are zero; `None` if
/// there is no such part, or if there are too many. Rows connect the columns in which they have entries.
fn pieces(a: Arrays, belongs: impl Fn(usize) -> bool) -> Option<Vec<Vec<f64>>> {
    let n = a.row_ptr.len() - 1;
    let (mut joined, mut broken) = (Joined::new(n), Vec::new());
    let mut met = vec![false; n];
    for i in 0..n {
        let (mut sum, mut size, mut whole, mut first) = (0.0, 0.0, 0.0, None);
        for p in a.row(i).filter(|&p| a.values[p] != 0.0) {
            let (j, v) = (a.col[p] as usize, a.values[p]);
            whole += v.abs();
            if belongs(j) {
                (sum, size, met[j]) = (sum + v, size + v.abs(), true);
                joined.join(*first.get_or_insert(j), j);
            }
        }
        broken.extend(first.filter(|_| !is_zero(sum, size, whole)));
    }
    let mut alive = met;
    for j in broken {
        alive[joined.root(j)] = false;
    }
    let mut number = vec![usize::MAX; n];
    let mut vectors: Vec<Vec<f64>> = Vec::new();
    for j in (0..n).filter(|&j| belongs(j)) {
        let root = joined.root(j);
        if !alive[root] {
            continue;
        }
        if number[root] == usize::MAX {
            if vectors.len() == MOST {
                return None;
            }
            number[root] = vectors.len();
            vectors.push(vec![0.0; n]);
        }
        vectors[number[root]][j] = 1.0;
    }
    (!vectors.is_empty()).then_some(vectors)
}

/// Returns true if `sum` is zero up to rounding. `size` is the sum of the magnitudes of its terms, and
/// `whole` that of the whole row.
fn is_zero(sum: f64, size: f64, whole: f64) -> bool {
    sum.abs() <= (ROUNDING * size).max(LEFT_OVER * whole)
}

/// Union-find over columns.
struct Joined(Vec<u32>);

impl Joined {
    fn new(n: usize) -> Self {
        Self((0..n as u32).collect())
    }

    fn root(&mut self, mut i: usize) -> usize {
        while self.0[i] as usize != i {
            self.0[i] = self.0[self.0[i] as usize];
            i = self.0[i] as usize;
        }
        i
    }

    fn join(&mut self, i: usize, j: usize) {
        let (i, j) = (self.root(i), self.root(j));
        self.0[i.max(j)] = i.min(j) as u32;
    }
}

/// The unknowns of a constant: one component in one stage, or all components in one stage.
#[derive(Debug, Clone, Copy)]
struct Place {
    component: Option<usize>,
    stage: usize,
}

/// The unknowns of the constants that A maps to zero.
struct Places {
    found: Vec<Place>,
    block: usize,
    stages: usize,
}

impl Places {
    /// Searches this rank's rows, or takes the bits of a device that has judged them. Collective.
    fn find(local: &LocalProblem, judged: Option<[u64; 2]>) -> Result<Self> {
        let (block, stages) = (local.terms.block(), local.terms.stages());
        let single = (0..block * stages).map(|p| Place { component: Some(p / stages), stage: p % stages });
        let of_stages = (0..stages).map(|stage| Place { component: None, stage });
        let all: Vec<Place> = single.chain(of_stages.filter(|_| block > 1)).collect();
        let mut dead: Vec<f64> = match judged {
            Some(judged) => {
                let bits = |bits: u64| (0..all.len()).map(move |p| (bits >> p & 1) as f64);
                judged.into_iter().flat_map(bits).collect()
            }
            None => {
                let rows = Rows::new(local.terms, &all);
                rows.look();
                let both = rows.dead.iter().chain(&rows.met);
                both.map(|flag| f64::from(u8::from(flag.load(Relaxed)))).collect()
            }
        };
        local.comm.sum(&mut dead)?;
        let met = dead.split_off(all.len());
        let mut found: Vec<Place> =
            (0..all.len()).filter(|&p| dead[p] == 0.0 && met[p] > 0.0).map(|p| all[p]).collect();
        if found.iter().any(|place| place.component.is_some()) {
            found.retain(|place| place.component.is_some());
        }
        Ok(Self { found, block, stages })
    }

    fn vectors(&self, local: &LocalProblem) -> Option<Vec<Vec<f64>>> {
        let width = self.block * self.stages;
        let has = |place: &Place, p: usize| {
            place.stage == p % self.stages && place.component.is_none_or(|c| c == p / self.stages)
        };
        let vector = |place: &Place| {
            (0..local.terms.rows()).map(|i| f64::from(u8::from(has(place, i % width)))).collect()
        };
        (!self.found.is_empty()).then(|| self.found.iter().map(vector).collect())
    }

    fn words(&self) -> String {
        let mut fields: Vec<String> =
            self.found.iter().filter_map(|place| place.component).map(|c| c.to_string()).collect();
        fields.dedup();
        match fields.len() {
            0 => "constants".into(),
            _ if self.block == 1 => "constants".into(),
            all if all == self.block => "constants of every field".into(),
            1 => format!("constants of field {}", fields[0]),
            _ => format!("constants of fields {}", fields.join(", ")),
        }
    }
}

/// The check of row sums in all rows.
struct Rows<'a> {
    parts: Vec<(&'a Dense, Arrays<'a>)>,
    block: usize,
    stages: usize,
    rows: usize,
    places: &'a [Place],
    /// For each constant, true if a row whose sum is not zero has ruled it out.
    dead: Vec<AtomicBool>,
    /// For each constant, true if some row has entries in its columns.
    met: Vec<AtomicBool>,
}

impl<'a> Rows<'a> {
    fn new(terms: &'a Terms, places: &'a [Place]) -> Self {
        let flags = || places.iter().map(|_| AtomicBool::new(false)).collect();
        Self {
            parts: terms.terms.iter().map(|(c, a)| (c, Arrays::of(a))).collect(),
            block: terms.block(),
            stages: terms.stages(),
            rows: terms.block_rows(),
            places,
            dead: flags(),
            met: flags(),
        }
    }

    fn are_all_dead(&self) -> bool {
        self.dead.iter().all(|dead| dead.load(Relaxed))
    }

    fn look(&self) {
        self.look_at(0..self.rows.min(FIRST));
        if self.rows > FIRST && !self.are_all_dead() {
            let chunks = (self.rows - FIRST).div_ceil(ROWS);
            (0..chunks).into_par_iter().for_each(|k| {
                let first = FIRST + k * ROWS;
                self.look_at(first..(first + ROWS).min(self.rows));
            });
        }
    }

    fn look_at(&self, rows: Range<usize>) {
        let square = self.block * self.block;
        let mut sums = vec![[0.0; 2]; self.parts.len() * square];
        for i in rows {
            if self.are_all_dead() {
                return;
            }
            sums.fill([0.0; 2]);
            for ((_, a), sums) in self.parts.iter().zip(sums.chunks_exact_mut(square)) {
                let row = a.row(i);
                for block in a.values[row.start * square..row.end * square].chunks_exact(square) {
                    sums.iter_mut().zip(block).for_each(|(sum, v)| *sum = [sum[0] + v, sum[1] + v.abs()]);
                }
            }
            self.judge(&sums);
        }
    }

    /// Rules out constants by one block row. For each term, `sums` has the sums of the blocks of that row,
    /// entry by entry.
    fn judge(&self, sums: &[[f64; 2]]) {
        let square = self.block * self.block;
        for (p, place) in self.places.iter().enumerate().filter(|(p, _)| !self.dead[*p].load(Relaxed)) {
            let components = place.component.map_or(0..self.block, |c| c..c + 1);
            for (r, l) in (0..self.block).flat_map(|r| (0..self.stages).map(move |l| (r, l))) {
                let (mut sum, mut size, mut whole) = (0.0, 0.0, 0.0);
                for ((c, _), sums) in self.parts.iter().zip(sums.chunks_exact(square)) {
                    let weight = c[(l, place.stage)];
                    let row = &sums[r * self.block..][..self.block];
                    whole += weight.abs() * row.iter().map(|[_, magnitude]| magnitude).sum::<f64>();
                    for [v, magnitude] in &row[components.clone()] {
                        (sum, size) = (sum + weight * v, size + weight.abs() * magnitude);
                    }
                }
                if !is_zero(sum, size, whole) {
                    self.dead[p].store(true, Relaxed);
                    break;
                }
                if size > 0.0 && !self.met[p].load(Relaxed) {
                    self.met[p].store(true, Relaxed);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
