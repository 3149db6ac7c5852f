//! Cooperation of the GPUs of several ranks: how their sums are reduced and their halos exchanged.
//!
//! GPUs of one host that can store into each other's memory do this in kernels (`kernels/peers.cuh`): an
//! all-reduce is then part of the launch that computes the sums, and costs one trip over the link. Otherwise
//! NCCL does it, in stream order. Methods and operators do not see the difference.

use super::driver::{Buffer, Device};
use super::nccl::Nccl;
use super::peers::{MAX_RANKS, Shared, missed, reachable};
use super::pinned::Word;
use crate::comm::{Communicator, Solo, agree, time_limit};
use crate::{Error, Result};
use std::sync::{Arc, Mutex};

/// Largest number of values of one all-reduce by peer stores; GMRES(m) sums 2m + 3.
const CAPACITY: usize = 4096;

/// Transport of data between the GPUs of several ranks.
///
/// # Examples
/// ```
/// use krylith_core::device::cuda::Transport;
/// // KRYLITH_TRANSPORT=peers or nccl selects one of the others for a solver.
/// assert_eq!(Transport::default(), Transport::Auto);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Transport {
    /// Peer stores where every pair of GPUs supports them, NCCL otherwise.
    #[default]
    Auto,
    /// Stores into each other's memory, on one host.
    Peers,
    /// NCCL.
    Nccl,
}

/// The GPU of each rank, and the links between them.
///
/// # Examples
/// One rank, where there is a GPU; with a [`Team`](crate::comm::Team) or MPI each rank makes its own.
/// ```
/// use krylith::comm::{Communicator, Solo};
/// use krylith::device::{Cuda, Device};
/// use krylith_core::device::cuda::{Fabric, Transport};
/// use krylith::operator::Space;
/// use std::sync::Arc;
/// # if Device::open(0).is_err() { return Ok(()); }
/// let comm: Arc<dyn Communicator> = Arc::new(Solo);
/// let fabric = Fabric::new(&Device::open(0)?, &comm, Transport::Auto)?;
/// let space = Cuda::distributed(&fabric, 1000)?; // this rank's share of a vector
/// assert_eq!(space.len(), 1000);
/// println!("{}", fabric.reason());
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Fabric {
    device: Arc<Device>,
    comm: Arc<dyn Communicator>,
    pub(super) links: Links,
    /// The reason for the choice of these links.
    reason: String,
    /// Checked whenever the host waits for the device, as long as this fabric exists.
    watch: Option<Arc<Watch>>,
}

pub(super) enum Links {
    Alone,
    Peers(Box<Peers>),
    Nccl(Arc<Nccl>),
}

/// Data for the kernels of `peers.cuh`.
pub(super) struct Peers {
    group: Buffer<Group>,
    _mailboxes: Shared<u64>,
    seconds: f64,
    /// Messages of set-ups, from which their receivers copy; equally long on all ranks.
    pub(super) parcels: Mutex<Option<Shared<u64>>>,
}

/// Mirrors `struct Group` in `kernels/peers.cuh`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Group {
    rank: u32,
    size: u32,
    capacity: u32,
    failed: u32,
    epoch: u64,
    limit: u64,
    abort: u64,
    mailbox: [u64; MAX_RANKS],
}

/// Checked while the host waits for a device, because ranks may be lost meanwhile.
pub(super) struct Watch {
    pub(super) comm: Arc<dyn Communicator>,
    abort: Option<Arc<Word>>,
    nccl: Option<Arc<Nccl>>,
    pub(super) seconds: f64,
}

impl Watch {
    /// Makes every wait for other ranks give up.
    pub(super) fn give_up(&self) {
        if let Some(word) = &self.abort {
            word.set(1);
        }
        if let Some(nccl) = &self.nccl {
            nccl.abort();
        }
    }
}

impl Fabric {
    /// Returns the fabric of a GPU that works alone.
    pub fn alone(device: &Arc<Device>) -> Arc<Self> {
        let reason = "one rank".into();
        Arc::new(Self {
            device: device.clone(),
            comm: Arc::new(Solo),
            links: Links::Alone,
            reason,
            watch: None,
        })
    }

    /// Joins the GPUs of all ranks. Collective.
    ///
    /// # Errors
    /// Out of device memory; two ranks on one GPU; peer stores that were asked for where they do not work;
    /// NCCL needed and missing; a rank that is lost or failed.
    pub fn new(device: &Arc<Device>, comm: &Arc<dyn Communicator>, wanted: Transport) -> Result<Arc<Self>> {
        if comm.size() == 1 {
            return Ok(Self::alone(device));
        }
        let seconds = time_limit()?.as_secs_f64();
        let reach = match wanted {
            Transport::Nccl => Err("as requested".to_string()),
            _ => reachable(device, &**comm)?,
        };
        let (links, reason, watch) = match reach {
            Ok(()) => {
                let abort = Arc::new(agree(&**comm, Word::new(device))?);
                let size = comm.size();
                let messages =
                    device.peer_zeros::<u64>(2 * 2 * size * CAPACITY, "a mailbox for sums over ranks");
                let mailboxes = Shared::new(&**comm, agree(&**comm, messages)?)?;
                let mut mailbox = [0; MAX_RANKS];
                (0..size).for_each(|r| mailbox[r] = mailboxes.of(r));
                let group = Group {
                    rank: comm.rank() as u32,
                    size: size as u32,
                    capacity: CAPACITY as u32,
                    failed: 0,
                    epoch: 0,
                    limit: (seconds * 1e9) as u64,
                    abort: abort.pointer(),
                    mailbox,
                };
                let group = agree(&**comm, device.upload(&[group], "the group of ranks"))?;
                let watch = Watch { comm: comm.clone(), abort: Some(abort), nccl: None, seconds };
                let peers = Peers { group, _mailboxes: mailboxes, seconds, parcels: Mutex::default() };
                let links = Links::Peers(Box::new(peers));
                (links, "peer stores: every GPU can store into every other's memory".to_string(), watch)
            }
            Err(why) if wanted == Transport::Peers => {
                return Err(Error::Unsupported(format!(
                    "peer stores between the GPUs are not possible: {why}; set KRYLITH_TRANSPORT=auto"
                )));
            }
            Err(why) => {
                let nccl = Arc::new(Nccl::new(device, &**comm)?);
                let watch = Watch { comm: comm.clone(), abort: None, nccl: Some(nccl.clone()), seconds };
                (Links::Nccl(nccl), format!("NCCL: {why}"), watch)
            }
        };
        let watch = Arc::new(watch);
        device.watch(Some(watch.clone()));
        Ok(Arc::new(Self { device: device.clone(), comm: comm.clone(), links, reason, watch: Some(watch) }))
    }

    /// Returns the device of this rank.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
    /// Returns the communicator of the ranks.
    pub fn comm(&self) -> &Arc<dyn Communicator> {
        &self.comm
    }
    /// Returns the transport between the GPUs, and the reason for it.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Address of the group for kernels that sum over the ranks themselves, or null.
    pub(super) fn group(&self) -> u64 {
        match &self.links {
            Links::Peers(p) => p.group.pointer(),
            _ => 0,
        }
    }

    /// Refuses a reduction of more sums than the mailboxes hold.
    pub(super) fn check_sums(&self, n: usize) -> Result<()> {
        if matches!(self.links, Links::Peers(_)) && n > CAPACITY {
            return Err(Error::Unsupported(format!(
                "one reduction over the GPUs of several ranks has {n} sums; at most {CAPACITY} are supported. Use a smaller restart"
            )));
        }
        Ok(())
    }

    /// Sums numbers at an address over the ranks, unless the kernel that wrote them has done so itself.
    pub(super) fn total(&self, values: u64, n: usize) -> Result<()> {
        match &self.links {
            Links::Nccl(nccl) if n > 0 => nccl.sum(values, n),
            _ => Ok(()),
        }
    }

    /// Returns NCCL, where it exchanges the halos.
    pub(super) fn nccl(&self) -> Option<&Arc<Nccl>> {
        match &self.links {
            Links::Nccl(nccl) => Some(nccl),
            _ => None,
        }
    }

    /// Returns an error if a kernel timed out while it waited for a rank. The stream must be idle.
    pub(super) fn check(&self) -> Result<()> {
        let Links::Peers(p) = &self.links else { return Ok(()) };
        let mut failed = [Group::default()];
        self.device.read(&p.group, 0, &mut failed)?;
        match failed[0].failed {
            0 => Ok(()),
            failed => Err(missed(&*self.comm, failed, p.seconds)),
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        if let Some(watch) = &self.watch {
            self.device.forget(watch);
        }
    }
}
