//! The report: what was done, as JSON. The fields are a contract, and the comments here are their table in the guide, "The report":
//! `KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide` writes it anew.

mod choices;
pub(crate) mod described;
mod of_solve;
pub mod provenance;

pub use choices::{automatic, choice};
pub use of_solve::report;

use described::described;
use krylith_core::precond::Value;
use krylith_core::solver::{EventKind, SetupParts};
use serde_json::Map;

/// The version of these fields.
pub const SCHEMA: u32 = 2;

described! {
/// A whole report.
pub struct Report {
    /// Version of these fields: it changes when one is renamed or removed, or a name in it. In schema 1 `ildu` was `ildu0`.
    pub schema: u32,
    /// Krylith's version.
    pub krylith: String,
    /// The command line.
    #[serde(default)]
    pub command: String,
    /// When it began: UTC, RFC 3339.
    #[serde(default)]
    pub date: String,
    /// The machine's name; of several ranks that of the first.
    #[serde(default)]
    pub host: String,
    /// Programs and libraries.
    #[serde(default)]
    pub versions: Versions,
    /// What was solved.
    pub system: System,
    /// Where b and the first guess came from.
    #[serde(default)]
    pub sources: Sources,
    /// Where and how it ran.
    pub run: Run,
    /// `gmres`, `fgmres`, `bicgstab`, `cg` or `cbcg`: the method that ended the solve.
    pub method: String,
    /// What the method was given.
    pub parameters: Parameters,
    /// The preconditioner that ended the solve.
    pub preconditioner: Preconditioner,
    /// What was left open on the command line and in `[solver]`, and what was taken.
    #[serde(default)]
    pub automatic: Vec<Choice>,
    /// `converged`, `max-iterations`, `breakdown`, `stagnated`, `rounding-limit`, `inconsistent`, `diverged`, `not-finite` or
    /// `interrupted`: see [outcomes](#outcomes-and-what-to-do).
    pub outcome: String,
    /// Of a breakdown, what broke down; absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Iterations: one product with the operator each, two in BiCGSTAB.
    pub iterations: usize,
    /// `iterations` + 1 numbers ‖r‖/‖b‖, unscaled, in the 2-norm; a non-finite one is null.
    pub residuals: Vec<Option<f64>>,
    /// ‖b − A x‖/‖b‖, recomputed at the end in twice the working precision.
    pub true_relative_residual: Option<f64>,
    /// ‖D⁻¹(b − A x)‖/‖D⁻¹b‖, D the 1-norms of the rows; of a converged solve whose rows differ in scale by more than 10⁶, absent elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_scaled_residual: Option<f64>,
    /// u ‖\|b\| + \|A\|\|x\|‖/‖b‖, u = 2⁻⁵³: what rounding x to double precision may make of the residual.
    #[serde(default)]
    pub rounding: Option<f64>,
    /// ‖r_c‖/‖b‖ of each component c of r = b − A x.
    pub field_residuals: Vec<Option<f64>>,
    /// Of several right-hand sides each; then all that stands above is of the first that did not converge, or else of the first, and
    /// `seconds` are of all. Absent for one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub columns: Vec<Column>,
    /// Where the time went.
    pub seconds: Seconds,
    /// Bytes that an average iteration must move, counted.
    pub bytes_per_iteration: u64,
    /// Those bytes by time, over the read bandwidth measured on the device; null where the solve was over before measuring would
    /// pay (0.25 s on a CPU, 10 ms on a GPU).
    pub bandwidth_fraction: Option<f64>,
    /// What happened on the way, in words.
    pub events: Vec<Event>,
}
/// Programs and libraries.
pub struct Versions {
    /// Krylith.
    pub krylith: String,
    /// Commit that it was built from; null in builds for work on it and from a published package.
    pub commit: Option<String>,
    /// Rust compiler that built it.
    pub rustc: Option<String>,
    /// MPI library of the ranks and its file; null without ranks.
    pub mpi: Option<String>,
    /// NVIDIA's driver, of a solve on a GPU.
    pub driver: Option<String>,
    /// CUDA of that driver.
    pub cuda: Option<String>,
    /// Run-time compiler on this machine; kernels may have come with Krylith or from its cache.
    pub nvrtc: Option<String>,
}
/// What was solved.
pub struct System {
    /// As it was named; of a generated problem with every key.
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
/// Where b and the first guess came from.
pub struct Sources {
    /// A file, `ones`, `zeros`, `random, seed N`, or `the system's own`.
    pub rhs: String,
    /// A file, or `zeros`.
    pub x0: String,
    /// Files with a null space and near-null vectors, or `constant` and `rigid`.
    pub null_vectors: Vec<String>,
}
/// Where and how it ran.
pub struct Run {
    /// `cpu` or `cuda`.
    pub device: String,
    /// Name of each device.
    pub devices: Vec<String>,
    /// Processes, or GPUs of one.
    pub ranks: usize,
    /// Threads of the CPU team of a rank.
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
pub struct Preconditioner {
    /// By the names of `--precond`; `direct` for factors of more than five times the matrix's numbers.
    pub name: String,
    /// By the names of the command line; of `ildu` also `subdomains`, `levels`, `dropped` (share of the blocks) and `shifted`.
    pub parameters: Map<String, serde_json::Value>,
    /// Numbers that it stores per number of the matrix; null where there is none.
    pub fill: Option<f64>,
}
/// Something that was left open.
pub struct Choice {
    /// The option that could have said it, such as `method` or `block`.
    pub option: String,
    /// What was taken.
    pub taken: String,
    /// Why, where there is more to say than that it is the default.
    pub reason: Option<String>,
}
/// One of several right-hand sides.
pub struct Column {
    /// As above, of this column.
    pub outcome: String,
    /// As above; absent where nothing broke down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// As above.
    pub iterations: usize,
    /// As above.
    pub residuals: Vec<Option<f64>>,
    /// As above.
    pub true_relative_residual: Option<f64>,
    /// As above.
    pub rounding: Option<f64>,
    /// As above.
    pub field_residuals: Vec<Option<f64>>,
    /// ‖b‖₂ of this column.
    pub rhs_norm: Option<f64>,
    /// Method and preconditioner that ended it.
    pub method: String,
    /// Set-up that it needed, the first one's included, and iterations.
    pub seconds: f64,
    /// As above.
    pub events: Vec<Event>,
}
/// Seconds.
pub struct Seconds {
    /// Reading or generating the system.
    #[serde(default)]
    pub load: f64,
    /// From the arrays in memory to the first iteration, opening the device included.
    pub setup: f64,
    /// The same by part: `device`, `upload`, `survey`, `product`, `subdomains`, `analysis`, `factors`, `compile`, `method`, `other`;
    /// they add up.
    #[serde(default)]
    pub setup_parts: Map<String, serde_json::Value>,
    /// Set-up and iterations; reading and writing files is not in it.
    pub total: f64,
    /// T_dt of the papers: between host and device; 0 on the CPU. These phases are null where the device keeps no time of them.
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
pub struct Event {
    /// `restart`, `fallback`, `refinement`, `choice`, `inconsistent` or `interrupted`.
    pub event: String,
    /// When, where there is a when.
    pub iteration: Option<usize>,
    /// In words.
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
        let krylith_core::solver::Event { kind, iteration, detail } = event;
        // Nothing but a signal stops the command's solves.
        let detail = if *kind == EventKind::Interrupted { "by Ctrl-C or a signal" } else { detail };
        Self { event: kind.name().into(), iteration: *iteration, detail: detail.into() }
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

/// JSON has no NaN.
pub fn finite(x: f64) -> Option<f64> {
    x.is_finite().then_some(x)
}

impl Report {
    /// Writes the report; it appears whole or not at all.
    ///
    /// # Errors
    /// What the file system says.
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
    use std::path::{Path, PathBuf};

    const SECTIONS: [(&str, &str); 2] = [("report", "Report"), ("newton report", "NewtonReport")];

    /// The fields as the guide has them, between the marks of a section.
    fn section(name: &str) -> String {
        let structs: &[_] = if name == "Report" { super::STRUCTS } else { crate::newton::report::STRUCTS };
        let mut text = String::from("| field | is | content |\n|---|---|---|\n");
        for [path, kind, words] in rows(structs, name, "") {
            text += &format!("| `{path}` | {kind} | {words} |\n");
        }
        text
    }

    fn documents(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                documents(&path, found);
            } else if path.extension().is_some_and(|e| e == "md") {
                found.push(path);
            }
        }
    }

    /// The fields in the guide are those of the code, by name, kind and text.
    #[test]
    fn the_guide_has_every_field_of_the_reports() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
        let mut found = Vec::new();
        documents(&docs, &mut found);
        if found.is_empty() {
            return; // a published package has no guide beside it
        }
        for (mark, name) in SECTIONS {
            let (begin, end) = (format!("<!-- {mark}: begin -->\n"), format!("<!-- {mark}: end -->"));
            let text = |path: &PathBuf| std::fs::read_to_string(path).unwrap();
            let path =
                found.iter().find(|path| text(path).contains(&begin)).expect("a document has the section");
            let old = text(path);
            let (before, rest) = old.split_once(&begin).unwrap();
            let (shown, after) = rest.split_once(&end).unwrap();
            let wanted = format!("\n{}\n", section(name));
            if shown != wanted && std::env::var_os("KRYLITH_WRITE_GUIDE").is_some() {
                std::fs::write(path, format!("{before}{begin}{wanted}{end}{after}")).unwrap();
                continue;
            }
            assert_eq!(
                shown, wanted,
                "write it anew: KRYLITH_WRITE_GUIDE=1 cargo test -p krylith-cli --lib guide"
            );
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
