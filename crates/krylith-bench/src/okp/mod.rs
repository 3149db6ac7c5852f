//! The experiments of "A multi-GPU enabled solver in Kronecker product form". On one device: the product, the
//! orthogonalisation, and GMRES(30) around them. On several GPUs: GMRES(30) on 1, 2, 4, … of them.

#[cfg(feature = "cuda")]
mod gpus;
#[cfg(feature = "cuda")]
mod gpus_report;
mod orthogonalization;
mod product;
mod report;
mod solve;

use crate::cpu::CpuPlatform;
use crate::platform::{Effort, Platform};
use crate::systems::{self, PAPER};
use krylith::{Error, Result, Store};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// 1, 2, 4, … and all.
pub(crate) fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |c| Some(2 * c)).take_while(|&c| c < all).collect();
    counts.push(all);
    counts
}

/// Where a suite runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The threads of this process.
    Cpu,
    /// GPUs by number, at least one; with several the suite measures how solvers scale over them.
    Cuda(Vec<usize>),
}

impl DeviceChoice {
    /// The GPUs, none of a CPU.
    pub fn gpus(&self) -> &[usize] {
        match self {
            DeviceChoice::Cpu => &[],
            DeviceChoice::Cuda(gpus) => gpus,
        }
    }
}

impl FromStr for DeviceChoice {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let known = match text {
            "cpu" => Some(DeviceChoice::Cpu),
            "cuda" => Some(DeviceChoice::Cuda(vec![0])),
            other => other
                .strip_prefix("cuda:")
                .and_then(|list| list.split(',').map(|n| n.parse().ok()).collect::<Option<Vec<usize>>>())
                .map(DeviceChoice::Cuda),
        };
        known.ok_or_else(|| {
            Error::invalid(format!(
                "unknown device `{text}`; use cpu, cuda, cuda:NUMBER or cuda:NUMBER,NUMBER,…"
            ))
        })
    }
}

/// A series of runs on 1, 2, 4, … GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Series {
    /// The paper's size on more and more GPUs.
    Strong,
    /// The paper's size on each GPU.
    Weak,
    /// Eight times the paper's size on more and more GPUs.
    Large,
}

impl Series {
    /// All of them.
    pub const ALL: [Series; 3] = [Series::Strong, Series::Weak, Series::Large];
}

impl FromStr for Series {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        match text {
            "strong" => Ok(Series::Strong),
            "weak" => Ok(Series::Weak),
            "large" => Ok(Series::Large),
            _ => Err(Error::invalid(format!("unknown series `{text}`; use strong, weak or large"))),
        }
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct OkpOptions {
    /// Device.
    pub device: DeviceChoice,
    /// Factor on the number of nodes; 1 is the paper's size, 53×53×54. Default: 1 on a GPU, 1/8 on a CPU.
    pub scale: Option<f64>,
    /// Folder for `okp.txt`, `okp.json` and `okp.html`; nothing is written without one.
    pub out: Option<PathBuf>,
    /// Samples of a product or an orthogonalisation; at least 20 for figures that are quoted.
    pub repetitions: usize,
    /// Samples of a whole solve. Default: 20 on GPUs, 3 on a CPU.
    pub solves: Option<usize>,
    /// What is measured on several GPUs.
    pub series: Vec<Series>,
    /// GMRES iterations of a solve. Default: 300 (10 cycles) on a GPU, 60 on a CPU and for the further sizes on several
    /// GPUs.
    pub iterations: Option<usize>,
    /// Threads on a CPU; 0 means all cores.
    pub threads: usize,
    /// All 32 block sizes and numbers of stages too.
    pub full: bool,
    /// Least bytes that the rotating sets of buffers hold together. Default: 1 GB on a GPU, 250 MB on a CPU.
    pub traffic: Option<u64>,
    /// How the program was called, for the record.
    pub command: String,
}

impl Default for OkpOptions {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Cpu,
            scale: None,
            out: None,
            repetitions: 20,
            solves: None,
            iterations: None,
            series: Series::ALL.to_vec(),
            threads: 0,
            full: false,
            traffic: None,
            command: crate::command_line(),
        }
    }
}

/// What was measured.
#[derive(Debug, Clone)]
pub struct OkpReport {
    /// Tables for a terminal.
    pub tables: String,
    /// Everything, raw samples too.
    pub json: Value,
    /// One self-contained page.
    pub html: String,
    /// What failed its check, or could not run; such a row has no time.
    pub failures: Vec<String>,
    /// Files that were written.
    pub files: Vec<PathBuf>,
}

impl OkpReport {
    /// Tables, raw data and the page as `NAME.txt`, `.json` and `.html`, if a folder is wanted.
    pub(crate) fn write(&mut self, folder: Option<&Path>, name: &str) -> Result<()> {
        let Some(folder) = folder else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
        let json = serde_json::to_string_pretty(&self.json).unwrap_or_default();
        for (kind, text) in [("txt", &self.tables), ("json", &json), ("html", &self.html)] {
            let path = folder.join(format!("{name}.{kind}"));
            krylith::io::atomic::write(&path, |file| file.write_all(text.as_bytes()))?;
            self.files.push(path);
        }
        Ok(())
    }
}

/// GMRES(m).
const RESTART: usize = 30;

/// Runs the suite; `progress` hears a line before each part.
///
/// # Errors
/// A device or library that is missing (by name), no room, an output file that cannot be written. A result that
/// fails its check is no error: it is a row without a time in the tables, and is listed under `failures`.
pub fn okp(options: &OkpOptions, progress: &mut dyn FnMut(&str)) -> Result<OkpReport> {
    if options.repetitions == 0 || options.iterations == Some(0) || options.solves == Some(0) {
        return Err(Error::invalid("repetitions, solves and iterations must be at least 1"));
    }
    if options.scale.is_some_and(|s| !(s.is_finite() && s > 0.0)) {
        return Err(Error::invalid("the scale must be a positive number"));
    }
    match &options.device {
        DeviceChoice::Cpu => run(&CpuPlatform::new(options.threads), options, progress),
        #[cfg(feature = "cuda")]
        DeviceChoice::Cuda(gpus) => match gpus[..] {
            [] => Err(Error::invalid("no GPU is named; use cuda:0")),
            [gpu] => run(&crate::cuda::CudaPlatform::open(gpu)?, options, progress),
            _ => gpus::run(gpus, options, progress),
        },
        #[cfg(not(feature = "cuda"))]
        DeviceChoice::Cuda(_) => Err(Error::Unsupported("this build has no CUDA".into())),
    }
}

/// Options with the device's defaults filled in.
#[derive(Debug, Clone, Copy)]
struct Plan {
    nodes: [usize; 3],
    repetitions: usize,
    solves: usize,
    iterations: usize,
    traffic: u64,
}

fn run<P: Platform>(p: &P, options: &OkpOptions, progress: &mut dyn FnMut(&str)) -> Result<OkpReport> {
    let gpu = options.device != DeviceChoice::Cpu;
    let pick = |on_gpu: usize, on_cpu: usize| if gpu { on_gpu } else { on_cpu };
    let plan = Plan {
        nodes: systems::scaled(PAPER, options.scale.unwrap_or(if gpu { 1.0 } else { 0.125 })),
        repetitions: options.repetitions,
        solves: options.solves.unwrap_or(pick(20, 3)),
        iterations: options.iterations.unwrap_or(pick(300, 60)),
        traffic: options.traffic.unwrap_or(pick(1_000_000_000, 250_000_000) as u64),
    };
    let mut found = report::Findings::default();

    progress("measuring the bandwidth that shares are taken of");
    found.bandwidth = p.bandwidth()?;
    found.peak = p.peak();
    let [x, y, z] = plan.nodes;
    let grid = format!("{x}×{y}×{z}");

    progress(&format!("products, random dense blocks, {grid} nodes"));
    let k = systems::random(plan.nodes, 4, 2, 11)?;
    let ours = [(Store::F64, true), (Store::F32, true)];
    found.products.push(product::measure(
        p,
        &format!("random blocks, {grid}"),
        &k,
        &ours,
        &plan,
        Effort::All,
    )?);
    drop(k);

    progress(&format!("products, Stokes, {grid} nodes"));
    let case = systems::stokes(plan.nodes)?;
    let ours = [(Store::F64, true), (Store::F64, false), (Store::F32, false)];
    let name = format!("Stokes, {grid}");
    found.products.push(product::measure(p, &name, &case.kronecker, &ours, &plan, Effort::Vendor)?);

    for columns in [1, 5, 15, 30] {
        progress(&format!("orthogonalisation against {columns} columns"));
        found.orthogonalizations.extend(orthogonalization::measure(
            p,
            case.kronecker.rows(),
            columns,
            &plan,
        )?);
    }

    progress(&format!("GMRES({RESTART}), {} iterations, {grid} nodes", plan.iterations));
    found.solves = solve::measure(p, &case, &plan, progress)?;
    let spec = case.spec.clone();
    drop(case);

    let meta = json!({
        "schema": 1, "suite": "okp", "krylith": env!("CARGO_PKG_VERSION"), "command": options.command,
        "device": p.describe(), "system": spec, "nodes": plan.nodes, "repetitions": plan.repetitions,
        "solves": plan.solves, "iterations": plan.iterations, "restart": RESTART,
        "seconds_since_epoch": std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    });
    if options.full {
        for b in 1..=8usize {
            // The sweep is long: what there is by now stays if it is interrupted.
            report::make(&found, meta.clone()).write(options.out.as_deref(), "okp")?;
            let per_node = 15.0 * (16 * b * b + 4) as f64;
            let side = (1.05 * plan.traffic as f64 / per_node).cbrt().ceil() as usize;
            let mut k = systems::random([side; 3], b, 1, b as u64)?;
            for s in 1..=4 {
                progress(&format!("products, random blocks, b = {b}, s = {s}, {side}³ nodes"));
                (k.a, k.b) = systems::coefficients(s, (8 * b + s) as u64)?;
                let name = format!("random blocks, {side}³");
                let ours = [(Store::F64, true)];
                found.sweep.push(product::measure(p, &name, &k, &ours, &plan, Effort::First)?);
            }
        }
    }

    let mut made = report::make(&found, meta);
    made.write(options.out.as_deref(), "okp")?;
    Ok(made)
}
