//! Storage formats of products with scalar rows, and the test whether a matrix can be stored by diagonals.

use crate::Error;
use crate::matrix::{Bsr, Shape};
use rayon::prelude::*;
use std::fmt::Display;

/// Storage format of a product with scalar rows: `auto`, `csr`, `dia` or `dia-full`.
///
/// # Examples
/// ```
/// use krylith::options::Format;
/// assert_eq!("dia-full".parse::<Format>()?, Format::DiaFull);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// By diagonals if the entries lie on few diagonals, else by rows. Blocks, and sums of several terms,
    /// have their own formats.
    #[default]
    Auto,
    /// By rows: a value and a column per entry.
    Csr,
    /// By diagonals: a value per position and no columns. For a symmetric matrix, only the main diagonal and
    /// the diagonals above it.
    Dia,
    /// By diagonals, all of which are stored.
    DiaFull,
}

impl Format {
    /// Returns true if the user requested storage by diagonals.
    pub(crate) fn wants_diagonals(self) -> bool {
        matches!(self, Format::Dia | Format::DiaFull)
    }
}

krylith_base::names! { Format, "format": Auto => "auto", Csr => "csr", Dia => "dia", DiaFull => "dia-full" }

/// Largest number of diagonals of a matrix that is stored by diagonals. A 32-bit word per row has a bit for
/// each of them.
pub(crate) const MOST_DIAGONALS: usize = 32;

/// Returns true if storage by diagonals pays, which is so if at least 70 % of the positions on them have an
/// entry. A position on a diagonal takes 8 bytes, and an entry stored by rows takes 12.
pub(crate) fn worth_diagonals(rows: usize, diagonals: usize, entries: usize) -> bool {
    10 * entries >= 7 * rows * diagonals
}

/// Returns true if there is a main diagonal, and a diagonal −k for each diagonal k.
pub(crate) fn mirrored(offsets: &[i32]) -> bool {
    let n = offsets.len();
    n % 2 == 1 && (0..n).all(|k| offsets[k] == -offsets[n - 1 - k])
}

/// Returns the number of diagonals of a scalar matrix that `format=auto` stores, which is about half of them
/// if the matrix is symmetric; `None` if the matrix is stored by rows.
pub(crate) fn kept_diagonals(a: &Bsr) -> Option<usize> {
    let offsets = diagonals_of(a, a.block_rows()).ok().filter(|_| a.block() == 1)?;
    let half = mirrored(&offsets) && Shape::of(a).is_symmetric();
    Some(if half { offsets.len().div_ceil(2) } else { offsets.len() })
}

/// Returns the error for a matrix that cannot be stored by diagonals although the user requested it.
pub(crate) fn not_by_diagonals(why: impl Display) -> Error {
    Error::Unsupported(format!("format=dia: {why}; use format=auto, which stores such a matrix by rows"))
}

/// Returns the diagonals of the columns below `own`, in ascending order.
///
/// # Errors
/// A message if there are too many diagonals, or too few entries on them. It names the row in which the
/// number of diagonals exceeds the limit.
pub(crate) fn diagonals_of(a: &Bsr, own: usize) -> std::result::Result<Vec<i32>, String> {
    const ROWS: usize = 1 << 14;
    let (rows, row_ptr, col) = (a.block_rows(), a.row_ptr(), a.col());
    if rows != own || rows > i32::MAX as usize {
        return Err(format!(
            "the matrix has {rows} rows and {own} columns, but diagonals need a square matrix"
        ));
    }
    /// Adds a diagonal to the list; returns false if there are too many.
    fn insert(offsets: &mut Vec<i32>, offset: i32) -> bool {
        if let Err(at) = offsets.binary_search(&offset) {
            offsets.insert(at, offset);
        }
        offsets.len() <= MOST_DIAGONALS
    }
    type Part = std::result::Result<(Vec<i32>, usize), usize>;
    let of_rows = |first: usize| -> Part {
        let (mut offsets, mut entries) = (Vec::new(), 0);
        for i in first..(first + ROWS).min(rows) {
            // Most rows resemble the row before, so try the next known diagonal first for each entry.
            let mut k = 0;
            for &j in col[row_ptr[i]..row_ptr[i + 1]].iter().take_while(|&&j| (j as usize) < own) {
                let offset = (j as i64 - i as i64) as i32;
                while k < offsets.len() && offsets[k] < offset {
                    k += 1;
                }
                if offsets.get(k) != Some(&offset) && !insert(&mut offsets, offset) {
                    return Err(i);
                }
                entries += 1;
            }
        }
        Ok((offsets, entries))
    };
    let parts: Vec<Part> = (0..rows.div_ceil(ROWS)).into_par_iter().map(|p| of_rows(p * ROWS)).collect();
    let (mut offsets, mut entries) = (Vec::new(), 0);
    for (p, part) in parts.into_iter().enumerate() {
        let many = |row| {
            format!("row {row} has an entry on more diagonals than the {MOST_DIAGONALS} that are supported")
        };
        let (more, count) = part.map_err(many)?;
        entries += count;
        if !more.into_iter().all(|offset| insert(&mut offsets, offset)) {
            return Err(format!(
                "rows {} to {} have more than {MOST_DIAGONALS} diagonals",
                0,
                (p + 1) * ROWS
            ));
        }
    }
    if offsets.is_empty() {
        offsets.push(0);
    }
    if !worth_diagonals(rows, offsets.len(), entries) {
        let (count, places) = (offsets.len(), rows * offsets.len());
        return Err(format!(
            "{entries} entries fill less than 70 % of the {places} places on their {count} diagonals"
        ));
    }
    Ok(offsets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    #[test]
    fn a_stencil_is_kept_by_half_its_diagonals_where_it_is_symmetric() {
        let n = 50_u32;
        let line = |upper: f64| -> Vec<(u32, u32, f64)> {
            let of_row = |i: u32| {
                let own = [(i, i, 2.0), (i, i + 1, upper)];
                own.into_iter().chain((i > 0).then(|| (i, i - 1, -1.0))).filter(|e| e.1 < n)
            };
            (0..n).flat_map(of_row).collect()
        };
        let kept = |entries: &[(u32, u32, f64)]| {
            kept_diagonals(&Bsr::from_csr(&Csr::from_triplets(50, 50, entries).unwrap(), 1).unwrap())
        };
        assert_eq!((kept(&line(-1.0)), kept(&line(-0.5))), (Some(2), Some(3)));
        // An arrow matrix has an entry on the main diagonal and on each diagonal above it.
        let arrow: Vec<_> = (0..n).flat_map(|i| [(i, i, 2.0), (0, i, 1.0)]).skip(1).collect();
        assert_eq!(kept(&arrow), None);
    }
}
