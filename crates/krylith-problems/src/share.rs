//! The nodes of a nonlinear problem that one rank owns, if several ranks solve the problem together.
//!
//! Each rank makes the whole mesh, which all ranks cut alike, and keeps its own nodes and their ghosts.

use krylith_core::comm::{Communicator, agree};
use krylith_core::matrix::Bsr;
use krylith_core::newton::NonlinearSystem;
use krylith_core::operator::Terms;
use krylith_core::partition::{Halo, Numbering, PartitionSpec, choose};
use krylith_core::{Problem, Result};
use std::borrow::Cow;
use std::sync::Arc;

/// The ranks that solve a problem together, and how they share its nodes.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith_problems::{nonlinear::by_text_on, share::Ranks};
/// let own = Team::run(2, |comm| {
///     let ranks = Ranks { comm, partition: "rows".parse()? };
///     let cavity = by_text_on("cavity:8x8", &ranks)?;
///     Ok(cavity.share().map_or(0, |share| share.numbers().len()))
/// })?;
/// assert_eq!(own, [32, 32]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Clone)]
pub struct Ranks {
    /// The ranks.
    pub comm: Arc<dyn Communicator>,
    /// The method that distributes nodes to ranks.
    pub partition: PartitionSpec,
}

/// The nodes of this rank. Local numbers count own nodes first, then ghosts.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith_problems::{nonlinear::by_text_on, share::Ranks};
/// let shares = Team::run(2, |comm| {
///     let artery = by_text_on("artery:300", &Ranks { comm, partition: Default::default() })?;
///     Ok(artery.share().cloned())
/// })?;
/// let own: usize = shares.iter().flatten().map(|share| share.numbers().len()).sum();
/// assert_eq!(Some(own), shares[0].as_ref().map(|share| share.nodes()));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Clone)]
pub struct Share {
    comm: Arc<dyn Communicator>,
    halo: Arc<Halo>,
    numbers: Vec<u64>,
    nodes: usize,
    reason: String,
}

impl std::fmt::Debug for Share {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Share of {} of {} nodes", self.numbers.len(), self.nodes)
    }
}

/// Nodes of all ranks: who owns each, and why.
pub(crate) struct Cut {
    owner: Vec<u32>,
    reason: String,
}

impl Cut {
    /// Distributes the nodes of a graph to ranks. Every rank does this alike, without communication.
    ///
    /// # Errors
    /// More ranks than nodes; a partition that does not fit.
    pub fn new(graph: &Bsr, points: &[[f64; 3]], grid: Option<[usize; 3]>, ranks: &Ranks) -> Result<Self> {
        let (partition, reason) =
            choose(&Terms::bsr(graph), Some(points), grid, ranks.comm.size(), ranks.partition)?;
        Ok(Self { owner: partition.owner, reason })
    }

    /// Returns true if this rank owns the node.
    pub fn owns(&self, comm: &dyn Communicator, node: usize) -> bool {
        self.owner[node] as usize == comm.rank()
    }
}

impl Share {
    /// Returns the own nodes of this rank and their ghosts, which are among `columns`. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub(crate) fn new(
        comm: &Arc<dyn Communicator>,
        cut: Cut,
        columns: impl IntoIterator<Item = u64>,
    ) -> Result<(Self, Numbering)> {
        let own = (0..cut.owner.len()).filter(|&node| cut.owns(&**comm, node));
        let numbers: Vec<u64> = own.map(|node| node as u64).collect();
        let (halo, numbering) = Halo::build(&**comm, &numbers, columns)?;
        let (nodes, reason, halo) = (cut.owner.len(), cut.reason, Arc::new(halo));
        Ok((Self { comm: comm.clone(), halo, numbers, nodes, reason }, numbering))
    }

    /// Returns the exchange of ghosts.
    #[cfg(feature = "cuda")]
    pub(crate) fn halo(&self) -> &Halo {
        &self.halo
    }

    /// Returns the numbers of ghosts, `run` numbers a node, from the numbers that this rank sends.
    /// Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    #[cfg(feature = "cuda")]
    pub(crate) fn exchange(&self, run: usize, packed: Vec<f64>) -> Result<Vec<f64>> {
        self.halo.exchange(&*self.comm, run, &packed)
    }

    /// Returns the numbers of the own nodes in the whole problem.
    pub fn numbers(&self) -> &[u64] {
        &self.numbers
    }

    /// Returns the number of nodes of the whole problem.
    pub fn nodes(&self) -> usize {
        self.nodes
    }

    /// Returns the method that distributed the nodes, and why it was chosen.
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

/// Returns the numbers of own nodes followed by those of ghosts, with `run` numbers a node. Collective.
///
/// # Errors
/// A vector of the wrong length; a rank that is gone or failed.
pub(crate) fn local<'x>(share: Option<&Share>, run: usize, own: &'x [f64]) -> Result<Cow<'x, [f64]>> {
    match share {
        None => Ok(Cow::Borrowed(own)),
        Some(share) => Ok(Cow::Owned(share.halo.with_ghosts(&*share.comm, run, own)?)),
    }
}

/// Returns the problem of the linear solves of a system, whose matrix has the own rows in local numbers.
/// Collective.
///
/// # Errors
/// A rank that is gone or failed.
pub(crate) fn problem<'a>(system: &'a impl NonlinearSystem, share: Option<&'a Share>) -> Result<Problem<'a>> {
    let problem = match share {
        None => Problem::bsr(system.pattern())?,
        Some(share) => {
            let terms = Terms::bsr(system.pattern()).with_halo(Some(share.halo.clone()));
            Problem::local(share.comm.clone(), &share.numbers[..], terms)?
        }
    };
    match system.coordinates() {
        Some(points) => problem.with_coordinates(points),
        None => Ok(problem),
    }
}

/// Returns the same error on every rank, if one of them failed to read or make its mesh. Collective.
pub(crate) fn made<T>(ranks: Option<&Ranks>, own: Result<T>) -> Result<T> {
    match ranks {
        None => own,
        Some(ranks) => agree(&*ranks.comm, own),
    }
}

/// Returns the same error on every rank that shares the problem, if there is one. Collective.
pub(crate) fn agreed<T>(share: Option<&Share>, own: Result<T>) -> Result<T> {
    match share {
        None => own,
        Some(share) => agree(&*share.comm, own),
    }
}

/// Returns the sum over the ranks that share the problem, if there are several. Collective.
pub(crate) fn summed<const N: usize>(share: Option<&Share>, mut own: [f64; N]) -> Result<[f64; N]> {
    share.map_or(Ok(()), |share| share.comm.sum(&mut own))?;
    Ok(own)
}
