//! GPUs of this host that `krylith bench links` measures.

use crate::launch::Launch;
use crate::links::{Ground, Make, Way};
use crate::options::Asked;
use krylith_core::Result;
use krylith_core::comm::Communicator;
use krylith_core::device::cuda::{Cuda, Device, Fabric, Transport};
use std::sync::Arc;

/// GPUs of this host, one per rank.
pub(crate) struct Gpus {
    pub ordinals: Vec<usize>,
    pub devices: Vec<Arc<Device>>,
    pub launch: Launch,
}

impl Gpus {
    /// # Errors
    /// Returns an error if a GPU does not exist or is named twice.
    pub fn open(gpus: &[usize]) -> Result<Self> {
        crate::options::apart(gpus)?;
        let devices = gpus.iter().map(|&gpu| Device::open(gpu)).collect::<Result<_>>()?;
        Ok(Self { ordinals: gpus.to_vec(), devices, launch: Launch::default() })
    }

    /// Opens this process's GPU and lists it for every rank, because a rank uses only its own entry.
    ///
    /// # Errors
    /// Returns an error if the GPU does not exist.
    pub fn processes(options: &Asked) -> Result<Self> {
        let own = options.device.gpus().first().copied().unwrap_or(0);
        let (device, launch) = (Device::open(own)?, options.launch.clone());
        let size = launch.size();
        Ok(Self { ordinals: vec![own; size], devices: vec![device; size], launch })
    }
}

impl Ground for Gpus {
    type Space = Cuda;
    fn name(&self) -> String {
        self.devices.first().map_or_else(String::new, |d| d.info().name.clone())
    }
    fn devices(&self) -> usize {
        self.devices.len()
    }
    fn memory(&self) -> u64 {
        self.devices.iter().map(|d| d.info().memory).min().unwrap_or(0)
    }
    fn read(&self) -> Result<f64> {
        self.devices[0].read_bandwidth()
    }
    fn alone(&self, device: usize, len: usize) -> Result<Cuda> {
        Cuda::new(&self.devices[device], len)
    }
    fn join(&self, comm: &Arc<dyn Communicator>, way: Way) -> Result<Make<'_, Cuda>> {
        let transport = match way {
            Way::Peers => Transport::Peers,
            Way::Nccl => Transport::Nccl,
        };
        let fabric = Fabric::new(&self.devices[comm.rank()], comm, transport)?;
        Ok(Box::new(move |len| Cuda::distributed(&fabric, len)))
    }
}
