//! The ranks of one communicator: start, end, errors, and bounded waits.

use super::abi::STATUS;
use super::functions::{Handle, Handles, Table};
use super::library::Library;
use super::requests::Requests;
use crate::comm::HostShare;
use crate::comm::launch::Launch;
use crate::comm::peers::Peers;
use crate::{Error, Result};
use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};

/// Time that a wait polls, on a core of its own, before it yields the core.
const POLL: Duration = Duration::from_micros(50);
/// Time after which a wait sleeps between polls instead of yielding.
const YIELD: Duration = Duration::from_millis(2);
/// Time after which a wait sleeps longer between polls.
const DOZE: Duration = Duration::from_millis(100);

/// True once MPI was started or joined by `init`.
static STARTED: AtomicBool = AtomicBool::new(false);
/// True if Krylith has started MPI, and so may end the job.
static OWNED: AtomicBool = AtomicBool::new(false);
/// Lets one thread of this process enter MPI at a time, whichever communicator it uses:
/// MPI_THREAD_SERIALIZED.
static ENTERED: Mutex<()> = Mutex::new(());
/// Tag of an empty message from a rank that has failed. Tag 0 is for set-up, tags above `HERE` are for halos.
const FAILED: c_int = 1;
/// Tags of the empty messages of a roll-call: a rank that has waited to the time limit sends `ASK`, and ranks
/// that are alive answer `HERE`.
const ASK: c_int = 2;
const HERE: c_int = 3;
/// Time that a roll-call waits for answers; a rank that waits in MPI answers in less than a millisecond.
const ROLL_CALL: Duration = Duration::from_secs(2);
/// Time that the end of a job may take if its launcher cannot be reached.
const ABORT: Duration = Duration::from_secs(5);
/// Time between looks at the other ranks while another library is inside MPI.
const WATCH: Duration = Duration::from_secs(1);

/// The ranks of one communicator.
pub(super) struct World {
    pub(super) rank: usize,
    pub(super) size: usize,
    library: &'static Library,
    /// Krylith's own communicator, whose messages do not mix with others.
    comm: Handle,
    limit: Duration,
    peers: OnceLock<Peers>,
    /// True if Krylith started MPI here, and so finalises it.
    owned: bool,
    finished: AtomicBool,
    /// The cause of the first failed wait; all later calls fail with it.
    failure: OnceLock<(Option<usize>, String)>,
    tags: AtomicUsize,
    /// Number of instances of MUMPS that were created.
    pub(super) instances: AtomicU64,
    /// True while a library is inside that calls MPI itself.
    is_inside: AtomicBool,
    /// True once a thread watches the other ranks during such calls.
    is_watched: AtomicBool,
}

/// A length as MPI's type for counts.
pub(super) fn count(n: usize) -> Result<c_int> {
    c_int::try_from(n).map_err(|_| {
        Error::Unsupported(format!(
            "a message has {n} numbers, but MPI supports at most {}; use more ranks",
            c_int::MAX
        ))
    })
}

impl World {
    /// Starts MPI or joins it.
    pub(super) fn init(library: &'static Library, launch: Option<&Launch>, limit: Duration) -> Result<Self> {
        let owned = !library.is_initialised();
        launch.filter(|_| owned).map_or(Ok(()), |launch| library.speaks_with(launch))?;
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(Error::invalid(
                "Krylith has already started MPI in this process; share that communicator instead of \
                 starting another",
            ));
        }
        if owned {
            let (wanted, null, mut provided) = (library.constants.thread_serialized, std::ptr::null_mut(), 0);
            // SAFETY: called once; MPI takes null for arguments that it need not see; an int is written.
            let code =
                unsafe { library.table.MPI_Init_thread(null, std::ptr::null_mut(), wanted, &mut provided) };
            library.checked("MPI_Init_thread", code)?;
            OWNED.store(true, Ordering::SeqCst);
        }
        usable(library, launch).inspect_err(|_| {
            if owned {
                // SAFETY: started above, and nothing else of it was called.
                let _ = unsafe { library.table.MPI_Finalize() }; // the first error is reported
            }
        })?;
        Self::of(library, library.constants.comm_world, limit, owned)
    }

    /// Joins the ranks of the program's communicator. Requests the communicator only after checking that MPI
    /// runs.
    pub(super) fn join(
        library: &'static Library,
        comm: impl FnOnce() -> Handle,
        launch: Option<&Launch>,
        limit: Duration,
    ) -> Result<Self> {
        if !library.is_initialised() {
            return Err(Error::invalid(
                "a communicator was passed, but the program has not started MPI; call MPI_Init first",
            ));
        }
        if library.is_finalised() {
            return Err(Error::invalid(
                "a communicator was passed, but the program has already called MPI_Finalize; solve before \
                 that call",
            ));
        }
        usable(library, launch)?;
        Self::of(library, comm(), limit, false)
    }

    /// Returns the same ranks with a communicator of their own, whose messages do not mix with those of this
    /// one. Collective.
    pub(super) fn duplicate(&self) -> Result<Self> {
        self.usable()?;
        Self::of(self.library, self.comm, self.limit, false)
    }

    /// Returns the ranks that give the same color, in the order of this communicator. Collective; all ranks
    /// call it at about the same time.
    pub(super) fn split(&self, color: usize) -> Result<Self> {
        let (mut word, color, key) = (0usize, count(color)?, count(self.rank)?); // as wide as a handle
        let (at, comm) = (Handles::at(&mut word), self.comm);
        // SAFETY: a live communicator, and room for one handle.
        self.call("MPI_Comm_split", |mpi| unsafe { mpi.MPI_Comm_split(comm, color, key, at) })?;
        // SAFETY: MPI has written the handle.
        let group = unsafe { self.library.table.load(at) };
        Self::of(self.library, group, self.limit, false)
    }

    /// Creates the ranks of `original`, on a duplicate of it.
    fn of(library: &'static Library, original: Handle, limit: Duration, owned: bool) -> Result<Self> {
        let errors = library.constants.errors_return;
        let (rank, size) = {
            let _entered = enter();
            // SAFETY: a live communicator.
            let code = unsafe { library.table.MPI_Comm_set_errhandler(original, errors) };
            library.checked("MPI_Comm_set_errhandler", code)?;
            place(library, original)?
        };
        let mut world = Self {
            rank,
            size,
            library,
            comm: original,
            limit,
            peers: OnceLock::new(),
            owned,
            finished: AtomicBool::new(false),
            failure: OnceLock::new(),
            tags: AtomicUsize::new(HERE as usize + 1),
            instances: AtomicU64::new(0),
            is_inside: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
        };
        // MPI writes the handle before the wait succeeds; until then its address must stay valid.
        let written = Handles::at(Box::leak(Box::new(0usize)));
        // SAFETY: `written` is never freed, and has room for the widest handle.
        let request = world.start("MPI_Comm_idup", |comm, request| unsafe {
            library.table.MPI_Comm_idup(comm, written, request)
        })?;
        world.wait_one("MPI_Comm_idup", request)?;
        // SAFETY: MPI has written it and does not use it any more.
        world.comm = unsafe { library.table.load(written) };
        let comm = world.comm;
        // SAFETY: a live communicator.
        world.call("MPI_Comm_set_errhandler", |mpi| unsafe { mpi.MPI_Comm_set_errhandler(comm, errors) })?;
        Ok(world)
    }

    pub(super) fn library(&self) -> &'static Library {
        self.library
    }

    /// Stores the identities of the other ranks.
    pub(super) fn meet(&self, peers: Peers) {
        let _ = self.peers.set(peers); // called once, by `Mpi::init`
    }

    pub(super) fn host(&self) -> HostShare {
        let alone = || HostShare { rank_on_host: 0, ranks_on_host: vec![self.rank] };
        self.peers.get().map_or_else(alone, Peers::host)
    }

    pub(super) fn is_owned(&self) -> bool {
        self.owned
    }

    pub(super) fn is_finished(&self) -> bool {
        self.finished.load(Ordering::SeqCst)
    }

    /// The next tag. It is the same on all ranks, because all request tags in the same order. Tag 0 is for
    /// set-up.
    pub(super) fn next_tag(&self) -> Result<c_int> {
        let (mut largest, mut found): (*mut c_int, c_int) = (std::ptr::null_mut(), 0);
        let comm = self.comm;
        // SAFETY: MPI writes a pointer to an int of its own.
        let largest = unsafe {
            let key = self.library.constants.tag_bound;
            let place = (&raw mut largest).cast();
            self.call("MPI_Comm_get_attr", |mpi| mpi.MPI_Comm_get_attr(comm, key, place, &mut found))?;
            if found != 0 && !largest.is_null() { *largest } else { 32767 } // at least that, by the standard
        };
        let tag = self.tags.fetch_add(1, Ordering::SeqCst);
        c_int::try_from(tag).ok().filter(|&t| t <= largest).ok_or_else(|| {
            Error::Unsupported(format!(
                "the new halo needs the message tag {tag}, but this MPI library allows tags only up to \
                 {largest}; create fewer solvers"
            ))
        })
    }

    /// Calls MPI while no other thread is inside.
    pub(super) fn call(&self, name: &str, call: impl FnOnce(&Table) -> c_int) -> Result<()> {
        self.usable()?;
        let _entered = enter();
        self.library.checked(name, call(&self.library.table))
    }

    /// Runs a library that calls MPI itself, while no other thread is inside. Such a call cannot end early.
    /// If a rank of this host is gone meanwhile, and Krylith has started MPI, the job ends.
    pub(super) fn inside<T>(self: &Arc<Self>, work: impl FnOnce() -> T) -> Result<T> {
        self.usable()?;
        let watched = OWNED.load(Ordering::SeqCst) && self.size > 1;
        if watched && !self.is_watched.swap(true, Ordering::SeqCst) {
            let world = Arc::downgrade(self);
            // Without the thread, only the launcher watches.
            let _ = std::thread::Builder::new().name("mpi".into()).spawn(move || watch(&world));
        }
        let _entered = enter();
        self.is_inside.store(true, Ordering::SeqCst);
        let done = work();
        self.is_inside.store(false, Ordering::SeqCst);
        Ok(done)
    }

    /// The Fortran handle of the communicator, for such a library.
    pub(super) fn fortran_handle(&self) -> c_int {
        // SAFETY: the communicator lives as long as MPI.
        unsafe { self.library.fortran_handle(self.comm) }
    }

    /// Starts an operation.
    pub(super) fn start(&self, name: &str, call: impl FnOnce(Handle, Handles) -> c_int) -> Result<Handle> {
        let mut word = 0usize; // as wide as the widest handle
        let at = Handles::at(&mut word);
        // SAFETY: a handle is stored there before and after the call.
        unsafe {
            self.library.table.store(self.library.constants.request_null, at);
            self.call(name, |_| call(self.comm, at))?;
            Ok(self.library.table.load(at))
        }
    }

    fn usable(&self) -> Result<()> {
        // A program may end its MPI and drop its solvers later.
        if self.is_finished() || self.library.is_finalised() {
            return Err(Error::invalid(
                "this solver needs MPI, which the program has already finalized; solve before MPI_Finalize",
            ));
        }
        self.failure.get().map_or(Ok(()), |(rank, message)| Err(fault(*rank, message)))
    }

    /// Notifies the other ranks that this one cannot go on, without waiting for any.
    pub(super) fn notify_failure(&self, reason: &str) {
        for q in (0..self.size).filter(|&q| q != self.rank) {
            if self.tell(q, FAILED).is_err() {
                break; // the others find out at their time limit
            }
        }
        let _ = self.failure.set((Some(self.rank), reason.to_string())); // an earlier failure is kept
    }

    /// Sends an empty message, which needs no buffer; its request is never tested.
    fn tell(&self, rank: usize, tag: c_int) -> Result<()> {
        let (mpi, byte) = (&self.library.table, self.library.constants.uint8);
        // SAFETY: nothing is read from the null pointer.
        let told = self.start("MPI_Isend", |comm, request| unsafe {
            mpi.MPI_Isend(std::ptr::null(), 0, byte, rank as c_int, tag, comm, request)
        });
        told.map(drop)
    }

    /// Receives an empty message, if one has arrived, and returns its sender.
    fn take(&self, tag: c_int) -> Option<usize> {
        let from = self.probe(tag)?;
        let (comm, byte, mut status) = (self.comm, self.library.constants.uint8, [0 as c_int; STATUS]);
        // SAFETY: the probed message has arrived, so receiving it does not wait. It is empty, so it needs no
        // buffer.
        let taken = self.call("MPI_Recv", |mpi| unsafe {
            let nothing = std::ptr::null_mut();
            mpi.MPI_Recv(nothing, 0, byte, from as c_int, tag, comm, status.as_mut_ptr().cast())
        });
        taken.ok().map(|()| from)
    }

    /// The sender of a message with this tag that was not received yet.
    fn probe(&self, tag: c_int) -> Option<usize> {
        let (comm, constants) = (self.comm, &self.library.constants);
        let (mut flag, mut status) = (0, [0 as c_int; STATUS]);
        // SAFETY: MPI writes the flag, and the status where the flag is set.
        let probed = self.call("MPI_Iprobe", |mpi| unsafe {
            mpi.MPI_Iprobe(constants.any_source, tag, comm, &mut flag, status.as_mut_ptr().cast())
        });
        (probed.is_ok() && flag != 0).then(|| status[constants.source] as usize)
    }

    /// Replies to the roll-calls of other ranks.
    fn answer(&self) {
        while let Some(rank) = self.take(ASK) {
            let _ = self.tell(rank, HERE); // the other rank has its own time limit
        }
    }

    /// The first rank that does not answer a roll-call: it computes, hangs or cannot be reached. Ranks that
    /// wait do answer.
    fn silent(&self) -> Option<usize> {
        let mut here = vec![false; self.size];
        here[self.rank] = true;
        for q in (0..self.size).filter(|&q| q != self.rank) {
            let _ = self.tell(q, ASK); // a rank that cannot be reached does not answer
        }
        let begin = Instant::now();
        while begin.elapsed() < ROLL_CALL.min(self.limit) && here.contains(&false) {
            while let Some(q) = self.take(ASK) {
                here[q] = true;
                let _ = self.tell(q, HERE);
            }
            while let Some(q) = self.take(HERE) {
                here[q] = true;
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        here.iter().position(|here| !here)
    }

    /// A rank that has sent a notice of its failure.
    fn heard(&self) -> Option<(usize, String)> {
        self.probe(FAILED).map(|rank| (rank, "failed; the error of that rank names the cause".into()))
    }

    /// A rank that is gone or has failed, with a description.
    fn lost(&self) -> Option<(usize, String)> {
        self.heard().or_else(|| self.peers.get().and_then(Peers::dead))
    }

    /// Stores the reason why this rank cannot go on, and returns it as an error.
    fn broken(&self, rank: Option<usize>, mut message: String) -> Error {
        let host = rank.and_then(|rank| Some((rank, self.peers.get()?.host_of(rank)?)));
        if let Some((rank, host)) = host {
            message += &format!("; rank {rank} runs on host {host}");
        }
        let (rank, message) = self.failure.get_or_init(|| (rank, message));
        fault(*rank, message)
    }

    /// Fails if a rank is known to be gone; checks the processes at most once a second.
    pub(super) fn check(&self) -> Result<()> {
        self.usable()?;
        match self.lost() {
            None => Ok(()),
            Some((rank, how)) => Err(self.broken(Some(rank), how)),
        }
    }

    /// Waits for all of `requests`. `ranks` gives the other rank of each, if it is known.
    ///
    /// After an error requests may still be pending: their buffers must never be freed.
    pub(super) fn wait(&self, name: &str, requests: &mut Requests, ranks: &[usize]) -> Result<()> {
        self.wait_for(name, requests.at(0), requests.len(), ranks, false)
    }

    /// Waits for all of `requests` while the other ranks live. Only a suspended rank has a time limit.
    pub(super) fn wait_when_ready(&self, name: &str, requests: &mut Requests, ranks: &[usize]) -> Result<()> {
        self.wait_for(name, requests.at(0), requests.len(), ranks, true)
    }

    /// Waits for one request.
    pub(super) fn wait_one(&self, name: &str, request: Handle) -> Result<()> {
        let mut word = 0usize; // as wide as the widest handle
        let at = Handles::at(&mut word);
        // SAFETY: there is room for one handle.
        unsafe { self.library.table.store(request, at) };
        self.wait_for(name, at, 1, &[], false)
    }

    /// Waits for `n` requests that are stored side by side. A `patient` wait has no time limit while the
    /// processes of this host run.
    fn wait_for(
        &self,
        name: &str,
        requests: Handles,
        n: usize,
        ranks: &[usize],
        patient: bool,
    ) -> Result<()> {
        let (begin, mut running) = (Instant::now(), Instant::now());
        let crowded = self.is_crowded();
        loop {
            if self.test(name, requests, n)? {
                return Ok(());
            }
            let waited = begin.elapsed();
            if waited < POLL && !crowded {
                std::hint::spin_loop();
                continue;
            }
            if waited < YIELD {
                std::thread::yield_now();
                continue;
            }
            std::thread::sleep(Duration::from_micros(if waited < DOZE { 50 } else { 500 }));
            if let Some((rank, how)) = self.lost() {
                // Messages that it sent before it ended may have arrived in the meantime.
                if self.test(name, requests, n)? {
                    return Ok(());
                }
                return Err(self.broken(Some(rank), how));
            }
            self.answer();
            if patient && running.elapsed() > WATCH && self.peers.get().and_then(Peers::stopped).is_none() {
                running = Instant::now();
            }
            if (if patient { running.elapsed().saturating_sub(WATCH) } else { waited }) > self.limit {
                return Err(self.late(name, requests, n, ranks));
            }
        }
    }

    fn test(&self, name: &str, requests: Handles, n: usize) -> Result<bool> {
        let (n, mut done, no_statuses) = (count(n)?, 0, self.library.constants.no_statuses);
        // SAFETY: n requests of this process; `no_statuses` tells MPI to write no statuses.
        self.call(name, |mpi| unsafe { mpi.MPI_Testall(n, requests, &mut done, no_statuses) })?;
        Ok(done != 0)
    }

    /// True if there are more ranks than cores here, so that a polling rank keeps another from working.
    fn is_crowded(&self) -> bool {
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        self.peers.get().is_none_or(|p| p.ranks_on_host() > cores)
    }

    /// The error at the time limit; it names the rank if that can be found out.
    fn late(&self, name: &str, requests: Handles, n: usize, ranks: &[usize]) -> Error {
        let (rank, known) = match self.peers.get().and_then(Peers::stopped) {
            Some((rank, how)) => (Some(rank), format!("{how}; ")),
            None => {
                let silent = self.silent();
                let mut pending = (0..n).zip(ranks).filter_map(|(i, rank)| {
                    match self.test(name, self.library.table.nth(requests, i), 1) {
                        Ok(true) => None,
                        _ => Some(*rank),
                    }
                });
                (silent.or_else(|| pending.next()), String::new())
            }
        };
        let message = format!(
            "{known}{name}: no answer within {} s; a rank hangs, or is much slower than the others: KRYLITH_TIMEOUT sets \
             the limit in seconds",
            self.limit.as_secs_f64()
        );
        self.broken(rank, message)
    }

    /// Finalises MPI once all ranks are here.
    pub(super) fn finish(&self) -> Result<()> {
        if self.is_finished() {
            return Ok(());
        }
        let mpi = &self.library.table;
        // MPI_Finalize may wait forever, so no rank enters it before all are here. SAFETY: no buffers.
        let request =
            self.start("MPI_Ibarrier", |comm, request| unsafe { mpi.MPI_Ibarrier(comm, request) })?;
        self.wait_one("MPI_Ibarrier", request)?;
        let _entered = enter();
        if self.finished.swap(true, Ordering::SeqCst) || !self.owned {
            return Ok(());
        }
        // SAFETY: started here, not finalised before, and `finished` keeps all threads out from now on.
        self.library.checked("MPI_Finalize", unsafe { mpi.MPI_Finalize() })
    }

    /// Ends the whole job with exit code 3.
    pub(super) fn abort(&self) -> ! {
        // If the launcher cannot be reached, MPI_Abort waits for it forever. SAFETY: ends the process, and
        // runs no handlers.
        let in_time = || unsafe { libc::_exit(3) };
        let _ = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(ABORT);
            in_time()
        });
        if !self.is_finished() {
            let _entered = enter();
            // SAFETY: MPI runs, and no other thread is inside.
            unsafe { self.library.table.MPI_Abort(self.library.constants.comm_world, 3) };
        }
        std::process::exit(3)
    }
}

/// Ends the job if a rank is gone while this one is inside another library, where it cannot look itself. A
/// suspended rank has until the time limit.
fn watch(world: &Weak<World>) {
    let mut suspended = Duration::ZERO;
    loop {
        std::thread::sleep(WATCH);
        let Some(world) = world.upgrade() else { return };
        let peers = world.peers.get().filter(|_| world.is_inside.load(Ordering::SeqCst));
        suspended = match peers.and_then(Peers::stopped) {
            Some(_) => suspended + WATCH,
            None => Duration::ZERO,
        };
        if suspended > world.limit || peers.and_then(Peers::dead).is_some() {
            world.abort();
        }
    }
}

/// Keeps other threads out of MPI.
fn enter() -> MutexGuard<'static, ()> {
    ENTERED.lock().unwrap_or_else(|e| e.into_inner())
}

/// Rank and size in a communicator.
fn place(library: &Library, comm: Handle) -> Result<(usize, usize)> {
    let (mut rank, mut size) = (0, 0);
    // SAFETY: a live communicator; the ints are written.
    unsafe {
        library.checked("MPI_Comm_rank", library.table.MPI_Comm_rank(comm, &mut rank))?;
        library.checked("MPI_Comm_size", library.table.MPI_Comm_size(comm, &mut size))?;
    }
    Ok((rank as usize, size as usize))
}

/// Refuses an MPI that only some threads may call, and one that treats each rank of a launcher as a single
/// process.
fn usable(library: &Library, launch: Option<&Launch>) -> Result<()> {
    let _entered = enter();
    let mut provided = 0;
    // SAFETY: MPI runs; one int is written.
    library.checked("MPI_Query_thread", unsafe { library.table.MPI_Query_thread(&mut provided) })?;
    if provided < library.constants.thread_serialized {
        return Err(Error::Unsupported(
            "MPI was started so that only one thread may call it; start it with MPI_THREAD_SERIALIZED, or \
             build a library with threads"
                .into(),
        ));
    }
    let Some(launch) = launch else { return Ok(()) };
    let (rank, size) = place(library, library.constants.comm_world)?;
    library.sees(launch, rank, size)
}

fn fault(rank: Option<usize>, message: &str) -> Error {
    match rank {
        Some(rank) => Error::Rank { rank, message: message.into(), exit_code: 3, memory: false },
        None => Error::NoAnswer(message.into()),
    }
}
