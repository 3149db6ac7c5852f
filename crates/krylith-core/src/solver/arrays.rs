//! Problems from arrays on the host, for a solver that will run on a GPU: the arrays are uploaded as they
//! are, and the matrix is checked and divided into blocks there. The host copies nothing.

use super::device;
use super::estimate::Size;
use crate::io::parts::suited_block;
use crate::matrix::{Bsr, Csr, ZerosChoice};
use crate::memory::{Array, Number, Numbers};
use crate::options::{DeviceSpec, Options};
use crate::{Problem, Result};
use std::fmt::Display;

/// Matrices with fewer stored numbers are made on the host: it takes less time than to start an upload.
const FEW: usize = 200_000;
/// Number of values that are looked at for stored zeros, and the share of zeros above which the matrix is
/// made on the host, which may drop them.
const SAMPLE: usize = 4096;
const ZEROS: f64 = 0.05;
/// Number of rows of a sample for the block size: a multiple of every block size.
const ROWS: usize = 840;
/// Number of such samples in a matrix, and the number of entries above which a sample is left out.
const PLACES: usize = 16;
const MOST: usize = 1 << 17;

impl Problem<'static> {
    /// Creates a problem from the arrays of a matrix in CSR format, as [`Csr::from_arrays`] and
    /// [`csr_in_blocks`](Problem::csr_in_blocks) do, for a solver with these options. If it will run on one
    /// GPU, large arrays on the host are uploaded at once.
    ///
    /// # Errors
    /// As [`Csr::from_arrays`] and [`csr_in_blocks`](Problem::csr_in_blocks).
    ///
    /// ```
    /// use krylith::{Options, Problem, Solver};
    /// let (row_ptr, col, values) = ([0, 2, 3], [0, 1, 1], [4.0, 1.0, 2.0]);
    /// let options = Options::default();
    /// let problem = Problem::from_csr_arrays([2, 2], &row_ptr, &col, &values, None, &options)?;
    /// let mut x = [0.0; 2];
    /// assert!(Solver::new(&problem, &options)?.solve(&[5.0, 2.0], &mut x)?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn from_csr_arrays<'a, I, J>(
        [rows, columns]: [usize; 2],
        row_ptr: impl Into<Array<'a, I>>,
        col: impl Into<Array<'a, J>>,
        values: impl Into<Numbers<'a>>,
        block: Option<usize>,
        options: &Options,
    ) -> Result<Self>
    where
        I: Number + TryInto<usize> + Display,
        J: Number + TryInto<u32> + Display,
    {
        let (row_ptr, col, values) = (row_ptr.into(), col.into(), values.into());
        // Rows that will be divided into blocks are looked at for zeros when the blocks are there.
        let counted = block.is_none_or(|block| block == 1).then_some(1);
        if let Some(gpu) = gpu_for(options, [rows, 1], counted, values)
            && let Some(block) = block.or_else(|| scalar(row_ptr, col))
            && let Some(made) = on_gpu(gpu, (row_ptr, col, values), |row_ptr, col, values| {
                let a = Csr::from_arrays(rows, columns, row_ptr, col, values)?;
                Self::csr_in_blocks(&a, Some(block))
            })
        {
            return made;
        }
        Self::csr_in_blocks(&Csr::from_arrays(rows, columns, row_ptr, col, values)?, block)
    }

    /// Creates a problem from the arrays of a matrix in square blocks, as [`Bsr::from_arrays`] does, for a
    /// solver with these options. If it will run on one GPU, large arrays on the host are uploaded at once.
    ///
    /// # Errors
    /// As [`Bsr::from_arrays`].
    pub fn from_block_arrays<'a, I, J>(
        block: usize,
        [block_rows, block_columns]: [usize; 2],
        row_ptr: impl Into<Array<'a, I>>,
        col: impl Into<Array<'a, J>>,
        values: impl Into<Numbers<'a>>,
        options: &Options,
    ) -> Result<Self>
    where
        I: Number + TryInto<usize> + Display,
        J: Number + TryInto<u32> + Display,
    {
        let (row_ptr, col, values) = (row_ptr.into(), col.into(), values.into());
        let make = |row_ptr: Array<I>, col: Array<J>, values: Numbers| {
            Bsr::from_arrays(block, block_rows, block_columns, row_ptr, col, values)
        };
        let there = gpu_for(options, [block_rows, block], Some(block * block), values)
            .and_then(|gpu| on_gpu(gpu, (row_ptr, col, values), make));
        let made = there.unwrap_or_else(|| make(row_ptr, col, values))?;
        Ok(Problem::bsr(&made)?.into_owned())
    }
}

/// Returns the GPU on which a solver with these options will run, if it is a single one and the values are on
/// the host, are many, and have few zeros that the host could drop. Zeros are counted in groups of `zeros`
/// values.
fn gpu_for(
    options: &Options,
    [rows, block]: [usize; 2],
    zeros: Option<usize>,
    values: Numbers,
) -> Option<usize> {
    let values = values.as_host().filter(|values| values.len() >= FEW)?;
    let zeros = match options.zeros.unwrap_or_default() {
        ZerosChoice::Keep => 0.0,
        ZerosChoice::Drop => 1.0,
        ZerosChoice::Auto => zeros.map_or(0.0, |group| share_of_zeros(values, group)),
    };
    if zeros > ZEROS {
        return None;
    }
    match options.device.clone().unwrap_or_default() {
        DeviceSpec::Cpu => None,
        DeviceSpec::Cuda(gpus) => match gpus[..] {
            [] => Some(0),
            [gpu] => Some(gpu),
            _ => None,
        },
        DeviceSpec::Auto => device::gpu_of_auto(Size::of_matrix(rows, block, values.len()), options),
    }
}

/// Returns the share of all-zero blocks in a sample of blocks of `square` numbers.
fn share_of_zeros(values: &[f64], square: usize) -> f64 {
    let blocks = values.len() / square.max(1);
    let step = (blocks / SAMPLE).max(1);
    let looked: Vec<bool> =
        (0..blocks).step_by(step).map(|p| values[p * square..][..square].iter().all(|v| *v == 0.0)).collect();
    looked.iter().filter(|zero| **zero).count() as f64 / looked.len().max(1) as f64
}

/// Returns a block size of 1 if no larger one suits any sample of rows; `None` if the host must look at the
/// whole matrix.
fn scalar<I, J>(row_ptr: Array<I>, col: Array<J>) -> Option<usize>
where
    I: Number + TryInto<usize>,
    J: Number + TryInto<u32>,
{
    let (row_ptr, col) = (row_ptr.as_host()?, col.as_host()?);
    let rows = row_ptr.len().checked_sub(1)?;
    let samples = rows / ROWS;
    let step = samples.div_ceil(PLACES).max(1);
    let entries = |sample: usize| -> Option<usize> {
        let [first, last] = [sample * ROWS, (sample + 1) * ROWS].map(|i| row_ptr[i].try_into().ok());
        last?.checked_sub(first?)
    };
    let suits = |sample: usize| -> Option<usize> {
        let pointers = &row_ptr[sample * ROWS..(sample + 1) * ROWS + 1];
        let pointers: Option<Vec<usize>> = pointers.iter().map(|&p| p.try_into().ok()).collect();
        let pointers = pointers?;
        let (first, last) = (pointers[0], pointers[ROWS]);
        let part: Option<Vec<u32>> = col.get(first..last)?.iter().map(|&j| j.try_into().ok()).collect();
        let part = part?;
        let pointers = pointers.iter().map(|p| p.checked_sub(first)).collect::<Option<Vec<usize>>>()?;
        // Columns count from the first that the sample has, rounded down to a multiple of every block size.
        let first = part.iter().min().map_or(0, |&j| j / ROWS as u32 * ROWS as u32);
        let width = part.iter().max().map_or(0, |&j| (j - first + 1) as usize).next_multiple_of(ROWS);
        let part: Vec<u32> = part.into_iter().map(|j| j - first).collect();
        let ones = vec![1.0; part.len()];
        Some(suited_block(&Csr::new(ROWS, width, pointers, part, ones).ok()?).block)
    };
    let places = (0..samples).step_by(step).filter(|&sample| entries(sample).is_none_or(|n| n <= MOST));
    let mut looked = places.map(suits).peekable();
    (looked.peek().is_some() && looked.all(|block| block == Some(1))).then_some(1)
}

/// Calls `make` with copies of arrays of the host in the memory of a GPU. Returns `None` if the GPU cannot be
/// used or has too little memory: then the matrix is made on the host, and the solver names the fault.
#[cfg(feature = "cuda")]
fn on_gpu<I: Number, J: Number, R>(
    gpu: usize,
    (row_ptr, col, values): (Array<I>, Array<J>, Numbers),
    make: impl FnOnce(Array<I>, Array<J>, Numbers) -> Result<R>,
) -> Option<Result<R>> {
    let (row_ptr, col, values) = (row_ptr.as_host()?, col.as_host()?, values.as_host()?);
    let (device, what) = (crate::device::cuda::Device::open(gpu).ok()?, "a matrix");
    let row_ptr = device.upload(row_ptr, what).ok()?;
    let col = device.upload(col, what).ok()?;
    let values = device.upload(values, what).ok()?;
    match make(Array::from(&row_ptr), Array::from(&col), Array::from(&values)) {
        Err(crate::Error::Memory { .. }) => None,
        made => Some(made),
    }
}

#[cfg(not(feature = "cuda"))]
fn on_gpu<I: Number, J: Number, R>(
    _: usize,
    _: (Array<I>, Array<J>, Numbers),
    _: impl FnOnce(Array<I>, Array<J>, Numbers) -> Result<R>,
) -> Option<Result<R>> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_tell_scalar_rows_from_blocks() {
        let n = 3000u32;
        let line = |b: u32| {
            let near = move |i: u32| (i / b).saturating_sub(1) * b..((i / b + 2) * b).min(n);
            let entries: Vec<_> = (0..n).flat_map(|i| near(i).map(move |j| (i, j, 1.0))).collect();
            Csr::from_triplets(n as usize, n as usize, &entries).unwrap()
        };
        let told = |a: &Csr| {
            let (row_ptr, col): (Vec<i64>, Vec<i32>) = (
                a.row_ptr().iter().map(|&p| p as i64).collect(),
                a.col().iter().map(|&j| j as i32).collect(),
            );
            scalar(Array::from(&row_ptr), Array::from(&col))
        };
        assert_eq!(told(&line(1)), Some(1));
        assert_eq!(told(&line(3)), None);
    }

    #[test]
    fn zeros_are_counted_in_blocks() {
        assert_eq!(share_of_zeros(&[1.0, 0.0, 0.0, 0.0], 1), 0.75);
        assert_eq!(share_of_zeros(&[1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0], 4), 0.5);
    }

    #[test]
    fn small_matrices_and_several_gpus_are_left_to_the_host() {
        let many = vec![1.0; FEW];
        let gpu = |text: &str, values: &[f64]| {
            gpu_for(&text.parse().unwrap(), [values.len(), 1], Some(1), Numbers::from(values))
        };
        assert_eq!(gpu("device=cuda", &many), Some(0));
        assert_eq!(gpu("device=cuda:1", &many), Some(1));
        assert_eq!(gpu("device=cuda:0,1", &many), None);
        assert_eq!(gpu("device=cpu", &many), None);
        assert_eq!(gpu("device=cuda", &many[1..]), None);
        assert_eq!(gpu("device=cuda zeros=drop", &many), None);
    }
}
