//! Cuts of a system into subdomains: boxes of a grid (the paper's Alg. 3.1) or parts of the graph.

use super::BOX;
use super::system::boxes;
use krylith_core::Result;
use krylith_core::matrix::Bsr;
use krylith_core::operator::Terms;
use krylith_core::partition::{SubdomainCut, Subdomains};
use std::time::Instant;

/// A method of cutting, by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Boxes of the grid.
    Boxes,
    /// METIS, as in the paper.
    Graph,
    /// Krylith's partition of the graph.
    Multilevel,
}

impl Way {
    /// Names of the option `--cuts`; the last two are those of `ildu:cut=`.
    pub const ALL: &[(&'static str, Way)] =
        &[("boxes", Way::Boxes), ("graph", Way::Graph), ("multilevel", Way::Multilevel)];

    /// Returns the paper's cut of a matrix without a grid, or Krylith's in a build without METIS.
    pub fn of_graphs() -> Self {
        if cfg!(feature = "metis") { Way::Graph } else { Way::Multilevel }
    }
}

/// Unknowns of a subdomain, whose vector has 64 KiB of shared memory.
const UNKNOWNS: usize = 8192;
/// Least number of subdomains of a graph, so that small systems are cut, too.
const LEAST: usize = 8;
/// Boxes of [`UNKNOWNS`] points.
const LARGE: [usize; 3] = [32, 16, 16];

/// A cut with its sizes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Boxes { grid: [usize; 3], size: [usize; 3] },
    Graph { way: SubdomainCut, rows: usize },
}

/// Subdomains as labels of the block rows, and as Krylith stores them.
pub(crate) struct Parts {
    pub labels: Vec<u32>,
    pub count: usize,
    pub subdomains: Subdomains,
    /// Seconds of the partition on the host.
    pub seconds: f64,
}

impl Cut {
    /// Returns the cut of a matrix; `None` for boxes of a matrix without a grid. Laplacians have smaller
    /// boxes, as in the paper.
    pub fn new(way: Way, a: &Bsr, grid: Option<[usize; 3]>, laplacian: bool) -> Option<Self> {
        let way = match way {
            Way::Boxes => {
                let size = if laplacian || a.block() > 1 { BOX } else { LARGE };
                return grid.map(|grid| Cut::Boxes { grid, size });
            }
            Way::Graph => SubdomainCut::Graph,
            Way::Multilevel => SubdomainCut::Multilevel,
        };
        let rows = UNKNOWNS / a.block().next_power_of_two();
        Some(Cut::Graph { way, rows: rows.min(a.block_rows().div_ceil(LEAST)).max(1) })
    }

    pub fn text(self) -> String {
        match self {
            Cut::Boxes { size: [x, y, z], .. } => format!("boxes of {x}×{y}×{z}"),
            Cut::Graph { way: SubdomainCut::Graph, .. } => "METIS".into(),
            Cut::Graph { .. } => "Krylith's graph cut".into(),
        }
    }

    /// Cuts the matrix, and measures the time.
    ///
    /// # Errors
    /// Returns an error if METIS is not in this build, or if the graph is too large for it.
    pub fn make(self, a: &Bsr) -> Result<Parts> {
        let begin = Instant::now();
        match self {
            Cut::Boxes { grid, size } => {
                let (labels, count) = boxes(grid, size);
                let seconds = begin.elapsed().as_secs_f64();
                Ok(Parts { labels, count, subdomains: Subdomains::boxes(grid, size), seconds })
            }
            Cut::Graph { way, rows } => {
                let subdomains = Subdomains::cut(&Terms::bsr(a), None, way, rows)?.0;
                let seconds = begin.elapsed().as_secs_f64();
                let mut labels = vec![0; a.block_rows()];
                for p in 0..subdomains.count() {
                    subdomains.rows(p).iter().for_each(|&row| labels[row as usize] = p as u32);
                }
                Ok(Parts { labels, count: subdomains.count(), subdomains, seconds })
            }
        }
    }
}
