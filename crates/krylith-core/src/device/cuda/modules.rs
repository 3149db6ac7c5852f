//! Kernels of the GPUs of this process: a file with its constants is compiled and loaded once, by whichever thread asks first,
//! and stays loaded. Threads that ask for different ones do not wait for each other.

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

/// Most threads that fetch kernels ahead: a solve has some twenty.
const THREADS: usize = 8;

/// What makes a module: the file and its constants, whichever of its functions is wanted.
type Source = (&'static str, Defines);

fn source(kernel: &Kernel) -> Source {
    (kernel.file, kernel.defines.clone())
}

/// A module, once it is loaded.
type Place = Arc<Once<Arc<CudaModule>>>;

/// A module whose constant memory belongs to those who hold this: all want the same numbers there.
pub(crate) struct Held {
    pub module: Arc<CudaModule>,
}

/// Modules with numbers in their constant memory, by those.
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
    /// What was fetched ahead.
    fetched: Mutex<HashSet<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Modules {
    /// Those of a GPU, the same for all who open it.
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

    /// True the first time that this is asked.
    pub(crate) fn is_new(&self, key: String) -> bool {
        lock(&self.fetched).insert(key)
    }

    /// Keeps other threads from loading ahead as long as the answer lives: the driver loads under the lock of the context, after what
    /// runs there, and nothing is to come between the launches of a recording.
    ///
    /// # Errors
    /// A thread that loads and is not done in time.
    pub(crate) fn quiet(&self) -> Result<Taken<'_>> {
        self.quiet.take("kernels that another thread loads or records")
    }

    /// The module of a kernel, loaded if it is not.
    pub(crate) fn load(&self, kernel: &Kernel) -> Result<Arc<CudaModule>> {
        let place = lock(&self.loaded).entry(source(kernel)).or_default().clone();
        place.get_or_make(&|| format!("the kernels of {}", kernel.file), || self.load_another(kernel))
    }

    /// The same for later, with its function: the driver may put loading off until that is named. Compiled first, because whoever
    /// waits for a turn must not be waited for.
    fn load_ahead(&self, kernel: &Kernel) -> Result<()> {
        compiler::image(kernel, self.arch)?;
        let _turn = self.quiet()?;
        self.load(kernel).map(|module| drop(module.load_function(kernel.entry)))
    }

    /// A module for all who want these numbers in its constant memory. `write` puts them there, and waits until they are.
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
        // Another thread may have made one meanwhile.
        if let Some(held) = all.get(&key).and_then(Weak::upgrade) {
            return Ok(held);
        }
        all.insert(key, Arc::downgrade(&held));
        Ok(held)
    }

    /// True where nobody else holds this module, and nobody will: its constant memory is the caller's.
    pub(crate) fn is_own(&self, held: &Arc<Held>) -> bool {
        let mut all = lock(&self.held);
        let own = Arc::strong_count(held) == 1;
        if own {
            all.retain(|_, other| other.as_ptr() != Arc::as_ptr(held));
        }
        own
    }

    /// A module that nobody else has: its constant memory is the caller's.
    pub(crate) fn load_another(&self, kernel: &Kernel) -> Result<Arc<CudaModule>> {
        let image = compiler::image(kernel, self.arch)?;
        let made = self.context.load_module(Ptx::from_binary(image.to_vec()));
        made.map_err(|e| failure(&self.name, "cuModuleLoadData", e))
    }
}

/// Threads that compile and load kernels before they are asked for. They stop when this is dropped.
pub(crate) struct Ahead {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

/// Kernels to be fetched, in the order in which they will be wanted.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// Of modules that all share.
    pub shared: Vec<Kernel>,
    /// Of modules that each operator loads for itself; these are only compiled.
    pub private: Vec<Kernel>,
}

impl Ahead {
    /// Starts fetching. What cannot be had is left to whoever asks for it, with the error.
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
                    // An error is the asker's to hear.
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
            join(thread, "threads that compile kernels ahead"); // a panic of theirs is turned into an error before
        }
    }
}
