//! Kernels as Rust sees them. [`kernels!`] declares each kernel once, with the types of its arguments, its
//! file and its specialisations. A [`Function`] is a loaded kernel, and a [`Launch`] is one launch of it.
//!
//! A launch needs no `unsafe`. A kernel reads and writes only memory of the GPU through its arguments, and no
//! Rust reference ever points there. A wrong length therefore gives wrong numbers or a fault that the driver
//! reports, and never undefined behaviour on the host. The compiler checks the number, order and types of the
//! arguments against the declaration; a test checks the declaration against the source.

use super::buffer::Buffer;
use super::compiler::{Defines, Kernel};
use super::driver::{Device, TextKey};
use crate::Result;
use cudarc::driver::{CudaFunction, CudaStream};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// Names of C functions with the same arguments, and the name and type of each argument.
type Declared = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// A kernel file: its text, its functions, and the constants of its specialisations.
pub(crate) struct File {
    /// Name in `kernels/`.
    pub name: &'static str,
    pub text: &'static str,
    /// Functions of the file with the names and types of their arguments, as declared. A test compares them
    /// with the text.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the test that compares it with the text"))]
    pub entries: &'static [Declared],
    /// Specialisations that are compiled ahead. One function stands for all functions that are compiled with
    /// the same constants.
    pub specialisations: fn(Set) -> Vec<Kernel>,
}

/// A set of specialisations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// All specialisations that the library can use; a test compiles them.
    All,
    /// The specialisations that a release contains in compiled form: the sizes of most systems.
    Common,
}

impl Set {
    /// Returns `all` or `common`, according to the set.
    pub(crate) fn choose<T>(
        self,
        all: impl IntoIterator<Item = T>,
        common: impl IntoIterator<Item = T>,
    ) -> Vec<T> {
        match self {
            Set::All => all.into_iter().collect(),
            Set::Common => common.into_iter().collect(),
        }
    }
}

/// A function of a kernel file, as declared by [`kernels!`].
pub(crate) trait Entry: Copy {
    /// Name of the function in C, followed by the names of others with the same arguments.
    const NAMES: &'static [&'static str];
    const FILE: &'static File;

    /// Returns the kernel of a file that is compiled without constants.
    fn plain(self) -> Of<Self> {
        self.with(Vec::new())
    }

    /// Returns the kernel that the file becomes with these constants.
    fn with(self, defines: Defines) -> Of<Self> {
        self.named(Self::NAMES[0], defines)
    }

    /// Returns the kernel of the function `entry`, one of [`NAMES`](Self::NAMES), with these constants.
    fn named(self, entry: &'static str, defines: Defines) -> Of<Self> {
        debug_assert!(Self::NAMES.contains(&entry), "{entry} is not declared with these arguments");
        let kernel = Kernel { file: Self::FILE.name, text: None, entry, defines };
        Of { kernel, entry: PhantomData }
    }
}

/// A specialised kernel with the types of its arguments.
#[derive(Clone)]
pub(crate) struct Of<K> {
    kernel: Kernel,
    entry: PhantomData<K>,
}

impl<K> Deref for Of<K> {
    type Target = Kernel;
    fn deref(&self) -> &Kernel {
        &self.kernel
    }
}

impl<K> From<Of<K>> for Kernel {
    fn from(of: Of<K>) -> Self {
        of.kernel
    }
}

/// A loaded kernel with the types of its arguments.
pub(crate) struct Function<K> {
    function: CudaFunction,
    entry: PhantomData<K>,
}

impl<K> Clone for Function<K> {
    fn clone(&self) -> Self {
        Self { function: self.function.clone(), entry: PhantomData }
    }
}

impl<K> Deref for Function<K> {
    type Target = CudaFunction;
    fn deref(&self) -> &CudaFunction {
        &self.function
    }
}

impl Device {
    /// Returns the function of a specialised kernel, which is compiled or loaded at its first use.
    pub(super) fn function<K>(&self, kernel: &Of<K>) -> Result<Function<K>> {
        Ok(Function { function: self.load(kernel)?, entry: PhantomData })
    }

    /// Returns the function of a kernel made from static text, which is assembled at its first use.
    pub(super) fn function_of<K>(&self, key: TextKey, kernel: impl FnOnce() -> Of<K>) -> Result<Function<K>> {
        Ok(Function { function: self.load_text(key, || kernel().into())?, entry: PhantomData })
    }

    /// Returns a function of a module that belongs to the caller.
    pub(super) fn function_in<K: Entry>(
        &self,
        module: &Arc<cudarc::driver::CudaModule>,
        _: K,
    ) -> Result<Function<K>> {
        Ok(Function { function: self.entry(module, K::NAMES[0])?, entry: PhantomData })
    }
}

impl<K> Function<K> {
    /// Prepares a launch on `grid` blocks of `block` threads, in the device's stream.
    pub(super) fn on<'a>(&'a self, device: &'a Device, grid: usize, block: usize) -> Launch<'a, K> {
        let stream = &*device.stream;
        Launch { device, function: &self.function, stream, grid, block, shared: 0, entry: PhantomData }
    }
}

/// A launch without its arguments yet: `run`, which [`kernels!`] makes for each kernel, takes them.
pub(super) struct Launch<'a, K> {
    device: &'a Device,
    function: &'a CudaFunction,
    stream: &'a CudaStream,
    grid: usize,
    block: usize,
    shared: usize,
    entry: PhantomData<K>,
}

impl<'a, K> Launch<'a, K> {
    /// Adds `bytes` bytes of dynamic shared memory.
    pub(super) fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes, ..self }
    }

    /// Moves the launch to another stream of the device.
    pub(super) fn in_stream(self, stream: &'a CudaStream) -> Self {
        Self { stream, ..self }
    }

    /// # Safety
    /// `arguments` must point to values of the kernel's parameter types. Surplus arguments are not read.
    #[inline]
    pub(super) unsafe fn launch(self, arguments: &mut [*mut c_void]) -> Result<()> {
        let Self { device, function, stream, grid, block, shared, .. } = self;
        // SAFETY: guaranteed by the caller; the head of this file says why the kernel's addresses are safe.
        unsafe { device.launch_in(stream, function, grid, block, shared, arguments) }
    }
}

macro_rules! argument {
    ($($(#[$doc:meta])* $name:ident),*) => {$(
        $(#[$doc])*
        #[repr(transparent)]
        #[derive(Clone, Copy)]
        pub(super) struct $name(u64);

        impl From<u64> for $name {
            fn from(address: u64) -> Self {
                Self(address)
            }
        }
    )*};
}

argument! {
    /// An address of numbers whose type is a constant of the file: f64, f32 or bf16.
    Reals,
    /// An address of data without a Rust type, or of several types.
    Address
}

/// An address of numbers of one type on the GPU; 0 where a kernel accepts a null pointer.
#[repr(transparent)]
pub(super) struct At<T>(u64, PhantomData<T>);

impl<T> From<u64> for At<T> {
    fn from(address: u64) -> Self {
        Self(address, PhantomData)
    }
}

impl<T: Copy> From<&Buffer<T>> for At<T> {
    fn from(buffer: &Buffer<T>) -> Self {
        Self(buffer.pointer(), PhantomData)
    }
}

impl<T: Copy> From<&Arc<Buffer<T>>> for At<T> {
    fn from(buffer: &Arc<Buffer<T>>) -> Self {
        Self(buffer.pointer(), PhantomData)
    }
}

impl<T: Copy> From<&mut Buffer<T>> for At<T> {
    fn from(buffer: &mut Buffer<T>) -> Self {
        Self(buffer.pointer(), PhantomData)
    }
}

impl<T: Copy> From<Option<&Buffer<T>>> for At<T> {
    fn from(buffer: Option<&Buffer<T>>) -> Self {
        Self(buffer.map_or(0, Buffer::pointer), PhantomData)
    }
}

impl From<&Buffer<f64>> for Reals {
    fn from(buffer: &Buffer<f64>) -> Self {
        Self(buffer.pointer())
    }
}

impl From<&Buffer<f32>> for Reals {
    fn from(buffer: &Buffer<f32>) -> Self {
        Self(buffer.pointer())
    }
}

/// Numbers in bf16.
impl From<&Buffer<u16>> for Reals {
    fn from(buffer: &Buffer<u16>) -> Self {
        Self(buffer.pointer())
    }
}

impl<T: Copy> From<&Buffer<T>> for Address {
    fn from(buffer: &Buffer<T>) -> Self {
        Self(buffer.pointer())
    }
}

/// Declares the kernels of a file: `FILE in "name.cu", specialisations;`, followed by each function as in C,
/// with `const T*` written as `At<T>`. The text after `=` is the name in C, if several declarations name one
/// function with different constants. The names after `|` are functions with the same arguments, for
/// [`Entry::named`].
///
/// `specialisations` is a function from a [`Set`] to the kernels that are compiled ahead.
macro_rules! kernels {
    ($file:ident in $source:literal, $specialisations:expr; $(
        $(#[$doc:meta])* fn $name:ident $(= $entry:literal)? $(| $same:literal)* ($($argument:ident: $type:ty),* $(,)?);
    )*) => {
        pub(in crate::device::cuda) static $file: $crate::device::cuda::launch::File = $crate::device::cuda::launch::File {
            name: $source,
            text: include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/device/cuda/kernels/", $source)),
            entries: &[$((
                &[$crate::device::cuda::launch::entry!($name $($entry)?) $(, $same)*],
                &[$((stringify!($argument), stringify!($type))),*],
            )),*],
            specialisations: $specialisations,
        };
        $(
            $(#[$doc])*
            #[allow(non_camel_case_types)]
            #[derive(Clone, Copy)]
            pub(crate) struct $name;

            impl $crate::device::cuda::launch::Entry for $name {
                const NAMES: &'static [&'static str] = &[$crate::device::cuda::launch::entry!($name $($entry)?) $(, $same)*];
                const FILE: &'static $crate::device::cuda::launch::File = &$file;
            }

            impl $crate::device::cuda::launch::Launch<'_, $name> {
                /// Launches the kernel.
                #[allow(clippy::too_many_arguments)]
                #[inline]
                pub(in crate::device::cuda) fn run(
                    self,
                    $($argument: impl Into<$type>),*
                ) -> $crate::Result<()> {
                    $(let mut $argument: $type = $argument.into();)*
                    // SAFETY: the types are those of the declaration, which a test compares with the
                    // kernel's.
                    unsafe { self.launch(&mut [$((&raw mut $argument).cast()),*]) }
                }
            }
        )*
    };
}
pub(super) use kernels;

macro_rules! entry {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident $entry:literal) => {
        $entry
    };
}
pub(super) use entry;
