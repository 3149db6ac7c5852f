//! Kinds of factors, the choice among them, and the test whether they solve the system.

use super::SparseLu;
use super::border::{self, Border, Split};
use super::multifrontal::{Kind, Multifrontal};
use super::solve::Vectors;
use super::symmetry::Diagonal;
use crate::interrupt::Bounds;
use crate::{Error, Result};
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::perm::PermRef;
use faer::sparse::linalg::cholesky::{
    CholeskySymbolicParams, IntranodeLbltRef, LltRef, SymbolicCholesky, SymmetricOrdering,
    factorize_symbolic_cholesky,
};
use faer::sparse::linalg::lu::{LuRef, LuSymbolicParams, NumericLu, SymbolicLu, factorize_symbolic_lu};
use faer::sparse::linalg::{LuError, SupernodalThreshold, qr};
use faer::sparse::{SparseColMatRef, SymbolicSparseColMatRef};
use faer::{Conj, MatMut, Par, Side};

/// Largest residual of a solve with a random right-hand side, relative to it. If factors leave a larger
/// residual, the system counts as singular.
pub(super) const LEFT: f64 = 0.5;
/// Largest such residual for L B Lᵀ, whose pivots come only from within supernodes. If the residual is
/// larger, L U replaces these factors.
pub(super) const LEFT_SYMMETRIC: f64 = 1e-6;
/// Largest residual of a row, relative to its products and right-hand side, that counts as rounding errors.
pub(super) const BACKWARD: f64 = 1e-10;
/// Number of operations per number of a factor above which `faer` builds supernodes, as a share of its
/// default. Without supernodes, systems of 200 to 6,000 unknowns take three to five times as long on one
/// core. Supernodes do not always pay: for an arrow matrix they take a thousand times as long.
const SUPERNODES: SupernodalThreshold = SupernodalThreshold(0.12);
/// Remedy for a system without an inverse.
const SINGULAR: &str = "try incomplete factors, such as ildu:cut=whole,shift=1e-6, or give all null vectors";

/// One right-hand side, and the workspace of a solve.
pub(super) struct Work {
    pub x: Vec<f64>,
    /// Workspace of a border: all unknowns, then the unknowns of the border before and after the
    /// multiplication by S⁻¹.
    pub whole: Vec<f64>,
    pub border: [Vec<f64>; 2],
    stack: MemBuffer,
    fronts: Vectors,
}

impl Default for Work {
    fn default() -> Self {
        let stack = MemBuffer::new(StackReq::EMPTY);
        let (border, fronts) = Default::default();
        Self { x: Vec::new(), whole: Vec::new(), border, stack, fronts }
    }
}

/// Factors for the latest values.
pub(super) enum Factors {
    /// There are no factors: they could not be computed, or there are no rows.
    None,
    Cholesky {
        symbolic: SymbolicCholesky<usize>,
        values: Vec<f64>,
    },
    /// Factors L B Lᵀ, where B has diagonal blocks of order 1 and 2.
    Symmetric {
        symbolic: SymbolicCholesky<usize>,
        values: Vec<f64>,
        subdiagonal: Vec<f64>,
        /// The permutation of the pivots, and its inverse.
        perm: [Vec<usize>; 2],
    },
    Lu {
        symbolic: SymbolicLu<usize>,
        numeric: NumericLu<usize, f64>,
        most: usize,
    },
    /// Factors by fronts.
    Fronts(Multifrontal),
    /// Factors of all but dense rows and columns, which form a border.
    Bordered {
        inner: Box<Factors>,
        border: Box<Border>,
    },
}

/// A matrix stored by columns, with ascending rows in each column.
#[derive(Default)]
pub(super) struct Columns {
    pub col_ptr: Vec<usize>,
    pub rows: Vec<usize>,
    pub values: Vec<f64>,
}

impl Factors {
    fn solve_scratch(&self) -> StackReq {
        match self {
            Factors::None | Factors::Fronts(_) => StackReq::EMPTY,
            Factors::Cholesky { symbolic, .. } | Factors::Symmetric { symbolic, .. } => {
                symbolic.solve_in_place_scratch::<f64>(1, Par::Seq)
            }
            Factors::Lu { symbolic, .. } => {
                symbolic
                    .solve_in_place_scratch::<f64>(1, Par::Seq)
                    .or(symbolic.solve_transpose_in_place_scratch::<f64>(1, Par::Seq))
            }
            Factors::Bordered { inner, .. } => inner.solve_scratch(),
        }
    }

    /// Returns the kind of the factors.
    pub fn kind(&self) -> &'static str {
        match self {
            Factors::None => "none",
            Factors::Cholesky { .. } => "Cholesky",
            Factors::Symmetric { .. } => "LBLᵀ",
            Factors::Lu { .. } => "LU",
            Factors::Fronts(fronts) => match fronts.kind {
                Kind::Cholesky => "Cholesky",
                Kind::Indefinite => "LBLᵀ",
                Kind::Lu => "LU",
            },
            Factors::Bordered { inner, .. } => match inner.kind() {
                "Cholesky" => "bordered Cholesky",
                "LBLᵀ" => "bordered LBLᵀ",
                _ => "bordered LU",
            },
        }
    }

    /// Returns the number of numbers in the factors. For a symmetric matrix this is the size of L, else the
    /// largest size that L and U can have with any pivots.
    pub fn numbers(&self) -> usize {
        match self {
            Factors::None => 0,
            Factors::Cholesky { values, .. } | Factors::Symmetric { values, .. } => values.len(),
            Factors::Lu { most, .. } => *most,
            Factors::Fronts(fronts) => fronts.numbers(),
            Factors::Bordered { inner, border } => inner.numbers() + border.numbers(),
        }
    }

    /// Returns true if the number of numbers is only a bound.
    pub fn is_bound(&self) -> bool {
        match self {
            Factors::Bordered { inner, .. } => inner.is_bound(),
            other => matches!(other, Factors::Lu { .. }),
        }
    }

    /// Returns the rows that found no pivot and were given one; those within a border are not listed.
    pub fn weak_rows(&self) -> Vec<usize> {
        match self {
            Factors::Fronts(fronts) => fronts.given_rows(),
            _ => Vec::new(),
        }
    }

    /// Returns how many numbers one application moves.
    pub fn moved(&self) -> usize {
        match self {
            Factors::Cholesky { .. } | Factors::Symmetric { .. } => 2 * self.numbers(),
            Factors::Bordered { inner, border } => inner.moved() + border.numbers(),
            Factors::Fronts(fronts) => fronts.moved(),
            _ => self.numbers(),
        }
    }

    /// Computes x ← A⁻¹ x, or x ← A⁻ᵀ x if `transposed` is true.
    pub fn solve(&self, transposed: bool, work: &mut Work) -> Result<()> {
        if let Factors::Bordered { inner, border } = self {
            return match transposed {
                false => border.solve(inner, work),
                true => border.solve_transpose(inner, work),
            };
        }
        if let Factors::Fronts(fronts) = self {
            fronts.solve(transposed, &mut work.x, &mut work.fronts);
            return Ok(());
        }
        let n = work.x.len();
        let x = MatMut::from_column_major_slice_mut(&mut work.x, n, 1);
        let stack = MemStack::new(&mut work.stack);
        match self {
            Factors::None if n == 0 => {}
            Factors::Bordered { .. } | Factors::Fronts(_) => {}
            Factors::None => {
                return Err(Error::invalid(
                    "lu: the last values could not be factorised; set new values before the next solve",
                ));
            }
            Factors::Cholesky { symbolic, values } => {
                LltRef::new(symbolic, values).solve_in_place_with_conj(Conj::No, x, Par::Seq, stack);
            }
            Factors::Symmetric { symbolic, values, subdiagonal, perm: [forward, inverse] } => {
                let perm = PermRef::new_checked(forward, inverse, n);
                IntranodeLbltRef::new(symbolic, values, subdiagonal, perm).solve_in_place_with_conj(
                    Conj::No,
                    x,
                    Par::Seq,
                    stack,
                );
            }
            Factors::Lu { symbolic, numeric, .. } => {
                let lu = LuRef::new_unchecked(symbolic, numeric);
                match transposed {
                    false => lu.solve_in_place_with_conj(Conj::No, x, Par::Seq, stack),
                    true => lu.solve_transpose_in_place_with_conj(Conj::No, x, Par::Seq, stack),
                }
            }
        }
        Ok(())
    }
}

impl Columns {
    pub fn order(&self) -> usize {
        self.col_ptr.len() - 1
    }

    fn pattern(&self) -> SymbolicSparseColMatRef<'_, usize> {
        let n = self.order();
        SymbolicSparseColMatRef::new_checked(n, n, &self.col_ptr, None, &self.rows)
    }

    pub fn column(&self, j: usize) -> impl Iterator<Item = (usize, f64)> {
        let range = self.col_ptr[j]..self.col_ptr[j + 1];
        self.rows[range.clone()].iter().copied().zip(self.values[range].iter().copied())
    }

    /// Computes r ← r − A x.
    fn subtract_product(&self, x: &[f64], r: &mut [f64]) {
        x.iter().enumerate().for_each(|(j, x)| self.column(j).for_each(|(i, v)| r[i] -= v * x));
    }

    /// Factorises the values. Reuses the analysis of `old` factors if they are of the same kind, and
    /// allocates the workspace of a solve in `work`.
    pub fn factors(&self, old: Factors, room: Option<u64>, work: &mut Work) -> Result<Factors> {
        // A matrix that needed pivoting before is factorised with pivoting again.
        let analysis = match old {
            Factors::Lu { symbolic, numeric, most } => {
                let factors = self.lu(symbolic, numeric, most)?;
                return self.solving(factors, LEFT, work)?.map_err(|_| self.singular());
            }
            Factors::Symmetric { symbolic, .. } => Some((symbolic, false)),
            Factors::Cholesky { symbolic, .. } => Some((symbolic, true)),
            Factors::Bordered { inner, .. } => {
                let factors = self.bordered(*inner, room, work, Self::factors)?;
                return factors.ok_or_else(|| self.singular());
            }
            Factors::None | Factors::Fronts(_) => None,
        };
        if analysis.is_none()
            && let Some(factors) = self.bordered(Factors::None, room, work, Self::factors)?
        {
            return Ok(factors);
        }
        if let Some(diagonal) = self.symmetry().filter(|d| *d != Diagonal::Zeros) {
            let positive = diagonal == Diagonal::Positive;
            let (symbolic, definite) = match analysis {
                Some((symbolic, definite)) => (symbolic, definite && positive),
                None => (self.symmetric_analysis()?, positive),
            };
            fits("L of a sparse symmetric factorisation", symbolic.len_val(), room)?;
            is_soon(symbolic.len_val(), 1.0)?;
            let mut values = vec![0.0; symbolic.len_val()];
            if definite && self.cholesky(&symbolic, &mut values)? {
                let factors = Factors::Cholesky { symbolic, values };
                return self.solving(factors, LEFT, work)?.map_err(|_| self.singular());
            }
            let factors = self.symmetric(symbolic, values)?;
            if let Ok(factors) = self.solving(factors, LEFT_SYMMETRIC, work)? {
                return Ok(factors);
            }
        }
        let params = LuSymbolicParams { supernodal_flop_ratio_threshold: SUPERNODES, ..Default::default() };
        let symbolic =
            factorize_symbolic_lu(self.pattern(), params).map_err(|e| no_room(format!("{e:?}")))?;
        let most = self.most_fill(&symbolic)?;
        fits("L and U of a sparse factorisation", most, room)?;
        is_soon(most, LESS)?;
        let factors = self.lu(symbolic, NumericLu::new(), most)?;
        self.solving(factors, LEFT, work)?.map_err(|_| self.singular())
    }

    /// Returns factors of all but dense rows and columns; `None` if none are dense or the rest is singular.
    /// `make` factorises the rest.
    pub fn bordered(
        &self,
        old: Factors,
        room: Option<u64>,
        work: &mut Work,
        make: impl Fn(&Self, Factors, Option<u64>, &mut Work) -> Result<Factors>,
    ) -> Result<Option<Factors>> {
        let Some(split) = border::dense(self).and_then(|outer| Split::new(self, outer)) else {
            return Ok(None);
        };
        let inner = match make(&split.inner, old, room, work) {
            Err(e) if e.is_memory() || e.is_interrupt() => return Err(e),
            Err(_) => return Ok(None),
            Ok(inner) => inner,
        };
        match split.border(self, &inner, work)? {
            None => Ok(None),
            Some(border) => {
                let factors = Factors::Bordered { inner: Box::new(inner), border: Box::new(border) };
                Ok(self.solving(factors, LEFT_SYMMETRIC, work)?.ok())
            }
        }
    }

    /// Returns the factors as `Ok` if a solve with a random right-hand side leaves a residual of at most
    /// `left` times its norm, else as `Err`. If A is nearly singular, rounding errors of a large x leave
    /// more. So up to [`LEFT`], it suffices that no row leaves more than [`BACKWARD`] (|A| |x| + |b|).
    pub fn solving(
        &self,
        factors: Factors,
        left: f64,
        work: &mut Work,
    ) -> Result<std::result::Result<Factors, Factors>> {
        let n = self.order();
        let mut r: Vec<f64> = (0..n).map(|i| crate::space::random(1, i as u64)).collect();
        let norm = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let all = norm(&r);
        work.stack = buffer(factors.solve_scratch())?;
        work.x.clear();
        work.x.extend_from_slice(&r);
        factors.solve(false, work)?;
        self.subtract_product(&work.x, &mut r);
        let holds =
            norm(&r) <= left * all || norm(&r) <= LEFT * all && self.backward(&work.x, &r) <= BACKWARD;
        Ok(if holds { Ok(factors) } else { Err(factors) })
    }

    /// Returns the largest |r| / (|A| |x| + |b|) of a row, with b = A x + r (Oettli and Prager 1964).
    fn backward(&self, x: &[f64], r: &[f64]) -> f64 {
        let (mut sums, mut b) = (vec![0.0; x.len()], r.to_vec());
        for (j, x) in x.iter().enumerate() {
            for (i, v) in self.column(j) {
                b[i] += v * x;
                sums[i] += (v * x).abs();
            }
        }
        let rows = r.iter().zip(sums.iter().zip(&b)).filter(|(r, _)| **r != 0.0);
        rows.fold(0.0, |most: f64, (r, (sum, b))| most.max(r.abs() / (sum + b.abs())))
    }

    fn symmetric_analysis(&self) -> Result<SymbolicCholesky<usize>> {
        let params =
            CholeskySymbolicParams { supernodal_flop_ratio_threshold: SUPERNODES, ..Default::default() };
        factorize_symbolic_cholesky(self.pattern(), Side::Lower, SymmetricOrdering::Amd, params)
            .map_err(|e| no_room(format!("{e:?}")))
    }

    /// Computes L of A = L Lᵀ; returns false if a pivot is not positive.
    fn cholesky(&self, symbolic: &SymbolicCholesky<usize>, values: &mut [f64]) -> Result<bool> {
        let scratch = symbolic.factorize_numeric_llt_scratch::<f64>(Par::Seq, Default::default());
        let made = symbolic.factorize_numeric_llt(
            values,
            SparseColMatRef::new(self.pattern(), &self.values),
            Side::Lower,
            Default::default(),
            Par::Seq,
            MemStack::new(&mut buffer(scratch)?),
            Default::default(),
        );
        Ok(made.is_ok())
    }

    /// Computes L and B of A = L B Lᵀ, with pivots by Bunch and Kaufman (1977) within each supernode.
    fn symmetric(&self, symbolic: SymbolicCholesky<usize>, mut values: Vec<f64>) -> Result<Factors> {
        let n = self.order();
        let (mut subdiagonal, mut perm) = (vec![0.0; n], [vec![0; n], vec![0; n]]);
        let scratch = symbolic.factorize_numeric_intranode_lblt_scratch::<f64>(Par::Seq, Default::default());
        let [forward, inverse] = &mut perm;
        symbolic.factorize_numeric_intranode_lblt(
            &mut values,
            &mut subdiagonal,
            forward,
            inverse,
            SparseColMatRef::new(self.pattern(), &self.values),
            Side::Lower,
            Par::Seq,
            MemStack::new(&mut buffer(scratch)?),
            Default::default(),
        );
        Ok(Factors::Symmetric { symbolic, values, subdiagonal, perm })
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

    /// Returns the largest number of numbers that L and U can have with any pivots (George and Ng 1987): that
    /// of the Householder vectors and of R.
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
        // The rows of a Householder vector are those that begin in its column, and all but one row of each of
        // its children.
        let mut vectors = vec![0usize; n];
        first.iter().filter(|&&j| j < n).for_each(|&j| vectors[j] += 1);
        for (j, &parent) in tree.into_inner().iter().enumerate() {
            if let Ok(parent) = usize::try_from(parent) {
                vectors[parent] += vectors[j].saturating_sub(1);
            }
        }
        Ok(vectors.iter().sum::<usize>() + counts.iter().sum::<usize>())
    }

    /// Returns the first entry of each row, and the columns of the entries by rows.
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

    /// Returns the error for a singular matrix. It names a row or column of zeros if there is one.
    pub fn singular(&self) -> Error {
        let n = self.order();
        let (mut row, mut column) = (vec![false; n], vec![false; n]);
        (0..n).for_each(|j| {
            self.column(j).filter(|(_, v)| *v != 0.0).for_each(|(i, _)| (row[i], column[j]) = (true, true));
        });
        let zeros = |what: &str, seen: &[bool]| {
            seen.iter().position(|seen| !seen).map(|i| format!("{what} {i} has no nonzero entry"))
        };
        let why = zeros("row", &row).or_else(|| zeros("column", &column));
        let why = why.unwrap_or_else(|| format!("order {n}, to working precision"));
        Error::invalid(format!("lu: the matrix is singular ({why}); {SINGULAR}"))
    }
}

/// Allocates the workspace of an analysis, of factors or of a solve.
fn buffer(size: StackReq) -> Result<MemBuffer> {
    MemBuffer::try_new(size).map_err(|_| no_room(crate::text::bytes(size.size_bytes() as u64)))
}

fn no_room(why: String) -> Error {
    Error::invalid(format!("lu: out of memory for factors ({why}); use incomplete factors, such as ildu"))
}

/// Bytes of a number of a factor together with its row number.
pub(super) const ENTRY: u64 = 16;

/// Seconds per number of L, measured on one core with grids, Stokes, Helmholtz and elasticity systems of 400
/// to 160,000 unknowns.
const SECONDS: f64 = 25e-9;
/// Typical size of L and U, as a share of the largest size that they can have.
const LESS: f64 = 0.5;

/// Returns an error, before the factorisation begins, if it would take longer than the time limit.
fn is_soon(numbers: usize, share: f64) -> Result<()> {
    let seconds = SECONDS * share * numbers as f64 * (numbers as f64 / 1e7).max(1.0).powf(1.0 / 3.0);
    within(seconds, numbers)
}

/// Returns an error if factors of so many numbers would take longer than the time limit.
pub(super) fn within(seconds: f64, numbers: usize) -> Result<()> {
    match Bounds::here().seconds.filter(|most| seconds > *most) {
        None => Ok(()),
        Some(most) => Err(Error::invalid(format!(
            "lu: factors of {} numbers take about {}, but the limit is {}; use incomplete factors, such as ildu, or raise time_limit",
            crate::text::count(numbers),
            crate::text::seconds(seconds),
            crate::text::seconds(most)
        ))),
    }
}

pub(super) fn fits(what: &str, numbers: usize, room: Option<u64>) -> Result<()> {
    let needed = SparseLu::bytes_of(numbers);
    match room.filter(|room| needed > *room) {
        None => Ok(()),
        Some(free) => Err(Error::Memory {
            what: format!("lu: {what}"),
            needed,
            free,
            place: "the half of host memory that factors may use".into(),
            remedy: "use incomplete factors, such as ildu or ras, or algebraic multigrid (amg)",
        }),
    }
}
