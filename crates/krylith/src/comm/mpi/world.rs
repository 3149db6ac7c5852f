//! The MPI library of this process: start, end, errors, and waits that end.

use crate::comm::HostShare;
use crate::comm::peers::Peers;
use crate::{Error, Result};
use mpi_sys as ffi;
use std::ffi::{c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

/// How long a wait polls, with a core to itself, before it gives the core to others.
const POLL: Duration = Duration::from_micros(50);
/// How long it only gives the core away before it sleeps between two looks.
const YIELD: Duration = Duration::from_millis(2);
/// How long it sleeps for short before it sleeps longer.
const DOZE: Duration = Duration::from_millis(100);

/// Set when MPI was started or joined here.
static STARTED: AtomicBool = AtomicBool::new(false);
/// MPI is entered by one thread of this process at a time, whichever communicator it uses: MPI_THREAD_SERIALIZED.
static ENTERED: Mutex<()> = Mutex::new(());
/// Tag of a message without content: its sender has failed. Tag 0 is that of set-up, those beyond `HERE` are halos'.
const FAILED: c_int = 1;
/// Tags of a roll-call, without content too: its sender has waited to the time limit and asks who is there; it is.
const ASK: c_int = 2;
const HERE: c_int = 3;
/// How long a roll-call waits for answers; a rank that waits in MPI answers in less than a millisecond.
const ROLL_CALL: Duration = Duration::from_secs(2);
/// How long the end of a job may take where its launcher cannot be reached.
const ABORT: Duration = Duration::from_secs(5);

/// All ranks.
pub(super) struct World {
    pub(super) rank: usize,
    pub(super) size: usize,
    /// Krylith's own, so that its messages meet no others.
    comm: ffi::MPI_Comm,
    limit: Duration,
    peers: OnceLock<Peers>,
    /// MPI was started here, and ends here.
    owned: bool,
    finished: AtomicBool,
    /// What made an earlier wait fail; nothing goes on after that.
    failure: OnceLock<(Option<usize>, String)>,
    tags: AtomicUsize,
}

// SAFETY: the handles are numbers or pointers that MPI lets any thread use, one at a time; `ENTERED` sees to that.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

/// A length as MPI wants it.
pub(super) fn count(n: usize) -> Result<c_int> {
    c_int::try_from(n).map_err(|_| {
        Error::Unsupported(format!("{n} numbers in one message; MPI takes {} at most", c_int::MAX))
    })
}

/// True if MPI has been started in this process, by whomever.
pub(super) fn is_initialised() -> bool {
    let mut flag = 0;
    // SAFETY: may be called at any time; writes one int.
    unsafe { ffi::MPI_Initialized(&mut flag) };
    flag != 0
}

fn error(call: &str, code: c_int) -> Error {
    let mut text = vec![0u8; ffi::MPI_MAX_ERROR_STRING as usize + 1];
    let mut length = 0;
    // SAFETY: the buffer has the length that MPI asks for.
    unsafe { ffi::MPI_Error_string(code, text.as_mut_ptr().cast::<c_char>(), &mut length) };
    text.truncate(usize::try_from(length).unwrap_or(0));
    let message = String::from_utf8_lossy(&text).into_owned();
    Error::Device { device: "MPI".into(), call: call.into(), message }
}

fn checked(call: &str, code: c_int) -> Result<()> {
    if code == ffi::MPI_SUCCESS as c_int { Ok(()) } else { Err(error(call, code)) }
}

impl World {
    /// Starts MPI or joins it.
    pub(super) fn init(limit: Duration) -> Result<Self> {
        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(Error::invalid("MPI is started once in a process; share the communicator"));
        }
        let owned = !is_initialised();
        let mut provided = 0;
        // SAFETY: called once; MPI takes null for arguments that it need not see; the others are written.
        unsafe {
            let wanted = ffi::RSMPI_THREAD_SERIALIZED;
            let null = std::ptr::null_mut();
            match owned {
                true => checked(
                    "MPI_Init_thread",
                    ffi::MPI_Init_thread(null, std::ptr::null_mut(), wanted, &mut provided),
                )?,
                false => checked("MPI_Query_thread", ffi::MPI_Query_thread(&mut provided))?,
            }
        }
        enough_threads(provided)?;
        // SAFETY: a constant once MPI is started.
        Self::of(unsafe { ffi::RSMPI_COMM_WORLD }, limit, owned)
    }

    /// Joins the ranks of a communicator of the program's own.
    pub(super) fn join(comm: ffi::MPI_Comm, limit: Duration) -> Result<Self> {
        let mut provided = 0;
        if !is_initialised() {
            return Err(Error::invalid("a communicator of a program that has not started MPI"));
        }
        // SAFETY: MPI runs; one int is written.
        checked("MPI_Query_thread", unsafe { ffi::MPI_Query_thread(&mut provided) })?;
        enough_threads(provided)?;
        Self::of(comm, limit, false)
    }

    /// The same ranks, with messages that meet none of these. Collective.
    pub(super) fn duplicate(&self) -> Result<Self> {
        self.usable()?;
        Self::of(self.comm, self.limit, false)
    }

    /// The ranks of `original`, on a duplicate of it.
    fn of(original: ffi::MPI_Comm, limit: Duration, owned: bool) -> Result<Self> {
        let (mut rank, mut size) = (0, 0);
        {
            let _entered = ENTERED.lock().unwrap_or_else(|e| e.into_inner());
            // SAFETY: a live communicator; the ints are written.
            unsafe {
                checked(
                    "MPI_Comm_set_errhandler",
                    ffi::MPI_Comm_set_errhandler(original, ffi::RSMPI_ERRORS_RETURN),
                )?;
                checked("MPI_Comm_rank", ffi::MPI_Comm_rank(original, &mut rank))?;
                checked("MPI_Comm_size", ffi::MPI_Comm_size(original, &mut size))?;
            }
        }
        let mut world = Self {
            rank: rank as usize,
            size: size as usize,
            comm: original,
            limit,
            peers: OnceLock::new(),
            owned,
            finished: AtomicBool::new(false),
            failure: OnceLock::new(),
            tags: AtomicUsize::new(HERE as usize + 1),
        };
        // MPI writes the handle when the wait ends well; until then it must stay where it is.
        // SAFETY: a null handle, to be overwritten.
        let own: &'static mut ffi::MPI_Comm = Box::leak(Box::new(unsafe { ffi::RSMPI_COMM_NULL }));
        let written: *mut ffi::MPI_Comm = own;
        // SAFETY: `written` lives for ever.
        let request = world
            .start("MPI_Comm_idup", |comm, request| unsafe { ffi::MPI_Comm_idup(comm, written, request) })?;
        world.wait("MPI_Comm_idup", &mut [request], &[])?;
        // SAFETY: MPI has written it and is done with it.
        world.comm = unsafe { *written };
        let comm = world.comm;
        // SAFETY: a live communicator.
        world.call("MPI_Comm_set_errhandler", || unsafe {
            ffi::MPI_Comm_set_errhandler(comm, ffi::RSMPI_ERRORS_RETURN)
        })?;
        Ok(world)
    }

    /// The others have told who they are.
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

    /// The next tag, the same on all ranks, which all ask in the same order. Tag 0 is that of set-up.
    pub(super) fn next_tag(&self) -> Result<c_int> {
        let (mut largest, mut found): (*mut c_int, c_int) = (std::ptr::null_mut(), 0);
        let comm = self.comm;
        // SAFETY: MPI writes a pointer to an int of its own.
        let largest = unsafe {
            let key = ffi::MPI_TAG_UB as c_int;
            let place = (&raw mut largest).cast();
            self.call("MPI_Comm_get_attr", || ffi::MPI_Comm_get_attr(comm, key, place, &mut found))?;
            if found != 0 && !largest.is_null() { *largest } else { 32767 } // at least that, by the standard
        };
        let tag = self.tags.fetch_add(1, Ordering::SeqCst);
        c_int::try_from(tag).ok().filter(|&t| t <= largest).ok_or_else(|| {
            Error::Unsupported(format!(
                "halo number {tag} of this run; this MPI library tells {largest} apart"
            ))
        })
    }

    /// Calls MPI, no other thread being there.
    pub(super) fn call(&self, name: &str, call: impl FnOnce() -> c_int) -> Result<()> {
        self.usable()?;
        let _entered = ENTERED.lock().unwrap_or_else(|e| e.into_inner());
        checked(name, call())
    }

    /// Starts an operation.
    pub(super) fn start(
        &self,
        name: &str,
        call: impl FnOnce(ffi::MPI_Comm, *mut ffi::MPI_Request) -> c_int,
    ) -> Result<ffi::MPI_Request> {
        // SAFETY: a constant, to be overwritten.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        self.call(name, || call(self.comm, &mut request))?;
        Ok(request)
    }

    fn usable(&self) -> Result<()> {
        if self.is_finished() {
            return Err(Error::invalid("MPI has been finished in this process"));
        }
        self.failure.get().map_or(Ok(()), |(rank, message)| Err(fault(*rank, message)))
    }

    /// Tells the other ranks that this one cannot go on, without waiting for anybody.
    pub(super) fn tell_failure(&self, reason: &str) {
        for q in (0..self.size).filter(|&q| q != self.rank) {
            if self.tell(q, FAILED).is_err() {
                break; // who waits for this rank hears of it by the time limit
            }
        }
        let _ = self.failure.set((Some(self.rank), reason.to_string())); // a failure before it stays
    }

    /// Sends a message without content, which needs no buffer; its request is never looked at.
    fn tell(&self, rank: usize, tag: c_int) -> Result<()> {
        // SAFETY: nothing is read from the null pointer.
        let told = self.start("MPI_Isend", |comm, request| unsafe {
            ffi::MPI_Isend(std::ptr::null(), 0, ffi::RSMPI_UINT8_T, rank as c_int, tag, comm, request)
        });
        told.map(drop)
    }

    /// Takes a message without content, if one is here, and says from whom.
    fn take(&self, tag: c_int) -> Option<usize> {
        let (mut flag, mut status) = (0, std::mem::MaybeUninit::<ffi::MPI_Status>::uninit());
        let comm = self.comm;
        // SAFETY: MPI writes the flag, and the status where the flag is set; the message that was seen is here, so that
        // receiving it does not wait, and without content it needs no buffer.
        let taken = self.call("MPI_Iprobe", || unsafe {
            let code = ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, tag, comm, &mut flag, status.as_mut_ptr());
            if code != ffi::MPI_SUCCESS as c_int || flag == 0 {
                return code;
            }
            let (from, nothing) = (status.assume_init_ref().MPI_SOURCE, std::ptr::null_mut());
            ffi::MPI_Recv(nothing, 0, ffi::RSMPI_UINT8_T, from, tag, comm, status.as_mut_ptr())
        });
        if taken.is_err() || flag == 0 {
            return None;
        }
        // SAFETY: written, for the flag is set.
        Some(unsafe { status.assume_init() }.MPI_SOURCE as usize)
    }

    /// Answers who asks whether this rank is there.
    fn answer(&self) {
        while let Some(rank) = self.take(ASK) {
            let _ = self.tell(rank, HERE); // who asks has its own time limit
        }
    }

    /// The first rank that does not answer a roll-call: it computes, hangs or cannot be reached. Ranks that wait answer.
    fn silent(&self) -> Option<usize> {
        let mut here = vec![false; self.size];
        here[self.rank] = true;
        for q in (0..self.size).filter(|&q| q != self.rank) {
            let _ = self.tell(q, ASK); // one that cannot be told does not answer either
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

    /// A rank that has told of its failure.
    fn heard(&self) -> Option<(usize, String)> {
        let (mut flag, mut status) = (0, std::mem::MaybeUninit::<ffi::MPI_Status>::uninit());
        let comm = self.comm;
        // SAFETY: MPI writes the flag, and the status where the flag is set.
        let probed = self.call("MPI_Iprobe", || unsafe {
            ffi::MPI_Iprobe(ffi::RSMPI_ANY_SOURCE, FAILED, comm, &mut flag, status.as_mut_ptr())
        });
        if probed.is_err() || flag == 0 {
            return None;
        }
        // SAFETY: written, for the flag is set.
        let rank = unsafe { status.assume_init() }.MPI_SOURCE as usize;
        Some((rank, "failed; its own error says why".into()))
    }

    /// A rank that is gone or has failed, and how.
    fn lost(&self) -> Option<(usize, String)> {
        self.heard().or_else(|| self.peers.get().and_then(Peers::dead))
    }

    /// Notes what keeps this rank from going on, and gives it as an error.
    fn broken(&self, rank: Option<usize>, mut message: String) -> Error {
        let host = rank.and_then(|rank| Some((rank, self.peers.get()?.host_of(rank)?)));
        if let Some((rank, host)) = host {
            message += &format!("; rank {rank} runs on host {host}");
        }
        let (rank, message) = self.failure.get_or_init(|| (rank, message));
        fault(*rank, message)
    }

    /// An error if a rank is known to be gone; looks once a second.
    pub(super) fn check(&self) -> Result<()> {
        self.usable()?;
        match self.lost() {
            None => Ok(()),
            Some((rank, how)) => Err(self.broken(Some(rank), how)),
        }
    }

    /// Waits for all of `requests`. `ranks` says with whom each is, where that can be said.
    ///
    /// After an error requests may be pending: their buffers must never be freed.
    pub(super) fn wait(&self, name: &str, requests: &mut [ffi::MPI_Request], ranks: &[usize]) -> Result<()> {
        let begin = Instant::now();
        let crowded = self.is_crowded();
        loop {
            if self.test(name, requests)? {
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
                // What it sent before it ended may have come in the meantime.
                if self.test(name, requests)? {
                    return Ok(());
                }
                return Err(self.broken(Some(rank), how));
            }
            self.answer();
            if waited > self.limit {
                return Err(self.late(name, requests, ranks));
            }
        }
    }

    fn test(&self, name: &str, requests: &mut [ffi::MPI_Request]) -> Result<bool> {
        let (n, mut done) = (count(requests.len())?, 0);
        // SAFETY: n requests of this process; MPI may be told to write no statuses.
        self.call(name, || unsafe {
            ffi::MPI_Testall(n, requests.as_mut_ptr(), &mut done, ffi::RSMPI_STATUSES_IGNORE)
        })?;
        Ok(done != 0)
    }

    /// More ranks than cores here: whoever polls keeps another from working.
    fn is_crowded(&self) -> bool {
        static CORES: OnceLock<usize> = OnceLock::new();
        let cores = *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()));
        self.peers.get().is_none_or(|p| p.ranks_on_host() > cores)
    }

    /// The error at the time limit: names the rank if it can be known.
    fn late(&self, name: &str, requests: &mut [ffi::MPI_Request], ranks: &[usize]) -> Error {
        let (rank, known) = match self.peers.get().and_then(Peers::stopped) {
            Some((rank, how)) => (Some(rank), format!("{how}; ")),
            None => {
                let silent = self.silent();
                let pending = requests.chunks_mut(1).zip(ranks);
                let mut pending = pending.filter_map(|(r, rank)| match self.test(name, r) {
                    Ok(true) => None,
                    _ => Some(*rank),
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

    /// Ends MPI when all ranks are here.
    pub(super) fn finish(&self) -> Result<()> {
        if self.is_finished() {
            return Ok(());
        }
        // MPI_Finalize waits without end: nobody enters it before all are there.
        // SAFETY: no buffers.
        let request =
            self.start("MPI_Ibarrier", |comm, request| unsafe { ffi::MPI_Ibarrier(comm, request) })?;
        self.wait("MPI_Ibarrier", &mut [request], &[])?;
        let _entered = ENTERED.lock().unwrap_or_else(|e| e.into_inner());
        if self.finished.swap(true, Ordering::SeqCst) || !self.owned {
            return Ok(());
        }
        // SAFETY: started here, not finished before, and `finished` keeps everybody out from now on.
        checked("MPI_Finalize", unsafe { ffi::MPI_Finalize() })
    }

    /// Ends the whole job with exit code 3.
    pub(super) fn abort(&self) -> ! {
        // Where the launcher cannot be reached, MPI_Abort waits for it without end.
        // SAFETY: ends the process, and runs no handlers.
        let in_time = || unsafe { libc::_exit(3) };
        let _ = std::thread::Builder::new().spawn(move || {
            std::thread::sleep(ABORT);
            in_time()
        });
        if !self.is_finished() {
            let _entered = ENTERED.lock().unwrap_or_else(|e| e.into_inner());
            // SAFETY: MPI runs, and no other thread is inside.
            unsafe { ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 3) };
        }
        std::process::exit(3)
    }
}

/// Refuses an MPI that only some threads may call.
fn enough_threads(provided: c_int) -> Result<()> {
    // SAFETY: a constant.
    if provided >= unsafe { ffi::RSMPI_THREAD_SERIALIZED } {
        return Ok(());
    }
    Err(Error::Unsupported(
        "this MPI lets only one thread call it; start or build it with MPI_THREAD_SERIALIZED".into(),
    ))
}

fn fault(rank: Option<usize>, message: &str) -> Error {
    match rank {
        Some(rank) => Error::Rank { rank, message: message.into(), exit_code: 3, memory: false },
        None => Error::NoAnswer(message.into()),
    }
}
