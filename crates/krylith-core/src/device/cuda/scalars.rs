//! Scalars and flags of a method on a GPU, and their single trip to the host and back per cycle.

use super::driver::{Buffer, Device};
use super::pinned::Pinned;
use super::waiting::Event;
use crate::Result;
use crate::space::FLAGS;
use std::cell::RefCell;
use std::sync::Arc;

/// Length of the flags, counted in f64 numbers; the flags precede the slots.
const FLAG_NUMBERS: usize = FLAGS * size_of::<i32>() / size_of::<f64>();

/// Flags followed by slots: adjacent, because the host reads them together.
#[doc(hidden)]
pub struct CudaScalars {
    data: Buffer<f64>,
    /// Target of copies to the host, in pinned memory, which halves their cost.
    landing: RefCell<Pinned>,
    /// The last two posted copies, indexed by their number modulo 2: the target, and the event of its
    /// completion.
    posted: [(Pinned, Event); 2],
    /// Number of copies posted, and number of copies collected, since the last write.
    counts: (usize, usize),
    /// Flags and slots that go to the device in one copy.
    leaving: RefCell<Vec<f64>>,
}

impl CudaScalars {
    /// Allocates `len` zeros with no flag set.
    pub(super) fn new(device: &Arc<Device>, len: usize) -> Result<Self> {
        let all = FLAG_NUMBERS + len;
        Ok(Self {
            data: device.zeros(all, "scalars")?,
            landing: RefCell::new(Pinned::new(device, all)?),
            posted: [
                (Pinned::new(device, all)?, Event::new(device)?),
                (Pinned::new(device, all)?, Event::new(device)?),
            ],
            counts: (0, 0),
            leaving: RefCell::new(Vec::with_capacity(all)),
        })
    }

    /// Address of a slot.
    pub(super) fn value(&self, slot: usize) -> u64 {
        self.data.at(FLAG_NUMBERS + slot)
    }

    /// Address of a flag.
    pub(super) fn flag(&self, flag: usize) -> u64 {
        self.data.pointer() + (flag * size_of::<i32>()) as u64
    }

    /// Writes slots from `at` on, and the flags.
    pub(super) fn write(
        &mut self,
        device: &Device,
        at: usize,
        host: &[f64],
        flags: &[i32; FLAGS],
    ) -> Result<()> {
        self.forget();
        let mut leaving = self.leaving.borrow_mut();
        leaving.clear();
        leaving.extend(flags.as_chunks::<2>().0.iter().map(|&[low, high]| pair(low, high)));
        if at == 0 {
            leaving.extend_from_slice(host);
            return device.write(&leaving, &mut self.data, 0);
        }
        device.write(&leaving, &mut self.data, 0)?;
        device.write(host, &mut self.data, FLAG_NUMBERS + at)
    }

    /// Reads slots from `at` on, and the flags; waits.
    pub(super) fn read(
        &self,
        device: &Device,
        at: usize,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()> {
        let mut landing = self.landing.borrow_mut();
        let all = device.read_pinned(&self.data, FLAG_NUMBERS + at + host.len(), &mut landing)?;
        unpack(all, at, host, flags);
        Ok(())
    }

    /// Starts a copy of the flags and the first `len` slots as they are at this point of the stream.
    pub(super) fn enqueue_readback(&mut self, device: &Device, len: usize) -> Result<()> {
        assert!(self.counts.0 < self.counts.1 + self.posted.len(), "two copies are posted already");
        let (landing, event) = &mut self.posted[self.counts.0 % 2];
        device.copy_to_pinned(&self.data, FLAG_NUMBERS + len, landing)?;
        event.record(device)?;
        self.counts.0 += 1;
        Ok(())
    }

    /// Waits for the oldest posted copy.
    pub(super) fn take_readback(
        &mut self,
        device: &Device,
        host: &mut [f64],
        flags: &mut [i32; FLAGS],
    ) -> Result<()> {
        assert!(self.counts.1 < self.counts.0, "nothing was posted");
        let (landing, event) = &mut self.posted[self.counts.1 % 2];
        self.counts.1 += 1; // a failed wait is not repeated
        event.wait(device)?;
        unpack(&landing.numbers()[..FLAG_NUMBERS + host.len()], 0, host, flags);
        Ok(())
    }

    /// Discards copies that an error left uncollected.
    fn forget(&mut self) {
        self.counts = (0, 0);
    }
}

/// Extracts the flags, and the slots from `at` on, from a copy that begins with the flags.
fn unpack(all: &[f64], at: usize, host: &mut [f64], flags: &mut [i32; FLAGS]) {
    for (flags, number) in flags.as_chunks_mut::<2>().0.iter_mut().zip(all) {
        let bits = number.to_bits();
        *flags = [bits as i32, (bits >> 32) as i32];
    }
    host.copy_from_slice(&all[FLAG_NUMBERS + at..]);
}

/// Packs two flags into the bits of one number, the first at the lower address.
fn pair(low: i32, high: i32) -> f64 {
    f64::from_bits(u64::from(low as u32) | u64::from(high as u32) << 32)
}
