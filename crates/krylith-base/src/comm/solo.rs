//! The communicator of a single rank.

use super::{Channel, Communicator, HostShare, Message};
use crate::Result;
use std::sync::Arc;

/// The communicator of a system that is not distributed.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Solo};
/// let mut sum = [3.0];
/// Solo.sum(&mut sum)?;
/// assert_eq!((Solo.rank(), Solo.size(), sum), (0, 1, [3.0]));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct Solo;

impl Communicator for Solo {
    fn rank(&self) -> usize {
        0
    }
    fn size(&self) -> usize {
        1
    }
    fn sum(&self, _: &mut [f64]) -> Result<()> {
        Ok(())
    }
    fn all_to_all(&self, out: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        Ok(out)
    }
    fn channel(&self, _: &[Message]) -> Result<Box<dyn Channel>> {
        Ok(Box::new(Nobody))
    }
    fn split(&self, _: usize) -> Result<Arc<dyn Communicator>> {
        Ok(Arc::new(Solo))
    }
    fn fail(&self, _: &str) {}
    fn host(&self) -> HostShare {
        HostShare { rank_on_host: 0, ranks_on_host: vec![0] }
    }
    fn shares_address_space(&self) -> bool {
        true
    }
}

/// A channel without messages.
struct Nobody;

impl Channel for Nobody {
    fn outgoing(&mut self) -> &mut [f64] {
        &mut []
    }
    fn start(&mut self) -> Result<()> {
        Ok(())
    }
    fn finish(&mut self) -> Result<&[f64]> {
        Ok(&[])
    }
}
