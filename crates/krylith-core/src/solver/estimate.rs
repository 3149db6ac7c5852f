//! The rule of `device=auto`: estimates from the size of a system whether the host or a GPU solves it sooner.
//!
//! Both times are those of a first solve: the start of the device, the set-up, and an assumed number of
//! iterations of BiCGSTAB with ILDU(0). Bandwidths are those of typical machines, so estimates are usually
//! right within a factor of about two. Times that this process measured for systems of the same size replace
//! estimates (`experience.rs`).

use crate::operator::Terms;
use crate::text::seconds;

/// Assumed number of iterations.
const ITERATIONS: f64 = 200.0;
/// Number of vectors that an iteration reads and writes. It also reads the matrix and the factors twice.
const VECTORS: f64 = 20.0;

/// Seconds to open a GPU in this process, measured on an H200: starting the driver and creating a context.
pub(super) const COLD: f64 = 0.34;
/// Seconds of a set-up on a GPU that do not depend on the size, for loading kernels and recording graphs.
const GPU_SETUP: f64 = 0.01;
/// Seconds per iteration for launches in a graph and for reading the convergence state.
const GPU_ITERATION: f64 = 40e-6;
/// Read bandwidth of a data-centre GPU, and upload bandwidth from pageable memory, in bytes per second.
const GPU_RATE: f64 = 1.5e12;
const UPLOAD_RATE: f64 = 30e9;

/// Memory read bandwidth of one core in bytes per second. The next constant is the maximum of all cores
/// together.
const CORE_RATE: f64 = 8e9;
const HOST_RATE: f64 = 200e9;
/// Cache read bandwidth of one core in bytes per second. The next constant is the size of matrix and factors
/// that fit in the cache, in bytes.
const CACHED_RATE: f64 = 20e9;
const CACHED: f64 = 16e6;
/// Bytes of matrix and factors that one core sets up per second: pattern, plan and factors.
const SETUP_RATE: f64 = 0.4e9;
/// Seconds per iteration for barriers on a CPU with several threads.
const CPU_ITERATION: f64 = 20e-6;

/// Sizes in bytes of the matrices of a system, of factors with as many blocks, and of a vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Size {
    pub matrix: f64,
    pub factors: f64,
    pub vector: f64,
}

impl Size {
    /// Computes the sizes for a sum of terms, without reading entries.
    pub fn of(terms: &Terms) -> Self {
        let square = (terms.block() * terms.stages()).pow(2) as f64;
        let bytes = |blocks: usize, numbers: f64| blocks as f64 * (8.0 * numbers + 4.0);
        let block = terms.block().pow(2) as f64;
        let matrix = terms.terms.iter().map(|(_, a)| bytes(a.blocks(), block)).sum::<f64>();
        // Two terms usually share a pattern, so count its blocks once.
        let blocks = terms.terms.iter().map(|(_, a)| a.blocks()).max().unwrap_or(0);
        Self { matrix, factors: bytes(blocks, square), vector: 8.0 * terms.rows() as f64 }
    }

    /// Computes the sizes for a matrix of `rows` block rows that stores `numbers` numbers in blocks.
    pub fn of_matrix(rows: usize, block: usize, numbers: usize) -> Self {
        let matrix = numbers as f64 * (8.0 + 4.0 / (block * block) as f64);
        Self { matrix, factors: matrix, vector: 8.0 * (rows * block) as f64 }
    }
}

/// Estimated seconds of a first solve on the host and on a GPU.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Estimate {
    pub cpu: f64,
    /// Seconds on a GPU that is already open.
    pub gpu: f64,
    /// Seconds until a GPU is open.
    pub start: f64,
    /// True if `cpu`, or `gpu`, was measured in this process.
    pub measured: [bool; 2],
}

impl Estimate {
    /// Estimates the times for this number of cores. `opened` is true if this process has already opened the
    /// GPU.
    pub fn of(size: Size, cores: usize, opened: bool) -> Self {
        let traffic = ITERATIONS * (2.0 * (size.matrix + size.factors) + VECTORS * size.vector);
        let cores = cores.max(1) as f64;
        let setup = (size.matrix + size.factors) / (SETUP_RATE * cores.min(16.0));
        let rate = if size.matrix + size.factors <= CACHED { CACHED_RATE } else { CORE_RATE };
        let cpu = setup + traffic / (rate * cores).min(HOST_RATE) + ITERATIONS * CPU_ITERATION;
        let start = if opened { 0.0 } else { COLD };
        let gpu = GPU_SETUP + size.matrix / UPLOAD_RATE + traffic / GPU_RATE + ITERATIONS * GPU_ITERATION;
        Self { cpu, gpu, start, measured: [false; 2] }
    }

    /// Returns true if the host solves the system sooner, including the start of the GPU.
    pub fn prefers_cpu(&self) -> bool {
        self.cpu <= self.gpu + self.start
    }

    /// Returns the seconds by which the host is slower than an open GPU.
    pub fn lost(&self) -> f64 {
        (self.cpu - self.gpu).max(0.0)
    }

    /// Describes both times.
    pub fn text(&self) -> String {
        let (cpu, gpu) = (seconds(self.cpu), seconds(self.gpu + self.start));
        match self.measured {
            [false, false] => {
                format!("{ITERATIONS} iterations are estimated to take {cpu} on the CPU and {gpu} on a GPU")
            }
            [true, false] => {
                format!(
                    "a system of this size took {cpu} on the CPU, and is estimated to take {gpu} on a GPU"
                )
            }
            [false, true] => {
                format!(
                    "a system of this size took {gpu} on a GPU, and is estimated to take {cpu} on the CPU"
                )
            }
            [true, true] => format!("a system of this size took {cpu} on the CPU and {gpu} on a GPU"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size of a system with this many unknowns and stored numbers, in blocks.
    fn size(unknowns: f64, numbers: f64, block: f64) -> Size {
        let matrix = numbers * (8.0 + 4.0 / (block * block));
        Size { matrix, factors: matrix, vector: 8.0 * unknowns }
    }

    /// Unknowns and entries of the ten matrices of the test collection, from the largest down.
    const SMALL: [(f64, f64); 10] = [
        (4884.0, 290_378.0),
        (5625.0, 77_475.0),
        (2475.0, 72_933.0),
        (1784.0, 34_656.0),
        (3081.0, 20_971.0),
        (2205.0, 14_133.0),
        (600.0, 13_760.0),
        (459.0, 11_277.0),
        (236.0, 5856.0),
        (1000.0, 3750.0),
    ];

    #[test]
    fn small_systems_do_not_wait_for_a_gpu_and_large_ones_do() {
        for (unknowns, numbers) in SMALL {
            for cores in [1, 2, 16, 128] {
                let found = Estimate::of(size(unknowns, numbers, 1.0), cores, false);
                assert!(found.prefers_cpu(), "{unknowns} unknowns, {cores} cores: {}", found.text());
            }
        }
        // These are a grid of 128³ points, one of 64³ points with blocks of four, and one of 256³ points.
        for (unknowns, numbers, block) in [(2.1e6, 14.6e6, 1.0), (1.05e6, 29e6, 4.0), (16.8e6, 117e6, 1.0)] {
            for cores in [1, 2, 16, 128] {
                for opened in [false, true] {
                    let found = Estimate::of(size(unknowns, numbers, block), cores, opened);
                    assert!(!found.prefers_cpu(), "{unknowns} unknowns, {cores} cores: {}", found.text());
                }
            }
        }
    }

    #[test]
    fn an_open_gpu_is_preferred_sooner_and_more_cores_later() {
        let one = size(60_000.0, 1.2e6, 1.0);
        assert!(Estimate::of(one, 2, false).prefers_cpu() || !Estimate::of(one, 2, true).prefers_cpu());
        let (few, many) = (Estimate::of(one, 1, true), Estimate::of(one, 64, true));
        assert!(many.cpu < few.cpu && many.gpu == few.gpu);
        assert_eq!(Estimate::of(one, 4, false), Estimate { start: COLD, ..Estimate::of(one, 4, true) });
        let found = Estimate { cpu: 0.05, gpu: 0.02, start: COLD, measured: [false; 2] };
        assert_eq!(
            found.text(),
            "200 iterations are estimated to take 50.0 ms on the CPU and 360.0 ms on a GPU"
        );
        let known = Estimate { measured: [true, false], ..found };
        assert_eq!(
            known.text(),
            "a system of this size took 50.0 ms on the CPU, and is estimated to take 360.0 ms on a GPU"
        );
    }

    #[test]
    fn sizes_are_those_of_the_terms() {
        use crate::matrix::Bsr;
        let a = Bsr::new(2, 2, 2, vec![0, 1, 3], vec![0, 0, 1], vec![1.0; 12]).unwrap();
        let found = Size::of(&Terms::bsr(&a));
        assert_eq!(found, Size { matrix: 3.0 * 36.0, factors: 3.0 * 36.0, vector: 32.0 });
    }
}
