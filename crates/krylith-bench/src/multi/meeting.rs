//! Where the threads of a baseline meet: sums in rank order, and word that a host buffer is filled.
//!
//! Waits spin, for they take microseconds and a thread has its core. Every wait ends: with what was waited for, with
//! the failure that a thread reported, or at the time limit.

use krylith::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Numbers that one sum may have.
const WIDTH: usize = 64;
/// Longest wait for another thread.
const LIMIT: Duration = Duration::from_secs(60);

/// What the others see of a thread, on cache lines of its own.
#[repr(align(128))]
struct Seat {
    /// Sums that it has brought its numbers for.
    arrived: AtomicU64,
    /// Buffers that it has filled.
    published: AtomicU64,
    /// Its numbers, for even and odd sums.
    values: [[AtomicU64; WIDTH]; 2],
}

/// The threads of one baseline.
pub(crate) struct Meeting {
    seats: Vec<Seat>,
    failed: AtomicBool,
    reason: Mutex<Option<(usize, String)>>,
    /// Ends waits inside a library.
    on_failure: Mutex<Vec<Box<dyn FnMut() + Send>>>,
}

impl Meeting {
    pub fn new(size: usize) -> Arc<Self> {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        let seat =
            || Seat { arrived: AtomicU64::new(0), published: AtomicU64::new(0), values: [zeros(), zeros()] };
        let seats = (0..size).map(|_| seat()).collect();
        Arc::new(Self { seats, failed: false.into(), reason: Mutex::default(), on_failure: Mutex::default() })
    }

    /// What to do at the first failure, so that nobody waits inside a library.
    pub fn on_failure(&self, action: Box<dyn FnMut() + Send>) {
        self.on_failure.lock().unwrap_or_else(|e| e.into_inner()).push(action);
    }

    /// Tells everybody that a thread cannot go on; the first reason stays.
    pub fn fail(&self, rank: usize, reason: &str) {
        let mut held = self.reason.lock().unwrap_or_else(|e| e.into_inner());
        if held.is_some() {
            return;
        }
        *held = Some((rank, reason.into()));
        drop(held);
        self.failed.store(true, Ordering::Release);
        for action in self.on_failure.lock().unwrap_or_else(|e| e.into_inner()).iter_mut() {
            action();
        }
    }

    /// The failure that was reported, if there is one.
    pub fn check(&self) -> Result<()> {
        if !self.failed.load(Ordering::Acquire) {
            return Ok(());
        }
        let reason = self.reason.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let (rank, message) = reason.unwrap_or_default();
        Err(Error::Rank { rank, message, exit_code: 3 })
    }

    fn wait(&self, rank: usize, counter: impl Fn(&Seat) -> &AtomicU64, least: u64) -> Result<()> {
        let counter = counter(&self.seats[rank]);
        let mut begin = None;
        loop {
            for _ in 0..1000 {
                if counter.load(Ordering::Acquire) >= least {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            self.check()?;
            if begin.get_or_insert_with(Instant::now).elapsed() > LIMIT {
                let message = format!("did not answer for {} s", LIMIT.as_secs());
                return Err(Error::Rank { rank, message, exit_code: 3 });
            }
            std::thread::yield_now();
        }
    }
}

/// One thread's place.
pub(crate) struct Attendant {
    meeting: Arc<Meeting>,
    rank: usize,
    sums: AtomicU64,
    steps: AtomicU64,
}

impl Attendant {
    /// Each rank takes its place once.
    pub fn new(meeting: &Arc<Meeting>, rank: usize) -> Self {
        Self { meeting: meeting.clone(), rank, sums: 0.into(), steps: 0.into() }
    }
    pub fn rank(&self) -> usize {
        self.rank
    }
    pub fn size(&self) -> usize {
        self.meeting.seats.len()
    }

    /// Adds over all threads in rank order: every thread gets the same bits. Without numbers it is a barrier.
    ///
    /// # Errors
    /// Another thread failed or does not answer.
    pub fn sum(&self, values: &mut [f64]) -> Result<()> {
        assert!(values.len() <= WIDTH);
        let round = self.sums.fetch_add(1, Ordering::Relaxed) + 1;
        let parity = (round % 2) as usize;
        let mine = &self.meeting.seats[self.rank];
        for (to, v) in mine.values[parity].iter().zip(&*values) {
            to.store(v.to_bits(), Ordering::Relaxed);
        }
        mine.arrived.store(round, Ordering::Release);
        values.fill(0.0);
        for (rank, seat) in self.meeting.seats.iter().enumerate() {
            self.meeting.wait(rank, |s| &s.arrived, round)?;
            // Its numbers stay until all have come to the next sum, so they are safe to read here.
            for (sum, v) in values.iter_mut().zip(&seat.values[parity]) {
                *sum += f64::from_bits(v.load(Ordering::Relaxed));
            }
        }
        Ok(())
    }

    /// See [`Meeting::on_failure`].
    pub fn on_failure(&self, action: Box<dyn FnMut() + Send>) {
        self.meeting.on_failure(action);
    }

    /// Says that this thread's next buffer is filled, and waits until those of `neighbours` are.
    ///
    /// # Errors
    /// As [`sum`](Self::sum).
    pub fn hand_over(&self, neighbours: impl Iterator<Item = usize>) -> Result<()> {
        let step = self.steps.fetch_add(1, Ordering::Relaxed) + 1;
        self.meeting.seats[self.rank].published.store(step, Ordering::Release);
        for rank in neighbours {
            self.meeting.wait(rank, |s| &s.published, step)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_the_same_bits_on_every_thread() {
        let meeting = Meeting::new(5);
        let results: Vec<Vec<f64>> = std::thread::scope(|scope| {
            let meeting = &meeting;
            let threads: Vec<_> = (0..5)
                .map(|rank| {
                    scope.spawn(move || {
                        let a = Attendant::new(meeting, rank);
                        (0..300)
                            .flat_map(|i| {
                                let mut v = [0.1 * (rank + i) as f64, 1.0];
                                a.sum(&mut v).unwrap();
                                v
                            })
                            .collect()
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        for (i, pair) in results[0].chunks(2).enumerate() {
            let wanted = (0..5).fold(0.0, |sum, rank| sum + 0.1 * (rank + i) as f64);
            assert_eq!(pair, [wanted, 5.0]);
        }
        assert!(results.iter().all(|r| *r == results[0]));
    }

    #[test]
    fn a_failure_ends_every_wait_and_acts_once() {
        let meeting = Meeting::new(3);
        let acted = Arc::new(AtomicU64::new(0));
        let count = acted.clone();
        meeting.on_failure(Box::new(move || {
            count.fetch_add(1, Ordering::Relaxed);
        }));
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let meeting = &meeting;
                scope.spawn(move || {
                    let error = Attendant::new(meeting, rank).sum(&mut [1.0]).unwrap_err();
                    assert_eq!(error.to_string(), "rank 2: no room");
                });
            }
            meeting.fail(2, "no room");
            meeting.fail(1, "too late");
        });
        assert_eq!(acted.load(Ordering::Relaxed), 1);
    }
}
