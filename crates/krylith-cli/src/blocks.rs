//! A drawing of the structure inside blocks.

use krylith_core::io::parts::SuitedBlock;
use krylith_core::matrix::MAX_BLOCK;
use krylith_core::operator::Structure;

/// Returns a line for each row of the block: a letter for each distinct stored number, a dot for a number
/// that is zero in every block.
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

/// Returns the reason for a detected block size: the sizes that were tried, the zeros that they add, and the
/// limit.
pub fn detected(found: SuitedBlock) -> String {
    let percent = |share: f64| format!("{:.0} %", 100.0 * share);
    match (found, found.least) {
        (SuitedBlock { block: 1, alike: 1, .. }, None) => {
            format!("no size from 2 to {MAX_BLOCK} divides the rows")
        }
        (SuitedBlock { block: 1, alike: 1, .. }, Some(least)) => {
            format!(
                "sizes 2 to {MAX_BLOCK} add {} zeros or more, the limit is {}; --block overrides",
                percent(least),
                percent(found.limit())
            )
        }
        (SuitedBlock { block: 1, alike, .. }, _) => {
            format!(
                "groups of {alike} rows have the same neighbours: --block {alike} would make each group a \
                 node"
            )
        }
        (SuitedBlock { added, .. }, _) => format!(
            "the largest size up to {MAX_BLOCK} that adds at most {} zeros: {}; --block overrides",
            percent(found.limit()),
            percent(added)
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use krylith_core::matrix::Bsr;
    use krylith_core::operator::Terms;

    #[test]
    fn pictures_show_equal_and_zero_places() {
        let values = vec![1.0, 0.0, 2.0, 1.0, 5.0, 0.0, 5.0, 5.0];
        let a = Bsr::new(2, 1, 2, vec![0, 2], vec![0, 1], values).unwrap();
        assert_eq!(picture(&Structure::find(&Terms::bsr(&a))), ["a .", "b a"]);
    }
}
