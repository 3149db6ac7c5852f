//! The CPU: a team of threads, and SIMD chosen at run time.
//!
//! Vectors are cut into strips that do not depend on the number of threads, and the sums of strips are added
//! in order. Results are therefore bitwise the same for any number of threads. [`Cpu`] is the space, [`Pool`]
//! is the team, which several spaces may share.

mod assemble;
mod basis;
mod block;
mod block_tiles;
mod columns;
mod dia;
mod diagonal;
mod elimination;
mod factors;
mod multilevel;
mod narrow;
mod outer;
mod product;
mod replicated;
mod residual;
mod schwarz;
mod space;
mod transfer;
mod vanka;

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

/// Numbers per chunk: the chunks of a few vectors fit the first-level cache.
const CHUNK: usize = 1024;
/// Largest number of strips of a vector; each is a run of chunks that are summed in order.
const STRIPS: usize = 256;

/// Vectors of one length in host memory, which a team of threads processes.
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

/// Sums of a pass whose reduction over the ranks is under way, and their target.
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
    /// Makes the space of vectors with `len` numbers on `threads` threads; 0 means all cores.
    pub fn new(len: usize, threads: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, |n| n.get());
        Self::with_pool(len, Arc::new(Pool::new(if threads == 0 { cores } else { threads })))
    }

    /// Makes the space of vectors with `len` numbers on a team that other spaces share.
    pub fn with_pool(len: usize, pool: Arc<Pool>) -> Self {
        Self::distributed(len, pool, Arc::new(Solo))
    }

    /// Makes the space of this rank's part, `len` numbers, of vectors that are distributed over the ranks of
    /// `comm`.
    pub fn distributed(len: usize, pool: Arc<Pool>, comm: Arc<dyn Communicator>) -> Self {
        let clock = Cell::new((Phase::Other, None));
        let (partials, guarded, phases) = (RefCell::default(), Cell::default(), Cell::default());
        Self { len, pool, comm, partials, guarded, clock, phases, ahead: Cell::default() }
    }

    /// Returns the team.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Number of threads in the team.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Sums this rank's numbers over all ranks; the time counts as [`Phase::Communication`].
    fn total(&self, sums: &mut [f64]) -> Result<()> {
        if self.comm.size() == 1 || sums.is_empty() {
            return Ok(());
        }
        self.waiting(|| self.comm.sum(sums))
    }

    /// Allocates `width` sums for every strip, so that a second, longer solve allocates nothing.
    fn widen(&self, width: usize) {
        let mut partials = self.partials.borrow_mut();
        let missing = (strips(self.len) * width).saturating_sub(partials.len());
        partials.reserve(missing);
    }

    /// Counts the time of `work` as waiting for other ranks, then returns to the phase before.
    fn waiting<T>(&self, work: impl FnOnce() -> T) -> T {
        let before = self.clock.get().0;
        self.mark(Phase::Communication);
        let done = work();
        self.mark(before);
        done
    }

    /// Runs `f(strip, range)` over all strips of `vectors` vectors, in parallel, with the widest SIMD
    /// instructions available.
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

    /// Like [`for_strips`](Self::for_strips), where each strip returns `width` sums, which are added in strip
    /// order into `out`. They are this rank's part of the sums.
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

/// A body that is compiled for the widest SIMD instructions available.
///
/// A closure passed to `dispatch` is called through a shim that no attribute makes inline, and a body that is
/// not inlined is compiled without AVX. This type calls the body directly. The body and everything that it
/// calls must be `#[inline(always)]`.
struct Wide<F>(F);

impl<F: Fn()> pulp::NullaryFnOnce for Wide<F> {
    type Output = ();
    #[inline(always)]
    fn call(self) {
        (self.0)()
    }
}

/// Number of strips of a vector, which depends only on its length.
fn strips(len: usize) -> usize {
    len.div_ceil(CHUNK).clamp(1, STRIPS)
}
