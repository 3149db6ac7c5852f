//! Copies between a CPU's vectors and a caller's memory.

use super::Cpu;
use crate::Result;
use crate::memory::{Numbers, NumbersMut};
use crate::space::Transfer;

impl Transfer for Cpu {
    fn write_from(&self, from: Numbers, to: &mut Vec<f64>) -> Result<()> {
        from.read(to)
    }

    fn read_into(&self, from: &Vec<f64>, mut to: NumbersMut) -> Result<()> {
        to.write(from)
    }
}
