//! The program `krylith-bench`, which `krylith bench` starts: the papers' experiments on this machine.

mod args;

use args::{BenchArgs, Suite};
use clap::{CommandFactory, FromArgMatches};
use krylith_bench::{Asked, DeviceChoice, Launch, Report};
use krylith_cli::failure::{self, DONE, Failure, Result};
use krylith_cli::{files, output, ranks, term};
use krylith_core::{DeviceSpec, Error};
use krylith_model::Machine;
use krylith_report::process::Memory;
use std::process::ExitCode;
use std::time::Instant;

#[global_allocator]
static MEMORY: Memory = Memory;

fn main() -> ExitCode {
    // `answer` starts this program with `solve` to time a whole process; it then runs the `krylith` command,
    // which it includes.
    if std::env::args_os().nth(1).is_some_and(|word| word == "solve") {
        return ExitCode::from(krylith_cli::run(std::env::args_os()));
    }
    let code = failure::guard(|| {
        let given = term::fit_help(BenchArgs::command()).try_get_matches();
        match given.and_then(|given| Ok((BenchArgs::from_arg_matches(&given)?, given))) {
            Ok((args, given)) => {
                if krylith_core::comm::launched() {
                    ranks::start()?;
                    ranks::together(args.suite.check_processes())?;
                }
                ranks::together(args.suite.check(&given))?;
                bench(args)
            }
            Err(e) => Ok(output::of_clap(&e)),
        }
    });
    ExitCode::from(output::close(code))
}

/// Runs a suite, prints its tables and names its files.
fn bench(args: BenchArgs) -> Result<u8> {
    let suite = args.suite;
    let run = match suite {
        Suite::Okp => krylith_bench::okp,
        Suite::Ildu0 => krylith_bench::ildu0,
        Suite::Answer => krylith_bench::answer,
        Suite::Cbcg => krylith_bench::cbcg,
        Suite::Multilevel => krylith_bench::multilevel,
        Suite::Ras => krylith_bench::ras,
        Suite::Spmv => krylith_bench::spmv,
        Suite::Links => krylith_bench::links,
    };
    let (asked, begin) = (ranks::together(asked(args))?, Instant::now());
    let done = run(&asked, &mut |line| {
        if output::speaks() {
            let line = format!("krylith bench: [{:5.1} s] {line}", begin.elapsed().as_secs_f64());
            eprint!("{}", term::fit(&(line + "\n"), term::columns_of_errors()));
        }
    });
    // Only wrong options are wrong on all ranks. Otherwise the others may wait for this rank in the middle of
    // the suite, so its failure ends the job.
    let ends = done.as_ref().is_err_and(|e| matches!(e, Error::Io { .. }) || e.exit_code() != failure::USAGE);
    let done = done.map_err(Failure::from);
    let report = if ends { done? } else { ranks::together(done)? };
    finish(suite, &report)
}

/// Converts the command line to the options of a suite.
fn asked(args: BenchArgs) -> Result<Asked> {
    if let (Suite::Links, Some(path)) = (args.suite, &args.out) {
        output::check_target("--out", path)?;
        let network: Vec<files::Named> = args.network.iter().map(|p| ("--network", p.clone())).collect();
        files::check_apart(&network, &[("--out", path.clone())])?;
    }
    let network = args.network.as_deref().map(Machine::open).transpose()?;
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    let several = ranks::comm().size() > 1;
    if let Some(folder) = args.out.as_ref().filter(|_| several && output::speaks()) {
        std::fs::create_dir_all(folder).map_err(|e| Error::io(folder, e))?;
    }
    let (device, launch) = match several {
        true => processes(args.device)?,
        false => (device(args.suite, args.device)?, Launch::default()),
    };
    let threads = match args.threads {
        None if several => (cores() / ranks::comm().host().ranks_on_host.len()).max(1),
        given => given.unwrap_or(0),
    };
    Ok(Asked {
        device,
        launch,
        scale: args.scale,
        threads,
        // Only rank 0 writes.
        out: args.out.filter(|_| output::speaks()),
        full: args.full,
        parts: [args.parts, args.series].concat(),
        solves: args.solves,
        rounds: args.rounds,
        iterations: args.iterations,
        systems: [args.systems, args.only].concat(),
        cuts: args.cuts,
        ways: args.ways,
        limit: args.limit.map(|seconds| seconds as f64),
        ranks: args.ranks,
        permuted: args.permuted,
        matrices: args.matrices,
        from_device: args.from_device,
        times: args.times,
        program: std::env::current_exe().ok().filter(|_| !args.in_process && !several),
        rock: std::env::var_os("KRYLITH_SPE10").map(Into::into),
        network,
        quick: args.quick,
        command: words.collect::<Vec<_>>().join(" "),
        ..Asked::default()
    })
}

/// Returns the device of a suite: one device, on which baselines and Krylith are compared, or several GPUs.
fn device(suite: Suite, asked: Option<DeviceSpec>) -> Result<DeviceChoice> {
    let there = krylith_core::device::cuda::devices();
    let gpus = match asked.unwrap_or_default() {
        DeviceSpec::Cpu => return Ok(DeviceChoice::Cpu),
        DeviceSpec::Auto if suite == Suite::Links => there?.iter().map(|gpu| gpu.ordinal).collect(),
        DeviceSpec::Auto if there.is_err() => return Ok(DeviceChoice::Cpu),
        DeviceSpec::Cuda(gpus) if !gpus.is_empty() => {
            let count = there?.len();
            if let Some(gpu) = gpus.iter().find(|gpu| **gpu >= count) {
                return Err(Failure::machine(format!("no GPU {gpu}; there are {count}, counted from 0")));
            }
            gpus
        }
        _ => vec![0],
    };
    Ok(DeviceChoice::Cuda(gpus))
}

/// Returns the number of cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// Returns this rank's device, and how the ranks run: each takes one of the GPUs of its host, or a share of
/// the cores.
fn processes(asked: Option<DeviceSpec>) -> Result<(DeviceChoice, Launch)> {
    let comm = ranks::comm();
    let there = krylith_core::device::cuda::devices().map(|gpus| gpus.len());
    let device = match asked.unwrap_or_default() {
        DeviceSpec::Auto if there.is_err() => DeviceSpec::Cpu,
        DeviceSpec::Auto => DeviceSpec::Cuda(Vec::new()),
        given => given,
    };
    let own = match &device {
        DeviceSpec::Cuda(list) => {
            let (host, count) = (comm.host(), there?);
            let gpus = if list.is_empty() { (0..count).collect() } else { list.clone() };
            let ranks = host.ranks_on_host.len();
            let own = gpus.get(host.rank_on_host).filter(|gpu| ranks <= gpus.len() && **gpu < count);
            let own = own.ok_or_else(|| {
                Failure::machine(format!(
                    "--device {device}: the {ranks} ranks on this host need a GPU each, and it has {count}; \
                     start fewer ranks, or name other GPUs"
                ))
            })?;
            DeviceChoice::Cuda(vec![*own])
        }
        _ => DeviceChoice::Cpu,
    };
    Ok((own, Launch::processes(comm, device)))
}

/// Prints a suite's tables and files; failures make the command fail.
fn finish(suite: Suite, report: &Report) -> Result<u8> {
    match term::columns() {
        // Markdown (answer) and a machine file (links) are printed unchanged.
        Some(columns) if !report.parts.is_empty() => {
            let fit = |line: &str| term::fit(&format!("{line}\n"), Some(columns));
            report.facts.iter().for_each(|fact| output::print(&fit(fact)));
            for table in &report.parts {
                output::print(&format!("\n{}{}", fit(&table.title), table.fitted(columns)));
            }
        }
        _ => output::print(&report.tables),
    }
    // In a machine file, which links prints, this line must be a comment.
    let before = if suite == Suite::Links { "# " } else { "" };
    for file in &report.files {
        output::print(&format!("{before}wrote {}\n", file.display()));
    }
    let failures = &report.failures;
    // A baseline that cannot solve is a result; Krylith that cannot solve is a failure.
    let ours: Vec<&String> = failures.iter().filter(|f| f.contains(", Krylith")).collect();
    let message = match suite {
        _ if failures.is_empty() => return Ok(DONE),
        Suite::Answer if ours.is_empty() => return Ok(DONE),
        Suite::Answer => format!("{} solves by Krylith gave no answer, such as {}", ours.len(), ours[0]),
        Suite::Links => format!("some parts were not measured: {}", failures.join("; ")),
        _ => format!(
            "{} of the results failed their check and have no time: {}",
            failures.len(),
            failures.join("; ")
        ),
    };
    let rank = ranks::comm().rank();
    Err(Failure { agreed: true, rank: (rank > 0).then_some(0), ..Failure::machine(message) })
}
