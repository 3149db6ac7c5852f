//! Block rows that travel to the ranks that own them: ranks read or generate runs of rows, which are not the
//! rows that they will own.

use super::{GridBoxes, RowBlocks, Rows};
use crate::comm::{Communicator, agree};
use crate::{Error, Result};

/// Sends block rows to the ranks whose boxes of a grid contain them, and receives own rows in ascending
/// order. Collective.
///
/// Ranks hold ascending rows, and those of a rank come before those of the next. Each array in `along` has
/// equally many numbers per row, such as right-hand sides and coordinates, and travels with the rows. A rank
/// needs memory for the rows that it sends, has and receives.
///
/// # Errors
/// Rows in another order, or beyond the grid; arrays of the wrong length; a rank that is gone or failed.
///
/// # Examples
/// ```
/// use krylith::{comm::{Communicator, Team}, partition::{RowBlocks, Rows}};
/// use krylith_core::partition::{GridBoxes, to_boxes};
/// // A line of four nodes above another: rank r has made line r, and will own column r.
/// let own = Team::run(2, |comm| {
///     let diagonal: Vec<u64> = (0..4).map(|i| 4 * comm.rank() as u64 + i).collect();
///     let blocks = RowBlocks { row_ptr: vec![0, 1, 2, 3, 4], col: diagonal.clone(), values: vec![2.0; 4] };
///     let rows = Rows { numbers: diagonal, ..Rows::in_runs(&*comm, 1, 4, blocks)? };
///     let mut rhs = vec![comm.rank() as f64; 4];
///     let boxes = GridBoxes::new([4, 2, 1], 2, Some([2, 1, 1]))?;
///     Ok((to_boxes(&*comm, &boxes, rows, &mut [&mut rhs])?.numbers, rhs))
/// })?;
/// assert_eq!(own[1], (vec![2, 3, 6, 7], vec![0.0, 0.0, 1.0, 1.0]));
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn to_boxes(
    comm: &dyn Communicator,
    boxes: &GridBoxes,
    rows: Rows,
    along: &mut [&mut Vec<f64>],
) -> Result<Rows> {
    let packed = agree(comm, pack(comm.size(), boxes, &rows, along))?;
    let block = rows.block;
    let coefficients: Vec<_> = rows.terms.into_iter().map(|(c, _)| c).collect();
    let mut came = comm.all_to_all(packed)?;
    let unpacked = (|| {
        let empty = || RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
        let terms = coefficients.into_iter().map(|c| (c, empty())).collect();
        let mut own = Rows { numbers: Vec::new(), block, terms };
        along.iter_mut().for_each(|array| array.clear());
        for (rank, bytes) in came.iter_mut().enumerate() {
            let bytes = std::mem::take(bytes);
            unpack(&bytes, &mut own, along)
                .ok_or_else(|| Error::invalid(format!("the rows from rank {rank} are incomplete")))?;
        }
        if own.numbers.is_sorted_by(|a, b| a < b) {
            return Ok(own);
        }
        Err(Error::invalid("rows that travel to boxes must ascend, on each rank and from rank to rank"))
    })();
    agree(comm, unpacked)
}

/// Packs for each rank the number of its rows, the rows' numbers, the blocks of each term and the numbers
/// along the rows.
fn pack(ranks: usize, boxes: &GridBoxes, rows: &Rows, along: &[&mut Vec<f64>]) -> Result<Vec<Vec<u8>>> {
    let (n, bb) = (rows.numbers.len(), rows.block * rows.block);
    if let Some(&last) = rows.numbers.iter().max().filter(|&&last| last >= boxes.nodes()) {
        return Err(Error::invalid(format!(
            "block row {last} is beyond the grid of {} nodes",
            boxes.nodes()
        )));
    }
    let fits = |array: &[f64]| array.len().is_multiple_of(n.max(1)) && (n > 0 || array.is_empty());
    if let Some(array) = along.iter().find(|array| !fits(array)) {
        return Err(Error::invalid(format!("{} numbers do not fit {n} block rows", array.len())));
    }
    let mut of: Vec<Vec<usize>> = vec![Vec::new(); ranks];
    rows.numbers.iter().enumerate().for_each(|(i, &number)| of[boxes.owner(number)].push(i));
    let message = |of: Vec<usize>| {
        if of.is_empty() {
            return Vec::new();
        }
        let blocks: usize =
            rows.terms.iter().flat_map(|(_, a)| of.iter().map(|&i| a.row_ptr[i + 1] - a.row_ptr[i])).sum();
        let numbers = along.iter().map(|array| array.len() / n.max(1)).sum::<usize>();
        let words = 1 + of.len() * (1 + rows.terms.len() + along.len() + numbers) + blocks * (1 + bb);
        let mut out = Vec::with_capacity(8 * words);
        let mut put = |word: u64| out.extend(word.to_le_bytes());
        put(of.len() as u64);
        of.iter().for_each(|&i| put(rows.numbers[i]));
        for (_, a) in &rows.terms {
            let ranges = || of.iter().map(|&i| a.row_ptr[i]..a.row_ptr[i + 1]);
            ranges().for_each(|range| put(range.len() as u64));
            ranges().for_each(|range| a.col[range].iter().for_each(|&j| put(j)));
            ranges().for_each(|range| {
                a.values[range.start * bb..range.end * bb].iter().for_each(|v| put(v.to_bits()));
            });
        }
        for array in along {
            let width = array.len() / n.max(1);
            put(width as u64);
            of.iter().for_each(|&i| array[i * width..][..width].iter().for_each(|v| put(v.to_bits())));
        }
        out
    };
    Ok(of.into_iter().map(message).collect())
}

/// Takes the first words of a message.
fn take<'m>(words: &mut &'m [[u8; 8]], count: usize) -> Option<&'m [[u8; 8]]> {
    let (taken, left) = words.split_at_checked(count)?;
    *words = left;
    Some(taken)
}

/// Appends the rows of one message; `None` if it is incomplete.
fn unpack(bytes: &[u8], own: &mut Rows, along: &mut [&mut Vec<f64>]) -> Option<()> {
    let (words, rest) = bytes.as_chunks::<8>();
    let Some((count, mut words)) = words.split_first() else { return rest.is_empty().then_some(()) };
    let n = u64::from_le_bytes(*count) as usize;
    let mut take = |count: usize| take(&mut words, count);
    own.numbers.extend(take(n)?.iter().map(|w| u64::from_le_bytes(*w)));
    for (_, a) in &mut own.terms {
        let before = a.col.len();
        let mut end = before;
        for length in take(n)? {
            end = end.checked_add(u64::from_le_bytes(*length) as usize)?;
            a.row_ptr.push(end);
        }
        a.col.extend(take(end - before)?.iter().map(|w| u64::from_le_bytes(*w)));
        let values = take((end - before).checked_mul(own.block * own.block)?)?;
        a.values.extend(values.iter().map(|w| f64::from_le_bytes(*w)));
    }
    for array in along {
        let width = u64::from_le_bytes(*take(1)?.first()?) as usize;
        array.extend(take(n.checked_mul(width)?)?.iter().map(|w| f64::from_le_bytes(*w)));
    }
    (words.is_empty() && rest.is_empty()).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Team;
    use crate::matrix::Dense;
    use crate::partition::contiguous;

    /// Rows with one to three blocks, all of whose numbers follow from their place.
    fn row(i: u64) -> Vec<(u64, [f64; 4])> {
        (0..1 + i % 3)
            .map(|k| ((7 * i + k) % 60, std::array::from_fn(|v| (10 * i + k) as f64 + 0.25 * v as f64)))
            .collect()
    }

    fn made(numbers: impl Iterator<Item = u64>) -> Rows {
        let numbers: Vec<u64> = numbers.collect();
        let mut blocks = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
        for &i in &numbers {
            row(i).iter().for_each(|(j, values)| {
                blocks.col.push(*j);
                blocks.values.extend(values);
            });
            blocks.row_ptr.push(blocks.col.len());
        }
        let other = RowBlocks {
            row_ptr: (0..=numbers.len()).collect(),
            col: numbers.clone(),
            values: numbers.iter().flat_map(|&i| [i as f64; 4]).collect(),
        };
        Rows { numbers, block: 2, terms: vec![(Dense::identity(1), blocks), (Dense::identity(1), other)] }
    }

    #[test]
    fn rows_and_their_numbers_reach_their_boxes() {
        for (ranks, shape) in [(1, None), (2, None), (6, Some([3, 2, 1])), (7, Some([1, 1, 7]))] {
            let grid = [4, 2, 8];
            let boxes = GridBoxes::new(grid, ranks, shape).unwrap();
            let own = Team::run(ranks, |comm| {
                // The first rank has none, if there are others.
                let others = ranks.max(2) - 1;
                let run = match (ranks, comm.rank()) {
                    (1, _) => 0..64,
                    (_, 0) => 0..0,
                    (_, rank) => contiguous(64, rank - 1, others),
                };
                let rows = made(run.clone().map(|i| i as u64));
                let mut rhs: Vec<f64> = run.clone().flat_map(|i| [i as f64, -(i as f64)]).collect();
                let mut none = Vec::new();
                let rows = to_boxes(&*comm, &boxes, rows, &mut [&mut rhs, &mut none])?;
                assert!(none.is_empty());
                Ok((rows, rhs))
            })
            .unwrap();
            for (rank, (rows, rhs)) in own.iter().enumerate() {
                let expected = made(boxes.rows(rank).into_iter());
                assert_eq!(rows.numbers, expected.numbers, "{ranks} {rank}");
                assert_eq!(rows.terms[0].1, expected.terms[0].1, "{ranks} {rank}");
                assert_eq!(rows.terms[1].1, expected.terms[1].1, "{ranks} {rank}");
                let numbers: Vec<f64> =
                    expected.numbers.iter().flat_map(|&i| [i as f64, -(i as f64)]).collect();
                assert_eq!(rhs, &numbers, "{ranks} {rank}");
            }
        }
    }

    #[test]
    fn wrong_rows_fail_on_every_rank() {
        let boxes = GridBoxes::new([4, 4, 1], 2, None).unwrap();
        for (first, words) in [([20, 3], "block row 20 is beyond"), ([3, 2], "must ascend")] {
            let failed = Team::run(2, |comm| {
                let rows = if comm.rank() == 0 { made(first.into_iter()) } else { made(std::iter::empty()) };
                Ok(to_boxes(&*comm, &boxes, rows, &mut []).unwrap_err().to_string())
            })
            .unwrap();
            assert!(failed.iter().all(|e| e.contains(words)), "{failed:?}");
        }
        let failed = Team::run(2, |comm| {
            let rows = made(std::iter::once(comm.rank() as u64).chain([9]).take(2 - comm.rank()));
            let mut odd = vec![0.0; 3];
            Ok(to_boxes(&*comm, &boxes, rows, &mut [&mut odd]).unwrap_err().to_string())
        })
        .unwrap();
        assert!(failed.iter().all(|e| e.contains("3 numbers do not fit 2 block rows")), "{failed:?}");
    }
}
