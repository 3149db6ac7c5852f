//! Which subdomains `ildu0` takes: boxes of a grid where there is one, else the library's cuts.
//!
//! Where the whole system is at hand it is cut before ranks get their rows, and ranks own whole subdomains: the
//! preconditioner is then the same on any number of them. Where no rank ever holds the whole, boxes of a grid are still the
//! same if runs of rows end between them; else each rank cuts its own rows, and the output says so.

use super::spelling::Ildu0;
use crate::run::Job;
use krylith::matrix::Bsr;
use krylith::operator::Terms;
use krylith::partition::{Partition, SubdomainCut, Subdomains, contiguous};
use std::borrow::Cow;

/// Subdomains of one rank's rows that were cut in the whole system.
#[derive(Debug, Clone)]
pub struct Shared {
    /// What they were cut for.
    pub ildu: Ildu0,
    /// In the rank's own numbers.
    pub subdomains: Subdomains,
    /// Why those.
    pub why: String,
}

/// Subdomains of the job's own rows, and why those. Collective.
///
/// # Errors
/// A way that needs coordinates where none are known.
pub fn own(job: &Job, terms: &Terms, ildu: &Ildu0) -> krylith::Result<(Subdomains, String)> {
    let rows = ildu.most_rows(terms.block() * terms.stages());
    let Some(numbers) = job.numbers else {
        return of_whole(terms, job.coordinates, job.grid, ildu);
    };
    let alike = |shared: &&Shared| {
        let of = &shared.ildu;
        of.cut == ildu.cut && of.most_rows(terms.block() * terms.stages()) == rows
    };
    if let Some(shared) = job.subdomains.filter(alike) {
        return Ok((shared.subdomains.clone(), shared.why.clone()));
    }
    if let Some(grid) = job.grid {
        let slab = of_slab(grid, numbers, ildu.cut, rows);
        let mut without = [f64::from(u8::from(slab.is_none()))];
        job.comm.sum(&mut without)?;
        if let Some((subdomains, [x, y, z])) = slab.filter(|_| without[0] == 0.0) {
            return Ok((subdomains, format!("boxes of {x}×{y}×{z} nodes")));
        }
    }
    let points = points(job, terms.block_rows());
    let (subdomains, why) = Subdomains::cut(terms, points.as_deref(), ildu.cut, rows)?;
    Ok((subdomains, format!("{}; subdomains follow ranks", named(ildu, why))))
}

/// Subdomains of a system that stands whole in memory, and why those.
///
/// # Errors
/// A way that needs coordinates where none are known.
pub fn of_whole(
    terms: &Terms,
    coordinates: Option<&[[f64; 3]]>,
    grid: Option<[usize; 3]>,
    ildu: &Ildu0,
) -> krylith::Result<(Subdomains, String)> {
    let (nodes, rows) = (terms.block_rows(), ildu.most_rows(terms.block() * terms.stages()));
    if let Some((subdomains, [x, y, z])) = grid.and_then(|grid| of_grid(grid, nodes, ildu.cut, rows)) {
        return Ok((subdomains, format!("boxes of {x}×{y}×{z} nodes")));
    }
    let points = coordinates.filter(|points| points.len() == nodes);
    let (subdomains, why) = Subdomains::cut(terms, points, ildu.cut, rows)?;
    Ok((subdomains, named(ildu, why)))
}

fn named(ildu: &Ildu0, why: &str) -> String {
    if why.is_empty() { format!("cut={}", ildu.cut.name()) } else { why.into() }
}

/// Gives whole subdomains to ranks, about as `near` gives their rows and balanced by stored blocks; `None` where there
/// are fewer subdomains than ranks.
///
/// # Errors
/// None that a partition of the same system can cause.
pub fn deal(terms: &Terms, subdomains: &Subdomains, near: &Partition) -> krylith::Result<Option<Partition>> {
    let (count, ranks) = (subdomains.count(), near.ranks);
    if count < ranks {
        return Ok(None);
    }
    let weight = |&i: &u32| -> u64 {
        let blocks = |a: &Bsr| (a.row_ptr()[i as usize + 1] - a.row_ptr()[i as usize]) as u64;
        1 + terms.terms.iter().map(|(_, a)| blocks(a)).sum::<u64>()
    };
    // In the order of the ranks that have most of their rows, so that what lies together stays together.
    let mut order: Vec<(u32, usize, u64)> = (0..count)
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
        // The next rank begins where most of a subdomain lies beyond this one's share, or where the rest need one each.
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

/// The subdomains of one rank's rows, which are ascending, in its own numbers; the rank owns them wholly.
///
/// # Errors
/// None that rows of a dealt partition can cause.
pub fn local(subdomains: &Subdomains, rows: &[u64]) -> krylith::Result<Subdomains> {
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

/// The boxes of the whole grid that a run of its rows consists of; `None` where the run cuts some.
fn of_slab(
    grid: [usize; 3],
    numbers: &[u64],
    cut: SubdomainCut,
    rows: usize,
) -> Option<(Subdomains, [usize; 3])> {
    let [nx, ny, nz] = grid;
    let wanted = matches!(cut, SubdomainCut::Auto | SubdomainCut::Geometric) && nx * ny * nz > rows;
    let (first, end) = (*numbers.first()? as usize, *numbers.last()? as usize + 1);
    let size = box_size(grid, rows);
    let layer = nx * ny * size[2];
    let fits = end - first == numbers.len()
        && first.is_multiple_of(layer)
        && (end.is_multiple_of(layer) || end == nx * ny * nz);
    (wanted && fits).then(|| (Subdomains::boxes([nx, ny, (end - first) / (nx * ny)], size), size))
}

/// True if runs of equal rows on `ranks` ranks consist of whole boxes.
pub fn slabs_fit(grid: [usize; 3], order: usize, ildu: &Ildu0, ranks: usize) -> bool {
    let nodes = grid.iter().product();
    (0..ranks).all(|rank| {
        let numbers: Vec<u64> = contiguous(nodes, rank, ranks).map(|i| i as u64).collect();
        of_slab(grid, &numbers, ildu.cut, ildu.most_rows(order)).is_some()
    })
}

/// Boxes of at most `rows` points, where that is the way wanted and the grid is all there is.
fn of_grid(
    grid: [usize; 3],
    nodes: usize,
    cut: SubdomainCut,
    rows: usize,
) -> Option<(Subdomains, [usize; 3])> {
    let fits = grid.iter().product::<usize>() == nodes && nodes > rows;
    let wanted = matches!(cut, SubdomainCut::Auto | SubdomainCut::Geometric);
    (fits && wanted).then(|| {
        let size = box_size(grid, rows);
        (Subdomains::boxes(grid, size), size)
    })
}

/// Edges of boxes of at most `rows` points that cut the fewest couplings of neighbours in the grid, where boxes that are
/// smaller than the largest count against a choice as much as they leave empty.
fn box_size(grid: [usize; 3], rows: usize) -> [usize; 3] {
    let [nx, ny, nz] = grid.map(|n| n.max(1));
    let cost = |size: [usize; 3]| {
        let count: [usize; 3] = std::array::from_fn(|d| grid[d].div_ceil(size[d]).max(1));
        let cut = (count[0] - 1) * ny * nz + (count[1] - 1) * nx * nz + (count[2] - 1) * nx * ny;
        let room = count.iter().product::<usize>() * size.iter().product::<usize>();
        (cut as f64) * (room as f64) / (nx * ny * nz) as f64
    };
    let mut best = ([1; 3], f64::INFINITY);
    for x in edges(nx, rows) {
        for y in edges(ny, rows / x) {
            let Some(z) = edges(nz, rows / (x * y)).next() else { continue };
            let cost = cost([x, y, z]);
            if cost < best.1 {
                best = ([x, y, z], cost);
            }
        }
    }
    best.0
}

/// The lengths that cut `n` points into equal pieces but for the last, longest first, none above `most`.
fn edges(n: usize, most: usize) -> impl Iterator<Item = usize> {
    let first = if most == 0 { None } else { Some(n.div_ceil(n.div_ceil(most.min(n)))) };
    // The next shorter length is that of the fewest pieces that are shorter.
    std::iter::successors(first, move |&edge| {
        (edge > 1).then(|| n.div_ceil(n.div_ceil(edge - 1)).min(edge - 1))
    })
}

/// One point for each of the job's own nodes.
fn points<'a>(job: &Job<'a>, nodes: usize) -> Option<Cow<'a, [[f64; 3]]>> {
    let all = job.coordinates?;
    match job.numbers {
        Some(numbers) if all.len() != nodes => {
            numbers.iter().map(|&i| all.get(i as usize).copied()).collect::<Option<Vec<_>>>().map(Cow::Owned)
        }
        _ => (all.len() == nodes).then_some(Cow::Borrowed(all)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn boxes_are_nearly_cubes_and_no_larger_than_asked() {
        for (grid, rows, size) in [
            ([128, 128, 128], 2048, [16, 16, 8]),
            ([128, 128, 128], 512, [8, 8, 8]),
            ([100, 100, 100], 1000, [10, 10, 10]),
            ([300, 300, 1], 2048, [43, 43, 1]),
            ([5, 1000, 1], 64, [5, 12, 1]),
            ([12, 12, 12], 216, [6, 6, 6]),
            ([1, 1, 7], 3, [1, 1, 3]),
        ] {
            let found = box_size(grid, rows);
            assert!(found.iter().product::<usize>() <= rows, "{grid:?} {rows}: {found:?}");
            assert_eq!(found, size, "{grid:?} {rows}");
        }
    }

    #[test]
    fn ranks_own_whole_subdomains() {
        // A path of 12 rows in subdomains of 2; the second rank's rows weigh as much as all others.
        let n = 12;
        let row_ptr: Vec<usize> = (0..=n).collect();
        let a = Bsr::new(1, n, n, row_ptr, (0..n as u32).collect(), vec![1.0; n]).unwrap();
        let terms = Terms::bsr(&a);
        let labels: Vec<u32> = (0..n as u32).map(|i| i / 2).collect();
        let subdomains = Subdomains::from_labels(&labels, 6).unwrap();
        let near = Partition::by_rows(n, 5).unwrap();
        for ranks in 1..=6 {
            let near = Partition::by_rows(n, ranks).unwrap();
            let dealt = deal(&terms, &subdomains, &near).unwrap().unwrap();
            let rows = dealt.rows();
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
        assert!(deal(&terms, &few, &near).unwrap().is_none());
    }

    #[test]
    fn slabs_of_a_grid_are_its_boxes() {
        let (grid, ildu) = ([8, 8, 16], Ildu0 { rows: Some(64), ..Ildu0::default() });
        assert!(
            slabs_fit(grid, 1, &ildu, 2) && slabs_fit(grid, 1, &ildu, 4) && !slabs_fit(grid, 1, &ildu, 3)
        );
        let (whole, _) = of_grid(grid, 1024, SubdomainCut::Auto, 64).unwrap();
        let upper: Vec<u64> = (512..1024).collect();
        let (own, size) = of_slab(grid, &upper, SubdomainCut::Auto, 64).unwrap();
        assert_eq!((size, own.count()), ([4, 4, 4], 8));
        for p in 0..8 {
            let rows: Vec<u32> = own.rows(p).iter().map(|i| i + 512).collect();
            assert_eq!(rows, whole.rows(8 + p));
        }
    }
}
