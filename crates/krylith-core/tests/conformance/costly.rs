//! Preconditioners that are worth many products: how methods spare them, and the passes of cycles that march.

use super::method::{CG_FORMS, brief, symmetric};
use super::{BICGSTABS, Make, applied};
use crate::common::*;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::Csr;
use krylith_core::method::{Bicgstab, Cg, CgForm, CgOptions};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::precond::{BlockDiagonal, BlockJacobi, Coarsen, Multilevel, MultilevelOptions, Smoothing};
use krylith_core::space::Space;
use krylith_core::{Precision, Result, Stop};
use std::cell::Cell;

/// A preconditioner that counts its applications and says that each is worth many products. The last field is
/// true if its work may be recorded.
struct Costly<'a, S: Space>(&'a dyn LinearOperator<S>, Cell<usize>, bool);

impl<S: Space> LinearOperator<S> for Costly<'_, S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.1.set(self.1.get() + 1);
        self.0.apply(space, x, y)
    }
    fn key(&self) -> u64 {
        self.0.key()
    }
    fn bytes(&self) -> u64 {
        1 << 40
    }
    fn recordable(&self) -> bool {
        self.2
    }
}

/// Methods do not apply a costly preconditioner where the solve ends without it.
pub fn methods_spare_costly_preconditioners<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    cg_spares(make);
    bicgstab_spares(make);
}

/// Costly preconditioners give the same solutions in as many iterations, whatever ends a batch, and the last
/// iteration of a solve does not apply them.
fn cg_spares<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let n = 3000;
    let (matrix, rhs) = (symmetric(&mut Random(67), 1, n, 1.0), Random(68).numbers(n));
    let space = make(n);
    let a = PointBlock::bsr(&space, &matrix, Precision::F64).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::bsr(&matrix), Precision::F64).unwrap();
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&rhs, &mut b).unwrap();
    for form in CG_FORMS {
        for (rtol, max_iters) in [(1e-10, 1000), (1e-10, 7), (1e-10, 1), (2.0, 1000), (1e-30, 60)] {
            let costly = Costly(&jacobi, Cell::new(0), true);
            let apart = Costly(&jacobi, Cell::new(0), false);
            let mut answers = Vec::new();
            for p in [&jacobi as &dyn LinearOperator<S>, &costly, &apart] {
                let mut cg = Cg::new(&space, CgOptions { form }).unwrap();
                for _ in 0..2 {
                    space.write(&vec![0.0; n], &mut x).unwrap();
                    let stop = Stop { rtol, max_iters, atol: 0.0, ..Stop::DEFAULT };
                    let history = cg.solve(&space, &a, Some(p), &b, &mut x, &stop, &mut ()).unwrap();
                    let mut answer = vec![0.0; n];
                    space.read(&x, &mut answer).unwrap();
                    answers.push((history.clone(), answer));
                }
            }
            let (plain, spared) = (&answers[0], &answers[2]);
            assert!(answers[2] == answers[3], "{form}, {rtol:e}: a second solve differs");
            let text = format!("{form}, {rtol:e}: {} and {}", brief(&plain.0), brief(&spared.0));
            if rtol > 1e-20 {
                assert_eq!(plain.0.outcome, spared.0.outcome, "{text}");
                assert_eq!(plain.0.iterations, spared.0.iterations, "{text}");
                assert_eq!(spared.0.residuals.len(), spared.0.iterations + 1, "{text}");
                let difference: Vec<f64> = plain.1.iter().zip(&spared.1).map(|(x, y)| x - y).collect();
                assert!(norm(&difference) <= 1e-8 * norm(&plain.1), "{text}");
            } else {
                assert!(spared.0.true_relative_residual <= 4.0 * plain.0.true_relative_residual, "{text}");
            }
            assert_eq!(answers[4].0.iterations, spared.0.iterations, "{text}");
            // Of two solves; where work is recorded, calls are not applications.
            if form == CgForm::Textbook && max_iters == 1000 {
                assert_eq!(apart.1.get(), 2 * spared.0.iterations, "not recorded, {text}");
                let counts = space.pipeline_depth() == 0;
                assert!(!counts || costly.1.get() == apart.1.get(), "{text}");
            }
        }
    }
}

/// BiCGSTAB ends in the middle of an iteration if that meets the tolerance. Then an exact preconditioner is
/// applied once in a solve, and others give the same answers in at most as many iterations.
fn bicgstab_spares<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let n = 3000;
    let mut rng = Random(75);
    let number = |rng: &mut Random, i: usize, j: usize| (i as u32, j as u32, rng.number());
    let exact: Vec<_> = (0..n).map(|i| (i as u32, i as u32, 2.0 + rng.number().abs())).collect();
    let mut coupled: Vec<_> = exact.iter().map(|&(i, j, v)| (i, j, v + 2.0)).collect();
    for i in 0..n {
        coupled.extend([number(&mut rng, i, (i + 1) % n), number(&mut rng, i, (i + n - 7) % n)]);
    }
    let rhs = rng.numbers(n);
    for (triplets, is_exact) in [(exact, true), (coupled, false)] {
        let matrix = Csr::from_triplets(n, n, &triplets).unwrap();
        let space = make(n);
        let a = PointBlock::csr(&space, &matrix, Precision::F64).unwrap();
        let jacobi = BlockJacobi::new(&space, &Terms::csr(&matrix).unwrap(), Precision::F64).unwrap();
        let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&rhs, &mut b).unwrap();
        for options in BICGSTABS {
            for (rtol, max_iters) in [(1e-10, 1000), (1e-6, 1000), (1e-2, 1000), (1e-10, 3), (2.0, 1000)] {
                let costly = Costly(&jacobi, Cell::new(0), true);
                let apart = Costly(&jacobi, Cell::new(0), false);
                let mut histories = Vec::new();
                for p in [&jacobi as &dyn LinearOperator<S>, &costly, &apart] {
                    let mut bicgstab = Bicgstab::new(&space, options).unwrap();
                    space.write(&vec![0.0; n], &mut x).unwrap();
                    let stop = Stop { rtol, max_iters, atol: 0.0, ..Stop::DEFAULT };
                    let history = bicgstab.solve(&space, &a, Some(p), &b, &mut x, &stop, &mut ()).unwrap();
                    let mut answer = vec![0.0; n];
                    space.read(&x, &mut answer).unwrap();
                    let mut r = rhs.clone();
                    triplets.iter().for_each(|&(i, j, v)| r[i as usize] -= v * answer[j as usize]);
                    let relative = norm(&r) / norm(&rhs);
                    let said = history.true_relative_residual;
                    assert!((relative - said).abs() <= 1e-13, "{options:?}: {relative:e} is not {said:e}");
                    histories.push(history.clone());
                }
                let [plain, spared, unrecorded] = &histories[..] else { unreachable!() };
                let text = format!("{options:?}, {rtol:e}: {} and {}", brief(plain), brief(spared));
                assert_eq!(plain.outcome, spared.outcome, "{text}");
                assert_eq!(spared.residuals.len(), spared.iterations + 1, "{text}");
                assert_eq!((spared.iterations, spared.outcome), (unrecorded.iterations, unrecorded.outcome));
                assert!(spared.iterations <= plain.iterations, "{text}");
                let applied = apart.1.get();
                match is_exact && max_iters == 1000 && rtol < 1.0 {
                    true => assert_eq!((applied, spared.iterations), (1, 1), "{text}"),
                    false => assert!(applied <= 2 * spared.iterations, "{text}: applied {applied} times"),
                }
            }
        }
    }
}

/// Planes so large that products by diagonals advance from one to the next: a cycle equals that of the same
/// hierarchy on a CPU, with every polynomial.
pub fn cycles_on_large_planes<S: Coarsen>(make: Make<S>) {
    let (edge, planes) = (66, 5);
    let n = edge * edge * planes;
    let mut rng = Random(74);
    let mut triplets = Vec::new();
    for i in 0..n {
        triplets.push((i as u32, i as u32, 6.2));
        for (step, inside) in
            [(1, i % edge + 1 < edge), (edge, i / edge % edge + 1 < edge), (edge * edge, i + edge * edge < n)]
        {
            let v = -1.0 - 0.1 * rng.number();
            if inside {
                triplets.extend([(i as u32, (i + step) as u32, v), ((i + step) as u32, i as u32, v)]);
            }
        }
    }
    let a = Csr::from_triplets(n, n, &triplets).unwrap();
    let (terms, x) = (Terms::csr(&a).unwrap(), rng.numbers(n));
    let (space, host) = (make(n), Cpu::new(n, 1));
    let smoothers = [
        Smoothing::Jacobi { sweeps: 1 },
        Smoothing::Jacobi { sweeps: 3 },
        Smoothing::Chebyshev { degree: 1 },
        Smoothing::Chebyshev { degree: 2 },
        Smoothing::Chebyshev { degree: 4 },
    ];
    for smoothing in smoothers {
        let how = MultilevelOptions { smoothing, ..MultilevelOptions::default() };
        let here = applied(&space, &Multilevel::new(&space, &terms, how).unwrap(), &x);
        let expected = applied(&host, &Multilevel::new(&host, &terms, how).unwrap(), &x);
        let d = distance(&here, &expected);
        assert!(d <= 1e-12, "{smoothing:?}: {d:e}");
    }
}
