//! Cycles that store their matrices and transfers in bf16: they are near those in f64 and those of the host,
//! take about as many iterations, and stay in f32 where bf16 does not suit a level.

use super::multilevel::{diffusion, options};
use super::{Make, applied};
use crate::common::*;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::{Cg, CgOptions};
use krylith_core::operator::{PointBlock, TermValues, Terms};
use krylith_core::precond::{
    Coarsen, CoarsenKind, Multilevel, MultilevelOptions, PrecondInfo, Smoothing, Value,
};
use krylith_core::space::History;
use krylith_core::{Options, Outcome, Precision, PrecondPrecision, Problem, Solver, Stop};

const SMOOTHERS: [Smoothing; 4] = [
    Smoothing::Jacobi { sweeps: 1 },
    Smoothing::Jacobi { sweeps: 3 },
    Smoothing::Chebyshev { degree: 2 },
    Smoothing::Chebyshev { degree: 4 },
];

/// Largest distance of a cycle from that of the host, which rounds f32 in another order.
const F32: f64 = 3e-6;
/// Largest distance of a cycle from that in f64. Entries have errors of up to 2⁻⁸.
const BF16: f64 = 2e-2;

fn triples(a: &Csr) -> impl Iterator<Item = (usize, usize, f64)> + '_ {
    (0..a.rows()).flat_map(move |i| {
        (a.row_ptr()[i]..a.row_ptr()[i + 1]).map(move |e| (i, a.col()[e] as usize, a.values()[e]))
    })
}

/// The matrix with each entry changed.
fn changed(a: &Csr, change: impl Fn(usize, usize, f64) -> f64) -> Csr {
    let values = triples(a).map(|(i, j, v)| change(i, j, v)).collect();
    Csr::new(a.rows(), a.columns(), a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap()
}

/// Diffusion between the cells of a box, with Dirichlet values at both ends of x where `shift` is not 0, and
/// with an upwinded flow along x. Couplings are not exact in bf16.
fn flow([nx, ny, nz]: [usize; 3], shift: f64, wind: f64) -> Csr {
    let (n, mut rng) = (nx * ny * nz, Random(83));
    let (mut triplets, mut diagonal) = (Vec::new(), vec![0.0; n]);
    for i in 0..n {
        let at = [i % nx, i / nx % ny, i / nx / ny];
        for (axis, (step, sides)) in [(1, nx), (nx, ny), (nx * ny, nz)].into_iter().enumerate() {
            if at[axis] + 1 < sides {
                let (v, more) = (0.5 + rng.number().abs(), if axis == 0 { wind } else { 0.0 });
                let (i, j) = (i as u32, (i + step) as u32);
                triplets.extend([(i, j, -v), (j, i, -v - more)]);
                diagonal[i as usize] += v;
                diagonal[j as usize] += v + more;
            }
        }
        if at[0] == 0 || at[0] + 1 == nx {
            diagonal[i] += shift;
        }
    }
    triplets.extend(diagonal.iter().enumerate().map(|(i, d)| (i as u32, i as u32, *d)));
    Csr::from_triplets(n, n, &triplets).unwrap()
}

/// A graph Laplacian of random edges. Node 0 is next to all others, so its row is long.
fn hub(n: usize) -> Csr {
    let (mut rng, mut triplets) = (Random(84), Vec::new());
    let mut diagonal = vec![1e-2; n];
    for i in 1..n {
        for j in [0, (i * 7 + 3) % n, (i * 13 + 5) % n] {
            if i != j {
                let v = (0.5 + rng.number().abs()) / if j == 0 { n as f64 } else { 1.0 };
                triplets.extend([(i as u32, j as u32, -v), (j as u32, i as u32, -v)]);
                diagonal[i] += v;
                diagonal[j] += v;
            }
        }
    }
    triplets.extend(diagonal.iter().enumerate().map(|(i, d)| (i as u32, i as u32, *d)));
    Csr::from_triplets(n, n, &triplets).unwrap()
}

fn in_bf16(how: MultilevelOptions) -> MultilevelOptions {
    MultilevelOptions { compute: PrecondPrecision::Bf16, ..how }
}

/// Compares cycles in bf16 with those in f64, and with those of the host number by number: by diagonals, half
/// and whole, on planes small and large; by rows, short and long; at any scale.
pub fn cycles_in_bf16<S: Coarsen + 'static>(make: Make<S>) {
    if !make(1).computes_in_f32() {
        return;
    }
    let on_host = make(1).pipeline_depth() == 0;
    let small = [diffusion(16, 1e3), diffusion(7, 10.0), flow([9, 8, 7], 0.3, 0.4), hub(3000)];
    let large = [flow([80, 64, 4], 0.3, 0.0), flow([80, 64, 4], 0.3, 0.2)];
    let all = small.iter().map(|a| (a, &SMOOTHERS[..])).chain(large.iter().map(|a| (a, &SMOOTHERS[2..3])));
    for (m, (a, smoothers)) in all.enumerate() {
        let n = a.rows();
        let (space, host, x) = (make(n), Cpu::new(n, 1), Random(85).numbers(n));
        for kind in [CoarsenKind::Classical, CoarsenKind::Aggregation { smoothed: true }] {
            for &smoothing in smoothers {
                for (of_a, of_x) in [(0, 0), (600, 0), (300, -500)] {
                    let [of_a, of_x] = [of_a, of_x].map(|e: i32| 2f64.powi(e));
                    let terms = Terms::csr(&changed(a, |_, _, v| v * of_a)).unwrap();
                    let x: Vec<f64> = x.iter().map(|v| v * of_x).collect();
                    let how = MultilevelOptions { smoothing, coarsest: 40, ..options(kind) };
                    let wide = Multilevel::new(&space, &terms, how).unwrap();
                    let short = Multilevel::new(&space, &terms, in_bf16(how)).unwrap();
                    let twin = Multilevel::new(&host, &terms, in_bf16(how)).unwrap();
                    let what = format!("matrix {m}, {kind:?}, {smoothing:?}, {of_a:e}, {of_x:e}");
                    let [levels, with_matrix] = short.in_bf16();
                    // The smallest levels of smoothed aggregation have many rows near boundary values.
                    let enough = levels == with_matrix || (kind != CoarsenKind::Classical && levels > 0);
                    assert!(short.is_narrow() && enough, "{what}: {levels} of {with_matrix}");
                    assert_eq!((short.in_bf16(), wide.in_bf16()), (twin.in_bf16(), [0, 0]), "{what}");
                    let [wide, once, again] = [&wide, &short, &short].map(|p| applied(&space, p, &x));
                    let twin = applied(&host, &twin, &x);
                    // Norms of such numbers would overflow.
                    let near_one = |y: &[f64]| y.iter().map(|v| v * of_a / of_x).collect::<Vec<_>>();
                    let [d, of_host] = [&wide, &twin].map(|y| distance(&near_one(&once), &near_one(y)));
                    assert!(d <= BF16 && d > 1e-5, "{what}: {d:e}");
                    assert!(of_host <= F32 && (!on_host || of_host == 0.0), "{what}: {of_host:e}");
                    assert_eq!(once, again, "{what}");
                }
            }
        }
    }
    linear(make);
    refresh(make);
    promotion(make);
}

/// The map is linear and symmetric up to rounding in f32, as a flexible method need not follow.
fn linear<S: Coarsen + 'static>(make: Make<S>) {
    let a = flow([13, 11, 12], 0.3, 0.0);
    let n = a.rows();
    let space = make(n);
    let p = Multilevel::new(&space, &Terms::csr(&a).unwrap(), in_bf16(options(CoarsenKind::Classical)));
    let p = p.unwrap();
    let [u, v] = [86, 87].map(|seed| Random(seed).numbers(n));
    let both: Vec<f64> = u.iter().zip(&v).map(|(u, v)| 3.0 * u - 0.7 * v).collect();
    let [pu, pv, sum] = [&u, &v, &both].map(|x| applied(&space, &p, x));
    let expected: Vec<f64> = pu.iter().zip(&pv).map(|(u, v)| 3.0 * u - 0.7 * v).collect();
    let d = distance(&sum, &expected);
    assert!(d <= F32, "{d:e}");
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let [left, right] = [dot(&u, &pv), dot(&v, &pu)];
    let size = (dot(&u, &pu) * dot(&v, &pv)).sqrt();
    assert!((left - right).abs() <= F32 * size, "{left} and {right}, {size}");
}

/// New values give the cycle of a new hierarchy with the same P. A level that bf16 does not suit any more is
/// in f32 from then on, and in bf16 again after values that it suits.
fn refresh<S: Coarsen + 'static>(make: Make<S>) {
    let a = flow([14, 12, 10], 0.3, 0.0);
    let (n, how) = (a.rows(), in_bf16(options(CoarsenKind::Classical)));
    let space = make(n);
    let mut p = Multilevel::new(&space, &Terms::csr(&a).unwrap(), how).unwrap();
    let suited = p.in_bf16();
    let x = Random(88).numbers(n);
    // Graded numbers: constant vectors are far from the near-null space.
    let size = |i: usize| 1.6f64.powi((i % 14) as i32 % 7);
    let others = [
        (changed(&a, |_, _, v| 3.1 * v), true),
        (changed(&a, |i, j, v| v * size(i) * size(j)), false),
        (changed(&a, |_, _, v| 0.2 * v), true),
    ];
    for (k, (other, suits)) in others.iter().enumerate() {
        let terms = Terms::csr(other).unwrap();
        p.update_values(&terms, TermValues::from(&terms)).unwrap();
        assert!(p.is_narrow(), "{k}");
        assert_eq!(p.in_bf16() == suited, *suits, "{k}: {:?}", p.in_bf16());
        let exact = Multilevel::new(&space, &terms, MultilevelOptions { ..options(CoarsenKind::Classical) });
        let d = distance(&applied(&space, &p, &x), &applied(&space, &exact.unwrap(), &x));
        // P of the first values differs from that of graded ones.
        assert!(!suits || d <= BF16, "{k}: {d:e}");
        if *suits {
            let fresh = Multilevel::new(&space, &terms, how).unwrap();
            let d = distance(&applied(&space, &p, &x), &applied(&space, &fresh, &x));
            assert!(d <= F32, "{k}: {d:e}");
        }
    }
}

/// Graded rows are in f32, and beyond its range in f64.
fn promotion<S: Coarsen + 'static>(make: Make<S>) {
    let a = flow([12, 11, 10], 0.3, 0.0);
    let n = a.rows();
    for (decades, narrow) in [(4.0, true), (30.0, false)] {
        let size = |i: usize| 10f64.powf(decades * (0.5 - (i % 12) as f64 / 11.0));
        let graded = changed(&a, |i, j, v| v * size(i) * size(j));
        let (space, terms, x) = (make(n), Terms::csr(&graded).unwrap(), Random(89).numbers(n));
        let made = |compute| {
            let how = MultilevelOptions { compute, ..MultilevelOptions::default() };
            Multilevel::new(&space, &terms, how).unwrap()
        };
        let short = made(PrecondPrecision::Bf16);
        assert_eq!((short.is_narrow(), short.in_bf16()[0]), (narrow, 0), "{decades}");
        let same = made(if narrow { PrecondPrecision::F32 } else { PrecondPrecision::F64 });
        assert_eq!(applied(&space, &short, &x), applied(&space, &same, &x), "{decades}");
    }
}

fn solved<S: Coarsen + 'static>(make: Make<S>, a: &Csr, compute: PrecondPrecision) -> (History, f64) {
    let (n, terms) = (a.rows(), Terms::csr(a).unwrap());
    let space = make(n);
    let p = Multilevel::new(&space, &terms, MultilevelOptions { compute, ..MultilevelOptions::default() });
    let (p, operator) = (p.unwrap(), PointBlock::csr(&space, a, Precision::F64).unwrap());
    let exact = Random(90).numbers(n);
    let b = times(a, &exact);
    let mut cg = Cg::new(&space, CgOptions::default()).unwrap();
    let (mut of_b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&b, &mut of_b).unwrap();
    let stop = Stop { rtol: 1e-10, ..Stop::DEFAULT };
    let history = cg.solve(&space, &operator, Some(&p), &of_b, &mut x, &stop, &mut ()).unwrap().clone();
    let mut found = vec![0.0; n];
    space.read(&x, &mut found).unwrap();
    let residual = distance(&times(a, &found), &b);
    (history, residual)
}

/// CG takes about as many iterations as with cycles in f64: for constant coefficients, for others that are
/// not exact in bf16, with large contrasts, and for row sums of 0, where rounded diagonals would make A
/// indefinite.
pub fn bf16_costs_few_iterations<S: Coarsen + 'static>(make: Make<S>) {
    if !make(1).computes_in_f32() {
        return;
    }
    let uneven = |a: &Csr| changed(a, |_, _, v| v / 3.0);
    let systems = [
        ("constant", diffusion(24, 1.0)),
        ("thirds", uneven(&diffusion(24, 1.0))),
        ("random", flow([26, 24, 22], 0.3, 0.0)),
        ("contrast", diffusion(20, 1e4)),
        ("Neumann", flow([24, 22, 20], 0.0, 0.0)),
        ("nearly Neumann", flow([24, 22, 20], 1e-5, 0.0)),
        ("hub", hub(4000)),
    ];
    for (name, a) in &systems {
        let [(wide, _), (short, residual)] =
            [PrecondPrecision::F64, PrecondPrecision::Bf16].map(|compute| solved(make, a, compute));
        let (most, many) = (wide.iterations, short.iterations);
        assert_eq!((wide.outcome, short.outcome), (Outcome::Converged, Outcome::Converged), "{name}");
        assert!(residual <= 1.01e-10, "{name}: {residual:e}");
        assert!(many <= most + most.div_ceil(5), "{name}: {many} and {most}");
    }
}

fn told(info: &PrecondInfo, precision: &str) -> bool {
    fn any(parameters: &[(String, Value)], precision: &str) -> bool {
        parameters.iter().any(|(name, value)| match value {
            Value::Text(text) => name == "compute" && text == precision,
            Value::Parameters(of) => any(of, precision),
            _ => false,
        })
    }
    any(&info.parameters, precision)
}

/// Whole solves with `precond_precision=bf16`: every preconditioner is possible, reports say what is in f32
/// and why, answers are certified, and scale does not matter.
pub fn solves_in_bf16(device: &str) {
    let a = flow([16, 15, 14], 0.3, 0.0);
    let graded = {
        let size = |i: usize| 10f64.powf(0.5 - (i % 16) as f64 / 15.0);
        changed(&a, |i, j, v| v * size(i) * size(j))
    };
    let solve_in = |precision: &str, a: &Bsr, rest: &str| {
        let text = format!("device={device} precond_precision={precision} rtol=1e-9 {rest}");
        let exact = Random(91).numbers(a.rows());
        let (b, options): (_, Options) = (times_blocks(a, &exact), text.parse().unwrap());
        let (problem, mut x) = (Problem::bsr(a).unwrap(), vec![0.0; a.rows()]);
        let solution = Solver::new(&problem, &options).unwrap().solve(&b, &mut x).unwrap().clone();
        let d = distance(&x, &exact);
        assert!(solution.converged() && d <= 1e-5, "{rest}: {:?}, {d:e}", solution.outcome());
        (solution.precond.clone(), solution.history.iterations, x)
    };
    let solve = |a: &Bsr, rest: &str| solve_in("bf16", a, rest);
    let of = |a: &Csr| {
        Bsr::new(1, a.rows(), a.columns(), a.row_ptr().to_vec(), a.col().to_vec(), a.values().to_vec())
    };
    let plain = of(&a).unwrap();
    for factor in [1.0, 1e200, 1e-200] {
        let scaled = of(&changed(&a, |_, _, v| v * factor)).unwrap();
        let (info, many, x) = solve(&scaled, "method=cg precond=amg");
        assert!(told(&info, "bf16"), "{factor:e}: {:?}", info.parameters);
        let (_, most, _) = solve_in("f64", &scaled, "method=cg precond=amg");
        assert!(many <= most + most.div_ceil(5), "{factor:e}: {many} and {most}");
        let (_, again, y) = solve(&scaled, "method=cg precond=amg deterministic=true");
        assert_eq!((again, y), (many, x), "{factor:e}");
    }
    let (info, ..) = solve(&of(&graded).unwrap(), "method=cg precond=amg");
    let says = |info: &PrecondInfo, words: &str| info.details.iter().any(|line| line.contains(words));
    assert!(says(&info, "in f32, because rounding to bf16 would change the diagonals"), "{:?}", info.details);
    for precond in ["ildu", "ras:overlap=1"] {
        let (info, ..) = solve(&plain, &format!("method=gmres precond={precond}"));
        assert!(told(&info, "f32") && says(&info, "factors have no form in bf16"), "{precond}: {info:?}");
    }
    for precond in ["jacobi", "ildu+amg", "amg then jacobi", "chebyshev(amg; degree=2)"] {
        let (info, ..) = solve(&plain, &format!("method=gmres precond={precond}"));
        assert_eq!(told(&info, "bf16"), precond != "jacobi", "{precond}: {info:?}");
    }
    // Blocks stay in f32 on a GPU and in f64 on a CPU.
    let block = |v: f64| (0..4).map(move |e| v * if e % 3 == 0 { 1.2 } else { 0.2 });
    let values = a.values().iter().flat_map(|v| block(*v)).collect();
    let blocks = Bsr::new(2, a.rows(), a.columns(), a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap();
    let (info, ..) = solve(&blocks, "method=cg precond=amg");
    assert!(
        !told(&info, "bf16") && (says(&info, "no form in bf16") || says(&info, "computed in f64")),
        "{info:?}"
    );
}
