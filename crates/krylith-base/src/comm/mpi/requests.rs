//! Handles of operations under way, as wide as the library has them.

use super::functions::{Handle, Handles, Table};

/// Requests, side by side.
pub(super) struct Requests {
    /// As many words as there are requests: no library's handles are wider, and narrower ones stand side by side at the front.
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
        // SAFETY: within `words`, which have room for as many handles.
        unsafe { self.table.store(request, at) };
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Where request `i` stands, and after it the others.
    pub(super) fn at(&mut self, i: usize) -> Handles {
        self.table.nth(Handles::at(self.words.as_mut_ptr()), i)
    }
}
