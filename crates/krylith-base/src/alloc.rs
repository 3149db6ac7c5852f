//! Allocation of host memory that may fail.

use std::cell::Cell;
use std::collections::TryReserveError;

thread_local! {
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// True while this thread makes an allocation whose failure it reports itself, by
/// [`Error::Memory`](crate::Error::Memory). For the allocator of a program that aborts when out of memory:
/// while this is true, it should return null instead.
pub fn may_fail() -> bool {
    MAY_FAIL.try_with(Cell::get).unwrap_or(false)
}

/// [`Vec::try_reserve_exact`]; while it runs, [`may_fail`] is true.
#[doc(hidden)]
pub fn reserve<T>(to: &mut Vec<T>, more: usize) -> std::result::Result<(), TryReserveError> {
    MAY_FAIL.set(true);
    let done = to.try_reserve_exact(more);
    MAY_FAIL.set(false);
    done
}
