//! What is measured: applications of a preconditioner, solvers around them, and what they cost to set up.

use super::reference::Factors;
use super::system::SubdomainSystem;
use crate::platform::{Apply, Platform};
use crate::samples::Samples;
use krylith_core::Result;
use krylith_core::matrix::Bsr;

/// What an application computes, for the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Solves {
    /// (I + L)⁻¹ x, where blocks of D are factored further: Λ⁻¹ (I + L)⁻¹ x.
    LowerInBlocks,
    /// D⁻¹ (I + L)⁻¹ x.
    LowerScaled,
    /// (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x.
    All,
}

/// Which matrix it was factorised from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// The whole one.
    Whole,
    /// The one in which nothing couples subdomains.
    Decomposed,
}

pub(crate) struct Application<'a> {
    /// What a table calls it; the paper's names where they are the paper's.
    pub name: String,
    /// Settings that were chosen by measurement.
    pub notes: String,
    pub of: Of,
    pub solves: Solves,
    /// Rows of the given matrix in the order of elimination, and where each subdomain begins, where that is not the order
    /// of the case's systems: incomplete factors depend on it.
    pub order: Option<(Vec<u32>, Vec<usize>)>,
    /// Krylith's own.
    pub ours: bool,
    /// Bytes that one application moves, by its own declaration: factors, columns and levels of every subdomain,
    /// vectors.
    pub bytes: u64,
    /// Largest relative difference from the reference that passes: more than [`TOLERANCE`] only where factors are stored in f32.
    pub tolerance: f64,
    pub vectors: Box<dyn Apply + 'a>,
}

impl<'a> Application<'a> {
    /// A baseline, in the order of the case's systems.
    pub fn baseline(
        (name, notes): (&str, String),
        (of, solves): (Of, Solves),
        bytes: u64,
        vectors: Box<dyn Apply + 'a>,
    ) -> Self {
        let (order, ours, tolerance) = (None, false, TOLERANCE);
        Self { name: name.into(), notes, of, solves, order, ours, bytes, tolerance, vectors }
    }
}

pub(crate) const TOLERANCE: f64 = 1e-10;

/// A solver for A x = b from x = 0, with everything set up.
pub(crate) trait Solver {
    fn name(&self) -> String;
    fn ours(&self) -> bool {
        false
    }
    /// Seconds before its first solve: partition, analysis, factorisation, upload of the factors.
    fn setup(&self) -> f64;
    /// ‖r‖/‖b‖ before the first iteration and after each, to `rtol` or for `most` iterations.
    fn solve(&mut self, rtol: f64, most: usize) -> Result<Vec<f64>>;
    /// x, in the order of the given matrix; waits.
    fn solution(&mut self) -> Result<Vec<f64>>;
}

/// One cost that is paid before a solve.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    pub name: String,
    pub samples: Samples,
}

#[derive(Default)]
pub(crate) struct Candidates<'a> {
    pub applications: Vec<Application<'a>>,
    pub solvers: Vec<Box<dyn Solver + 'a>>,
    pub setups: Vec<Setup>,
    /// What could not be made, by name, and why.
    pub failures: Vec<String>,
}

/// A matrix, whole and decomposed, with its right-hand side.
pub(crate) struct Case {
    pub name: String,
    pub spec: String,
    pub grid: [usize; 3],
    pub size: [usize; 3],
    pub a: Bsr,
    pub rhs: Vec<f64>,
    pub whole: SubdomainSystem,
    pub decomposed: SubdomainSystem,
    /// Reference factors of the decomposed matrix.
    pub factors: Factors,
    /// Seconds of Alg. 3.1 and of Alg. 3.2 with the dropping, on the host.
    pub partition: [f64; 2],
}

/// A device that has something to compare with.
pub(crate) trait Ground: Platform {
    /// Baselines, their set-up timed.
    fn baselines<'a>(&'a self, case: &'a Case, progress: &mut dyn FnMut(&str)) -> Result<Candidates<'a>>;
    /// Krylith's own, by [`add`](super::ours::add); nothing on a device without subdomain factors.
    fn ours<'a>(&'a self, _: &'a Case, _: &mut Candidates<'a>) -> Result<()> {
        Ok(())
    }
}
