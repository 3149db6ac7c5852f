//! The measured items: applications of a preconditioner, solvers with them, and the cost of their set-up.

use super::cut::Cut;
use super::reference::Factors;
use super::system::SubdomainSystem;
use crate::platform::{Apply, Platform};
use crate::samples::Samples;
use krylith_core::Result;
use krylith_core::matrix::Bsr;
use krylith_core::partition::Subdomains;

/// The result of an application, for the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Solves {
    /// Λ⁻¹ (I + L)⁻¹ x, where Λ has the unit lower triangles of D = Λ V: libraries that factor the diagonal
    /// blocks, too, include Λ in L. With b = 1, Λ is the identity.
    LowerInBlocks,
    /// D⁻¹ (I + L)⁻¹ x.
    LowerScaled,
    /// (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x.
    All,
}

/// The matrix from which factors were computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Of {
    /// The whole matrix.
    Whole,
    /// The matrix without entries that couple subdomains.
    Decomposed,
}

pub(crate) struct Application<'a> {
    /// Name in tables. Algorithms of the paper (named in `ildu0/mod.rs`) have the paper's names.
    pub name: String,
    /// Settings chosen by measurement.
    pub notes: String,
    pub of: Of,
    pub solves: Solves,
    /// Rows of the given matrix in the order of elimination, and the start of each subdomain; `None` for the
    /// order of the case's systems. Incomplete factors depend on this order.
    pub order: Option<(Vec<u32>, Vec<usize>)>,
    /// True for Krylith's own applications.
    pub ours: bool,
    /// Bytes that one application moves, by its own declaration: factors, columns and levels of every
    /// subdomain, and vectors.
    pub bytes: u64,
    /// Largest accepted relative difference from the reference: above [`TOLERANCE`] only if factors are
    /// stored in f32.
    pub tolerance: f64,
    pub vectors: Box<dyn Apply + 'a>,
}

impl<'a> Application<'a> {
    /// Creates a baseline, in the order of the case's systems.
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

/// A solver of A x = b from x = 0, set up completely.
pub(crate) trait Solver {
    fn name(&self) -> String;
    fn ours(&self) -> bool {
        false
    }
    /// Returns the seconds before its first solve: partition, analysis, factorisation, upload of the factors.
    fn setup(&self) -> f64;
    /// Solves to `rtol` or for `most` iterations; returns ‖r‖/‖b‖ before the first iteration and after each.
    fn solve(&mut self, rtol: f64, most: usize) -> Result<Vec<f64>>;
    /// Returns x in the order of the given matrix; waits.
    fn solution(&mut self) -> Result<Vec<f64>>;
}

/// A cost that is paid before a solve.
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
    /// Names of items that could not be created, with the reason.
    pub failures: Vec<String>,
}

/// A matrix, whole and decomposed, with its right-hand side.
pub(crate) struct Case {
    pub name: String,
    pub spec: String,
    /// Relative tolerance of a solve.
    pub rtol: f64,
    pub cut: Cut,
    /// The subdomains as Krylith stores them.
    pub subdomains: Subdomains,
    pub a: Bsr,
    pub rhs: Vec<f64>,
    pub whole: SubdomainSystem,
    pub decomposed: SubdomainSystem,
    /// Reference factors of the decomposed matrix.
    pub factors: Factors,
    /// Seconds on the host: to label rows by subdomain (the paper's Alg. 3.1, or a cut of the graph), and to
    /// group them by label (Alg. 3.2) and drop the entries that couple subdomains.
    pub partition: [f64; 2],
    /// Seconds to generate the matrix or to read its file, and to make the reference factors.
    pub others: [f64; 2],
}

/// A device with baselines to compare with.
pub(crate) trait Ground: Platform {
    /// Creates the baselines; their set-up is timed.
    fn baselines<'a>(&'a self, case: &'a Case, progress: &mut dyn FnMut(&str)) -> Result<Candidates<'a>>;
    /// Adds Krylith's own by [`add`](super::ours::add); adds nothing on a device without Krylith's kernels.
    fn ours<'a>(&'a self, _: &'a Case, _: &mut Candidates<'a>) -> Result<()> {
        Ok(())
    }
}
