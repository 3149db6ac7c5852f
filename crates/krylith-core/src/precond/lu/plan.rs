//! The analysis of a pattern: the tree of fronts, the entries of each front, and scales.

use super::factors::Columns;
use super::order::{self, Pattern};
use super::tree::{NONE, Tree};
use crate::Result;
use crate::interrupt::limits;
use crate::matching::Matching;

/// An entry of the matrix, by positions of the elimination.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry {
    pub row: u32,
    pub column: u32,
    /// Its number among the values.
    pub from: u32,
}

/// What stays the same for new values.
pub(super) struct Plan {
    pub tree: Tree,
    /// Position of each row of the matrix.
    pub row_place: Vec<u32>,
    /// Scales of rows and columns by their positions; empty if all are 1.
    pub row_scale: Vec<f64>,
    pub column_scale: Vec<f64>,
    matched: bool,
    symmetric: bool,
    /// The entries of all fronts, one front after the other.
    pub entries: Vec<Entry>,
    entry_ptr: Vec<usize>,
    children: Vec<u32>,
    child_ptr: Vec<u32>,
}

impl Plan {
    /// Orders a matrix. A matching brings its rows to the diagonal; `pairs` are pivots of order 2.
    ///
    /// # Errors
    /// Out of memory; the limits of the caller's work are reached.
    pub fn new(
        a: &Columns,
        symmetric: bool,
        matching: Option<&Matching>,
        pairs: &[[u32; 2]],
    ) -> Result<Self> {
        let n = a.order();
        let diagonal = matching.map(|m| {
            let mut place = vec![0u32; n];
            m.rows().iter().enumerate().for_each(|(k, &row)| place[row as usize] = k as u32);
            place
        });
        let pattern = Pattern::new(a, diagonal.as_deref());
        let tree = order::tree(&pattern, symmetric, pairs, limits().as_ref())?;
        drop(pattern);
        let row_place: Vec<u32> = match &diagonal {
            Some(diagonal) => diagonal.iter().map(|&k| tree.place[k as usize]).collect(),
            None => tree.place.clone(),
        };
        let mut plan = Self {
            row_place,
            row_scale: Vec::new(),
            column_scale: Vec::new(),
            matched: matching.is_some(),
            symmetric,
            entries: Vec::new(),
            entry_ptr: Vec::new(),
            children: Vec::new(),
            child_ptr: Vec::new(),
            tree,
        };
        if let Some(matching) = matching {
            plan.row_scale = placed(&matching.row_scales(), &plan.row_place);
            plan.column_scale = placed(&matching.column_scales(), &plan.tree.place);
        }
        plan.sort_entries(a);
        plan.list_children();
        Ok(plan)
    }

    /// Sorts the entries by the front that assembles them.
    fn sort_entries(&mut self, a: &Columns) {
        let front = self.tree.front_of();
        let symmetric = self.symmetric;
        let place = |i: usize, j: usize| (self.row_place[i], self.tree.place[j]);
        let each = |visit: &mut dyn FnMut(usize, Entry)| {
            for j in 0..a.order() {
                for from in a.col_ptr[j]..a.col_ptr[j + 1] {
                    let (row, column) = place(a.rows[from], j);
                    if !symmetric || row >= column {
                        let own = front[row.min(column) as usize] as usize;
                        visit(own, Entry { row, column, from: from as u32 });
                    }
                }
            }
        };
        let mut ptr = vec![0usize; self.tree.fronts() + 1];
        each(&mut |s, _| ptr[s + 1] += 1);
        (0..self.tree.fronts()).for_each(|s| ptr[s + 1] += ptr[s]);
        let mut next = ptr.clone();
        let mut entries = vec![Entry::default(); ptr[self.tree.fronts()]];
        each(&mut |s, entry| {
            entries[next[s]] = entry;
            next[s] += 1;
        });
        (self.entries, self.entry_ptr) = (entries, ptr);
    }

    fn list_children(&mut self) {
        let fronts = self.tree.fronts();
        let mut ptr = vec![0u32; fronts + 1];
        let parents = || self.tree.parent.iter().enumerate().filter(|(_, p)| **p != NONE);
        parents().for_each(|(_, &p)| ptr[p as usize + 1] += 1);
        (0..fronts).for_each(|s| ptr[s + 1] += ptr[s]);
        let (mut next, mut children) = (ptr.clone(), vec![0u32; ptr[fronts] as usize]);
        parents().for_each(|(s, &p)| {
            children[next[p as usize] as usize] = s as u32;
            next[p as usize] += 1;
        });
        (self.children, self.child_ptr) = (children, ptr);
    }

    /// Returns the children of a front, ascending.
    pub fn children(&self, s: usize) -> impl Iterator<Item = usize> + '_ {
        let range = self.child_ptr[s] as usize..self.child_ptr[s + 1] as usize;
        self.children[range].iter().map(|&c| c as usize)
    }

    /// Returns the entries of the matrix that a front assembles.
    pub fn entries_of(&self, s: usize) -> &[Entry] {
        &self.entries[self.entry_ptr[s]..self.entry_ptr[s + 1]]
    }

    /// Returns true if the plan is for a symmetric matrix.
    pub fn is_symmetric(&self) -> bool {
        self.symmetric
    }

    /// Returns true if rows are matched with columns.
    pub fn is_matched(&self) -> bool {
        self.matched
    }

    /// Returns the scaled value of an entry.
    #[inline]
    pub fn value(&self, entry: &Entry, values: &[f64]) -> f64 {
        let v = values[entry.from as usize];
        if self.row_scale.is_empty() {
            return v;
        }
        self.row_scale[entry.row as usize] * v * self.column_scale[entry.column as usize]
    }

    /// Returns the largest entry after scaling.
    pub fn largest(&self, values: &[f64]) -> f64 {
        self.entries.iter().fold(0.0, |m: f64, e| m.max(self.value(e, values).abs()))
    }

    /// Multiplies columns by signs, if there are any.
    pub fn sign(&mut self, signs: &[f64]) {
        for (j, sign) in signs.iter().enumerate() {
            self.column_scale[self.tree.place[j] as usize] *= sign;
        }
    }
}

/// Returns values by positions.
fn placed(values: &[f64], place: &[u32]) -> Vec<f64> {
    let mut out = vec![1.0; values.len()];
    values.iter().zip(place).for_each(|(v, &at)| out[at as usize] = *v);
    out
}
