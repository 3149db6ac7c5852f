//! GPUs that share the rows of a product, where each needs the whole result or the whole argument
//! (`kernels/replicated.cu`).
//!
//! Products follow each other in the space's stream. Their results leave in one stream per other GPU, by
//! copies that need no multiprocessor, directly into the y of the other GPUs. Two barriers of all GPUs make
//! this safe:
//!
//! - No GPU may store into another GPU's y before that GPU has reached this product, because it may still
//!   read the old y.
//! - A product is done when the numbers of all GPUs have arrived.
//!
//! The first barrier is in the streams of the copies, so it overlaps with the first product. Mode `fused` has
//! no copies: between the two barriers, the kernel of the product stores into all vectors.
//!
//! y belongs to the caller and has a different address on every GPU. Ranks exchange the addresses in each
//! call, and a recorded product keeps them. Memory of a pool is opened to the other GPUs of the process.
//! Memory that another process has allocated in a pool cannot be mapped. Between processes results therefore
//! arrive in buffers that all of them have mapped, and each GPU copies them from there to its y.

mod landing;
mod pointers;

use super::Cuda;
use super::bounce::Spot;
use super::csr::{CsrPattern, CsrProduct};
use super::dia::ResidualOf;
use super::driver::{Buffer, Device};
use super::fabric::{Fabric, Transport};
use super::launch::{Address, At, Entry, Function, kernels};
use super::peers::{MAX_RANKS, Shared};
use super::resident::Resident;
use crate::comm::{Communicator, agree, gather};
use crate::matrix::{Bsr, Csr};
use crate::operator::cuts::{Cuts, Mode, OnHost, Run};
use crate::operator::{SharedRows, Terms, check_lengths};
use crate::space::{Precision, Space};
use crate::{Error, Result};
use cudarc::driver::CudaStream;
use landing::Landing;
use pointers::OnDevice;
use std::cell::RefCell;
use std::ops::Range;
use std::sync::Arc;

kernels! {
    REPLICATED in "replicated.cu", |_| vec![longest_row.plain().into()];
    fn longest_row(rows: i64, row_ptr: At<i64>, key: At<u64>);
    fn row_pointers(asked: Rows, count: i32, row_ptr: At<i64>, to: At<i64>);
    fn search_rows(all: Searches, count: i32, row_ptr: At<i64>, to: At<i64>);
    fn rebase(count: i64, base: i64, from: At<i64>, to: At<i64>);
    fn wait_for_all(meeting: Address, broken: At<f64>);
}

type Rows = [i64; POINTERS];
type Searches = [[i64; 6]; SEARCHES];

/// Purpose of this module's buffers, for error messages.
const WHAT: &str = "rows of a shared product";
/// Row pointers per launch; the kernel has the same constant.
const POINTERS: usize = 8;
/// Searches per launch; the kernel has the same constant.
const SEARCHES: usize = 32;

/// Mirrors `struct Meeting` in the kernels.
#[repr(C)]
#[derive(Clone, Copy)]
struct Meeting {
    epoch: u64,
    rank: u32,
    size: u32,
    group: u64,
    flags: u64,
    flag: [u64; MAX_RANKS],
}
const _: () = assert!(size_of::<Meeting>() == 160);

/// The links between the GPUs of all ranks; none for a single rank.
#[doc(hidden)]
pub struct CudaLinks(Option<Joined>);

struct Joined {
    comm: Arc<dyn Communicator>,
    fabric: Arc<Fabric>,
    meeting: Buffer<Meeting>,
    _flags: Shared<u64>,
    wait: Function<wait_for_all>,
    /// One stream for each other rank, in their order.
    streams: Vec<Arc<CudaStream>>,
    /// Addresses in halves of 32 bits, which a sum over the ranks keeps exact.
    halves: RefCell<Vec<f64>>,
}

/// Addresses of one vector, by rank.
type Places = [u64; MAX_RANKS];

impl CudaLinks {
    fn new(space: &Cuda, comm: &Arc<dyn Communicator>) -> Result<Self> {
        let device = space.device();
        if comm.size() == 1 {
            return Ok(Self(None));
        }
        let (rank, size) = (comm.rank(), comm.size());
        // A distributed space has already joined the GPUs.
        let fabric = match space.fabric().group() {
            0 => Fabric::new(device, comm, Transport::Peers).map_err(|e| match e {
                Error::Unsupported(why) => Error::Unsupported(format!("{why}, or use share=halo")),
                e => e,
            })?,
            _ => space.fabric().clone(),
        };
        let mine = (|| {
            let wait = device.function(&wait_for_all.plain())?;
            device.allow_shared(&wait, 32, 0)?; // loaded before anything waits
            let streams = (1..size).map(|_| device.second_stream()).collect::<Result<_>>()?;
            Ok((wait, streams, device.peer_zeros::<u64>(MAX_RANKS, "flags")?))
        })();
        let (wait, streams, flags) = agree(&**comm, mine)?;
        let flags = Shared::new(&**comm, flags)?;
        let ordinals = gather(&**comm, &(device.info().ordinal as u64).to_le_bytes())?;
        let one_process = comm.shares_address_space();
        let open = |bytes: &Vec<u8>| {
            let ordinal = bytes.as_slice().try_into().map_or(0, u64::from_le_bytes) as usize;
            let is_open = ordinal == device.info().ordinal || !one_process;
            if is_open { Ok(()) } else { device.open_pool_to_gpu(ordinal) }
        };
        agree(&**comm, ordinals.iter().try_for_each(open))?;
        let mut flag = [0; MAX_RANKS];
        (0..size).for_each(|q| flag[q] = flags.of(q) + 8 * rank as u64);
        let meeting = Meeting {
            epoch: 0,
            rank: rank as u32,
            size: size as u32,
            group: fabric.group(),
            flags: flags.own().pointer(),
            flag,
        };
        let meeting = agree(&**comm, device.upload(&[meeting], "a barrier of ranks"))?;
        let (comm, halves) = (comm.clone(), RefCell::default());
        Ok(Self(Some(Joined { comm, fabric, meeting, _flags: flags, wait, streams, halves })))
    }

    fn rank(&self) -> usize {
        self.0.as_ref().map_or(0, |joined| joined.comm.rank())
    }

    /// Ends a part of the set-up with the same outcome on all ranks.
    fn agree<T>(&self, mine: Result<T>) -> Result<T> {
        match &self.0 {
            None => mine,
            Some(joined) => agree(&*joined.comm, mine),
        }
    }

    /// Returns an error if a kernel timed out while it waited for another GPU, which leaves NaN in the
    /// result. It waits for the device.
    ///
    /// # Errors
    /// A rank that did not answer in time, or is lost.
    pub fn check(&self) -> Result<()> {
        let Some(joined) = &self.0 else { return Ok(()) };
        joined.fabric.device().wait()?;
        joined.fabric.check()
    }
}

impl Joined {
    /// Returns the address on each rank of the vector that is here at `own`. Collective.
    fn places(&self, own: u64) -> Result<Places> {
        let (rank, size) = (self.comm.rank(), self.comm.size());
        let mut halves = self.halves.borrow_mut();
        halves.clear();
        halves.resize(2 * size, 0.0);
        (halves[2 * rank], halves[2 * rank + 1]) = ((own >> 32) as f64, (own as u32) as f64);
        self.comm.sum(&mut halves)?;
        let mut places = [0; MAX_RANKS];
        for (place, halves) in places.iter_mut().zip(halves.chunks_exact(2)) {
            *place = (halves[0] as u64) << 32 | halves[1] as u64;
        }
        Ok(places)
    }

    /// Waits in a stream until all GPUs have reached this point; the number at `broken` becomes NaN if one
    /// does not.
    fn meet(&self, stream: &CudaStream, broken: u64) -> Result<()> {
        self.wait.on(self.fabric.device(), 1, 32).in_stream(stream).run(self.meeting.pointer(), broken)
    }

    /// Makes the streams of the copies wait until all GPUs have reached this point. Later work in the
    /// device's own stream does not wait.
    fn enter(&self) -> Result<()> {
        let (device, first) = (self.fabric.device(), &self.streams[0]);
        device.fork(first)?;
        self.meet(first, 0)?;
        if self.streams.len() > 1 {
            let event = device.check("cuEventRecord", first.record_event(None))?;
            let wait = |stream: &Arc<CudaStream>| device.check("cuStreamWaitEvent", stream.wait(&event));
            self.streams[1..].iter().try_for_each(wait)?;
        }
        Ok(())
    }

    /// Sends rows of a vector to all other GPUs, after the present work of the device's stream.
    fn send<'r>(
        &self,
        rows: impl Iterator<Item = &'r Range<usize>> + Clone,
        from: impl Fn(usize) -> u64,
        to: &[&Places],
    ) -> Result<()> {
        let (device, rank) = (self.fabric.device(), self.comm.rank());
        let event = device.check("cuEventRecord", device.stream().record_event(None))?;
        let others = (0..self.comm.size()).filter(|q| *q != rank);
        for (q, stream) in others.zip(&self.streams) {
            device.check("cuStreamWaitEvent", stream.wait(&event))?;
            for (vector, places) in to.iter().enumerate() {
                for rows in rows.clone() {
                    let at = 8 * rows.start as u64;
                    // SAFETY: every rank has a vector of as many numbers there, and is between the two
                    // barriers of this product.
                    unsafe { device.copy_beside(stream, places[q] + at, from(vector) + at, 8 * rows.len())? };
                }
            }
        }
        Ok(())
    }

    /// Makes later work in the device's stream wait for the copies of all GPUs.
    fn leave(&self, broken: u64) -> Result<()> {
        let device = self.fabric.device();
        self.streams.iter().try_for_each(|stream| device.join(stream))?;
        self.meet(device.stream(), broken)
    }
}

/// A rank's rows of a product whose result all ranks need.
#[doc(hidden)]
pub struct CudaShared {
    links: Arc<CudaLinks>,
    rows: usize,
    stages: Vec<Stage>,
    /// True if the kernels of the products store into the vectors of all ranks.
    fused: bool,
    /// None where ranks store into each other's vectors.
    landing: Option<Landing>,
    _matrix: Option<Arc<Resident>>,
}

struct Stage {
    pieces: Vec<Piece>,
    redundant: bool,
}

struct Piece {
    rows: Range<usize>,
    product: CsrProduct,
}

/// A rank's rows of a product, and the gathered vector that it multiplies.
#[doc(hidden)]
pub struct CudaGathered {
    links: Arc<CudaLinks>,
    rows: Range<usize>,
    product: Option<CsrProduct>,
    /// None on a single rank, which multiplies its own vector.
    whole: Option<Shared<f64>>,
    _matrix: Option<Arc<Resident>>,
}

impl SharedRows for Cuda {
    type Links = CudaLinks;
    type Shared = CudaShared;
    type Gathered = CudaGathered;

    fn hold(&self, a: &Csr) -> Result<Csr> {
        let placed = self.placed(&Terms::csr(a)?)?;
        self.wait()?;
        Ok(Csr::from_storage(placed.terms[0].1.storage().clone()))
    }

    fn link(&self, comm: &Arc<dyn Communicator>) -> Result<Arc<CudaLinks>> {
        CudaLinks::new(self, comm).map(Arc::new)
    }

    fn check_links(&self, links: &CudaLinks) -> Result<()> {
        self.wait()?;
        links.check()
    }

    fn cut_rows(&self, a: &Csr, mode: &Mode, ranks: usize) -> Result<Cuts> {
        match self.at_hand(&Bsr::from_csr(a, 1)?) {
            Some(resident) => Cuts::find(&OnDevice::new(self.device(), resident)?, mode, ranks),
            None => Cuts::find(&OnHost(a.row_ptr()), mode, ranks),
        }
    }

    fn share_rows(&self, links: &Arc<CudaLinks>, a: &Csr, cuts: &Cuts, mode: &Mode) -> Result<CudaShared> {
        let fused = *mode == Mode::Fused;
        let apart = links.0.as_ref().filter(|joined| !joined.comm.shares_address_space());
        if fused && apart.is_some() {
            return Err(Error::Unsupported(
                "share=fused: GPUs of several processes cannot store into each other's vectors; use another mode, \
                 such as share=nz"
                    .into(),
            ));
        }
        let mut kept = None;
        let mut pieces = |runs: &[Run]| -> Result<Vec<Piece>> {
            let piece = |run: &Run| {
                let (mut product, whole) = rows_of(self, a, run)?;
                if fused && links.0.is_some() {
                    product.prepare_for_others(self.device())?;
                }
                product.load(self.device())?;
                kept = whole;
                Ok(Piece { rows: run.rows.clone(), product })
            };
            runs.iter().map(piece).collect()
        };
        let rank = links.rank();
        let stages = cuts
            .stages
            .iter()
            .map(|stage| Ok(Stage { pieces: pieces(&stage.runs[rank])?, redundant: stage.redundant }))
            .collect::<Result<Vec<_>>>();
        let stages = links.agree(stages.and_then(|stages| self.wait().map(|()| stages)))?;
        let landing = apart.map(|joined| Landing::new(joined, a.rows(), cuts)).transpose()?;
        Ok(CudaShared { links: links.clone(), rows: a.rows(), stages, fused, landing, _matrix: kept })
    }

    fn multiply_shared(&self, p: &CudaShared, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        check_lengths(p.rows, p.rows, x.len(), y.len())?;
        let (x, y) = (x.pointer(), y.pointer());
        match &p.links.0 {
            Some(joined) if p.fused => p.store_into_all(self, joined, x, y),
            _ => p.exchange(&[y], |piece| piece.product.multiply(self, x, y + 8 * piece.rows.start as u64)),
        }
    }

    fn residual_shared(
        &self,
        p: &CudaShared,
        b: &Buffer<f64>,
        x: &Buffer<f64>,
        r: &mut Buffer<f64>,
        m: &mut Buffer<f64>,
    ) -> Result<()> {
        check_lengths(p.rows, p.rows, x.len(), r.len())?;
        check_lengths(p.rows, p.rows, b.len(), m.len())?;
        let (b, x, r, m) = (b.pointer(), x.pointer(), r.pointer(), m.pointer());
        p.exchange(&[r, m], |piece| {
            let at = 8 * piece.rows.start as u64;
            piece.product.residual(self, &ResidualOf { b: b + at, x, r: r + at, m: m + at }, 0)
        })
    }

    fn gather_for(&self, links: &Arc<CudaLinks>, a: &Csr, rows: &[Run]) -> Result<CudaGathered> {
        let own = &rows[links.rank()];
        let product = match own.rows.is_empty() {
            true => Ok(None),
            false => rows_of(self, a, own).map(Some),
        };
        let product = links.agree(product)?;
        let whole = match &links.0 {
            None => None,
            Some(joined) => {
                let whole = self.device().peer_zeros(a.columns(), "a gathered vector");
                Some(Shared::new(&*joined.comm, agree(&*joined.comm, whole)?)?)
            }
        };
        let (product, kept) = product.map_or((None, None), |(product, kept)| (Some(product), kept));
        Ok(CudaGathered { links: links.clone(), rows: own.rows.clone(), product, whole, _matrix: kept })
    }

    fn multiply_gathered(&self, p: &CudaGathered, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        check_lengths(p.rows.len(), p.rows.len(), x.len(), y.len())?;
        let (mut x, y) = (x.pointer(), y.pointer());
        if let (Some(joined), Some(whole)) = (&p.links.0, &p.whole) {
            let (device, own, at) = (self.device(), whole.own().pointer(), 8 * p.rows.start as u64);
            let mut places = [0; MAX_RANKS];
            (0..joined.comm.size()).for_each(|q| places[q] = whole.of(q));
            joined.enter()?;
            // SAFETY: own rows lie in both.
            unsafe { device.copy_beside(device.stream(), own + at, x, 8 * p.rows.len())? };
            joined.send(std::iter::once(&p.rows), |_| own, &[&places])?;
            joined.leave(own)?;
            x = own;
        }
        p.product.iter().try_for_each(|product| product.multiply(self, x, y))
    }
}

impl CudaShared {
    /// Returns the rows of this rank's chunks, in the order of their computation.
    pub fn chunks(&self) -> impl Iterator<Item = &Range<usize>> {
        self.stages.iter().flat_map(|stage| &stage.pieces).map(|piece| &piece.rows)
    }

    /// Computes the chunks by another kernel, for baselines, and sends their results to the y of all ranks.
    /// `compute` gets the rows of a chunk, and enqueues work that writes these rows of y in the device's own
    /// stream. Collective.
    ///
    /// # Errors
    /// As [`SharedRows::multiply_shared`]; those of `compute`.
    pub fn multiply_by(
        &self,
        y: &mut Buffer<f64>,
        compute: impl Fn(&Range<usize>) -> Result<()>,
    ) -> Result<()> {
        check_lengths(self.rows, self.rows, self.rows, y.len())?;
        self.exchange(&[y.pointer()], |piece| compute(&piece.rows))
    }

    /// Computes the chunks, stage after stage, and sends their results to the vectors at `outputs`.
    fn exchange(&self, outputs: &[u64], compute: impl Fn(&Piece) -> Result<()>) -> Result<()> {
        let Some(joined) = &self.links.0 else {
            return self.stages.iter().flat_map(|stage| &stage.pieces).try_for_each(compute);
        };
        let mut places = [[0; MAX_RANKS]; 2];
        for (vector, &own) in outputs.iter().enumerate() {
            places[vector] = self.places(joined, vector, own)?;
        }
        let places = [&places[0], &places[1]];
        joined.enter()?;
        for stage in &self.stages {
            stage.pieces.iter().try_for_each(&compute)?;
            if !stage.redundant && !stage.pieces.is_empty() {
                let rows = stage.pieces.iter().map(|piece| &piece.rows);
                joined.send(rows, |vector| outputs[vector], &places[..outputs.len()])?;
            }
        }
        joined.leave(self.broken(outputs[0]))?;
        self.land(joined, outputs)
    }

    /// Returns the address on each rank to which results are sent, for the output that is here at `own`.
    /// Collective.
    fn places(&self, joined: &Joined, vector: usize, own: u64) -> Result<Places> {
        match &self.landing {
            Some(landing) => Ok(landing.places(vector, joined.comm.size())),
            None => joined.places(own),
        }
    }

    /// Returns the address of the number that becomes NaN if another GPU does not answer.
    fn broken(&self, output: u64) -> u64 {
        self.landing.as_ref().and_then(Landing::first).unwrap_or(output)
    }

    /// Copies results of other processes to the outputs.
    fn land(&self, joined: &Joined, outputs: &[u64]) -> Result<()> {
        match &self.landing {
            Some(landing) => landing.copy(joined.fabric.device(), outputs),
            None => Ok(()),
        }
    }

    /// Computes with kernels that store each number into all vectors.
    fn store_into_all(&self, space: &Cuda, joined: &Joined, x: u64, y: u64) -> Result<()> {
        let places = self.places(joined, 0, y)?;
        let (rank, size, stream) = (joined.comm.rank(), joined.comm.size(), space.device().stream());
        joined.meet(stream, 0)?;
        for piece in self.stages.iter().flat_map(|stage| &stage.pieces) {
            let at = 8 * piece.rows.start as u64;
            let mut others = [0; 16];
            others[15] = size as u64 - 1;
            let theirs = (0..size).filter(|q| *q != rank).map(|q| places[q] + at);
            others.iter_mut().zip(theirs).for_each(|(to, place)| *to = place);
            piece.product.multiply_to(space, x, y + at, others)?;
        }
        joined.meet(stream, self.broken(y))?;
        self.land(joined, &[y])
    }
}

/// Makes the product of a run of rows: from the arrays in place if they are on this GPU, otherwise from
/// copies.
fn rows_of(space: &Cuda, a: &Csr, run: &Run) -> Result<(CsrProduct, Option<Arc<Resident>>)> {
    let (device, Run { rows, entries }) = (space.device(), run);
    let resident = a.storage().on::<Resident>();
    let here = |on: &Arc<Resident>| on.ordinal() == device.info().ordinal;
    let row_ptr = device.allocate::<i64>(rows.len() + 1, WHAT)?;
    let mut kept = None;
    // Tiles are read in pairs from an even entry on, so the first entry may be before the first row. It is so
    // on every rank alike, because the start of the tiles decides the order in which a long row is summed.
    let first = entries.start & !7;
    let (from, col, values) = match resident {
        Some(resident) if here(&resident) => {
            // SAFETY: the matrix is kept beside the product.
            let (col, values) = unsafe {
                (
                    resident.col.view(first, entries.end - first),
                    resident.values.view(first, entries.end - first),
                )
            };
            let from = resident.row_ptr.at(rows.start);
            kept = Some(resident);
            (from, col, values)
        }
        Some(resident) if let Ok((col, values)) = rows_from(device, &resident, run, first, &row_ptr) => {
            (row_ptr.pointer(), col, values)
        }
        _ => {
            // SAFETY: allocated for as many numbers of the same size; offsets are below 2⁶³.
            unsafe { device.send(&a.row_ptr()[rows.start..=rows.end], row_ptr.pointer())? };
            let col = device.upload(&a.col()[first..entries.end], WHAT)?;
            (row_ptr.pointer(), col, device.upload(&a.values()[first..entries.end], WHAT)?)
        }
    };
    let function = device.function(&rebase.plain())?;
    let count = row_ptr.len();
    let grid = count.div_ceil(256).clamp(1, 16 * device.multiprocessors());
    function.on(device, grid, 256).run(count as i64, first as i64, from, &row_ptr)?;
    let pattern = CsrPattern { row_ptr: Arc::new(row_ptr), col: Arc::new(col) };
    let product =
        CsrProduct::new(device, a.columns(), pattern, Arc::new(values), Precision::F64, 1.0, false)?;
    Ok((product, kept))
}

/// Copies columns and values of a run of rows, from entry `first` on, from the memory of another GPU, and the
/// row pointers to `row_ptr`.
fn rows_from(
    device: &Arc<Device>,
    from: &Resident,
    run: &Run,
    first: usize,
    row_ptr: &Buffer<i64>,
) -> Result<(Buffer<u32>, Buffer<f64>)> {
    let Run { rows, entries } = run;
    from.settled()?;
    let count = entries.end - first;
    let (col, values) = (device.allocate(count, WHAT)?, device.allocate(count, WHAT)?);
    // SAFETY: allocated for as many numbers; the caller holds the matrix until the copies are done.
    unsafe {
        let copy = |to: u64, pointer: u64, bytes: usize| {
            let own = Spot { ordinal: device.info().ordinal, pointer: to };
            device.copy_between(own, Spot { ordinal: from.ordinal(), pointer }, bytes)
        };
        copy(row_ptr.pointer(), from.row_ptr.at(rows.start), 8 * row_ptr.len())?;
        copy(col.pointer(), from.col.at(first), 4 * count)?;
        copy(values.pointer(), from.values.at(first), 8 * count)?;
    }
    device.wait()?;
    Ok((col, values))
}
