//! Kernels of the crates above this one, compiled, cached and launched as Krylith's own are.

use super::compiler::Kernel;
use super::driver::Device;
use crate::{Error, Result};
use cudarc::driver::{CudaFunction, result, sys};
use std::ffi::c_void;
use std::sync::Arc;

/// A loaded kernel of a caller's `.cu` file.
///
/// A launch checks its arguments against the parameters in the text. As with Krylith's own kernels, a wrong
/// length gives wrong numbers or a fault that the driver reports.
#[doc(hidden)]
pub struct Program {
    device: Arc<Device>,
    function: CudaFunction,
    entry: &'static str,
    parameters: Vec<Kind>,
}

/// An argument of a launch.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Argument {
    /// A pointer.
    Address(u64),
    /// `int` or `unsigned`.
    Int(i32),
    /// `long long`.
    Long(i64),
    /// `double`.
    Real(f64),
}

/// The type of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Address,
    Int,
    Long,
    Real,
}

impl Argument {
    fn kind(&self) -> Kind {
        match self {
            Argument::Address(_) => Kind::Address,
            Argument::Int(_) => Kind::Int,
            Argument::Long(_) => Kind::Long,
            Argument::Real(_) => Kind::Real,
        }
    }

    fn value(&mut self) -> *mut c_void {
        match self {
            Argument::Address(value) => (value as *mut u64).cast(),
            Argument::Int(value) => (value as *mut i32).cast(),
            Argument::Long(value) => (value as *mut i64).cast(),
            Argument::Real(value) => (value as *mut f64).cast(),
        }
    }
}

impl Program {
    /// Loads the function of a kernel with a text of the caller. It is declared as `extern "C" __global__
    /// void NAME(…)`, with pointers and numbers as parameters.
    ///
    /// # Errors
    /// A text without that function; a missing NVRTC, or the compiler's messages.
    pub fn load(device: &Arc<Device>, kernel: &Kernel) -> Result<Self> {
        let parameters = kernel
            .text
            .and_then(|text| parameters(text, kernel.entry))
            .ok_or_else(|| Error::Internal(format!("{} has no function {}", kernel.file, kernel.entry)))?;
        device.bind()?;
        let function = device.load(kernel)?;
        Ok(Self { device: device.clone(), function, entry: kernel.entry, parameters })
    }

    /// True if the text of a kernel declares its function in the form that [`load`](Self::load) reads.
    pub fn is_declared(kernel: &Kernel) -> bool {
        kernel.text.and_then(|text| parameters(text, kernel.entry)).is_some()
    }

    /// Launches the kernel in the stream of its device, with `shared` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// Arguments of other types than the parameters; a device that failed.
    pub fn launch(&self, blocks: usize, threads: usize, shared: usize, with: &[Argument]) -> Result<()> {
        self.launch_in(self.device.stream.cu_stream() as usize, blocks, threads, shared, with)
    }

    /// Launches the kernel as [`launch`](Self::launch) does, in another stream of the GPU, given as a number.
    ///
    /// # Errors
    /// As [`launch`](Self::launch).
    pub fn launch_in(
        &self,
        stream: usize,
        blocks: usize,
        threads: usize,
        shared: usize,
        with: &[Argument],
    ) -> Result<()> {
        if !with.iter().map(Argument::kind).eq(self.parameters.iter().copied()) {
            let (entry, wanted) = (self.entry, &self.parameters);
            return Err(Error::Internal(format!("{entry} has the parameters {wanted:?}, but got {with:?}")));
        }
        if blocks == 0 {
            return Ok(());
        }
        self.device.bind()?;
        self.device.allow_shared(&self.function, threads, shared)?;
        let mut values = with.to_vec();
        let mut values: Vec<*mut c_void> = values.iter_mut().map(Argument::value).collect();
        let (grid, block, shared) = ((blocks as u32, 1, 1), (threads as u32, 1, 1), shared as u32);
        let (function, stream) = (self.function.cu_function(), stream as sys::CUstream);
        // SAFETY: the types are those of the parameters, by the check above.
        let launched = unsafe { result::launch_kernel(function, grid, block, shared, stream, &mut values) };
        self.device.check("cuLaunchKernel", launched)
    }
}

/// Returns the types of a function's parameters; `None` if the text does not have the function, or if it has
/// a parameter of another type.
fn parameters(text: &str, entry: &str) -> Option<Vec<Kind>> {
    let function = text.split("extern \"C\" __global__").skip(1).find_map(|function| {
        let (head, rest) = function.split_once(&format!("{entry}("))?;
        (head.ends_with(char::is_whitespace) && !head.contains('{')).then_some(rest)
    })?;
    let (list, _) = function.split_once(')')?;
    let kind = |parameter: &str| {
        if parameter.contains('*') {
            return Some(Kind::Address);
        }
        let mut words = parameter.split_whitespace().filter(|word| *word != "const");
        match words.next()? {
            "double" => Some(Kind::Real),
            "int" | "unsigned" => Some(Kind::Int),
            "long" => Some(Kind::Long),
            _ => None,
        }
    };
    list.split(',').map(kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_read_from_the_text() {
        let text = "__device__ double twice(double x) { return x + x; }\n\
                    extern \"C\" __global__ void __launch_bounds__(64)\nfirst(const double* x, int n) { twice(1.0); }\n\
                    extern \"C\" __global__ void second(\n    unsigned n, const double scale, const long long* p, long long m) {}";
        assert_eq!(parameters(text, "first"), Some(vec![Kind::Address, Kind::Int]));
        assert_eq!(parameters(text, "second"), Some(vec![Kind::Int, Kind::Real, Kind::Address, Kind::Long]));
        assert_eq!(parameters(text, "twice"), None);
    }
}
