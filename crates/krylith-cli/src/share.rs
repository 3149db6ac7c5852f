//! One rank's share of a system: the choice of its block rows, and how the rank reads or generates them.

use crate::failure::{Failure, Result};
use crate::options::Ordering;
use crate::ranks;
use crate::system::{self, Operator, Order, Share, System};
use krylith_core::Options;
use krylith_core::comm::{self, Communicator};
use krylith_core::io::parts::{BlockSource, ReadRows, read_rows};
use krylith_core::operator::Terms;
use krylith_core::partition::{
    BoxesOfRuns, MANY_GHOSTS, Part, PartitionSpec, Partitioner, Rows, assign_whole, boxes_fit, distribute,
    enough_rows, slabs_fit, split, to_boxes,
};
use std::path::Path;
use std::sync::Arc;

/// Loads this rank's share of a system. Collective.
///
/// If the partition allows it, each rank generates only some rows of a generated problem, or reads only some
/// rows of a file whose format supports that. These are its own, or travel to the rank whose box of the grid
/// contains them. No rank then holds the whole system. Otherwise every rank reads
/// or generates the whole system and keeps its own rows; the `reason` of the share says so.
///
/// # Errors
/// The same as for [`system::load`]; there are more ranks than block rows, or the ranks were given different
/// systems.
pub fn load(
    comm: &Arc<dyn Communicator>,
    path: &Path,
    block: Option<usize>,
    user: Ordering,
    given: &Options,
) -> Result<System> {
    let wanted = given.partition.unwrap_or_default();
    if let Some(text) = system::spec(path)
        && user == Ordering::Interleaved
        && !krylith_problems::reads_mesh(text)
        && matches!(wanted, PartitionSpec::Auto | PartitionSpec::Boxes(_))
        && let Some(system) = generated(comm, text, block, given)?
    {
        return Ok(system);
    }
    if !system::is_problem(path) && user == Ordering::Interleaved {
        let way = match wanted {
            PartitionSpec::Auto => Some(Partitioner::Nonzeros),
            // Rows travel to their boxes.
            PartitionSpec::Boxes(_) => Some(Partitioner::Rows),
            PartitionSpec::By(way) => {
                Some(way).filter(|w| matches!(w, Partitioner::Rows | Partitioner::Nonzeros))
            }
        };
        if let Some(way) = way
            && let Some(system) = by_parts(comm, path, block, way, given)?
        {
            return Ok(system);
        }
    }
    let whole = ranks::together(system::load(path, block, user))?;
    let terms = whole.operator.terms();
    ranks::same("a system", &digest(&whole.name, &terms))?;
    let part = (|| {
        let points = whole.coordinates.as_deref();
        let precond = given.or(&whole.solver);
        let spec = precond.subdomains(terms.block() * terms.stages());
        let all = assign_whole(&terms, points, whole.grid, comm.size(), wanted, spec, precond.planes())?;
        let part = split(&terms, &all.partition)?.swap_remove(comm.rank());
        let subdomains = all.local(&part.rows)?;
        Ok((part, subdomains, all.reason))
    })();
    let (Part { rows, terms: own, .. }, subdomains, reason) = ranks::together(part)?;
    drop(terms);
    let reason = format!("{reason}; each rank read the whole system");
    let share = Share { comm: comm.clone(), numbers: Some(rows), reason, subdomains };
    let own_rhs = None;
    let mut system = System { operator: Operator::Share(own), share, own_rhs, ..whole };
    system.own_rhs = whole.own_rhs.map(|rhs| rhs.into_iter().map(|b| system.own(b)).collect());
    Ok(system)
}

/// If consecutive rows have many ghosts, every rank reads the whole system and partitions its graph, up to
/// this number of stored entries.
const SMALL: usize = 1 << 27;

/// Every rank holds the whole system, so that subdomains do not depend on the ranks, up to this number of
/// stored entries.
const CUT_WHOLE: usize = 1 << 27;

/// Reads this rank's rows of a file. Returns `None` if `auto` finds many ghosts with consecutive rows and
/// every rank can hold the system, as a partition of the graph may then be better. Collective.
fn by_parts(
    comm: &Arc<dyn Communicator>,
    path: &Path,
    block: Option<usize>,
    way: Partitioner,
    given: &Options,
) -> Result<Option<System>> {
    let wanted = given.partition.unwrap_or_default();
    let auto = wanted == PartitionSpec::Auto;
    let (read, size) = (read_rows(&**comm, path, block, way), comm.size());
    let ReadRows { mut rows, nodes, format, stored, block_source, mut rhs, mut coordinates, solver, whole } =
        ranks::together(read.map_err(|e| system::missing(path, e)))?;
    ranks::together(enough_rows(nodes, size).map_err(Failure::from))?;
    let (b, stages) = (rows.block, rows.terms[0].0.rows());
    if auto && stored <= CUT_WHOLE && given.or(&solver).subdomains(b * stages).is_some() {
        return Ok(None);
    }
    let boxes =
        ranks::together(BoxesOfRuns::choose(&**comm, &rows, nodes, None, wanted).map_err(Failure::from))?;
    if let Some(found) = &boxes {
        rows = travel(&**comm, found, rows, rhs.as_mut(), coordinates.as_mut())?;
    }
    let numbers = rows.numbers.clone();
    let Part { terms, halo, .. } = distribute(&**comm, rows)?;
    let own = halo.ghosts as f64 / halo.own.max(1) as f64;
    let ghosts = comm::largest(&**comm, own)?;
    if auto && boxes.is_none() && ghosts > MANY_GHOSTS && stored <= SMALL {
        return Ok(None);
    }
    let (block_reason, block_detected) = match block_source {
        BlockSource::Given => ("--block".into(), false),
        BlockSource::File => ("the file says so".into(), false),
        BlockSource::Detected(found) => (crate::blocks::detected(found), true),
    };
    let kept = if whole.is_empty() { "each rank reads its rows".into() } else { whole.join("; ") };
    let reason = match &boxes {
        Some(found) => format!("{}; each rank reads some rows, which travel to their boxes", found.reason),
        None => format!("partition by {}: at most {ghosts:.2} ghosts a node; {kept}", way.name()),
    };
    Ok(Some(System {
        label: krylith_core::text::name(path),
        name: path.display().to_string(),
        format,
        nonzeros: stored,
        complex: false,
        operator: Operator::Share(terms),
        order: Order { block: b, nodes, stages, user: Ordering::Interleaved },
        own_rhs: rhs.map(|b| vec![b]),
        coordinates,
        grid: boxes.map(|found| found.grid),
        tetrahedra: Vec::new(),
        fields: Vec::new(),
        matrices: Vec::new(),
        solver,
        block_reason,
        block_detected,
        share: Share { comm: comm.clone(), numbers: Some(numbers), reason, subdomains: None },
    }))
}

/// Generates this rank's rows. Returns `None` if the wanted subdomains would depend on the ranks and every
/// rank can hold the whole system. Collective.
fn generated(
    comm: &Arc<dyn Communicator>,
    text: &str,
    block: Option<usize>,
    given: &Options,
) -> Result<Option<System>> {
    let (rank, size) = (comm.rank(), comm.size());
    let mut generated =
        ranks::together(krylith_problems::generate_rows(text, rank, size).map_err(Failure::from))?;
    let wanted = given.partition.unwrap_or_default();
    let (b, nodes) = (generated.rows.block, generated.nodes);
    let refused = if block.is_some_and(|block| block != b) {
        Err(Failure::usage(format!(
            "{text} has blocks of {b}; with several ranks, --block applies only to files"
        )))
    } else {
        enough_rows(nodes, size).map_err(|e| Failure::from(e).within(text))
    };
    ranks::together(refused)?;
    ranks::same("a system", generated.spec.as_bytes())?;
    let stages = generated.rows.terms.first().map_or(1, |t| t.0.rows());
    let kronecker = generated.rows.terms.len() > 1;
    let mut stored = [generated.rows.terms.iter().map(|t| t.1.values.len()).sum::<usize>() as f64];
    comm.sum(&mut stored)?;
    let boxes = BoxesOfRuns::choose(&**comm, &generated.rows, nodes, generated.grid, wanted);
    let boxes = ranks::together(boxes.map_err(|e| Failure::from(e).within(text)))?;
    let small = stored[0] <= CUT_WHOLE as f64;
    if let Some(spec) = given.subdomains(b * stages)
        && wanted == PartitionSpec::Auto
        && small
        && !generated.grid.is_some_and(|grid| match &boxes {
            Some(found) => boxes_fit(grid, spec, &found.boxes),
            None => slabs_fit(grid, spec, size),
        })
    {
        return Ok(None);
    }
    // Consecutive rows are good enough if the ranks' boundaries lie between tiles.
    let ends = |planes: usize, [nx, ny, _]: [usize; 3]| {
        (1..size).all(|rank| (nodes * rank / size).is_multiple_of(nx * ny * planes))
    };
    if let (Some(planes), Some(grid), None) = (given.planes(), generated.grid, &boxes)
        && small
        && !ends(planes, grid)
    {
        return Ok(None);
    }
    let reason = match &boxes {
        None => "each rank generates its rows".into(),
        Some(found) => {
            format!("{}; each rank generates some rows, which travel to their boxes", found.reason)
        }
    };
    if let Some(found) = &boxes {
        let (rhs, coordinates) = (Some(&mut generated.rhs), generated.coordinates.as_mut());
        generated.rows = travel(&**comm, found, generated.rows, rhs, coordinates)?;
    }
    let numbers = generated.rows.numbers.clone();
    let Part { terms, .. } = distribute(&**comm, generated.rows)?;
    let order = Order { block: b, nodes, stages, user: Ordering::Interleaved };
    let format = match (kronecker, b) {
        (true, _) => "kronecker",
        (false, 1) => "csr",
        (false, _) => "bsr",
    };
    Ok(Some(System {
        label: text.into(),
        name: generated.spec,
        format,
        nonzeros: stored[0] as usize,
        complex: false,
        operator: Operator::Share(terms),
        order,
        own_rhs: Some(vec![generated.rhs]),
        coordinates: generated.coordinates,
        grid: generated.grid,
        tetrahedra: Vec::new(),
        fields: generated.fields,
        matrices: generated.matrices,
        solver: Options::default(),
        block_reason: "the problem's own".into(),
        block_detected: false,
        share: Share { comm: comm.clone(), numbers: Some(numbers), reason, subdomains: None },
    }))
}

/// Sends rows to the ranks that own their boxes, with their right-hand side and coordinates. Collective.
fn travel(
    comm: &dyn Communicator,
    found: &BoxesOfRuns,
    rows: Rows,
    rhs: Option<&mut Vec<f64>>,
    coordinates: Option<&mut Vec<[f64; 3]>>,
) -> Result<Rows> {
    let mut flat: Vec<f64> = coordinates.iter().flat_map(|points| points.iter().flatten().copied()).collect();
    let mut along: Vec<&mut Vec<f64>> = rhs.into_iter().chain([&mut flat]).collect();
    let rows = to_boxes(comm, &found.boxes, rows, &mut along)?;
    if let Some(points) = coordinates {
        *points = flat.as_chunks().0.to_vec();
    }
    Ok(rows)
}

/// Gathers a vector with `run` numbers per node on rank 0; other ranks get an empty vector. Collective.
///
/// # Errors
/// Another rank failed or ended.
pub fn gather(system: &System, own: Vec<f64>, run: usize) -> Result<Vec<f64>> {
    let Some(numbers) = &system.share.numbers else { return Ok(own) };
    ranks::gathered(system.comm(), numbers, system.order.nodes, &own, run)
}

/// Returns a hash that differs for different systems: FNV-1a over all data that a solve uses.
fn digest(name: &str, terms: &Terms) -> [u8; 8] {
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    let mut take = |word: u64| hash = (hash ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(17);
    name.bytes().for_each(|b| take(b.into()));
    for (c, a) in terms.terms() {
        c.values().iter().for_each(|v| take(v.to_bits()));
        a.row_ptr().iter().for_each(|&p| take(p as u64));
        a.col().iter().for_each(|&j| take(j.into()));
        a.values().iter().for_each(|v| take(v.to_bits()));
    }
    hash.to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use krylith_core::comm::Team;
    use krylith_core::matrix::Bsr;

    fn line(n: usize) -> Bsr {
        let (mut row_ptr, mut col) = (vec![0], Vec::<u32>::new());
        for i in 0..n {
            col.extend((i.saturating_sub(1)..=(i + 1).min(n - 1)).map(|j| j as u32));
            row_ptr.push(col.len());
        }
        let values = vec![1.0; col.len()];
        Bsr::new(1, n, n, row_ptr, col, values).unwrap()
    }

    #[test]
    fn other_values_have_another_digest() {
        let (a, mut b) = (line(5), line(5));
        b.values_mut()[3] = 2.0;
        assert_ne!(digest("x", &Terms::bsr(&a)), digest("x", &Terms::bsr(&b)));
        assert_eq!(digest("x", &Terms::bsr(&a)), digest("x", &Terms::bsr(&line(5))));
    }

    /// Compares the shares of the ranks of a team with the whole file.
    #[test]
    fn files_are_shared_by_parts_or_read_whole_for_the_graph() {
        let dir = tempfile::tempdir().unwrap();
        let (line, star) = (dir.path().join("line.mtx"), dir.path().join("star.mtx"));
        let a = self::line(60).to_csr();
        krylith_core::io::matrix_market::write(&line, &a).unwrap();
        // Each row has a distant column, so that consecutive rows have many ghosts.
        let far = (0..60u32).flat_map(|i| [(i, i, 4.0), (i, i * 7 % 60, 1.0)]).collect::<Vec<_>>();
        let far = krylith_core::matrix::Csr::from_triplets(60, 60, &far).unwrap();
        krylith_core::io::matrix_market::write(&star, &far).unwrap();
        for (path, wanted, words) in [
            (&line, PartitionSpec::Auto, "each rank reads its rows"),
            (&line, PartitionSpec::By(Partitioner::Rows), "each rank reads its rows"),
            (&star, PartitionSpec::By(Partitioner::Nonzeros), "each rank reads its rows"),
            (&star, PartitionSpec::Auto, "each rank read the whole system"),
        ] {
            let whole = system::load(path, None, Ordering::Interleaved).unwrap();
            let shares = Team::run(3, |comm| {
                let comm: Arc<dyn Communicator> = comm;
                let given: Options = format!("precond=none partition={wanted}").parse()?;
                let system = load(&comm, path, None, Ordering::Interleaved, &given)
                    .map_err(|f| krylith_core::Error::invalid(f.message))?;
                let terms = system.operator.terms();
                let stored: usize = terms.terms().iter().map(|t| t.1.values().len()).sum();
                let b = system.own(vec![1.0; system.len()]).len();
                assert_eq!(b, terms.rows());
                assert!(system.share.reason.contains(words), "{}", system.share.reason);
                assert_eq!((system.format, system.order.block), (whole.format, whole.order.block));
                assert_eq!((system.nonzeros, &system.block_reason), (whole.nonzeros, &whole.block_reason));
                Ok((system.share.numbers.unwrap(), stored))
            })
            .unwrap();
            let mut numbers: Vec<u64> = shares.iter().flat_map(|s| s.0.clone()).collect();
            numbers.sort_unstable();
            assert!(numbers.iter().copied().eq(0..whole.order.nodes as u64), "{words}");
            let stored: usize = shares.iter().map(|s| s.1).sum();
            assert_eq!(stored, whole.operator.terms().terms()[0].1.values().len());
        }
    }
}
