//! Sparse direct factors: Q A Qᵀ = L Lᵀ if A is symmetric and positive definite, L B Lᵀ if it is symmetric,
//! else P A Q = L U with partial pivoting. P and Q are permutations, L is lower and U upper triangular, and B
//! has diagonal blocks of order 1 and 2. A matrix that signs of columns make symmetric also takes L B Lᵀ.
//!
//! Larger systems are ordered by nested dissection of A + Aᵀ ([`order`]) and factorised by fronts on all
//! threads ([`multifrontal`]), with pivots above a threshold. Their factors are the same on any number of
//! threads. Small systems, and systems that such factors do not solve ([`direct`]), take the crate `faer` on
//! one thread: columns are ordered by COLAMD (Davis, Gilbert, Larimore and Ng 2004), and symmetric systems by
//! AMD (Amestoy, Davis and Duff 1996).
//!
//! Fill is bounded before the factorisation begins. It is known but for delayed pivots. For L U by `faer` it
//! is at most that of a QR factorisation (George and Ng 1987), which may be several times the actual fill.
//! Rows and columns with many entries form a border around the factors of the rest. The Krylov method around
//! the factors corrects the rounding errors of a solve. An application reads L and U once, on the host.
//!
//! A device may have a library of direct factors, which [`on_device`] tests and applies.

mod batch;
mod border;
mod coarsening;
mod direct;
mod dissect;
mod factors;
mod front;
mod graph;
mod indefinite;
mod lanes;
mod multifrontal;
pub(crate) mod on_device;
mod order;
mod pins;
mod plan;
mod ranks;
mod scaling;
mod separator;
mod singular;
mod solve;
pub(crate) mod subdomains;
mod symmetry;
mod tree;

use crate::interrupt;
use crate::matrix::Dense;
use crate::operator::{HostTerms, LinearOperator, TermValues, Terms, check_count, fresh_key};
use crate::precond::LeftNull;
use crate::space::Space;
use crate::{Error, Result};
pub use batch::Batch;
use direct::{Made, Wanted};
use factors::{Columns, Factors, Work};
pub(crate) use order::cost_by_degree;
pub(crate) use pins::pins;
pub(crate) use ranks::{MakeWhole, WholeDescription, WholeFactors, WholeOnDevice};
pub use ranks::{RanksLu, RanksLuOptions};
use std::cell::RefCell;

/// Number of blocks up to which factors are computed on the solver's thread. That takes so little time that
/// nobody needs to interrupt it.
const AT_ONCE: usize = 1 << 13;

/// The inverse of Σ Cₜ ⊗ Aₜ, applied by sparse direct factors.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::matrix::Csr;
/// use krylith::operator::{LinearOperator, Terms};
/// use krylith_core::precond::SparseLu;
/// use krylith::operator::Space;
/// // A saddle point: no incomplete factor without pivoting can divide by its zero.
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0)])?;
/// let (lu, cpu) = (SparseLu::new(&Terms::csr(&a)?, None)?, Cpu::new(2, 1));
/// let (mut b, mut x, mut host) = (cpu.vector()?, cpu.vector()?, [0.0; 2]);
/// cpu.write(&[3.0, 1.0], &mut b)?;
/// lu.apply(&cpu, &b, &mut x)?;
/// cpu.read(&x, &mut host)?;
/// assert_eq!(host, [1.0, 1.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct SparseLu {
    assembly: Assembly,
    matrix: Columns,
    /// One unknown for each null vector, those of given vectors first. Its row and column are left out of the
    /// factors.
    pinned: Vec<usize>,
    /// Number of null vectors that were given.
    given: usize,
    /// What the factors have shown about null vectors that nobody gave; `None` if they are not looked for.
    shown: Option<LeftNull>,
    factors: Factors,
    /// Bytes that the factors may take, if known.
    room: Option<u64>,
    work: RefCell<Work>,
    scratch: [Vec<f64>; 2],
    key: u64,
}

/// Positions of the blocks of the terms in the assembled matrix.
struct Assembly {
    block: usize,
    stages: usize,
    /// First block of each block column.
    col_ptr: Vec<usize>,
    /// For each term and each of its blocks, the block column and the position among the blocks sorted by
    /// column.
    places: Vec<Vec<(u32, usize)>>,
}

impl SparseLu {
    /// Factorises a sum of terms, in at most `room` bytes.
    ///
    /// # Errors
    /// A matrix that is not square, or has columns of other ranks; a singular matrix; factors that may need
    /// more than `room`.
    pub fn new(terms: &Terms, room: Option<u64>) -> Result<Self> {
        Self::with_null_vectors(terms, &[], room)
    }

    /// Factorises a singular system with these null vectors. For each vector one unknown is pinned, at which
    /// the vectors are large and linearly independent. The result y is 0 at pinned unknowns, and A y = x
    /// holds in all rows except those of pinned unknowns. If x is in the range of A, then A y = x holds in
    /// these rows too. This requires that the left null vectors n, with nᵀA = 0, are linearly independent in
    /// the rows of pinned unknowns. For a symmetric matrix they are.
    ///
    /// # Errors
    /// As [`new`](Self::new); vectors of a wrong length or linearly dependent ones.
    ///
    /// ```
    /// use krylith::device::Cpu;
    /// use krylith::{matrix::Csr, operator::{LinearOperator, Terms, Space}};
    /// use krylith_core::precond::SparseLu;
    /// // Two cells in a closed box: the pressure is known up to a constant.
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 1.0)])?;
    /// let lu = SparseLu::with_null_vectors(&Terms::csr(&a)?, &[vec![1.0; 2]], None)?;
    /// let (space, mut y) = (Cpu::new(2, 1), vec![0.0; 2]);
    /// lu.apply(&space, &vec![3.0, -3.0], &mut y)?;
    /// assert_eq!((y[0] - y[1]).abs(), 3.0);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn with_null_vectors(terms: &Terms, null: &[Vec<f64>], room: Option<u64>) -> Result<Self> {
        check_count(terms.terms.len())?;
        if !terms.is_square() {
            return Err(Error::invalid(
                "lu: a direct factorisation needs a square matrix that is entirely on one rank",
            ));
        }
        Self::with_pinned(terms, pins(terms, null)?, room, None)
    }

    /// As [`with_null_vectors`](Self::with_null_vectors), but a symmetric matrix may have other null vectors
    /// besides. If they are few, its [factors show them](Self::singular_rows).
    ///
    /// # Errors
    /// As [`with_null_vectors`](Self::with_null_vectors).
    pub(crate) fn with_or_without(terms: &Terms, null: &[Vec<f64>], room: Option<u64>) -> Result<Self> {
        Self::with_pinned(terms, pins(terms, null)?, room, Some(LeftNull::default()))
    }

    fn with_pinned(
        terms: &Terms,
        pinned: Vec<usize>,
        room: Option<u64>,
        shown: Option<LeftNull>,
    ) -> Result<Self> {
        let (assembly, matrix) = Assembly::new(terms, &pinned);
        let work = RefCell::new(Work::default());
        let (scratch, key) = (Default::default(), fresh_key());
        let factors = Factors::None;
        let given = pinned.len();
        let mut lu = Self { assembly, matrix, pinned, given, shown, factors, room, work, scratch, key };
        lu.update_values(TermValues::from(terms))?;
        Ok(lu)
    }

    /// Factorises new values under the same patterns. The orderings and the analysis are reused, unless the
    /// matrix has lost its symmetry or now needs other pivots. After an error there are no factors until new
    /// values can be factorised.
    ///
    /// # Errors
    /// As [`new`](Self::new); values of another shape.
    pub fn update_values<'v>(&mut self, values: impl Into<TermValues<'v>>) -> Result<()> {
        fill_checked(&self.assembly, values.into(), &mut self.scratch, &mut self.matrix.values)?;
        let mut old = std::mem::replace(&mut self.factors, Factors::None);
        if let Some(shown) = self.shown.as_mut().filter(|shown| !shown.vectors.is_empty()) {
            // The new matrix may be regular.
            *shown = LeftNull::default();
            self.pinned.truncate(self.given);
            old = Factors::None;
        }
        self.matrix.pin(&self.pinned);
        if self.matrix.order() > 0 {
            // Factors by fronts look for an interrupt themselves.
            let wanted = if self.shown.is_some() { Wanted::AnyUnlessFew } else { Wanted::Any };
            let (mut few, mut made) =
                (Vec::new(), self.matrix.direct(old, wanted, self.room, self.work.get_mut())?);
            if let Made::Few(rows, factors) = made {
                if self.pin_found(&rows, factors)? {
                    return Ok(());
                }
                few = rows;
                let work = self.work.get_mut();
                made = self.matrix.direct(Factors::None, Wanted::Unsymmetric, self.room, work)?;
            }
            let (old, rows) = match made {
                Made::Factors(factors) => {
                    self.factors = factors;
                    return Ok(());
                }
                Made::Not(old, rows) if rows.is_empty() => (old, few),
                Made::Not(old, rows) => (old, rows),
                Made::Few(rows, _) => (Factors::None, rows),
            };
            // `faer` cannot be interrupted, so it factorises larger matrices on another thread. If this
            // thread stops waiting for it, there are no factors.
            let (matrix, mut work) = (std::mem::take(&mut self.matrix), self.work.take());
            let room = self.room;
            let make = move || {
                let made = matrix.factors(old, room, &mut work);
                (matrix, work, made)
            };
            let small = self.assembly.places.iter().map(Vec::len).sum::<usize>() < AT_ONCE;
            let (matrix, work, made) = if small { make() } else { interrupt::apart("lu", make)? };
            (self.matrix, self.work) = (matrix, RefCell::new(work));
            self.factors = made.map_err(|e| name(e, &rows))?;
        }
        Ok(())
    }

    /// Solves with the factors in place, or with their transposes.
    fn solve_here(&mut self, transposed: bool, x: &mut Vec<f64>) -> Result<()> {
        let work = self.work.get_mut();
        std::mem::swap(&mut work.x, x);
        self.pinned.iter().for_each(|&u| work.x[u] = 0.0);
        let solved = self.factors.solve(transposed, work);
        std::mem::swap(&mut work.x, x);
        solved
    }

    /// Returns the kind of the factors: `Cholesky`, `LBLᵀ` or `LU`, with `bordered` if dense rows and columns
    /// surround them; `none` after values that could not be factorised.
    pub fn kind(&self) -> &'static str {
        self.factors.kind()
    }

    /// Returns the number of numbers in the factors, including a border of dense rows and columns. If
    /// [`is_bound`](Self::is_bound), it is the largest size that L and U can have with any pivots.
    pub fn numbers(&self) -> usize {
        self.factors.numbers()
    }

    /// Returns true if the number of numbers in the factors is known only as a bound.
    pub fn is_bound(&self) -> bool {
        self.factors.is_bound()
    }

    /// Returns the rows that found no pivot above rounding errors, and were given one. The Krylov method
    /// around the factors corrects what this changes.
    pub fn weak_rows(&self) -> Vec<usize> {
        self.factors.weak_rows()
    }

    /// Returns the bytes of this many numbers of factors.
    pub(crate) fn bytes_of(numbers: usize) -> u64 {
        factors::ENTRY.saturating_mul(numbers as u64)
    }

    /// Returns the number of numbers of the assembled matrix.
    pub fn stored(&self) -> usize {
        self.matrix.values.len()
    }
}

/// Assembles values, if they have the shape of the pattern.
fn fill_checked(
    assembly: &Assembly,
    values: TermValues,
    scratch: &mut [Vec<f64>; 2],
    out: &mut [f64],
) -> Result<()> {
    let square = assembly.block * assembly.block;
    values.check(assembly.stages, assembly.places.iter().map(|p| p.len() * square))?;
    values.on_host(scratch).map(|host| assembly.fill(&host, out))
}

/// Adds the rows without a pivot to an error of singular factors.
fn name(e: Error, rows: &[usize]) -> Error {
    if rows.is_empty() || e.is_memory() || e.is_interrupt() {
        return e;
    }
    Error::invalid(format!("{e}; no pivot was found in {}", listed(rows)))
}

/// Returns the numbers of some rows, in words.
pub(crate) fn listed(rows: &[usize]) -> String {
    let first: Vec<String> = rows.iter().take(5).map(usize::to_string).collect();
    let more = if rows.len() > first.len() {
        format!(" and {} more", rows.len() - first.len())
    } else {
        String::new()
    };
    format!("row {}{more}", first.join(", "))
}

impl<S: Space> LinearOperator<S> for SparseLu {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let work = &mut *self.work.borrow_mut();
        space.read(x, &mut work.x)?;
        self.pinned.iter().for_each(|&u| work.x[u] = 0.0);
        self.factors.solve(false, work)?;
        space.write(&work.x, y)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let work = &mut *self.work.borrow_mut();
        space.read(x, &mut work.x)?;
        // Pinned unknowns are coupled to no others, in either direction.
        self.pinned.iter().for_each(|&u| work.x[u] = 0.0);
        self.factors.solve(true, work)?;
        space.write(&work.x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        (16 * self.factors.moved() + 16 * self.matrix.order()) as u64
    }
    /// The solve runs on the host.
    fn recordable(&self) -> bool {
        false
    }
}

impl Assembly {
    /// Computes the pattern of the sum, with blocks sorted by column, and sets all values to 0. Pinned
    /// unknowns get a diagonal block. Columns of ghosts follow those of own nodes.
    fn new(terms: &Terms, pinned: &[usize]) -> (Self, Columns) {
        let (block, stages, nodes) = (terms.block(), terms.stages(), terms.block_rows());
        let columns = terms.terms.first().map_or(nodes, |(_, a)| a.block_columns());
        let order = block * stages;
        let mut added = vec![false; if pinned.is_empty() { 0 } else { nodes }];
        pinned.iter().for_each(|u| added[u / order] = true);
        // A block that two terms have is counted once, because both terms visit it in the same block row.
        let sweep = |visit: &mut dyn FnMut(Option<(usize, usize)>, usize, usize, bool)| {
            let mut last = vec![usize::MAX; columns];
            for i in 0..nodes {
                for (t, (_, a)) in terms.terms.iter().enumerate() {
                    for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                        let j = a.col()[p] as usize;
                        let new = last[j] != i;
                        last[j] = i;
                        visit(Some((t, p)), i, j, new);
                    }
                }
                if added.get(i) == Some(&true) && last[i] != i {
                    last[i] = i;
                    visit(None, i, i, true);
                }
            }
        };
        let mut col_ptr = vec![0; columns + 1];
        sweep(&mut |_, _, j, new| col_ptr[j + 1] += usize::from(new));
        (0..columns).for_each(|j| col_ptr[j + 1] += col_ptr[j]);
        let mut next = col_ptr.clone();
        let mut block_rows = vec![0; col_ptr[columns]];
        let mut places: Vec<Vec<(u32, usize)>> =
            terms.terms.iter().map(|(_, a)| vec![(0, 0); a.blocks()]).collect();
        sweep(&mut |of, i, j, new| {
            next[j] += usize::from(new);
            block_rows[next[j] - 1] = i;
            if let Some((t, p)) = of {
                places[t][p] = (j as u32, next[j] - 1);
            }
        });
        let mut matrix = Columns {
            col_ptr: Vec::with_capacity(columns * order + 1),
            rows: Vec::with_capacity(block_rows.len() * order * order),
            values: vec![0.0; block_rows.len() * order * order],
        };
        matrix.col_ptr.push(0);
        for blocks in col_ptr.windows(2).map(|w| &block_rows[w[0]..w[1]]) {
            for _ in 0..order {
                matrix.rows.extend(blocks.iter().flat_map(|i| i * order..(i + 1) * order));
                matrix.col_ptr.push(matrix.rows.len());
            }
        }
        (Self { block, stages, col_ptr, places }, matrix)
    }

    /// Assembles Σ Cₜ ⊗ Aₜ, column by column.
    fn fill(&self, terms: &HostTerms, out: &mut [f64]) {
        let (b, s) = (self.block, self.stages);
        let order = b * s;
        out.fill(0.0);
        let add = |out: &mut [f64], c: &Dense, (j, place): (u32, usize), block: &[f64]| {
            let (from, to) = (self.col_ptr[j as usize], self.col_ptr[j as usize + 1]);
            let height = (to - from) * order;
            let corner = from * order * order + (place - from) * order;
            for (e, v) in block.iter().enumerate() {
                let (r, q) = (e / b, e % b);
                for k in 0..s {
                    for l in 0..s {
                        out[corner + (q * s + l) * height + r * s + k] += c[(k, l)] * v;
                    }
                }
            }
        };
        for ((c, values), places) in terms.iter().flatten().zip(&self.places) {
            if order == 1 {
                let c = c[(0, 0)];
                values.iter().zip(places).for_each(|(v, (_, place))| out[*place] += c * v);
                continue;
            }
            for (block, place) in values.chunks_exact(b * b).zip(places) {
                add(out, c, *place, block);
            }
        }
    }
}

#[cfg(test)]
mod tests;
