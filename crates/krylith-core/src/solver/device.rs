//! Device selection. Only this module knows all devices: it picks one, gives the reason, and opens the device
//! on the thread that will own it.

pub(super) mod views;

use super::attempt::{Engine, Rank};
use super::estimate::{Estimate, Size};
use super::experience::{self, Kind, Trial};
use super::solution::DeviceUsed;
use super::{SolverSpace, fallbacks, host};
use crate::comm::{Communicator, agree, gather};
use crate::device::cpu::Cpu;
use crate::device::workers::Workers;
use crate::method::MethodSpec;
use crate::operator::{FunctionOperator, Terms};
use crate::options::{DeviceSpec, Options};
use crate::precond::SubdomainFactors;
use crate::problem::{LocalProblem, Problem};
use crate::profile::{self, SetupPart};
use crate::space::{HeldVectors, HostVectors};
use crate::threads::{ALONE, Pool, refused};
use crate::{Error, Result};
use std::sync::Arc;

/// The device that a solve will run on.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Choice {
    /// Host threads.
    Cpu { reason: String },
    /// These GPUs of this process. With several ranks, each rank uses one of them. If the list is empty, each
    /// rank uses one of all GPUs of the host.
    Cuda { ordinals: Vec<usize>, reason: String },
}

impl Choice {
    /// Returns the GPUs that this process drives together; empty if each rank has its own GPU or none.
    pub fn together(&self, ranks: usize) -> &[usize] {
        match self {
            Choice::Cuda { ordinals, .. } if ordinals.len() > 1 && ranks == 1 => ordinals,
            _ => &[],
        }
    }
}

/// Picks the device that the options name. For `auto`, picks the device with the shorter estimated time.
/// Collective.
pub(super) fn choose(problem: &Problem, options: &Options) -> Result<Choice> {
    let comm = &*problem.comm;
    let _device = profile::begin(SetupPart::Device);
    let cpu = |reason: &str| Choice::Cpu { reason: reason.into() };
    match options.device.clone().unwrap_or_default() {
        DeviceSpec::Cpu => Ok(cpu("as requested")),
        DeviceSpec::Cuda(mut ordinals) => {
            check(&ordinals)?;
            let mut reason = String::from("as requested");
            let rows = problem.terms.block_rows().max(1);
            if comm.size() == 1 && ordinals.len() > rows {
                ordinals.truncate(rows); // each GPU needs at least one block row
                reason = format!("{reason}; the number of GPUs is limited to the number of block rows");
            }
            Ok(Choice::Cuda { ordinals, reason })
        }
        DeviceSpec::Auto => {
            let estimate = estimate(problem, options);
            let repeats = options.deterministic == Some(true);
            let stays = |e: &Estimate| e.prefers_cpu() && (repeats || !experience::repays_a_start(e));
            if let Some(estimate) = estimate.filter(stays) {
                return Ok(cpu(&format!("auto: {}", estimate.text())));
            }
            // Either all ranks use GPUs or none does.
            let missing = own_gpu(comm, &[])?.err();
            let mut count = [f64::from(u8::from(missing.is_some()))];
            comm.sum(&mut count)?;
            Ok(match missing {
                Some(why) => cpu(&format!("auto: {why}")),
                None if count[0] > 0.0 => cpu("auto: another rank has no GPU of its own"),
                None => {
                    let why = estimate.map_or(String::new(), |estimate| format!("; {}", estimate.text()));
                    Choice::Cuda { ordinals: Vec::new(), reason: format!("auto: the first GPU{why}") }
                }
            })
        }
    }
}

/// Returns the GPU on which this rank will solve the problem, by its CUDA ordinal: the first of several.
/// `None` stands for the host, and for ranks that share GPUs. Collective.
pub(crate) fn gpu_for(problem: &Problem, options: &Options) -> Result<Option<usize>> {
    let choice = choose(problem, options)?;
    match (&choice, choice.together(problem.comm.size())) {
        (Choice::Cpu { .. }, _) => Ok(None),
        (_, [first, ..]) => Ok(Some(*first)),
        (Choice::Cuda { ordinals, .. }, []) => gpu_of_rank(&*problem.comm, ordinals),
    }
}

/// Creates `count` vectors of `len` zeros in the memory of a GPU, or on the host.
pub(crate) fn vectors(gpu: Option<usize>, count: usize, len: usize) -> Result<Box<dyn HeldVectors>> {
    match gpu {
        None => Ok(Box::new(HostVectors::new(count, len))),
        Some(gpu) => gpu_vectors(gpu, count, len),
    }
}

/// Prepares to record the time of a first solve if `auto` chooses the device. The caller fills in the chosen
/// device.
pub(super) fn trial(problem: &Problem, options: &Options) -> Option<Trial> {
    let estimate = estimate(problem, options)?; // without a GPU nothing else is computed
    let kind = Kind::of(Size::of(&problem.terms), options)?;
    Some(Trial { kind, on_gpu: false, estimate })
}

/// Estimates the time on the host and on a GPU. Returns `None` if there is no choice: there is no GPU, the
/// system is already on a GPU, or several ranks share the system. Does not start the driver.
fn estimate(problem: &Problem, options: &Options) -> Option<Estimate> {
    let on_gpu = || problem.terms.terms.iter().any(|(_, a)| a.storage().is_on_device_alone());
    let alone = problem.comm.size() == 1 && seems_there() && !on_gpu();
    alone.then(|| {
        let size = Size::of(&problem.terms);
        let found = Estimate::of(size, host::cores(), is_open(0));
        Kind::of(size, options).map_or(found, |kind| experience::corrected(kind, found))
    })
}

/// Returns the GPU that `auto` picks for a matrix of this size, which is not on a device yet.
pub(super) fn gpu_of_auto(size: Size, options: &Options) -> Option<usize> {
    if !seems_there() {
        return None;
    }
    let found = Estimate::of(size, host::cores(), is_open(0));
    let found = Kind::of(size, options).map_or(found, |kind| experience::corrected(kind, found));
    (!found.prefers_cpu() && missing(1).is_none()).then_some(0)
}

/// The properties of a device that affect the choice of attempts.
pub(super) struct Place {
    pub kind: &'static str,
    pub name: String,
    /// Free memory in bytes, if known.
    pub free: Option<u64>,
    /// Largest number of block rows of a subdomain.
    pub most_rows: usize,
}

/// Queries the chosen device (the first of several GPUs), for blocks of this order. Frees all memory that it
/// allocates there.
pub(super) fn look(choice: &Choice, order: usize, options: &Options) -> Result<Place> {
    match choice {
        Choice::Cpu { .. } => {
            let free = free_memory(host::memory().map(|(_, free)| free), options);
            let most_rows = Cpu::new(order, 1).most_rows(order);
            Ok(Place { kind: "cpu", name: host::model(), free, most_rows })
        }
        Choice::Cuda { ordinals, .. } => {
            let (name, free, most_rows) = look_cuda(ordinals.first().copied().unwrap_or(0), order)?;
            Ok(Place { kind: "cuda", name, free: free_memory(Some(free), options), most_rows })
        }
    }
}

/// Shared memory per thread block from compute capability 9.0 on, as in H100, H200 and GH200.
#[cfg(feature = "cuda")]
const SHARED: usize = 227 << 10;

/// Returns the properties of a typical GPU, which need not be present.
#[cfg(feature = "cuda")]
pub(super) fn suppose(order: usize) -> Place {
    let most_rows = crate::device::cuda::factors::most_rows(order, SHARED);
    Place { kind: "cuda", name: "a GPU".into(), free: None, most_rows }
}

/// Opens the device of one rank on this thread, uploads the problem and sets up the first attempt.
/// Collective; every rank gets the same error. `own` is the GPU of this rank if one process drives several.
pub(super) fn open(
    choice: &Choice,
    own: Option<usize>,
    local: &LocalProblem,
    comm: &Arc<dyn Communicator>,
    options: &Arc<Options>,
) -> Result<Box<dyn Engine>> {
    let _device = profile::begin(SetupPart::Device);
    match choice {
        Choice::Cpu { reason } => open_cpu(reason, local, comm, options),
        Choice::Cuda { ordinals, reason } => open_cuda(ordinals, own, reason, local, comm, options),
    }
}

/// Starts the worker threads of `count` devices. The host threads that the options allow are divided among
/// them. Collective.
pub(super) fn workers<T>(problem: &Problem, options: &Options, count: usize) -> Result<Workers<T>> {
    let comm = &*problem.comm;
    let (_, threads) = threads(comm, options, false);
    let started = Workers::new(count, (threads / count).max(1));
    if comm.size() == 1 { started } else { agree(comm, started) }
}

/// Starts the worker threads before a device is chosen. For a small system this is a single idle thread.
/// Collective.
pub(super) fn first_workers<T>(problem: &Problem, options: &Options) -> Result<Workers<T>> {
    let on_host = !matches!(options.device, Some(DeviceSpec::Cuda(_)));
    if on_host && is_small(problem) { Workers::standby() } else { workers(problem, options, 1) }
}

/// Returns the number of threads that the options request for this rank, and the number that it starts: at
/// most one per core.
fn threads(comm: &dyn Communicator, options: &Options, small: bool) -> (usize, usize) {
    let (cores, here) = (host::cores(), comm.host().ranks_on_host.len());
    let asked = options.threads.unwrap_or(if small { 1 } else { (cores / here).max(1) });
    // More threads than cores would only compete for the cores.
    (asked, asked.min(cores))
}

/// Returns true for a system that one host thread solves before other threads would have started.
fn is_small(problem: &Problem) -> bool {
    problem.comm.size() == 1 && one_thread_does(&problem.terms)
}

/// Returns true if the system is too small to be shared among threads.
fn one_thread_does(terms: &Terms) -> bool {
    Size::of(terms).matrix < ALONE as f64
}

fn open_cpu(
    reason: &str,
    local: &LocalProblem,
    comm: &Arc<dyn Communicator>,
    options: &Arc<Options>,
) -> Result<Box<dyn Engine>> {
    let here = comm.host().ranks_on_host.len();
    let free = host::memory().map(|(_, free)| free / here as u64);
    let room = free_memory(free, options);
    agree(&**comm, fits(local, options, room, "the host"))?;
    let (cores, small) = (host::cores(), comm.size() == 1 && one_thread_does(local.terms));
    let (asked, threads) = threads(&**comm, options, small);
    let pool = Pool::new(threads);
    let all = match pool.threads() {
        started if started == threads => Ok(()),
        started => Err(refused(threads, &format!("{started} run"))),
    };
    agree(&**comm, all)?;
    let reason = match asked > cores {
        true => format!("{reason}; {asked} threads were requested, and this process may use {cores} cores"),
        false => reason.into(),
    };
    let space = Cpu::distributed(local.terms.rows(), Arc::new(pool), comm.clone());
    let used = DeviceUsed {
        kind: "cpu",
        names: names(&**comm, &host::model())?,
        threads: space.threads(),
        reason,
        ranks: comm.size(),
    };
    Ok(Box::new(Rank::new(space, local, comm, options, Arc::new(used), room)?))
}

/// Gathers the name of every rank's device.
fn names(comm: &dyn Communicator, own: &str) -> Result<Vec<String>> {
    let all = gather(comm, own.as_bytes())?;
    Ok(all.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect())
}

/// Returns the number of bytes that a solve may use: the free memory, or `memory_limit` if that is less.
fn free_memory(free: Option<u64>, options: &Options) -> Option<u64> {
    match (free, options.memory_limit) {
        (Some(free), Some(limit)) => Some(free.min(limit)),
        (free, limit) => free.or(limit),
    }
}

/// Returns an error if the first attempt needs more than `room` bytes.
fn fits(local: &LocalProblem, options: &Options, room: Option<u64>, place: &str) -> Result<()> {
    // Scaling of rows and columns does not change the estimate.
    let first = &fallbacks::attempts(local, options, usize::MAX, fallbacks::Seen::default())[0];
    let memory = first.memory(local.terms, options);
    let needed = match fallbacks::has_whole_vectors(local, options) {
        false => memory.total(),
        // The method has vectors of the whole length, and the rows of its products are a second copy.
        true => {
            let (basis, vectors) = first.method.memory(local.unknowns as u64);
            memory.total() + memory.matrix + basis + vectors
        }
    };
    let Some(free) = room.filter(|room| needed > *room) else { return Ok(()) };
    let remedy = match first.method {
        MethodSpec::Gmres(_) => "use a smaller restart, f32 storage or a device with more memory",
        _ => "use f32 storage or a device with more memory",
    };
    let what = format!("a solve of {} unknowns with {}", local.terms.rows(), first.method.title());
    let place = match options.memory_limit {
        Some(limit) if limit == free => format!("{place} within the memory limit"),
        _ => place.into(),
    };
    Err(Error::Memory { what, needed, free, place, remedy })
}

impl SolverSpace for Cpu {
    /// Returns `None` on several ranks, because they share the memory bandwidth of the host.
    fn read_bandwidth(&self) -> Option<f64> {
        use crate::space::Space;
        if self.comm().size() == 1 { super::bandwidth::of_cpu(self.pool()) } else { None }
    }
    fn call(&self, f: &FunctionOperator<'_>, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        let wrong = || Err(Error::Internal("a function of a GPU on the host".into()));
        f.call_on_host(x, y).unwrap_or_else(wrong)
    }
}

#[cfg(not(feature = "cuda"))]
mod absent;
#[cfg(not(feature = "cuda"))]
pub(super) use absent::visible;
#[cfg(not(feature = "cuda"))]
pub use absent::{Opening, check, first_use, open_ahead};
#[cfg(not(feature = "cuda"))]
use absent::{gpu_of_rank, gpu_vectors, is_open, look_cuda, missing, open_cuda, own_gpu, seems_there};
#[cfg(feature = "cuda")]
pub(super) use cuda::visible;
#[cfg(feature = "cuda")]
pub use cuda::{Opening, check, first_use, open_ahead};
#[cfg(feature = "cuda")]
use cuda::{gpu_of_rank, gpu_vectors, is_open, look_cuda, missing, open_cuda, own_gpu, seems_there};

/// NVIDIA GPUs.
#[cfg(feature = "cuda")]
mod cuda {
    use super::views::{Gpu as Uuid, Views};
    use super::*;
    use crate::device::cuda::{Cuda, CudaVectors, Device as Gpu, Fabric, Transport, devices, uuids};
    pub(in super::super) use crate::device::cuda::{is_open, seems_there};
    use crate::halo::RowNumbers;
    use crate::operator::Terms;
    use crate::precond::Factors;
    use crate::solver::ahead;
    use crate::solver::analysis::{SystemAnalysis, analyze};
    use crate::space::Space;
    use crate::text::plural;
    use crate::waiting::join;
    use std::time::Duration;

    /// Returns the reason why the `ranks` ranks of this host cannot each have a GPU; `None` if they can.
    pub fn missing(ranks: usize) -> Option<String> {
        match devices() {
            Ok(all) if all.is_empty() => Some("there is no NVIDIA GPU".into()),
            Ok(all) if all.len() < ranks => {
                Some(format!("{} for {} on this host", plural(all.len(), "GPU"), plural(ranks, "rank")))
            }
            Ok(_) => None,
            Err(Error::Library { message, .. }) => Some(message),
            Err(e) => Some(e.to_string()),
        }
    }

    /// Returns a remark if this process has been compiling kernels for more than a second: callers may tell
    /// their users what takes so long.
    pub fn first_use() -> Option<String> {
        const TOLD_AFTER: Duration = Duration::from_secs(1);
        let text = "compiling kernels for this GPU, which the cache keeps; `krylith warm` does so ahead";
        crate::device::cuda::compiling().filter(|time| *time > TOLD_AFTER).map(|_| text.into())
    }

    /// Checks that these GPUs exist, for example before a large file is read. An empty list stands for the
    /// first GPU.
    ///
    /// # Errors
    /// A GPU or the driver is missing; the error says what is missing and how to get it.
    pub fn check(list: &[usize]) -> Result<()> {
        let all = devices()?;
        let wrong = |device: String, message: String| Err(Error::NoDevice { device, message });
        match list.iter().find(|n| **n >= all.len()) {
            Some(n) => wrong(
                format!("cuda:{n}"),
                format!("this machine has {}, numbered from 0", plural(all.len(), "GPU")),
            ),
            None if all.is_empty() => wrong("cuda".into(), "this machine has no GPU".into()),
            None => Ok(()),
        }
    }

    /// A GPU that is being opened. Dropping this value waits until the GPU is open.
    #[must_use = "dropping this waits for the driver"]
    #[doc(hidden)]
    pub struct Opening(Option<std::thread::JoinHandle<()>>);

    /// Starts to open the first GPU of a list, or GPU 0, on a separate thread. The driver takes a third of a
    /// second, during which the program can read a system. The first use of the GPU reports an error, if any.
    pub fn open_ahead(list: &[usize]) -> Opening {
        let ordinal = list.first().copied().unwrap_or(0);
        let open = move || drop(Gpu::open(ordinal));
        Opening(std::thread::Builder::new().name("krylith-driver".into()).spawn(open).ok())
    }

    impl Drop for Opening {
        fn drop(&mut self) {
            if let Some(thread) = self.0.take() {
                join(thread, "the start of the CUDA driver"); // the first use of the GPU reports errors
            }
        }
    }

    /// Returns a GPU's name, its free bytes, and the largest number of block rows of a subdomain.
    pub(in super::super) fn look_cuda(ordinal: usize, order: usize) -> Result<(String, u64, usize)> {
        let gpu = Gpu::open(ordinal)?;
        let most_rows = Cuda::new(&gpu, order)?.most_rows(order);
        Ok((gpu.info().name.clone(), gpu.free_memory()?, most_rows))
    }

    pub(in super::super) fn open_cuda(
        ordinals: &[usize],
        own: Option<usize>,
        reason: &str,
        local: &LocalProblem,
        comm: &Arc<dyn Communicator>,
        options: &Arc<Options>,
    ) -> Result<Box<dyn Engine>> {
        let opened = (|| {
            let own = match own {
                Some(own) => own,
                None => ordinal(&**comm, ordinals)?,
            };
            let gpu = Gpu::open(own)?;
            let first = ahead::first_attempts(local, options, gpu.most_rows(local.order()));
            gpu.fetch_ahead(ahead::key(local, options, &first), || ahead::kernels(local, options, &first));
            let room = free_memory(Some(gpu.free_memory()?), options);
            fits(local, options, room, &gpu.info().name)?;
            Ok((gpu, room, transport()?))
        })();
        let (gpu, room, transport) = agree(&**comm, opened)?;
        let fabric = Fabric::new(&gpu, comm, transport)?;
        let space = agree(&**comm, Cuda::distributed(&fabric, local.terms.rows()))?;
        let several = comm.size() > 1;
        let used = DeviceUsed {
            kind: "cuda",
            names: names(&**comm, &gpu.info().name)?,
            threads: if own.is_some() { comm.size() } else { 1 },
            reason: if several { format!("{reason}; {}", fabric.reason()) } else { reason.into() },
            ranks: comm.size(),
        };
        engine(space, local, comm, options, used, room)
    }

    /// Sets up the first attempt.
    #[cfg(not(test))]
    fn engine(
        space: Cuda,
        local: &LocalProblem,
        comm: &Arc<dyn Communicator>,
        options: &Arc<Options>,
        used: DeviceUsed,
        room: Option<u64>,
    ) -> Result<Box<dyn Engine>> {
        Ok(Box::new(Rank::new(space, local, comm, options, Arc::new(used), room)?))
    }

    /// Refuses to solve: unit tests do that on the host. Every method and preconditioner for GPUs would take
    /// long to compile once more.
    #[cfg(test)]
    fn engine(
        _: Cuda,
        _: &LocalProblem,
        _: &Arc<dyn Communicator>,
        _: &Arc<Options>,
        used: DeviceUsed,
        _: Option<u64>,
    ) -> Result<Box<dyn Engine>> {
        let message = format!("unit tests do not solve on {}", used.names.join(", "));
        Err(Error::NoDevice { device: "cuda".into(), message })
    }

    /// Returns the GPUs of a list, or all that this process sees if the list is empty, by UUID.
    pub(in super::super) fn visible(list: &[usize]) -> Vec<Uuid> {
        let all = uuids().unwrap_or_default();
        match list {
            [] => all,
            _ => list.iter().filter_map(|&n| all.get(n).copied()).collect(),
        }
    }

    /// Returns the GPU of this rank by its CUDA ordinal, or the reason why the ranks of this host cannot each
    /// have one of the list. Collective.
    pub(in super::super) fn own_gpu(
        comm: &dyn Communicator,
        list: &[usize],
    ) -> Result<std::result::Result<usize, String>> {
        if comm.size() == 1 {
            return Ok(missing(1).map_or_else(|| Ok(list.first().copied().unwrap_or(0)), Err));
        }
        let views = Views::gather(comm, &visible(list))?;
        let (ranks, gpus) = views.counts(comm.rank());
        let place = views.own(comm.rank());
        let own = place.map(|place| list.get(place).copied().unwrap_or(place)).ok_or_else(|| {
            let counted = format!("{} for {} on this host", plural(gpus, "GPU"), plural(ranks, "rank"));
            let why = if gpus == 0 { missing(1) } else { None };
            match views.differ() {
                _ if why.is_some() => why.unwrap_or_default(),
                true => format!("{counted}, and ranks see different GPUs (CUDA_VISIBLE_DEVICES)"),
                false => counted,
            }
        });
        Ok(own)
    }

    /// Returns the GPU of this rank: each rank has its own. Collective.
    fn ordinal(comm: &dyn Communicator, list: &[usize]) -> Result<usize> {
        let own = own_gpu(comm, list)?;
        check(list)?;
        own.map_err(|why| Error::NoDevice {
            device: "cuda".into(),
            message: format!(
                "{why}; set ranks_per_gpu=auto so that ranks share GPUs, give each rank a GPU of its own, or \
                 let one process drive several GPUs (cuda:0,1)"
            ),
        })
    }

    /// Returns the GPU of this rank; `None` if several ranks share one. Collective.
    pub(in super::super) fn gpu_of_rank(comm: &dyn Communicator, list: &[usize]) -> Result<Option<usize>> {
        let own = own_gpu(comm, list)?;
        check(list)?;
        Ok(own.ok())
    }

    /// Creates vectors in the memory of a GPU.
    pub(in super::super) fn gpu_vectors(
        gpu: usize,
        count: usize,
        len: usize,
    ) -> Result<Box<dyn HeldVectors>> {
        Ok(Box::new(CudaVectors::new(gpu, count, len)?))
    }

    /// Reads `KRYLITH_TRANSPORT`, which selects how GPUs communicate, for tests and comparisons.
    fn transport() -> Result<Transport> {
        match std::env::var("KRYLITH_TRANSPORT").as_deref() {
            Err(_) | Ok("auto" | "") => Ok(Transport::Auto),
            Ok("peers") => Ok(Transport::Peers),
            Ok("nccl") => Ok(Transport::Nccl),
            Ok(other) => {
                Err(Error::invalid(format!("KRYLITH_TRANSPORT={other}: expected auto, peers or nccl")))
            }
        }
    }

    impl SolverSpace for Cuda {
        fn read_bandwidth(&self) -> Option<f64> {
            self.device().read_bandwidth().ok()
        }
        fn is_gpu(&self) -> bool {
            true
        }
        fn call(&self, f: &FunctionOperator<'_>, x: &Self::Vector, y: &mut Self::Vector) -> Result<()> {
            self.call_function(f, x, y)
        }
        fn memory_held(&self) -> Option<u64> {
            Some(self.device().bytes_held())
        }
        fn analyze(&self, terms: &Terms) -> Result<SystemAnalysis> {
            match self.magnitudes(terms)? {
                Some(found) => SystemAnalysis::of_magnitudes(terms, &found),
                None => analyze(terms, self.comm()),
            }
        }
        fn convective(&self, terms: &Terms) -> Result<Option<f64>> {
            Cuda::convective(self, terms)
        }
        fn mixed_couplings(&self, terms: &Terms, step: usize, threshold: f64) -> Result<Option<[u64; 2]>> {
            Cuda::mixed_couplings(self, terms, step, threshold)
        }
        fn judge_constants(&self, terms: &Terms) -> Result<Option<[u64; 2]>> {
            Cuda::judge_constants(self, terms)
        }
        fn equilibrate(&self, terms: &Terms) -> Result<(Factors<Self>, Terms<'static>)> {
            match self.equilibrated(terms)? {
                Some(done) => Ok(done),
                None => Factors::on_host(self, terms),
            }
        }
        fn random(
            &self,
            seed: u64,
            numbers: Option<RowNumbers>,
            order: usize,
            to: &mut Self::Vector,
        ) -> Result<()> {
            Cuda::random(self, seed, numbers, order, to)
        }
    }
}
