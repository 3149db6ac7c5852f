//! The kernels in Tables 5.2 and 5.3 of the paper (named in `ildu0/mod.rs`), each with the number of threads
//! per block that is fastest on this GPU.

use super::kernels::{Arg, File, Kernel, Loaded};
use super::{sampled, seconds};
use crate::cuda::fastest;
use crate::cuda::vendor::Vendor;
use crate::ildu0::levels::{Dag, Triangle, levels};
use crate::ildu0::system::on_all_cores;
use crate::ildu0::{Case, Setup, Solves, count, reference};
use crate::samples::Samples;
use krylith_core::device::cuda::Buffer;
use krylith_core::{Error, Result};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;

/// Threads per block to try; the paper gives no number.
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
    /// Returns true if one kernel does the whole application.
    pub fn fused(self) -> bool {
        matches!(self, DagVcFused | DagEcFused)
    }
    pub fn solves(self) -> Solves {
        match self {
            SpinLoopLds | DagEcNoLds | DagEcLds | DagEcLdsUd => Solves::LowerScaled,
            _ => Solves::All,
        }
    }
    /// Returns the kernels in the order of their launches, each with the names of its arguments. Names of
    /// arrays begin with `l.` for the DAG of the lower triangle, and with `u.` for that of the upper one.
    fn kernels(self) -> (File, &'static [(&'static str, &'static str)]) {
        match self {
            SpinLoopLds => {
                (File::Spin, &[("spin_loop_lds", "first row_ptr columns values inverse x y done launch")])
            }
            DagEcNoLds => (File::Dag, &[("dag_ec_no_lds", BY_LEVELS)]),
            DagEcLds => (File::Dag, &[("dag_ec_lds", BY_LEVELS)]),
            DagEcLdsUd => (
                File::Dag,
                &[("dag_ec_lds_ud", "first l.levels l.edge_ptr l.pairs l.edge_values inverse x y")],
            ),
            DagEcIldU0 => (
                File::Dag,
                &[
                    ("dag_ec_lds_ud", "first l.levels l.edge_ptr l.pairs l.edge_values inverse x middle"),
                    ("dag_ec_U0", "first u.levels u.edge_ptr u.pairs u.edge_values middle y"),
                ],
            ),
            DagVcFused => (
                File::Dag,
                &[(
                    "dag_vc_ILDU0_fused",
                    "first l.levels l.row_ptr l.rows l.entry_ptr l.columns l.values inverse \
                     u.levels u.row_ptr u.rows u.entry_ptr u.columns u.values x y",
                )],
            ),
            DagEcFused => (
                File::Dag,
                &[(
                    "dag_ec_ILDU0_fused",
                    "first l.levels l.edge_ptr l.pairs l.edge_values inverse \
                     u.levels u.edge_ptr u.pairs u.edge_values x y",
                )],
            ),
        }
    }
}

/// Arguments of the kernels that multiply by D⁻¹ level by level.
const BY_LEVELS: &str = "first l.levels l.edge_ptr l.pairs scaled_edges l.row_ptr l.rows inverse x y";

/// Arrays on the device, by the names of the kernels' arguments.
#[derive(Default)]
struct Named {
    addresses: HashMap<String, u64>,
    /// Owns the buffers, of any type.
    held: Vec<Box<dyn std::any::Any>>,
}

impl Named {
    fn put<T: Copy + 'static>(&mut self, vendor: &Vendor, name: &str, array: &[T]) -> Result<()> {
        let buffer = vendor.device.upload(array, name)?;
        self.addresses.insert(name.into(), buffer.pointer());
        self.held.push(Box::new(buffer));
        Ok(())
    }

    /// Uploads a triangle's DAG.
    fn dag(&mut self, vendor: &Vendor, triangle: &str, dag: &Dag) -> Result<()> {
        let name = |array: &str| format!("{triangle}.{array}");
        for (array, numbers) in [
            ("levels", &dag.levels),
            ("row_ptr", &dag.row_ptr),
            ("entry_ptr", &dag.entry_ptr),
            ("edge_ptr", &dag.edge_ptr),
        ] {
            self.put(vendor, &name(array), numbers)?;
        }
        self.put(vendor, &name("rows"), &dag.rows)?;
        self.put(vendor, &name("columns"), &dag.columns)?;
        self.put(vendor, &name("pairs"), &dag.pairs)?;
        self.put(vendor, &name("values"), &dag.values)?;
        self.put(vendor, &name("edge_values"), &dag.edge_values)
    }
}

/// A file and a number of threads, with the compiled module.
type Compiled = ((File, usize), Rc<Loaded>);

/// All arrays that the kernels read, each stored once.
pub(super) struct Arrays {
    block: usize,
    subdomains: usize,
    /// Bytes of the largest subdomain's vector.
    shared: usize,
    bytes: [u64; 7],
    length: usize,
    arrays: Named,
    /// Number of runs so far, of all variants. The spin loop marks rows as done with this number, so its
    /// flags need no clearing between launches.
    launches: Cell<u32>,
    /// The modules compiled so far.
    modules: RefCell<Vec<Compiled>>,
}

impl Arrays {
    /// Returns a file's module for a number of threads; it is compiled once.
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
    /// Returns an error if a subdomain is too large for 16-bit columns, or if memory is not sufficient.
    pub fn new(vendor: &Rc<Vendor>, case: &Case, setups: &mut Vec<Setup>) -> Result<Self> {
        let (s, f) = (&case.decomposed, &case.factors);
        let bb = s.a.block() * s.a.block();
        let ((lower, upper), packed) = seconds(vendor, || {
            Ok((Dag::new(s, Triangle::Lower, &f.values)?, Dag::new(s, Triangle::Upper, &f.values)?))
        })?;
        let name = "the paper's DAGs, packed on the host".into();
        setups.push(Setup { name, samples: Samples(vec![packed]) });

        // (I + L) D, below the diagonal: the number of entries of each row, columns and values.
        let parts = on_all_cores(s.count(), |share| {
            let (mut counts, mut columns, mut values) = (Vec::new(), Vec::new(), Vec::new());
            for p in share {
                for i in s.ptr[p]..s.ptr[p + 1] {
                    for q in s.a.row_ptr()[i]..f.diagonal[i] {
                        let j = s.a.col()[q] as usize;
                        let (l, d) = (&f.values[q * bb..][..bb], &f.pivots[j * bb..][..bb]);
                        columns.push((j - s.ptr[p]) as u16);
                        values.extend_from_slice(&reference::product(l, d, s.a.block()));
                    }
                    counts.push(f.diagonal[i] - s.a.row_ptr()[i]);
                }
            }
            (counts, columns, values)
        });
        let mut scaled = f.values.clone();
        let (mut row_ptr, mut columns, mut values) = (vec![0i32], Vec::new(), Vec::new());
        for (counts, own_columns, own_values) in parts {
            let mut at = 0;
            for count in counts {
                let first = s.a.row_ptr()[row_ptr.len() - 1] * bb;
                scaled[first..][..count * bb].copy_from_slice(&own_values[at..][..count * bb]);
                at += count * bb;
                row_ptr.push(row_ptr[row_ptr.len() - 1] + count as i32);
            }
            columns.extend_from_slice(&own_columns);
            values.extend_from_slice(&own_values);
        }
        let scaled_edges = Dag::new(s, Triangle::Lower, &scaled)?.edge_values;
        drop(scaled);
        let inverse: Vec<f64> =
            f.diagonal.iter().flat_map(|&p| f.values[p * bb..][..bb].iter().copied()).collect();
        let first: Vec<i32> = s.ptr.iter().map(|&p| p as i32).collect();

        let (edges, vectors, diagonal) = (count::edges(s, &lower), count::vectors(s), count::diagonal(s));
        // The spin loop: row pointers, 2-byte columns, values, and one flag per row, counted as one write and
        // one read.
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
        let (arrays, upload) = seconds(vendor, || {
            let mut arrays = Named::default();
            arrays.put(vendor, "first", &first)?;
            arrays.put(vendor, "inverse", &inverse)?;
            arrays.dag(vendor, "l", &lower)?;
            // (I + L) D by edges, in the order of the lower triangle.
            arrays.put(vendor, "scaled_edges", &scaled_edges)?;
            arrays.dag(vendor, "u", &upper)?;
            // Rows of (I + L) D without its diagonal, in the order of the system.
            arrays.put(vendor, "row_ptr", &row_ptr)?;
            arrays.put(vendor, "columns", &columns)?;
            arrays.put(vendor, "values", &values)?;
            arrays.put(vendor, "done", &vec![0u32; s.block_rows()])?;
            Ok(arrays)
        })?;
        let name = "the paper's factors in every layout, upload".into();
        setups.push(Setup { name, samples: Samples(vec![upload]) });
        Ok(Self {
            block: s.a.block(),
            subdomains: s.count(),
            shared: 8 * s.a.block() * s.largest(),
            bytes,
            length: s.len(),
            arrays,
            launches: Cell::new(0),
            modules: RefCell::default(),
        })
    }
}

/// Runs Alg. 4.2 on the device for both triangles and checks it against the host's levels; returns the
/// seconds of both together.
///
/// # Errors
/// Returns an error if levels differ, for failures of NVRTC, and if memory is not sufficient.
pub(super) fn device_levels(vendor: &Rc<Vendor>, case: &Case, setups: &mut Vec<Setup>) -> Result<f64> {
    let (s, device) = (&case.decomposed, &vendor.device);
    let host = |from: &[usize]| from.iter().map(|&p| p as i32).collect::<Vec<i32>>();
    let first = device.upload(&host(&s.ptr), "subdomains")?;
    let row_ptr = device.upload(&host(s.a.row_ptr()), "row pointers")?;
    let columns = device.upload(s.a.col(), "columns")?;
    let level: Buffer<i32> = device.zeros(s.block_rows(), "levels")?;
    let mut total = 0.0;
    for (file, triangle) in [(File::LowerLevels, Triangle::Lower), (File::UpperLevels, Triangle::Upper)] {
        let kernel = file.load(vendor, s.a.block(), 512)?.kernel("assign_levels", s.largest())?;
        let args = [&first, &row_ptr].map(|b| Arg::Pointer(b.pointer()));
        let args = [args[0], args[1], Arg::Pointer(columns.pointer()), Arg::Pointer(level.pointer())];
        let samples = sampled(vendor, || kernel.launch(s.count(), &args))?;
        let mut found = vec![0i32; s.block_rows()];
        device.read(&level, 0, &mut found)?;
        if !found.iter().zip(levels(s, triangle)).all(|(a, b)| *a == b as i32) {
            return Err(Error::invalid(format!(
                "Alg. 4.2 on the device finds different levels from the host ({triangle:?})"
            )));
        }
        total += samples.median();
        let name = format!("levels on the device (Alg. 4.2), {triangle:?}").to_lowercase();
        setups.push(Setup { name, samples });
    }
    Ok(total)
}

/// An argument of a kernel.
enum Taken {
    X,
    Y,
    /// The number with which the spin loop marks rows as done.
    Launch,
    At(u64),
}

/// One of the paper's implementations.
pub(super) struct Paper {
    variant: Variant,
    threads: usize,
    /// Kernels with their arguments.
    kernels: Vec<(Kernel, Vec<Taken>)>,
    arrays: Rc<Arrays>,
    _middle: Buffer<f64>,
}

impl Paper {
    /// Creates the implementation with the fastest number of threads.
    ///
    /// # Errors
    /// Returns an error if NVRTC fails, if a kernel fails with any of the numbers in `THREADS`, or if memory
    /// is not sufficient.
    pub fn best(vendor: &Rc<Vendor>, arrays: &Rc<Arrays>, variant: Variant) -> Result<Self> {
        let (x, y) = (vendor.zeros(arrays.length)?, vendor.zeros(arrays.length)?);
        let new = |threads| Self::new(vendor, arrays, variant, threads);
        Ok(fastest(vendor, THREADS, new, |made| made.run(x.pointer(), y.pointer()))?.1)
    }

    fn new(vendor: &Rc<Vendor>, arrays: &Rc<Arrays>, variant: Variant, threads: usize) -> Result<Self> {
        let (file, kernels) = variant.kernels();
        let module = arrays.module(vendor, file, threads)?;
        let middle = vendor.zeros(if kernels.len() > 1 { arrays.length } else { 0 })?;
        let taken = |name: &str| match name {
            "x" => Taken::X,
            "y" => Taken::Y,
            "launch" => Taken::Launch,
            "middle" => Taken::At(middle.pointer()),
            _ => Taken::At(arrays.arrays.addresses[name]),
        };
        let kernel = |&(name, takes): &(&str, &str)| {
            let shared = if name == "dag_ec_no_lds" { 0 } else { arrays.shared };
            Ok((module.kernel(name, shared)?, takes.split_whitespace().map(taken).collect()))
        };
        let kernels = kernels.iter().map(kernel).collect::<Result<_>>()?;
        Ok(Self { variant, threads, kernels, arrays: arrays.clone(), _middle: middle })
    }

    pub fn notes(&self) -> String {
        format!("{} threads a block", self.threads)
    }
    pub fn bytes(&self) -> u64 {
        self.arrays.bytes[self.variant as usize]
    }

    pub fn run(&self, x: u64, y: u64) -> Result<()> {
        let a = &self.arrays;
        a.launches.set(a.launches.get().wrapping_add(1));
        let arg = |taken: &Taken| match taken {
            Taken::X => Arg::Pointer(x),
            Taken::Y => Arg::Pointer(y),
            Taken::Launch => Arg::Unsigned(a.launches.get()),
            Taken::At(address) => Arg::Pointer(*address),
        };
        self.kernels.iter().try_for_each(|(kernel, takes)| {
            kernel.launch(a.subdomains, &takes.iter().map(arg).collect::<Vec<Arg>>())
        })
    }
}
