//! `krylith bench`: the papers' experiments on this machine.

use crate::args::{BenchArgs, Suite};
use crate::failure::{DONE, Failure, Result};
use crate::options::Device;
use crate::output;
use krylith_bench::{DeviceChoice, OkpOptions, okp};

/// Runs a suite, prints its tables and says where its files are.
pub fn bench(args: BenchArgs) -> Result<u8> {
    let Suite::Okp = args.suite;
    let options = OkpOptions {
        device: device(args.device.as_ref()),
        scale: args.scale,
        out: args.out,
        full: args.full,
        threads: args.threads.unwrap_or(0),
        ..OkpOptions::default()
    };
    let report = okp(&options, &mut |line| eprintln!("krylith bench: {line}"))?;
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

/// Where a suite runs: on one device, baselines and Krylith beside each other, or on several GPUs.
fn device(asked: Option<&Device>) -> DeviceChoice {
    match asked {
        Some(Device::Cpu) => DeviceChoice::Cpu,
        Some(Device::Cuda(gpus)) if !gpus.is_empty() => DeviceChoice::Cuda(gpus.clone()),
        Some(Device::Cuda(_)) => DeviceChoice::Cuda(vec![0]),
        None | Some(Device::Auto) => match krylith::device::cuda::devices() {
            Ok(_) => DeviceChoice::Cuda(vec![0]),
            Err(_) => DeviceChoice::Cpu,
        },
    }
}
