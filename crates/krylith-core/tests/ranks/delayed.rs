//! A communicator with delayed messages: a slow network on one machine, also if its kernel cannot delay
//! packets.

use krylith_core::Result;
use krylith_core::comm::{Channel, Communicator, HostShare, Message};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The ranks of another communicator, with a network that takes `delay` for every message. A halo exchange, a
/// sum or a message of a set-up completes no sooner than `delay` after this rank began it and all others have
/// contributed.
pub struct Delayed {
    inner: Arc<dyn Communicator>,
    delay: Duration,
    /// When the sum was begun that is on its way.
    begun: Mutex<Option<Instant>>,
}

impl Delayed {
    pub fn new(inner: Arc<dyn Communicator>, delay: Duration) -> Self {
        Self { inner, delay, begun: Mutex::new(None) }
    }
}

/// Waits without keeping others from the core: a sleep takes some 50 µs more than it should.
fn until(end: Instant) {
    while let Some(left) = end.checked_duration_since(Instant::now()) {
        match left.checked_sub(Duration::from_micros(100)) {
            Some(most) if !most.is_zero() => std::thread::sleep(most),
            _ => std::thread::yield_now(),
        }
    }
}

impl Communicator for Delayed {
    fn rank(&self) -> usize {
        self.inner.rank()
    }
    fn size(&self) -> usize {
        self.inner.size()
    }
    fn sum(&self, values: &mut [f64]) -> Result<()> {
        self.inner.sum(values)?;
        until(Instant::now() + self.delay); // the last one's message takes as long
        Ok(())
    }
    fn start_sum(&self, values: &mut [f64]) -> Result<()> {
        self.inner.start_sum(values)?;
        *self.begun.lock().unwrap() = Some(Instant::now());
        Ok(())
    }
    fn finish_sum(&self, values: &mut [f64]) -> Result<()> {
        self.inner.finish_sum(values)?;
        let begun = self.begun.lock().unwrap().take();
        until(begun.unwrap_or_else(Instant::now) + self.delay);
        Ok(())
    }
    fn all_to_all(&self, out: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let all = self.inner.all_to_all(out)?;
        until(Instant::now() + self.delay);
        Ok(all)
    }
    fn channel(&self, messages: &[Message]) -> Result<Box<dyn Channel>> {
        let (inner, delay) = (self.inner.channel(messages)?, self.delay);
        Ok(Box::new(Slow { inner, delay, begun: Instant::now(), alone: messages.is_empty() }))
    }
    fn split(&self, color: usize) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(Self::new(self.inner.split(color)?, self.delay)))
    }
    fn fail(&self, reason: &str) {
        self.inner.fail(reason);
    }
    fn outlives_failure(&self) -> bool {
        self.inner.outlives_failure()
    }
    fn check(&self) -> Result<()> {
        self.inner.check()
    }
    fn host(&self) -> HostShare {
        self.inner.host()
    }
    fn shares_address_space(&self) -> bool {
        self.inner.shares_address_space()
    }
}

/// A halo over that network.
struct Slow {
    inner: Box<dyn Channel>,
    delay: Duration,
    begun: Instant,
    /// It has nobody to hear from.
    alone: bool,
}

impl Channel for Slow {
    fn outgoing(&mut self) -> &mut [f64] {
        self.inner.outgoing()
    }
    fn start(&mut self) -> Result<()> {
        self.inner.start()?;
        self.begun = Instant::now();
        Ok(())
    }
    fn finish(&mut self) -> Result<&[f64]> {
        let found = self.inner.finish()?;
        if !self.alone {
            until(self.begun + self.delay);
        }
        Ok(found)
    }
}
