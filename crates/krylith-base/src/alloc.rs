//! Host memory that may be missing.

use std::cell::Cell;
use std::collections::TryReserveError;

thread_local! {
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// True while this thread asks for host memory of which it says itself, by an [`Error::Memory`](crate::Error::Memory), that it is not there. For the
/// allocator of a program that ends where there is no memory: here it should return null.
pub fn may_fail() -> bool {
    MAY_FAIL.try_with(Cell::get).unwrap_or(false)
}

/// [`Vec::try_reserve_exact`], during which [`may_fail`] is true.
#[doc(hidden)]
pub fn reserve<T>(to: &mut Vec<T>, more: usize) -> std::result::Result<(), TryReserveError> {
    MAY_FAIL.set(true);
    let done = to.try_reserve_exact(more);
    MAY_FAIL.set(false);
    done
}
