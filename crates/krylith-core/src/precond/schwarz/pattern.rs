//! The entries of the matrix inside one subdomain.

use super::super::incomplete::fill::{NONE, Pattern};
use super::overlap::Overlap;
use crate::matrix::Bsr;

/// Returns the pattern that `a` and the imported rows have inside a subdomain, whose nodes in order are
/// `rows`. Adds missing diagonal entries. `place` must hold [`NONE`] for every node before, and does so
/// afterwards.
pub(super) fn inside(a: &Bsr, found: &Overlap, rows: &[u32], place: &mut [u32]) -> Pattern {
    rows.iter().enumerate().for_each(|(k, &node)| place[node as usize] = k as u32);
    let own = a.block_rows();
    let look = &*place;
    let pattern = Pattern::by_rows(rows.len(), Vec::new, |row: &mut Vec<(u32, u32)>, k, out| {
        row.clear();
        let mut add = |node: u32, source: u32| {
            let at = look[node as usize];
            if at != NONE {
                row.push((at, source));
            }
        };
        let node = rows[k] as usize;
        if node < own {
            for e in a.row_ptr()[node]..a.row_ptr()[node + 1] {
                let column = found.node(a.col()[e]);
                if column != NONE {
                    add(column, e as u32);
                }
            }
        } else {
            found.imported[node - own].iter().for_each(|&(column, source)| add(column, source));
        }
        if !row.iter().any(|&(at, _)| at as usize == k) {
            row.push((k as u32, NONE));
        }
        row.sort_unstable();
        out.col.extend(row.iter().map(|e| e.0));
        out.from.extend(row.iter().map(|e| e.1));
    });
    rows.iter().for_each(|&node| place[node as usize] = NONE);
    pattern
}
