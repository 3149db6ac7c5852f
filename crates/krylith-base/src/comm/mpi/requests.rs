//! Handles of pending operations, in the library's width.

use super::functions::{Handle, Handles, Table};

/// Request handles, side by side.
pub(super) struct Requests {
    /// One word per request. No library's handles are wider; narrower ones are packed at the front.
    words: Vec<usize>,
    table: &'static Table,
}

impl Requests {
    pub(super) fn new(table: &'static Table) -> Self {
        Self { words: Vec::new(), table }
    }

    pub(super) fn push(&mut self, request: Handle) {
        self.words.push(0);
        let at = self.at(self.len() - 1);
        // SAFETY: within `words`, which has memory for this many handles.
        unsafe { self.table.store(request, at) };
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// The address of request `i`; the later ones follow.
    pub(super) fn at(&mut self, i: usize) -> Handles {
        self.table.nth(Handles::at(self.words.as_mut_ptr()), i)
    }
}
