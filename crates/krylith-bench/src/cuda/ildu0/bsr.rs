//! cuSPARSE for larger blocks: bsrilu02 and bsrsv2.

use super::{Arrays, HostArrays, SETUP_SAMPLES, Triangles, policy_name, sampled, seconds};
use crate::cuda::vendor::Vendor;
use crate::ildu0::Setup;
use crate::ildu0::system::SubdomainSystem;
use crate::samples::Samples;
use cudarc::cusparse::sys as sparse;
use krylith::device::cuda::Buffer;
use krylith::{Error, Result};
use std::rc::Rc;

type Policy = sparse::cusparseSolvePolicy_t;
const OP: sparse::cusparseOperation_t = sparse::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

/// The factors and both solves, analysed.
pub(super) struct Bsr {
    lower: Solve,
    upper: Solve,
    policy: Policy,
    arrays: Rc<Arrays>,
}

impl Bsr {
    /// Factorises and analyses with each layout of blocks and each policy, and keeps what solves fastest; the times of
    /// that one's steps go to `setups` under a name that begins with `what`.
    ///
    /// # Errors
    /// No room, a zero pivot, whatever cuSPARSE reports.
    pub fn new(
        vendor: &Rc<Vendor>,
        s: &SubdomainSystem,
        what: &str,
        setups: &mut Vec<Setup>,
    ) -> Result<Self> {
        let (x, y) = (vendor.zeros(s.len())?, vendor.zeros(s.len())?);
        let mut best: Option<(f64, Self, Vec<Setup>)> = None;
        for by_columns in [false, true] {
            let host = HostArrays::new(s, by_columns);
            let (arrays, upload) = seconds(vendor, || host.upload(vendor))?;
            let mut steps = Vec::new();
            let mut step =
                |name: &str, samples| steps.push(Setup { name: format!("{what}: {name}"), samples });
            step("upload of the matrix", Samples(vec![upload]));
            let factorised = factorize(vendor, &arrays, s)?;
            let note = policy_name(factorised.0);
            step(&format!("bsrilu02 analysis ({note})"), factorised.1);
            step(&format!("bsrilu02 factorisation ({note})"), factorised.2);
            let arrays = Rc::new(arrays);
            for policy in super::POLICIES {
                let new = |upper| Solve::new(vendor, &arrays, upper, policy);
                let made = Self { lower: new(false)?, upper: new(true)?, policy, arrays: arrays.clone() };
                let time = crate::cuda::quick(vendor, &mut || {
                    made.lower(x.pointer(), y.pointer())?;
                    made.upper(y.pointer(), x.pointer())
                })?;
                if best.as_ref().is_none_or(|b| time < b.0) {
                    let analysis = sampled(vendor, || new(false).and(new(true)).map(|_| ()))?;
                    let mut steps = steps.clone();
                    let name = format!("{what}: bsrsv2 analysis of L and U");
                    steps.push(Setup { name, samples: analysis });
                    best = Some((time, made, steps));
                }
            }
        }
        let (_, made, steps) = best.ok_or_else(|| Error::invalid("no setting of bsrsv2 works"))?;
        setups.extend(steps);
        Ok(made)
    }
}

impl Triangles for Bsr {
    fn name(&self) -> &'static str {
        "cusparseDbsrsv2"
    }
    fn notes(&self) -> String {
        let layout = if self.arrays.by_columns { "columns" } else { "rows" };
        format!("{}, blocks by {layout}", policy_name(self.policy))
    }
    fn lower(&self, x: u64, y: u64) -> Result<()> {
        self.lower.run(&self.arrays, x, y)
    }
    fn upper(&self, x: u64, y: u64) -> Result<()> {
        self.upper.run(&self.arrays, x, y)
    }
}

fn direction(a: &Arrays) -> sparse::cusparseDirection_t {
    match a.by_columns {
        true => sparse::cusparseDirection_t::CUSPARSE_DIRECTION_COLUMN,
        false => sparse::cusparseDirection_t::CUSPARSE_DIRECTION_ROW,
    }
}

/// Replaces A by its factors with the faster policy: that policy, the times of its analysis and of the factorisation.
fn factorize(vendor: &Rc<Vendor>, a: &Arrays, s: &SubdomainSystem) -> Result<(Policy, Samples, Samples)> {
    let given = vendor.zeros(a.values.len())?;
    vendor.copy(a.values.pointer(), given.pointer(), given.len())?;
    let restore = || vendor.copy(given.pointer(), a.values.pointer(), given.len());
    let policy = super::faster_policy(|policy| {
        let ilu = Ilu::new(vendor, a, policy)?;
        let mut last = 0.0;
        for _ in 0..2 {
            restore()?;
            last = seconds(vendor, || ilu.factorize(a))?.1;
        }
        Ok(last)
    })?;
    restore()?;
    let analysis = sampled(vendor, || Ilu::new(vendor, a, policy).map(|_| ()))?;
    let ilu = Ilu::new(vendor, a, policy)?;
    let mut samples = Samples::default();
    for _ in 0..SETUP_SAMPLES {
        restore()?;
        samples.0.push(seconds(vendor, || ilu.factorize(a))?.1);
    }
    ilu.check(&s.rows)?;
    Ok((policy, analysis, samples))
}

/// bsrilu02's analysis.
pub(in crate::cuda) struct Ilu {
    vendor: Rc<Vendor>,
    info: sparse::bsrilu02Info_t,
    policy: Policy,
    buffer: Buffer<u8>,
}

impl Ilu {
    pub(in crate::cuda) fn new(vendor: &Rc<Vendor>, a: &Arrays, policy: Policy) -> Result<Self> {
        let (mut info, mut bytes) = (std::ptr::null_mut(), 0);
        let (n, count, b) = (a.rows as i32, a.blocks as i32, a.block as i32);
        let (values, rows, columns) = (a.values.pointer(), a.row_ptr.pointer(), a.columns.pointer());
        // SAFETY: made here, destroyed in `drop`.
        let done = unsafe { sparse::cusparseCreateBsrilu02Info(&mut info) };
        vendor.sparse("cusparseCreateBsrilu02Info", done)?;
        let mut made = Self {
            vendor: vendor.clone(),
            info,
            policy,
            buffer: vendor.device.zeros(16, "bsrilu02's buffer")?,
        };
        // SAFETY: the arrays have the sizes that are given; the number of bytes is written to one integer.
        let done = unsafe {
            sparse::cusparseDbsrilu02_bufferSize(
                vendor.handle(),
                direction(a),
                n,
                count,
                vendor.matrix,
                values as _,
                rows as _,
                columns as _,
                b,
                info,
                &mut bytes,
            )
        };
        vendor.sparse("cusparseDbsrilu02_bufferSize", done)?;
        made.buffer = vendor.device.zeros((bytes as usize).max(16), "bsrilu02's buffer")?;
        // SAFETY: as above, with a buffer of the size that was asked for.
        let done = unsafe {
            sparse::cusparseDbsrilu02_analysis(
                vendor.handle(),
                direction(a),
                n,
                count,
                vendor.matrix,
                values as _,
                rows as _,
                columns as _,
                b,
                info,
                policy,
                made.buffer.pointer() as _,
            )
        };
        vendor.sparse("cusparseDbsrilu02_analysis", done)?;
        Ok(made)
    }

    pub(in crate::cuda) fn factorize(&self, a: &Arrays) -> Result<()> {
        // SAFETY: as in `new`, with the same arrays.
        let done = unsafe {
            sparse::cusparseDbsrilu02(
                self.vendor.handle(),
                direction(a),
                a.rows as i32,
                a.blocks as i32,
                self.vendor.matrix,
                a.values.pointer() as _,
                a.row_ptr.pointer() as _,
                a.columns.pointer() as _,
                a.block as i32,
                self.info,
                self.policy,
                self.buffer.pointer() as _,
            )
        };
        self.vendor.sparse("cusparseDbsrilu02", done)
    }

    pub(in crate::cuda) fn check(&self, rows: &[u32]) -> Result<()> {
        let mut row = -1;
        // SAFETY: waits, and writes one integer.
        let status =
            unsafe { sparse::cusparseXbsrilu02_zeroPivot(self.vendor.handle(), self.info, &mut row) };
        super::no_zero_pivot(&self.vendor, "cusparseXbsrilu02_zeroPivot", status, row, rows)
    }
}

impl Drop for Ilu {
    fn drop(&mut self) {
        let _ = self.vendor.device.wait();
        // SAFETY: made once in `new`; nothing uses it any more.
        let _ = unsafe { sparse::cusparseDestroyBsrilu02Info(self.info) };
    }
}

/// One triangle, analysed.
pub(in crate::cuda) struct Solve {
    vendor: Rc<Vendor>,
    matrix: sparse::cusparseMatDescr_t,
    info: sparse::bsrsv2Info_t,
    policy: Policy,
    buffer: Option<Buffer<u8>>,
}

impl Solve {
    pub(in crate::cuda) fn new(vendor: &Rc<Vendor>, a: &Arrays, upper: bool, policy: Policy) -> Result<Self> {
        let mut made = Self {
            vendor: vendor.clone(),
            matrix: std::ptr::null_mut(),
            info: std::ptr::null_mut(),
            policy,
            buffer: None,
        };
        let (n, count, b) = (a.rows as i32, a.blocks as i32, a.block as i32);
        let (values, rows, columns) = (a.values.pointer(), a.row_ptr.pointer(), a.columns.pointer());
        let (fill, diagonal) = match upper {
            true => (
                sparse::cusparseFillMode_t::CUSPARSE_FILL_MODE_UPPER,
                sparse::cusparseDiagType_t::CUSPARSE_DIAG_TYPE_NON_UNIT,
            ),
            false => (
                sparse::cusparseFillMode_t::CUSPARSE_FILL_MODE_LOWER,
                sparse::cusparseDiagType_t::CUSPARSE_DIAG_TYPE_UNIT,
            ),
        };
        let mut bytes = 0;
        // SAFETY: descriptor and info are made here and destroyed once, in `drop`; the arrays have the sizes that are
        // given; the number of bytes is written to one integer.
        unsafe {
            vendor.sparse("cusparseCreateMatDescr", sparse::cusparseCreateMatDescr(&mut made.matrix))?;
            vendor.sparse("cusparseSetMatFillMode", sparse::cusparseSetMatFillMode(made.matrix, fill))?;
            vendor.sparse("cusparseSetMatDiagType", sparse::cusparseSetMatDiagType(made.matrix, diagonal))?;
            vendor.sparse("cusparseCreateBsrsv2Info", sparse::cusparseCreateBsrsv2Info(&mut made.info))?;
            let done = sparse::cusparseDbsrsv2_bufferSize(
                vendor.handle(),
                direction(a),
                OP,
                n,
                count,
                made.matrix,
                values as _,
                rows as _,
                columns as _,
                b,
                made.info,
                &mut bytes,
            );
            vendor.sparse("cusparseDbsrsv2_bufferSize", done)?;
        }
        let buffer: Buffer<u8> = vendor.device.zeros((bytes as usize).max(16), "bsrsv2's buffer")?;
        // SAFETY: as above, with a buffer of the size that was asked for.
        let done = unsafe {
            sparse::cusparseDbsrsv2_analysis(
                vendor.handle(),
                direction(a),
                OP,
                n,
                count,
                made.matrix,
                values as _,
                rows as _,
                columns as _,
                b,
                made.info,
                policy,
                buffer.pointer() as _,
            )
        };
        vendor.sparse("cusparseDbsrsv2_analysis", done)?;
        made.buffer = Some(buffer);
        Ok(made)
    }

    pub(in crate::cuda) fn run(&self, a: &Arrays, x: u64, y: u64) -> Result<()> {
        // SAFETY: as in `new`; the caller's vectors hold b numbers a block row.
        let done = unsafe {
            sparse::cusparseDbsrsv2_solve(
                self.vendor.handle(),
                direction(a),
                OP,
                a.rows as i32,
                a.blocks as i32,
                &1.0,
                self.matrix,
                a.values.pointer() as _,
                a.row_ptr.pointer() as _,
                a.columns.pointer() as _,
                a.block as i32,
                self.info,
                x as _,
                y as _,
                self.policy,
                self.buffer.as_ref().map_or(0, Buffer::pointer) as _,
            )
        };
        self.vendor.sparse("cusparseDbsrsv2_solve", done)
    }
}

impl Drop for Solve {
    fn drop(&mut self) {
        let _ = self.vendor.device.wait();
        // SAFETY: each was made once in `new`, or is null and skipped.
        unsafe {
            if !self.info.is_null() {
                let _ = sparse::cusparseDestroyBsrsv2Info(self.info);
            }
            if !self.matrix.is_null() {
                let _ = sparse::cusparseDestroyMatDescr(self.matrix);
            }
        }
    }
}
