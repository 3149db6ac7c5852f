//! ILU(0) and triangular solves of cuSPARSE: csrilu02 and SpSV for block size 1, bsrilu02 and bsrsv2 for
//! larger blocks.

use super::{POLICIES, Policy, SETUP_SAMPLES, policy_name, sampled, seconds};
use crate::cuda::calls::{Numbers, OP, Object, TYPE, call, object, scalar, workspace};
use crate::cuda::least;
use crate::cuda::products::{Blocks, HostBlocks, Layout};
use crate::cuda::vendor::Vendor;
use crate::ildu0::Setup;
use crate::ildu0::system::SubdomainSystem;
use crate::samples::Samples;
use cudarc::cusparse::sys as sparse;
use krylith_core::device::cuda::Buffer;
use krylith_core::{Error, Result};
use std::rc::Rc;

/// The only algorithm of SpSV.
const ALGORITHM: sparse::cusparseSpSVAlg_t = sparse::cusparseSpSVAlg_t::CUSPARSE_SPSV_ALG_DEFAULT;

/// α, at an address that stays valid.
static ONE: f64 = 1.0;

/// A call for scalar matrices: `NAME(rows, nonzeros, matrix, values, row pointers, columns, …)`.
macro_rules! csr {
    ($v:expr, $a:expr, $name:ident, $($more:expr),*) => {{
        let [rows, columns, values] = $a.addresses();
        let (n, count) = ($a.rows as i32, $a.count as i32);
        call!($v, $name(n, count, $v.matrix, values as _, rows as _, columns as _, $($more),*))
    }};
}

/// A call for blocks: `NAME(layout, [op], rows, blocks, [α], matrix, values, row pointers, columns, block,
/// …)`.
macro_rules! bsr {
    ($v:expr, $a:expr, $name:ident, [$($op:expr)?] [$($alpha:expr)?] $matrix:expr, $($more:expr),*) => {{
        let [rows, columns, values] = $a.addresses();
        let (n, count, b) = ($a.rows as i32, $a.count as i32, $a.block as i32);
        call!($v, $name(
            $a.layout.direction(), $($op,)? n, count, $($alpha,)? $matrix, values as _, rows as _, columns as _, b,
            $($more),*
        ))
    }};
}

/// The factors, with both solves analysed.
pub(super) struct Factors {
    lower: Solve,
    upper: Solve,
    /// For scalar matrices the policy of the factorisation, else that of the solves.
    policy: Policy,
    arrays: Rc<Blocks>,
}

impl Factors {
    /// Factorises and analyses with each layout of blocks and each policy, and keeps the combination with the
    /// fastest solve. The times of its steps go to `setups` under names that start with `what`.
    ///
    /// # Errors
    /// Returns an error if memory is not sufficient, for a zero pivot, and for errors of cuSPARSE.
    pub fn new(
        vendor: &Rc<Vendor>,
        s: &SubdomainSystem,
        what: &str,
        setups: &mut Vec<Setup>,
    ) -> Result<Self> {
        let (x, y) = (vendor.zeros(s.len())?, vendor.zeros(s.len())?);
        let numbers = s.a.block() == 1;
        let layouts = if numbers { &[Layout::Rows][..] } else { &Layout::BOTH };
        let (_, (made, steps)) = least(layouts, |&layout| {
            let host = HostBlocks::new(&s.a, layout);
            let (arrays, upload) = seconds(vendor, || host.upload(vendor))?;
            let mut steps = Vec::new();
            let mut step =
                |name: String, samples| steps.push(Setup { name: format!("{what}: {name}"), samples });
            step("upload of the matrix".into(), Samples(vec![upload]));
            let (chosen, analysis, factorisation) = factorize(vendor, &arrays, s)?;
            let (ilu, note, solve) = match numbers {
                true => ("csrilu02", String::new(), "SpSV"),
                false => ("bsrilu02", format!(" ({})", policy_name(chosen)), "bsrsv2"),
            };
            step(format!("{ilu} analysis{note}"), analysis);
            step(format!("{ilu} factorisation{note}"), factorisation);
            let arrays = Rc::new(arrays);
            // SpSV has no policies.
            let policies = if numbers { std::slice::from_ref(&chosen) } else { &POLICIES };
            let new = |upper, policy| Solve::new(vendor, &arrays, upper, policy);
            let (time, made) = least(policies, |&policy| {
                let (lower, upper) = (new(false, policy)?, new(true, policy)?);
                let made = Self { lower, upper, policy, arrays: arrays.clone() };
                let time = crate::cuda::quick(vendor, &mut || {
                    made.lower(x.pointer(), y.pointer())?;
                    made.upper(y.pointer(), x.pointer())
                })?;
                Ok((time, made))
            })?;
            let both = || new(false, made.policy).and(new(true, made.policy)).map(|_| ());
            step(format!("{solve} analysis of L and U"), sampled(vendor, both)?);
            Ok((time, (made, steps)))
        })?;
        setups.extend(steps);
        Ok(made)
    }

    pub fn name(&self) -> &'static str {
        if self.arrays.block == 1 { "cusparseSpSV" } else { "cusparseDbsrsv2" }
    }
    pub fn notes(&self) -> String {
        let policy = policy_name(self.policy);
        match self.arrays.block {
            1 => format!("factorised by csrilu02, {policy}"),
            _ => format!("{policy}, {}", self.arrays.layout.notes()),
        }
    }
    pub fn lower(&self, x: u64, y: u64) -> Result<()> {
        self.lower.run(&self.arrays, x, y)
    }
    pub fn upper(&self, x: u64, y: u64) -> Result<()> {
        self.upper.run(&self.arrays, x, y)
    }
}

/// Replaces A by its factors, computed with the faster policy. Returns that policy, and the times of its
/// analysis and factorisation.
fn factorize(vendor: &Rc<Vendor>, a: &Blocks, s: &SubdomainSystem) -> Result<(Policy, Samples, Samples)> {
    let given = vendor.zeros(a.values.len())?;
    vendor.copy(a.values.pointer(), given.pointer(), given.len())?;
    let factorize = |ilu: &Ilu| {
        vendor.copy(given.pointer(), a.values.pointer(), given.len())?;
        Ok(seconds(vendor, || ilu.factorize(a))?.1)
    };
    let (_, policy) = least(POLICIES, |policy| {
        let ilu = Ilu::new(vendor, a, policy)?;
        factorize(&ilu)?;
        Ok((factorize(&ilu)?, policy))
    })?;
    vendor.copy(given.pointer(), a.values.pointer(), given.len())?;
    let analysis = sampled(vendor, || Ilu::new(vendor, a, policy).map(|_| ()))?;
    let ilu = Ilu::new(vendor, a, policy)?;
    let samples = (0..SETUP_SAMPLES).map(|_| factorize(&ilu)).collect::<Result<_>>()?;
    ilu.check(&s.rows)?;
    Ok((policy, analysis, Samples(samples)))
}

enum Info {
    Numbers(Object<sparse::csrilu02Info_t>),
    Blocks(Object<sparse::bsrilu02Info_t>),
}

/// The analysis of csrilu02 or bsrilu02.
pub(in crate::cuda) struct Ilu {
    info: Info,
    policy: Policy,
    buffer: Buffer<u8>,
    vendor: Rc<Vendor>,
}

impl Ilu {
    pub fn new(vendor: &Rc<Vendor>, a: &Blocks, policy: Policy) -> Result<Self> {
        let mut bytes = 0;
        let info = match a.block {
            1 => Info::Numbers(object!(vendor, cusparseCreateCsrilu02Info(), cusparseDestroyCsrilu02Info)),
            _ => Info::Blocks(object!(vendor, cusparseCreateBsrilu02Info(), cusparseDestroyBsrilu02Info)),
        };
        match &info {
            Info::Numbers(i) => csr!(vendor, a, cusparseDcsrilu02_bufferSize, i.raw(), &mut bytes),
            Info::Blocks(i) => {
                bsr!(vendor, a, cusparseDbsrilu02_bufferSize, [] [] vendor.matrix, i.raw(), &mut bytes)
            }
        }?;
        let made = Self { vendor: vendor.clone(), info, policy, buffer: workspace(vendor, bytes as usize)? };
        let at = made.buffer.pointer() as _;
        match &made.info {
            Info::Numbers(i) => csr!(vendor, a, cusparseDcsrilu02_analysis, i.raw(), policy, at),
            Info::Blocks(i) => {
                bsr!(vendor, a, cusparseDbsrilu02_analysis, [] [] vendor.matrix, i.raw(), policy, at)
            }
        }?;
        Ok(made)
    }

    /// Replaces the values of the analysed arrays by those of the factors.
    pub fn factorize(&self, a: &Blocks) -> Result<()> {
        let (v, policy, at) = (&self.vendor, self.policy, self.buffer.pointer() as _);
        match &self.info {
            Info::Numbers(i) => csr!(v, a, cusparseDcsrilu02, i.raw(), policy, at),
            Info::Blocks(i) => bsr!(v, a, cusparseDbsrilu02, [] [] v.matrix, i.raw(), policy, at),
        }
    }

    /// # Errors
    /// Returns an error for a zero pivot, with its row of the given matrix.
    pub fn check(&self, rows: &[u32]) -> Result<()> {
        let (mut row, handle) = (-1, self.vendor.handle());
        // SAFETY: waits, and writes one integer.
        let (call, status) = unsafe {
            match &self.info {
                Info::Numbers(i) => (
                    "cusparseXcsrilu02_zeroPivot",
                    sparse::cusparseXcsrilu02_zeroPivot(handle, i.raw(), &mut row),
                ),
                Info::Blocks(i) => (
                    "cusparseXbsrilu02_zeroPivot",
                    sparse::cusparseXbsrilu02_zeroPivot(handle, i.raw(), &mut row),
                ),
            }
        };
        if status == sparse::cusparseStatus_t::CUSPARSE_STATUS_ZERO_PIVOT {
            return Err(Error::SingularBlock {
                row: rows.get(row.max(0) as usize).map_or(0, |r| *r as usize),
                kind: "singular",
                remedy: "ILU(0) without shifts needs a pivot in every row",
            });
        }
        self.vendor.sparse(call, status)
    }
}

impl Drop for Ilu {
    fn drop(&mut self) {
        let _ = self.vendor.device.wait(); // work in flight may use the analysis
    }
}

enum Triangle {
    // Drop the descriptor before the matrix it belongs to.
    Numbers(Object<sparse::cusparseSpSVDescr_t>, Numbers),
    Blocks(Object<sparse::bsrsv2Info_t>, Object<sparse::cusparseMatDescr_t>),
}

/// One triangle, analysed by SpSV or bsrsv2.
pub(in crate::cuda) struct Solve {
    triangle: Triangle,
    policy: Policy,
    buffer: Buffer<u8>,
    vendor: Rc<Vendor>,
}

impl Solve {
    /// Analyses one triangle; SpSV ignores the policy.
    pub fn new(vendor: &Rc<Vendor>, a: &Blocks, upper: bool, policy: Policy) -> Result<Self> {
        use sparse::cusparseDiagType_t as Diagonal;
        use sparse::cusparseFillMode_t as Fill;
        let (mut fill, mut diagonal) = match upper {
            true => (Fill::CUSPARSE_FILL_MODE_UPPER, Diagonal::CUSPARSE_DIAG_TYPE_NON_UNIT),
            false => (Fill::CUSPARSE_FILL_MODE_LOWER, Diagonal::CUSPARSE_DIAG_TYPE_UNIT),
        };
        if a.block > 1 {
            let matrix = object!(vendor, cusparseCreateMatDescr(), cusparseDestroyMatDescr);
            let mut bytes = 0;
            // SAFETY: the descriptor is live.
            unsafe {
                let done = sparse::cusparseSetMatFillMode(matrix.raw(), fill);
                vendor.sparse("cusparseSetMatFillMode", done)?;
                let done = sparse::cusparseSetMatDiagType(matrix.raw(), diagonal);
                vendor.sparse("cusparseSetMatDiagType", done)?;
            }
            let info = object!(vendor, cusparseCreateBsrsv2Info(), cusparseDestroyBsrsv2Info);
            let (m, i) = (matrix.raw(), info.raw());
            bsr!(vendor, a, cusparseDbsrsv2_bufferSize, [OP] [] m, i, &mut bytes)?;
            let (triangle, buffer) = (Triangle::Blocks(info, matrix), workspace(vendor, bytes as usize)?);
            let made = Self { vendor: vendor.clone(), triangle, policy, buffer };
            let at = made.buffer.pointer() as _;
            bsr!(vendor, a, cusparseDbsrsv2_analysis, [OP] [] m, i, policy, at)?;
            return Ok(made);
        }
        // The analysis reads no vector, so any address is valid.
        let [rows, columns, values] = a.addresses();
        let numbers = Numbers::new(vendor, a.rows, a.count, [rows, columns, values, values])?;
        let raw = numbers.matrix.raw();
        // SAFETY: attributes are read in the call.
        unsafe {
            use sparse::cusparseSpMatAttribute_t as Attribute;
            let (kind, size) = (Attribute::CUSPARSE_SPMAT_FILL_MODE, size_of_val(&fill));
            let done = sparse::cusparseSpMatSetAttribute(raw, kind, (&raw mut fill).cast(), size);
            vendor.sparse("cusparseSpMatSetAttribute", done)?;
            let (kind, size) = (Attribute::CUSPARSE_SPMAT_DIAG_TYPE, size_of_val(&diagonal));
            let done = sparse::cusparseSpMatSetAttribute(raw, kind, (&raw mut diagonal).cast(), size);
            vendor.sparse("cusparseSpMatSetAttribute", done)?;
        }
        let solve = object!(vendor, cusparseSpSV_createDescr(), cusparseSpSV_destroyDescr);
        let ((m, x, y), s, mut bytes) = (numbers.operands(), solve.raw(), 0usize);
        call!(vendor, cusparseSpSV_bufferSize(OP, scalar(&ONE), m, x, y, TYPE, ALGORITHM, s, &mut bytes))?;
        let (triangle, buffer) = (Triangle::Numbers(solve, numbers), workspace(vendor, bytes)?);
        let made = Self { vendor: vendor.clone(), triangle, policy, buffer };
        let at = made.buffer.pointer() as _;
        call!(vendor, cusparseSpSV_analysis(OP, scalar(&ONE), m, x, y, TYPE, ALGORITHM, s, at))?;
        Ok(made)
    }

    /// Solves with the analysed arrays; the caller's vectors hold b numbers per block row.
    pub fn run(&self, a: &Blocks, x: u64, y: u64) -> Result<()> {
        let v = &self.vendor;
        match &self.triangle {
            Triangle::Numbers(solve, numbers) => {
                let ((m, x, y), s) = (numbers.at(x, y), solve.raw());
                call!(v, cusparseSpSV_solve(OP, scalar(&ONE), m, x, y, TYPE, ALGORITHM, s))
            }
            Triangle::Blocks(info, matrix) => {
                let (m, i, policy) = (matrix.raw(), info.raw(), self.policy);
                let (x, y, at) = (x as _, y as _, self.buffer.pointer() as _);
                bsr!(v, a, cusparseDbsrsv2_solve, [OP] [&ONE] m, i, x, y, policy, at)
            }
        }
    }
}

impl Drop for Solve {
    fn drop(&mut self) {
        let _ = self.vendor.device.wait(); // as above
    }
}
