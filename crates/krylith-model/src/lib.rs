//! Predicts the time of an iteration of Krylith on GPUs that are not available, from a machine file and from
//! each GPU's work and messages.
//!
//! Nothing here needs a GPU. Times are in seconds, sizes in bytes and rates in bytes a second; tables are in
//! microseconds and say so. This page is a tutorial; [the parts](#the-parts) are listed at its end.
//! `krylith model` is the same on the command line.
//!
//! # A machine
//!
//! A [`Machine`] holds the times of kernels on one GPU, and of sums and exchanges on several. Krylith
//! includes some machines by name ([`machines`]). `krylith bench links` writes the file of another machine;
//! it needs no solve on several GPUs.
//!
//! ```
//! use krylith_model::Machine;
//! let machine = Machine::open("h200-nvlink".as_ref())?;
//! assert_eq!(machine.gpus_per_host, 4);
//! assert!(machine.read > 4e12 && machine.read < 4.8e12); // bytes a second, below those of the data sheet
//! assert_eq!(machine.origin(), "measured, but for network, gpus_per_host"); // what to believe of it
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # The work of each GPU
//!
//! [`loads`] computes a [`Load`] for each GPU from a matrix and its partition; a [`Shape`] gives the cost of
//! a row and of a block.
//!
//! ```
//! use krylith::{operator::Terms, partition::Partitioner};
//! use krylith_model::{Shape, loads};
//! use krylith_problems::{SystemKind, generate};
//! // A 7-point Laplacian of 16³ points, cut into four slabs on one host.
//! let SystemKind::Csr(a) = generate("laplace:16x16x16")?.system else { panic!("a scalar matrix") };
//! let terms = Terms::csr(&a)?;
//! let partition = Partitioner::Rows.partition(&terms, None, 4)?;
//! let loads = loads(&terms, &partition, 1)?;
//! assert_eq!((loads[1].rows, loads[1].near), (1024.0, 512.0)); // 4 planes, of which 2 go to a neighbour
//! let shape = Shape::of(&terms, true);
//! assert_eq!(shape.node(), 8.0); // bytes of a number that travels
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! If there is no matrix yet, statistics suffice: known sizes of a mesh, or the boxes of [`scaling`].
//!
//! # A prediction
//!
//! [`Machine::iteration`] takes any method, and an [`Applied`] preconditioner.
//!
//! ```
//! use krylith::operator::Terms;
//! use krylith_model::{Applied, Load, Machine, Shape};
//! # use krylith_problems::{SystemKind, generate};
//! # let SystemKind::Csr(a) = generate("laplace:16x16x16")?.system else { panic!("a scalar matrix") };
//! # let terms = Terms::csr(&a)?;
//! let machine = Machine::open("h200-nvlink".as_ref())?;
//! let jacobi = Applied::of(&"jacobi".parse()?, &terms, 1)?; // of a small matrix that is like the large one
//! let shape = Shape::of(&terms, true);
//! let cg = "cg".parse()?;
//! // n³ points in all, as slabs: a plane to each side.
//! let predict = |n: f64, gpus: usize| {
//!     let plane = if gpus > 1 { 2.0 * n * n } else { 0.0 };
//!     let rows = n.powi(3) / gpus as f64;
//!     let load = Load { rows, blocks: 7.0 * rows, boundary: plane, near: plane, ..Load::default() };
//!     machine.iteration(&vec![load; gpus], &shape, true, &cg, &jacobi, 1)
//! };
//! let faster = |n| Ok::<_, krylith::Error>(predict(n, 1)?.all() / predict(n, 4)?.all());
//! assert!(faster(20.0)? < 1.0); // 8,000 points: four GPUs lose
//! assert!(faster(400.0)? > 3.5); // 64 million
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Reading the result
//!
//! An [`Iteration`] has the seconds of its parts. [`Times`] has those of GMRES without a preconditioner,
//! whose kernels were measured. For this case, [`report::compare`] compares [`Machine::predict`] with
//! `krylith bench okp`.
//!
//! ```
//! use krylith_model::{Machine, scaling};
//! let machine = Machine::open("h200-nvlink".as_ref())?;
//! // The worst placed of eight GPUs on two hosts, each with a box of 100,000 nodes of the Stokes duct.
//! let load = scaling::load(1e5, 8, 4);
//! let t = machine.predict(&[load; 8], &scaling::DENSE, true, 30, 2)?;
//! let [all, product, exchange] = [t.all(), t.product, t.communication].map(|seconds| 1e6 * seconds);
//! println!("{all:.0} µs: product {product:.0}, exchange {exchange:.0}");
//! // Most of the exchange is hidden behind rows that need no ghosts.
//! assert!(t.communication < 0.25 * t.product);
//! let alone = machine.predict(&[scaling::load(1e5, 1, 4)], &scaling::DENSE, true, 30, 1)?;
//! let efficiency = alone.all() / t.all(); // of weak scaling
//! assert!(efficiency > 0.7 && efficiency < 1.0);
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! The head of each module lists what its model leaves out, such as GPUs of different speeds, messages that
//! wait for each other, and waits between levels of incomplete factors.
//!
//! # The parts
//!
//! * [`Machine`]: the machine file, filled by `krylith bench links` or from data sheets; [`machines`]: the
//!   files that are part of Krylith;
//! * [`Load`], [`loads`], [`Machine::predict`]: the model, as pure functions of a machine and loads;
//!   [`Machine::iteration`]: any method with most preconditioners;
//! * [`poisson`]: P-CG and P-CBCG for a 7-point Poisson equation, compared with published measurements;
//! * [`multilevel`]: AMG cycles, compared with their time on this host;
//! * [`spmv`]: products in which every GPU holds the whole vectors;
//! * [`scaling`]: weak and strong scaling over boxes, for cases in which no partition can be built;
//! * [`report`]: tables, pictures, predictions as JSON, and their comparison with measurements.

mod iteration;
mod machine;
pub mod machines;
pub mod multilevel;
pub mod poisson;
mod predict;
pub mod report;
mod samples;
pub mod scaling;
pub mod spmv;
mod words;

pub use iteration::{Applied, Iteration};
pub use machine::{Curve, Host, Kernels, Machine, Network};
pub use predict::{Load, Messages, Shape, Times, loads};
pub use samples::{Samples, means};

#[cfg(test)]
pub(crate) use machine::tests;

/// Returns the mean bytes of an orthogonalisation of GMRES(m) with delayed Gram–Schmidt on vectors of
/// `unknowns` f64: (2j + 6) N numbers at step j.
pub fn orthogonalization_bytes(unknowns: f64, m: usize) -> f64 {
    8.0 * unknowns * (m as f64 + 5.0)
}

/// Returns the bytes that the end of a cycle moves besides a product: V y (m + 3 vectors), x += V y (3),
/// r = b − A x (3).
pub fn cycle_bytes(unknowns: f64, m: usize) -> f64 {
    8.0 * unknowns * (m as f64 + 9.0)
}
