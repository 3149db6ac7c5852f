//! `krylith model`: predicts the time of an iteration on many GPUs, and compares predictions with
//! measurements.

use crate::args::ModelArgs;
use crate::failure::{DONE, Failure, NOT_CONVERGED, Result};
use crate::system::System;
use crate::{files, output, partitions, system};
use krylith_core::Options;
use krylith_core::method::MethodName;
use krylith_core::partition::{Partition, PartitionSpec, Partitioner, choose};
use krylith_core::precond::PrecondSpec;
use krylith_core::solver::Plan;
use krylith_core::text::name;
use krylith_model::report::{self, About, Row, Study};
use krylith_model::{
    Applied, Load, Machine, Messages, Shape, loads, machines, multilevel, poisson, scaling, spmv,
};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Runs the command.
///
/// # Errors
/// A file cannot be read or lacks data, there are more ranks than block rows, or an output file cannot be
/// written.
pub fn model(args: ModelArgs) -> Result<u8> {
    if let Some(files) = &args.compare {
        return compare(files, args.within.unwrap_or(15.0));
    }
    if args.machines {
        output::print(&machines::list()?);
        return Ok(DONE);
    }
    if args.machine.is_empty() {
        let names: Vec<&str> = machines::ALL.iter().map(|m| m.name).collect();
        return Err(Failure::usage(format!(
            "no machine is given; use --machine with {}, or with a file from `krylith bench links` \
             (--machines describes the machines)",
            names.join(", ")
        )));
    }
    check_apart(&args)?;
    let machines =
        args.machine.iter().map(|path| Machine::open(path)).collect::<krylith_core::Result<Vec<_>>>()?;
    let mut files = Files { folder: args.out.clone(), written: Vec::new() };
    match &args.system {
        Some(system) if is_of_levels(&args) => coarse_levels(&args, system, &machines, &mut files)?,
        Some(system) if is_of_okp(&args) => predict(&args, system, &machines, &mut files)?,
        Some(system) => attempt(&args, system, &machines, &mut files)?,
        None if args.poisson.is_some() => stencil(&args, &machines, &mut files)?,
        None if args.spmv.is_some() => products(&args, &machines, &mut files)?,
        None if args.weak.is_none() && args.strong.is_none() => {
            return Err(Failure::usage(
                "nothing to predict is given; use a SYSTEM, --weak NODES, --strong UNKNOWNS, \
                 --poisson NXxNYxNZ or --spmv SPMV.json",
            ));
        }
        None => studies(&args, &machines, &mut files)?,
    }
    for path in &files.written {
        output::print(&format!("wrote {}\n", name(path)));
    }
    Ok(DONE)
}

/// Returns true if the levels of a hierarchy and the bytes of a cycle are to be predicted.
fn is_of_levels(args: &ModelArgs) -> bool {
    matches!(args.precond, Some(PrecondSpec::Amg(_) | PrecondSpec::Coarse(_))) && args.method.is_none()
}

/// Returns true for GMRES without a preconditioner, which `krylith bench okp` measures.
fn is_of_okp(args: &ModelArgs) -> bool {
    let gmres = args.method.as_ref().is_some_and(|m| m.method == Some(MethodName::Gmres));
    gmres && args.precond == Some(PrecondSpec::None)
}

/// Rejects an output folder in which a prediction would replace one of its inputs.
fn check_apart(args: &ModelArgs) -> Result<()> {
    let Some(folder) = &args.out else { return Ok(()) };
    let mut inputs: Vec<files::Named> = args.machine.iter().map(|path| ("--machine", path.clone())).collect();
    inputs.extend(args.system.iter().flat_map(|system| files::of_system(system)));
    let kinds = [("weak", args.weak), ("strong", args.strong)].into_iter().filter(|(_, size)| size.is_some());
    let endings = [".txt", ".json", "-efficiency.svg", "-time.svg"];
    let mut names: Vec<String> =
        kinds.flat_map(|(kind, _)| endings.map(|ending| format!("{kind}{ending}"))).collect();
    let of_system = if is_of_levels(args) { "multilevel.json" } else { "prediction.json" };
    names.extend(args.system.iter().map(|_| of_system.into()));
    names.extend(
        args.spmv.iter().flat_map(|_| ["products.txt", "products.json", "products.svg"].map(String::from)),
    );
    inputs.extend(args.spmv.iter().map(|path| ("--spmv", path.clone())));
    names.extend(args.poisson.iter().flat_map(|_| ["poisson.txt".into(), "poisson.json".into()]));
    let outputs: Vec<files::Named> = names.iter().map(|name| ("--out", folder.join(name))).collect();
    files::check_apart(&inputs, &outputs)
}

/// Files written to a folder, if one is given.
struct Files {
    folder: Option<PathBuf>,
    written: Vec<PathBuf>,
}

impl Files {
    fn write(&mut self, name: &str, text: &str) -> Result<()> {
        let Some(folder) = &self.folder else { return Ok(()) };
        std::fs::create_dir_all(folder).map_err(|e| krylith_core::Error::io(folder, e))?;
        let path = folder.join(name);
        krylith_core::io::atomic::write(&path, |file| file.write_all(text.as_bytes()))?;
        self.written.push(path);
        Ok(())
    }
}

/// Returns the command line, with replacements for text that is not Unicode.
fn command() -> String {
    std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// Formats JSON for a file.
fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

/// A system, and its partitions for several numbers of GPUs.
struct Shares {
    system: System,
    way: PartitionSpec,
    /// The reasons for the partitions, a line for each number of GPUs.
    reasons: Vec<String>,
    /// The number of GPUs, the number of hosts, and the load of each GPU.
    shares: Vec<(usize, usize, Vec<Load>)>,
}

impl Shares {
    /// Reads the system and partitions it.
    fn of(args: &ModelArgs, system: &Path, machine: &Machine) -> Result<Self> {
        if args.to.is_some() {
            return Err(Failure::usage(
                "--to applies only to --weak and --strong; give numbers of GPUs with --gpus",
            ));
        }
        let numbers = if args.gpus.is_empty() { vec![1, 2, 4] } else { args.gpus.clone() };
        crate::interrupt::watch()?;
        let system = system::load(system, args.block, Default::default())?;
        let terms = system.operator.terms();
        let way = args.partition.unwrap_or_default();
        let (mut shares, mut reasons) = (Vec::new(), Vec::new());
        for &gpus in &numbers {
            partitions::check(&system, gpus)?;
            let hosts = args.hosts.unwrap_or(gpus.div_ceil(machine.gpus_per_host));
            if hosts > gpus {
                return Err(Failure::usage(format!("{hosts} hosts for {gpus} GPUs; each host needs a GPU")));
            }
            let points = system.coordinates.as_deref();
            let (partition, reason) = match gpus {
                // Boxes of a given shape are those of another number of GPUs.
                1 => (Partition::by_rows(system.order.nodes, 1)?, String::new()),
                _ => choose(&terms, points, system.grid, gpus, way)?,
            };
            if gpus > 1 {
                reasons.push(format!("  {gpus} GPUs: {reason}"));
            }
            shares.push((gpus, hosts, loads(&terms, &partition, hosts)?));
        }
        Ok(Self { way, reasons, shares, system })
    }

    fn about(&self, restart: usize) -> About {
        About {
            system: self.system.name.clone(),
            nodes: self.system.order.nodes,
            partition: self.way.to_string(),
            reasons: self.reasons.clone(),
            restart,
            command: command(),
        }
    }
}

/// Returns the only machine of a prediction; several are an error.
fn one<'a>(machines: &'a [Machine], what: &str) -> Result<&'a Machine> {
    match machines {
        [machine] => Ok(machine),
        _ => Err(Failure::usage(format!("{what} predicted for one machine at a time; give one --machine"))),
    }
}

/// Predicts GMRES without a preconditioner for several numbers of GPUs.
fn predict(args: &ModelArgs, system: &Path, machines: &[Machine], files: &mut Files) -> Result<()> {
    let machine = one(machines, "a system is")?;
    let shared = Shares::of(args, system, machine)?;
    let terms = shared.system.operator.terms();
    let named = args.method.as_ref().and_then(|method| method.restart);
    let restart = args.restart.or(named).unwrap_or(30);
    let mut rows = Vec::new();
    for dense in [true, false] {
        let shape = Shape::of(&terms, dense);
        for (gpus, hosts, loads) in &shared.shares {
            let times = machine.predict(loads, &shape, dense, restart, *hosts)?;
            let messages = Messages::of(loads, &shape);
            rows.push(Row { gpus: *gpus, hosts: *hosts, dense, times, messages });
        }
    }
    let about = shared.about(restart);
    output::print(&report::table(&about, machine, &rows));
    files.write("prediction.json", &pretty(&report::prediction(&about, machine, &rows)))
}

/// Predicts the choice of `auto`, or the given method and preconditioner, on such a GPU.
fn attempt(args: &ModelArgs, system: &Path, machines: &[Machine], files: &mut Files) -> Result<()> {
    let machine = one(machines, "a system is")?;
    let shared = Shares::of(args, system, machine)?;
    let terms = shared.system.operator.terms();
    let asked = Options {
        restart: args.restart.or(args.method.as_ref().and_then(|method| method.restart)),
        precond: args.precond.clone(),
        ..args.method.clone().unwrap_or_default()
    };
    let options = crate::options::settle(&asked, &shared.system.solver, &shared.system.label)?;
    let problem = shared.system.problem()?;
    let plan = Plan::on_gpu(&problem, &problem.diagnosis()?, &options)?;
    let threads = options.threads.unwrap_or_else(krylith_core::solver::host::cores);
    let (mut before, mut found) = (Vec::new(), None);
    for (k, attempt) in plan.attempts.iter().enumerate() {
        match Applied::of(&attempt.precond, &terms, threads) {
            Ok(applied) => {
                found = Some((k, attempt, applied));
                break;
            }
            Err(e) => before.push((attempt.name.clone(), e.to_string())),
        }
    }
    let Some((k, planned, applied)) = found else {
        let (name, why) = before.into_iter().next().unwrap_or_default();
        return Err(Failure::usage(format!("{name} is not predicted: {why}")));
    };
    let shape = Shape::of(&terms, false);
    let structured = shape.is_structured();
    let mut notes = Vec::new();
    let mut lines = Vec::new();
    for (gpus, hosts, loads) in &shared.shares {
        if *gpus > 1 && applied.is_of_one_gpu() {
            notes = vec!["Coarse levels can be predicted only for one GPU.".to_string()];
            continue;
        }
        let times = machine.iteration(loads, &shape, !structured, &planned.method, &applied, *hosts)?;
        let messages = Messages::of(loads, &shape);
        lines.push(report::Line { gpus: *gpus, hosts: *hosts, times, messages });
    }
    if lines.is_empty() {
        return Err(Failure::usage("coarse levels can be predicted only for one GPU; use --gpus 1"));
    }
    if !applied.is_exact() {
        notes.push(
            "The levels of incomplete factors wait for each other, which a count of bytes does not include."
                .into(),
        );
    }
    let open = matches!(options.precond, None | Some(PrecondSpec::Auto))
        || matches!(options.method, None | Some(MethodName::Auto));
    let made = report::Attempt {
        name: planned.name.clone(),
        before,
        behind: plan.attempts.len() - 1 - k,
        auto: open,
        least: !applied.is_exact(),
        structured,
        notes,
    };
    let about = shared.about(planned.method.restart().unwrap_or(0));
    output::print(&report::attempt(&about, machine, &made, &lines));
    files.write("prediction.json", &pretty(&report::attempt_json(&about, machine, &made, &lines)))
}

/// Predicts the set-up and the cycle of coarse levels.
fn coarse_levels(args: &ModelArgs, system: &Path, machines: &[Machine], files: &mut Files) -> Result<()> {
    let machine = one(machines, "a system is")?;
    let Some(precond) = &args.precond else { return Ok(()) };
    if args.gpus.iter().any(|gpus| *gpus != 1) || args.hosts.is_some() || args.partition.is_some() {
        return Err(Failure::usage(
            "coarse levels can be predicted only for one GPU; omit --gpus, --hosts and --partition",
        ));
    }
    crate::interrupt::watch()?;
    let system = system::load(system, args.block, Default::default())?;
    let terms = system.operator.terms();
    let options = multilevel::options(precond, &terms)?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (hierarchy, here) = multilevel::measure(&terms, options, threads)?;
    let title = format!("{}, {precond}", system.name);
    output::print(&multilevel::text(&title, machine, &hierarchy, &here));
    files.write("multilevel.json", &pretty(&multilevel::json(&title, machine, &hierarchy, &here)))
}

/// Predicts products with the matrices that `krylith bench spmv` measured.
fn products(args: &ModelArgs, machines: &[Machine], files: &mut Files) -> Result<()> {
    let machine = one(machines, "products are")?;
    let Some(path) = &args.spmv else { return Ok(()) };
    let gpus = if args.gpus.is_empty() { vec![1, 2, 4, 8, 16, 32, 64] } else { args.gpus.clone() };
    let profiles = spmv::profiles(&json(path)?)?;
    let study = spmv::study(machine, &profiles, &gpus);
    output::print(&study.text);
    files.write("products.txt", &study.text)?;
    files.write("products.json", &pretty(&study.json))?;
    files.write("products.svg", &study.picture)
}

/// Predicts weak and strong scaling on every machine.
fn studies(args: &ModelArgs, machines: &[Machine], files: &mut Files) -> Result<()> {
    let to = args.to.unwrap_or(8192);
    let cut = match args.partition.unwrap_or_default() {
        PartitionSpec::Auto => scaling::Cut::Auto,
        PartitionSpec::Boxes(None) => scaling::Cut::Boxes,
        PartitionSpec::By(Partitioner::Rows | Partitioner::Nonzeros) => scaling::Cut::Slabs,
        other => {
            return Err(Failure::usage(format!(
                "--partition {other}: --weak and --strong have no system to partition; use auto, rows (slabs) \
                 or boxes"
            )));
        }
    };
    let kinds = [(true, args.weak), (false, args.strong)];
    for (weak, size) in kinds.into_iter().filter_map(|(weak, size)| Some((weak, size?))) {
        let (name, title) = match weak {
            true => ("weak", format!("Weak scaling, {size} nodes a GPU")),
            false => ("strong", format!("Strong scaling, {size:e} unknowns")),
        };
        let points = |m: &Machine| {
            if weak { scaling::weak(m, size, to, cut) } else { scaling::strong(m, size, to, cut) }
        };
        let studies = machines
            .iter()
            .map(|m| Ok(Study { points: points(m)?, machine: m.clone() }))
            .collect::<krylith_core::Result<Vec<_>>>()?;
        let tables = report::tables(&title, &studies, weak);
        output::print(&tables);
        files.write(&format!("{name}.txt"), &tables)?;
        files.write(&format!("{name}.json"), &pretty(&report::study(&title, &studies, weak, &command())))?;
        for (file, picture) in report::pictures(&title, &studies, weak) {
            files.write(&file, &picture)?;
        }
    }
    Ok(())
}

/// Predicts P-CG and P-CBCG for a Poisson equation.
fn stencil(args: &ModelArgs, machines: &[Machine], files: &mut Files) -> Result<()> {
    let machine = one(machines, "--poisson is")?;
    let text = args.poisson.as_deref().unwrap_or_default();
    let sizes: Option<Vec<usize>> = text.split('x').map(|n| n.parse().ok().filter(|&n| n > 0)).collect();
    let Some(&[nx, ny, nz]) = sizes.as_deref() else {
        return Err(Failure::usage(format!(
            "--poisson {text}: expected NXxNYxNZ in grid points, such as 1280x1280x4608"
        )));
    };
    let (grid, s) = ([nx, ny, nz], args.steps.map_or(poisson::STEPS, usize::from));
    let mut gpus = args.gpus.clone();
    if gpus.is_empty() {
        let published = machine.poisson.iter().flat_map(|p| &p.published).filter(|p| p.grid == grid);
        gpus = published.flat_map(|p| [Some(p.gpus), p.over]).flatten().collect();
        gpus.sort_unstable();
        gpus.dedup();
        if gpus.is_empty() {
            gpus = vec![1, 2, 4];
        }
    }
    let study = poisson::Study::new(machine, grid, s, &gpus)?;
    let tables = study.text(machine);
    output::print(&tables);
    files.write("poisson.txt", &tables)?;
    files.write("poisson.json", &pretty(&study.json(machine, &command())))
}

/// Compares a prediction with a measurement; the exit code is that of a solve without convergence if an error
/// is too large.
fn compare(files: &[PathBuf], within: f64) -> Result<u8> {
    if !(within.is_finite() && within > 0.0) {
        return Err(Failure::usage(format!("--within {within}: expected a positive percentage")));
    }
    let [prediction, bench] = files else {
        return Err(Failure::usage("--compare takes two files: PREDICTION.json BENCH.json"));
    };
    let compared = report::compare(&json(prediction)?, &json(bench)?)?;
    output::print(&report::comparison(&compared, within / 100.0));
    let worst = compared.iter().map(|c| c.error().abs()).fold(0.0, f64::max);
    if worst <= within / 100.0 {
        return Ok(DONE);
    }
    output::error(&format!(
        "the worst prediction is {:.1} % off, more than the {within} % of --within",
        100.0 * worst
    ));
    Ok(NOT_CONVERGED)
}

fn json(path: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(path).map_err(|e| krylith_core::Error::io(path, e))?;
    serde_json::from_str(&text).map_err(|e| Failure::usage(format!("{}: not JSON: {e}", name(path))))
}
