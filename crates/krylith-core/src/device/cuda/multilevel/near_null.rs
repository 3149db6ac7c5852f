//! Smoothed aggregation from near-null vectors on a GPU: `kernels/amg_near_null.cu`, and products of matrices
//! of blocks that need not be square (`kernels/amg_block_products.cu`). Aggregates are those of the host
//! (`precond/multilevel/host/near_null.rs`), and numbers differ from the host's by rounding.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device};
use super::super::launch::{At, Entry, Of, Set, kernels};
use super::super::resident::Resident;
use super::super::scan::{last, scan};
use super::super::specialisations::define;
use super::galerkin::{Matrix, product};
use super::split::grid;
use super::transpose::transpose;
use super::{AGGREGATE, aggregate, stored};
use crate::matrix::Bsr;
use crate::precond::multilevel::host::near_null::{DEPENDENT, ITERATIONS, OMEGA, aggregates, count};
use crate::precond::multilevel::{NearNull, NearNullTransfer, Nodal, RigidModes, RowsOfMatrix as Rows, host};
use crate::precond::{CoarsenKind, Coarsening, TINY_PIVOT, Transfer};
use crate::space::Space;
use crate::{Error, Result};
use std::sync::Arc;

kernels! {
    NEAR_NULL in "amg_near_null.cu", |_| vec![near_members.plain().into()];
    fn near_rigid(n: i64, b: i32, points: At<f64>, x: f64, y: f64, z: f64, numbers: At<f64>);
    fn near_members(n: i64, aggregate: At<u32>, marks: At<u32>);
    fn near_entries(n: i64, aggregate: At<u32>, place: At<i64>, col: At<u32>, position: At<f64>);
    fn near_positions(n: i64, position: At<f64>);
    fn near_factors(
        aggregates: i64, b: i32, k: i32, dependent: f64, members: Matrix, near: At<f64>, t: At<f64>,
        coarse: At<f64>,
    );
    fn near_inverse(n: i64, b: i32, tiny: f64, a: Matrix, inverse: At<f64>);
    fn near_power(n: i64, b: i32, a: Matrix, inverse: At<f64>, v: At<f64>, w: At<f64>, z: At<f64>);
    fn near_sums(n: i64, w: At<f64>, z: At<f64>, v: At<f64>, sums: At<f64>);
    fn near_smooth(
        n: i64, b: i32, k: i32, omega: f64, inverse: At<f64>, place: At<i64>, aggregate: At<u32>, t: At<f64>,
        p: Matrix,
    );
    fn near_diagonal(n: i64, k: i32, a: Matrix);
    fn near_transfer(
        n: i64, h: i32, w: i32, g: i32, turned: i32, a: Matrix, values: At<f64>, ptr: At<i64>, col: At<u32>,
        val: At<f64>,
    );
}

kernels! {
    BLOCK_PRODUCTS in "amg_block_products.cu",
        |set| sizes(set).into_iter().map(|size| products(size).into()).collect();
    fn block_products(
        rows: i64, m: i32, split: i32, turned: i32, left: Matrix, blocks: At<f64>, right: Matrix, to: Matrix,
        wrong: At<i32>,
    );
}

/// Threads per thread block of products.
const THREADS: usize = 128;
/// Thread blocks that compute sums.
const SUMS: usize = 256;
const WHAT: &str = "a level from near-null vectors";

/// Numbers of components and of vectors that are compiled ahead: any, or those of displacements and rigid
/// modes.
fn sizes(set: Set) -> Vec<[usize; 2]> {
    let all = (1..=NearNull::MOST).flat_map(|l| (1..=NearNull::MOST).map(move |k| [l, k]));
    set.choose(all, [[2, 3], [3, 3], [3, 6], [6, 6]])
}

fn products([inner, columns]: [usize; 2]) -> Of<block_products> {
    block_products.with(vec![define("INNER", inner), define("COLUMNS", columns)])
}

/// Returns the kernels of hierarchies from `near` near-null vectors, for nodes with `block` components.
pub(crate) fn likely(block: usize, near: usize) -> Vec<Kernel> {
    let files = [&NEAR_NULL, &AGGREGATE].into_iter();
    let mut kernels: Vec<Kernel> = files.flat_map(|file| (file.specialisations)(Set::Common)).collect();
    // Patterns are those of products of scalars.
    kernels.extend(super::products());
    kernels.extend([products([block, near]), products([near, near])].map(Kernel::from));
    kernels
}

/// P by nodes: blocks of `b` × `k` numbers.
struct OnDevice {
    space: Cuda,
    p: Resident,
    /// The pattern of the transpose of own rows. The value of an entry is the position of its block in P.
    turned: Resident,
    /// The aggregate of each own node.
    aggregates: Buffer<u32>,
    b: usize,
    k: usize,
    /// Number of columns of P, with those of other ranks.
    columns: usize,
}

/// A product of matrices of blocks.
struct Product<'a> {
    device: &'a Arc<Device>,
    left: &'a Resident,
    /// The blocks of the left factor, of m rows and l columns. If they are those of the transpose, the values
    /// of `left` are their positions.
    blocks: &'a Buffer<f64>,
    turned: bool,
    right: &'a Resident,
    /// m, l and k.
    sizes: [usize; 3],
}

impl Product<'_> {
    /// Returns the pattern. Its values have no meaning.
    fn pattern(&self, columns: usize, diagonal: bool) -> Result<Resident> {
        // The product of scalars has this pattern. Both factors have at least as many numbers as entries.
        product(self.device, [self.left, self.right], columns, diagonal, None)
    }

    /// Computes the values on the pattern of `to`.
    fn values(&self, to: &Resident) -> Result<Resident> {
        let (device, rows, [m, l, k]) = (self.device, self.left.row_ptr.len() - 1, self.sizes);
        let made = to.with_values(device.allocate(to.col.len() * m * k, WHAT)?);
        let wrong = device.zeros::<i32>(1, WHAT)?;
        let function = device.function(&products([l, k]))?;
        // With fewer rows than resident warps, a warp computes one row of each block.
        let split = if rows < 64 * device.multiprocessors() { m } else { 1 };
        let blocks = (32 * rows * split).div_ceil(THREADS).clamp(1, 64 * device.multiprocessors());
        function.on(device, blocks, THREADS).run(
            rows as i64,
            m as i32,
            split as i32,
            i32::from(self.turned),
            Matrix::from(self.left),
            self.blocks,
            Matrix::from(self.right),
            Matrix::from(&made),
            &wrong,
        )?;
        match last(device, &wrong)? {
            0 => Ok(made),
            _ => Err(Error::invalid(format!(
                "amg: the pattern of a coarse level does not match Pᵀ A P ({rows} rows); set up again after the \
                 pattern of A changes"
            ))),
        }
    }
}

impl Cuda {
    /// See [`Coarsen::near_null_transfer`](crate::precond::Coarsen::near_null_transfer).
    pub(super) fn transfer_of_near_null(
        &self,
        a: &Bsr,
        couplings: &Bsr,
        near: &NearNull,
        how: &Coarsening,
        level: usize,
        most: usize,
    ) -> Result<Option<NearNullTransfer>> {
        let (device, n, b, k) = (self.device(), a.block_rows(), a.block(), near.count());
        let smooth = how.kind == CoarsenKind::Aggregation { smoothed: true };
        let (aggregates, columns) = match smooth && n <= i32::MAX as usize {
            true => {
                let theta = host::aggregate::threshold(how.strength, level);
                let made = aggregate::by_independent_set(self, couplings, theta, level, None)?;
                (made.of, made.count)
            }
            false => {
                let (made, _) = aggregates(&device.host_threads(), couplings, how, level)?;
                (device.upload(&made, WHAT)?, count(&made))
            }
        };
        if columns == 0 || columns >= n || columns > most {
            return Ok(None);
        }
        let (p, near) = self.tentative(&aggregates, columns, b, near)?;
        let turned = transposed_positions(device, &p, columns)?;
        let nodal = OnDevice { space: Self::new(device, 0)?, p, turned, aggregates, b, k, columns };
        Ok(Some(NearNullTransfer { nodal: Box::new(nodal), smooth, near }))
    }

    /// Computes T, and the vectors of the coarser level.
    fn tentative(
        &self,
        aggregates: &Buffer<u32>,
        columns: usize,
        b: usize,
        near: &NearNull,
    ) -> Result<(Resident, NearNull)> {
        let (device, n, k) = (self.device(), aggregates.len(), near.count());
        let marks = device.allocate::<u32>(n, WHAT)?;
        let by_nodes = grid(device, n);
        device
            .function(&near_members.plain())?
            .on(device, by_nodes, 256)
            .run(n as i64, aggregates, &marks)?;
        let place = scan(device, &marks)?;
        let entries = last(device, &place)? as usize;
        let (col, at) = (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries, WHAT)?);
        let function = device.function(&near_entries.plain())?;
        function.on(device, by_nodes, 256).run(n as i64, aggregates, &place, &col, &at)?;
        let pattern = Resident::new(place, col, at);
        let members = transpose(device, &pattern, columns)?;
        let t = pattern.with_values(device.allocate(entries * b * k, WHAT)?);
        let numbers = self.near_numbers(near)?;
        let coarse = device.allocate::<f64>(columns * k * k, WHAT)?;
        device.function(&near_factors.plain())?.on(device, (32 * columns).div_ceil(128), 128).run(
            columns as i64,
            b as i32,
            k as i32,
            DEPENDENT,
            Matrix::from(&members),
            &numbers,
            &t.values,
            &coarse,
        )?;
        let mut numbers = vec![0.0; coarse.len()];
        device.read(&coarse, 0, &mut numbers)?;
        Ok((t, NearNull::of_numbers(k, numbers)))
    }

    /// Returns the numbers of all vectors, row after row.
    fn near_numbers(&self, near: &NearNull) -> Result<Buffer<f64>> {
        let device = self.device();
        let Some(RigidModes { block, points, centre }) = near.as_rigid() else {
            return device.upload(&near.numbers(&device.host_threads()), WHAT);
        };
        let numbers = device.allocate::<f64>(near.rows() * near.count(), WHAT)?;
        let points = device.upload(points.as_flattened(), WHAT)?;
        let (n, [x, y, z]) = (points.len() / 3, *centre);
        let function = device.function(&near_rigid.plain())?;
        function.on(device, grid(device, n), 256).run(n as i64, *block as i32, &points, x, y, z, &numbers)?;
        Ok(numbers)
    }

    /// Returns ω, or 0 if the estimate of the largest eigenvalue of D⁻¹A is not a positive number. Ghosts
    /// are 0.
    fn damping(&self, a: &Resident, ghosts: usize, inverse: &Buffer<f64>, b: usize) -> Result<f64> {
        let (device, n) = (self.device(), a.row_ptr.len() - 1);
        let space = Self::new(device, n * b)?;
        let zeros = || device.zeros::<f64>((n + ghosts) * b, WHAT);
        let (mut random, mut v, w, mut z) = (space.vector()?, zeros()?, zeros()?, zeros()?);
        space.fill_random(1, &mut random)?;
        device.copy(&random, &mut v, n * b)?;
        let function = device.function(&near_power.plain())?;
        for step in 0..ITERATIONS {
            if step > 0 {
                std::mem::swap(&mut v, &mut z);
            }
            let at = grid(device, 32 * n);
            function.on(device, at, 256).run(n as i64, b as i32, Matrix::from(a), inverse, &v, &w, &z)?;
        }
        let sums = device.allocate::<f64>(2 * SUMS, WHAT)?;
        let function = device.function(&near_sums.plain())?;
        function.on(device, SUMS, 256).run((n * b) as i64, &w, &z, &v, &sums)?;
        let mut parts = vec![0.0; sums.len()];
        device.read(&sums, 0, &mut parts)?;
        let sum = |of: usize| parts.iter().skip(of).step_by(2).sum::<f64>();
        let largest = sum(0) / sum(1);
        Ok(if largest > 0.0 && largest.is_finite() { OMEGA / largest } else { 0.0 })
    }
}

impl Nodal for OnDevice {
    fn damping(&self, a: &Bsr) -> Result<f64> {
        let ghosts = a.block_columns() - a.block_rows();
        let a = self.space.resident(a)?;
        self.space.damping(&a, ghosts, &self.inverse_diagonal(&a)?, self.b)
    }
    fn smooth(&mut self, a: &Bsr, couplings: &Bsr, omega: f64) -> Result<()> {
        let (device, [b, k]) = (self.space.device(), [self.b, self.k]);
        let (a, whole) = (self.space.resident(a)?, self.space.resident(couplings)?);
        let n = a.row_ptr.len() - 1;
        let inverse = self.inverse_diagonal(&a)?;
        // The pattern of the couplings has every diagonal entry, and so the row of T itself.
        let product = |left| Product {
            device,
            left,
            blocks: &a.values,
            turned: false,
            right: &self.p,
            sizes: [b, b, k],
        };
        let p = product(&a).values(&product(&whole).pattern(self.columns, false)?)?;
        device.function(&near_smooth.plain())?.on(device, grid(device, 32 * n), 256).run(
            n as i64,
            b as i32,
            k as i32,
            omega,
            &inverse,
            &self.p.row_ptr,
            &self.aggregates,
            &self.p.values,
            Matrix::from(&p),
        )?;
        self.turned = transposed_positions(device, &p, self.columns)?;
        self.p = p;
        Ok(())
    }
    fn rows_of(&self, nodes: &[u32]) -> Result<Rows> {
        self.space.packed(&self.p, self.b * self.k, nodes)
    }
    fn join(&mut self, numbers: &[u32], below: &Rows, columns: usize, used: usize) -> Result<()> {
        let device = self.space.device();
        let p = self.space.renamed(&self.p, false, numbers)?;
        self.turned = transposed_positions(device, &p, used)?;
        self.p = self.space.appended(&p, self.b * self.k, below)?;
        self.columns = columns;
        Ok(())
    }
    fn transfer(&self) -> Result<Transfer> {
        self.squares()
    }
    fn product(&self, a: &Bsr) -> Result<Bsr> {
        let made = self.products(a, None)?;
        Ok(stored(self.k, made.row_ptr.len() - 1, self.columns, made))
    }
    fn fill_diagonal(&self, coarse: &mut Bsr) -> Result<()> {
        let made = self.space.resident(coarse)?;
        self.fill(&made)?;
        *coarse = stored(self.k, coarse.block_rows(), coarse.block_columns(), Resident::clone(&made));
        Ok(())
    }
    fn update(&self, a: &Bsr, coarse: &mut Bsr) -> Result<()> {
        let made = self.products(a, Some(&*self.space.resident(coarse)?))?;
        self.fill(&made)?;
        *coarse = coarse.with_storage(coarse.storage().with_device_values(Arc::new(made)));
        Ok(())
    }
}

/// Returns the pattern of the transpose. The value of an entry is the position of its block.
pub(in crate::device::cuda) fn transposed_positions(
    device: &Arc<Device>,
    p: &Resident,
    columns: usize,
) -> Result<Resident> {
    let at = device.allocate::<f64>(p.col.len(), WHAT)?;
    let function = device.function(&near_positions.plain())?;
    function.on(device, grid(device, at.len()), 256).run(at.len() as i64, &at)?;
    transpose(device, &p.clone().with_values(at), columns)
}

impl OnDevice {
    /// Returns the inverses of diagonal blocks; 0 where there is none.
    fn inverse_diagonal(&self, a: &Resident) -> Result<Buffer<f64>> {
        let (device, n, b) = (self.space.device(), a.row_ptr.len() - 1, self.b);
        let inverse = device.allocate::<f64>(n * b * b, WHAT)?;
        let function = device.function(&near_inverse.plain())?;
        let a = Matrix::from(a);
        function.on(device, n.div_ceil(128), 128).run(n as i64, b as i32, TINY_PIVOT, a, &inverse)?;
        Ok(inverse)
    }

    /// Fills the diagonal of a coarse matrix in place.
    fn fill(&self, coarse: &Resident) -> Result<()> {
        let (device, n) = (self.space.device(), coarse.row_ptr.len() - 1);
        let function = device.function(&near_diagonal.plain())?;
        function.on(device, grid(device, n), 256).run(n as i64, self.k as i32, Matrix::from(coarse))
    }

    /// Returns P₀ᵀ A P, on the pattern of `known` if that is given.
    fn products(&self, a: &Bsr, known: Option<&Resident>) -> Result<Resident> {
        let (device, [b, k], columns) = (self.space.device(), [self.b, self.k], self.columns);
        let a = self.space.resident(a)?;
        let first =
            Product { device, left: &a, blocks: &a.values, turned: false, right: &self.p, sizes: [b, b, k] };
        let ap = first.values(&first.pattern(columns, false)?)?;
        let second = Product {
            device,
            left: &self.turned,
            blocks: &self.p.values,
            turned: true,
            right: &ap,
            sizes: [k, b, k],
        };
        match known {
            Some(known) => second.values(known),
            None => second.values(&second.pattern(columns, true)?),
        }
    }

    /// Returns P₀ and P₀ᵀ as matrices of square blocks, whose size is the largest that divides b and k.
    fn squares(&self) -> Result<Transfer> {
        let (device, b, k, rows) = (self.space.device(), self.b, self.k, self.aggregates.len());
        let own = self.space.begun(&self.p, b * k, rows)?;
        let g = (1..=b.min(k)).rev().find(|g| b % g == 0 && k % g == 0).unwrap_or(1);
        let function = device.function(&near_transfer.plain())?;
        let cut = |a: &Resident, [h, w]: [usize; 2], turned: bool| -> Result<Resident> {
            let (n, squares) = (a.row_ptr.len() - 1, a.col.len() * (h / g) * (w / g));
            let ptr = device.zeros::<i64>(n * (h / g) + 1, WHAT)?;
            let col = device.allocate::<u32>(squares, WHAT)?;
            let values = device.allocate::<f64>(squares * g * g, WHAT)?;
            function.on(device, grid(device, 32 * n), 256).run(
                n as i64,
                h as i32,
                w as i32,
                g as i32,
                i32::from(turned),
                Matrix::from(a),
                &self.p.values,
                &ptr,
                &col,
                &values,
            )?;
            Ok(Resident::new(ptr, col, values))
        };
        let used = self.turned.row_ptr.len() - 1;
        let (fine, coarse) = (rows * (b / g), used * (k / g));
        let p = if g == b && g == k { own } else { cut(&own, [b, k], false)? };
        let r = cut(&self.turned, [k, b], true)?;
        Ok(Transfer {
            prolongation: stored(g, fine, coarse, p),
            restriction: stored(g, coarse, fine, r),
            coarse: Vec::new(),
        })
    }
}
