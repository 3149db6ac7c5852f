//! Subdomains: groups of own block rows that a preconditioner factorises independently.
//!
//! A [`Partition`](super::Partition) distributes rows to ranks, weighted by the cost of a product. Subdomains
//! are many and small: each is solved by one thread or one thread block, whose memory limits its rows. None
//! exceeds the requested size, and sizes are about equal. Threads do not affect the result.

mod assign;
mod boxes;

pub(crate) use assign::of_whole_on;
pub use assign::{Distribution, LocalSubdomains, SubdomainSpec, assign_whole, of_rank, of_whole};
pub use assign::{assign, assign_planes};
#[cfg(feature = "cuda")]
pub(crate) use boxes::layer;
pub use boxes::{boxes_fit, slabs_fit};

use super::{adjacency::Adjacency, contiguous, curve, multilevel, search::from_far_nodes};
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::{Error, Result};
use rayon::prelude::*;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// A function by which a device may cut subdomains of at most this many block rows, as
/// [`SubdomainCut::Multilevel`] does.
pub(crate) type CutGraph<'a> = &'a dyn Fn(usize) -> Result<Option<Subdomains>>;

/// Disjoint nonempty groups of block rows that together contain every block row.
///
/// # Examples
/// ```
/// use krylith_core::partition::Subdomains;
/// let boxes = Subdomains::boxes([4, 2, 1], [2, 2, 1]); // a plate of 4×2 nodes, cut in the middle
/// assert_eq!((boxes.count(), boxes.largest()), (2, 4));
/// assert_eq!(boxes.rows(1), [2, 3, 6, 7]);
/// ```
#[derive(Debug, Clone)]
pub struct Subdomains {
    /// Rows of boxes are listed on the first request for them; a GPU does not need them.
    lists: OnceLock<Lists>,
    boxes: Option<Boxes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Lists {
    /// Block rows by subdomain, ascending within each.
    rows: Vec<u32>,
    /// Subdomain p consists of `rows[ptr[p]..ptr[p + 1]]`.
    ptr: Vec<usize>,
}

/// Boxes of `size` points of a grid, both numbered x fastest; those at the upper boundaries may be smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Boxes {
    pub grid: [usize; 3],
    pub size: [usize; 3],
}

impl Boxes {
    /// Returns the number of boxes along each axis.
    pub fn counts(&self) -> [usize; 3] {
        std::array::from_fn(|d| self.grid[d].div_ceil(self.size[d]))
    }

    fn lists(&self) -> Lists {
        let (Self { grid, size }, count) = (*self, self.counts());
        let [nx, ny, nz] = grid;
        // Points of box p along each axis.
        let edges = |p: usize| -> [std::ops::Range<usize>; 3] {
            let at = [p % count[0], p / count[0] % count[1], p / (count[0] * count[1])];
            std::array::from_fn(|d| at[d] * size[d]..((at[d] + 1) * size[d]).min(grid[d]))
        };
        let boxes: usize = count.iter().product();
        let mut ptr = Vec::with_capacity(boxes + 1);
        ptr.push(0);
        for p in 0..boxes {
            ptr.push(ptr[p] + edges(p).iter().map(|edge| edge.len()).product::<usize>());
        }
        let mut rows = vec![0; nx * ny * nz];
        let mut rest = &mut rows[..];
        let mut places = Vec::with_capacity(boxes);
        for p in 0..boxes {
            let (own, tail) = rest.split_at_mut(ptr[p + 1] - ptr[p]);
            places.push(own);
            rest = tail;
        }
        places.into_par_iter().enumerate().with_min_len(16).for_each(|(p, rows)| {
            let [x, y, z] = edges(p);
            let lines = z.flat_map(|z| y.clone().map(move |y| nx * (y + ny * z)));
            for (line, rows) in lines.zip(rows.chunks_exact_mut(x.len().max(1))) {
                rows.iter_mut().zip(x.clone()).for_each(|(to, x)| *to = (line + x) as u32);
            }
        });
        Lists { rows, ptr }
    }
}

impl PartialEq for Subdomains {
    fn eq(&self, other: &Self) -> bool {
        (self.boxes.is_some() && self.boxes == other.boxes) || self.lists() == other.lists()
    }
}

impl Eq for Subdomains {}

/// Methods to cut block rows into subdomains.
///
/// # Examples
/// ```
/// use krylith_core::partition::SubdomainCut;
/// let options: krylith::Options = "precond=ildu:cut=whole".parse()?;
/// assert_eq!(options.to_string(), format!("precond=ildu:cut={}", SubdomainCut::Whole.name()));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SubdomainCut {
    /// Geometric if there are coordinates, else multilevel.
    #[default]
    Auto,
    /// One subdomain.
    Whole,
    /// Runs of consecutive rows.
    Runs,
    /// Recursive coordinate bisection: boxes in space. Needs coordinates.
    Geometric,
    /// Runs along Hilbert's curve in space. Needs coordinates.
    Curve,
    /// Multilevel partition of the graph on all threads. It cuts at most a few percent more couplings than
    /// [`Graph`](Self::Graph), in a fraction of the time.
    Multilevel,
    /// k-way partition of the graph by METIS, on one thread. Needs the feature `metis`.
    Graph,
    /// A few parts by METIS, if it is in the build, each then bisected by distance in the graph, in parallel.
    /// It takes half the set-up time of [`Graph`](Self::Graph), and cuts more couplings.
    TwoLevel,
    /// This number of parts: geometric if there are coordinates, else multilevel. It has no name.
    Parts(usize),
}

impl SubdomainCut {
    /// All methods that can be selected by name.
    pub const ALL: [SubdomainCut; 8] = [
        SubdomainCut::Auto,
        SubdomainCut::Whole,
        SubdomainCut::Runs,
        SubdomainCut::Geometric,
        SubdomainCut::Curve,
        SubdomainCut::Multilevel,
        SubdomainCut::Graph,
        SubdomainCut::TwoLevel,
    ];

    /// Returns its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            SubdomainCut::Auto => "auto",
            SubdomainCut::Whole => "whole",
            SubdomainCut::Runs => "runs",
            SubdomainCut::Geometric => "geometric",
            SubdomainCut::Curve => "curve",
            SubdomainCut::Multilevel => "multilevel",
            SubdomainCut::Graph => "graph",
            SubdomainCut::TwoLevel => "two-level",
            SubdomainCut::Parts(_) => "parts",
        }
    }
}

/// METIS makes parts up to 3 % larger than the mean.
#[cfg(feature = "metis")]
const UNEVEN: f64 = 0.97;
/// Largest number of parts that METIS cuts for [`SubdomainCut::TwoLevel`]. It cuts fewer if subdomains would
/// become uneven.
#[cfg(feature = "metis")]
const COARSE: usize = 16;

impl Subdomains {
    /// Creates one subdomain of `rows` block rows; none if `rows` is 0.
    pub fn whole(rows: usize) -> Self {
        let ptr = if rows > 0 { vec![0, rows] } else { vec![0] };
        Self::of(Lists { rows: (0..rows as u32).collect(), ptr })
    }

    /// Creates subdomains from the label of each block row, such as
    /// [`Partition::owner`](super::Partition::owner). Empty ones are dropped.
    ///
    /// # Errors
    /// A label that is not below `count`.
    pub fn from_labels(labels: &[u32], count: usize) -> Result<Self> {
        if let Some(i) = labels.iter().position(|&p| p as usize >= count) {
            return Err(Error::invalid(format!(
                "block row {i} is given to subdomain {}; there are {count} subdomains, counted from 0",
                labels[i]
            )));
        }
        Ok(Self::of(Lists::from_labels(labels, count)))
    }

    fn of(lists: Lists) -> Self {
        Self { lists: OnceLock::from(lists), boxes: None }
    }

    /// Creates subdomains from labels of block rows, all below `count`, ordered by smallest row.
    pub(crate) fn by_first_row(mut labels: Vec<u32>, count: usize) -> Self {
        let (mut name, mut named) = (vec![u32::MAX; count], 0);
        for label in &mut labels {
            let name = &mut name[*label as usize];
            if *name == u32::MAX {
                *name = named;
                named += 1;
            }
            *label = *name;
        }
        Self::from_labels(&labels, named as usize).expect("labels count subdomains")
    }

    /// Creates boxes of `size` points of a grid whose points are numbered x fastest, then y, then z; those at
    /// the upper boundaries may be smaller (the ILDU paper's Alg. 3.1).
    ///
    /// # Panics
    /// If an edge of `size` is 0, or the grid has more than 2³² − 1 points.
    pub fn boxes(grid: [usize; 3], size: [usize; 3]) -> Self {
        let [nx, ny, nz] = grid;
        assert!(size.iter().all(|&s| s > 0), "boxes of {size:?} points");
        assert!(nx * ny * nz <= u32::MAX as usize, "a grid of {grid:?} points");
        Self { lists: OnceLock::new(), boxes: Some(Boxes { grid, size }) }
    }

    /// Cuts the block rows of `terms` into subdomains of about `rows` block rows, never more, and returns the
    /// reason. `coordinates`: one point per block row.
    ///
    /// # Errors
    /// `rows` of 0; coordinates that are missing, do not fit or are not finite; METIS missing, or a graph too
    /// large for it.
    pub fn cut(
        terms: &Terms,
        coordinates: Option<&[[f64; 3]]>,
        way: SubdomainCut,
        rows: usize,
    ) -> Result<(Self, &'static str)> {
        Self::cut_on(terms, coordinates, way, rows, &|_| Ok(None))
    }

    /// As [`cut`](Self::cut), with a device that may cut the graph: it returns the subdomains that the host
    /// would compute, or `None`.
    pub(crate) fn cut_on(
        terms: &Terms,
        coordinates: Option<&[[f64; 3]]>,
        way: SubdomainCut,
        rows: usize,
        device: CutGraph,
    ) -> Result<(Self, &'static str)> {
        let n = terms.block_rows();
        if rows == 0 {
            return Err(Error::invalid("the subdomain size is 0; subdomains need at least 1 block row"));
        }
        if let SubdomainCut::Parts(parts) = way {
            return Self::parts(terms, coordinates, parts);
        }
        let asked = way;
        let (way, mut why) = match (way, coordinates) {
            (SubdomainCut::Auto, Some(_)) => (SubdomainCut::Geometric, "auto: coordinates are known"),
            (SubdomainCut::Auto, None) => (SubdomainCut::Multilevel, "auto: no coordinates are known"),
            _ => (way, ""),
        };
        if n <= rows {
            let why =
                if way == SubdomainCut::Whole { why } else { "the system is no larger than a subdomain" };
            return Ok((Self::whole(n), why));
        }
        if way == SubdomainCut::Multilevel && !(asked == SubdomainCut::Auto && loose(terms)) {
            let cut = match device(rows)? {
                Some(cut) => cut,
                // Rows that are coupled to most others cannot be separated, and trying takes seconds.
                None if asked == SubdomainCut::Auto && has_hubs(terms) => {
                    let nodes: Vec<u32> = (0..n as u32).collect();
                    let why = "auto: some rows are coupled to too many others for a cut";
                    return Ok((Self::from_groups(runs(&nodes, n.div_ceil(rows))), why));
                }
                None => {
                    let (labels, count) = multilevel::cut(Adjacency::of(terms), rows);
                    Self::by_first_row(labels, count)
                }
            };
            return Ok((cut, why));
        }
        let parts = n.div_ceil(rows);
        let mut nodes: Vec<u32> = (0..n as u32).collect();
        let groups: Vec<Vec<u32>> = match way {
            SubdomainCut::Whole | SubdomainCut::Parts(_) => return Ok((Self::whole(n), why)),
            SubdomainCut::Runs | SubdomainCut::Auto => runs(&nodes, parts),
            SubdomainCut::Geometric => bisect_space(&mut nodes, points(coordinates, n)?, parts),
            SubdomainCut::Curve => {
                let place = curve::hilbert(points(coordinates, n)?);
                nodes.par_sort_unstable_by_key(|&i| (place[i as usize], i));
                runs(&nodes, parts)
            }
            SubdomainCut::Multilevel => {
                why = "auto: few rows are coupled to others";
                runs(&nodes, parts)
            }
            SubdomainCut::Graph => by_graph(terms, rows)?,
            #[cfg(feature = "metis")]
            SubdomainCut::TwoLevel => by_metis(terms, COARSE.min(parts / 8).max(1), rows)?,
            #[cfg(not(feature = "metis"))]
            SubdomainCut::TwoLevel => bisect_graphs(&Adjacency::of(terms), vec![nodes], rows),
        };
        Ok((Self::from_groups(groups), why))
    }

    /// Cuts `parts` parts of about equal rows.
    fn parts(terms: &Terms, coordinates: Option<&[[f64; 3]]>, parts: usize) -> Result<(Self, &'static str)> {
        let n = terms.block_rows();
        if parts == 0 || parts > n {
            return Err(Error::invalid(format!(
                "{n} block rows cannot be cut into {parts} parts; expected 1 to {n} parts"
            )));
        }
        let mut nodes: Vec<u32> = (0..n as u32).collect();
        if coordinates.is_some() {
            let groups = bisect_space(&mut nodes, points(coordinates, n)?, parts);
            return Ok((Self::from_groups(groups), "parts by coordinates"));
        }
        let graph = Adjacency::of(terms);
        let (labels, count) = multilevel::cut_into(graph.clone(), parts);
        if count == parts {
            return Ok((Self::by_first_row(labels, count), "parts of the graph"));
        }
        // Graphs without edges have no balanced cut to refine.
        Ok((Self::from_groups(bisect_levels(&graph, nodes, parts)), "parts by distance in the graph"))
    }

    /// Creates subdomains from lists of rows, in the order of their smallest rows, for memory locality.
    fn from_groups(mut groups: Vec<Vec<u32>>) -> Self {
        groups.retain(|g| !g.is_empty());
        groups.par_iter_mut().for_each(|g| g.sort_unstable());
        groups.par_sort_unstable_by_key(|g| g[0]);
        let mut ptr = Vec::with_capacity(groups.len() + 1);
        ptr.push(0);
        let mut rows = Vec::with_capacity(groups.iter().map(Vec::len).sum());
        for group in &groups {
            rows.extend_from_slice(group);
            ptr.push(rows.len());
        }
        Self::of(Lists { rows, ptr })
    }

    fn lists(&self) -> &Lists {
        if let Some(lists) = self.lists.get() {
            return lists;
        }
        // Not under the lock: a thread that waits in a rayon loop may steal work that needs these lists too.
        let boxes =
            self.boxes.map_or_else(|| Lists { rows: Vec::new(), ptr: vec![0] }, |boxes| boxes.lists());
        self.lists.get_or_init(|| boxes)
    }

    /// Returns the number of subdomains.
    pub fn count(&self) -> usize {
        match &self.boxes {
            Some(boxes) => boxes.counts().iter().product(),
            None => self.lists().ptr.len() - 1,
        }
    }
    /// Returns the start of each subdomain among the rows of all, and finally the end.
    pub(crate) fn starts(&self) -> &[usize] {
        &self.lists().ptr
    }
    /// Returns the block rows of subdomain `p` in ascending order.
    pub fn rows(&self, p: usize) -> &[u32] {
        let Lists { rows, ptr } = self.lists();
        &rows[ptr[p]..ptr[p + 1]]
    }
    /// Returns the number of block rows of all subdomains.
    pub fn block_rows(&self) -> usize {
        match &self.boxes {
            Some(boxes) => boxes.grid.iter().product(),
            None => self.lists().rows.len(),
        }
    }
    /// Returns the number of block rows of the largest subdomain.
    pub fn largest(&self) -> usize {
        match &self.boxes {
            Some(Boxes { grid, size }) => (0..3).map(|d| size[d].min(grid[d])).product(),
            None => self.lists().ptr.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0),
        }
    }
    /// Returns the boxes, if the subdomains are boxes of a grid.
    #[cfg(feature = "cuda")]
    pub(crate) fn as_boxes(&self) -> Option<Boxes> {
        self.boxes
    }
    /// Returns block rows by subdomain, and the start of each subdomain, with the end last.
    #[cfg(feature = "cuda")]
    pub(crate) fn all_rows(&self) -> (&[u32], &[usize]) {
        let Lists { rows, ptr } = self.lists();
        (rows, ptr)
    }
}

impl Lists {
    fn from_labels(labels: &[u32], count: usize) -> Self {
        // Each chunk counts its rows, which then gives the start of its rows in each subdomain.
        let chunk = (4 * count).max(1 << 16);
        let counted = |labels: &[u32]| {
            let mut counts = vec![0usize; count];
            labels.iter().for_each(|&p| counts[p as usize] += 1);
            counts
        };
        let mut begins: Vec<Vec<usize>> = labels.par_chunks(chunk).map(counted).collect();
        let (mut ptr, mut end) = (vec![0usize], 0);
        for p in 0..count {
            for begin in &mut begins {
                end += std::mem::replace(&mut begin[p], end);
            }
            ptr.push(end);
        }
        ptr.dedup();
        let rows: Vec<AtomicU32> = labels.par_iter().map(|_| AtomicU32::new(0)).collect();
        labels.par_chunks(chunk).zip(begins).enumerate().for_each(|(k, (labels, mut next))| {
            for (i, &p) in labels.iter().enumerate() {
                rows[next[p as usize]].store((k * chunk + i) as u32, Relaxed);
                next[p as usize] += 1;
            }
        });
        let rows = rows.into_par_iter().map(AtomicU32::into_inner).collect();
        Self { rows, ptr }
    }
}

/// Checks that there is one finite point for each of `n` block rows.
fn points(coordinates: Option<&[[f64; 3]]>, n: usize) -> Result<&[[f64; 3]]> {
    let points = coordinates.ok_or_else(|| {
        Error::invalid("a cut in space needs coordinates: add them to the problem, or to system.toml")
    })?;
    if points.len() != n {
        return Err(Error::invalid(format!(
            "{} points for {n} block rows; a cut in space needs one point per block row",
            points.len()
        )));
    }
    if let Some(i) = points.iter().position(|x| x.iter().any(|x| !x.is_finite())) {
        return Err(Error::invalid(format!(
            "the point of block row {i} is {:?}; coordinates must be finite",
            points[i]
        )));
    }
    Ok(points)
}

/// Returns true if a row has over 512 blocks and 32 times the mean. No device cuts such graphs.
fn has_hubs(terms: &Terms) -> bool {
    terms.terms.iter().any(|(_, a)| {
        let longest = a.row_ptr().par_windows(2).with_min_len(1 << 14).map(|w| w[1] - w[0]).max();
        longest.is_some_and(|longest| longest > 512 && longest > 32 * a.blocks() / a.block_rows().max(1))
    })
}

/// Returns true if at most one row in sixteen is coupled to another.
fn loose(terms: &Terms) -> bool {
    let n = terms.block_rows();
    let blocks: usize = terms.terms.iter().map(|(_, a)| a.blocks()).sum();
    // Skip the count if clearly more than the diagonal is stored.
    blocks <= terms.terms.len() * n + n / 16 && {
        let off = |a: &Bsr, i: usize| {
            a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]].iter().filter(|&&j| j as usize != i).count()
        };
        let couplings: usize =
            terms.terms.iter().map(|(_, a)| (0..n).map(|i| off(a, i)).sum::<usize>()).sum();
        couplings <= n / 16
    }
}

/// Cuts a list into equal runs.
fn runs(nodes: &[u32], parts: usize) -> Vec<Vec<u32>> {
    (0..parts).map(|p| nodes[contiguous(nodes.len(), p, parts)].to_vec()).collect()
}

/// Cuts by recursive coordinate bisection into parts of equal rows, across the longest edge of the bounding
/// box. The next longest edge, and finally the number, breaks ties.
fn bisect_space(nodes: &mut [u32], points: &[[f64; 3]], parts: usize) -> Vec<Vec<u32>> {
    if parts == 1 {
        return vec![nodes.to_vec()];
    }
    let mut axes = [0, 1, 2];
    let extent: [f64; 3] = std::array::from_fn(|d| {
        let range = nodes.iter().map(|&i| points[i as usize][d]);
        range.clone().fold(f64::NEG_INFINITY, f64::max) - range.fold(f64::INFINITY, f64::min)
    });
    axes.sort_by(|&d, &e| extent[e].total_cmp(&extent[d]));
    let place = |i: u32| axes.map(|d| points[i as usize][d] + 0.0); // −0 equals 0
    let low = parts / 2;
    let middle = nodes.len() * low / parts;
    nodes.select_nth_unstable_by(middle, |&i, &j| {
        let (x, y) = (place(i), place(j));
        let order = |k: usize| x[k].total_cmp(&y[k]);
        order(0).then_with(|| order(1)).then_with(|| order(2)).then(i.cmp(&j))
    });
    let (left, right) = nodes.split_at_mut(middle);
    let (mut groups, rest) =
        rayon::join(|| bisect_space(left, points, low), || bisect_space(right, points, parts - low));
    groups.extend(rest);
    groups
}

/// Cuts subdomains by a k-way partition of METIS.
#[cfg(feature = "metis")]
fn by_graph(terms: &Terms, rows: usize) -> Result<Vec<Vec<u32>>> {
    let n = terms.block_rows();
    let parts = ((n as f64 / (UNEVEN * rows as f64)).ceil() as usize).min(n);
    by_metis(terms, parts, rows)
}

/// Returns the error of a build without METIS.
#[cfg(not(feature = "metis"))]
fn by_graph(_: &Terms, _: usize) -> Result<Vec<Vec<u32>>> {
    Err(Error::Unsupported(
        "a graph partition needs METIS, which is not in this build: build with feature `metis`".into(),
    ))
}

/// Cuts parts by METIS with equal weights of rows; parts of more than `rows` rows are bisected.
#[cfg(feature = "metis")]
fn by_metis(terms: &Terms, parts: usize, rows: usize) -> Result<Vec<Vec<u32>>> {
    let (graph, n) = (Adjacency::of(terms), terms.block_rows());
    let labels = super::graph::k_way(graph.clone(), &vec![1; n], parts)?;
    let mut groups = vec![Vec::new(); parts];
    labels.iter().enumerate().for_each(|(i, &p)| groups[p as usize].push(i as u32));
    Ok(bisect_graphs(&graph, groups, rows))
}

/// Bisects each group by distance in the graph until none has more than `rows` rows.
fn bisect_graphs(graph: &Adjacency, groups: Vec<Vec<u32>>, rows: usize) -> Vec<Vec<u32>> {
    let cut = |group: Vec<u32>| {
        let parts = group.len().div_ceil(rows).max(1);
        bisect_levels(graph, group, parts)
    };
    groups.into_par_iter().map(cut).collect::<Vec<_>>().into_iter().flatten().collect()
}

/// Bisects an induced subgraph recursively by distance from a peripheral node (George and Liu 1978).
fn bisect_levels(graph: &Adjacency, nodes: Vec<u32>, parts: usize) -> Vec<Vec<u32>> {
    if parts == 1 {
        return vec![nodes];
    }
    let order = breadth_first(graph, &nodes);
    let low = parts / 2;
    let middle = nodes.len() * low / parts;
    let (left, right) = order.split_at(middle);
    let sides = |side: &[u32]| {
        let mut side = side.to_vec();
        side.sort_unstable();
        side
    };
    let (left, right) = (sides(left), sides(right));
    let (mut groups, rest) =
        rayon::join(|| bisect_levels(graph, left, low), || bisect_levels(graph, right, parts - low));
    groups.extend(rest);
    groups
}

/// Orders the ascending nodes of an induced subgraph by distance from a peripheral node, per component.
fn breadth_first(graph: &Adjacency, nodes: &[u32]) -> Vec<u32> {
    // The subgraph in local numbers.
    let local = |i: u32| nodes.binary_search(&i).ok();
    let (mut ptr, mut col) = (vec![0usize], Vec::new());
    for &i in nodes {
        col.extend(graph.neighbours(i).iter().filter_map(|&j| local(j)).map(|k| k as u32));
        ptr.push(col.len());
    }
    from_far_nodes(&ptr, &col).into_iter().map(|k| nodes[k as usize]).collect()
}
