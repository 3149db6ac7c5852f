//! The CPU: a team of threads, and SIMD chosen at run time.
//!
//! Vectors are cut into strips that do not depend on the number of threads, and sums are added strip by strip in
//! order: results are bitwise the same for any number of threads.
//! [`Cpu`] is the space, [`Pool`] the team, which several spaces may share.

mod basis;
mod block;
mod block_tiles;
mod dia;
mod diagonal;
mod factors;
mod multilevel;
mod outer;
mod product;
mod replicated;
mod residual;
mod schwarz;
mod space;
mod transfer;

pub use basis::CpuBasis;
pub use block_tiles::CpuTiles;
pub use diagonal::CpuBlocks;
pub use factors::CpuFactors;
pub use product::CpuProduct;
pub use replicated::{CpuGathered, CpuShared};
pub use schwarz::CpuSchwarz;

use crate::Result;
use crate::comm::{Communicator, Solo};
use crate::space::{Clock, FLAGS, Phase, Phases};
pub use crate::threads::Pool;
use crate::threads::{Disjoint, share};
use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

/// Numbers in a chunk: a few vectors' chunks fit the first-level cache.
const CHUNK: usize = 1024;
/// Most strips a vector is cut into; each is a run of chunks summed in order.
const STRIPS: usize = 256;

/// Vectors of one length in host memory, worked on by a team of threads.
///
/// # Examples
/// ```
/// use krylith::{device::Cpu, operator::Space};
/// let space = Cpu::new(1000, 0); // 0: a thread a core
/// let mut x = space.vector()?; // zeros
/// space.write(&[1.0; 1000], &mut x)?;
/// assert_eq!((space.len(), x[999]), (1000, 1.0));
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Cpu {
    len: usize,
    pool: Arc<Pool>,
    comm: Arc<dyn Communicator>,
    partials: RefCell<Vec<f64>>,
    guarded: Cell<bool>,
    clock: Cell<(Phase, Option<Instant>)>,
    phases: Cell<Phases>,
    ahead: Cell<Ahead>,
}

/// Sums of a pass that are on their way over the ranks, and where they go.
#[derive(Clone, Copy, Default)]
struct Ahead {
    sums: [f64; space::MAX_SUMS],
    slots: [usize; space::MAX_SUMS],
    count: usize,
}

/// A few scalars and flags in host memory.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct CpuScalars {
    values: Vec<f64>,
    flags: [i32; FLAGS],
}

impl Cpu {
    /// Vectors of `len` numbers on `threads` threads; 0 means all cores.
    pub fn new(len: usize, threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self::with_pool(len, Arc::new(Pool::new(if threads == 0 { cores } else { threads })))
    }

    /// Vectors of `len` numbers on a team that other spaces share.
    pub fn with_pool(len: usize, pool: Arc<Pool>) -> Self {
        Self::distributed(len, pool, Arc::new(Solo))
    }

    /// This rank's share, `len` numbers, of vectors that the ranks of `comm` hold together.
    pub fn distributed(len: usize, pool: Arc<Pool>, comm: Arc<dyn Communicator>) -> Self {
        let clock = Cell::new((Phase::Other, None));
        let (partials, guarded, phases) = (RefCell::default(), Cell::default(), Cell::default());
        Self { len, pool, comm, partials, guarded, clock, phases, ahead: Cell::default() }
    }

    /// The team.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Threads in the team.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Adds this rank's sums to those of the others; the time goes to [`Phase::Communication`].
    fn total(&self, sums: &mut [f64]) -> Result<()> {
        if self.comm.size() == 1 || sums.is_empty() {
            return Ok(());
        }
        self.waiting(|| self.comm.sum(sums))
    }

    /// Room for `width` sums of every strip, so that a second solve that goes further than the first allocates nothing.
    fn make_room(&self, width: usize) {
        let mut partials = self.partials.borrow_mut();
        let missing = (strips(self.len) * width).saturating_sub(partials.len());
        partials.reserve(missing);
    }

    /// Counts what `work` takes as waiting for others, and goes back to the phase before.
    fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.clock.get().0;
        self.mark(Phase::Communication);
        let done = work();
        self.mark(before);
        done
    }

    /// Runs `f(strip, range)` over all strips of `vectors` vectors, in parallel, with the widest SIMD there is.
    fn for_strips(&self, vectors: usize, f: impl Fn(usize, Range<usize>) + Sync) {
        let (len, strips) = (self.len, strips(self.len));
        let pieces = self.pool.pieces(vectors * len * size_of::<f64>()).min(strips);
        let arch = pulp::Arch::new();
        self.pool.run(pieces, |piece| {
            for i in share(strips, piece, pieces) {
                let chunks = share(len.div_ceil(CHUNK), i, strips);
                let range = chunks.start * CHUNK..(chunks.end * CHUNK).min(len);
                arch.dispatch(Wide(
                    #[inline(always)]
                    || f(i, range.clone()),
                ));
            }
        });
    }

    /// Like [`for_strips`](Self::for_strips) where each strip leaves `width` sums, added in strip order into `out`:
    /// this rank's share of them.
    fn sum_strips(
        &self,
        vectors: usize,
        width: usize,
        out: &mut [f64],
        f: impl Fn(Range<usize>, &mut [f64]) + Sync,
    ) {
        let mut partials = self.partials.borrow_mut();
        let strips = strips(self.len);
        partials.clear();
        partials.resize(strips * width, 0.0);
        {
            let partials = Disjoint::new(&mut partials);
            // SAFETY: each strip has its own `width` partial sums.
            self.for_strips(
                vectors,
                #[inline(always)]
                |i, range| f(range, unsafe { partials.range(i * width..(i + 1) * width) }),
            );
        }
        out[..width].fill(0.0);
        for strip in partials.chunks_exact(width.max(1)) {
            for (o, p) in out.iter_mut().zip(strip) {
                *o += p;
            }
        }
    }
}

/// A body to be compiled for the widest SIMD there is.
///
/// A closure given to `dispatch` itself is called through a shim that no attribute makes inline, and a body that is
/// not inlined is compiled without AVX. This calls the body directly; it and all that it calls must be
/// `#[inline(always)]`.
struct Wide<F>(F);

impl<F: Fn()> pulp::NullaryFnOnce for Wide<F> {
    type Output = ();
    #[inline(always)]
    fn call(self) {
        (self.0)()
    }
}

/// Strips of a vector: a function of its length alone.
fn strips(len: usize) -> usize {
    len.div_ceil(CHUNK).clamp(1, STRIPS)
}
