//! Handles of operations under way, as wide as the library has them.

use super::functions::{Handle, Handles, Table};

/// Requests, side by side.
pub(super) struct Requests {
    /// Room for each at the width of a pointer, which no library exceeds.
    words: Vec<usize>,
    count: usize,
    table: &'static Table,
}

impl Requests {
    pub(super) fn new(table: &'static Table) -> Self {
        Self { words: Vec::new(), count: 0, table }
    }

    pub(super) fn push(&mut self, request: Handle) {
        self.words.push(0);
        self.count += 1;
        let at = self.at(self.count - 1);
        // SAFETY: within `words`, which have room for `count` handles.
        unsafe { self.table.store(request, at) };
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Where request `i` stands, and after it the others.
    pub(super) fn at(&mut self, i: usize) -> Handles {
        self.table.nth(Handles::at(self.words.as_mut_ptr()), i)
    }
}
