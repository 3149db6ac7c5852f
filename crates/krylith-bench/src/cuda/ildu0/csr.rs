//! cuSPARSE for block size 1: csrilu02 and SpSV.

use super::{Arrays, HostArrays, Triangles, faster_policy, sampled, seconds};
use crate::cuda::vendor::Vendor;
use crate::ildu0::Setup;
use crate::ildu0::system::SubdomainSystem;
use crate::samples::Samples;
use cudarc::cusparse::sys as sparse;
use krylith::device::cuda::Buffer;
use krylith::{Error, Result};
use std::ffi::c_void;
use std::rc::Rc;

const TYPE: sparse::cudaDataType = sparse::cudaDataType::CUDA_R_64F;
const OP: sparse::cusparseOperation_t = sparse::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;
/// The one there is.
const ALGORITHM: sparse::cusparseSpSVAlg_t = sparse::cusparseSpSVAlg_t::CUSPARSE_SPSV_ALG_DEFAULT;

/// The factors and both solves, analysed.
pub(super) struct Csr {
    // Before the arrays, so that descriptors go first.
    lower: SpSv,
    upper: SpSv,
    policy: sparse::cusparseSolvePolicy_t,
    _arrays: Arrays,
}

impl Csr {
    /// Factorises and analyses; each step's time goes to `setups` under a name that begins with `what`.
    ///
    /// # Errors
    /// No room, a zero pivot, whatever cuSPARSE reports.
    pub fn new(
        vendor: &Rc<Vendor>,
        s: &SubdomainSystem,
        what: &str,
        setups: &mut Vec<Setup>,
    ) -> Result<Self> {
        let host = HostArrays::new(s, false);
        let (arrays, upload) = seconds(vendor, || host.upload(vendor))?;
        setups.push(Setup { name: format!("{what}: upload of the matrix"), samples: Samples(vec![upload]) });
        let given = vendor.zeros(arrays.values.len())?;
        vendor.copy(arrays.values.pointer(), given.pointer(), given.len())?;
        let policy = faster_policy(|policy| {
            let ilu = Ilu::new(vendor, &arrays, policy)?;
            let mut last = 0.0;
            for _ in 0..2 {
                vendor.copy(given.pointer(), arrays.values.pointer(), given.len())?;
                last = seconds(vendor, || ilu.factorize(&arrays))?.1;
            }
            Ok(last)
        })?;
        let mut ilu = None;
        let analysis = sampled(vendor, || {
            ilu = Some(Ilu::new(vendor, &arrays, policy)?);
            Ok(())
        })?;
        setups.push(Setup { name: format!("{what}: csrilu02 analysis"), samples: analysis });
        let ilu = ilu.ok_or_else(|| Error::invalid("csrilu02 was never analysed"))?;
        let mut samples = Samples::default();
        for _ in 0..super::SETUP_SAMPLES {
            vendor.copy(given.pointer(), arrays.values.pointer(), given.len())?;
            samples.0.push(seconds(vendor, || ilu.factorize(&arrays))?.1);
        }
        setups.push(Setup { name: format!("{what}: csrilu02 factorisation"), samples });
        ilu.check(s)?;
        drop((ilu, given));
        let vectors = vendor.zeros(s.len())?;
        let new = |upper| SpSv::new(vendor, &arrays, vectors.pointer(), upper);
        let (lower, upper) = (new(false)?, new(true)?);
        let analysis = sampled(vendor, || new(false).and(new(true)).map(|_| ()))?;
        setups.push(Setup { name: format!("{what}: SpSV analysis of L and U"), samples: analysis });
        Ok(Self { lower, upper, policy, _arrays: arrays })
    }
}

impl Triangles for Csr {
    fn name(&self) -> &'static str {
        "cusparseSpSV"
    }
    fn notes(&self) -> String {
        format!("factorised by csrilu02, {}", super::policy_name(self.policy))
    }
    fn lower(&self, x: u64, y: u64) -> Result<()> {
        self.lower.run(x, y)
    }
    fn upper(&self, x: u64, y: u64) -> Result<()> {
        self.upper.run(x, y)
    }
}

/// csrilu02's analysis.
pub(super) struct Ilu {
    vendor: Rc<Vendor>,
    info: sparse::csrilu02Info_t,
    policy: sparse::cusparseSolvePolicy_t,
    buffer: Buffer<u8>,
}

impl Ilu {
    pub(super) fn new(
        vendor: &Rc<Vendor>,
        a: &Arrays,
        policy: sparse::cusparseSolvePolicy_t,
    ) -> Result<Self> {
        let (mut info, mut bytes) = (std::ptr::null_mut(), 0);
        let (n, nnz) = (a.rows as i32, a.blocks as i32);
        let (values, rows, columns) = (a.values.pointer(), a.row_ptr.pointer(), a.columns.pointer());
        // SAFETY: made here, destroyed in `drop`.
        let done = unsafe { sparse::cusparseCreateCsrilu02Info(&mut info) };
        vendor.sparse("cusparseCreateCsrilu02Info", done)?;
        let mut made = Self {
            vendor: vendor.clone(),
            info,
            policy,
            buffer: vendor.device.zeros(16, "csrilu02's buffer")?,
        };
        // SAFETY: the arrays have the sizes that are given; the number of bytes is written to one integer.
        let done = unsafe {
            sparse::cusparseDcsrilu02_bufferSize(
                vendor.handle(),
                n,
                nnz,
                vendor.matrix,
                values as _,
                rows as _,
                columns as _,
                info,
                &mut bytes,
            )
        };
        vendor.sparse("cusparseDcsrilu02_bufferSize", done)?;
        made.buffer = vendor.device.zeros((bytes as usize).max(16), "csrilu02's buffer")?;
        // SAFETY: as above, with a buffer of the size that was asked for.
        let done = unsafe {
            sparse::cusparseDcsrilu02_analysis(
                vendor.handle(),
                n,
                nnz,
                vendor.matrix,
                values as _,
                rows as _,
                columns as _,
                info,
                policy,
                made.buffer.pointer() as _,
            )
        };
        vendor.sparse("cusparseDcsrilu02_analysis", done)?;
        Ok(made)
    }

    pub(super) fn factorize(&self, a: &Arrays) -> Result<()> {
        // SAFETY: as in `new`, with the same arrays.
        let done = unsafe {
            sparse::cusparseDcsrilu02(
                self.vendor.handle(),
                a.rows as i32,
                a.blocks as i32,
                self.vendor.matrix,
                a.values.pointer() as _,
                a.row_ptr.pointer() as _,
                a.columns.pointer() as _,
                self.info,
                self.policy,
                self.buffer.pointer() as _,
            )
        };
        self.vendor.sparse("cusparseDcsrilu02", done)
    }

    pub(super) fn check(&self, s: &SubdomainSystem) -> Result<()> {
        let mut row = -1;
        // SAFETY: waits, and writes one integer.
        let status =
            unsafe { sparse::cusparseXcsrilu02_zeroPivot(self.vendor.handle(), self.info, &mut row) };
        super::no_zero_pivot(&self.vendor, "cusparseXcsrilu02_zeroPivot", status, row, &s.rows)
    }
}

impl Drop for Ilu {
    fn drop(&mut self) {
        let _ = self.vendor.device.wait();
        // SAFETY: made once in `new`; nothing uses it any more.
        let _ = unsafe { sparse::cusparseDestroyCsrilu02Info(self.info) };
    }
}

/// One triangle, analysed.
pub(super) struct SpSv {
    vendor: Rc<Vendor>,
    matrix: sparse::cusparseSpMatDescr_t,
    x: sparse::cusparseDnVecDescr_t,
    y: sparse::cusparseDnVecDescr_t,
    solve: sparse::cusparseSpSVDescr_t,
    _buffer: Option<Buffer<u8>>,
}

static ONE: f64 = 1.0;

fn one() -> *const c_void {
    (&raw const ONE).cast()
}

impl SpSv {
    /// `vector` is any vector of the right length; the analysis does not read it.
    pub(super) fn new(vendor: &Rc<Vendor>, a: &Arrays, vector: u64, upper: bool) -> Result<Self> {
        let index = sparse::cusparseIndexType_t::CUSPARSE_INDEX_32I;
        let base = sparse::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO;
        let mut made = Self {
            vendor: vendor.clone(),
            matrix: std::ptr::null_mut(),
            x: std::ptr::null_mut(),
            y: std::ptr::null_mut(),
            solve: std::ptr::null_mut(),
            _buffer: None,
        };
        let (n, nnz) = (a.rows as i64, a.blocks as i64);
        let mut fill = match upper {
            true => sparse::cusparseFillMode_t::CUSPARSE_FILL_MODE_UPPER,
            false => sparse::cusparseFillMode_t::CUSPARSE_FILL_MODE_LOWER,
        };
        let mut diagonal = match upper {
            true => sparse::cusparseDiagType_t::CUSPARSE_DIAG_TYPE_NON_UNIT,
            false => sparse::cusparseDiagType_t::CUSPARSE_DIAG_TYPE_UNIT,
        };
        // SAFETY: descriptors are made here and destroyed once, in `drop`; the arrays are the caller's and outlive them;
        // attributes are read in the call.
        unsafe {
            let done = sparse::cusparseCreateCsr(
                &mut made.matrix,
                n,
                n,
                nnz,
                a.row_ptr.pointer() as _,
                a.columns.pointer() as _,
                a.values.pointer() as _,
                index,
                index,
                base,
                TYPE,
            );
            vendor.sparse("cusparseCreateCsr", done)?;
            let done = sparse::cusparseSpMatSetAttribute(
                made.matrix,
                sparse::cusparseSpMatAttribute_t::CUSPARSE_SPMAT_FILL_MODE,
                (&raw mut fill).cast(),
                size_of_val(&fill),
            );
            vendor.sparse("cusparseSpMatSetAttribute", done)?;
            let done = sparse::cusparseSpMatSetAttribute(
                made.matrix,
                sparse::cusparseSpMatAttribute_t::CUSPARSE_SPMAT_DIAG_TYPE,
                (&raw mut diagonal).cast(),
                size_of_val(&diagonal),
            );
            vendor.sparse("cusparseSpMatSetAttribute", done)?;
            let done = sparse::cusparseCreateDnVec(&mut made.x, n, vector as _, TYPE);
            vendor.sparse("cusparseCreateDnVec", done)?;
            let done = sparse::cusparseCreateDnVec(&mut made.y, n, vector as _, TYPE);
            vendor.sparse("cusparseCreateDnVec", done)?;
            vendor.sparse("cusparseSpSV_createDescr", sparse::cusparseSpSV_createDescr(&mut made.solve))?;
        }
        let mut bytes = 0usize;
        // SAFETY: descriptors are live; the size is written to one integer.
        let done = unsafe {
            sparse::cusparseSpSV_bufferSize(
                vendor.handle(),
                OP,
                one(),
                made.matrix.cast_const(),
                made.x.cast_const(),
                made.y,
                TYPE,
                ALGORITHM,
                made.solve,
                &mut bytes,
            )
        };
        vendor.sparse("cusparseSpSV_bufferSize", done)?;
        let buffer: Buffer<u8> = vendor.device.zeros(bytes.max(16), "SpSV's buffer")?;
        // SAFETY: as above, with a buffer of the size that was asked for; it lives as long as the descriptor.
        let done = unsafe {
            sparse::cusparseSpSV_analysis(
                vendor.handle(),
                OP,
                one(),
                made.matrix.cast_const(),
                made.x.cast_const(),
                made.y,
                TYPE,
                ALGORITHM,
                made.solve,
                buffer.pointer() as _,
            )
        };
        vendor.sparse("cusparseSpSV_analysis", done)?;
        made._buffer = Some(buffer);
        Ok(made)
    }

    pub(super) fn run(&self, x: u64, y: u64) -> Result<()> {
        // SAFETY: the caller's vectors hold a number a row; everything else lives in `self`.
        let done = unsafe {
            let _ = sparse::cusparseDnVecSetValues(self.x, x as _);
            let _ = sparse::cusparseDnVecSetValues(self.y, y as _);
            sparse::cusparseSpSV_solve(
                self.vendor.handle(),
                OP,
                one(),
                self.matrix.cast_const(),
                self.x.cast_const(),
                self.y,
                TYPE,
                ALGORITHM,
                self.solve,
            )
        };
        self.vendor.sparse("cusparseSpSV_solve", done)
    }
}

impl Drop for SpSv {
    fn drop(&mut self) {
        let _ = self.vendor.device.wait();
        // SAFETY: each was made once in `new`, or is null and skipped.
        unsafe {
            if !self.solve.is_null() {
                let _ = sparse::cusparseSpSV_destroyDescr(self.solve);
            }
            if !self.matrix.is_null() {
                let _ = sparse::cusparseDestroySpMat(self.matrix.cast_const());
            }
            for vector in [self.x, self.y] {
                if !vector.is_null() {
                    let _ = sparse::cusparseDestroyDnVec(vector.cast_const());
                }
            }
        }
    }
}
