//! The paper's P-CG: products by diagonals, and block-Jacobi with a thread per tile.

use super::*;
use crate::cbcg::{ALPHA, BETA, Diagonals, PAPER_TILE, RTOL, Solved, reference};
use crate::cuda::fastest;
use crate::cuda::kernels::Module;
use crate::publish::sizes;
use std::time::Instant;

/// Threads per block of all kernels but that of the tiles.
const THREADS: usize = 256;
/// Threads per block of the tiles' kernel to try; the paper gives no number.
const TILE_THREADS: [usize; 4] = [32, 64, 128, 256];
/// Iterations between two looks at the residual: the host waits only then.
const LOOK: usize = 8;

pub(super) fn macros([t0, t1, t2]: [usize; 3], threads: usize) -> [(&'static str, usize); 4] {
    [("T0", t0), ("T1", t1), ("T2", t2), ("THREADS", threads)]
}

/// The kernel of the tiles with its factors.
struct Tiles {
    kernel: Launch,
    inverse: Rc<Buffer<f64>>,
    blocks: usize,
}

/// The matrix by diagonals, with factors of its tiles, and the kernels. Their scalars are ρ, α and β.
struct Pcg {
    vendor: Rc<Vendor>,
    sides: [usize; 3],
    n: usize,
    a: Rc<Buffer<f64>>,
    tiles: Tiles,
    product: Launch,
    advance: Launch,
    reduce: Launch,
    step_length: Launch,
    next_direction: Launch,
    partial: Buffer<f64>,
}

impl Pcg {
    /// Factors the tiles on the host, and uploads everything. The tiles' kernel has the number of threads
    /// with which it is fastest.
    fn new(vendor: &Rc<Vendor>, case: &Case, storage: Storage, tile: [usize; 3]) -> Result<Self> {
        let host = Diagonals::new(case, storage)?;
        let (n, sides, tile) = (host.len(), host.sides, storage.turn(tile));
        let inverse = Rc::new(vendor.device.upload(&host.inverse(tile)?, "the paper's pivots")?);
        let a = Rc::new(vendor.device.upload(&host.values, "the paper's diagonals")?);
        drop(host);
        let count: usize = (0..3).map(|d| sides[d].div_ceil(tile[d])).product();
        let module = Module::load(vendor, PCG, &macros(tile, THREADS))?;
        let kernel = |name| module.kernel(name, THREADS, 0);
        // Two sums for each block of the smallest size.
        let partial = vendor.zeros(2 * count.div_ceil(TILE_THREADS[0]).max(blocks(vendor, n, THREADS)))?;
        let (r, z) = (vendor.zeros(n)?, vendor.zeros(n)?);
        let new = |threads| {
            let kernel =
                Module::load(vendor, PCG, &macros(tile, threads))?.kernel("tile_solve", threads, 0)?;
            Ok(Tiles { kernel, inverse: inverse.clone(), blocks: count.div_ceil(threads) })
        };
        let tiles = fastest(vendor, TILE_THREADS, new, |tiles| tiles.solve(sides, [&a, &r, &z, &partial]))?.1;
        Ok(Self {
            product: kernel("dia_product")?,
            advance: kernel("advance")?,
            reduce: kernel("reduce")?,
            step_length: kernel("step_length")?,
            next_direction: kernel("next_direction")?,
            vendor: vendor.clone(),
            sides,
            n,
            a,
            tiles,
            partial,
        })
    }

    /// Computes w = A p with (p, w) (lines 3 and 4), and then α.
    fn product(&self, [p, w]: [&Buffer<f64>; 2], scalars: &Buffer<f64>) -> Result<()> {
        let count = blocks(&self.vendor, self.n, THREADS);
        let sizes = [self.n, self.sides[0], self.sides[0] * self.sides[1]].map(|size| Arg::Int(size as i32));
        self.product.launch(count, &[&sizes[..], &pointers([&self.a, p, w, &self.partial])].concat())?;
        self.step_length
            .launch(1, &[&[Arg::Int(count as i32)][..], &pointers([&self.partial, scalars])].concat())
    }

    /// Computes z = M⁻¹ r with its sums (lines 7 and 8), and then β; (r, r) goes to entry `at` of `history`.
    fn precondition(
        &self,
        [r, z]: [&Buffer<f64>; 2],
        scalars: &Buffer<f64>,
        history: &Buffer<f64>,
        at: usize,
    ) -> Result<()> {
        self.tiles.solve(self.sides, [&self.a, r, z, &self.partial])?;
        let mut args = vec![Arg::Int(self.tiles.blocks as i32)];
        args.extend(pointers([&self.partial, scalars, history]));
        args.push(Arg::Int(at as i32));
        self.next_direction.launch(1, &args)
    }

    /// Runs a pass over vectors: r −= α w (line 6), or x += α p with p = z + β p (lines 5 and 9).
    fn pass<const N: usize>(
        &self,
        kernel: &Launch,
        vectors: [&Buffer<f64>; N],
        scalars: &Buffer<f64>,
    ) -> Result<()> {
        let first = [Arg::Int(self.n as i32), Arg::Pointer(scalars.pointer())];
        kernel.launch(blocks(&self.vendor, self.n, THREADS), &[&first[..], &pointers(vectors)].concat())
    }
}

impl Tiles {
    fn solve(&self, sides: [usize; 3], [a, r, z, partial]: [&Buffer<f64>; 4]) -> Result<()> {
        let sizes = sides.map(|side| Arg::Int(side as i32));
        self.kernel.launch(self.blocks, &[&sizes[..], &pointers([a, &self.inverse, r, z, partial])].concat())
    }
}

/// The kernels' vectors on the device, in the order of the storage.
struct Vectors<'k> {
    pcg: Pcg,
    case: &'k Case,
    buffers: Vec<Buffer<f64>>,
}

/// The storage that is faster in the paper.
const STORAGE: Storage = Storage::Zyx;

impl Vectors<'_> {
    /// Returns some vectors in the natural order.
    fn read(&self, which: &[usize]) -> Result<Vec<f64>> {
        let mut all = Vec::new();
        for &k in which {
            all.extend(STORAGE.unsort(self.case.grid, &self.pcg.vendor.read(&self.buffers[k])?));
        }
        Ok(all)
    }
}

/// Returns the kernels of an iteration, in the storage and with the tile that are fastest in the paper. Each
/// has its own outputs.
pub(super) fn kernels<'k>(vendor: &Rc<Vendor>, case: &'k Case) -> Result<Vec<Kernel<'k>>> {
    let n = case.rows();
    let numbers: Rc<Vec<Vec<f64>>> = Rc::new((61..64).map(|seed| Random(seed).numbers(n)).collect());
    let upload =
        |x: &[f64]| vendor.device.upload(&STORAGE.sort(case.grid, x), "a vector of the paper's kernels");
    let mut buffers = Vec::new();
    // 0: x, the input of the product and of the tiles; 1 and 2: their outputs; 3 to 5: z, x, p; 6: r.
    for which in [Some(0), None, None, Some(0), Some(1), Some(2), Some(1)] {
        buffers.push(match which {
            Some(k) => upload(&numbers[k])?,
            None => vendor.zeros(n)?,
        });
    }
    buffers[1..3].iter().try_for_each(|output| vendor.poison(output))?;
    let at = Rc::new(Vectors { pcg: Pcg::new(vendor, case, STORAGE, PAPER_TILE)?, case, buffers });
    let scalars = |values: [f64; 3]| -> Result<Rc<Buffer<f64>>> {
        Ok(Rc::new(vendor.device.upload(&values, "scalars of the paper's kernels")?))
    };
    let mut all = Vec::new();

    // With ρ = 1 the kernel leaves 1/(p, w) in α.
    let (v, held, x) = (at.clone(), scalars([1.0, 0.0, 0.0])?, numbers.clone());
    let (own, of) = (at.clone(), held.clone());
    all.push(Kernel {
        name: "the paper's SpMV by diagonals with its dot".into(),
        role: Role::Product,
        ours: false,
        flops: 15.0,
        bytes: 72.0,
        paper: Some([15.0, 92.0, 0.90]),
        products: 1,
        runs: 1,
        run: Box::new(move || v.pcg.product([&v.buffers[0], &v.buffers[1]], &held)),
        answer: Box::new(move || {
            let mut all = own.read(&[1])?;
            all.push(1.0 / own.pcg.vendor.read(&of)?[1]);
            Ok(all)
        }),
        expected: Box::new(move || {
            let mut y = case.product(&x[0]);
            y.push(dot(&x[0], &y));
            y
        }),
    });

    let (v, held, x) = (at.clone(), scalars([1.0, 0.0, 0.0])?, numbers.clone());
    let history: Rc<Buffer<f64>> = Rc::new(vendor.zeros(2)?);
    let (own, of, sums) = (at.clone(), held.clone(), history.clone());
    all.push(Kernel {
        name: format!("the paper's thread per tile {}, zyx, with its dots", sizes(PAPER_TILE)),
        role: Role::Preconditioner,
        ours: false,
        flops: 18.0,
        bytes: 104.0,
        paper: Some([20.0, 128.0, 0.84]),
        products: 1,
        runs: 1,
        run: Box::new(move || v.pcg.precondition([&v.buffers[0], &v.buffers[2]], &held, &history, 1)),
        answer: Box::new(move || {
            let mut all = own.read(&[2])?;
            all.push(own.pcg.vendor.read(&sums)?[1]);
            all.push(own.pcg.vendor.read(&of)?[0]);
            Ok(all)
        }),
        expected: Box::new(move || {
            // If the reference fails, it must not agree with anything.
            let mut z = reference(case, PAPER_TILE, &x[0]).unwrap_or_default();
            let sums = [dot(&x[0], &x[0]), dot(&x[0], &z)];
            z.extend(sums);
            z
        }),
    });

    let (v, held, x, own) = (at.clone(), scalars([0.0, ALPHA, BETA])?, numbers.clone(), at.clone());
    all.push(Kernel {
        name: "the paper's AXPYs of x and p".into(),
        role: Role::Vectors,
        ours: false,
        flops: 4.0,
        bytes: 40.0,
        paper: None,
        products: 1,
        runs: 1,
        run: Box::new(move || {
            v.pcg.pass(&v.pcg.advance, [&v.buffers[3], &v.buffers[4], &v.buffers[5]], &held)
        }),
        answer: Box::new(move || own.read(&[4, 5])),
        expected: Box::new(move || {
            let moved = x[1].iter().zip(&x[2]).map(|(x, p)| x + ALPHA * p);
            moved.chain(x[0].iter().zip(&x[2]).map(|(z, p)| z + BETA * p)).collect()
        }),
    });

    let (v, held, x, own) = (at.clone(), scalars([0.0, ALPHA, BETA])?, numbers, at);
    all.push(Kernel {
        name: "the paper's AXPY of r".into(),
        role: Role::Vectors,
        ours: false,
        flops: 2.0,
        bytes: 24.0,
        paper: None,
        products: 1,
        runs: 1,
        run: Box::new(move || v.pcg.pass(&v.pcg.reduce, [&v.buffers[3], &v.buffers[6]], &held)),
        answer: Box::new(move || own.read(&[6])),
        expected: Box::new(move || x[1].iter().zip(&x[0]).map(|(r, w)| r - ALPHA * w).collect()),
    });
    Ok(all)
}

/// Returns P-CG with tiles of a shape; it takes the iteration limit.
///
/// # Errors
/// Returns the errors of [`Diagonals`], and errors of NVRTC and of the device.
pub(super) fn solver<'k>(
    vendor: &Rc<Vendor>,
    case: &'k Case,
    storage: Storage,
    tile: [usize; 3],
) -> Result<Solve<'k>> {
    let pcg = Pcg::new(vendor, case, storage, tile)?;
    let (n, new) = (pcg.n, || vendor.zeros(case.rows()));
    let b = vendor.device.upload(&storage.sort(case.grid, &case.rhs), "the right-hand side")?;
    let [x, r, z, p, w] = [new()?, new()?, new()?, new()?, new()?];
    let scalars = vendor.zeros(3)?;
    let vendor = vendor.clone();
    Ok(Box::new(move |most| {
        let history = vendor.zeros(most + LOOK + 1)?;
        vendor.device.wait()?;
        let begin = Instant::now();
        for zero in [&x, &p, &scalars] {
            vendor.fill(zero.pointer(), zero.len(), 0)?;
        }
        vendor.copy(b.pointer(), r.pointer(), n)?;
        // x = 0 and r = b; α and β are 0, so the first direction is z.
        pcg.precondition([&r, &z], &scalars, &history, 0)?;
        pcg.pass(&pcg.advance, [&z, &x, &p], &scalars)?;
        let mut residuals = vec![0.0; 1];
        vendor.device.read(&history, 0, &mut residuals)?;
        let goal = RTOL * RTOL * residuals[0];
        let mut found = None;
        while found.is_none() && residuals.len() <= most {
            let from = residuals.len();
            for at in from..from + LOOK {
                pcg.product([&p, &w], &scalars)?;
                pcg.pass(&pcg.reduce, [&w, &r], &scalars)?;
                pcg.precondition([&r, &z], &scalars, &history, at)?;
                pcg.pass(&pcg.advance, [&z, &x, &p], &scalars)?;
            }
            residuals.resize(from + LOOK, f64::NAN);
            vendor.device.read(&history, from, &mut residuals[from..])?;
            // A residual that is no number ends the solve, too.
            found = (from..residuals.len()).find(|&at| !(residuals[at] > goal));
        }
        let seconds = begin.elapsed().as_secs_f64();
        let iterations = found.unwrap_or(residuals.len() - 1);
        let converged = residuals[iterations] <= goal;
        let x = storage.unsort(case.grid, &vendor.read(&x)?);
        Ok(Solved { iterations, converged, seconds, x })
    }))
}
