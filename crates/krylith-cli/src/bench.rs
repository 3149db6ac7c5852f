//! `krylith bench`: the papers' experiments on this machine.

use crate::args::{BenchArgs, Suite};
use crate::failure::{DONE, Failure, Result};
use crate::{files, output};
use krylith::DeviceSpec;
use krylith_bench::model::Machine;
use krylith_bench::{
    AnswerOptions, CbcgSuite, DeviceChoice, Ildu0Options, LinksOptions, OkpOptions, OkpReport, cbcg, ildu0,
    okp,
};

/// Runs a suite, prints its tables and says where its files are.
pub fn bench(args: BenchArgs) -> Result<u8> {
    if args.suite == Suite::Answer {
        return answer(args);
    }
    if args.rounds.is_some() || args.from_device {
        return Err(Failure::usage("--rounds and --from-device are for `krylith bench answer`"));
    }
    if !args.systems.is_empty() && args.suite != Suite::Cbcg {
        return Err(Failure::usage("--systems is for `krylith bench answer` and `krylith bench cbcg`"));
    }
    if args.parts.is_some() && args.suite != Suite::Cbcg {
        return Err(Failure::usage("--parts is for `krylith bench cbcg`"));
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
    let options = OkpOptions {
        device: device(args.device.as_ref()),
        scale: args.scale,
        out: args.out,
        full: args.full,
        threads: args.threads.unwrap_or(0),
        solves: args.solves,
        series: args.series.unwrap_or_else(|| krylith_bench::Series::ALL.to_vec()),
        ..OkpOptions::default()
    };
    finish(&okp(&options, &mut |line| eprintln!("krylith bench: {line}"))?)
}

/// Triangular solves and BiCGSTAB.
fn triangular(args: BenchArgs) -> Result<u8> {
    if args.series.is_some() {
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
    if args.series.is_some() {
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
        parts: args.parts.unwrap_or(CbcgSuite::default().parts),
        ..CbcgSuite::default()
    };
    finish(&cbcg(&options, &mut |line| eprintln!("krylith bench: {line}"))?)
}

/// Everything from arrays to x.
fn answer(args: BenchArgs) -> Result<u8> {
    let foreign =
        args.parts.is_some() || args.series.is_some() || args.solves.is_some() || args.full || args.quick;
    if foreign || args.network.is_some() {
        return Err(Failure::usage(
            "`krylith bench answer` takes --systems, --rounds, --from-device and --scale",
        ));
    }
    let mut options = AnswerOptions {
        device: device(args.device.as_ref()),
        systems: args.systems,
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
    let network = args.network.as_deref().map(Machine::read).transpose()?;
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
