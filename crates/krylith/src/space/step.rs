//! Small steps: what a method does with a few numbers between two passes over vectors.
//!
//! A step is written once, in `.inc` files of the common subset of Rust and C++. A CPU runs [`SmallStep::run`]; a GPU runs
//! the kernel that [`SmallStep::source`] names, made from the same files, in stream order and without the host.

/// The kernel of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepSource {
    /// File in `device/cuda/kernels`; its function is `step`.
    pub file: &'static str,
    /// Macro that selects the step in it.
    pub name: &'static str,
    /// Threads that it runs in.
    pub threads: usize,
}

/// Steps are those of this library: a device passes their layouts to kernels as they lie in memory.
pub trait Sealed {}

/// One step on a method's [`Scalars`](super::Space::Scalars).
pub trait SmallStep: Copy + Sealed {
    /// Where the numbers stand; `repr(C)`, and the twin of the struct that the kernels take.
    type Layout: Copy;

    /// Runs the step on host numbers; `j` is the iteration within the stretch, where the step asks for it.
    fn run(self, values: &mut [f64], flags: &mut [i32], layout: &Self::Layout, j: usize);
    /// The same for devices that compile.
    fn source(self) -> StepSource;
}
