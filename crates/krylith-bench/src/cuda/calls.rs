//! Objects of cuSPARSE, and calls that know their names.

use super::vendor::Vendor;
use cudarc::cusparse::sys as sparse;
use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use std::ffi::c_void;

pub(super) const TYPE: sparse::cudaDataType = sparse::cudaDataType::CUDA_R_64F;
pub(super) const OP: sparse::cusparseOperation_t =
    sparse::cusparseOperation_t::CUSPARSE_OPERATION_NON_TRANSPOSE;

/// An object of the library with the call that ends it.
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

/// Calls `NAME(HANDLE, …)` of cuSPARSE; an error has its name. Objects are live, arrays have the sizes that are given, and what is
/// written to the host is one number.
macro_rules! call {
    ($vendor:expr, $name:ident($($arg:expr),* $(,)?)) => {
        // SAFETY: see above; every caller holds its objects and buffers.
        $vendor.sparse(stringify!($name), unsafe { sparse::$name($vendor.handle(), $($arg),*) })
    };
}
pub(super) use call;

/// Makes an [`Object`] by `NAME(&mut raw, …)`, which another call ends.
macro_rules! object {
    ($vendor:expr, $name:ident($($arg:expr),*), $end:ident) => {{
        let mut raw = std::ptr::null_mut();
        // SAFETY: made here and ended once, by the object; arrays are the caller's and outlive it.
        $vendor.sparse(stringify!($name), unsafe { sparse::$name(&mut raw $(, $arg)*) })?;
        // SAFETY: made above; nothing uses it any more.
        Object::new(raw, |raw| unsafe {
            let _ = sparse::$end(raw as _);
        })
    }};
}
pub(super) use object;

/// A CSR matrix of f64 with 32-bit indices, and two vectors whose numbers lie where each call says.
pub(super) struct Numbers {
    pub matrix: Object<sparse::cusparseSpMatDescr_t>,
    x: Object<sparse::cusparseDnVecDescr_t>,
    y: Object<sparse::cusparseDnVecDescr_t>,
}

impl Numbers {
    /// Addresses of row pointers, columns, values and any vector belong to the caller and must outlive it.
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

    /// The matrix, x and y with their numbers at some addresses.
    pub fn at(&self, x: u64, y: u64) -> Operands {
        // SAFETY: the vectors are live; their numbers are the caller's.
        unsafe {
            let _ = sparse::cusparseDnVecSetValues(self.x.raw(), x as _);
            let _ = sparse::cusparseDnVecSetValues(self.y.raw(), y as _);
        }
        self.operands()
    }

    /// The same wherever their numbers are.
    pub fn operands(&self) -> Operands {
        (self.matrix.raw().cast_const(), self.x.raw().cast_const(), self.y.raw())
    }
}

/// A matrix, x and y as the generic interface takes them.
pub(super) type Operands =
    (sparse::cusparseConstSpMatDescr_t, sparse::cusparseConstDnVecDescr_t, sparse::cusparseDnVecDescr_t);

/// f64 on the host, as the generic interface takes them.
pub(super) fn scalar(x: &f64) -> *const c_void {
    (x as *const f64).cast()
}

/// Workspace of so many bytes.
pub(super) fn workspace(vendor: &Vendor, bytes: usize) -> Result<Buffer<u8>> {
    vendor.device.zeros(bytes.max(16), "a library's workspace")
}
