//! The report: what was done, as JSON. The fields are a contract; docs/guide.md, "The report".

use krylith::precond::Value;
use krylith::solver::{EventKind, SetupParts};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The version of these fields.
pub const SCHEMA: u32 = 2;

/// A whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// Krylith's version.
    pub krylith: String,
    /// What was solved.
    pub system: System,
    /// Where and how it ran.
    pub run: Run,
    /// Method with its parameters' names left to `parameters`.
    pub method: String,
    /// What the method was given.
    pub parameters: Parameters,
    /// Preconditioner.
    pub preconditioner: Preconditioner,
    /// `converged`, `max-iterations`, `breakdown`, `stagnated`, `rounding-limit`, `inconsistent`, `diverged`, `not-finite` or
    /// `interrupted`.
    pub outcome: String,
    /// Why, of a breakdown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Iterations done.
    pub iterations: usize,
    /// ‖r‖/‖b‖ before the first and after every iteration; null where it is not finite.
    pub residuals: Vec<Option<f64>>,
    /// ‖b − A x‖/‖b‖, recomputed at the end.
    pub true_relative_residual: Option<f64>,
    /// What rounding x to double precision may make of it.
    #[serde(default)]
    pub rounding: Option<f64>,
    /// ‖r_c‖/‖b‖ of each component.
    pub field_residuals: Vec<Option<f64>>,
    /// Where the time went.
    pub seconds: Seconds,
    /// Bytes an average iteration must move, counted.
    pub bytes_per_iteration: u64,
    /// Share of the device's measured read bandwidth; null where it was not measured, as in a solve that is over before that.
    pub bandwidth_fraction: Option<f64>,
    /// Restarts, fallbacks, choices.
    pub events: Vec<Event>,
}

/// What was solved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct System {
    /// As the user named it.
    pub name: String,
    /// Unknowns, all stages together.
    pub rows: usize,
    /// Numbers that the files stored.
    pub nonzeros: usize,
    /// Block size b.
    pub block: usize,
    /// Stages s.
    pub stages: usize,
    /// `csr`, `bsr`, `dia` or `kronecker`.
    pub format: String,
    /// `interleaved` or `segregated`.
    pub ordering: String,
    /// ‖b‖₂.
    pub rhs_norm: Option<f64>,
}

/// Where and how it ran.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// `cpu` or `cuda`.
    pub device: String,
    /// Name of each device.
    pub devices: Vec<String>,
    /// Processes.
    pub ranks: usize,
    /// Threads of the CPU team.
    pub threads: usize,
    /// What `--deterministic` asked for.
    pub deterministic: bool,
    /// Seed of a random right-hand side.
    pub seed: Option<u64>,
    /// `f64` or `f32`.
    pub store: String,
    /// How the product is stored: `csr`, `dia`, `dia-full`, or `blocks`.
    #[serde(default)]
    pub format: String,
}

/// What the method was given.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Parameters {
    /// Of GMRES: basis vectors before a restart.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<usize>,
    /// Of GMRES: `lowsync`, `cgs2` or `mgs`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orthogonalization: Option<String>,
    /// Of BiCGSTAB: `merged` or `classical`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reductions: Option<String>,
    /// Of CG: `textbook`, `one-reduction`, `flexible` or `pipelined`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    /// Of CBCG: directions of a step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s: Option<usize>,
    /// Of CBCG: `chebyshev` or `monomial`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
    /// Relative tolerance.
    pub rtol: f64,
    /// Absolute tolerance.
    pub atol: f64,
    /// Most iterations.
    pub max_iters: usize,
}

/// A preconditioner.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preconditioner {
    /// `none`, `jacobi`, `ildu`, or `direct` for factors of more than five times the matrix's numbers.
    pub name: String,
    /// By the names of the command line.
    pub parameters: serde_json::Map<String, serde_json::Value>,
    /// Numbers it stores per number of the matrix; null where there is none.
    pub fill: Option<f64>,
}

/// Seconds. The papers' phases are null where the device keeps no time of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Seconds {
    /// Reading or generating the system.
    #[serde(default)]
    pub load: f64,
    /// From the arrays in memory to the first iteration.
    pub setup: f64,
    /// The same by part, such as `survey`, `product`, `factors`.
    #[serde(default)]
    pub setup_parts: serde_json::Map<String, serde_json::Value>,
    /// Set-up and iterations; reading and writing files is not in it.
    pub total: f64,
    /// T_dt: between host and device; 0 on the CPU.
    pub transfer: Option<f64>,
    /// T_Kx: products with the operator.
    pub product: Option<f64>,
    /// T_c: between ranks; 0 with one.
    pub communication: Option<f64>,
    /// T_Gn: orthogonalisation and norms.
    pub orthogonalization: Option<f64>,
    /// Applying the preconditioner.
    pub preconditioner: Option<f64>,
}

/// Something that happened on the way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// `restart`, `fallback`, `refinement`, `choice`, `interrupted`.
    pub event: String,
    /// When, where there is a when.
    pub iteration: Option<usize>,
    /// In words.
    pub detail: String,
}

impl Event {
    /// A choice.
    pub fn choice(detail: impl Into<String>) -> Self {
        Self { event: "choice".into(), iteration: None, detail: detail.into() }
    }
}

impl From<&krylith::solver::Event> for Event {
    fn from(event: &krylith::solver::Event) -> Self {
        let krylith::solver::Event { kind, iteration, detail } = event;
        // Nothing but a signal stops the command's solves.
        let detail = if *kind == EventKind::Interrupted { "by Ctrl-C or a signal" } else { detail };
        Self { event: kind.name().into(), iteration: *iteration, detail: detail.into() }
    }
}

/// Parameters of a preconditioner as JSON.
pub fn parameters(of: &[(String, Value)]) -> serde_json::Map<String, serde_json::Value> {
    let json = |value: &Value| match value {
        Value::Count(n) => (*n).into(),
        Value::Number(v) => (*v).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Parameters(all) => parameters(all).into(),
    };
    of.iter().map(|(name, value)| (name.clone(), json(value))).collect()
}

/// Parts of a set-up by name.
pub fn parts(of: &SetupParts) -> serde_json::Map<String, serde_json::Value> {
    of.iter().map(|(part, seconds)| (part.name().to_string(), seconds.into())).collect()
}

/// JSON has no NaN.
pub fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

impl Report {
    /// Writes the report; it appears whole or not at all.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, path: &Path) -> krylith::Result<()> {
        krylith::io::atomic::write(path, |out| {
            serde_json::to_writer_pretty(&mut *out, self)?;
            out.write_all(b"\n")
        })
    }
}
