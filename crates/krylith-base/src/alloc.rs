//! Allocation of host memory that may fail.

use std::cell::Cell;
use std::collections::TryReserveError;

thread_local! {
    static MAY_FAIL: Cell<bool> = const { Cell::new(false) };
}

/// Returns true while this thread makes an allocation whose failure it reports itself, as
/// [`Error::Memory`](crate::Error::Memory). A program may have an allocator that aborts when memory runs out;
/// it should return null while this is true.
pub fn may_fail() -> bool {
    MAY_FAIL.try_with(Cell::get).unwrap_or(false)
}

/// Calls [`Vec::try_reserve_exact`]; [`may_fail`] returns true during the call.
#[doc(hidden)]
pub fn reserve<T>(to: &mut Vec<T>, more: usize) -> std::result::Result<(), TryReserveError> {
    MAY_FAIL.set(true);
    let done = to.try_reserve_exact(more);
    MAY_FAIL.set(false);
    done
}
