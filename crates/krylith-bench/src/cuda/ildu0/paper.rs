//! The paper's kernels of Tables 5.2 and 5.3, with the number of threads a block that runs fastest here.

use super::kernels::{Arg, File, Kernel, Loaded};
use super::{Map, sampled, seconds};
use crate::cuda::fastest;
use crate::cuda::vendor::Vendor;
use crate::ildu0::levels::{Dag, Triangle, levels};
use crate::ildu0::{Case, Setup, Solves, count, reference};
use crate::samples::Samples;
use krylith::device::cuda::Buffer;
use krylith::{Error, Result};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Threads a block that are tried; the paper gives no number.
const THREADS: [usize; 5] = [64, 128, 256, 512, 1024];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variant {
    SpinLoopLds,
    DagEcNoLds,
    DagEcLds,
    DagEcLdsUd,
    DagEcIldU0,
    DagVcFused,
    DagEcFused,
}

use Variant::*;

impl Variant {
    pub const ALL: [Variant; 7] =
        [SpinLoopLds, DagEcNoLds, DagEcLds, DagEcLdsUd, DagEcIldU0, DagVcFused, DagEcFused];

    pub fn name(self) -> &'static str {
        match self {
            SpinLoopLds => "spin_loop_lds",
            DagEcNoLds => "dag_ec_no_lds",
            DagEcLds => "dag_ec_lds",
            DagEcLdsUd => "dag_ec_lds_ud",
            DagEcIldU0 => "dag_ec_ILD_U0",
            DagVcFused => "dag_vc_ILDU0_fused",
            DagEcFused => "dag_ec_ILDU0_fused",
        }
    }
    /// The whole application in one kernel.
    pub fn fused(self) -> bool {
        matches!(self, DagVcFused | DagEcFused)
    }
    pub fn solves(self) -> Solves {
        match self {
            SpinLoopLds | DagEcNoLds | DagEcLds | DagEcLdsUd => Solves::LowerScaled,
            _ => Solves::All,
        }
    }
    /// Its kernels, in the order of their launches, and whether each has a vector in shared memory.
    fn kernels(self) -> (File, &'static [(&'static str, bool)]) {
        match self {
            SpinLoopLds => (File::Spin, &[("spin_loop_lds", true)]),
            DagEcNoLds => (File::Dag, &[("dag_ec_no_lds", false)]),
            DagEcLds => (File::Dag, &[("dag_ec_lds", true)]),
            DagEcLdsUd => (File::Dag, &[("dag_ec_lds_ud", true)]),
            DagEcIldU0 => (File::Dag, &[("dag_ec_lds_ud", true), ("dag_ec_U0", true)]),
            DagVcFused => (File::Dag, &[("dag_vc_ILDU0_fused", true)]),
            DagEcFused => (File::Dag, &[("dag_ec_ILDU0_fused", true)]),
        }
    }
}

/// A triangle's DAG on the device.
struct DeviceDag {
    levels: Buffer<i32>,
    row_ptr: Buffer<i32>,
    rows: Buffer<u16>,
    entry_ptr: Buffer<i32>,
    columns: Buffer<u16>,
    values: Buffer<f64>,
    edge_ptr: Buffer<i32>,
    pairs: Buffer<u32>,
    edge_values: Buffer<f64>,
}

impl DeviceDag {
    fn new(vendor: &Vendor, dag: &Dag) -> Result<Self> {
        let device = &vendor.device;
        Ok(Self {
            levels: device.upload(&dag.levels, "levels")?,
            row_ptr: device.upload(&dag.row_ptr, "rows of levels")?,
            rows: device.upload(&dag.rows, "rows")?,
            entry_ptr: device.upload(&dag.entry_ptr, "entries of rows")?,
            columns: device.upload(&dag.columns, "columns")?,
            values: device.upload(&dag.values, "values")?,
            edge_ptr: device.upload(&dag.edge_ptr, "entries of levels")?,
            pairs: device.upload(&dag.pairs, "rows and columns")?,
            edge_values: device.upload(&dag.edge_values, "values")?,
        })
    }
}

/// A file and a number of threads, and what was made of them.
type Compiled = ((File, usize), Rc<Loaded>);

/// Everything that the kernels read, each array once.
pub(super) struct Arrays {
    block: usize,
    subdomains: usize,
    /// Bytes of the largest subdomain's vector.
    shared: usize,
    bytes: [u64; 7],
    length: usize,
    first: Buffer<i32>,
    inverse: Buffer<f64>,
    lower: DeviceDag,
    /// (I + L) D by edges, in the order of `lower`.
    scaled_edges: Buffer<f64>,
    upper: DeviceDag,
    /// Rows of (I + L) D without its diagonal, in the order of the system.
    row_ptr: Buffer<i32>,
    columns: Buffer<u16>,
    values: Buffer<f64>,
    done: Buffer<u32>,
    /// Launches of the spin loop, by which it knows its flags.
    launches: Cell<u32>,
    /// Compiled so far.
    modules: RefCell<Vec<Compiled>>,
}

impl Arrays {
    /// A file for a number of threads, compiled once.
    fn module(&self, vendor: &Rc<Vendor>, file: File, threads: usize) -> Result<Rc<Loaded>> {
        let mut modules = self.modules.borrow_mut();
        if let Some((_, module)) = modules.iter().find(|m| m.0 == (file, threads)) {
            return Ok(module.clone());
        }
        let module = Rc::new(file.load(vendor, self.block, threads)?);
        modules.push(((file, threads), module.clone()));
        Ok(module)
    }

    /// Builds the DAGs on the host and uploads them; both times go to `setups`.
    ///
    /// # Errors
    /// A subdomain too large for 16-bit columns; no room.
    pub fn new(vendor: &Rc<Vendor>, case: &Case, setups: &mut Vec<Setup>) -> Result<Self> {
        let (s, f, device) = (&case.decomposed, &case.factors, &vendor.device);
        let bb = s.block * s.block;
        let ((lower, upper), packed) = seconds(vendor, || {
            Ok((Dag::new(s, Triangle::Lower, &f.values)?, Dag::new(s, Triangle::Upper, &f.values)?))
        })?;
        let name = "the paper's DAGs, packed on the host".into();
        setups.push(Setup { name, samples: Samples(vec![packed]) });

        // (I + L) D, below the diagonal.
        let mut scaled = f.values.clone();
        let (mut row_ptr, mut columns, mut values) = (vec![0i32], Vec::new(), Vec::new());
        for p in 0..s.count() {
            for i in s.ptr[p]..s.ptr[p + 1] {
                for q in s.row_ptr[i]..f.diagonal[i] {
                    let j = s.columns[q] as usize;
                    let block =
                        reference::product(&f.values[q * bb..][..bb], &f.pivots[j * bb..][..bb], s.block);
                    scaled[q * bb..][..bb].copy_from_slice(&block);
                    columns.push((j - s.ptr[p]) as u16);
                    values.extend_from_slice(&block);
                }
                row_ptr.push(columns.len() as i32);
            }
        }
        let scaled_edges = Dag::new(s, Triangle::Lower, &scaled)?.edge_values;
        drop(scaled);
        let inverse: Vec<f64> =
            f.diagonal.iter().flat_map(|&p| f.values[p * bb..][..bb].iter().copied()).collect();
        let first: Vec<i32> = s.ptr.iter().map(|&p| p as i32).collect();

        let (edges, vectors, diagonal) = (count::edges(s, &lower), count::vectors(s), count::diagonal(s));
        // The spin loop: pointers, 2-byte columns, numbers; a flag a row that is written and read.
        let spin = 8 * values.len() as u64 + 2 * columns.len() as u64 + 12 * (s.block_rows() as u64 + 1);
        let level_by_level =
            edges + count::rows(&lower) + 4 * lower.row_ptr.len() as u64 + diagonal + vectors;
        let both = edges + count::edges(s, &upper) + diagonal + vectors;
        let bytes = [
            spin + diagonal + vectors,
            level_by_level,
            level_by_level,
            edges + diagonal + vectors,
            both + vectors,
            count::vertices(s, &lower) + count::vertices(s, &upper) + diagonal + vectors,
            both,
        ];
        let (made, upload) = seconds(vendor, || {
            Ok(Self {
                block: s.block,
                subdomains: s.count(),
                shared: 8 * s.block * s.largest(),
                bytes,
                length: s.len(),
                first: device.upload(&first, "subdomains")?,
                inverse: device.upload(&inverse, "the inverse diagonal")?,
                lower: DeviceDag::new(vendor, &lower)?,
                scaled_edges: device.upload(&scaled_edges, "values")?,
                upper: DeviceDag::new(vendor, &upper)?,
                row_ptr: device.upload(&row_ptr, "row pointers")?,
                columns: device.upload(&columns, "columns")?,
                values: device.upload(&values, "values")?,
                done: device.zeros(s.block_rows(), "flags")?,
                launches: Cell::new(0),
                modules: RefCell::default(),
            })
        })?;
        let name = "the paper's factors in every layout, upload".into();
        setups.push(Setup { name, samples: Samples(vec![upload]) });
        Ok(made)
    }
}

/// Alg. 4.2 on the device for both triangles, checked against the host's levels: seconds of both together.
///
/// # Errors
/// Levels that differ, NVRTC, no room.
pub(super) fn device_levels(vendor: &Rc<Vendor>, case: &Case, setups: &mut Vec<Setup>) -> Result<f64> {
    let (s, device) = (&case.decomposed, &vendor.device);
    let host = |from: &[usize]| from.iter().map(|&p| p as i32).collect::<Vec<i32>>();
    let first = device.upload(&host(&s.ptr), "subdomains")?;
    let row_ptr = device.upload(&host(&s.row_ptr), "row pointers")?;
    let columns = device.upload(&s.columns, "columns")?;
    let level: Buffer<i32> = device.zeros(s.block_rows(), "levels")?;
    let mut total = 0.0;
    for (file, triangle) in [(File::LowerLevels, Triangle::Lower), (File::UpperLevels, Triangle::Upper)] {
        let kernel = file.load(vendor, s.block, 512)?.kernel("assign_levels", s.largest())?;
        let args = [&first, &row_ptr].map(|b| Arg::Pointer(b.pointer()));
        let args = [args[0], args[1], Arg::Pointer(columns.pointer()), Arg::Pointer(level.pointer())];
        let samples = sampled(vendor, || kernel.launch(s.count(), &args))?;
        let mut found = vec![0i32; s.block_rows()];
        device.read(&level, 0, &mut found)?;
        if !found.iter().zip(levels(s, triangle)).all(|(a, b)| *a == b as i32) {
            return Err(Error::invalid(format!("Alg. 4.2 on the device finds other levels ({triangle:?})")));
        }
        total += samples.median();
        let name = format!("levels on the device (Alg. 4.2), {triangle:?}").to_lowercase();
        setups.push(Setup { name, samples });
    }
    Ok(total)
}

/// One of the paper's implementations.
pub(super) struct Paper {
    variant: Variant,
    threads: usize,
    kernels: Vec<Kernel>,
    arrays: Rc<Arrays>,
    middle: Option<Buffer<f64>>,
}

impl Paper {
    /// With the number of threads that runs fastest.
    ///
    /// # Errors
    /// NVRTC; no number of threads that runs.
    pub fn best(vendor: &Rc<Vendor>, arrays: &Rc<Arrays>, variant: Variant) -> Result<Self> {
        let (x, y) = (vendor.zeros(arrays.length)?, vendor.zeros(arrays.length)?);
        let new = |threads| Self::new(vendor, arrays, variant, threads);
        Ok(fastest(vendor, THREADS, new, |made| made.run(x.pointer(), y.pointer()))?.1)
    }

    fn new(vendor: &Rc<Vendor>, arrays: &Rc<Arrays>, variant: Variant, threads: usize) -> Result<Self> {
        let (file, names) = variant.kernels();
        let module = arrays.module(vendor, file, threads)?;
        let kernel =
            |&(name, shared): &(&str, bool)| module.kernel(name, if shared { arrays.shared } else { 0 });
        let middle = if names.len() > 1 { Some(vendor.zeros(arrays.length)?) } else { None };
        Ok(Self {
            variant,
            threads,
            kernels: names.iter().map(kernel).collect::<Result<_>>()?,
            arrays: arrays.clone(),
            middle,
        })
    }
}

impl Paper {
    pub fn notes(&self) -> String {
        format!("{} threads a block", self.threads)
    }
    pub fn bytes(&self) -> u64 {
        self.arrays.bytes[self.variant as usize]
    }
}

impl Map for Paper {
    fn run(&self, x: u64, y: u64) -> Result<()> {
        let (a, l, u) = (&self.arrays, &self.arrays.lower, &self.arrays.upper);
        let first = a.first.pointer();
        let edges = |d: &DeviceDag| [d.levels.pointer(), d.edge_ptr.pointer(), d.pairs.pointer()];
        let [l_levels, l_edges, l_pairs] = edges(l);
        let [u_levels, u_edges, u_pairs] = edges(u);
        let (l_values, u_values) = (l.edge_values.pointer(), u.edge_values.pointer());
        let inverse = a.inverse.pointer();
        let launch = |kernel: usize, pointers: &[u64]| {
            let args: Vec<Arg> = pointers.iter().map(|&p| Arg::Pointer(p)).collect();
            self.kernels[kernel].launch(a.subdomains, &args)
        };
        match self.variant {
            SpinLoopLds => {
                a.launches.set(a.launches.get().wrapping_add(1));
                let pointers = [first, a.row_ptr.pointer(), a.columns.pointer(), a.values.pointer()];
                let more = [inverse, x, y, a.done.pointer()];
                let mut args: Vec<Arg> = pointers.iter().chain(&more).map(|&p| Arg::Pointer(p)).collect();
                args.push(Arg::Unsigned(a.launches.get()));
                self.kernels[0].launch(a.subdomains, &args)
            }
            DagEcNoLds | DagEcLds => {
                let (values, rows) = (a.scaled_edges.pointer(), [l.row_ptr.pointer(), l.rows.pointer()]);
                launch(0, &[first, l_levels, l_edges, l_pairs, values, rows[0], rows[1], inverse, x, y])
            }
            DagEcLdsUd => launch(0, &[first, l_levels, l_edges, l_pairs, l_values, inverse, x, y]),
            DagEcIldU0 => {
                let middle = self.middle.as_ref().map_or(0, Buffer::pointer);
                launch(0, &[first, l_levels, l_edges, l_pairs, l_values, inverse, x, middle])?;
                launch(1, &[first, u_levels, u_edges, u_pairs, u_values, middle, y])
            }
            DagEcFused => {
                let lower = [first, l_levels, l_edges, l_pairs, l_values, inverse];
                let upper = [u_levels, u_edges, u_pairs, u_values, x, y];
                launch(0, &[lower, upper].concat())
            }
            DagVcFused => {
                let rows = |d: &DeviceDag| {
                    let pointers = [d.levels.pointer(), d.row_ptr.pointer(), d.rows.pointer()];
                    [pointers, [d.entry_ptr.pointer(), d.columns.pointer(), d.values.pointer()]].concat()
                };
                launch(0, &[vec![first], rows(l), vec![inverse], rows(u), vec![x, y]].concat())
            }
        }
    }
}
