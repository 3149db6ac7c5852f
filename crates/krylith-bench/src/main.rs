//! `krylith-bench`, which `krylith bench` starts: the papers' experiments on this machine.

mod args;

use args::{BenchArgs, Suite};
use clap::Parser;
use krylith::DeviceSpec;
use krylith_bench::{
    AnswerOptions, CbcgSuite, DeviceChoice, Ildu0Options, LinksOptions, MultilevelSuite, OkpOptions,
    OkpReport, RasSuite, Series, SpmvOptions, cbcg, ildu0, multilevel, okp, ras, spmv,
};
use krylith_cli::failure::{self, DONE, Failure, Result};
use krylith_cli::process::Memory;
use krylith_cli::{files, output};
use krylith_model::Machine;
use std::process::ExitCode;

#[global_allocator]
static MEMORY: Memory = Memory;

fn main() -> ExitCode {
    // What `answer` starts to time a whole process: a solve by the command, of which this program is made too.
    if std::env::args_os().nth(1).is_some_and(|word| word == "solve") {
        return ExitCode::from(krylith_cli::run(std::env::args_os()));
    }
    let code = failure::guard(|| {
        let args = match BenchArgs::try_parse() {
            Ok(args) => args,
            Err(e) => {
                output::printed(e.print());
                return Ok(e.exit_code() as u8);
            }
        };
        krylith::comm::check_launch()?;
        bench(args)
    });
    ExitCode::from(output::close(code))
}

/// Runs a suite, prints its tables and says where its files are.
fn bench(args: BenchArgs) -> Result<u8> {
    if !args.ways.is_empty() && !matches!(args.suite, Suite::Multilevel | Suite::Answer) {
        return Err(Failure::usage("--ways is for `krylith bench answer` and `multilevel`"));
    }
    if args.suite == Suite::Answer {
        return answer(args);
    }
    if args.suite == Suite::Spmv {
        return products(args);
    }
    if !args.only.is_empty() || args.permuted || args.matrices.is_some() || args.iterations.is_some() {
        return Err(Failure::usage(
            "--only, --permuted, --matrices and --iterations are for `krylith bench spmv`",
        ));
    }
    if args.ranks.is_some() || args.limit.is_some() || args.in_process {
        return Err(Failure::usage("--ranks, --limit and --in-process are for `krylith bench spmv`"));
    }
    if (args.rounds.is_some() && !matches!(args.suite, Suite::Ras | Suite::Multilevel)) || args.from_device {
        return Err(Failure::usage(
            "--rounds is for `krylith bench answer`, `multilevel`, `ras` and `spmv`, --from-device for the first",
        ));
    }
    if !args.systems.is_empty() && !matches!(args.suite, Suite::Cbcg | Suite::Multilevel) {
        return Err(Failure::usage("--systems is for `krylith bench answer`, `multilevel` and `cbcg`"));
    }
    if args.parts.is_some() && !matches!(args.suite, Suite::Cbcg | Suite::Multilevel | Suite::Ras) {
        return Err(Failure::usage("--parts is for `krylith bench cbcg`, `multilevel`, `ras` and `spmv`"));
    }
    if args.suite == Suite::Links {
        return links(args);
    }
    if args.quick || args.network.is_some() {
        return Err(Failure::usage("--quick and --network are for `krylith bench links`"));
    }
    if args.suite == Suite::Ildu0 {
        return triangular(args);
    }
    if args.suite == Suite::Cbcg {
        return structured(args);
    }
    if args.suite == Suite::Ras {
        return schwarz(args);
    }
    if args.suite == Suite::Multilevel {
        return coarse_levels(args);
    }
    let named: krylith::Result<Vec<Series>> = args.series.iter().map(|name| name.parse()).collect();
    let named = named.map_err(|e| Failure::usage(format!("--series: {e}")))?;
    let series = if named.is_empty() { Series::ALL.to_vec() } else { named };
    let options = OkpOptions {
        device: device(args.device.as_ref()),
        scale: args.scale,
        out: args.out,
        full: args.full,
        threads: args.threads.unwrap_or(0),
        solves: args.solves,
        series,
        ..OkpOptions::default()
    };
    finish(&okp(&options, &mut |line| eprintln!("krylith bench: {line}"))?)
}

/// Triangular solves and BiCGSTAB.
fn triangular(args: BenchArgs) -> Result<u8> {
    if !args.series.is_empty() {
        return Err(Failure::usage("--series is for `krylith bench okp`"));
    }
    let options = Ildu0Options {
        device: device(args.device.as_ref()),
        scale: args.scale,
        out: args.out,
        full: args.full,
        threads: args.threads.unwrap_or(0),
        solves: args.solves,
        ..Ildu0Options::default()
    };
    finish(&ildu0(&options, &mut |line| eprintln!("krylith bench: {line}"))?)
}

/// P-CG and P-CBCG.
fn structured(args: BenchArgs) -> Result<u8> {
    if !args.series.is_empty() {
        return Err(Failure::usage("--series is for `krylith bench okp`"));
    }
    let device = device(args.device.as_ref());
    // What a slow network makes of the methods is measured on a CPU, and keeps a GPU waiting.
    let ranks = if device == DeviceChoice::Cpu { CbcgSuite::default().ranks } else { 0 };
    let options = CbcgSuite {
        device,
        systems: args.systems,
        scale: args.scale,
        out: args.out,
        full: args.full,
        threads: args.threads.unwrap_or(0),
        solves: args.solves,
        ranks,
        parts: parts(args.parts)?.unwrap_or(CbcgSuite::default().parts),
        ..CbcgSuite::default()
    };
    finish(&cbcg(&options, &mut |line| eprintln!("krylith bench: {line}"))?)
}

/// Randomized Schwarz in Newton steps.
fn schwarz(args: BenchArgs) -> Result<u8> {
    if !args.series.is_empty() {
        return Err(Failure::usage("--series is for `krylith bench okp`"));
    }
    let options = RasSuite {
        device: device(args.device.as_ref()),
        scale: args.scale,
        out: args.out,
        full: args.full,
        threads: args.threads.unwrap_or(0),
        solves: args.solves,
        repeats: args.rounds.unwrap_or(RasSuite::default().repeats),
        parts: parts(args.parts)?.unwrap_or(RasSuite::default().parts),
        ..RasSuite::default()
    };
    let begin = std::time::Instant::now();
    finish(&ras(&options, &mut |line| {
        eprintln!("krylith bench: [{:5.1} s] {line}", begin.elapsed().as_secs_f64());
    })?)
}

/// Hierarchies of coarse levels.
fn coarse_levels(args: BenchArgs) -> Result<u8> {
    if !args.series.is_empty() || args.solves.is_some() {
        return Err(Failure::usage(
            "`krylith bench multilevel` takes --parts, --systems, --ways, --full, --rounds, --scale, --threads and --out",
        ));
    }
    let default = MultilevelSuite::default();
    let options = MultilevelSuite {
        device: device(args.device.as_ref()),
        scale: args.scale,
        systems: args.systems,
        ways: args.ways,
        full: args.full,
        rounds: args.rounds.unwrap_or(default.rounds),
        threads: args.threads.unwrap_or(0),
        parts: parts(args.parts)?.unwrap_or(default.parts),
        out: args.out,
        ..MultilevelSuite::default()
    };
    let begin = std::time::Instant::now();
    finish(&multilevel(&options, &mut |line| {
        eprintln!("krylith bench: [{:5.1} s] {line}", begin.elapsed().as_secs_f64());
    })?)
}

/// Sparse products on one device and several.
fn products(args: BenchArgs) -> Result<u8> {
    let foreign = !args.series.is_empty()
        || args.solves.is_some()
        || args.full
        || args.quick
        || args.from_device
        || args.network.is_some()
        || !args.systems.is_empty();
    if foreign {
        return Err(Failure::usage(
            "`krylith bench spmv` takes --only, --permuted, --matrices, --parts, --rounds, --iterations, --ranks, --limit, \
             --in-process, --scale, --threads and --out",
        ));
    }
    let options = SpmvOptions::default();
    let options = SpmvOptions {
        device: device(args.device.as_ref()),
        scale: args.scale,
        only: args.only,
        permuted: args.permuted,
        parts: parts(args.parts)?.unwrap_or(options.parts),
        matrices: args.matrices,
        out: args.out,
        repetitions: args.rounds.unwrap_or(options.repetitions),
        iterations: args.iterations,
        threads: args.threads.unwrap_or(0),
        ranks: args.ranks.unwrap_or(options.ranks),
        program: std::env::current_exe().ok().filter(|_| !args.in_process),
        limit: args.limit.map_or(options.limit, |seconds| std::time::Duration::from_secs(seconds as u64)),
        command: options.command,
    };
    if let DeviceChoice::Cuda(gpus) = &options.device {
        let there = krylith::device::cuda::devices()?.len();
        if let Some(gpu) = gpus.iter().find(|gpu| **gpu >= there) {
            return Err(Failure::machine(format!("no GPU {gpu}; there are {there}, counted from 0")));
        }
    }
    let begin = std::time::Instant::now();
    finish(&spmv(&options, &mut |line| {
        eprintln!("krylith bench: [{:5.1} s] {line}", begin.elapsed().as_secs_f64());
    })?)
}

/// The words of --parts, as a suite knows them.
fn parts<T: std::str::FromStr<Err = krylith::Error>>(words: Option<Vec<String>>) -> Result<Option<Vec<T>>> {
    let Some(words) = words else { return Ok(None) };
    let parse = |word: &String| word.parse().map_err(|e| Failure::usage(format!("--parts {word}: {e}")));
    words.iter().map(parse).collect::<Result<_>>().map(Some)
}

/// Everything from arrays to x.
fn answer(args: BenchArgs) -> Result<u8> {
    let foreign =
        args.parts.is_some() || !args.series.is_empty() || args.solves.is_some() || args.full || args.quick;
    if foreign || args.network.is_some() {
        return Err(Failure::usage(
            "`krylith bench answer` takes --systems, --ways, --rounds, --from-device and --scale",
        ));
    }
    let mut options = AnswerOptions {
        device: device(args.device.as_ref()),
        systems: args.systems,
        ways: args.ways,
        scale: args.scale,
        from_device: args.from_device,
        threads: args.threads.unwrap_or(0),
        program: std::env::current_exe().ok(),
        out: args.out,
        ..AnswerOptions::default()
    };
    options.rounds = args.rounds.unwrap_or(options.rounds);
    let report = krylith_bench::answer(&options, &mut |line| eprintln!("krylith bench: {line}"))?;
    output::print(&report.tables);
    for file in &report.files {
        output::print(&format!("wrote {}\n", file.display()));
    }
    // What a baseline cannot solve is a finding; what Krylith cannot is a failure.
    let ours: Vec<&String> = report.failures.iter().filter(|f| f.contains(", Krylith")).collect();
    match ours.first() {
        None => Ok(DONE),
        Some(first) => Err(Failure::machine(format!("{} without an answer, such as {first}", ours.len()))),
    }
}

/// Prints a suite's tables and files; what failed its check makes the command fail.
fn finish(report: &OkpReport) -> Result<u8> {
    output::print(&report.tables);
    for file in &report.files {
        output::print(&format!("wrote {}\n", file.display()));
    }
    match report.failures.as_slice() {
        [] => Ok(DONE),
        failures => Err(Failure::machine(format!(
            "{} of the results failed their check and have no time: {}",
            failures.len(),
            failures.join("; ")
        ))),
    }
}

/// Measures what `krylith model` needs to know of this machine, and prints the machine file.
fn links(args: BenchArgs) -> Result<u8> {
    if args.scale.is_some() || args.threads.is_some() || args.full {
        return Err(Failure::usage("--scale, --threads and --full are not for `krylith bench links`"));
    }
    if let Some(path) = &args.out {
        output::check_target("--out", path)?;
        let network: Vec<files::Named> = args.network.iter().map(|p| ("--network", p.clone())).collect();
        files::check_apart(&network, &[("--out", path.clone())])?;
    }
    let gpus = match &args.device {
        Some(DeviceSpec::Cpu) => {
            return Err(Failure::usage("`krylith bench links` measures GPUs; use --device cuda:0,1,…"));
        }
        Some(DeviceSpec::Cuda(gpus)) if !gpus.is_empty() => gpus.clone(),
        Some(DeviceSpec::Cuda(_)) => vec![0],
        None | Some(DeviceSpec::Auto) => {
            krylith::device::cuda::devices()?.iter().map(|d| d.ordinal).collect()
        }
    };
    let command = krylith_bench::command_line();
    let network = args.network.as_deref().map(Machine::open).transpose()?;
    let options = LinksOptions { gpus, out: args.out, network, quick: args.quick, command };
    let begin = std::time::Instant::now();
    let report = krylith_bench::links(&options, &mut |line| {
        eprintln!("krylith bench: [{:5.1} s] {line}", begin.elapsed().as_secs_f64());
    })?;
    output::print(&report.text);
    for file in &report.files {
        output::print(&format!("# wrote {}\n", file.display()));
    }
    match report.failures.as_slice() {
        [] => Ok(DONE),
        failures => Err(Failure::machine(format!("not all was measured: {}", failures.join("; ")))),
    }
}

/// Where a suite runs: on one device, baselines and Krylith beside each other, or on several GPUs.
fn device(asked: Option<&DeviceSpec>) -> DeviceChoice {
    match asked {
        Some(DeviceSpec::Cpu) => DeviceChoice::Cpu,
        Some(DeviceSpec::Cuda(gpus)) if !gpus.is_empty() => DeviceChoice::Cuda(gpus.clone()),
        Some(DeviceSpec::Cuda(_)) => DeviceChoice::Cuda(vec![0]),
        None | Some(DeviceSpec::Auto) => match krylith::device::cuda::devices() {
            Ok(_) => DeviceChoice::Cuda(vec![0]),
            Err(_) => DeviceChoice::Cpu,
        },
    }
}
