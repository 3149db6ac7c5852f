//! Vectors on a GPU that a driver on the host combines: launches of `kernels/held.cu`.

use super::driver::{Buffer, Device};
use super::launch::{At, Entry, Function, kernels};
use crate::Result;
use crate::memory::{Numbers, NumbersMut, Place, check_len};
use crate::space::{HeldVectors, two};
use std::sync::Arc;

kernels! {
    HELD in "held.cu", |_| vec![squares.plain().into()];
    fn squares(n: i64, x: At<f64>, sums: At<f64>);
    fn combine(n: i64, x: At<f64>, factor: f64, y: At<f64>, to: At<f64>);
}

/// Threads of a thread block.
const THREADS: usize = 256;
/// Numbers that a thread block of `squares` sums.
const CHUNK: usize = 4096;

/// Vectors in the memory of a GPU.
pub(crate) struct CudaVectors {
    device: Arc<Device>,
    len: usize,
    vectors: Vec<Buffer<f64>>,
    sums: Buffer<f64>,
    squares: Function<squares>,
    combine: Function<combine>,
}

impl CudaVectors {
    /// Allocates `count` vectors of `len` zeros on a GPU.
    ///
    /// # Errors
    /// A GPU that cannot be used, or without memory for them.
    pub fn new(gpu: usize, count: usize, len: usize) -> Result<Self> {
        let device = Device::open(gpu)?;
        let vectors: Result<_> =
            (0..count).map(|_| device.zeros(len, "vectors of Newton's method")).collect();
        Ok(Self {
            len,
            vectors: vectors?,
            sums: device.zeros(len.div_ceil(CHUNK), "sums")?,
            squares: device.function(&squares.plain())?,
            combine: device.function(&combine.plain())?,
            device,
        })
    }
}

impl HeldVectors for CudaVectors {
    fn len(&self) -> usize {
        self.len
    }
    fn numbers(&self, v: usize) -> Numbers<'_> {
        Numbers::from(&self.vectors[v])
    }
    fn pair(&mut self, from: usize, to: usize) -> (Numbers<'_>, NumbersMut<'_>) {
        let (from, to) = two(&mut self.vectors, from, to);
        (Numbers::from(from), NumbersMut::from(to))
    }
    fn write_from(&mut self, from: Numbers, to: usize) -> Result<()> {
        self.device.copy_from(from, &mut self.vectors[to])
    }
    fn read_into(&self, from: usize, to: NumbersMut) -> Result<()> {
        check_len(self.len, to.len())?;
        match to.into_place() {
            Place::Host(host) => self.device.read(&self.vectors[from], 0, host),
            Place::Device(remote) => self.device.copy_out(&self.vectors[from], &remote),
        }
    }
    fn clear(&mut self, v: usize) -> Result<()> {
        self.device.bind()?;
        self.device.clear(&mut self.vectors[v])
    }
    fn squares(&self, v: usize) -> Result<f64> {
        let blocks = self.len.div_ceil(CHUNK);
        if blocks == 0 {
            return Ok(0.0);
        }
        self.device.bind()?;
        let launch = self.squares.on(&self.device, blocks, THREADS);
        launch.run(self.len as i64, &self.vectors[v], &self.sums)?;
        let mut sums = vec![0.0; blocks];
        self.device.read(&self.sums, 0, &mut sums)?;
        Ok(sums.iter().sum())
    }
    fn combine(&mut self, to: usize, x: usize, factor: f64, y: usize) -> Result<()> {
        self.device.bind()?;
        let launch = self.combine.on(&self.device, self.len.div_ceil(THREADS), THREADS);
        let [x, y, to] = [x, y, to].map(|v| &self.vectors[v]);
        if self.len > 0 { launch.run(self.len as i64, x, factor, y, to) } else { Ok(()) }
    }
}
