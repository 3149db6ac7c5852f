//! Automatic choice of a partition.

use super::grid::{boxes_named, no_grid, of_terms};
use super::{GridBoxes, Partition, Partitioner, Quality};
use crate::names::{Named, same, unknown};
use crate::operator::Terms;
use crate::{Error, Result};

/// The requested distribution of block rows to ranks.
///
/// # Examples
/// ```
/// use krylith::{options::PartitionSpec, partition::Partitioner};
/// assert_eq!("nonzeros".parse::<PartitionSpec>()?, PartitionSpec::By(Partitioner::Nonzeros));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PartitionSpec {
    /// Chooses runs of rows if they need few ghosts, else boxes of a grid or parts of the graph.
    #[default]
    Auto,
    /// Cuts a grid into this many boxes along x, y and z; without numbers, into those with the fewest links
    /// between them.
    Boxes(Option<[usize; 3]>),
    /// Uses the named method.
    By(Partitioner),
}

impl PartitionSpec {
    /// Returns `auto`, or the name of the method.
    pub fn name(self) -> &'static str {
        match self {
            PartitionSpec::Auto => "auto",
            PartitionSpec::Boxes(_) => "boxes",
            PartitionSpec::By(way) => way.name(),
        }
    }
}

impl Named for PartitionSpec {
    const NAMES: &'static [&'static str] = &{
        let mut names = ["auto"; Partitioner::ALL.len() + 2];
        names[1] = "boxes";
        let mut i = 0;
        while i < Partitioner::ALL.len() {
            names[i + 2] = <Partitioner as Named>::NAMES[i];
            i += 1;
        }
        names
    };
}

impl std::str::FromStr for PartitionSpec {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        if let Some((name, shape)) = text.split_once(':')
            && same(name, "boxes")
        {
            let numbers: std::result::Result<Vec<usize>, _> =
                shape.split(['x', 'X']).map(str::parse).collect();
            return match numbers.as_deref() {
                Ok(&[p, q, r])
                    if p.checked_mul(q).and_then(|pq| pq.checked_mul(r)).is_some_and(|n| n > 0) =>
                {
                    Ok(PartitionSpec::Boxes(Some([p, q, r])))
                }
                _ => Err(Error::invalid(format!(
                    "partition `{text}`: expected the numbers of boxes along x, y and z, such as boxes:2x2x1"
                ))),
            };
        }
        match Self::NAMES.iter().position(|name| same(name, text)) {
            None => unknown("partition", text, Self::NAMES),
            Some(0) => Ok(PartitionSpec::Auto),
            Some(1) => Ok(PartitionSpec::Boxes(None)),
            Some(i) => Ok(PartitionSpec::By(Partitioner::ALL[i - 2])),
        }
    }
}

impl std::fmt::Display for PartitionSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            PartitionSpec::Boxes(Some([p, q, r])) => write!(f, "boxes:{p}x{q}x{r}"),
            _ => f.write_str(self.name()),
        }
    }
}

/// Largest ratio of ghosts to own nodes of a rank up to which `auto` keeps runs of rows.
pub const MANY_GHOSTS: f64 = 0.25;

/// Returns true if `auto` takes boxes of a grid: runs of rows have many ghosts for each own node, and boxes
/// clearly fewer. Both numbers are those of the rank with most.
pub fn boxes_are_better(runs: f64, boxes: f64) -> bool {
    runs > MANY_GHOSTS && boxes <= 0.6 * runs
}

/// Returns the reason for boxes that need `fewer` ghosts for each own node than the `others` would.
pub fn boxes_reason(fewer: f64, ghosts: f64, others: &str) -> String {
    format!(
        "partition by boxes of the grid: at most {fewer:.2} ghosts per node; {others} would have {ghosts:.2}"
    )
}

/// Returns the largest number of ghosts for each own node of a rank.
pub(crate) fn most_ghosts(terms: &Terms, partition: &Partition) -> Result<f64> {
    let shares = Quality::of(terms, partition)?.shares;
    Ok(shares.iter().map(|s| s.receives as f64 / s.rows.max(1) as f64).fold(0.0, f64::max))
}

/// Distributes block rows to ranks; also returns the reason as text.
///
/// # Errors
/// More ranks than block rows; a method that does not fit the system.
pub fn choose(
    terms: &Terms,
    coordinates: Option<&[[f64; 3]]>,
    grid: Option<[usize; 3]>,
    ranks: usize,
    wanted: PartitionSpec,
) -> Result<(Partition, String)> {
    let nodes = terms.block_rows();
    enough_rows(nodes, ranks)?;
    let grid = grid.filter(|grid| grid.iter().product::<usize>() == nodes);
    if let PartitionSpec::Boxes(shape) = wanted {
        let grid = grid.or_else(|| of_terms(terms)).ok_or_else(no_grid)?;
        let boxes = GridBoxes::new(grid, ranks, shape)?;
        return Ok((Partition::boxes(grid, ranks, shape)?, boxes_named(boxes.shape())));
    }
    if let PartitionSpec::By(way) = wanted {
        return Ok((way.partition(terms, coordinates, ranks)?, format!("partition by {}", way.name())));
    }
    let runs = Partition::by_nonzeros(terms, ranks)?;
    let ghosts = most_ghosts(terms, &runs)?;
    if ghosts > MANY_GHOSTS
        && let Some(grid) = grid.or_else(|| of_terms(terms))
        && let Ok(boxes) = Partition::boxes(grid, ranks, None)
    {
        let fewer = most_ghosts(terms, &boxes)?;
        if boxes_are_better(ghosts, fewer) {
            return Ok((boxes, boxes_reason(fewer, ghosts, "runs of rows")));
        }
    }
    if ghosts > MANY_GHOSTS
        && let Ok(graph) = Partitioner::Multilevel.partition(terms, coordinates, ranks)
        && most_ghosts(terms, &graph)? < ghosts
    {
        return Ok((
            graph,
            format!(
                "partition by multilevel cut of the graph: runs of rows would have {ghosts:.1} ghosts \
                 per node"
            ),
        ));
    }
    Ok((runs, format!("partition by nonzeros: at most {ghosts:.2} ghosts per node")))
}

/// Returns an error if there are more ranks than block rows.
///
/// # Errors
/// More ranks than block rows, with both numbers.
pub fn enough_rows(nodes: usize, ranks: usize) -> Result<()> {
    if ranks <= nodes {
        return Ok(());
    }
    let rows = if nodes == 1 { "block row" } else { "block rows" };
    Err(Error::invalid(format!(
        "{ranks} ranks for {nodes} {rows}, but each rank needs a block row; use at most {nodes} ranks"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Bsr;

    fn line(n: usize) -> Bsr {
        cube([n, 1, 1])
    }

    /// A matrix in which each node of a grid is coupled with its neighbours along the axes.
    fn cube(grid: [usize; 3]) -> Bsr {
        let ([nx, ny, _], n) = (grid, grid.iter().product::<usize>());
        let (mut row_ptr, mut col) = (vec![0], Vec::<u32>::new());
        for i in 0..n {
            let (at, steps) = ([i % nx, i / nx % ny, i / nx / ny], [1, nx, nx * ny]);
            let below = (0..3).rev().filter(|&axis| at[axis] > 0).map(|axis| i - steps[axis]);
            let above = (0..3).filter(|&axis| at[axis] + 1 < grid[axis]).map(|axis| i + steps[axis]);
            col.extend(below.chain([i]).chain(above).map(|j| j as u32));
            row_ptr.push(col.len());
        }
        let values = vec![1.0; col.len()];
        Bsr::new(1, n, n, row_ptr, col, values).unwrap()
    }

    #[test]
    fn a_line_is_cut_into_runs_and_too_many_ranks_are_refused() {
        let a = line(12);
        let (partition, reason) = choose(&Terms::bsr(&a), None, None, 3, PartitionSpec::Auto).unwrap();
        assert!(partition.owner.is_sorted() && reason.contains("nonzeros"), "{reason}");
        let refused = choose(&Terms::bsr(&a), None, None, 13, PartitionSpec::Auto).unwrap_err();
        assert!(refused.to_string().contains("13 ranks for 12 block rows"), "{refused}");
    }

    #[test]
    fn names_of_boxes() {
        for (text, spec) in [
            ("boxes", PartitionSpec::Boxes(None)),
            ("boxes:2x3x1", PartitionSpec::Boxes(Some([2, 3, 1]))),
            ("auto", PartitionSpec::Auto),
            ("multilevel", PartitionSpec::By(Partitioner::Multilevel)),
        ] {
            assert_eq!(text.parse::<PartitionSpec>().unwrap(), spec);
            assert_eq!(spec.to_string(), text);
        }
        for text in ["boxes:2x2", "boxes:2x2x0", "boxes:2xax1", "boxes:1x1x1x1", "boxes:"] {
            let refused = text.parse::<PartitionSpec>().unwrap_err().to_string();
            assert!(refused.contains("such as boxes:2x2x1"), "{refused}");
        }
    }

    /// On a grid, `auto` takes boxes where runs of rows have many more ghosts; boxes need a grid.
    #[test]
    fn grids_are_cut_into_boxes() {
        let (a, grid) = (line(64), [4, 4, 4]);
        let cut = |grid, wanted| choose(&Terms::bsr(&a), None, grid, 8, wanted);
        let (partition, reason) = cut(Some(grid), PartitionSpec::Boxes(None)).unwrap();
        assert_eq!((partition.owner[0], partition.owner[63]), (0, 7));
        assert!(reason.contains("boxes"), "{reason}");
        // A grid that is not given is found from the columns. A ring is none.
        assert_eq!(cut(None, PartitionSpec::Boxes(None)).unwrap().0, Partition::by_rows(64, 8).unwrap());
        let (row_ptr, col) = ((0..=6).map(|i| 2 * i).collect(), vec![0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 0, 5]);
        let ring = Bsr::new(1, 6, 6, row_ptr, col, vec![1.0; 12]).unwrap();
        let refused = choose(&Terms::bsr(&ring), None, None, 2, PartitionSpec::Boxes(None)).unwrap_err();
        assert!(refused.to_string().contains("structured grid"), "{refused}");
        // The graph of this matrix is a line, whatever the grid: its runs have the fewest ghosts.
        assert!(cut(Some(grid), PartitionSpec::Auto).unwrap().1.contains("nonzeros"));
        let a = cube([8; 3]);
        let auto = |ranks| choose(&Terms::bsr(&a), None, Some([8; 3]), ranks, PartitionSpec::Auto).unwrap();
        let (partition, reason) = auto(8);
        assert_eq!(partition, Partition::boxes([8; 3], 8, None).unwrap(), "{reason}");
        assert!(auto(1).1.contains("nonzeros"));
    }
}
