//! Assignment of block rows and subdomains to ranks.
//!
//! If a process holds the whole system, it is cut into subdomains first, and ranks own whole subdomains: the
//! preconditioner then does not depend on the number of ranks. If no rank holds the whole, or the user asked
//! for boxes of ranks, boxes of a grid are still the same, provided that ranks end between them. Otherwise
//! each rank cuts its own rows, and the reason says so.

use super::{CutGraph, Subdomains, boxes};
use crate::comm::Communicator;
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::partition::{MANY_GHOSTS, boxes_reason, most_ghosts};
use crate::partition::{
    Partition, PartitionSpec, RowNumbers, SubdomainCut, box_of, boxes_are_better, choose,
};
use crate::{Error, Result};
use rayon::prelude::*;
use std::borrow::Cow;

/// The subdomains that a preconditioner requests.
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, operator::Terms};
/// use krylith_core::partition::{SubdomainCut, SubdomainSpec, of_whole};
/// let diagonal: Vec<_> = (0..10).map(|i| (i, i, 1.0)).collect();
/// let terms = Terms::csr(&Csr::from_triplets(10, 10, &diagonal)?)?;
/// let spec = SubdomainSpec { cut: SubdomainCut::Runs, rows: 5 };
/// let (subdomains, _why) = of_whole(&terms, None, None, spec)?;
/// assert_eq!(subdomains.count(), 2);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SubdomainSpec {
    /// The method to cut them.
    pub cut: SubdomainCut,
    /// Largest number of block rows of a subdomain.
    pub rows: usize,
}

/// Subdomains of one rank's rows.
///
/// # Examples
/// [`Distribution::local`] returns them for each rank, for
/// [`Problem::with_subdomains`](crate::Problem::with_subdomains).
/// ```
/// use krylith_core::partition::{LocalSubdomains, SubdomainCut, SubdomainSpec, Subdomains};
/// use krylith::{Problem, matrix::Csr};
/// let a = Csr::from_triplets(4, 4, &[(0, 0, 1.0), (1, 1, 1.0), (2, 2, 1.0), (3, 3, 1.0)])?;
/// let own = LocalSubdomains {
///     spec: SubdomainSpec { cut: SubdomainCut::Runs, rows: 2 },
///     subdomains: Subdomains::from_labels(&[0, 1, 0, 1], 2)?, // upper and lower half of a mesh
///     reason: "halves of the mesh".into(),
/// };
/// let problem = Problem::csr(&a)?.with_subdomains(Some(own));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct LocalSubdomains {
    /// The request that they fulfil.
    pub spec: SubdomainSpec,
    /// The subdomains, in local row numbers.
    pub subdomains: Subdomains,
    /// The reason for this cut.
    pub reason: String,
}

/// Owners of block rows, and subdomains, of a system that one process holds as a whole.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// use krylith::operator::Terms;
/// use krylith_core::partition::{SubdomainCut, SubdomainSpec, assign};
/// let diagonal: Vec<_> = (0..12).map(|i| (i, i, 1.0)).collect();
/// let terms = Terms::csr(&Csr::from_triplets(12, 12, &diagonal)?)?;
/// let spec = SubdomainSpec { cut: SubdomainCut::Runs, rows: 2 };
/// let all = assign(&terms, None, None, 3, Default::default(), Some(spec))?;
/// // Each of the three ranks owns two subdomains, of two rows each.
/// for rows in all.partition.rows() {
///     assert_eq!(all.local(&rows)?.map(|own| own.subdomains.count()), Some(2));
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Distribution {
    /// The owner of each block row.
    pub partition: Partition,
    /// Subdomains of the whole system, if each rank owns whole ones, with their request and reason.
    pub subdomains: Option<(SubdomainSpec, Subdomains, String)>,
    /// The reason for these owners.
    pub reason: String,
}

impl Distribution {
    /// Returns the subdomains of a rank's rows, if they were cut from the whole system.
    ///
    /// # Errors
    /// Never for rows of this distribution.
    pub fn local(&self, rows: &[u64]) -> Result<Option<LocalSubdomains>> {
        let Some((spec, all, reason)) = &self.subdomains else { return Ok(None) };
        Ok(Some(LocalSubdomains { spec: *spec, subdomains: local(all, rows)?, reason: reason.clone() }))
    }
}

/// Assigns block rows to ranks; if a preconditioner uses subdomains, whole subdomains. Boxes of a grid that
/// the user asked for stay boxes, even if they cut subdomains of the whole grid.
///
/// # Errors
/// As [`choose`]; a cut into subdomains that does not fit the system.
pub fn assign(
    terms: &Terms,
    coordinates: Option<&[[f64; 3]]>,
    grid: Option<[usize; 3]>,
    ranks: usize,
    wanted: PartitionSpec,
    spec: Option<SubdomainSpec>,
) -> Result<Distribution> {
    let (partition, reason) = choose(terms, coordinates, grid, ranks, wanted)?;
    let without = Distribution { partition, subdomains: None, reason };
    let Some(spec) = spec else { return Ok(without) };
    let (all, why) = of_whole(terms, coordinates, grid, spec)?;
    let partition = match wanted {
        _ if within(&all, &without.partition) => without.partition,
        PartitionSpec::Boxes(_) => return Ok(without),
        _ => match to_ranks(terms, &all, &without.partition)? {
            Some(partition) => partition,
            None => return Ok(without),
        },
    };
    let reason = format!("{}, by whole subdomains", without.reason);
    Ok(Distribution { partition, subdomains: Some((spec, all, why)), reason })
}

/// Assigns the rows of a system that one process holds as a whole, for a preconditioner with these subdomains
/// or with tiles of this many planes of the grid.
///
/// # Errors
/// As [`assign`]; a grid with another number of cells than block rows, for tiles.
pub fn assign_whole(
    terms: &Terms,
    coordinates: Option<&[[f64; 3]]>,
    grid: Option<[usize; 3]>,
    ranks: usize,
    wanted: PartitionSpec,
    spec: Option<SubdomainSpec>,
    planes: Option<usize>,
) -> Result<Distribution> {
    if let (PartitionSpec::Auto, Some(planes), Some(grid)) = (wanted, planes, grid)
        && let Some(slabs) = assign_planes(terms, grid, ranks, planes)?
    {
        let ghosts = most_ghosts(terms, &slabs.partition)?;
        if ghosts <= MANY_GHOSTS {
            return Ok(slabs);
        }
        let Ok(boxes) = Partition::boxes(grid, ranks, None) else { return Ok(slabs) };
        let fewer = most_ghosts(terms, &boxes)?;
        if !boxes_are_better(ghosts, fewer) {
            return Ok(slabs);
        }
        let reason = boxes_reason(fewer, ghosts, "planes");
        return Ok(Distribution { partition: boxes, subdomains: None, reason });
    }
    assign(terms, coordinates, grid, ranks, wanted, spec)
}

/// Assigns whole planes of a grid to ranks, in runs along z of a multiple of `planes` planes, if there are
/// enough. `None` if there are fewer planes than ranks.
///
/// # Errors
/// A grid with another number of cells than block rows.
pub fn assign_planes(
    terms: &Terms,
    [nx, ny, nz]: [usize; 3],
    ranks: usize,
    planes: usize,
) -> Result<Option<Distribution>> {
    if nx * ny * nz != terms.block_rows() {
        return Err(Error::invalid(format!(
            "{} rows on a grid of {nx}×{ny}×{nz} cells; each cell needs one row",
            terms.block_rows()
        )));
    }
    if nz < ranks {
        return Ok(None);
    }
    let run = if nz.div_ceil(planes) >= ranks { planes } else { 1 };
    let runs = nz.div_ceil(run);
    // Run k belongs to the first rank whose share ends after it.
    let owner = |i: usize| ((i / (nx * ny) / run + 1) * ranks).div_ceil(runs) - 1;
    let partition = Partition::new((0..nx * ny * nz).map(|i| owner(i) as u32).collect(), ranks)?;
    let reason = format!("partition by planes of the grid, in runs of {run}");
    Ok(Some(Distribution { partition, subdomains: None, reason }))
}

/// Cuts a system that one process holds as a whole into subdomains, and returns the reason.
///
/// # Errors
/// A method that needs coordinates, if there are none.
pub fn of_whole(
    terms: &Terms,
    coordinates: Option<&[[f64; 3]]>,
    grid: Option<[usize; 3]>,
    spec: SubdomainSpec,
) -> Result<(Subdomains, String)> {
    of_whole_on(terms, coordinates, grid, spec, &|_| Ok(None))
}

/// Cuts a whole system as [`of_whole`] does, with a device that may cut the graph.
pub(crate) fn of_whole_on(
    terms: &Terms,
    coordinates: Option<&[[f64; 3]]>,
    grid: Option<[usize; 3]>,
    spec: SubdomainSpec,
    device: CutGraph,
) -> Result<(Subdomains, String)> {
    let nodes = terms.block_rows();
    if let Some((subdomains, size)) = grid.and_then(|grid| boxes::of_grid(grid, nodes, spec)) {
        return Ok((subdomains, boxes_of(size)));
    }
    let points = coordinates.filter(|points| points.len() == nodes);
    let (subdomains, why) = Subdomains::cut_on(terms, points, spec.cut, spec.rows, device)?;
    Ok((subdomains, or_name(spec, why)))
}

/// Cuts the rows of one of several ranks into subdomains, and returns the reason. Collective.
///
/// # Errors
/// A method that needs coordinates, if there are none; a rank that is gone or failed.
pub fn of_rank(
    comm: &dyn Communicator,
    terms: &Terms,
    numbers: RowNumbers,
    coordinates: Option<&[[f64; 3]]>,
    grid: Option<[usize; 3]>,
    spec: SubdomainSpec,
) -> Result<(Subdomains, String)> {
    if let Some(grid) = grid {
        let found = box_of(grid, numbers).and_then(|own| boxes::of_box(grid, &own, spec));
        let of_whole = found.as_ref().is_some_and(|found| found.of_whole);
        let mut without = [found.is_none(), !of_whole].map(|is| f64::from(u8::from(is)));
        comm.sum(&mut without)?;
        if let Some(found) = found.filter(|_| without[0] == 0.0) {
            let follow = if without[1] == 0.0 { "" } else { "; subdomains follow ranks" };
            return Ok((found.subdomains, boxes_of(found.size) + follow));
        }
    }
    let points = own_points(coordinates, numbers, terms.block_rows());
    let (subdomains, why) = Subdomains::cut(terms, points.as_deref(), spec.cut, spec.rows)?;
    Ok((subdomains, format!("{}; subdomains follow ranks", or_name(spec, why))))
}

fn boxes_of([x, y, z]: [usize; 3]) -> String {
    format!("boxes of {x}×{y}×{z} nodes")
}

fn or_name(spec: SubdomainSpec, why: &str) -> String {
    if why.is_empty() { format!("cut={}", spec.cut.name()) } else { why.into() }
}

/// Assigns whole subdomains to ranks, close to the partition `near` and balanced by stored blocks; `None` if
/// there are fewer subdomains than ranks.
///
/// # Errors
/// Never for a partition of the same system.
fn to_ranks(terms: &Terms, subdomains: &Subdomains, near: &Partition) -> Result<Option<Partition>> {
    let (count, ranks) = (subdomains.count(), near.ranks);
    if count < ranks {
        return Ok(None);
    }
    let weight = |&i: &u32| -> u64 {
        let blocks = |a: &Bsr| (a.row_ptr()[i as usize + 1] - a.row_ptr()[i as usize]) as u64;
        1 + terms.terms.iter().map(|(_, a)| blocks(a)).sum::<u64>()
    };
    // Order subdomains by the rank that owns most of their rows in `near`, to keep neighbours together.
    let mut order: Vec<(u32, usize, u64)> = (0..count)
        .into_par_iter()
        .map(|p| {
            let mut rows = vec![0u32; ranks];
            subdomains.rows(p).iter().for_each(|&i| rows[near.owner[i as usize] as usize] += 1);
            let most = (0..ranks).max_by_key(|&r| (rows[r], ranks - r)).unwrap_or(0);
            (most as u32, p, subdomains.rows(p).iter().map(weight).sum())
        })
        .collect();
    order.sort_unstable();
    let total: u64 = order.iter().map(|o| o.2).sum();
    let mut owner = vec![0; near.owner.len()];
    let (mut rank, mut before, mut given) = (0, 0, 0);
    for (k, &(_, p, weight)) in order.iter().enumerate() {
        // Go to the next rank if most of a subdomain exceeds this rank's share, or if the remaining ranks
        // need one subdomain each.
        let beyond = (2 * before + weight) * ranks as u64 > 2 * total * (rank as u64 + 1);
        let needed = count - k < ranks - rank;
        if rank + 1 < ranks && given > 0 && (beyond || needed) {
            (rank, given) = (rank + 1, 0);
        }
        subdomains.rows(p).iter().for_each(|&i| owner[i as usize] = rank as u32);
        (before, given) = (before + weight, given + 1);
    }
    Partition::new(owner, ranks).map(Some)
}

/// Returns true if each subdomain belongs to one rank, and each rank has some.
fn within(subdomains: &Subdomains, partition: &Partition) -> bool {
    let owner = |p: usize| {
        let mut owners = subdomains.rows(p).iter().map(|&i| partition.owner[i as usize]);
        let first = owners.next();
        first.filter(|_| owners.all(|rank| Some(rank) == first))
    };
    let owners: Option<Vec<u32>> = (0..subdomains.count()).into_par_iter().map(owner).collect();
    owners.is_some_and(|owners| {
        let mut some = vec![false; partition.ranks];
        owners.iter().for_each(|&rank| some[rank as usize] = true);
        some.iter().all(|&some| some)
    })
}

/// Returns the subdomains of one rank's rows in local numbers. The rows are ascending, and the rank owns
/// whole subdomains.
///
/// # Errors
/// Never for rows of a partition built from these subdomains.
fn local(subdomains: &Subdomains, rows: &[u64]) -> Result<Subdomains> {
    let mut labels = vec![u32::MAX; rows.len()];
    let mut count = 0;
    for p in 0..subdomains.count() {
        let all = subdomains.rows(p);
        if all.first().is_some_and(|&i| rows.binary_search(&u64::from(i)).is_ok()) {
            for &i in all {
                if let Ok(at) = rows.binary_search(&u64::from(i)) {
                    labels[at] = count;
                }
            }
            count += 1;
        }
    }
    Subdomains::from_labels(&labels, count as usize)
}

/// Returns the points of a rank's own nodes; `coordinates` are those of own nodes or of all nodes.
fn own_points<'a>(
    coordinates: Option<&'a [[f64; 3]]>,
    numbers: RowNumbers,
    nodes: usize,
) -> Option<Cow<'a, [[f64; 3]]>> {
    let all = coordinates?;
    if all.len() == nodes {
        return Some(Cow::Borrowed(all));
    }
    (0..numbers.len())
        .map(|i| all.get(numbers.at(i) as usize).copied())
        .collect::<Option<Vec<_>>>()
        .map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_own_whole_subdomains() {
        // A path of 12 rows in subdomains of 2; the second rank's rows have the weight of all others.
        let n = 12;
        let row_ptr: Vec<usize> = (0..=n).collect();
        let a = Bsr::new(1, n, n, row_ptr, (0..n as u32).collect(), vec![1.0; n]).unwrap();
        let terms = Terms::bsr(&a);
        let labels: Vec<u32> = (0..n as u32).map(|i| i / 2).collect();
        let subdomains = Subdomains::from_labels(&labels, 6).unwrap();
        let near = Partition::by_rows(n, 5).unwrap();
        for ranks in 1..=6 {
            let near = Partition::by_rows(n, ranks).unwrap();
            let partition = to_ranks(&terms, &subdomains, &near).unwrap().unwrap();
            let rows = partition.rows();
            assert!(rows.iter().all(|rows| !rows.is_empty()), "{ranks}: {rows:?}");
            let most = 2 * 6usize.div_ceil(ranks);
            assert!(rows.iter().all(|rows| rows.len() <= most), "{ranks}: {rows:?}");
            let mut count = 0;
            for rows in &rows {
                let own = local(&subdomains, rows).unwrap();
                assert_eq!(own.block_rows(), rows.len());
                for p in 0..own.count() {
                    let all: Vec<u64> = own.rows(p).iter().map(|&k| rows[k as usize]).collect();
                    assert!(all.len() == 2 && all[0] % 2 == 0 && all[1] == all[0] + 1, "{all:?}");
                }
                count += own.count();
            }
            assert_eq!(count, 6);
        }
        let few = Subdomains::from_labels(&labels.iter().map(|p| p / 2).collect::<Vec<_>>(), 3).unwrap();
        assert!(to_ranks(&terms, &few, &near).unwrap().is_none());
    }

    /// A 7-point pattern on a grid.
    fn grid(sizes: [usize; 3]) -> Bsr {
        let ([nx, ny, nz], mut row_ptr, mut col) = (sizes, vec![0], Vec::new());
        for i in 0..nx * ny * nz {
            let at = [i % nx, i / nx % ny, i / nx / ny];
            let steps = [1, nx, nx * ny];
            col.extend((0..3).rev().filter(|&d| at[d] > 0).map(|d| (i - steps[d]) as u32));
            col.push(i as u32);
            col.extend((0..3).filter(|&d| at[d] + 1 < sizes[d]).map(|d| (i + steps[d]) as u32));
            row_ptr.push(col.len());
        }
        let (n, values) = (row_ptr.len() - 1, vec![1.0; col.len()]);
        Bsr::new(1, n, n, row_ptr, col, values).unwrap()
    }

    #[test]
    fn boxes_that_were_asked_for_stay_boxes() {
        let (a, sizes) = (grid([8, 8, 8]), Some([8, 8, 8]));
        let terms = Terms::bsr(&a);
        let spec = Some(SubdomainSpec { cut: SubdomainCut::Auto, rows: 64 });
        let wanted: PartitionSpec = "boxes:2x2x2".parse().unwrap();
        let boxes = Partition::boxes([8, 8, 8], 8, Some([2, 2, 2])).unwrap();
        let all = assign(&terms, None, sizes, 8, wanted, spec).unwrap();
        assert_eq!((all.partition.owner == boxes.owner, all.subdomains.is_some()), (true, true));
        // Boxes of 8×8×3, 8×8×2 and 8×8×3 nodes cut those of 4×4×4.
        let all = assign(&terms, None, sizes, 3, "boxes:1x1x3".parse().unwrap(), spec).unwrap();
        let boxes = Partition::boxes([8, 8, 8], 3, Some([1, 1, 3])).unwrap();
        assert_eq!((all.partition.owner == boxes.owner, all.subdomains.is_none()), (true, true));
        let all = assign(&terms, None, sizes, 3, PartitionSpec::Auto, spec).unwrap();
        assert!(all.subdomains.is_some() && all.reason.contains("by whole subdomains"), "{}", all.reason);
    }

    #[test]
    fn tiles_take_planes_or_boxes_with_fewer_ghosts() {
        let (a, sizes) = (grid([8, 8, 16]), Some([8, 8, 16]));
        let terms = Terms::bsr(&a);
        let of = |ranks, wanted, planes| {
            assign_whole(&terms, None, sizes, ranks, wanted, None, Some(planes)).unwrap()
        };
        let (few, many) = (of(2, PartitionSpec::Auto, 2), of(16, PartitionSpec::Auto, 1));
        assert!(few.reason.contains("planes of the grid, in runs of 2"), "{}", few.reason);
        // Slabs of one plane have two ghosts a node; boxes of 4×4×4 nodes have five faces of 16 at most.
        assert_eq!(many.partition, Partition::boxes([8, 8, 16], 16, Some([2, 2, 4])).unwrap());
        assert!(
            many.reason.contains("at most 1.00 ghosts per node; planes would have 2.00"),
            "{}",
            many.reason
        );
        let rows = of(16, "rows".parse().unwrap(), 1);
        assert_eq!(rows.partition, Partition::by_rows(1024, 16).unwrap());
    }
}
