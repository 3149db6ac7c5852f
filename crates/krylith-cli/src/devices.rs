//! The one place that knows which devices there are: picks one, runs the solve on it, says why.

use crate::failure::{Failure, Result};
use crate::options::Device;
use crate::run::{self, Job, Solved};
use crate::{bandwidth, machine};
use krylith::Observer;
use krylith::device::cpu::{Cpu, Pool};
use std::sync::Arc;

/// The device that a solve ran on, for people and reports.
pub struct Ran {
    /// `cpu` or `cuda`.
    pub device: &'static str,
    /// Its names.
    pub names: Vec<String>,
    /// Threads of the CPU team; the host's one thread beside a GPU.
    pub threads: usize,
    /// Why this one.
    pub reason: String,
    /// Bytes a second that it reads, where that was measured.
    pub bandwidth: Option<f64>,
}

/// Refuses a device that is asked for by name and is not there, before a large file is read.
///
/// # Errors
/// What is missing and how to get it.
pub fn check(wanted: Option<&Device>) -> Result<()> {
    match wanted {
        Some(Device::Cuda(list)) => cuda::check(list),
        _ => Ok(()),
    }
}

/// Solves on the device that the settings name. `measure` asks for the device's read bandwidth.
///
/// # Errors
/// A device without room, or one that fails.
pub fn solve(
    job: &Job,
    threads: Option<usize>,
    measure: bool,
    observer: &mut dyn Observer,
) -> Result<(Solved, Ran)> {
    match &job.settings.device {
        Device::Cpu => cpu(job, threads, measure, observer, "--device cpu".into()),
        Device::Cuda(list) => {
            cuda::solve(job, list, measure, observer, "--device cuda").map_err(|e| e.within("--device cuda"))
        }
        Device::Auto => {
            let why = match cuda::missing() {
                Some(why) => format!("auto: {why}; see krylith info"),
                None => match cuda::solve(job, &[], measure, observer, "auto: the first GPU") {
                    Err(failed) if failed.code == crate::failure::MACHINE => {
                        format!("auto: the GPU failed, {}", failed.message)
                    }
                    done => return done,
                },
            };
            cpu(job, threads, measure, observer, why)
        }
    }
}

fn cpu(
    job: &Job,
    threads: Option<usize>,
    measure: bool,
    observer: &mut dyn Observer,
    reason: String,
) -> Result<(Solved, Ran)> {
    let needed = run::memory(job.terms, job.restart, job.settings.store, true).total();
    if let Some((_, free)) = machine::memory().filter(|(_, free)| needed > *free) {
        return Err(no_room(job, needed, free, "the host".into()).into());
    }
    let cores = machine::cores() / job.comm.size().max(1);
    let pool = Arc::new(Pool::new(threads.unwrap_or(cores.max(1))));
    let space = Cpu::distributed(job.rhs.len(), pool, job.comm.clone());
    let solved = run::run(&space, job, observer)?;
    let bandwidth = if measure { bandwidth::of_cpu(space.pool()) } else { None };
    let threads = space.threads();
    Ok((solved, Ran { device: "cpu", names: vec![machine::model()], threads, reason, bandwidth }))
}

fn no_room(job: &Job, needed: u64, free: u64, place: String) -> krylith::Error {
    let what = format!("a solve of {} unknowns with GMRES({})", job.rhs.len(), job.restart);
    let remedy = "use a smaller --restart, --store f32 or a device with more memory";
    krylith::Error::Memory { what, needed, free, place, remedy }
}

/// NVIDIA GPUs.
mod cuda {
    use super::*;
    use krylith::device::cuda::{Cuda, Device as Gpu, devices};

    /// A GPU that is not there is the machine's part, whatever the library calls it.
    fn machine(e: krylith::Error) -> Failure {
        Failure::machine(e.to_string())
    }

    /// Why no GPU can be used, in a few words.
    pub fn missing() -> Option<String> {
        match devices() {
            Ok(all) if all.is_empty() => Some("there is no NVIDIA GPU".into()),
            Ok(_) => None,
            Err(krylith::Error::Library { message, .. }) => Some(message),
            Err(e) => Some(e.to_string()),
        }
    }

    pub fn check(list: &[usize]) -> Result<()> {
        let all = devices().map_err(machine)?;
        if list.len() > 1 {
            return Err(Failure::machine(
                "--device cuda: one solve runs on one GPU in this version; name one, such as cuda:0",
            ));
        }
        let ordinal = list.first().copied().unwrap_or(0);
        if ordinal >= all.len() {
            return Err(Failure::machine(format!(
                "--device cuda:{ordinal}: this machine has {} GPU(s), numbered from 0",
                all.len()
            )));
        }
        Ok(())
    }

    pub fn solve(
        job: &Job,
        list: &[usize],
        measure: bool,
        observer: &mut dyn Observer,
        reason: &str,
    ) -> Result<(Solved, Ran)> {
        check(list)?;
        let gpu = Gpu::open(list.first().copied().unwrap_or(0)).map_err(machine)?;
        let name = gpu.info().name.clone();
        let needed = run::memory(job.terms, job.restart, job.settings.store, true).total();
        let free = gpu.free_memory().map_err(machine)?;
        if needed > free {
            return Err(no_room(job, needed, free, name).into());
        }
        let space = Cuda::new(&gpu, job.rhs.len())?;
        let solved = run::run(&space, job, observer)?;
        let bandwidth = if measure { gpu.read_bandwidth().ok() } else { None };
        Ok((solved, Ran { device: "cuda", names: vec![name], threads: 1, reason: reason.into(), bandwidth }))
    }
}
