//! Direct factors on the GPU, by cuDSS.
//!
//! The library analyses a pattern on the host and the GPU, and factorises and solves on the GPU, in the
//! stream of all other work. Its matching of rows, and its order where the caller gives none, depend on the
//! values of the analysis. It returns no error for factors that do not hold, so the caller must test them.

mod batch;
mod calls;
mod library;

use super::resident::Resident;
use super::{Buffer, Cuda, Device};
use crate::matrix::Csr;
use crate::precond::direct::{DeviceFactors, DirectFactors, DirectKind, DirectRequest, Unfit};
use crate::{Error, Result};
pub(super) use batch::BATCH;
pub use batch::CudaBatch;
use calls::{
    Calls, LARGEST_PRODUCT, NO_MATCHING, OUT_OF_MEMORY, WHAT, check, config, data, device_idle, meaning,
    phase, too_large,
};
use library::{Code, Handle, Library};
use std::cell::RefCell;
use std::ffi::c_int;
use std::ptr::null_mut;
use std::sync::Arc;

/// Share of the free memory that factors may take. Beyond it they are partly kept on the host.
const ROOM: f64 = 0.85;
/// Returns the name and version of the library of direct factors: `cuDSS 1.0.0`.
///
/// # Errors
/// The library is missing or too old.
pub fn cudss_version() -> Result<String> {
    Library::get().map(Library::name)
}

impl DirectFactors for Cuda {
    fn direct_library(&self) -> Result<Option<String>> {
        cudss_version().map(Some)
    }

    fn direct(
        &self,
        a: &Csr,
        request: DirectRequest,
    ) -> Result<std::result::Result<Box<dyn DeviceFactors<Self>>, Unfit>> {
        let library = Library::get()?;
        let resident = self.scalar(a)?;
        let here = (library, self.device(), a.rows());
        let mut others = if request.spread { &self.helpers[..] } else { &[] };
        let mut made = CudssFactors::analyzed(here, others, &resident, request, !self.helpers.is_empty())?;
        if matches!(made, Made::TooLarge) {
            others = &self.helpers;
            made = CudssFactors::analyzed(here, others, &resident, request, false)?;
        }
        match made {
            Made::Factors(factors) => Ok(Ok(factors)),
            Made::Unfit(unfit) => Ok(Err(unfit)),
            Made::TooLarge => Err(too_large(self.device(), 0)),
        }
    }

    fn for_whole(&self, len: usize, others: &[usize]) -> Result<Self> {
        let mut alone = Self::new(self.device(), len)?;
        alone.helpers = others.to_vec();
        Ok(alone)
    }

    fn device_number(&self) -> usize {
        self.device().info().ordinal
    }
}

/// What an analysis led to.
enum Made {
    Factors(Box<CudssFactors>),
    /// One GPU has no room, and others may take a part.
    TooLarge,
    Unfit(Unfit),
}

/// Direct factors in the memory of one GPU, or of several. The first has the matrix and the vectors.
struct CudssFactors {
    calls: Calls,
    device: Arc<Device>,
    order: usize,
    /// The pattern, with the values that were factorised.
    matrix: Arc<Resident>,
    a: Handle,
    /// The right-hand side and the solution; their pointers are set for each solve.
    one: [Handle; 2],
    columns: RefCell<Option<Columns>>,
    factorized: bool,
    hybrid: bool,
    devices: usize,
    numbers: usize,
}

/// Right-hand sides and solutions that are solved together.
struct Columns {
    handles: [Handle; 2],
    numbers: [Buffer<f64>; 2],
    count: usize,
}

impl CudssFactors {
    /// Analyses a matrix. If `may_grow`, factors that need more room are left to several GPUs.
    fn analyzed(
        (library, device, order): (&'static Library, &Arc<Device>, usize),
        others: &[usize],
        matrix: &Arc<Resident>,
        request: DirectRequest,
        may_grow: bool,
    ) -> Result<Made> {
        let calls = Calls::new(library, device, others)?;
        let (kind, view) = match request.kind {
            DirectKind::Cholesky => (3, 2), // the upper triangle of a positive definite matrix
            DirectKind::Symmetric => (1, 2),
            DirectKind::Lu | DirectKind::MatchedLu => (0, 0),
        };
        let arrays = [matrix.row_ptr.pointer(), matrix.col.pointer(), matrix.values.pointer()];
        let mut made = Self {
            calls,
            device: device.clone(),
            order,
            matrix: matrix.clone(),
            a: null_mut(),
            one: [null_mut(); 2],
            columns: RefCell::default(),
            factorized: false,
            hybrid: false,
            devices: 1 + others.len(),
            numbers: 0,
        };
        made.a = made.calls.csr(device, order, matrix.col.len(), arrays, (kind, view))?;
        for vector in &mut made.one {
            // The address is replaced before each solve.
            *vector = made.calls.dense(device, order, 1, matrix.values.pointer())?;
        }
        match (request.kind, request.dissection) {
            (DirectKind::MatchedLu, _) => made.calls.set(config::MATCHING, LARGEST_PRODUCT),
            (DirectKind::Cholesky, _) | (_, Some(_)) => made.calls.set(config::MATCHING, NO_MATCHING),
            _ => {}
        }
        if let Some(dissection) = request.dissection {
            made.calls.set(config::LEVELS, dissection.levels as c_int);
            let codes = [(data::ORDER, &dissection.order), (data::PARTS, &dissection.parts)]
                .map(|(parameter, numbers)| made.calls.give(parameter, numbers));
            if let Some(&code) = codes.iter().find(|&&code| code != 0) {
                return Ok(Made::Unfit(format!("{} refuses an order: {}", library.name(), meaning(code))));
            }
        }
        Ok(match made.analyze(request, may_grow)? {
            Ok(true) => Made::Factors(Box::new(made)),
            Ok(false) => Made::TooLarge,
            Err(unfit) => Made::Unfit(unfit),
        })
    }

    /// Analyses the pattern. Returns false if the factors need more GPUs, and there are some.
    fn analyze(
        &mut self,
        request: DirectRequest,
        may_grow: bool,
    ) -> Result<std::result::Result<bool, Unfit>> {
        device_idle(&self.device)?;
        let mut code = self.calls.execute(phase::ANALYSIS, self.a, self.one)?;
        if code == OUT_OF_MEMORY {
            self.device.trim_pool();
            code = self.calls.execute(phase::ANALYSIS, self.a, self.one)?;
        }
        if code != 0 {
            return self.unfit("the analysis", code);
        }
        self.numbers = self.calls.get::<i64>(data::NUMBERS).unwrap_or(0) as usize;
        if let Some(most) = request.most.filter(|&most| self.numbers > most) {
            return Err(Error::Memory {
                what: WHAT.into(),
                needed: 8 * self.numbers as u64,
                free: 8 * most as u64,
                place: format!("the share of GPU memory that most={most} allows"),
                remedy: "raise lu:most, or try another preconditioner",
            });
        }
        let free = self.device.free_memory()? as f64 * ROOM * self.devices as f64;
        let needed = 8 * self.numbers as u64;
        if !self.hybrid && needed as f64 > free {
            if may_grow {
                return Ok(Ok(false));
            }
            if self.devices > 1 {
                return Err(too_large(&self.device, needed));
            }
            self.hybrid = true;
            self.calls.set(config::HYBRID_MEMORY, 1);
            // By itself the library counts on the whole memory of the GPU.
            self.calls.set_bytes(config::HYBRID_LIMIT, free as u64);
            return self.analyze(request, false);
        }
        Ok(Ok(true))
    }

    /// Returns why a phase found no factors, or the error if memory is missing.
    fn unfit<T>(&self, phase: &str, code: Code) -> Result<std::result::Result<T, Unfit>> {
        match code {
            OUT_OF_MEMORY => Err(too_large(&self.device, 8 * self.numbers as u64)),
            code => Ok(Err(format!("{phase} of {} ended: {}", self.calls.library.name(), meaning(code)))),
        }
    }

    /// Solves for vectors at these addresses.
    fn solve_at(&self, transposed: bool, handles: [Handle; 2], from: u64, to: u64) -> Result<()> {
        if !self.factorized {
            return Err(Error::invalid("lu: there are no factors; set new values before the next solve"));
        }
        self.device.bind()?;
        self.calls.set(config::SOLVE_MODE, c_int::from(transposed));
        self.calls.set_values(&self.device, handles[0], from)?;
        self.calls.set_values(&self.device, handles[1], to)?;
        let code = self.calls.run(phase::SOLVE, self.a, handles);
        check(&self.device, "cudssExecute (solve)", code)
    }
}

impl DeviceFactors<Cuda> for CudssFactors {
    fn factorize(&mut self, space: &Cuda, a: &Csr) -> Result<std::result::Result<(), Unfit>> {
        self.device.bind()?;
        self.matrix = match space.at_hand_scalar(a)? {
            Some(here) => here,
            None => {
                let values = self.device.upload(a.values(), WHAT)?;
                Arc::new(self.matrix.with_values(values))
            }
        };
        self.calls.set_values(&self.device, self.a, self.matrix.values.pointer())?;
        let phase = if self.factorized { phase::NEW_FACTORS } else { phase::FACTORS };
        self.factorized = false;
        let mut code = self.calls.execute(phase, self.a, self.one)?;
        if code == OUT_OF_MEMORY {
            self.device.trim_pool();
            code = self.calls.execute(phase, self.a, self.one)?;
        }
        if code != 0 {
            return self.unfit("the factorisation", code);
        }
        match self.calls.get::<c_int>(data::INFO) {
            Some(0) | None => {}
            Some(row) => {
                return Ok(Err(format!("{} found no pivot in row {row}", self.calls.library.name())));
            }
        }
        self.factorized = true;
        Ok(Ok(()))
    }

    fn solve(&self, _: &Cuda, transposed: bool, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        self.solve_at(transposed, self.one, x.pointer(), y.pointer())
    }

    fn prepare_columns(&self, _: &Cuda, count: usize) -> Result<()> {
        let mut columns = self.columns.borrow_mut();
        if columns.as_ref().is_some_and(|columns| columns.count == count) {
            return Ok(());
        }
        self.free_columns(columns.take());
        let numbers = [
            self.device.allocate::<f64>(self.order * count, WHAT)?,
            self.device.allocate::<f64>(self.order * count, WHAT)?,
        ];
        let handles = [
            self.calls.dense(&self.device, self.order, count, numbers[0].pointer())?,
            self.calls.dense(&self.device, self.order, count, numbers[1].pointer())?,
        ];
        *columns = Some(Columns { handles, numbers, count });
        Ok(())
    }

    fn solve_columns(&self, space: &Cuda, x: &[&Buffer<f64>], y: &mut [&mut Buffer<f64>]) -> Result<()> {
        let columns = self.columns.borrow();
        let Some(columns) = columns.as_ref().filter(|columns| columns.count == x.len()) else {
            return x.iter().zip(y).try_for_each(|(x, y)| self.solve(space, false, x, y));
        };
        let bytes = self.order * size_of::<f64>();
        let [from, to] = &columns.numbers;
        for (k, x) in x.iter().enumerate() {
            self.device.copy_part(x.pointer(), from.at(k * self.order), bytes)?;
        }
        self.solve_at(false, columns.handles, from.pointer(), to.pointer())?;
        for (k, y) in y.iter().enumerate() {
            self.device.copy_part(to.at(k * self.order), y.pointer(), bytes)?;
        }
        Ok(())
    }

    fn replaced_pivots(&self) -> usize {
        self.calls.get::<c_int>(data::REPLACED).unwrap_or(0) as usize
    }

    fn numbers(&self) -> usize {
        self.numbers
    }

    fn remarks(&self) -> Vec<String> {
        match (self.devices, self.hybrid) {
            (1, false) => Vec::new(),
            (1, true) => vec!["partly in the memory of the host".into()],
            (count, _) => vec![format!("over {count} GPUs")],
        }
    }
}

impl CudssFactors {
    fn free_columns(&self, columns: Option<Columns>) {
        let handles = columns.iter().flat_map(|columns| columns.handles);
        handles.for_each(|handle| self.calls.destroy_matrix(handle));
    }
}

impl Drop for CudssFactors {
    fn drop(&mut self) {
        self.free_columns(self.columns.take());
        [self.a].into_iter().chain(self.one).for_each(|handle| self.calls.destroy_matrix(handle));
    }
}
