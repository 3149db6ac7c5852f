//! Objects of cuSPARSE, and macros for calls whose errors name the function.

use super::vendor::Vendor;
use cudarc::cusparse::sys as sparse;
use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use std::ffi::c_void;

pub(super) const TYPE: sparse::cudaDataType = sparse::cudaDataType::CUDA_R_64F;
pub(super) const OP: sparse::cusparseOperation_t =
    sparse::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

/// An object of the library, with the call that destroys it.
pub(super) struct Object<T: Copy> {
    raw: T,
    end: fn(T),
}

impl<T: Copy> Object<T> {
    pub fn new(raw: T, end: fn(T)) -> Self {
        Self { raw, end }
    }

    pub fn raw(&self) -> T {
        self.raw
    }
}

impl<T: Copy> Drop for Object<T> {
    fn drop(&mut self) {
        (self.end)(self.raw);
    }
}

/// Calls `NAME(HANDLE, …)` of cuSPARSE; an error has its name. Objects are live, arrays have the given sizes,
/// and the only write to the host is one number.
macro_rules! call {
    ($vendor:expr, $name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: see above; every caller holds its objects and buffers.
        $vendor.sparse(stringify!($name), unsafe { sparse::$name($vendor.handle(), $($arg),*) })
    };
}
pub(super) use call;

/// Creates an [`Object`] by `NAME(&mut raw, …)`; another call destroys it.
macro_rules! object {
    ($vendor:expr, $name:ident($($arg:expr),*), $end:ident) => {{
        let mut raw = std::ptr::null_mut();
        // SAFETY: created here and destroyed once, by the object; arrays are the caller's and outlive it.
        $vendor.sparse(stringify!($name), unsafe { sparse::$name(&mut raw $(, $arg)*) })?;
        // SAFETY: created above; nothing uses it any more.
        Object::new(raw, |raw| unsafe {
            let _ = sparse::$end(raw as _);
        })
    }};
}
pub(super) use object;

/// A CSR matrix of f64 with 32-bit indices, and two vectors whose addresses each call gives.
pub(super) struct Numbers {
    pub matrix: Object<sparse::cusparseSpMatDescr_t>,
    x: Object<sparse::cusparseDnVecDescr_t>,
    y: Object<sparse::cusparseDnVecDescr_t>,
}

impl Numbers {
    /// Addresses of row pointers, columns, values and any vector; the caller owns these arrays, and they must
    /// outlive it.
    pub fn new(
        vendor: &Vendor,
        rows: usize,
        nonzeros: usize,
        [row_ptr, col, values, vector]: [u64; 4],
    ) -> Result<Self> {
        let index = sparse::cusparseIndexType_t::CUSPARSE_INDEX_32I;
        let base = sparse::cusparseIndexBase_t::CUSPARSE_INDEX_BASE_ZERO;
        let (n, nnz) = (rows as i64, nonzeros as i64);
        let [row_ptr, col, values, vector] = [row_ptr, col, values, vector].map(|at| at as *mut c_void);
        Ok(Self {
            matrix: object!(
                vendor,
                cusparseCreateCsr(n, n, nnz, row_ptr, col, values, index, index, base, TYPE),
                cusparseDestroySpMat
            ),
            x: object!(vendor, cusparseCreateDnVec(n, vector, TYPE), cusparseDestroyDnVec),
            y: object!(vendor, cusparseCreateDnVec(n, vector, TYPE), cusparseDestroyDnVec),
        })
    }

    /// Returns the matrix, x and y with the vectors' numbers at the given addresses.
    pub fn at(&self, x: u64, y: u64) -> Operands {
        // SAFETY: the vectors are live; the caller owns their numbers.
        unsafe {
            let _ = sparse::cusparseDnVecSetValues(self.x.raw(), x as _);
            let _ = sparse::cusparseDnVecSetValues(self.y.raw(), y as _);
        }
        self.operands()
    }

    /// Returns matrix and vectors with the addresses last set.
    pub fn operands(&self) -> Operands {
        (self.matrix.raw().cast_const(), self.x.raw().cast_const(), self.y.raw())
    }
}

/// A matrix, x and y for the generic interface.
pub(super) type Operands =
    (sparse::cusparseConstSpMatDescr_t, sparse::cusparseConstDnVecDescr_t, sparse::cusparseDnVecDescr_t);

/// A f64 on the host for the generic interface.
pub(super) fn scalar(x: &f64) -> *const c_void {
    (x as *const f64).cast()
}

/// Allocates workspace of `bytes` bytes.
pub(super) fn workspace(vendor: &Vendor, bytes: usize) -> Result<Buffer<u8>> {
    vendor.device.zeros(bytes.max(16), "a library's workspace")
}
