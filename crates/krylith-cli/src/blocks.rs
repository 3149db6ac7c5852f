//! Which block size suits a scalar matrix, and a picture of what stands inside the blocks.

use krylith::matrix::{Csr, MAX_BLOCK};
use krylith::operator::Structure;

/// Stored zeros that a block size may add, as a share of the entries there are.
const FILL: f64 = 0.2;

/// Blocks that a b×b grid over the matrix touches.
fn touched(a: &Csr, b: usize) -> usize {
    let mut last = vec![usize::MAX; a.columns() / b];
    let mut blocks = 0;
    for i in 0..a.rows() {
        for &j in a.row(i).0 {
            let last = &mut last[j as usize / b];
            if *last != i / b {
                (*last, blocks) = (i / b, blocks + 1);
            }
        }
    }
    blocks
}

/// The largest block size up to [`MAX_BLOCK`] that adds at most 20 % stored zeros, and the share it adds.
pub fn detect(a: &Csr) -> (usize, f64) {
    let n = a.nonzeros();
    for b in (2..=MAX_BLOCK).rev() {
        if a.rows().is_multiple_of(b) && a.columns().is_multiple_of(b) {
            let added = (touched(a, b) * b * b) as f64 / n as f64 - 1.0;
            if added <= FILL {
                return (b, added);
            }
        }
    }
    (1, 0.0)
}

/// One line a row of the block: a letter for each number that is stored once, a dot for what is zero in every block.
pub fn picture(structure: &Structure) -> Vec<String> {
    let letter = |slot: Option<usize>| match slot {
        None => '.',
        Some(g) if g < 26 => (b'a' + g as u8) as char,
        Some(g) if g < 52 => (b'A' + (g - 26) as u8) as char,
        Some(_) => '*',
    };
    let letters: Vec<String> = structure.term(0).map(|slot| letter(slot).to_string()).collect();
    letters.chunks(structure.block.max(1)).map(|row| row.join(" ")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use krylith::matrix::Bsr;
    use krylith::operator::Terms;

    #[test]
    fn pictures_show_equal_and_zero_places() {
        let values = vec![1.0, 0.0, 2.0, 1.0, 5.0, 0.0, 5.0, 5.0];
        let a = Bsr::new(2, 1, 2, vec![0, 2], vec![0, 1], values).unwrap();
        assert_eq!(picture(&Structure::find(&Terms::bsr(&a))), ["a .", "b a"]);
    }

    #[test]
    fn block_sizes_are_found() {
        let mut dense = Vec::new();
        for i in 0..12u32 {
            for j in 0..12u32 {
                if i / 3 == j / 3 {
                    dense.push((i, j, 1.0));
                }
            }
        }
        let a = Csr::from_triplets(12, 12, &dense).unwrap();
        assert_eq!(detect(&a), (3, 0.0));
        let diagonal: Vec<_> = (0..12).map(|i| (i, i, 1.0)).collect();
        assert_eq!(detect(&Csr::from_triplets(12, 12, &diagonal).unwrap()), (1, 0.0));
    }
}
