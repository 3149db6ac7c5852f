//! Transposes on any device: of products, of every preconditioner, and whole solves with Aᵀ.

use super::fields::{options, staggered_stokes};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Butcher, Csr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::split;
use krylith_core::{Field, Outcome, Problem, Result, Solver};

/// An operator or its transpose, applied by a solver.
type Apply<'a> = &'a mut dyn FnMut(&mut Solver, bool, &[f64], &mut [f64]) -> Result<()>;

fn by_matrix(solver: &mut Solver, turned: bool, x: &[f64], y: &mut [f64]) -> Result<()> {
    if turned { solver.multiply_transposed(x, y) } else { solver.multiply(x, y) }
}

fn by_precond(solver: &mut Solver, turned: bool, x: &[f64], y: &mut [f64]) -> Result<()> {
    if turned { solver.precondition_transposed(x, y) } else { solver.precondition(x, y) }
}

/// The largest difference between an operator's transpose and its dense transpose, relative to its largest
/// entry. Every column of both is computed.
fn defect(solver: &mut Solver, n: usize, apply: Apply<'_>) -> f64 {
    let mut both = [Mat::zeros(n, n), Mat::zeros(n, n)];
    for (turned, to) in [false, true].into_iter().zip(&mut both) {
        for j in 0..n {
            let (mut x, mut y) = (vec![0.0; n], vec![f64::NAN; n]);
            x[j] = 1.0;
            apply(solver, turned, &x, &mut y).unwrap();
            (0..n).for_each(|i| to[(i, j)] = y[i]);
        }
    }
    let all = || (0..n * n).map(|e| (e / n, e % n));
    let largest = all().map(|e| both[0][e].abs()).fold(0.0, f64::max);
    assert!(largest > 0.0 && largest.is_finite(), "the operator is zero or not finite");
    all().map(|(i, j)| (both[0][(i, j)] - both[1][(j, i)]).abs()).fold(0.0, f64::max) / largest
}

fn assert_transposed(solver: &mut Solver, n: usize, most: f64, what: &str) {
    let matrix = defect(solver, n, &mut by_matrix);
    assert!(matrix <= 1e-15, "{what}: the product with the transpose differs by {matrix:e}");
    let precond = defect(solver, n, &mut by_precond);
    assert!(precond <= most, "{what}: the transposed preconditioner differs by {precond:e}");
}

/// New values of a matrix, with the same dominant diagonal blocks.
fn new_values(rng: &mut Random, a: &Bsr) -> Bsr {
    let mut new = a.clone();
    new.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.2 * rng.number());
    new
}

/// Preconditioners for blocks of any size.
const PRECONDS: [&str; 12] = [
    "none",
    "jacobi",
    "jacobi:block=1",
    "lu",
    "chebyshev(jacobi; degree=3)",
    "jacobi + lu",
    "jacobi:block=1 then lu",
    "lu then jacobi:block=1",
    "symmetric(jacobi then jacobi:block=1)",
    "ildu:rows=8",
    "ildu:rows=8,fill=1,shift=1e-3",
    "ras:overlap=1,solve=exact",
];

/// All of these checks on one device, or those for several devices of one process.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "the host runs them one by one"))]
pub fn all(device: &str) {
    transposes_across_devices(device);
    if !device.contains(',') {
        transposes_of_blocks(device);
        transposes_of_hierarchies(device);
        transposes_of_coupled_systems(device);
        transposed_systems_are_solved(device);
        transposes_that_need_nothing_or_do_not_exist(device);
    }
}

/// Preconditioners that devices of one process share.
pub fn transposes_across_devices(device: &str) {
    let mut rng = Random(96);
    let a = Bsr::from_csr(&convection_diffusion(12), 1).unwrap();
    for precond in ["none", "jacobi", "ildu:rows=16", "ras:overlap=1,solve=exact", "amg:coarsest=10"] {
        let mut solver =
            Solver::new(Problem::bsr(&a).unwrap().into_owned(), &options(device, precond)).unwrap();
        assert_transposed(&mut solver, a.rows(), 1e-12, &format!("{device}, {precond}"));
        solver.update_values(new_values(&mut rng, &a).values()).unwrap();
        assert_transposed(&mut solver, a.rows(), 1e-12, &format!("{device}, {precond}, new values"));
    }
}

/// Products and preconditioners of matrices whose pattern is not symmetric, for blocks of 1 to 8, with new
/// values and in f32.
pub fn transposes_of_blocks(device: &str) {
    let mut rng = Random(91);
    for b in 1..=8 {
        let n = 24 / b + 2;
        let a = random_bsr(&mut rng, b, n, n, 3, true);
        for precond in PRECONDS {
            for more in ["", " equilibrate=true", " precision=f32"] {
                let what = format!("b={b}, {precond}{more}");
                let problem = Problem::bsr(&a).unwrap().into_owned();
                let options = options(device, &format!("{precond}{more}"));
                let mut solver = Solver::new(problem, &options).unwrap();
                assert_transposed(&mut solver, n * b, 1e-13, &what);
                solver.update_values(new_values(&mut rng, &a).values()).unwrap();
                assert_transposed(&mut solver, n * b, 1e-13, &format!("{what}, new values"));
            }
        }
    }
}

/// Every kind of hierarchy, for a matrix that is not symmetric, and for blocks.
pub fn transposes_of_hierarchies(device: &str) {
    let mut rng = Random(92);
    let scalar = Bsr::from_csr(&convection_diffusion(10), 1).unwrap();
    let blocks = {
        let (n, b) = (scalar.block_rows(), 2);
        let mut values = Vec::new();
        for (i, row) in (0..n).map(|i| (i, scalar.row_ptr()[i]..scalar.row_ptr()[i + 1])) {
            for p in row {
                let (v, own) = (scalar.values()[p], scalar.col()[p] as usize == i);
                values.extend([v, 0.1 * rng.number(), 0.1 * rng.number(), v * if own { 1.2 } else { 1.0 }]);
            }
        }
        Bsr::new(b, n, n, scalar.row_ptr().to_vec(), scalar.col().to_vec(), values).unwrap()
    };
    let both = [
        "amg",
        "amg:coarsen=smoothed",
        "amg:coarsen=aggregation,cycle=w",
        "amg:smoother=jacobi,sweeps=2",
        "amg:smoother=ildu",
    ];
    let lone = ["amg:coarsen=air", "amg:coarsen=air,levels=2,coarsest=4", "amg:smoother=chebyshev,degree=3"];
    for (a, preconds) in [(&scalar, [&both[..], &lone[..]].concat()), (&blocks, both.to_vec())] {
        for precond in preconds {
            let mark = if precond.contains(':') { "," } else { ":" };
            let precond = match precond.contains("coarsest") {
                true => precond.to_string(),
                false => format!("{precond}{mark}coarsest=10"),
            };
            let n = a.rows();
            let mut solver = Solver::new(Problem::bsr(a).unwrap().into_owned(), &options(device, &precond));
            let solver = solver.as_mut().unwrap_or_else(|e| panic!("{precond}: {e}"));
            assert_transposed(solver, n, 1e-12, &precond);
            solver.update_values(new_values(&mut rng, a).values()).unwrap();
            assert_transposed(solver, n, 1e-12, &format!("{precond}, new values"));
        }
    }
}

/// Splits, corrections, matched rows and stages.
pub fn transposes_of_coupled_systems(device: &str) {
    let mut rng = Random(93);
    let (stokes, _) = staggered_stokes(4);
    for precond in [
        "split(u: jacobi, p: jacobi; form=lower, S=Mp)",
        "split(u: jacobi, p: jacobi; form=upper, S=Mp)",
        "split(u: lu, p: jacobi; schur=full, S=Mp)",
        "split(u: jacobi, p: jacobi; form=diagonal, S=Mp)",
        "split(u: amg:coarsest=4, p: lu; form=simple, S=selfp)",
        "split(u: lu, p: lu; S=lsc)",
        "vanka:kind=diagonal",
    ] {
        let mut solver = Solver::new(stokes.clone(), &options(device, precond));
        let solver = solver.as_mut().unwrap_or_else(|e| panic!("{precond}: {e}"));
        let n = stokes.unknowns();
        assert_transposed(solver, n, 1e-12, precond);
        let values: Vec<f64> = stokes.terms().terms()[0].1.values().iter().map(|v| 1.5 * v).collect();
        solver.update_values(&values).unwrap();
        assert_transposed(solver, n, 1e-12, &format!("{precond}, new values"));
    }
    let cells = 10;
    let a = random_bsr(&mut rng, 3, cells, cells, 3, true);
    let fields: Vec<Field> =
        ["p", "s", "t"].iter().zip(0..).map(|(name, c)| Field::strided(name, c..3 * cells, 3)).collect();
    let coarse: Vec<_> = (0..3 * cells as u32).map(|i| (i, i / 5, 1.0 + rng.number().abs())).collect();
    let coarse = Csr::from_triplets(3 * cells, 6, &coarse).unwrap();
    for precond in [
        "cpr(p: jacobi) then jacobi",
        "cpr(p: lu; decouple=row-sums) + jacobi:block=1",
        "aux(P: lu) then jacobi",
        "split(p: lu, s: jacobi, t: lu; form=full)",
        "jacobi matching=on",
        "chebyshev(jacobi; degree=2) matching=on",
    ] {
        let problem = Problem::bsr(&a).unwrap().into_owned().with_fields(fields.clone()).unwrap();
        let problem = problem.with_matrix("P", coarse.clone()).unwrap();
        let mut solver = Solver::new(problem, &options(device, precond));
        let solver = solver.as_mut().unwrap_or_else(|e| panic!("{precond}: {e}"));
        assert_transposed(solver, 3 * cells, 1e-12, precond);
        solver.update_values(new_values(&mut rng, &a).values()).unwrap();
        assert_transposed(solver, 3 * cells, 1e-12, &format!("{precond}, new values"));
    }
    for (b, s) in [(1, 2), (2, 3), (3, 1)] {
        let n = 8;
        let [m, l] = [(); 2].map(|()| random_bsr(&mut rng, b, n, n, 3, true));
        let radau = Butcher::by_name(&format!("radau-iia-{s}")).map_or(Dense::identity(s), |table| table.a);
        let sum = KroneckerSum::new(Dense::identity(s), radau, 0.25, m, l).unwrap();
        for precond in ["jacobi", "lu", "stage(jacobi)", "stage(lu)", "amg:coarsest=4"] {
            let problem = Problem::kronecker(&sum).unwrap().into_owned();
            let mut solver = Solver::new(problem, &options(device, precond)).unwrap();
            let what = format!("b={b}, {s} stages, {precond}");
            assert_transposed(&mut solver, n * b * s, 1e-12, &what);
            solver.set_tau(0.5).unwrap();
            assert_transposed(&mut solver, n * b * s, 1e-12, &format!("{what}, new τ"));
        }
    }
}

/// Over 1 to 4 ranks, ⟨M x, y⟩ = ⟨x, Mᵀ y⟩ and ⟨A x, y⟩ = ⟨x, Aᵀ y⟩, for any partition.
pub fn ranks_transpose_as_one(device: &str) {
    let mut rng = Random(94);
    for (b, nodes, preconds) in [
        (
            1,
            100,
            &[
                "none",
                "jacobi",
                "ildu:rows=10",
                "ras:overlap=1,solve=exact",
                "amg:coarsest=10",
                "amg:coarsen=smoothed,coarsest=10",
            ][..],
        ),
        (3, 24, &["jacobi", "jacobi:block=1 then jacobi", "chebyshev(jacobi; degree=3)"][..]),
    ] {
        let a = match b {
            1 => Bsr::from_csr(&convection_diffusion(10), 1).unwrap(),
            b => random_bsr(&mut rng, b, nodes, nodes, 4, true),
        };
        let n = nodes * b;
        let (x, y) = (rng.numbers(n), rng.numbers(n));
        let exact = {
            let product = times_blocks(&a, &x);
            dot(&product, &y)
        };
        for ranks in 1..=4 {
            for (what, partition) in super::distributed::partitions(nodes, ranks) {
                let parts = split(&Terms::bsr(&a), &partition).unwrap();
                for precond in preconds {
                    let sums = Team::run(ranks, |comm| {
                        let part = parts[comm.rank()].clone();
                        let own: Vec<usize> =
                            part.rows.iter().flat_map(|&i| i as usize * b..(i as usize + 1) * b).collect();
                        let pick = |v: &[f64]| own.iter().map(|&i| v[i]).collect::<Vec<f64>>();
                        let (x, y) = (pick(&x), pick(&y));
                        let mut solver =
                            Solver::new(Problem::part(comm.clone(), part)?, &options(device, precond))?;
                        let mut to = vec![f64::NAN; own.len()];
                        let mut sums = Vec::new();
                        let appliers: [Apply<'_>; 2] = [&mut by_matrix, &mut by_precond];
                        for apply in appliers {
                            apply(&mut solver, false, &x, &mut to)?;
                            sums.push(dot(&to, &y));
                            apply(&mut solver, true, &y, &mut to)?;
                            sums.push(dot(&to, &x));
                        }
                        comm.sum(&mut sums)?;
                        Ok(sums)
                    });
                    let what = format!("b={b}, {ranks} ranks, {what}, {precond}");
                    let sums = sums.unwrap_or_else(|e| panic!("{what}: {e}"));
                    let [ax, aty, mx, mty] = sums[0][..] else { panic!("{what}: sums are missing") };
                    let size = norm(&x) * norm(&y);
                    assert!((ax - exact).abs() <= 1e-12 * size, "{what}: ⟨A x, y⟩ {ax} for {exact}");
                    assert!((aty - exact).abs() <= 1e-12 * size, "{what}: ⟨x, Aᵀ y⟩ {aty} for {exact}");
                    assert!((mx - mty).abs() <= 1e-12 * size, "{what}: ⟨M x, y⟩ {mx}, ⟨x, Mᵀ y⟩ {mty}");
                }
            }
        }
    }
}

/// Solves with Aᵀ, again with new values, from the set-up for A; with methods of all kinds.
pub fn transposed_systems_are_solved(device: &str) {
    let mut rng = Random(95);
    let a = Bsr::from_csr(&convection_diffusion(16), 1).unwrap();
    let n = a.rows();
    for more in [
        "",
        "method=gmres precond=jacobi",
        "method=bicgstab precond=amg",
        "precond=ildu",
        "precond=ras:solve=exact",
        "method=fgmres precond=amg:coarsen=air",
        "precond=lu",
        "precision=f32 precond=jacobi",
    ] {
        let options = format!("device={device} rtol=1e-9 {more}").parse().unwrap();
        let mut solver = Solver::new(Problem::bsr(&a).unwrap().into_owned(), &options).unwrap();
        let mut current = a.clone();
        for round in 0..3 {
            let turned = Csr::from_triplets(n, n, &{
                let of = |i: usize| {
                    let row = current.row_ptr()[i]..current.row_ptr()[i + 1];
                    let entries = row.map(|p| (current.col()[p], i as u32, current.values()[p]));
                    entries.collect::<Vec<_>>()
                };
                (0..n).flat_map(of).collect::<Vec<_>>()
            })
            .unwrap();
            let (b, mut x) = (rng.numbers(n), vec![0.0; n]);
            let solution = solver.solve_transposed(&b, &mut x).unwrap();
            assert_eq!(solution.outcome(), Outcome::Converged, "{more}, round {round}: {solution:?}");
            let found = relative_residual(&turned, &b, &x);
            assert!(found <= 1.01e-9, "{more}, round {round}: {found:e}");
            let mut y = vec![0.0; n];
            assert!(solver.solve(&b, &mut y).unwrap().converged());
            assert!(relative_residual(&current.to_csr(), &b, &y) <= 1.01e-9, "{more}, round {round}");
            current = new_values(&mut rng, &a);
            solver.update_values(current.values()).unwrap();
        }
    }
}

/// A symmetric matrix needs no adjoint; what has no transpose is refused, and `auto` finds another way.
pub fn transposes_that_need_nothing_or_do_not_exist(device: &str) {
    let mut entries = Vec::new();
    for i in 0..60u32 {
        entries.extend([(i, i, 2.5), (i, (i + 1) % 60, -1.0), ((i + 1) % 60, i, -1.0)]);
    }
    let a = Csr::from_triplets(60, 60, &entries).unwrap();
    let b: Vec<f64> = (0..60).map(|i| f64::from(i % 7) - 3.0).collect();
    let mut solver = Solver::new(&a, &options(device, "cg(jacobi)")).unwrap();
    let (mut x, mut y) = (vec![0.0; 60], vec![0.0; 60]);
    assert!(solver.solve(&b, &mut x).unwrap().converged());
    assert!(solver.solve_transposed(&b, &mut y).unwrap().converged());
    assert_eq!(x, y, "a symmetric matrix is solved in the same way");
    let a = convection_diffusion(8);
    for precond in ["cg(jacobi)", "amg:cycle=k"] {
        let mut solver = Solver::new(&a, &options(device, precond)).unwrap();
        let refused = solver
            .solve_transposed(&b, &mut vec![0.0; 64])
            .err()
            .or_else(|| solver.solve_transposed(&[1.0; 64], &mut vec![0.0; 64]).err());
        let message = refused.unwrap_or_else(|| panic!("{precond} has no transpose")).to_string();
        assert!(message.contains("64"), "{message}");
        let message = solver.solve_transposed(&[1.0; 64], &mut [0.0; 64]).err().unwrap().to_string();
        assert!(message.contains("has no transpose"), "{message}");
        // The solver still solves with A.
        assert!(solver.solve(&[1.0; 64], &mut [0.0; 64]).unwrap().converged());
    }
}
