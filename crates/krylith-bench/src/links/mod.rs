//! Microbenchmarks that fill a machine file (`krylith bench links`): kernels of one GPU, sums and exchanges
//! of several.
//!
//! No solve runs on several GPUs here, so `krylith model` really predicts them. A part that fails leaves a
//! note in the file; the other parts remain valid.
//!
//! * [`one`]: read bandwidth, a launch in a graph, GMRES(30) and its orthogonalisation at several sizes on
//!   one GPU;
//! * [`together`]: an all-reduce of 33 numbers and halo exchanges, by each transport, on 2, 4, … GPUs.
//!
//! Everything is written against Krylith's traits, so that the tests run all of it on threads of a CPU.

mod one;
mod ring;
mod together;

use crate::options::Asked;
use crate::publish::Report;
use crate::samples::repeated;
use krylith_core::comm::Communicator;
use krylith_core::operator::PointBlockSum;
use krylith_core::space::Space;
use krylith_core::{Error, Result};
use krylith_model::Machine;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// The transport of sums and halos.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Peers,
    Nccl,
}

/// The measured devices.
pub(crate) trait Ground: Sync {
    type Space: PointBlockSum;
    /// Returns the name used in a file.
    fn name(&self) -> String;
    /// Returns the number of devices.
    fn devices(&self) -> usize;
    /// Returns the bytes of memory of one device.
    fn memory(&self) -> u64;
    /// Returns the bytes a second read from the first device's memory.
    fn read(&self) -> Result<f64>;
    /// Creates vectors on one device alone.
    fn alone(&self, device: usize, len: usize) -> Result<Self::Space>;
    /// Returns a function that creates this rank's vectors; rank r uses device r. Collective.
    fn join(&self, comm: &Arc<dyn Communicator>, way: Way) -> Result<Make<'_, Self::Space>>;
}

/// Creates this rank's share of vectors; collective.
pub(crate) type Make<'a, S> = Box<dyn Fn(usize) -> Result<S> + 'a>;

/// Amount of measurements.
#[derive(Debug, Clone)]
struct Plan {
    /// Meshes on one device, in nodes.
    meshes: Vec<[usize; 3]>,
    /// GMRES iterations per sample.
    iterations: usize,
    /// Number of samples of each time.
    samples: usize,
    /// Number of repetitions in one graph.
    repeats: usize,
    /// Nodes sent to each neighbour in an exchange that nothing hides.
    messages: Vec<usize>,
    /// The same for an exchange hidden behind `interior` rows.
    hidden: Vec<usize>,
    interior: usize,
    /// Length of a vector so short that a kernel costs only its launch.
    short: usize,
    /// Sums over host threads per sample.
    meetings: usize,
}

/// The restart of GMRES, whose cycle is measured.
const RESTART: usize = 30;

impl Plan {
    fn new(quick: bool) -> Self {
        // The mesh of 53×53×54 = 151,686 nodes, its parts on 2 to 16 GPUs, and twice the mesh.
        let layers: &[usize] = if quick { &[4, 14] } else { &[4, 7, 14, 27, 54, 108] };
        let bytes: &[usize] = if quick {
            &[8 << 10, 512 << 10]
        } else {
            &[8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 4 << 20]
        };
        let nodes = |bytes: &[usize]| bytes.iter().map(|b| b / ring::NODE).collect();
        Self {
            meshes: layers.iter().map(|&z| [53, 53, z]).collect(),
            iterations: if quick { 60 } else { 300 },
            samples: if quick { 3 } else { 15 },
            repeats: 60,
            messages: nodes(bytes),
            hidden: nodes(if quick { &bytes[..1] } else { &bytes[1..4] }),
            interior: 300_000,
            short: 4096,
            meetings: 500,
        }
    }
}

/// Runs the microbenchmarks; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if no GPU is usable (by name), or if an output file cannot be written. Later failures are
/// notes of the report.
pub fn links(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let gpus = options.device.gpus();
    if gpus.is_empty() {
        return Err(Error::invalid("`krylith bench links` measures GPUs; use --device cuda:0,1,…"));
    }
    #[cfg(feature = "cuda")]
    {
        let ground = crate::cuda::ground::Gpus::open(gpus)?;
        measure(&ground, &Plan::new(options.quick), options, progress).map(|(report, _)| report)
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = progress;
        Err(crate::options::no_cuda())
    }
}

/// Returns 2, 4, 8, … and `all`.
fn counts(all: usize) -> Vec<usize> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(2), |c| Some(2 * c)).take_while(|&c| c < all).collect();
    if all > 1 {
        counts.push(all);
    }
    counts
}

fn measure<G: Ground>(
    ground: &G,
    plan: &Plan,
    options: &Asked,
    progress: &mut dyn FnMut(&str),
) -> Result<(Report, Machine)> {
    let source = |what: &str| format!("measured by `{}`: {what}", options.command);
    let mut machine = Machine {
        schema: 1,
        name: ground.name(),
        gpus_per_host: ground.devices(),
        read: 1.0,
        memory: ground.memory() as f64,
        launch: 0.0,
        estimated: Vec::new(),
        notes: Vec::new(),
        sources: BTreeMap::from([
            ("kernels".into(), source("GMRES(30) and its orthogonalisation on one GPU")),
            ("peers".into(), source("stores into the memory of peers; exchanges around a ring")),
            ("nccl".into(), source("NCCL; exchanges around a ring")),
        ]),
        kernels: Default::default(),
        network: None,
        peers: Vec::new(),
        nccl: Vec::new(),
        poisson: None,
    };
    if let Some(other) = &options.network {
        machine.gpus_per_host = other.gpus_per_host.max(ground.devices());
        machine.network = other.network.clone();
        machine.estimated = vec!["network".into(), "gpus_per_host".into()];
        machine.sources.extend(other.sources.get("network").map(|text| ("network".into(), text.clone())));
    }
    let mut files = Vec::new();
    let mut save = |machine: &Machine| -> Result<()> {
        let Some(path) = &options.out else { return Ok(()) };
        krylith_core::io::atomic::write(path, |file| file.write_all(machine.text().as_bytes()))?;
        files = vec![path.clone()];
        Ok(())
    };

    one::measure(ground, plan, &mut machine, progress);
    let mut failures = machine.notes.clone();
    save(&machine)?;
    for gpus in counts(ground.devices()) {
        for way in [Way::Peers, Way::Nccl] {
            let name = if way == Way::Peers { "peer stores" } else { "NCCL" };
            progress(&format!("sums and exchanges of {gpus} GPUs by {name}"));
            match together::measure(ground, plan, gpus, way) {
                Ok((host, notes)) => {
                    machine.notes.extend(notes);
                    if way == Way::Peers { &mut machine.peers } else { &mut machine.nccl }.push(host);
                }
                Err(e) => {
                    let failure = format!("{gpus} GPUs by {name}: {e}");
                    progress(&failure);
                    machine.notes.push(failure.clone());
                    failures.push(failure);
                }
            }
            save(&machine)?;
        }
    }
    Ok((Report { tables: machine.text(), failures, files, ..Report::default() }, machine))
}

/// Returns the seconds of one `work`, recorded `repeats` times in a row: the median, over all ranks.
/// Collective.
fn per_step<S: Space>(
    space: &S,
    plan: &Plan,
    repeats: usize,
    mut work: impl FnMut(&S) -> Result<()>,
) -> Result<f64> {
    let mut recording = S::Recording::default();
    // The first round launches directly, the second records, the third warms up.
    let samples = repeated(3, plan.samples, || {
        space.wait()?;
        space.comm().sum(&mut [0.0])?;
        let begin = Instant::now();
        space.record(&mut recording, Some(1), |s| (0..repeats).try_for_each(|_| work(s)))?;
        space.wait()?;
        Ok(begin.elapsed().as_secs_f64() / repeats as f64)
    })?;
    Ok(samples.median())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::DeviceChoice;
    use krylith_core::comm::Team;
    use krylith_core::device::cpu::{Cpu, Pool};

    /// Threads of a CPU that take the place of GPUs.
    struct Threads(usize, Arc<Pool>);

    impl Ground for Threads {
        type Space = Cpu;
        fn name(&self) -> String {
            "threads".into()
        }
        fn devices(&self) -> usize {
            self.0
        }
        fn memory(&self) -> u64 {
            1 << 30
        }
        fn read(&self) -> Result<f64> {
            Ok(1e10)
        }
        fn alone(&self, _: usize, len: usize) -> Result<Cpu> {
            Ok(Cpu::with_pool(len, self.1.clone()))
        }
        fn join(&self, comm: &Arc<dyn Communicator>, way: Way) -> Result<Make<'_, Cpu>> {
            if way == Way::Nccl {
                return Err(Error::Unsupported("there is no NCCL on threads".into()));
            }
            let comm = comm.clone();
            Ok(Box::new(move |len| Ok(Cpu::distributed(len, Arc::new(Pool::new(1)), comm.clone()))))
        }
    }

    fn small() -> Plan {
        Plan {
            meshes: vec![[4, 4, 4], [4, 4, 9]],
            iterations: 30,
            samples: 2,
            repeats: 3,
            messages: vec![1, 7],
            hidden: vec![3],
            interior: 11,
            short: 64,
            meetings: 5,
        }
    }

    #[test]
    fn everything_runs_and_a_part_that_fails_leaves_a_note() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("m.toml");
        let (out, network) = (Some(path.clone()), Some(Machine::open("jupiter".as_ref()).unwrap()));
        let options = Asked { out, network, quick: true, command: "test".into(), ..Asked::default() };
        let ground = Threads(4, Arc::new(Pool::new(1)));
        let mut heard = Vec::new();
        let (made, machine) =
            measure(&ground, &small(), &options, &mut |t| heard.push(t.to_string())).unwrap();
        assert_eq!(machine.peers.iter().map(|h| h.gpus).collect::<Vec<_>>(), [2, 4], "{:?}", machine.notes);
        // On threads a time may be shorter than that of one alone, which gives a note but is no failure.
        assert!(made.failures.iter().all(|f| machine.notes.contains(f)));
        // On a busy machine an orthogonalisation may appear to take longer than the iteration that contains
        // it.
        let (nccl, noise): (Vec<&String>, Vec<&String>) =
            made.failures.iter().partition(|f| f.contains("no NCCL"));
        assert!(noise.iter().all(|f| f.contains("an iteration takes")), "{noise:?}");
        assert!(machine.nccl.is_empty() && nccl.len() == 2 && nccl[0].contains("2 GPUs by NCCL"), "{nccl:?}");
        assert!(machine.kernels.dense.0.len() + noise.len() >= 2);
        assert_eq!(machine.kernels.orthogonalization.0.len(), 2);
        for host in &machine.peers {
            assert_eq!((host.exchange.0.len(), host.hidden.0.len()), (2, 1));
            let neighbours = if host.gpus == 2 { 1.0 } else { 2.0 };
            assert_eq!(host.exchange.0[1][0], 7.0 * 64.0 * neighbours);
            assert!(host.meeting > 0.0);
        }
        assert_eq!(made.files, std::slice::from_ref(&path));
        // The file contains the measurements, to its number of digits.
        let again = Machine::read(&path).unwrap();
        assert_eq!(again.peers[1].exchange.0.len(), 2);
        assert!(again.network.is_some() && again.estimated.contains(&"network".into()));
        assert!(heard.iter().any(|t| t.contains("4 GPUs by peer stores")));
    }

    #[test]
    fn rings_of_any_size_copy_their_neighbours_nodes() {
        for size in [2, 3, 5] {
            let ground = Threads(size, Arc::new(Pool::new(1)));
            Team::run(size, |comm| {
                let comm: Arc<dyn Communicator> = comm;
                let make = ground.join(&comm, Way::Peers)?;
                together::exchange(&ground, &make, &small(), &comm, 5, 3).map(|_| ())
            })
            .unwrap();
        }
        assert_eq!(counts(1), [0usize; 0]);
        assert_eq!((counts(2), counts(4), counts(6)), (vec![2], vec![2, 4], vec![2, 4, 6]));
    }

    #[test]
    #[cfg(feature = "cuda")]
    fn without_a_gpu_it_is_refused_by_name() {
        if krylith_core::device::cuda::devices().is_ok() {
            return;
        }
        let options = Asked { device: DeviceChoice::Cuda(vec![0]), ..Asked::default() };
        let e = links(&options, &mut |_| ()).unwrap_err();
        assert!(e.exit_code() == 3 && e.to_string().contains("libcuda"), "{e}");
    }
}
