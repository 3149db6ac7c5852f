//! Kernels of the GPUs of this process. A file with its constants is compiled and loaded once, by the first
//! thread that needs it, and stays loaded. Threads that need different kernels do not wait for each other.

use super::compiler::{self, Defines, Kernel};
use super::driver::failure;
use crate::Result;
use crate::waiting::{Once, Taken, Turn, join};
use cudarc::driver::{CudaContext, CudaModule};
use cudarc::nvrtc::Ptx;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::thread::JoinHandle;

/// Largest number of threads that fetch kernels ahead; a solve uses some twenty kernels.
const THREADS: usize = 8;

/// Identity of a module: the file and its constants, for all functions of the file.
type Source = (&'static str, Defines);

fn source(kernel: &Kernel) -> Source {
    (kernel.file, kernel.defines.clone())
}

/// A module, once it is loaded.
type Place = Arc<Once<Arc<CudaModule>>>;

/// A module whose constant memory is shared by its holders, who all use the same numbers.
pub(crate) struct Held {
    pub module: Arc<CudaModule>,
}

/// Modules with numbers in their constant memory, by those numbers.
type WithNumbers = HashMap<(Source, Vec<u64>), Weak<Held>>;

/// The modules that are loaded on one GPU.
pub(crate) struct Modules {
    context: Arc<CudaContext>,
    ordinal: usize,
    name: String,
    arch: (i32, i32),
    loaded: Mutex<HashMap<Source, Place>>,
    held: Mutex<WithNumbers>,
    quiet: Turn,
    /// Keys of kernels that were fetched ahead.
    fetched: Mutex<HashSet<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Modules {
    /// Returns the modules of a GPU, which all users of the GPU share.
    pub(crate) fn of(context: &Arc<CudaContext>, name: &str, arch: (i32, i32)) -> Arc<Self> {
        static KEPT: Mutex<Vec<Arc<Modules>>> = Mutex::new(Vec::new());
        let (mut kept, ordinal) = (lock(&KEPT), context.ordinal());
        if let Some(modules) = kept.iter().find(|modules| modules.ordinal == ordinal) {
            return modules.clone();
        }
        let (context, name) = (context.clone(), name.into());
        let (loaded, held, fetched) = (Mutex::default(), Mutex::default(), Mutex::default());
        let quiet = Turn::default();
        let modules = Arc::new(Self { context, ordinal, name, arch, loaded, held, quiet, fetched });
        kept.push(modules.clone());
        modules
    }

    /// True for the first call with this key.
    pub(crate) fn is_new(&self, key: String) -> bool {
        lock(&self.fetched).insert(key)
    }

    /// Keeps other threads from loading kernels ahead while the returned value lives. The driver loads under
    /// the lock of the context, after the work that runs there, and nothing must come between the launches of
    /// a recording.
    ///
    /// # Errors
    /// A thread that does not finish its loading in time.
    pub(crate) fn quiet(&self) -> Result<Taken<'_>> {
        self.quiet.take("kernels that another thread loads or records")
    }

    /// Returns the module of a kernel, and loads it if needed.
    pub(crate) fn load(&self, kernel: &Kernel) -> Result<Arc<CudaModule>> {
        let place = lock(&self.loaded).entry(source(kernel)).or_default().clone();
        place.get_or_make(&|| format!("the kernels of {}", kernel.file), || self.load_another(kernel))
    }

    /// Loads a module before its first use, together with its function, because the driver may delay loading
    /// until a function is named. The kernel is compiled first, so that a thread that waits for its turn to
    /// load keeps no other thread waiting.
    fn load_ahead(&self, kernel: &Kernel) -> Result<()> {
        compiler::image(kernel, self.arch)?;
        let _turn = self.quiet()?;
        self.load(kernel).map(|module| drop(module.load_function(kernel.entry)))
    }

    /// Returns a module for all operators that use these numbers in its constant memory. `write` puts the
    /// numbers there and waits until they have arrived.
    pub(crate) fn with_numbers(
        &self,
        kernel: &Kernel,
        numbers: &[f64],
        write: impl FnOnce(&Arc<CudaModule>) -> Result<()>,
    ) -> Result<Arc<Held>> {
        let key = (source(kernel), numbers.iter().map(|v| v.to_bits()).collect());
        if let Some(held) = lock(&self.held).get(&key).and_then(Weak::upgrade) {
            return Ok(held);
        }
        // Without the lock: this may take seconds.
        let held = Arc::new(Held { module: self.load_another(kernel)? });
        write(&held.module)?;
        let mut all = lock(&self.held);
        all.retain(|_, held| held.strong_count() > 0);
        // Another thread may have loaded one meanwhile.
        if let Some(held) = all.get(&key).and_then(Weak::upgrade) {
            return Ok(held);
        }
        all.insert(key, Arc::downgrade(&held));
        Ok(held)
    }

    /// True if nothing else holds this module, and nothing can acquire it: its constant memory is the
    /// caller's.
    pub(crate) fn is_own(&self, held: &Arc<Held>) -> bool {
        let mut all = lock(&self.held);
        let own = Arc::strong_count(held) == 1;
        if own {
            all.retain(|_, other| other.as_ptr() != Arc::as_ptr(held));
        }
        own
    }

    /// Loads a module that is not shared: its constant memory is the caller's.
    pub(crate) fn load_another(&self, kernel: &Kernel) -> Result<Arc<CudaModule>> {
        let image = compiler::image(kernel, self.arch)?;
        let made = self.context.load_module(Ptx::from_binary(image.to_vec()));
        made.map_err(|e| failure(&self.name, "cuModuleLoadData", e))
    }
}

/// Threads that compile and load kernels before their first use. They stop when this is dropped.
pub(crate) struct Ahead {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Kernels to be fetched, in the order of their first use.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Kernels of shared modules.
    pub shared: Vec<Kernel>,
    /// Kernels that are only compiled. Their first user loads them.
    pub private: Vec<Kernel>,
}

impl Ahead {
    /// Starts to fetch kernels. A failure is ignored here: the first user of the kernel gets the error.
    pub(crate) fn fetch(modules: &Arc<Modules>, wanted: Wanted) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let private = wanted.private.into_iter().map(|kernel| (kernel, true));
        let all: Vec<(Kernel, bool)> = private.chain(wanted.shared.into_iter().map(|k| (k, false))).collect();
        let count = std::thread::available_parallelism().map_or(1, |n| n.get()).min(THREADS).min(all.len());
        let work = Arc::new((all, AtomicUsize::new(0)));
        let start = |_| {
            let (modules, stop, work) = (modules.clone(), stop.clone(), work.clone());
            let fetch = move || {
                while let Some((kernel, private)) = work.0.get(work.1.fetch_add(1, Ordering::Relaxed)) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    // The first user of the kernel gets the error.
                    let _ = match private {
                        true => compiler::image(kernel, modules.arch).map(|_| ()),
                        false => modules.load_ahead(kernel),
                    };
                }
            };
            std::thread::Builder::new().name("krylith-kernels".into()).spawn(fetch).ok()
        };
        Self { threads: (0..count).filter_map(start).collect(), stop }
    }
}

impl Drop for Ahead {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // a panic in them is turned into an error earlier
            join(thread, "threads that compile kernels ahead");
        }
    }
}
