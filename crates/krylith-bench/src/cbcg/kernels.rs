//! Table III: each kernel of an iteration beside its roofline.
//!
//! Flops and bytes are counted for a cell, and for one of the s products of a step where a kernel serves all: what must be computed, and what must come from memory or go there once. The roofline is
//! the paper's, f/F + b/B, with B measured in the same run. On a CPU F is not known, and its part is left out.

use super::{Case, CbcgSuite, blocks, none, solves, tiles};
use crate::platform::Platform;
use crate::samples::{Samples, in_turn};
use crate::systems::Random;
use krylith::method::cg;
use krylith::operator::{Dots, LinearOperator, PointBlock, PointBlockSum};
use krylith::precond::TileFactors;
use krylith::space::{FLAGS, Space};
use krylith::{Error, Result, Store};
use std::cell::RefCell;
use std::rc::Rc;

/// What a device can do at most.
pub(super) struct Roof {
    /// Its name, and bytes a second.
    pub bandwidth: (&'static str, f64),
    /// Flops a second.
    pub peak: Option<f64>,
}

impl Roof {
    /// Seconds a cell.
    pub fn seconds(&self, row: &Row) -> f64 {
        self.peak.map_or(0.0, |peak| row.flops / peak) + row.bytes / self.bandwidth.1
    }
}

/// One kernel.
pub(super) struct Row {
    pub name: String,
    /// Flops and bytes a cell and product.
    pub flops: f64,
    pub bytes: f64,
    /// Flops, bytes and share of the roofline in the paper, where it has this kernel.
    pub paper: Option<[f64; 3]>,
    /// Cells times the products that share one run.
    pub cells: usize,
    pub samples: Samples,
    /// Largest relative difference from the host's loop, or what went wrong.
    pub check: std::result::Result<f64, String>,
}

/// A kernel on its own vectors.
pub(super) struct Kernel<'k> {
    pub name: String,
    /// Flops and bytes a cell and product.
    pub flops: f64,
    pub bytes: f64,
    pub paper: Option<[f64; 3]>,
    /// Products that share one run.
    pub products: usize,
    pub run: Box<dyn FnMut() -> Result<()> + 'k>,
    /// What it wrote: vectors, then sums.
    pub answer: Box<dyn FnMut() -> Result<Vec<f64>> + 'k>,
    /// The same by a loop on the host, from fresh inputs.
    pub expected: Box<dyn Fn() -> Vec<f64> + 'k>,
}

/// Slots of CG's scalars.
pub(super) const AT: cg::Scalars<usize, usize> = cg::Scalars::AT;
const ALPHA: f64 = 0.375;
const BETA: f64 = -0.625;

/// Checks the kernels on `small` and times them on `case`.
pub(super) fn measure<P: Platform>(p: &P, small: &Case, case: &Case, options: &CbcgSuite) -> Result<Vec<Row>>
where
    P::Space: TileFactors,
{
    let shapes = solves::shapes(options);
    let space = Rc::new(p.space(small.rows())?);
    let checks: Vec<std::result::Result<f64, String>> = all(&space, small, &shapes, true)?
        .iter_mut()
        .map(|kernel| check(kernel).map_err(|e| e.to_string()))
        .collect();
    let space = Rc::new(p.space(case.rows())?);
    let mut kernels = all(&space, case, &shapes, false)?;
    if kernels.len() != checks.len() {
        return Err(Error::invalid("the small case has other kernels than the large one"));
    }
    let right: Vec<usize> = (0..kernels.len()).filter(|&k| checks[k].is_ok()).collect();
    let samples = in_turn(right.len(), 2, options.repetitions, |k| p.time(&mut kernels[right[k]].run))?;
    let mut rows: Vec<Row> = kernels
        .into_iter()
        .zip(checks)
        .map(|(k, check)| Row {
            name: k.name,
            flops: k.flops,
            bytes: k.bytes,
            paper: k.paper,
            cells: case.rows() * k.products,
            samples: none(),
            check,
        })
        .collect();
    for (k, samples) in right.into_iter().zip(samples) {
        rows[k].samples = samples;
    }
    Ok(rows)
}

/// The largest difference from the host, relative to the largest number of the answer.
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

/// A kernel's vectors and scalars.
pub(super) struct State<S: Space> {
    vectors: Vec<S::Vector>,
    scalars: S::Scalars,
}

impl<S: Space> State<S> {
    pub fn parts(&mut self) -> (&mut [S::Vector], &mut S::Scalars) {
        (&mut self.vectors, &mut self.scalars)
    }
}

/// Vectors of random numbers, and scalars with α and β.
pub(super) fn state<S: Space>(space: &S, numbers: &[Vec<f64>]) -> Result<Rc<RefCell<State<S>>>> {
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
    Ok(Rc::new(RefCell::new(State { vectors, scalars })))
}

pub(super) fn read<S: Space>(
    space: &S,
    state: &State<S>,
    vectors: &[usize],
    slots: &[usize],
) -> Result<Vec<f64>> {
    let mut all = Vec::new();
    for &v in vectors {
        let mut host = vec![0.0; space.len()];
        space.read(&state.vectors[v], &mut host)?;
        all.extend(host);
    }
    for &slot in slots {
        let (mut value, mut flags) = ([0.0], [0; FLAGS]);
        space.read_scalars(&state.scalars, slot, &mut value, &mut flags)?;
        all.extend(value);
    }
    Ok(all)
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn all<'k, S: PointBlockSum + TileFactors + 'k>(
    space: &Rc<S>,
    case: &'k Case,
    shapes: &[[usize; 3]],
    check: bool,
) -> Result<Vec<Kernel<'k>>> {
    let mut all = vec![product(space, case)?, directions(space, case)?, residual(space, case)?];
    all.extend(tiles::all(space, case, shapes)?);
    all.extend(blocks::all(space, case, check)?);
    Ok(all)
}

/// q = A p with (p, q): line 3 and the first sum of line 4.
fn product<'k, S: PointBlockSum + 'k>(space: &Rc<S>, case: &'k Case) -> Result<Kernel<'k>> {
    let n = case.rows();
    let a = PointBlock::csr(space.as_ref(), &case.a, Store::F64)?;
    let x = Random(41).numbers(n);
    let held = state(space.as_ref(), &[x.clone(), vec![f64::NAN; n]])?;
    let bytes = a.bytes() as f64 / n as f64;
    let nonzeros = case.a.values().len() as f64 / n as f64;
    let fused = {
        let State { vectors, scalars } = &mut *held.borrow_mut();
        let [x, y] = &mut vectors[..] else { return Err(Error::invalid("two vectors")) };
        a.apply_with_dots(space, x, y, scalars, Dots::Xy(AT.pq))?
    };
    let (at, there, own) = (held.clone(), space.clone(), space.clone());
    Ok(Kernel {
        name: if fused { "SpMV with its dot".into() } else { "SpMV, then its dot".into() },
        flops: 2.0 * nonzeros - 1.0 + 2.0,
        bytes: bytes + if fused { 0.0 } else { 16.0 },
        paper: Some([15.0, 92.0, 0.90]),
        products: 1,
        run: Box::new(move || {
            let State { vectors, scalars } = &mut *held.borrow_mut();
            let [x, y] = &mut vectors[..] else { return Err(Error::invalid("two vectors")) };
            match a.apply_with_dots(&own, x, y, scalars, Dots::Xy(AT.pq))? {
                true => Ok(()),
                false => own.sweep(cg::curvature, scalars, [], [&*x, &*y], [], [AT.pq]),
            }
        }),
        answer: Box::new(move || read(there.as_ref(), &at.borrow(), &[1], &[AT.pq])),
        expected: Box::new(move || {
            let mut y: Vec<f64> = (0..n)
                .map(|i| case.a.row(i).0.iter().zip(case.a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum())
                .collect();
            y.push(dot(&x, &y));
            y
        }),
    })
}

/// x += α p, p = z + β p: lines 5 and 9.
fn directions<'k, S: Space + 'k>(space: &Rc<S>, case: &Case) -> Result<Kernel<'k>> {
    let n = case.rows();
    let numbers: Vec<Vec<f64>> = (42..45).map(|seed| Random(seed).numbers(n)).collect();
    let held = state(space.as_ref(), &numbers)?;
    let (at, there, own) = (held.clone(), space.clone(), space.clone());
    Ok(Kernel {
        name: "AXPYs of x and p".into(),
        flops: 4.0,
        bytes: 40.0,
        paper: Some([3.0, 24.0, 0.85]),
        products: 1,
        run: Box::new(move || {
            let State { vectors, scalars } = &mut *held.borrow_mut();
            let [z, x, p] = &mut vectors[..] else { return Err(Error::invalid("three vectors")) };
            own.sweep(cg::advance, scalars, [AT.alpha, AT.beta], [&*z], [x, p], [])
        }),
        answer: Box::new(move || read(there.as_ref(), &at.borrow(), &[1, 2], &[])),
        expected: Box::new(move || {
            let [z, x, p] = &numbers[..] else { return Vec::new() };
            let moved = x.iter().zip(p).map(|(x, p)| x + ALPHA * p);
            moved.chain(z.iter().zip(p).map(|(z, p)| z + BETA * p)).collect()
        }),
    })
}

/// r −= α q: line 6.
fn residual<'k, S: Space + 'k>(space: &Rc<S>, case: &Case) -> Result<Kernel<'k>> {
    let n = case.rows();
    let numbers: Vec<Vec<f64>> = (45..47).map(|seed| Random(seed).numbers(n)).collect();
    let held = state(space.as_ref(), &numbers)?;
    let (at, there, own) = (held.clone(), space.clone(), space.clone());
    Ok(Kernel {
        name: "AXPY of r".into(),
        flops: 2.0,
        bytes: 24.0,
        paper: None,
        products: 1,
        run: Box::new(move || {
            let State { vectors, scalars } = &mut *held.borrow_mut();
            let [q, r] = &mut vectors[..] else { return Err(Error::invalid("two vectors")) };
            own.sweep(cg::reduce, scalars, [AT.alpha], [&*q], [r], [])
        }),
        answer: Box::new(move || read(there.as_ref(), &at.borrow(), &[1], &[])),
        expected: Box::new(move || {
            let [q, r] = &numbers[..] else { return Vec::new() };
            r.iter().zip(q).map(|(r, q)| r - ALPHA * q).collect()
        }),
    })
}
