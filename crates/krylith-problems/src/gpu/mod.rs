//! F and J of the nonlinear problems on the GPU that solves. Values of J stay there.
//!
//! Each problem has a `.cu` file in `kernels/`, which does what the problem's Rust does in the same order,
//! and an `Assembly` that holds its data on the GPU. Without feature `cuda` there is none.

#[cfg(feature = "cuda")]
pub(crate) mod cavity;
#[cfg(feature = "cuda")]
mod device;
#[cfg(feature = "cuda")]
pub(crate) mod flow;
#[cfg(feature = "cuda")]
pub(crate) mod solid;

#[cfg(feature = "cuda")]
#[doc(hidden)] // for the test that compiles them
pub use device::kernels;

use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;
use krylith_core::{Error, Result};

use crate::share::{self, Share};

/// Evaluates F and J of a system of type `S` on a GPU.
pub(crate) trait Assembly<S>: Send + Sync {
    /// Copies the data of the time step to the GPU.
    fn begin(&mut self, system: &S) -> Result<()>;
    /// Computes F(x) on the GPU. Collective.
    fn residual(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>>;
    /// Computes ∂F/∂x at x on the GPU. Collective.
    fn jacobian(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>>;
}

/// A system with kernels of its own.
pub(crate) trait OnGpu: Sized {
    /// Returns the place where the system evaluates F and J.
    fn place(&mut self) -> &mut Place<Self>;
    /// Returns the share of this rank, if several ranks solve the problem together.
    fn share(&self) -> Option<&Share>;
    /// Copies the system to a GPU; `None` if it does not fit.
    ///
    /// # Errors
    /// A GPU that cannot be used; kernels that cannot be compiled.
    #[cfg(feature = "cuda")]
    fn assembly(&self, gpu: usize) -> Result<Option<Box<dyn Assembly<Self>>>>;
}

/// The place where a system evaluates F and J: the host, or a GPU.
pub(crate) struct Place<S> {
    /// The GPU that was selected; J may have been too large for it.
    gpu: Option<usize>,
    assembly: Option<Box<dyn Assembly<S>>>,
    /// True if the assembly has the data of this time step.
    current: bool,
}

impl<S> Place<S> {
    /// Returns the host.
    pub fn host() -> Self {
        Self { gpu: None, assembly: None, current: false }
    }

    /// Notes that the data of the time step has changed.
    pub fn changed(&mut self) {
        self.current = false;
    }
}

/// Selects the place where a system evaluates F and J; true if it is the GPU. It is the host for all ranks if
/// J is too large for the GPU of one of them. Collective.
pub(crate) fn select<S: OnGpu + NonlinearSystem>(system: &mut S, gpu: Option<usize>) -> Result<bool> {
    if system.place().gpu != gpu {
        let assembly = share::agreed(system.share(), open(system, gpu))?;
        let [missing] = share::summed(system.share(), [f64::from(u8::from(assembly.is_none()))])?;
        let assembly = assembly.filter(|_| missing == 0.0);
        if gpu.is_some() && assembly.is_none() {
            tracing::info!("F and J are evaluated on the host: J is too large for the GPU");
        }
        *system.place() = Place { gpu, assembly, current: false };
    }
    Ok(system.place().assembly.is_some())
}

#[cfg(feature = "cuda")]
fn open<S: OnGpu>(system: &S, gpu: Option<usize>) -> Result<Option<Box<dyn Assembly<S>>>> {
    gpu.map_or(Ok(None), |gpu| system.assembly(gpu))
}

#[cfg(not(feature = "cuda"))]
fn open<S: OnGpu>(_: &S, _: Option<usize>) -> Result<Option<Box<dyn Assembly<S>>>> {
    Ok(None)
}

/// Returns the assembly on the GPU, with the data of this time step.
fn ready<S: OnGpu>(system: &mut S) -> Result<&mut Box<dyn Assembly<S>>> {
    if !system.place().current
        && let Some(mut assembly) = system.place().assembly.take()
    {
        let begun = assembly.begin(system);
        *system.place() = Place { assembly: Some(assembly), current: begun.is_ok(), ..*system.place() };
        begun?;
    }
    let missing = || Error::Internal("a system that is on the host".into());
    system.place().assembly.as_mut().ok_or_else(missing)
}

/// Computes F(x) on the GPU. Collective.
pub(crate) fn residual<'s, S: OnGpu>(system: &'s mut S, x: Numbers<'_>) -> Result<Numbers<'s>> {
    ready(system)?.residual(x)
}

/// Computes the values of J at x on the GPU. Collective.
pub(crate) fn jacobian<'s, S: OnGpu>(system: &'s mut S, x: Numbers<'_>) -> Result<Numbers<'s>> {
    ready(system)?.jacobian(x)
}

impl<S> Clone for Place<S> {
    /// Returns the host, where a copy of a system begins.
    fn clone(&self) -> Self {
        Self::host()
    }
}

impl<S> std::fmt::Debug for Place<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.gpu.filter(|_| self.assembly.is_some()) {
            Some(gpu) => write!(f, "cuda:{gpu}"),
            None => write!(f, "host"),
        }
    }
}
