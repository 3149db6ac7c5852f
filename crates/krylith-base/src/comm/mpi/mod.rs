//! Ranks that are processes started by `mpirun` or another MPI launcher.
//!
//! The MPI library is found at run time ([`library`]), and may have any of three binary interfaces ([`abi`]).
//!
//! No call blocks inside MPI. Every operation is started, then tested until it is done, a rank is found gone,
//! or the time limit is reached ([`World::wait`]). The buffers of a failed operation are never freed, since
//! MPI may still write to them.
//!
//! A rank that waits checks once a second whether the processes of its host still run. The launcher watches
//! other hosts. A rank that cannot go on aborts the job, if Krylith started MPI.
//!
//! To use another MPI function, add a line to `functions.rs`. To use another constant, add a line for each
//! binary interface to `abi.rs`.

mod abi;
mod channel;
mod functions;
mod library;
mod loaded;
pub(super) mod mumps;
mod requests;
mod world;

use super::launch::Launch;
use super::peers::{Identity, Peers};
use super::{Channel, Communicator, HostShare, Message, gather, messages, time_limit};
use crate::{Error, Result};
use channel::MpiChannel;
use functions::Handle;
use library::Library;
use requests::Requests;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use world::{World, count};

/// With up to this many ranks a sum gathers all numbers and adds them in rank order; with more, MPI reduces.
const GATHERED: usize = 64;
/// Longest message passed to MPI at once, in bytes: MPI's counts are 32-bit.
const PIECE: usize = 1 << 30;
/// Time for the launcher to forward printed output: it may drop the output of an aborted job.
const PASS_ON: Duration = Duration::from_millis(100);

/// The ranks of MPI. Any thread may call; only one at a time enters MPI.
///
/// A rank that succeeds calls [`Mpi::finish`]. A rank that ends with an error prints it and calls `fail`. If
/// Krylith started MPI, that ends the whole job, so no other rank waits for it; a panic does the same. In a
/// program that started MPI itself, errors return on every rank, and nothing is aborted.
///
/// # Examples
/// The same program runs on one process, and on many that `mpirun` started:
/// ```
/// use krylith::comm::{Communicator, Mpi, Solo};
/// use krylith::{Problem, Solver, matrix::Csr};
/// use std::sync::Arc;
/// let mpi = Mpi::init()?;
/// let comm: Arc<dyn Communicator> = match &mpi {
///     Some(mpi) => mpi.clone(),
///     None => Arc::new(Solo),
/// };
/// let (first, n) = (comm.rank() as u32, comm.size());
/// let own = Csr::from_triplets(1, n, &[(0, first, 2.0)])?; // one row a rank; columns are global
/// let mut x = [0.0];
/// let problem = Problem::distributed_csr(comm, &own, Some(1))?;
/// Solver::new(problem, &"device=cpu".parse()?)?.solve(&[4.0], &mut x)?;
/// assert!((x[0] - 2.0).abs() < 1e-5);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Mpi {
    world: Arc<World>,
    sums: Mutex<Sums>,
    ahead: Mutex<Ahead>,
}

/// A sum that was started and not finished: MPI may read and write its buffers.
#[derive(Default)]
struct Ahead {
    sums: Sums,
    request: Option<Handle>,
}

impl Drop for Ahead {
    fn drop(&mut self) {
        if self.request.is_some() {
            std::mem::forget(std::mem::take(&mut self.sums));
        }
    }
}

/// The send and receive buffers of a sum.
#[derive(Default)]
struct Sums {
    mine: Vec<f64>,
    all: Vec<f64>,
}

impl Mpi {
    /// Starts MPI, once in a process; `None` if no launcher started this process. In a program that has
    /// started MPI itself, uses that MPI, and leaves its finalisation to the program.
    ///
    /// The library is one that is already in the process, the one that `KRYLITH_MPI` names (a path, or a name
    /// that the system finds), or the launcher's. It may be Open MPI, MPICH or a library with its ABI, or
    /// have the standard ABI of MPI 5.
    ///
    /// Collective. Call it early: only the launcher notices a rank that ends before this call with exit code
    /// 0.
    ///
    /// # Errors
    /// No library, or one that is not the launcher's; a second call; a library without
    /// `MPI_THREAD_SERIALIZED`; an error of [`time_limit`]; ranks that do not answer.
    pub fn init() -> Result<Option<Arc<Self>>> {
        let (limit, launch) = (time_limit()?, Launch::here());
        let library = match (Library::running(), &launch) {
            (Some(library), _) => library,
            (None, None) => return Ok(None),
            (None, Some(launch)) => match Library::of_launch(launch) {
                Err(_) if !launch.is_one_of_several() => return Ok(None),
                found => found?,
            },
        };
        Self::meet(World::init(library, launch.as_ref(), limit)?).map(Some)
    }

    /// Joins the ranks of a communicator in a program that has started MPI itself. The program keeps the
    /// communicator; Krylith uses a duplicate. A rank that fails notifies the others and goes on. Collective.
    ///
    /// `handle` is the communicator's Fortran handle, in C from `MPI_Comm_c2f`, because it looks the same in
    /// every MPI library. `sizes` are the sizes in bytes of a communicator's handle and of a status in the
    /// caller's MPI, if the caller knows them; a library with other sizes is not used.
    ///
    /// # Errors
    /// No MPI library in this process, or none with these sizes; MPI not started, finalised, or without
    /// `MPI_THREAD_SERIALIZED`; a library that treats each rank of a launcher as a single process; an error
    /// of [`time_limit`]; ranks that do not answer.
    ///
    /// # Safety
    /// The handle must be that of a live communicator of the MPI library in this process, between processes
    /// of one group.
    pub unsafe fn from_handle(handle: c_int, sizes: Option<(usize, usize)>) -> Result<Arc<Self>> {
        let limit = time_limit()?;
        let library = Library::of_communicator(sizes)?;
        // SAFETY: the caller's promise; MPI is running when the handle is requested.
        let comm = || unsafe { library.communicator(handle) };
        Self::meet(World::join(library, comm, Launch::here().as_ref(), limit)?)
    }

    /// The MPI library in use, as `Open MPI v4.1.4 (/usr/lib/libmpi.so.40)`; `None` before ranks were
    /// requested.
    pub fn library() -> Option<String> {
        Library::chosen().map(Library::describe)
    }

    /// The MPI library that ranks would use, formatted as in [`Mpi::library`] and found as in [`Mpi::init`].
    /// Starts nothing.
    ///
    /// # Errors
    /// [`Error::Library`] with all that was tried.
    pub fn probe() -> Result<String> {
        Library::probe().map_err(|message| Error::Library {
            library: "MPI".into(),
            message,
            remedy: "install an MPI library, or give its file: KRYLITH_MPI=PATH".into(),
        })
    }

    /// Duplicates the communicator, for a solver that works at the same time as another: their messages do
    /// not mix. A rank that fails on the duplicate notifies the others, and the job goes on. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    pub fn duplicate(&self) -> Result<Arc<Self>> {
        Self::meet(self.world.duplicate()?)
    }

    /// Divides the ranks into groups, as [`Communicator::split`] does.
    ///
    /// # Errors
    /// As [`Communicator::split`].
    pub fn groups(&self, color: usize) -> Result<Arc<Self>> {
        // MPI_Comm_split may block, so all ranks meet first.
        self.sum(&mut [0.0])?;
        Self::meet(self.world.split(color)?)
    }

    /// Exchanges the identities of the ranks of a new communicator.
    fn meet(world: World) -> Result<Arc<Self>> {
        let world = Arc::new(world);
        let mpi = Arc::new(Self { world: world.clone(), sums: Mutex::default(), ahead: Mutex::default() });
        let identities = gather(&*mpi, &Identity::own().to_bytes())?;
        let identities = identities.iter().map(|bytes| Identity::from_bytes(bytes)).collect();
        world.meet(Peers::new(world.rank, identities));
        Ok(mpi)
    }

    /// Finalises MPI once all ranks have called this; later calls to MPI are errors. Collective; a second
    /// call does nothing.
    ///
    /// # Errors
    /// A rank that is gone or failed, or the time limit.
    pub fn finish(&self) -> Result<()> {
        self.world.finish()
    }

    /// As [`Communicator::sum`], in an order that MPI chooses; `sum` does so with more than 64 ranks. All
    /// ranks get the same bits. From run to run the result is as reproducible as the MPI library's reduction.
    ///
    /// # Errors
    /// As [`Communicator::sum`].
    pub fn reduce(&self, values: &mut [f64]) -> Result<()> {
        let n = count(values.len())?;
        let mut sums = self.sums.lock().unwrap_or_else(|e| e.into_inner());
        let Sums { mine, all } = &mut *sums;
        mine.clear();
        mine.extend_from_slice(values);
        all.resize(all.len().max(values.len()), 0.0);
        let (from, to) = (mine.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
        let (mpi, double) = (&self.world.library().table, self.world.library().constants.double);
        let op = self.world.library().constants.sum;
        // SAFETY: both hold n numbers, and are freed only after the wait has succeeded.
        let reduce = self.world.start("MPI_Ireduce", |comm, request| unsafe {
            mpi.MPI_Ireduce(from, to, n, double, op, 0, comm, request)
        });
        let done = reduce.and_then(|r| self.world.wait_one("MPI_Ireduce", r)).and_then(|()| {
            // SAFETY: as above.
            let spread = self.world.start("MPI_Ibcast", |comm, request| unsafe {
                mpi.MPI_Ibcast(to, n, double, 0, comm, request)
            })?;
            self.world.wait_one("MPI_Ibcast", spread)
        });
        keep_on_error(&mut sums, done)?;
        values.copy_from_slice(&sums.all[..values.len()]);
        Ok(())
    }
}

impl Mpi {
    /// Starts to gather the numbers of all ranks. The buffers must stay valid until a wait for the returned
    /// request has succeeded.
    fn gather_numbers(&self, sums: &mut Sums, values: &[f64]) -> Result<Handle> {
        let n = count(values.len())?;
        let Sums { mine, all } = sums;
        mine.clear();
        mine.extend_from_slice(values);
        all.resize(all.len().max(values.len() * self.size()), 0.0);
        let (from, to) = (mine.as_ptr().cast::<c_void>(), all.as_mut_ptr().cast::<c_void>());
        let (mpi, double) = (&self.world.library().table, self.world.library().constants.double);
        // SAFETY: n numbers are sent, and n from each rank fit; both buffers stay valid until the wait has
        // succeeded.
        self.world.start("MPI_Iallgather", |comm, request| unsafe {
            mpi.MPI_Iallgather(from, n, double, to, n, double, comm, request)
        })
    }
}

impl Sums {
    /// Adds the gathered numbers in rank order.
    fn add(&self, ranks: usize, values: &mut [f64]) {
        let length = values.len();
        values.copy_from_slice(&self.all[..length]);
        for theirs in (1..ranks).map(|q| &self.all[q * length..(q + 1) * length]) {
            values.iter_mut().zip(theirs).for_each(|(sum, v)| *sum += v);
        }
    }
}

/// Leaks the buffers of a failed operation, because MPI may still write to them.
fn keep_on_error(sums: &mut Sums, done: Result<()>) -> Result<()> {
    if done.is_err() {
        std::mem::forget(std::mem::take(sums));
    }
    done
}

impl Drop for Mpi {
    /// A rank that panics ends the job, after its message was printed. Any other end without [`Mpi::finish`]
    /// is left to the launcher, because the program has yet to print its error.
    fn drop(&mut self) {
        if std::thread::panicking() && self.world.is_owned() {
            self.fail("panicked");
        }
    }
}

impl Communicator for Mpi {
    fn rank(&self) -> usize {
        self.world.rank
    }

    fn size(&self) -> usize {
        self.world.size
    }

    /// With more than 64 ranks MPI chooses the order, see [`Mpi::reduce`].
    fn sum(&self, values: &mut [f64]) -> Result<()> {
        if self.size() > GATHERED {
            return self.reduce(values);
        }
        let mut sums = self.sums.lock().unwrap_or_else(|e| e.into_inner());
        let request = self.gather_numbers(&mut sums, values);
        let done = request.and_then(|r| self.world.wait_one("MPI_Iallgather", r));
        keep_on_error(&mut sums, done)?;
        sums.add(self.size(), values);
        Ok(())
    }

    /// With more than 64 ranks the whole sum is done here, see [`Mpi::reduce`].
    fn start_sum(&self, values: &mut [f64]) -> Result<()> {
        if self.size() > GATHERED {
            return self.reduce(values);
        }
        let mut ahead = self.ahead.lock().unwrap_or_else(|e| e.into_inner());
        if ahead.request.is_some() {
            return Err(Error::invalid("a sum was started before the previous one was finished"));
        }
        ahead.request = Some(self.gather_numbers(&mut ahead.sums, values)?);
        Ok(())
    }

    fn finish_sum(&self, values: &mut [f64]) -> Result<()> {
        if self.size() > GATHERED {
            return Ok(());
        }
        let mut ahead = self.ahead.lock().unwrap_or_else(|e| e.into_inner());
        let request =
            ahead.request.take().ok_or_else(|| Error::invalid("finish_sum was called without start_sum"))?;
        let done = self.world.wait_one("MPI_Iallgather", request);
        keep_on_error(&mut ahead.sums, done)?;
        ahead.sums.add(self.size(), values);
        Ok(())
    }

    fn all_to_all(&self, out: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let (rank, size, world) = (self.rank(), self.size(), &*self.world);
        if out.len() != size {
            return Err(Error::invalid(format!(
                "all_to_all got {} messages for {size} ranks; expected one message for each rank",
                out.len()
            )));
        }
        // After an error below, MPI may still use these.
        let mut out = ManuallyDrop::new(out);
        let lengths: ManuallyDrop<Vec<u64>> = ManuallyDrop::new(out.iter().map(|m| m.len() as u64).collect());
        let mut coming = ManuallyDrop::new(vec![0u64; size]);
        let (from, to) = (lengths.as_ptr().cast::<c_void>(), coming.as_mut_ptr().cast::<c_void>());
        let (mpi, constants) = (&world.library().table, &world.library().constants);
        let (byte, number) = (constants.uint8, constants.uint64);
        // SAFETY: both hold a number for each rank, and are dropped only after the wait has succeeded.
        let request = world.start("MPI_Ialltoall", |comm, request| unsafe {
            mpi.MPI_Ialltoall(from, 1, number, to, 1, number, comm, request)
        })?;
        world.wait_one("MPI_Ialltoall", request)?;

        let mut incoming = ManuallyDrop::new(Vec::with_capacity(size));
        for (q, &n) in coming.iter().enumerate() {
            let mut bytes = Vec::new();
            let length = if q == rank { 0 } else { n as usize };
            crate::alloc::reserve(&mut bytes, length).map_err(|_| Error::Memory {
                what: format!("a message from rank {q}"),
                needed: n,
                free: 0,
                place: "the host".into(),
                remedy: "use more hosts, or fewer ranks on each",
            })?;
            bytes.resize(length, 0u8);
            incoming.push(bytes);
        }
        let (mut requests, mut ranks) = (Requests::new(mpi), Vec::new());
        for q in (0..size).filter(|&q| q != rank) {
            for piece in incoming[q].chunks_mut(PIECE) {
                let (to, n) = (piece.as_mut_ptr().cast::<c_void>(), count(piece.len())?);
                // SAFETY: n bytes, which are dropped or moved only after the wait has succeeded.
                requests.push(world.start("MPI_Irecv", |comm, request| unsafe {
                    mpi.MPI_Irecv(to, n, byte, q as c_int, 0, comm, request)
                })?);
                ranks.push(q);
            }
        }
        // Starting after this rank's own number spreads the first messages over all receivers.
        for q in (1..size).map(|step| (rank + step) % size) {
            for piece in out[q].chunks(PIECE) {
                let (from, n) = (piece.as_ptr().cast::<c_void>(), count(piece.len())?);
                // SAFETY: as above.
                requests.push(world.start("MPI_Isend", |comm, request| unsafe {
                    mpi.MPI_Isend(from, n, byte, q as c_int, 0, comm, request)
                })?);
                ranks.push(q);
            }
        }
        world.wait("set-up messages", &mut requests, &ranks)?;
        incoming[rank] = std::mem::take(&mut out[rank]);
        drop((ManuallyDrop::into_inner(out), ManuallyDrop::into_inner(lengths)));
        drop(ManuallyDrop::into_inner(coming));
        Ok(ManuallyDrop::into_inner(incoming))
    }

    fn channel(&self, messages: &[Message]) -> Result<Box<dyn Channel>> {
        let lengths = messages::check(self, messages)?;
        Ok(Box::new(MpiChannel::new(self.world.clone(), messages, &lengths)?))
    }

    fn split(&self, color: usize) -> Result<Arc<dyn Communicator>> {
        Ok(self.groups(color)?)
    }

    /// If Krylith started MPI, ends the job by `MPI_Abort` with exit code 3 and does not return; the caller
    /// must print the reason before. In a program that has started MPI itself, notifies the other ranks and
    /// returns.
    fn fail(&self, reason: &str) {
        if !self.world.is_owned() {
            return self.world.notify_failure(reason);
        }
        // An error of a closed pipe must not keep the others waiting.
        let _ = std::io::stdout().flush();
        let _ = std::io::stderr().flush();
        std::thread::sleep(PASS_ON);
        self.world.abort();
    }

    fn outlives_failure(&self) -> bool {
        !self.world.is_owned()
    }

    fn check(&self) -> Result<()> {
        self.world.check()
    }

    fn host(&self) -> HostShare {
        self.world.host()
    }

    fn shares_address_space(&self) -> bool {
        false
    }

    fn mpi(&self) -> Option<&Mpi> {
        Some(self)
    }
}
