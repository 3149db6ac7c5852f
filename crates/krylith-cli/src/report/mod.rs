//! The report of a solve, as JSON. Users rely on its fields. The guide lists them under "The report", with
//! the comments of this file. `KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide` writes that list.

mod choices;
pub(crate) mod described;
mod of_solve;
pub mod provenance;

pub use choices::{automatic, choice};
pub use of_solve::report;

use described::described;
use krylith_core::precond::Value;
use krylith_core::solver::{EventKind, SetupParts};
use krylith_core::space::{Criterion, RelativeTo};
use serde_json::Map;

/// The version of these fields.
pub const SCHEMA: u32 = 2;

described! {
/// A whole report.
pub struct Report {
    /// The version of these fields. It changes when a field, or a name in a field, is renamed or removed. In
    /// schema 1, `ildu` was called `ildu0`.
    pub schema: u32,
    /// Krylith's version.
    pub krylith: String,
    /// The command line.
    #[serde(default)]
    pub command: String,
    /// The start of the command, in UTC, as RFC 3339 writes it.
    #[serde(default)]
    pub date: String,
    /// The name of the machine; with several ranks, the machine of rank 0.
    #[serde(default)]
    pub host: String,
    /// The versions of programs and libraries.
    #[serde(default)]
    pub versions: Versions,
    /// The system.
    pub system: System,
    /// The sources of b and of the initial guess.
    #[serde(default)]
    pub sources: Sources,
    /// The device and its settings.
    pub run: Run,
    /// The method of the last attempt: `gmres`, `fgmres`, `bicgstab`, `cg`, `cbcg` or `minres`.
    pub method: String,
    /// The settings of the method.
    pub parameters: Parameters,
    /// The preconditioner of the last attempt.
    pub preconditioner: Preconditioner,
    /// The automatic choices: options that neither the command line nor `[solver]` set.
    #[serde(default)]
    pub automatic: Vec<Choice>,
    /// The outcome: `converged`, `max-iterations`, `breakdown`, `stagnated`, `rounding-limit`,
    /// `inconsistent`, `diverged`, `not-finite` or `interrupted`. [Outcomes](#outcomes-and-what-to-do)
    /// explains them.
    pub outcome: String,
    /// The cause of a breakdown; absent for other outcomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of iterations. An iteration has one product with the operator; in BiCGSTAB it has two.
    pub iterations: usize,
    /// ‖r‖/‖b‖ in the 2-norm, unscaled: one value before the first iteration and one after each. A value that
    /// is not finite is null. With another criterion, the values are those of its quantity.
    pub residuals: Vec<Option<f64>>,
    /// The mean factor by which an iteration reduced the residual, (‖r_n‖/‖r_0‖)^(1/n). The field is absent
    /// without iterations.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub convergence_factor: Option<f64>,
    /// ‖b − A x‖/‖b‖, recomputed at the end with twice the working precision. It is the same quantity for
    /// every criterion.
    pub true_relative_residual: Option<f64>,
    /// The criterion of convergence: `residual`, `rows` or `backward`.
    #[serde(default = "usual_criterion")]
    pub criterion: String,
    /// The vector whose norm divides the residual: `b` or `r0`.
    #[serde(default = "usual_vector")]
    pub relative_to: String,
    /// The value of the criterion, recomputed at the end. It is that which is compared with the tolerance.
    #[serde(default)]
    pub criterion_value: Option<f64>,
    /// ‖D⁻¹(b − A x)‖/‖D⁻¹b‖, where the diagonal matrix D has the 1-norms of the rows of A. The field is
    /// absent unless the solve converged and the rows differ in scale by more than 10⁶.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_scaled_residual: Option<f64>,
    /// The attainable residual u ‖|b| + |A||x|‖/‖b‖ with u = 2⁻⁵³. Its cause is the rounding of x to double
    /// precision.
    #[serde(default)]
    pub rounding: Option<f64>,
    /// ‖r_c‖/‖b‖ for each component c of r = b − A x.
    pub field_residuals: Vec<Option<f64>>,
    /// The results of each of several right-hand sides; absent for one right-hand side. The fields above then
    /// describe the first column that did not converge, or else the first column. `seconds` has the time of
    /// all columns.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// The time, in seconds.
    pub seconds: Seconds,
    /// The number of bytes that an average iteration moves, counted from the algorithm and not measured.
    pub bytes_per_iteration: u64,
    /// The bytes per second, by `bytes_per_iteration`, as a share of the device's measured read bandwidth.
    /// Null for solves too short to justify a measurement (0.25 s on a CPU, 10 ms on a GPU).
    pub bandwidth_fraction: Option<f64>,
    /// The events of the solve.
    pub events: Vec<Event>,
}
/// Programs and libraries.
pub struct Versions {
    /// Krylith's version.
    pub krylith: String,
    /// The commit of the build; null in development builds and in builds from a published package.
    pub commit: Option<String>,
    /// The Rust compiler of the build.
    pub rustc: Option<String>,
    /// The MPI library and its file; null without MPI ranks.
    pub mpi: Option<String>,
    /// The NVIDIA driver, for a solve on a GPU.
    pub driver: Option<String>,
    /// The CUDA version of that driver.
    pub cuda: Option<String>,
    /// The run-time compiler on this machine. The kernels may nevertheless come from the binary or from the
    /// cache.
    pub nvrtc: Option<String>,
}
/// The system that was solved.
pub struct System {
    /// The name of the system as given; for a generated problem, with all keys.
    pub name: String,
    /// The number of unknowns, over all stages.
    pub rows: usize,
    /// The number of entries that the files store.
    pub nonzeros: usize,
    /// The block size b.
    pub block: usize,
    /// The number of stages s.
    pub stages: usize,
    /// The format: `csr`, `bsr`, `dia` or `kronecker`.
    pub format: String,
    /// The ordering: `interleaved` or `segregated`.
    pub ordering: String,
    /// ‖b‖₂.
    pub rhs_norm: Option<f64>,
}
/// The sources of b and of the initial guess.
pub struct Sources {
    /// The right-hand side: a file, `ones`, `zeros`, `random, seed N`, or `the system's own`.
    pub rhs: String,
    /// The initial guess: a file, or `zeros`.
    pub x0: String,
    /// The null vectors and near-null vectors: files, or `constant` and `rigid`.
    pub null_vectors: Vec<String>,
}
/// The device and the settings of the run.
pub struct Run {
    /// The kind of device: `cpu` or `cuda`.
    pub device: String,
    /// The name of each device.
    pub devices: Vec<String>,
    /// The number of processes, or of the GPUs of one process.
    pub ranks: usize,
    /// The number of CPU threads of a rank.
    pub threads: usize,
    /// The value of `--deterministic`.
    pub deterministic: bool,
    /// The seed of a random right-hand side.
    pub seed: Option<u64>,
    /// The precision of stored numbers: `f64` or `f32`.
    pub store: String,
    /// The format of the matrix in products: `csr`, `dia`, `dia-full` or `blocks`.
    #[serde(default)]
    pub format: String,
    /// How ranks shared products: `halo`, or a mode of `--share`. Only with several ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<String>,
}
/// The settings of the method.
pub struct Parameters {
    /// The number of basis vectors before a restart (GMRES).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<usize>,
    /// The orthogonalization: `lowsync`, `cgs2` or `mgs` (GMRES).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub orthogonalization: Option<String>,
    /// The reductions: `merged` or `classical` (BiCGSTAB).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reductions: Option<String>,
    /// The form: `textbook`, `one-reduction`, `flexible` or `pipelined` (CG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<String>,
    /// The number of products of a step (CBCG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub s: Option<usize>,
    /// The basis: `chebyshev` or `monomial` (CBCG).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub basis: Option<String>,
    /// The relative tolerance.
    pub rtol: f64,
    /// The absolute tolerance.
    pub atol: f64,
    /// The iteration limit.
    pub max_iters: usize,
}
/// A preconditioner.
pub struct Preconditioner {
    /// Its name in `--precond`.
    pub name: String,
    /// Its keys, as on the command line. `ildu` adds `subdomains`, `levels` and `dropped` (the share of
    /// dropped blocks); with `shift` also `shifted` (the number of shifted pivots). `compute` is the
    /// precision in which `amg` computes; if `precond_precision` is f32 or bf16, also that of `ildu` and
    /// `ras`.
    pub parameters: Map<String, serde_json::Value>,
    /// The number of entries of the preconditioner, divided by that of the matrix; null without a
    /// preconditioner.
    pub fill: Option<f64>,
}
/// An automatic choice.
pub struct Choice {
    /// The option, such as `method` or `block`.
    pub option: String,
    /// The value that Krylith took.
    pub taken: String,
    /// The reason; null if the value is just the default.
    pub reason: Option<String>,
}
/// One of several right-hand sides.
pub struct Column {
    /// The outcome of this column. This field and the next seven have the meaning of the fields of the same
    /// names above.
    pub outcome: String,
    /// The cause of a breakdown; absent for other outcomes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The number of iterations.
    pub iterations: usize,
    /// The residuals.
    pub residuals: Vec<Option<f64>>,
    /// The recomputed residual.
    pub true_relative_residual: Option<f64>,
    /// The value of the criterion.
    #[serde(default)]
    pub criterion_value: Option<f64>,
    /// The attainable residual.
    pub rounding: Option<f64>,
    /// The residuals of the components.
    pub field_residuals: Vec<Option<f64>>,
    /// ‖b‖₂ for this column.
    pub rhs_norm: Option<f64>,
    /// The method and the preconditioner of the last attempt for this column.
    pub method: String,
    /// The time of the iterations of this column, and of the set-up that it needed. The first column includes
    /// the first set-up.
    pub seconds: f64,
    /// The events of this column.
    pub events: Vec<Event>,
}
/// Seconds.
pub struct Seconds {
    /// The time to read or to generate the system.
    #[serde(default)]
    pub load: f64,
    /// The set-up: from arrays in memory to the first iteration. It includes the start of the device.
    pub setup: f64,
    /// The parts of the set-up: `device`, `upload`, `survey`, `product`, `subdomains`, `analysis`, `factors`,
    /// `compile`, `method` and `other`. Their sum is `setup`.
    #[serde(default)]
    pub setup_parts: Map<String, serde_json::Value>,
    /// The time of set-up and iterations, without the time to read and to write files.
    pub total: f64,
    /// Transfers between host and device, T_dt in the papers; 0 on the CPU. This field and the four fields
    /// below are null if the device does not time them.
    pub transfer: Option<f64>,
    /// Products with the operator, T_Kx in the papers.
    pub product: Option<f64>,
    /// Communication between ranks, T_c in the papers; 0 on one rank.
    pub communication: Option<f64>,
    /// Orthogonalization and norms, T_Gn in the papers.
    pub orthogonalization: Option<f64>,
    /// Applications of the preconditioner.
    pub preconditioner: Option<f64>,
}
/// An event.
pub struct Event {
    /// The kind of event: `restart`, `fallback`, `refinement`, `choice`, `inconsistent`, `warning` or
    /// `interrupted`.
    pub event: String,
    /// The iteration at which it happened first; null for an event outside the iterations.
    pub iteration: Option<usize>,
    /// A description.
    pub detail: String,
}
}

impl Default for Versions {
    fn default() -> Self {
        provenance::versions(false)
    }
}

impl Default for Sources {
    fn default() -> Self {
        Self { rhs: String::new(), x0: "zeros".into(), null_vectors: Vec::new() }
    }
}

impl Event {
    /// A choice.
    pub fn choice(detail: impl Into<String>) -> Self {
        Self { event: "choice".into(), iteration: None, detail: detail.into() }
    }
}

impl From<&krylith_core::solver::Event> for Event {
    fn from(event: &krylith_core::solver::Event) -> Self {
        let krylith_core::solver::Event { kind, iteration, detail, .. } = event;
        // Nothing but a signal cancels the command's solves. A time limit has its own detail.
        let cancelled = *kind == EventKind::Interrupted && detail == "cancelled";
        let detail = if cancelled { "by Ctrl-C or a signal".into() } else { event.words().into_owned() };
        Self { event: kind.name().into(), iteration: *iteration, detail }
    }
}

/// Parameters of a preconditioner as JSON.
pub fn parameters(of: &[(String, Value)]) -> Map<String, serde_json::Value> {
    let json = |value: &Value| match value {
        Value::Count(n) => (*n).into(),
        Value::Number(v) => (*v).into(),
        Value::Text(text) => text.as_str().into(),
        Value::Parameters(all) => parameters(all).into(),
    };
    of.iter().map(|(name, value)| (name.clone(), json(value))).collect()
}

/// Parts of a set-up by name.
pub fn parts(of: &SetupParts) -> Map<String, serde_json::Value> {
    of.iter().map(|(part, seconds)| (part.name().to_string(), seconds.into())).collect()
}

/// The criterion of reports that name none.
fn usual_criterion() -> String {
    Criterion::default().name().into()
}

/// The vector of reports that name none.
fn usual_vector() -> String {
    RelativeTo::default().name().into()
}

/// JSON has no NaN.
pub fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

impl Report {
    /// Writes the report atomically.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write(&self, target: crate::output::Target) -> krylith_core::Result<()> {
        target.write(|out| {
            serde_json::to_writer_pretty(&mut *out, self)?;
            out.write_all(b"\n")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::described::rows;
    use crate::written::wrapped;

    const SECTIONS: [(&str, &str); 2] = [("report", "Report"), ("newton report", "NewtonReport")];

    /// The list of fields in the guide, between the markers of a section.
    fn section(name: &str) -> String {
        let structs: &[_] = if name == "Report" { super::STRUCTS } else { crate::newton::report::STRUCTS };
        let item = |[path, kind, words]: [String; 3]| wrapped(&format!("- `{path}` ({kind}): {words}"));
        rows(structs, name, "").into_iter().map(item).collect()
    }

    /// The fields in the guide are those of the code, by name, kind and text.
    #[test]
    fn the_guide_has_every_field_of_the_reports() {
        for (mark, name) in SECTIONS {
            crate::written::section("docs/guide.md", mark, &section(name));
        }
    }

    #[test]
    fn paths_and_kinds_of_fields() {
        let all = rows(super::STRUCTS, "Report", "");
        let kind = |path: &str| all.iter().find(|row| row[0] == path).map(|row| row[1].as_str());
        assert_eq!(kind("system.rows"), Some("number"));
        assert_eq!(kind("residuals"), Some("list of numbers or null"));
        assert_eq!(kind("columns"), Some("list of objects"));
        assert_eq!(kind("columns[].events[].detail"), Some("text"));
        assert_eq!(kind("run.seed"), Some("number or null"));
        assert_eq!(kind("run.deterministic"), Some("true or false"));
        assert!(all.iter().all(|row| !row[2].is_empty()));
    }
}
