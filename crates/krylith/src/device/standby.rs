//! A few threads that outlive what they serve, for solvers of small systems.
//!
//! Each is a rayon pool of its own, of one thread: parallel loops run on it alone, and no other thread is woken. Such a pool cannot be
//! given back, so there are a few of them and they stay.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a thread is given to do, and whom it tells when that is done.
type Job = (Box<dyn FnOnce() + Send>, Sender<()>);

/// Most threads that stand by or are lent.
const MOST: usize = 8;

struct Threads {
    made: usize,
    idle: Vec<Sender<Job>>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { made: 0, idle: Vec::new() });

/// Has `work` done by a thread that stands by; the receiver hears of its end. `None` where all are lent.
pub(super) fn lend(work: Box<dyn FnOnce() + Send>) -> Option<Receiver<()>> {
    let thread = {
        let mut threads = THREADS.lock().unwrap_or_else(|e| e.into_inner());
        match threads.idle.pop() {
            Some(thread) => thread,
            None if threads.made == MOST => return None,
            None => {
                let thread = start()?;
                threads.made += 1;
                thread
            }
        }
    };
    let (tell, end) = channel();
    thread.send((work, tell)).ok()?;
    Some(end)
}

fn start() -> Option<Sender<Job>> {
    let (give, take) = channel::<Job>();
    let own = give.clone();
    let serve = move || {
        let alone = rayon::ThreadPoolBuilder::new().num_threads(1).use_current_thread().build();
        while let Ok((work, tell)) = take.recv() {
            let _ = catch_unwind(AssertUnwindSafe(work)); // the work tells of its own panics
            THREADS.lock().unwrap_or_else(|e| e.into_inner()).idle.push(own.clone());
            let _ = tell.send(()); // nobody waits where the solver was leaked
        }
        drop(alone);
    };
    std::thread::Builder::new().name("krylith-small".into()).spawn(serve).ok()?;
    Some(give)
}
