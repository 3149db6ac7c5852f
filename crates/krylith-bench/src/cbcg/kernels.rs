//! Table III of the P-CBCG paper: each kernel of an iteration, compared with its roofline.
//!
//! Flops and bytes are counted per cell, and per product if a kernel serves the s products of a step. They
//! count what must be computed, and what must be read from memory or written to it once. The roofline is the
//! paper's: f/F + b/B seconds for f flops and b bytes. The bandwidth B is measured in the same run. The peak
//! F is unknown on a CPU, where its term is omitted.

use super::{Case, blocks, solves, tiles};
use crate::options::Asked;
use crate::platform::Platform;
use crate::publish::Check;
use crate::samples::{Samples, in_turn_of};
use crate::systems::{Random, dot};
use krylith_core::method::{cbcg, cg};
use krylith_core::operator::{Dots, LinearOperator, PointBlock, PointBlockSum};
use krylith_core::precond::TileFactors;
use krylith_core::space::{FLAGS, Space};
use krylith_core::{Error, Precision, Result};
use std::cell::RefCell;
use std::rc::Rc;

/// The peak rates of a device.
pub(super) struct Roof {
    /// Name of the bandwidth, and bytes a second.
    pub bandwidth: (&'static str, f64),
    /// Flops a second.
    pub peak: Option<f64>,
}

impl Roof {
    /// Returns the roofline's seconds per cell.
    pub fn seconds(&self, row: &Row) -> f64 {
        self.peak.map_or(0.0, |peak| row.flops / peak) + row.bytes / self.bandwidth.1
    }
}

/// The part of an iteration that a kernel does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// The product, with its dot product in P-CG.
    Product,
    /// The preconditioner, with its dot products in P-CG.
    Preconditioner,
    /// Updates of vectors in P-CG.
    Vectors,
    /// The recurrence of the basis in P-CBCG.
    Basis,
    /// Products and updates of blocks of vectors in P-CBCG.
    Matrix,
}

pub(super) struct Row {
    pub name: String,
    pub role: Role,
    /// False for a kernel of the paper.
    pub ours: bool,
    /// Flops and bytes per cell and product.
    pub flops: f64,
    pub bytes: f64,
    /// Flops, bytes and share of the roofline in the paper, if it has this kernel.
    pub paper: Option<[f64; 3]>,
    /// Number of cells times products per run.
    pub cells: usize,
    /// Number of runs per iteration, or per step of P-CBCG.
    pub runs: usize,
    pub samples: Samples,
    /// Largest relative difference from the host's loop, or the reason of a failure.
    pub check: Check,
}

/// A kernel with its own vectors.
pub(crate) struct Kernel<'k> {
    pub name: String,
    pub role: Role,
    /// False for a kernel of the paper.
    pub ours: bool,
    /// Flops and bytes per cell and product.
    pub flops: f64,
    pub bytes: f64,
    pub paper: Option<[f64; 3]>,
    /// Number of products per run.
    pub products: usize,
    /// Number of runs per iteration, or per step of P-CBCG.
    pub runs: usize,
    pub run: Box<dyn FnMut() -> Result<()> + 'k>,
    /// Returns the result: vectors, then sums.
    pub answer: Box<dyn FnMut() -> Result<Vec<f64>> + 'k>,
    /// Returns the same by a loop on the host, from fresh inputs.
    pub expected: Box<dyn Fn() -> Vec<f64> + 'k>,
}

/// Slots of CG's scalars.
pub(super) const AT: cg::Scalars<usize, usize> = cg::Scalars::AT;
pub(crate) const ALPHA: f64 = 0.375;
pub(crate) const BETA: f64 = -0.625;

/// Checks the kernels on `small` and times them on `case`.
pub(super) fn measure<P: Platform>(p: &P, small: &Case, case: &Case, options: &Asked) -> Result<Vec<Row>>
where
    P::Space: TileFactors,
{
    let shapes = solves::shapes(options);
    let space = Rc::new(p.space(small.rows())?);
    let mut kernels = all(&space, small, &shapes, true)?;
    kernels.extend(p.cbcg_kernels(small, true)?);
    let checks: Vec<std::result::Result<f64, String>> =
        kernels.iter_mut().map(|kernel| check(kernel).map_err(|e| e.to_string())).collect();
    drop(kernels);
    let space = Rc::new(p.space(case.rows())?);
    let mut kernels = all(&space, case, &shapes, false)?;
    kernels.extend(p.cbcg_kernels(case, false)?);
    if kernels.len() != checks.len() {
        return Err(Error::invalid("the small case has different kernels from the large one"));
    }
    let right: Vec<usize> = (0..kernels.len()).filter(|&k| checks[k].is_ok()).collect();
    let samples = in_turn_of(&right, 2, options.repetitions(), |k| p.time(&mut kernels[k].run))?;
    let mut rows: Vec<Row> = kernels
        .into_iter()
        .zip(checks)
        .map(|(k, check)| Row {
            name: k.name,
            role: k.role,
            ours: k.ours,
            flops: k.flops,
            bytes: k.bytes,
            paper: k.paper,
            cells: case.rows() * k.products,
            runs: k.runs,
            samples: Samples::default(),
            check,
        })
        .collect();
    for (k, samples) in samples {
        rows[k].samples = samples;
    }
    Ok(rows)
}

/// Returns the largest difference from the host, relative to the largest number of the result.
fn check(kernel: &mut Kernel) -> Result<f64> {
    (kernel.run)()?;
    let (answer, expected) = ((kernel.answer)()?, (kernel.expected)());
    let size = expected.iter().fold(0.0f64, |m, e| m.max(e.abs()));
    let worst = answer.iter().zip(&expected).fold(0.0f64, |worst, (a, e)| {
        let d = (a - e).abs();
        if d.is_nan() { f64::INFINITY } else { worst.max(d) }
    });
    if answer.len() == expected.len() && worst <= 1e-11 * size {
        return Ok(worst / size);
    }
    Err(Error::invalid(format!("{}: differs from the host's loop by {:e}", kernel.name, worst / size)))
}

pub(crate) struct State<S: Space> {
    pub space: Rc<S>,
    pub vectors: Vec<S::Vector>,
    /// Vectors stored contiguously.
    pub blocks: Vec<Vec<S::Vector>>,
    pub scalars: S::Scalars,
}

pub(crate) type Held<S> = Rc<RefCell<State<S>>>;

/// Creates vectors of random numbers, and scalars with α and β.
pub(super) fn state<S: Space>(space: &Rc<S>, numbers: &[Vec<f64>]) -> Result<Held<S>> {
    let mut vectors = Vec::new();
    for numbers in numbers {
        let mut vector = space.vector()?;
        space.write(numbers, &mut vector)?;
        vectors.push(vector);
    }
    let mut values = vec![0.0; cg::Arrays::at(1).len];
    (values[AT.alpha], values[AT.beta]) = (ALPHA, BETA);
    let mut scalars = space.scalars(values.len())?;
    space.write_scalars(&mut scalars, 0, &values, &[0; FLAGS])?;
    Ok(Rc::new(RefCell::new(State { space: space.clone(), vectors, blocks: Vec::new(), scalars })))
}

impl<'k> Kernel<'k> {
    /// Creates an update of vectors for one product that uses its first `N` vectors; its result is some of
    /// its vectors and scalars.
    pub fn of<S: Space + 'k, const N: usize>(
        name: String,
        (flops, bytes, paper): (f64, f64, Option<[f64; 3]>),
        held: Held<S>,
        mut run: impl FnMut(&S, [&mut S::Vector; N], &mut S::Scalars) -> Result<()> + 'k,
        (vectors, slots): (&'k [usize], &'k [usize]),
        expected: impl Fn() -> Vec<f64> + 'k,
    ) -> Self {
        let at = held.clone();
        let run = move || {
            let State { space, vectors, scalars, .. } = &mut *held.borrow_mut();
            let all: Vec<&mut S::Vector> = vectors.iter_mut().take(N).collect();
            let all = all.try_into().map_err(|_| Error::invalid("a kernel has too few vectors"))?;
            run(space, all, scalars)
        };
        let answer = move || {
            let state = at.borrow();
            let vectors = vectors.iter().map(|&v| &state.vectors[v]);
            read(&state, vectors, slots.iter().copied())
        };
        let (run, answer, expected) = (Box::new(run), Box::new(answer), Box::new(expected));
        let role = Role::Vectors;
        Self { name, role, ours: true, flops, bytes, paper, products: 1, runs: 1, run, answer, expected }
    }

    pub fn role(self, role: Role) -> Self {
        Self { role, ..self }
    }
}

/// Reads some vectors, then some scalars.
pub(super) fn read<'v, S: Space>(
    state: &State<S>,
    vectors: impl IntoIterator<Item = &'v S::Vector>,
    slots: impl IntoIterator<Item = usize>,
) -> Result<Vec<f64>>
where
    S::Vector: 'v,
{
    let mut all = Vec::new();
    for vector in vectors {
        all.extend(crate::platform::read(state.space.as_ref(), vector)?);
    }
    for slot in slots {
        let (mut value, mut flags) = ([0.0], [0; FLAGS]);
        state.space.read_scalars(&state.scalars, slot, &mut value, &mut flags)?;
        all.extend(value);
    }
    Ok(all)
}

fn all<'k, S: PointBlockSum + TileFactors + 'k>(
    space: &Rc<S>,
    case: &'k Case,
    shapes: &[[usize; 3]],
    check: bool,
) -> Result<Vec<Kernel<'k>>> {
    let mut all =
        vec![product(space, case)?, directions(space, case)?, residual(space, case)?, basis(space, case)?];
    all.extend(tiles::all(space, case, shapes)?);
    all.extend(blocks::all(space, case, check)?);
    Ok(all)
}

/// q = A p with (p, q): line 3 and the first sum of line 4 of the paper's P-CG.
fn product<'k, S: PointBlockSum + 'k>(space: &Rc<S>, case: &'k Case) -> Result<Kernel<'k>> {
    let n = case.rows();
    let a = PointBlock::csr(space.as_ref(), &case.a, Precision::F64)?;
    let x = Random(41).numbers(n);
    let held = state(space, &[x.clone(), vec![f64::NAN; n]])?;
    let bytes = a.bytes() as f64 / n as f64;
    let nonzeros = case.a.values().len() as f64 / n as f64;
    let run = move |space: &S, [x, y]: [&mut S::Vector; 2], scalars: &mut S::Scalars| -> Result<bool> {
        let fused = a.apply_with_dots(space, x, y, scalars, Dots::Xy(AT.pq))?;
        if !fused {
            space.sweep(cg::curvature, scalars, [], [&*x, &*y], [], [AT.pq])?;
        }
        Ok(fused)
    };
    let fused = {
        let State { vectors, scalars, .. } = &mut *held.borrow_mut();
        let [x, y] = &mut vectors[..] else {
            return Err(Error::invalid("the kernels of a case expect two vectors"));
        };
        run(space, [x, y], scalars)?
    };
    let (name, more) = if fused { ("SpMV with its dot", 0.0) } else { ("SpMV, then its dot", 16.0) };
    Ok(Kernel::of(
        name.into(),
        (2.0 * nonzeros - 1.0 + 2.0, bytes + more, Some([15.0, 92.0, 0.90])),
        held,
        move |space, vectors, scalars| run(space, vectors, scalars).map(|_| ()),
        (&[1], &[AT.pq]),
        move || {
            let mut y = case.product(&x);
            y.push(dot(&x, &y));
            y
        },
    )
    .role(Role::Product))
}

/// x += α p, p = z + β p: lines 5 and 9.
fn directions<'k, S: Space + 'k>(space: &Rc<S>, case: &Case) -> Result<Kernel<'k>> {
    let numbers: Vec<Vec<f64>> = (42..45).map(|seed| Random(seed).numbers(case.rows())).collect();
    Ok(Kernel::of(
        "AXPYs of x and p".into(),
        (4.0, 40.0, Some([3.0, 24.0, 0.85])),
        state(space, &numbers)?,
        |space, [z, x, p], scalars| space.sweep(cg::advance, scalars, [AT.alpha, AT.beta], [&*z], [x, p], []),
        (&[1, 2], &[]),
        move || {
            let [z, x, p] = &numbers[..] else { return Vec::new() };
            let moved = x.iter().zip(p).map(|(x, p)| x + ALPHA * p);
            moved.chain(z.iter().zip(p).map(|(z, p)| z + BETA * p)).collect()
        },
    ))
}

/// r −= α q: line 6.
fn residual<'k, S: Space + 'k>(space: &Rc<S>, case: &Case) -> Result<Kernel<'k>> {
    let numbers: Vec<Vec<f64>> = (45..47).map(|seed| Random(seed).numbers(case.rows())).collect();
    Ok(Kernel::of(
        "AXPY of r".into(),
        (2.0, 24.0, None),
        state(space, &numbers)?,
        |space, [q, r], scalars| space.sweep(cg::reduce, scalars, [AT.alpha], [&*q], [r], []),
        (&[1], &[]),
        move || {
            let [q, r] = &numbers[..] else { return Vec::new() };
            r.iter().zip(q).map(|(r, q)| r - ALPHA * q).collect()
        },
    ))
}

/// zⱼ = 2η A z̃ⱼ₋₁ − 2ζ zⱼ₋₁ − zⱼ₋₂: line 8 of Alg. 3.
fn basis<'k, S: Space + 'k>(space: &Rc<S>, case: &Case) -> Result<Kernel<'k>> {
    let numbers: Vec<Vec<f64>> = (48..52).map(|seed| Random(seed).numbers(case.rows())).collect();
    let kernel = Kernel::of(
        "recurrence of the basis".into(),
        (5.0, 32.0, Some([3.0, 24.0, 0.85])),
        state(space, &numbers)?,
        |space, [az, z, before, to], scalars| {
            let slots = [AT.alpha, AT.beta, AT.alpha];
            space.sweep(cbcg::later, scalars, slots, [&*az, &*z, &*before], [to], [])
        },
        (&[3], &[]),
        move || {
            let [az, z, before, _] = &numbers[..] else { return Vec::new() };
            (0..az.len()).map(|i| ALPHA * az[i] - BETA * z[i] - ALPHA * before[i]).collect()
        },
    );
    Ok(kernel.role(Role::Basis))
}
