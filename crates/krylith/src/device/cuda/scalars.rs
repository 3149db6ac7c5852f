//! A method's numbers and flags on a GPU, and their one trip to the host and back a cycle.

use super::driver::{Buffer, Device};
use super::pinned::Pinned;
use crate::Result;
use crate::space::FLAGS;
use std::cell::RefCell;
use std::sync::Arc;

/// Numbers that the flags take, before the slots.
const FLAG_NUMBERS: usize = FLAGS * size_of::<i32>() / size_of::<f64>();

/// Flags and, behind them, slots: what the host reads together lies together.
pub struct CudaScalars {
    data: Buffer<f64>,
    /// Where a copy to the host lands; pinned memory halves what it costs.
    landing: RefCell<Pinned>,
    /// What goes to the device, flags and slots in one piece.
    leaving: RefCell<Vec<f64>>,
}

impl CudaScalars {
    /// `len` zeros and no flag.
    pub(super) fn new(device: &Arc<Device>, len: usize) -> Result<Self> {
        let all = FLAG_NUMBERS + len;
        Ok(Self {
            data: device.zeros(all, "scalars")?,
            landing: RefCell::new(Pinned::new(device, all)?),
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
        for (flags, number) in flags.as_chunks_mut::<2>().0.iter_mut().zip(all) {
            let bits = number.to_bits();
            *flags = [bits as i32, (bits >> 32) as i32];
        }
        host.copy_from_slice(&all[FLAG_NUMBERS + at..]);
        Ok(())
    }
}

/// Two flags as the bits of one number, the first at the lower address.
fn pair(low: i32, high: i32) -> f64 {
    f64::from_bits(u64::from(low as u32) | u64::from(high as u32) << 32)
}
