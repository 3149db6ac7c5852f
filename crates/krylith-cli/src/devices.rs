//! The one place that knows which devices there are: picks one, runs the solve on it, says why.

use crate::failure::{Failure, Result};
use crate::options::{Device, Method};
use crate::run::{self, Job, Solved};
use crate::{auto, bandwidth, machine, ranks, share};
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
    /// Bytes a second that it reads, where that was measured; of all GPUs together.
    pub bandwidth: Option<f64>,
    /// Ranks that solved together.
    pub ranks: usize,
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
    observer: &mut (dyn Observer + Send),
) -> Result<(Solved, Ran)> {
    match &job.settings.device {
        Device::Cpu => cpu(job, threads, measure, observer, "--device cpu".into()),
        Device::Cuda(list) => {
            cuda::solve(job, list, measure, observer, "--device cuda").map_err(|e| e.within("--device cuda"))
        }
        Device::Auto => {
            // Ranks take GPUs together or not at all.
            let missing = cuda::missing(job.comm.host().ranks_on_host.len());
            let mut count = [f64::from(u8::from(missing.is_some()))];
            job.comm.sum(&mut count)?;
            let why = match missing {
                Some(why) => format!("auto: {why}; see krylith info"),
                None if count[0] > 0.0 => "auto: another rank has no GPU of its own".into(),
                None => match cuda::solve(job, &[], measure, observer, "auto: the first GPU") {
                    Err(failed) if failed.code == crate::failure::MACHINE && job.comm.size() == 1 => {
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
    observer: &mut (dyn Observer + Send),
    reason: String,
) -> Result<(Solved, Ran)> {
    let comm = &job.comm;
    let here = comm.host().ranks_on_host.len();
    let needed = needed(job);
    let free = machine::memory().map(|(_, free)| free / here as u64);
    let room = match free.filter(|free| needed > *free) {
        Some(free) => Err(no_room(job, needed, free, "the host".into()).into()),
        None => Ok(()),
    };
    ranks::together(room)?;
    let job = &Job { room: free, ..job.clone() };
    let threads = threads.unwrap_or((machine::cores() / here).max(1));
    let space = Cpu::distributed(job.rhs.len(), Arc::new(Pool::new(threads)), comm.clone());
    let solved = run::run(&space, job, observer)?;
    // Ranks of one host share its memory: what one of them reads alone is no yardstick.
    let bandwidth = if measure && comm.size() == 1 { bandwidth::of_cpu(space.pool()) } else { None };
    let names = share::names(&**comm, &[machine::model()])?;
    Ok((
        solved,
        Ran { device: "cpu", names, threads: space.threads(), reason, bandwidth, ranks: comm.size() },
    ))
}

/// Bytes that the job's first attempt will want on its device.
fn needed(job: &Job) -> u64 {
    let first = &auto::ladder(job, usize::MAX)[0];
    run::memory(job.terms, first.method, first.restart, job.settings.store, &first.precond).total()
}

fn no_room(job: &Job, needed: u64, free: u64, place: String) -> krylith::Error {
    let first = &auto::ladder(job, usize::MAX)[0];
    let (method, remedy) = match first.method {
        Method::Auto | Method::Gmres => (
            format!("GMRES({})", first.restart),
            "use a smaller --restart, --store f32 or a device with more memory",
        ),
        Method::Bicgstab => ("BiCGSTAB".into(), "use --store f32 or a device with more memory"),
    };
    let what = format!("a solve of {} unknowns with {method}", job.rhs.len());
    krylith::Error::Memory { what, needed, free, place, remedy }
}

/// NVIDIA GPUs.
mod cuda {
    use super::*;
    use crate::output::plural;
    use krylith::comm::{Communicator, Team, agree};
    use krylith::device::cuda::{Cuda, Device as Gpu, Fabric, Transport, devices};
    use krylith::partition::{Part, split};
    use std::sync::Mutex;

    /// A GPU that is not there is the machine's part, whatever the library calls it.
    fn machine(e: krylith::Error) -> Failure {
        Failure::machine(e.to_string())
    }

    /// Why no GPU can be used by each of `ranks` ranks of this host, in a few words.
    pub fn missing(ranks: usize) -> Option<String> {
        match devices() {
            Ok(all) if all.is_empty() => Some("there is no NVIDIA GPU".into()),
            Ok(all) if all.len() < ranks => {
                Some(format!("{} for {} on this host", plural(all.len(), "GPU"), plural(ranks, "rank")))
            }
            Ok(_) => None,
            Err(krylith::Error::Library { message, .. }) => Some(message),
            Err(e) => Some(e.to_string()),
        }
    }

    pub fn check(list: &[usize]) -> Result<()> {
        let all = devices().map_err(machine)?;
        match list.iter().find(|n| **n >= all.len()) {
            Some(n) => Err(Failure::machine(format!(
                "--device cuda:{n}: this machine has {} GPU(s), numbered from 0",
                all.len()
            ))),
            None if all.is_empty() => Err(Failure::machine("--device cuda: this machine has no GPU")),
            None => Ok(()),
        }
    }

    pub fn solve(
        job: &Job,
        list: &[usize],
        measure: bool,
        observer: &mut (dyn Observer + Send),
        reason: &str,
    ) -> Result<(Solved, Ran)> {
        if list.len() > 1 && job.comm.size() == 1 {
            return on_all(job, list, measure, observer, reason);
        }
        let own = ranks::together(ordinal(&*job.comm, list))?;
        let (solved, done) = on_one(job, own, measure, observer)?;
        let names = share::names(&*job.comm, &[done.name])?;
        let (size, reason) = (job.comm.size(), [reason, &done.reason].join(""));
        let bandwidth = done.bandwidth.map(|b| b * size as f64);
        Ok((solved, Ran { device: "cuda", names, threads: 1, reason, bandwidth, ranks: size }))
    }

    /// The GPU of this rank: one each.
    fn ordinal(comm: &dyn Communicator, list: &[usize]) -> Result<usize> {
        check(list)?;
        let host = comm.host();
        let (own, ranks) = (host.rank_on_host, host.ranks_on_host.len());
        let count = if list.is_empty() { devices().map_err(machine)?.len() } else { list.len() };
        if ranks > count {
            return Err(Failure::machine(format!(
                "{} on this host for {}: give each rank one of its own, or let one process drive several \
                 (--device cuda:0,1)",
                plural(ranks, "rank"),
                plural(count, "GPU")
            )));
        }
        Ok(list.get(own).copied().unwrap_or(own))
    }

    /// What one rank's GPU did.
    struct Done {
        name: String,
        reason: String,
        bandwidth: Option<f64>,
    }

    fn on_one(
        job: &Job,
        ordinal: usize,
        measure: bool,
        observer: &mut (dyn Observer + Send),
    ) -> Result<(Solved, Done)> {
        let comm = &job.comm;
        let needed = needed(job);
        let opened = (|| {
            let gpu = Gpu::open(ordinal)?;
            let (name, free) = (gpu.info().name.clone(), gpu.free_memory()?);
            if needed > free {
                return Err(no_room(job, needed, free, name));
            }
            Ok((gpu, free))
        })();
        let agreed = |e: krylith::Error| Failure { agreed: true, ..machine(e) };
        let (gpu, free) = agree(&**comm, opened).map_err(agreed)?;
        let fabric = Fabric::new(&gpu, comm, transport()?).map_err(agreed)?;
        let space = agree(&**comm, Cuda::distributed(&fabric, job.rhs.len())).map_err(agreed)?;
        let solved = run::run(&space, &Job { room: Some(free), ..job.clone() }, observer)?;
        let bandwidth = if measure { gpu.read_bandwidth().ok() } else { None };
        let reason = if comm.size() > 1 { format!("; {}", fabric.reason()) } else { String::new() };
        Ok((solved, Done { name: gpu.info().name.clone(), reason, bandwidth }))
    }

    /// `KRYLITH_TRANSPORT`: a way for GPUs to talk, for tests and comparisons.
    fn transport() -> Result<Transport> {
        match std::env::var("KRYLITH_TRANSPORT").as_deref() {
            Err(_) | Ok("auto" | "") => Ok(Transport::Auto),
            Ok("peers") => Ok(Transport::Peers),
            Ok("nccl") => Ok(Transport::Nccl),
            Ok(other) => {
                Err(Failure::usage(format!("KRYLITH_TRANSPORT={other}: expected auto, peers or nccl")))
            }
        }
    }

    /// Several GPUs of this process, a thread each, and each with its share of the rows.
    fn on_all(
        job: &Job,
        list: &[usize],
        measure: bool,
        observer: &mut (dyn Observer + Send),
        reason: &str,
    ) -> Result<(Solved, Ran)> {
        check(list)?;
        let size = list.len();
        let begin = std::time::Instant::now();
        let ildu = job.settings.precond.subdomains();
        let dealt = share::deal(job.terms, job.coordinates, job.grid, size, job.cut, ildu)?;
        let parts = split(job.terms, &dealt.partition)?;
        let own: krylith::Result<Vec<_>> = parts.iter().map(|part| dealt.own(&part.rows)).collect();
        let (subdomains, why) = (own?, &dealt.reason);
        let cutting = begin.elapsed().as_secs_f64();
        let run = job.terms.block() * job.terms.stages();
        let first = Mutex::new(Some(observer));
        let on_rank = |comm: Arc<dyn Communicator>| {
            let rank = comm.rank();
            let Part { rows, terms, .. } = &parts[rank];
            let own = |whole: &[f64]| -> Vec<f64> {
                rows.iter().flat_map(|&i| &whole[i as usize * run..][..run]).copied().collect()
            };
            let null: Vec<Vec<f64>> = job.null.iter().map(|n| own(n)).collect();
            let share = Job {
                terms,
                rhs: &own(job.rhs),
                x0: &own(job.x0),
                null: &null,
                numbers: Some(rows),
                comm: comm.clone(),
                subdomains: subdomains[rank].as_ref(),
                ..job.clone()
            };
            // Rank 0 watches; the others hear of an interrupt from it.
            let mut first =
                if rank == 0 { first.lock().unwrap_or_else(|e| e.into_inner()).take() } else { None };
            let done = match &mut first {
                Some(observer) => on_one(&share, list[rank], measure, *observer),
                None => on_one(&share, list[rank], measure, &mut ()),
            };
            if let Err(failure) = &done {
                comm.fail(&failure.message);
            }
            Ok(done)
        };
        let all = Team::run(size, |comm| on_rank(comm))?;
        let (mut failures, mut solved) = (Vec::new(), Vec::new());
        for done in all {
            match done {
                Ok(done) => solved.push(done),
                Err(failure) => failures.push(failure),
            }
        }
        // The one that is about itself is why the others failed.
        if let Some(at) =
            failures.iter().position(|f| f.rank.is_none()).or((!failures.is_empty()).then_some(0))
        {
            return Err(failures.swap_remove(at));
        }
        let names = solved.iter().map(|(_, done)| done.name.clone()).collect();
        let bandwidth = solved.iter().map(|(_, done)| done.bandwidth).sum();
        let reason = format!("{reason}{}; {why}", solved[0].1.reason);
        let mut x = vec![0.0; job.rhs.len()];
        for (part, (share, _)) in parts.iter().zip(&solved) {
            for (&i, values) in part.rows.iter().zip(share.x.chunks_exact(run)) {
                x[i as usize * run..][..run].copy_from_slice(values);
            }
        }
        let (solved, _) = solved.swap_remove(0);
        let solved = Solved { x, setup: solved.setup + cutting, ..solved };
        Ok((solved, Ran { device: "cuda", names, threads: size, reason, bandwidth, ranks: size }))
    }
}
