//! Sparse direct factors: P A Q = L U with partial pivoting, or Q A Qᵀ = L Lᵀ where A is symmetric and positive definite.
//!
//! Columns are ordered by COLAMD (Davis, Gilbert, Larimore and Ng 2004), symmetric systems by AMD (Amestoy, Davis and Duff 1996), the
//! factors are those of the crate `faer`, on one thread, so that they are the same on any number of threads. Fill is bounded before
//! anything is factored: of L Lᵀ it is known, of L U it is at most that of a QR factorisation (George and Ng 1987), which may be
//! several times what comes. Iterations around it refine what rounding leaves. An application moves L and U once, on the host.

use crate::matrix::Dense;
use crate::operator::{HostTerms, LinearOperator, TermValues, Terms, check_count, fresh_key};
use crate::space::Space;
use crate::{Error, Result};
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, LltRef, SymbolicCholesky, SymmetricOrdering, factorize_symbolic_cholesky,
};
use faer::sparse::linalg::lu::{LuRef, LuSymbolicParams, NumericLu, SymbolicLu, factorize_symbolic_lu};
use faer::sparse::linalg::{LuError, qr};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par, Side};
use std::cell::RefCell;

/// Two mirrored entries are equal up to this, relative to the larger.
const EQUAL: f64 = 1e-13;
/// What a solve with random numbers may leave over of them: factors that leave more are those of a singular system.
const LEFT: f64 = 0.5;
/// What to do about a system without an inverse.
const SINGULAR: &str = "try an incomplete one, such as ildu:cut=whole,shift=1e-6, or name the null vectors";

/// A⁻¹ by sparse direct factors of Σ Cₜ ⊗ Aₜ.
///
/// ```
/// use krylith::device::cpu::Cpu;
/// use krylith::matrix::Csr;
/// use krylith::operator::{LinearOperator, Terms};
/// use krylith::precond::SparseLu;
/// use krylith::space::Space;
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
    factors: Factors,
    /// Bytes that factors may take, where that is known.
    room: Option<u64>,
    work: RefCell<Work>,
    scratch: [Vec<f64>; 2],
    key: u64,
}

/// One right-hand side, and what a solve needs beside it.
struct Work {
    x: Vec<f64>,
    stack: MemBuffer,
}

/// Factors of the values that were given last.
enum Factors {
    /// None could be made, or there are no rows.
    None,
    Cholesky {
        symbolic: SymbolicCholesky<usize>,
        values: Vec<f64>,
    },
    Lu {
        symbolic: SymbolicLu<usize>,
        numeric: NumericLu<usize, f64>,
        most: usize,
    },
}

/// A matrix by columns, rows of each in order.
struct Columns {
    col_ptr: Vec<usize>,
    rows: Vec<usize>,
    values: Vec<f64>,
}

/// Where the blocks of the terms go.
struct Assembly {
    block: usize,
    stages: usize,
    /// First block of each block column.
    col_ptr: Vec<usize>,
    /// Of each term the block column of each block, and its place among the blocks by columns.
    places: Vec<Vec<(u32, usize)>>,
}

impl SparseLu {
    /// Factors of a sum of terms, in at most `room` bytes.
    ///
    /// # Errors
    /// A matrix that is not square, or has columns of other ranks; one that is singular; factors that may need more than `room`.
    pub fn new(terms: &Terms, room: Option<u64>) -> Result<Self> {
        check_count(terms.terms.len())?;
        if !terms.is_square() {
            return Err(Error::invalid(
                "lu: a direct factorisation needs a square matrix, whole on one rank",
            ));
        }
        let (assembly, matrix) = Assembly::new(terms);
        let work = RefCell::new(Work { x: vec![0.0; matrix.order()], stack: buffer(StackReq::EMPTY)? });
        let (scratch, key) = (Default::default(), fresh_key());
        let mut lu = Self { assembly, matrix, factors: Factors::None, room, work, scratch, key };
        lu.update_values(TermValues::from(terms))?;
        Ok(lu)
    }

    /// Factors of new values under the same patterns: orderings and the analysis stay, unless a matrix that was symmetric and positive
    /// definite no longer is. After an error there are none, until values come that have some.
    ///
    /// # Errors
    /// As [`new`](Self::new); another shape.
    pub fn update_values<'v>(&mut self, values: impl Into<TermValues<'v>>) -> Result<()> {
        let (values, mut scratch) = (values.into(), std::mem::take(&mut self.scratch));
        let square = self.assembly.block * self.assembly.block;
        values.check(self.assembly.stages, self.assembly.places.iter().map(|p| p.len() * square))?;
        let filled =
            values.on_host(&mut scratch).map(|host| self.assembly.fill(&host, &mut self.matrix.values));
        self.scratch = scratch;
        filled?;
        let old = std::mem::replace(&mut self.factors, Factors::None);
        if self.matrix.order() > 0 {
            self.factors = self.matrix.factors(old, self.room)?;
            self.work.get_mut().stack = buffer(self.factors.solve_scratch())?;
            self.check()?;
        }
        Ok(())
    }

    /// Refuses factors that do not solve the system, as those of a singular matrix.
    fn check(&mut self) -> Result<()> {
        let n = self.matrix.order();
        let b: Vec<f64> = (0..n).map(|i| crate::space::random(1, i as u64)).collect();
        let work = self.work.get_mut();
        work.x.copy_from_slice(&b);
        self.factors.solve(work)?;
        let mut r = b.clone();
        self.matrix.subtract_product(&work.x, &mut r);
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        if norm(&r) <= LEFT * norm(&b) {
            return Ok(());
        }
        self.factors = Factors::None;
        Err(self.matrix.singular())
    }

    /// True where the factors are L and Lᵀ.
    pub fn is_cholesky(&self) -> bool {
        matches!(self.factors, Factors::Cholesky { .. })
    }

    /// Numbers of the factors: of L where they are L and Lᵀ, else the most that pivoting can make of L and U.
    pub fn numbers(&self) -> usize {
        match &self.factors {
            Factors::None => 0,
            Factors::Cholesky { values, .. } => values.len(),
            Factors::Lu { most, .. } => *most,
        }
    }

    /// Bytes of so many numbers of factors.
    pub(crate) fn bytes_of(numbers: usize) -> u64 {
        ENTRY.saturating_mul(numbers as u64)
    }

    /// Numbers of the assembled matrix.
    pub fn stored(&self) -> usize {
        self.matrix.values.len()
    }
}

impl<S: Space> LinearOperator<S> for SparseLu {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let work = &mut *self.work.borrow_mut();
        space.read(x, &mut work.x)?;
        self.factors.solve(work)?;
        space.write(&work.x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        let times = if self.is_cholesky() { 2 } else { 1 };
        (16 * times * self.numbers() + 16 * self.matrix.order()) as u64
    }
    /// It works on the host.
    fn recordable(&self) -> bool {
        false
    }
}

impl Factors {
    fn solve_scratch(&self) -> StackReq {
        match self {
            Factors::None => StackReq::EMPTY,
            Factors::Cholesky { symbolic, .. } => symbolic.solve_in_place_scratch::<f64>(1, Par::Seq),
            Factors::Lu { symbolic, .. } => symbolic.solve_in_place_scratch::<f64>(1, Par::Seq),
        }
    }

    /// x ← A⁻¹ x.
    fn solve(&self, work: &mut Work) -> Result<()> {
        let n = work.x.len();
        let x = MatMut::from_column_major_slice_mut(&mut work.x, n, 1);
        let stack = MemStack::new(&mut work.stack);
        match self {
            Factors::None if n == 0 => {}
            Factors::None => {
                return Err(Error::invalid("lu: the last values had no factors; give values that have some"));
            }
            Factors::Cholesky { symbolic, values } => {
                LltRef::new(symbolic, values).solve_in_place_with_conj(Conj::No, x, Par::Seq, stack);
            }
            Factors::Lu { symbolic, numeric, .. } => {
                LuRef::new_unchecked(symbolic, numeric).solve_in_place_with_conj(Conj::No, x, Par::Seq, stack)
            }
        }
        Ok(())
    }
}

impl Columns {
    fn order(&self) -> usize {
        self.col_ptr.len() - 1
    }

    fn pattern(&self) -> SymbolicSparseColMatRef<'_, usize> {
        let n = self.order();
        SymbolicSparseColMatRef::new_checked(n, n, &self.col_ptr, None, &self.rows)
    }

    fn column(&self, j: usize) -> impl Iterator<Item = (usize, f64)> {
        let range = self.col_ptr[j]..self.col_ptr[j + 1];
        self.rows[range.clone()].iter().copied().zip(self.values[range].iter().copied())
    }

    fn at(&self, i: usize, j: usize) -> f64 {
        let range = self.col_ptr[j]..self.col_ptr[j + 1];
        self.rows[range.clone()].binary_search(&i).map_or(0.0, |at| self.values[range.start + at])
    }

    /// r ← r − A x.
    fn subtract_product(&self, x: &[f64], r: &mut [f64]) {
        x.iter().enumerate().for_each(|(j, x)| self.column(j).for_each(|(i, v)| r[i] -= v * x));
    }

    /// True where Cholesky's factors may exist: mirrored entries are equal, diagonals positive.
    fn may_be_definite(&self) -> bool {
        use rayon::prelude::*;
        let mirrored = |i: usize, j: usize, v: f64| {
            let other = self.at(j, i);
            (v - other).abs() <= EQUAL * v.abs().max(other.abs())
        };
        let fits = |j: usize| self.at(j, j) > 0.0 && self.column(j).all(|(i, v)| mirrored(i, j, v));
        (0..self.order()).into_par_iter().all(fits)
    }

    /// Factors of the values, on the analysis of `old` ones where they have one of that kind.
    fn factors(&self, old: Factors, room: Option<u64>) -> Result<Factors> {
        // What once needed pivots keeps them.
        if let Factors::Lu { symbolic, numeric, most } = old {
            return self.lu(symbolic, numeric, most);
        }
        if self.may_be_definite() {
            let symbolic = match old {
                Factors::Cholesky { symbolic, .. } => symbolic,
                _ => {
                    let order = SymmetricOrdering::Amd;
                    let params = CholeskySymbolicParams::default();
                    factorize_symbolic_cholesky(self.pattern(), Side::Lower, order, params)
                        .map_err(|e| no_room(format!("{e:?}")))?
                }
            };
            fits("L of a sparse Cholesky factorisation", symbolic.len_val(), room)?;
            if let Some(factors) = self.cholesky(symbolic)? {
                return Ok(factors);
            }
        }
        let symbolic = factorize_symbolic_lu(self.pattern(), LuSymbolicParams::default())
            .map_err(|e| no_room(format!("{e:?}")))?;
        let most = self.most_fill(&symbolic)?;
        fits("L and U of a sparse factorisation", most, room)?;
        self.lu(symbolic, NumericLu::new(), most)
    }

    /// `None` where a pivot is not positive.
    fn cholesky(&self, symbolic: SymbolicCholesky<usize>) -> Result<Option<Factors>> {
        let scratch = symbolic.factorize_numeric_llt_scratch::<f64>(Par::Seq, Default::default());
        let mut stack = buffer(scratch)?;
        let mut values = vec![0.0; symbolic.len_val()];
        let made = symbolic.factorize_numeric_llt(
            &mut values,
            SparseColMatRef::new(self.pattern(), &self.values),
            Side::Lower,
            Default::default(),
            Par::Seq,
            MemStack::new(&mut stack),
            Default::default(),
        );
        let positive = made.is_ok();
        Ok(positive.then_some(Factors::Cholesky { symbolic, values }))
    }

    fn lu(
        &self,
        symbolic: SymbolicLu<usize>,
        mut numeric: NumericLu<usize, f64>,
        most: usize,
    ) -> Result<Factors> {
        let mut stack = buffer(symbolic.factorize_numeric_lu_scratch::<f64>(Par::Seq, Default::default()))?;
        let made = symbolic.factorize_numeric_lu(
            &mut numeric,
            SparseColMatRef::new(self.pattern(), &self.values),
            Par::Seq,
            MemStack::new(&mut stack),
            Default::default(),
        );
        match made.map(|_| ()) {
            Ok(()) => Ok(Factors::Lu { symbolic, numeric, most }),
            Err(LuError::SymbolicSingular { .. }) => Err(self.singular()),
            Err(LuError::Generic(e)) => Err(no_room(format!("{e:?}"))),
        }
    }

    /// The most numbers that L and U can have, whatever the pivots (George and Ng 1987): those of Householder vectors and R.
    fn most_fill(&self, symbolic: &SymbolicLu<usize>) -> Result<usize> {
        let n = self.order();
        let rows = self.transposed();
        let rows = SymbolicSparseColMatRef::new_checked(n, n, &rows.0, None, &rows.1);
        let perm = Some(symbolic.col_perm());
        let (mut tree, mut post) = (vec![0; n], vec![0; n]);
        let (mut counts, mut first) = (vec![0; n], vec![0usize; n]);
        let mut memory = buffer(StackReq::new::<usize>(n).array(8))?;
        let stack = MemStack::new(&mut memory);
        let tree = qr::col_etree(self.pattern(), perm, &mut tree, stack);
        qr::postorder(&mut post, tree, stack);
        qr::column_counts_ata(&mut counts, &mut first, rows, perm, tree, &post, stack);
        // Rows of a Householder vector: those that begin in its column, and its children's but for one each.
        let mut vectors = vec![0usize; n];
        first.iter().filter(|&&j| j < n).for_each(|&j| vectors[j] += 1);
        for (j, &parent) in tree.into_inner().iter().enumerate() {
            if let Ok(parent) = usize::try_from(parent) {
                vectors[parent] += vectors[j].saturating_sub(1);
            }
        }
        Ok(vectors.iter().sum::<usize>() + counts.iter().sum::<usize>())
    }

    /// First entries and columns of each row.
    fn transposed(&self) -> (Vec<usize>, Vec<usize>) {
        let n = self.order();
        let mut ptr = vec![0; n + 1];
        self.rows.iter().for_each(|&i| ptr[i + 1] += 1);
        (0..n).for_each(|i| ptr[i + 1] += ptr[i]);
        let (mut next, mut columns) = (ptr.clone(), vec![0; self.rows.len()]);
        for j in 0..n {
            for &i in &self.rows[self.col_ptr[j]..self.col_ptr[j + 1]] {
                columns[next[i]] = j;
                next[i] += 1;
            }
        }
        (ptr, columns)
    }

    /// What to say of a matrix that has no inverse, with a row or column of zeros where there is one.
    fn singular(&self) -> Error {
        let n = self.order();
        let (mut row, mut column) = (vec![false; n], vec![false; n]);
        (0..n).for_each(|j| {
            self.column(j).filter(|(_, v)| *v != 0.0).for_each(|(i, _)| (row[i], column[j]) = (true, true));
        });
        let zeros = |what: &str, seen: &[bool]| {
            seen.iter().position(|seen| !seen).map(|i| format!("{what} {i} has no nonzero entry"))
        };
        let why = zeros("row", &row).or_else(|| zeros("column", &column));
        let why = why.unwrap_or_else(|| format!("of order {n}, to working precision"));
        Error::invalid(format!("lu: the matrix is singular, {why}; {SINGULAR}"))
    }
}

impl Assembly {
    /// The pattern of the sum, blocks by columns, and its numbers, all 0.
    fn new(terms: &Terms) -> (Self, Columns) {
        let (block, stages, nodes) = (terms.block(), terms.stages(), terms.block_rows());
        let order = block * stages;
        // A block that two terms have is counted once: both meet it in the same block row.
        let sweep = |visit: &mut dyn FnMut(usize, usize, usize, usize, bool)| {
            let mut last = vec![usize::MAX; nodes];
            for i in 0..nodes {
                for (t, (_, a)) in terms.terms.iter().enumerate() {
                    for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                        let j = a.col()[p] as usize;
                        let new = last[j] != i;
                        last[j] = i;
                        visit(t, i, j, p, new);
                    }
                }
            }
        };
        let mut col_ptr = vec![0; nodes + 1];
        sweep(&mut |_, _, j, _, new| col_ptr[j + 1] += usize::from(new));
        (0..nodes).for_each(|j| col_ptr[j + 1] += col_ptr[j]);
        let mut next = col_ptr.clone();
        let mut block_rows = vec![0; col_ptr[nodes]];
        let mut places: Vec<Vec<(u32, usize)>> =
            terms.terms.iter().map(|(_, a)| vec![(0, 0); a.blocks()]).collect();
        sweep(&mut |t, i, j, p, new| {
            next[j] += usize::from(new);
            block_rows[next[j] - 1] = i;
            places[t][p] = (j as u32, next[j] - 1);
        });
        let mut matrix = Columns {
            col_ptr: Vec::with_capacity(nodes * order + 1),
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

    /// Σ Cₜ ⊗ Aₜ, column by column.
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
            for (block, place) in values.chunks_exact(b * b).zip(places) {
                add(out, c, *place, block);
            }
        }
    }
}

/// Room for an analysis, factors or a solve.
fn buffer(size: StackReq) -> Result<MemBuffer> {
    MemBuffer::try_new(size).map_err(|_| no_room(format!("{} bytes", size.size_bytes())))
}

/// Bytes of a number of a factor with its row.
const ENTRY: u64 = 16;

fn fits(what: &str, numbers: usize, room: Option<u64>) -> Result<()> {
    let needed = SparseLu::bytes_of(numbers);
    match room.filter(|room| needed > *room) {
        None => Ok(()),
        Some(free) => Err(Error::Memory {
            what: format!("lu: {what}"),
            needed,
            free,
            place: "the host for factors, half of it or as much as most=N allows".into(),
            remedy: "take incomplete factors, such as ildu or ras, or coarse levels (amg)",
        }),
    }
}

fn no_room(why: String) -> Error {
    Error::invalid(format!("lu: no memory for factors ({why}); take incomplete ones, such as ildu"))
}

#[cfg(test)]
mod tests;
