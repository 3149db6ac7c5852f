//! Structure inside the blocks: entries that are zero in every block, or equal to each other in every block.
//!
//! Physical systems often have such structure. For P1–P1 Stokes a block of M is m·diag(1, 1, 1, 0), and a
//! block of L has 8 distinct numbers instead of 16. Set-up finds the structure once, by comparing bits, so it
//! costs no accuracy. A device then stores and loads `slots` numbers per block instead of `terms · b²`. Terms
//! never share slots, so each term can be updated alone.
//!
//! A product that uses structure rejects new values that break it. A `Solver` then builds the operator again,
//! and reports that in an event.

use super::Terms;

/// The number that is stored for each entry of the blocks.
///
/// # Examples
/// ```
/// use krylith::{matrix::Bsr, operator::Terms};
/// use krylith_core::operator::Structure;
/// // A block [[a, 0], [0, a]]: one number of four has to be stored and loaded.
/// let a = Bsr::new(2, 1, 1, vec![0, 1], vec![0], vec![3.0, 0.0, 0.0, 3.0])?;
/// let structure = Structure::find(&Terms::bsr(&a));
/// assert!(!structure.is_dense());
/// assert_eq!((structure.slots, structure.table), (1, vec![0, -1, -1, 0]));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Structure {
    /// Number of distinct numbers in a block, for all terms together.
    pub slots: usize,
    /// Slot of entry (term, row, column), or −1 if that entry is zero in every block: `table[(term · b + row)
    /// · b + column]`.
    pub table: Vec<i32>,
    /// Term t owns the slots `first[t]..first[t + 1]`.
    pub first: Vec<usize>,
    /// Block size b.
    pub block: usize,
}

impl Structure {
    /// Returns the structure with every entry in its own slot, row by row, term after term.
    pub fn dense(block: usize, terms: usize) -> Self {
        let bb = block * block;
        let table = (0..(terms * bb) as i32).collect();
        Self { slots: terms * bb, table, first: (0..=terms).map(|t| t * bb).collect(), block }
    }

    /// Finds the structure that all blocks of each term have in common. Slots are numbered in the order of
    /// entries.
    pub fn find(terms: &Terms) -> Self {
        let bb = terms.block() * terms.block();
        Self::of_classes(terms.block(), terms.terms.iter().map(|(_, matrix)| classes(bb, matrix.values())))
    }

    /// Builds the structure from classes. The class of an entry is the first entry that equals it in every
    /// block of its term. Entries that are always zero have the class `None`.
    pub(crate) fn of_classes(block: usize, terms: impl Iterator<Item = Vec<Option<usize>>>) -> Self {
        let mut out = Self { slots: 0, table: Vec::new(), first: vec![0], block };
        terms.for_each(|class| out.push(&class));
        out
    }

    /// Returns the structure that [`find`](Self::find) finds for M and L of P1–P1 Stokes with b − 1 velocity
    /// components and a pressure.
    pub fn stokes(block: usize) -> Self {
        let p = block - 1;
        let mut out = Self { slots: 0, table: Vec::new(), first: vec![0], block };
        let velocity = |r: usize, c: usize| (r == c && r < p).then_some(0);
        let mass: Vec<_> = (0..block * block).map(|e| velocity(e / block, e % block)).collect();
        let stiffness: Vec<_> = (0..block * block)
            .map(|e| velocity(e / block, e % block).or((e / block == p || e % block == p).then_some(e)))
            .collect();
        out.push(&mass);
        out.push(&stiffness);
        out
    }

    /// Appends a term whose entry e equals entry `class[e]` of its block, or is zero if `class[e]` is `None`.
    fn push(&mut self, class: &[Option<usize>]) {
        let begin = self.table.len();
        for (e, representative) in class.iter().enumerate() {
            let slot = match representative {
                None => -1,
                Some(c) if *c < e => self.table[begin + c],
                Some(_) => {
                    self.slots += 1;
                    self.slots as i32 - 1
                }
            };
            self.table.push(slot);
        }
        self.first.push(self.slots);
    }

    /// Returns the number of terms.
    pub fn terms(&self) -> usize {
        self.first.len() - 1
    }

    /// Returns true if every entry has its own slot.
    pub fn is_dense(&self) -> bool {
        self.slots == self.table.len()
    }

    /// Returns the table of term `t`, with slots counted from its first.
    pub fn term(&self, t: usize) -> impl Iterator<Item = Option<usize>> + '_ {
        let bb = self.block * self.block;
        let first = self.first[t];
        self.table[t * bb..(t + 1) * bb].iter().map(move |&slot| (slot >= 0).then(|| slot as usize - first))
    }

    /// Returns the structure of some of the terms, such as those that a device stores together.
    pub fn of(&self, terms: std::ops::Range<usize>) -> Self {
        let (bb, base) = (self.block * self.block, self.first[terms.start]);
        let table = self.table[terms.start * bb..terms.end * bb].iter();
        let table = table.map(|&slot| if slot < 0 { slot } else { slot - base as i32 }).collect();
        let first: Vec<usize> = self.first[terms.start..=terms.end].iter().map(|f| f - base).collect();
        Self { slots: first[terms.len()], table, first, block: self.block }
    }

    /// Returns the structure with term `t` dense, for new values that break its structure.
    pub fn relax(&self, t: usize) -> Self {
        let bb = self.block * self.block;
        let mut out = Self { slots: 0, table: Vec::new(), first: vec![0], block: self.block };
        let mut class = vec![None; bb];
        for k in 0..self.terms() {
            let own: Vec<Option<usize>> = self.term(k).collect();
            for e in 0..bb {
                class[e] =
                    if k == t { Some(e) } else { own[e].and_then(|_| own.iter().position(|&s| s == own[e])) };
            }
            out.push(&class);
        }
        out
    }

    /// Returns true if the blocks `values` (b² numbers each, row by row) have the structure of term `t`.
    pub fn fits(&self, t: usize, values: &[f64]) -> bool {
        let bb = self.block * self.block;
        let table = &self.table[t * bb..(t + 1) * bb];
        let mut seen = [0.0; MAX_ENTRIES];
        if bb > MAX_ENTRIES {
            return self.is_dense();
        }
        values.chunks_exact(bb).all(|block| {
            let mut next = self.first[t] as i32;
            table.iter().zip(block).all(|(&slot, &v)| match slot {
                -1 => v == 0.0,
                slot if slot == next => {
                    seen[slot as usize - self.first[t]] = v;
                    next += 1;
                    true
                }
                slot => same(seen[slot as usize - self.first[t]], v),
            })
        })
    }

    /// Calls `store(p, slot, value)` for each block p and each slot that term `t` owns, in order.
    pub fn pack(&self, t: usize, values: &[f64], mut store: impl FnMut(usize, usize, f64)) {
        let bb = self.block * self.block;
        let table = &self.table[t * bb..(t + 1) * bb];
        for (p, block) in values.chunks_exact(bb).enumerate() {
            let mut next = self.first[t] as i32;
            for (&slot, &v) in table.iter().zip(block) {
                if slot == next {
                    store(p, slot as usize, v);
                    next += 1;
                }
            }
        }
    }
}

/// Largest b² for which structure is searched. Larger blocks count as dense.
const MAX_ENTRIES: usize = 256;

/// Compares bit by bit, except for the sign of zero.
fn same(x: f64, y: f64) -> bool {
    (x + 0.0).to_bits() == (y + 0.0).to_bits()
}

/// Returns for each of the `bb` entries the first entry that equals it in every block, or `None` if it is
/// zero in every block.
fn classes(bb: usize, values: &[f64]) -> Vec<Option<usize>> {
    if bb > MAX_ENTRIES || values.is_empty() {
        return (0..bb).map(Some).collect();
    }
    let mut class = vec![0usize; bb];
    let mut zero = vec![true; bb];
    let mut split = class.clone();
    for block in values.chunks_exact(bb) {
        for e in 0..bb {
            zero[e] &= block[e] == 0.0;
        }
        if (0..bb).all(|e| same(block[e], block[class[e]])) {
            continue;
        }
        // This loop runs at most bb times, once for each split of a class.
        for e in 0..bb {
            split[e] = (0..=e).find(|&k| class[k] == class[e] && same(block[k], block[e])).unwrap_or(e);
        }
        class.copy_from_slice(&split);
        if (0..bb).all(|e| class[e] == e && !zero[e]) {
            break;
        }
    }
    (0..bb).map(|e| (!zero[e]).then_some(class[e])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Bsr, Dense};
    use std::borrow::Cow;

    fn bsr(block: usize, values: &[&[f64]]) -> Bsr {
        let n = values.len();
        Bsr::new(block, n, n, (0..=n).collect(), (0..n as u32).collect(), values.concat()).unwrap()
    }

    fn terms(matrices: Vec<Bsr>) -> Terms<'static> {
        Terms {
            terms: matrices.into_iter().map(|m| (Dense::identity(2), Cow::Owned(m))).collect(),
            halo: None,
        }
    }

    #[test]
    fn stokes_has_nine_numbers_of_32() {
        // M = m·diag(1, 1, 1, 0). L has one diffusion, gradients above the diagonal, divergences below it,
        // and a stabilisation.
        let m = |v: f64| {
            let mut block = vec![0.0; 16];
            (0..3).for_each(|k| block[5 * k] = v);
            block
        };
        let l = |v: f64| {
            let mut block = vec![0.0; 16];
            (0..3).for_each(|k| {
                block[5 * k] = v;
                block[4 * k + 3] = v + 1.0 + k as f64;
                block[12 + k] = v + 10.0 + k as f64;
            });
            block[15] = v + 20.0;
            block
        };
        let (m1, m2, l1, l2) = (m(1.0), m(2.0), l(3.0), l(-7.5));
        let terms = terms(vec![bsr(4, &[&m1, &m2]), bsr(4, &[&l1, &l2])]);
        let s = Structure::find(&terms);
        assert_eq!((s.slots, &s.first, s.terms()), (9, &vec![0, 1, 9], 2));
        assert_eq!(s.table[..16], [0, -1, -1, -1, -1, 0, -1, -1, -1, -1, 0, -1, -1, -1, -1, -1]);
        assert_eq!(s.table[16..], [1, -1, -1, 2, -1, 1, -1, 3, -1, -1, 1, 4, 5, 6, 7, 8]);
        assert!(s.fits(0, &m(9.0)) && s.fits(1, &l(9.0)) && !s.fits(0, &l(9.0)) && !s.is_dense());

        let mut packed = [0.0; 18];
        for t in 0..2 {
            s.pack(t, terms.terms[t].1.values(), |p, slot, v| packed[p * 9 + slot] = v);
        }
        for t in 0..2 {
            for (e, &v) in terms.terms[t].1.values().iter().enumerate() {
                let slot = s.table[t * 16 + e % 16];
                let stored = if slot < 0 { 0.0 } else { packed[e / 16 * 9 + slot as usize] };
                assert_eq!(stored.to_bits(), v.to_bits());
            }
        }

        let relaxed = s.relax(0);
        assert_eq!((relaxed.slots, &relaxed.first), (24, &vec![0, 16, 24]));
        assert_eq!(relaxed.table[..16], (0..16).collect::<Vec<_>>());
        assert_eq!(relaxed.table[16..20], [16, -1, -1, 17]);
        assert_eq!(s.of(1..2).table[..4], [0, -1, -1, 1]);
        assert_eq!((s.of(1..2).slots, s.of(0..1).slots, s.of(0..2) == s), (8, 1, true));
    }

    #[test]
    fn what_holds_in_some_blocks_only_is_no_structure() {
        let found = Structure::find(&terms(vec![bsr(2, &[&[1.0, 1.0, 0.0, 2.0], &[3.0, 4.0, 0.5, 3.0]])]));
        assert_eq!((found.slots, found.is_dense()), (4, true));
        assert_eq!(found, Structure::dense(2, 1));
        let found = Structure::find(&terms(vec![bsr(2, &[&[0.0, 1.0, 0.0, 1.0], &[-0.0, 4.0, 0.0, 4.0]])]));
        assert_eq!((found.slots, &found.table), (1, &vec![-1, 0, -1, 0]));
        // Entries are zero in the first block and differ in the second.
        let found = Structure::find(&terms(vec![bsr(2, &[&[0.0; 4], &[1.0, 0.0, 2.0, 1.0]])]));
        assert_eq!((found.slots, &found.table), (2, &vec![0, -1, 1, 0]));
    }

    #[test]
    fn nothing_stored_or_nothing_but_zeros() {
        let empty = Bsr::new(3, 2, 2, vec![0, 0, 0], vec![], vec![]).unwrap();
        assert_eq!(Structure::find(&terms(vec![empty])), Structure::dense(3, 1));
        let zeros = Structure::find(&terms(vec![bsr(1, &[&[0.0], &[0.0]])]));
        assert_eq!((zeros.slots, zeros.table), (0, vec![-1]));
    }

    #[test]
    fn random_blocks_are_dense() {
        let values: Vec<f64> = (0..9 * 4).map(|k| (k as f64 * 1.7).sin()).collect();
        let rows: Vec<&[f64]> = values.chunks(9).collect();
        assert_eq!(Structure::find(&terms(vec![bsr(3, &rows)])), Structure::dense(3, 1));
    }
}
