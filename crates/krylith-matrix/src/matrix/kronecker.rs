//! The operator A⊗M + τB⊗L as data; it is never formed.

use super::{Bsr, Dense};
use crate::{Error, Result};

/// (A⊗M + τB⊗L) with dense s×s matrices A and B, and point-block matrices M and L of the same sizes, whose
/// patterns may differ.
///
/// OKP paper, Eq. 2. Unknowns are in Krylith's order: node by node, component by component, stage by stage.
///
/// # Examples
/// ```
/// use krylith::matrix::{Bsr, Dense, KroneckerSum};
/// let one = |v: f64| Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![v]);
/// let radau = Dense::new(2, 2, vec![5.0 / 12.0, -1.0 / 12.0, 3.0 / 4.0, 1.0 / 4.0])?;
/// let system = KroneckerSum::new(Dense::identity(2), radau, 0.5, one(3.0)?, one(24.0)?)?;
/// assert_eq!((system.stages(), system.rows()), (2, 2));
/// // 3 I + 0.5 · 24 B; a solve never forms it.
/// let sum = system.assemble().to_csr();
/// assert!((sum.get(0, 0) - 8.0).abs() < 1e-14 && (sum.get(0, 1) + 1.0).abs() < 1e-14);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct KroneckerSum {
    /// s×s, multiplies M.
    pub a: Dense,
    /// s×s, multiplies τ·L.
    pub b: Dense,
    /// τ.
    pub tau: f64,
    /// Point-block matrix.
    pub m: Bsr,
    /// Point-block matrix of the same block size, rows and columns as `m`.
    pub l: Bsr,
}

impl KroneckerSum {
    /// Creates the sum from its five parts.
    ///
    /// # Errors
    /// A or B not square of the same order, M and L of different block size or shape, τ or τB not finite.
    pub fn new(a: Dense, b: Dense, tau: f64, m: Bsr, l: Bsr) -> Result<Self> {
        let shape = |x: &Bsr| (x.rows(), x.columns());
        Self::check(&a, &b, tau, [m.block(), l.block()], [shape(&m), shape(&l)])?;
        Ok(Self { a, b, tau, m, l })
    }

    /// Checks the parts of [`new`](Self::new), given block sizes and shapes (rows, columns) of M and L.
    #[doc(hidden)]
    pub fn check(
        a: &Dense,
        b: &Dense,
        tau: f64,
        blocks: [usize; 2],
        shapes: [(usize, usize); 2],
    ) -> Result<()> {
        let s = a.rows();
        if s == 0 || a.columns() != s || b.rows() != s || b.columns() != s {
            return Err(Error::invalid(format!(
                "A is {}×{} and B is {}×{}; both must be square of the same order",
                a.rows(),
                a.columns(),
                b.rows(),
                b.columns()
            )));
        }
        if blocks[0] != blocks[1] {
            return Err(Error::invalid(format!(
                "M has blocks of {0}×{0} and L has blocks of {1}×{1}; both need the same block size",
                blocks[0], blocks[1]
            )));
        }
        if shapes[0] != shapes[1] {
            return Err(Error::invalid(format!(
                "M is {}×{} and L is {}×{}; both need the same shape",
                shapes[0].0, shapes[0].1, shapes[1].0, shapes[1].1
            )));
        }
        if !tau.is_finite() {
            return Err(Error::invalid(format!("tau is {tau}; it must be finite")));
        }
        if let Some(p) = b.values().iter().position(|v| !(tau * v).is_finite()) {
            let (i, j) = (p / s, p % s);
            return Err(Error::invalid(format!(
                "tau is {tau:e} and B({i}, {j}) is {:e}, and their product overflows; scale the system",
                b[(i, j)]
            )));
        }
        Ok(())
    }

    /// Number of stages s.
    #[inline]
    pub fn stages(&self) -> usize {
        self.a.rows()
    }
    /// Block size b of M and L.
    #[inline]
    pub fn block(&self) -> usize {
        self.m.block()
    }
    /// Number of scalar rows of the whole system, N·s.
    #[inline]
    pub fn rows(&self) -> usize {
        self.m.rows() * self.stages()
    }
    /// Number of scalar columns of the whole system.
    #[inline]
    pub fn columns(&self) -> usize {
        self.m.columns() * self.stages()
    }

    /// The assembled point-block matrix with blocks of size b·s, in Krylith's order of unknowns.
    ///
    /// For tests, baselines and monolithic preconditioners; needs s² times the memory.
    pub fn assemble(&self) -> Bsr {
        let (s, b, n) = (self.stages(), self.block(), self.m.block_rows());
        let bs = b * s;
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in 0..n {
            let (mut p, mut q) = (self.m.row_ptr()[i], self.l.row_ptr()[i]);
            let (pe, qe) = (self.m.row_ptr()[i + 1], self.l.row_ptr()[i + 1]);
            while p < pe || q < qe {
                let jm = if p < pe { self.m.col()[p] } else { u32::MAX };
                let jl = if q < qe { self.l.col()[q] } else { u32::MAX };
                let j = jm.min(jl);
                let begin = values.len();
                values.resize(begin + bs * bs, 0.0);
                let out = &mut values[begin..];
                let mut add = |coefficient: &Dense, factor: f64, block: &[f64]| {
                    for r in 0..b {
                        for c in 0..b {
                            for k in 0..s {
                                for l in 0..s {
                                    out[(r * s + k) * bs + c * s + l] +=
                                        factor * coefficient[(k, l)] * block[r * b + c];
                                }
                            }
                        }
                    }
                };
                if jm == j {
                    add(&self.a, 1.0, self.m.block_values(p));
                    p += 1;
                }
                if jl == j {
                    add(&self.b, self.tau, self.l.block_values(q));
                    q += 1;
                }
                col.push(j);
            }
            row_ptr.push(col.len());
        }
        Bsr::new(bs, n, self.m.block_columns(), row_ptr, col, values).expect("parts were checked")
    }
}
