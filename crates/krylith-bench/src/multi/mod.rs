//! GMRES on several GPUs of one process, one thread each: the interface of a solver, and every part of the
//! baselines that needs no GPU.
//!
//! * [`share`]: block rows cut into slabs, main-diagonal and off-diagonal parts;
//! * [`mapping`]: parallel buffering and pre-mapping as the OKP paper has them (Alg. 5 and 6);
//! * [`crew`]: the threads of a team, and commands to all of them.

pub(crate) mod crew;
pub(crate) mod mapping;
pub(crate) mod share;

#[cfg_attr(not(feature = "cuda"), allow(unused_imports))] // the baselines name the parts
pub(crate) use crate::textbook::{Part, Session, Solve, Times};

use crate::systems::Case;
use krylith_core::partition;
use std::sync::Arc;

pub(crate) struct Job<'a> {
    /// The system, with its right-hand side in Krylith's order of unknowns.
    pub case: &'a Case,
    /// GPUs by number, one per rank.
    pub gpus: &'a [usize],
    /// The same system cut into slabs, one per GPU.
    pub parts: &'a Arc<Vec<partition::Part>>,
    /// The restart of GMRES.
    pub restart: usize,
    /// Number of iterations of a solve, whatever the residual.
    pub iterations: usize,
}
