//! Near-null vectors of a system, which coarse levels must be able to represent.

use super::host::parallel::{fill, lengths};
use super::{RowsOfMatrix, Transfer};
use crate::comm::wire::{Reader, packed};
use crate::comm::{Communicator, gather};
use crate::matrix::{Bsr, first_not_finite};
use crate::operator::Terms;
use crate::partition::RowNumbers;
use crate::threads::Pool;
use crate::{Error, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// Near-null vectors of a level. A copy shares the numbers.
///
/// Smooth errors of a scalar system are nearly constant, and P reproduces constants. Smooth errors of an
/// elastic body are nearly rigid motions: three translations and three rotations. With a P that reproduces
/// only constants, a solve needs many more iterations there.
///
/// # Examples
/// ```
/// use krylith_core::precond::NearNull;
/// // Two nodes of two components, at (0, 0) and (1, 0): translations and the rotation.
/// let near = NearNull::new(&[vec![1., 0., 1., 0.], vec![0., 1., 0., 1.], vec![0., 0., 0., 1.]])?;
/// assert_eq!(near.count(), 3);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NearNull {
    /// Number of vectors, k.
    count: usize,
    source: Source,
}

/// Where the numbers come from.
#[derive(Debug, Clone, PartialEq)]
enum Source {
    /// Number i·k + j is the value of vector j in scalar row i.
    Rows(Arc<[f64]>),
    /// The rigid modes of nodes.
    Rigid(Arc<RigidModes>),
}

/// The rigid motions of nodes with two or three components: translations, then rotations about the centre of
/// all points. In a plane there is one rotation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct RigidModes {
    pub block: usize,
    pub points: Arc<Vec<[f64; 3]>>,
    pub centre: [f64; 3],
}

/// Rows that are written at once.
const RUN: usize = 4096;

/// P by nodes, of a device: its blocks of b×k numbers need not be square. It has the rows of this rank's
/// nodes, and of ghosts if these were [joined](Self::join).
#[doc(hidden)]
pub trait Nodal {
    /// Returns ω, by which [`smooth`](Self::smooth) damps. Returns 0 if P must stay as it is. Ghosts count
    /// as 0.
    fn damping(&self, a: &Bsr) -> Result<f64>;
    /// Computes P ← (I − ω D⁻¹A) P for own rows, where D has the diagonal blocks of A. `couplings` has the
    /// pattern of A and every diagonal entry.
    fn smooth(&mut self, a: &Bsr, couplings: &Bsr, omega: f64) -> Result<()>;
    /// Copies the rows of these nodes to the host. An entry has a block of b·k numbers.
    fn rows_of(&self, nodes: &[u32]) -> Result<RowsOfMatrix>;
    /// Renumbers column j to `numbers[j]` of `columns`, in ascending order, and appends the rows of ghosts.
    /// Own rows of P then have columns below `used`.
    fn join(&mut self, numbers: &[u32], below: &RowsOfMatrix, columns: usize, used: usize) -> Result<()>;
    /// Returns P₀ and P₀ᵀ, where P₀ has the own rows and the used columns of P, as matrices of square blocks.
    fn transfer(&self) -> Result<Transfer>;
    /// Returns P₀ᵀ A P, for the same P₀, with every diagonal entry stored.
    fn product(&self, a: &Bsr) -> Result<Bsr>;
    /// Sets each diagonal entry of 0 to the largest diagonal entry of its block, or to 1. Unknowns whose
    /// column of P is 0 have such entries.
    fn fill_diagonal(&self, coarse: &mut Bsr) -> Result<()>;
    /// Recomputes P₀ᵀ A P for new values of `a`, in the matrix that [`product`](Self::product) returned for
    /// the same pattern, and fills its diagonal.
    fn update(&self, a: &Bsr, coarse: &mut Bsr) -> Result<()>;
    /// Returns P₀ᵀ A P with a filled diagonal.
    fn galerkin(&self, a: &Bsr) -> Result<Bsr> {
        let mut coarse = self.product(a)?;
        self.fill_diagonal(&mut coarse)?;
        Ok(coarse)
    }
}

/// A tentative transfer made from near-null vectors.
#[doc(hidden)]
pub struct NearNullTransfer {
    /// The tentative interpolation T.
    pub nodal: Box<dyn Nodal>,
    /// True if T is to be smoothed.
    pub smooth: bool,
    /// The vectors of the coarser level.
    pub near: NearNull,
}

impl NearNullTransfer {
    /// Returns the number of coarse nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.near.rows() / self.near.count()
    }

    /// Smooths T, on one rank.
    pub(crate) fn smoothed(mut self, a: &Bsr, couplings: &Bsr) -> Result<Self> {
        let omega = if self.smooth { self.nodal.damping(a)? } else { 0.0 };
        if omega > 0.0 {
            self.nodal.smooth(a, couplings, omega)?;
        }
        Ok(self)
    }
}

impl NearNull {
    /// Largest number of unknowns of a coarse node: the largest block that operators support.
    pub const MOST: usize = crate::matrix::MAX_BLOCK;
    /// Default of θ. In the 27-point rows of an elastic body hardly any entry exceeds a larger threshold.
    pub const STRENGTH: f64 = 0.02;

    /// Builds near-null vectors from vectors with a number for every scalar row.
    ///
    /// # Errors
    /// No vector, or more than [`MOST`](Self::MOST); vectors of different lengths, or with numbers that are
    /// not finite.
    pub fn new(vectors: &[Vec<f64>]) -> Result<Self> {
        let count = vectors.len();
        if !(1..=Self::MOST).contains(&count) {
            return Err(Error::invalid(format!(
                "got {count} near-null vectors; expected 1 to {}, because a coarse node has one unknown per \
                 vector",
                Self::MOST
            )));
        }
        let rows = vectors[0].len();
        for (j, vector) in vectors.iter().enumerate() {
            if vector.len() != rows {
                return Err(Error::invalid(format!(
                    "near-null vector {j} has {} numbers, but vector 0 has {rows}; all need one number per \
                     row",
                    vector.len()
                )));
            }
            if let Some(i) = first_not_finite(vector) {
                return Err(Error::invalid(format!(
                    "near-null vector {j}: row {i} is {}; every value must be finite",
                    vector[i]
                )));
            }
        }
        let mut numbers = vec![0.0; rows * count];
        for (run, to) in numbers.chunks_mut(RUN * count).enumerate() {
            for (j, vector) in vectors.iter().enumerate() {
                let from = &vector[run * RUN..];
                to[j..].iter_mut().step_by(count).zip(from).for_each(|(to, v)| *to = *v);
            }
        }
        Ok(Self::of_numbers(count, numbers))
    }

    /// Wraps numbers of `count` vectors, row after row.
    pub(crate) fn of_numbers(count: usize, numbers: Vec<f64>) -> Self {
        Self { count, source: Source::Rows(numbers.into()) }
    }

    /// Returns the rigid modes of nodes with `block` components; `None` unless there are 2 or 3.
    pub(crate) fn rigid(block: usize, points: impl Into<Arc<Vec<[f64; 3]>>>) -> Option<Self> {
        let modes = RigidModes::new(block, points.into())?;
        Some(Self { count: modes.count(), source: Source::Rigid(Arc::new(modes)) })
    }

    /// Returns the nodes of which the vectors are the rigid modes, if they are.
    pub(crate) fn as_rigid(&self) -> Option<&RigidModes> {
        match &self.source {
            Source::Rigid(modes) => Some(modes),
            Source::Rows(_) => None,
        }
    }

    /// Returns the numbers of all vectors, row after row.
    pub(crate) fn numbers(&self, pool: &Pool) -> Cow<'_, [f64]> {
        match &self.source {
            Source::Rows(numbers) => Cow::Borrowed(numbers),
            Source::Rigid(modes) => Cow::Owned(modes.numbers(pool)),
        }
    }

    /// Returns the number of scalar rows.
    pub(crate) fn rows(&self) -> usize {
        match &self.source {
            Source::Rows(numbers) => numbers.len() / self.count,
            Source::Rigid(modes) => modes.points.len() * modes.block,
        }
    }

    /// Returns the vectors one after another.
    pub(crate) fn vectors(&self) -> Vec<Vec<f64>> {
        let numbers = self.numbers(&Pool::new(1));
        // A rank without rows has no numbers.
        let from = |j: usize| numbers.get(j..).unwrap_or_default();
        (0..self.count).map(|j| from(j).iter().step_by(self.count).copied().collect()).collect()
    }

    /// Returns these nodes' rows of vectors that have `run` numbers for each node.
    pub(crate) fn of_nodes(&self, nodes: RowNumbers, run: usize) -> Self {
        let source = match &self.source {
            Source::Rigid(modes) if run == modes.block => {
                let points: Vec<_> = (0..nodes.len()).map(|at| modes.points[nodes.at(at) as usize]).collect();
                Source::Rigid(Arc::new(RigidModes { points: Arc::new(points), ..**modes }))
            }
            _ => {
                let numbers = self.numbers(&Pool::new(1));
                let mut own = vec![0.0; nodes.len() * run * self.count];
                nodes.take(run * self.count, &numbers, &mut own);
                Source::Rows(own.into())
            }
        };
        Self { count: self.count, source }
    }

    /// Returns the vectors of all ranks, one rank after the other. Collective.
    pub(crate) fn gathered(&self, comm: &dyn Communicator, pool: &Pool) -> Result<Self> {
        let mut all = Vec::new();
        for (rank, message) in gather(comm, &packed(&self.numbers(pool)))?.iter().enumerate() {
            all.extend(Reader::new(message, rank).all::<f64>()?);
        }
        Ok(Self::of_numbers(self.count, all))
    }

    /// Returns the vectors with each row divided by a number.
    pub(crate) fn divided(&self, by: &[f64]) -> Self {
        let mut numbers = self.numbers(&Pool::new(1)).into_owned();
        let rows = numbers.chunks_exact_mut(self.count).zip(by);
        rows.for_each(|(row, by)| row.iter_mut().for_each(|v| *v /= by));
        Self::of_numbers(self.count, numbers)
    }

    /// Returns the number of vectors.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Rejects vectors that do not match these terms.
    pub(crate) fn check(&self, terms: &Terms) -> Result<()> {
        if terms.stages() > 1 || terms.terms.len() > 1 {
            return Err(Error::invalid(
                "amg: near-null vectors apply to a single matrix, not to a sum of terms or stages; omit them",
            ));
        }
        let (rows, found) = (terms.rows(), self.rows());
        match found == rows {
            true => Ok(()),
            false => Err(Error::invalid(format!(
                "amg: near-null vectors have {found} numbers, but the system has {rows} rows"
            ))),
        }
    }
}

impl RigidModes {
    /// The planes of the rotations, as pairs of axes.
    pub const PLANES: [[usize; 2]; 3] = [[0, 1], [1, 2], [2, 0]];

    /// Wraps nodes; `None` unless they have 2 or 3 components.
    pub fn new(block: usize, points: Arc<Vec<[f64; 3]>>) -> Option<Self> {
        let (mut low, mut high) = ([f64::MAX; 3], [f64::MIN; 3]);
        for p in points.iter() {
            for axis in 0..3 {
                (low[axis], high[axis]) = (low[axis].min(p[axis]), high[axis].max(p[axis]));
            }
        }
        let centre = [0, 1, 2].map(|axis| 0.5 * (low[axis] + high[axis]));
        (2..=3).contains(&block).then_some(Self { block, points, centre })
    }

    /// Returns the number of modes.
    pub fn count(&self) -> usize {
        self.block * (self.block + 1) / 2
    }

    /// Returns the numbers of all modes, row after row.
    fn numbers(&self, pool: &Pool) -> Vec<f64> {
        let (b, k, centre) = (self.block, self.count(), self.centre);
        let mut numbers = vec![0.0; self.points.len() * b * k];
        let pieces = lengths(self.points.len(), RUN).map(|nodes| nodes * b * k).collect::<Vec<_>>();
        fill(pool, pieces, &mut numbers, |piece, to| {
            for (p, to) in self.points[piece * RUN..].iter().zip(to.chunks_exact_mut(b * k)) {
                (0..b).for_each(|c| to[c * k + c] = 1.0);
                for (j, [x, y]) in Self::PLANES.into_iter().take(k - b).enumerate() {
                    to[x * k + b + j] = centre[y] - p[y];
                    to[y * k + b + j] = p[x] - centre[x];
                }
            }
        });
        numbers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The displacement x + t u keeps all distances to first order in t: (x − y) · (u(x) − u(y)) = 0 for each
    /// pair of points x and y.
    #[test]
    fn rigid_modes_keep_distances() {
        let points = [[0.0, 0.0, 0.0], [2.0, 1.0, -1.0], [0.5, 4.0, 1.0], [3.0, -2.0, 7.0]];
        for block in [2, 3] {
            let modes = NearNull::rigid(block, points.to_vec()).unwrap().vectors();
            assert_eq!(modes.len(), block * (block + 1) / 2);
            for (m, mode) in modes.iter().enumerate() {
                assert!(mode.iter().any(|v| *v != 0.0));
                for (i, p) in points.iter().enumerate() {
                    for (j, q) in points.iter().enumerate() {
                        let along = |c: usize| (p[c] - q[c]) * (mode[i * block + c] - mode[j * block + c]);
                        assert!((0..block).map(along).sum::<f64>().abs() < 1e-12, "mode {m}");
                    }
                }
            }
        }
        assert!([1, 4].iter().all(|b| NearNull::rigid(*b, points.to_vec()).is_none()));
    }

    /// Rows of rigid modes are the same from points as from numbers, also for some of the nodes.
    #[test]
    fn rigid_modes_of_some_nodes_keep_their_centre() {
        let points: Vec<[f64; 3]> =
            (0..9).map(|i| [0.3 * i as f64, (i * i % 7) as f64, (i % 4) as f64]).collect();
        for block in [2, 3] {
            let modes = NearNull::rigid(block, points.clone()).unwrap();
            let stored = NearNull::new(&modes.vectors()).unwrap();
            assert_eq!((stored.rows(), stored.count()), (modes.rows(), modes.count()));
            let own = RowNumbers::List(&[7, 2, 3]);
            assert_eq!(modes.of_nodes(own, block).vectors(), stored.of_nodes(own, block).vectors());
            assert!(modes.of_nodes(own, block).as_rigid().is_some());
            let halves: Vec<f64> = vec![2.0; modes.rows()];
            assert_eq!(modes.divided(&halves).vectors()[block][0], 0.5 * modes.vectors()[block][0]);
        }
    }

    #[test]
    fn other_vectors_are_refused() {
        for (vectors, words) in [
            (vec![], "0 near-null vectors"),
            (vec![vec![1.0]; 9], "9 near-null vectors; expected 1 to 8"),
            (vec![vec![1.0], vec![1.0, 2.0]], "near-null vector 1 has 2 numbers, but vector 0 has 1"),
            (vec![vec![1.0, f64::NAN]], "near-null vector 0: row 1 is NaN"),
        ] {
            let error = NearNull::new(&vectors).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
    }
}
