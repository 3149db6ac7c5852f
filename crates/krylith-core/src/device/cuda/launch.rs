//! Kernels as Rust sees them: [`kernels!`] declares each once, with the types of its arguments, its file and its
//! specialisations; [`Function`] is one that is loaded, and [`Launch`] a launch of it.
//!
//! A launch is safe to write. What a kernel reads and writes through its arguments is memory of the GPU, to which no Rust reference ever
//! points: a wrong length gives wrong numbers or a fault that the driver reports, and never undefined behaviour on the
//! host. That the arguments are those of the kernel is checked: their number, order and types by the compiler, from the
//! declaration; the declaration against the source by a test.

use super::buffer::Buffer;
use super::compiler::{Defines, Kernel};
use super::driver::{Device, TextKey};
use crate::Result;
use cudarc::driver::{CudaFunction, CudaStream};
use std::ffi::c_void;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;

/// Names of functions in C with the same arguments, and the name and type of each argument.
type Declared = (&'static [&'static str], &'static [(&'static str, &'static str)]);

/// A kernel file: its text, its functions, and the constants that it is compiled with.
pub(crate) struct File {
    /// Name in `kernels/`.
    pub name: &'static str,
    pub text: &'static str,
    /// Its functions and the names and types of their arguments, as declared; for the test that compares them with the text.
    #[cfg_attr(not(test), expect(dead_code, reason = "read by the test that compares it with the text"))]
    pub entries: &'static [Declared],
    /// What of it is compiled ahead; one function stands for all that are compiled with the same constants.
    pub specialisations: fn(Set) -> Vec<Kernel>,
}

/// Which specialisations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Set {
    /// All that the library can ask for: a test compiles them.
    All,
    /// What a release carries compiled: the sizes that most systems have.
    Common,
}

impl Set {
    /// `all` or `common`.
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
    /// Its name in C, then those of others with the same arguments.
    const NAMES: &'static [&'static str];
    const FILE: &'static File;

    /// The kernel of a file that is compiled without constants.
    fn plain(self) -> Of<Self> {
        self.with(Vec::new())
    }

    /// The kernel that the file becomes with these constants.
    fn with(self, defines: Defines) -> Of<Self> {
        self.named(Self::NAMES[0], defines)
    }

    /// The same of one of [`NAMES`](Self::NAMES).
    fn named(self, entry: &'static str, defines: Defines) -> Of<Self> {
        debug_assert!(Self::NAMES.contains(&entry), "{entry} is not declared with these arguments");
        Of { kernel: Kernel { file: Self::FILE.name, entry, defines }, entry: PhantomData }
    }
}

/// A specialised kernel that knows its arguments.
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

/// A loaded kernel that knows its arguments.
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
    /// The function of a specialised kernel, compiled or loaded at its first use.
    pub(super) fn function<K>(&self, kernel: &Of<K>) -> Result<Function<K>> {
        Ok(Function { function: self.load(kernel)?, entry: PhantomData })
    }

    /// The same of a kernel that is made from static text, put together at its first use.
    pub(super) fn function_of<K>(&self, key: TextKey, kernel: impl FnOnce() -> Of<K>) -> Result<Function<K>> {
        Ok(Function { function: self.load_text(key, || kernel().into())?, entry: PhantomData })
    }

    /// A function of a module that is the caller's.
    pub(super) fn function_in<K: Entry>(
        &self,
        module: &Arc<cudarc::driver::CudaModule>,
        _: K,
    ) -> Result<Function<K>> {
        Ok(Function { function: self.entry(module, K::NAMES[0])?, entry: PhantomData })
    }
}

impl<K> Function<K> {
    /// A launch on `grid` blocks of `block` threads, in the device's stream.
    pub(super) fn on<'a>(&'a self, device: &'a Device, grid: usize, block: usize) -> Launch<'a, K> {
        let stream = &*device.stream;
        Launch { device, function: &self.function, stream, grid, block, shared: 0, entry: PhantomData }
    }
}

/// A launch whose arguments are still to come: `run`, which [`kernels!`] makes for each kernel, takes them.
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
    /// With so many bytes of dynamic shared memory.
    pub(super) fn shared(self, bytes: usize) -> Self {
        Self { shared: bytes, ..self }
    }

    /// In another stream of the device.
    pub(super) fn in_stream(self, stream: &'a CudaStream) -> Self {
        Self { stream, ..self }
    }

    /// # Safety
    /// `arguments` must point to values of the kernel's parameter types; more than the kernel has are not read.
    #[inline]
    pub(super) unsafe fn launch(self, arguments: &mut [*mut c_void]) -> Result<()> {
        let Self { device, function, stream, grid, block, shared, .. } = self;
        // SAFETY: the caller's promise; what the kernel does with its addresses is said at the head of this file.
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
    /// An address of numbers of the type that the file is specialised on: f64 or f32.
    Reals,
    /// An address of what has no twin in Rust, or several.
    Address
}

/// An address of numbers of one type on the GPU; 0 where a kernel may be given none.
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

impl<T: Copy> From<&Buffer<T>> for Address {
    fn from(buffer: &Buffer<T>) -> Self {
        Self(buffer.pointer())
    }
}

/// Declares the kernels of a file: `FILE in "name.cu", specialisations;` and then each function as C has it, `const T*` as `At<T>`.
/// What follows `=` is the name in C where several declarations stand for one function with different constants, and what follows `|` names
/// functions with the same arguments, for [`Entry::named`].
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
                    // SAFETY: these are the types of the declaration, which a test compares with the kernel's.
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
