//! Direct factors of a distributed matrix, compared with known solutions.

use super::{mix, number};
use krylith_core::comm::Communicator;
use krylith_core::matrix::{Csr, Dense};
use krylith_core::partition::{RowBlocks, Rows};
use krylith_core::{Outcome, Problem, Result, Solver};
use std::sync::Arc;

/// Σ Cₜ ⊗ Aₜ, with blocks of b unknowns.
struct System {
    name: &'static str,
    block: usize,
    terms: Vec<(Dense, Csr)>,
    /// The kinds of factors that own factors and MUMPS may have.
    kinds: &'static [&'static str],
}

impl System {
    fn one(name: &'static str, block: usize, a: Csr, kinds: &'static [&'static str]) -> Self {
        Self { name, block, terms: vec![(Dense::identity(1), a)], kinds }
    }

    fn stages(&self) -> usize {
        self.terms[0].0.rows()
    }

    fn nodes(&self) -> usize {
        self.terms[0].1.rows() / self.block
    }

    fn unknowns(&self) -> usize {
        self.terms[0].1.rows() * self.stages()
    }

    /// A x, or Aᵀ x.
    fn multiply(&self, transposed: bool, x: &[f64]) -> Vec<f64> {
        let (s, mut y) = (self.stages(), vec![0.0; x.len()]);
        for (c, a) in &self.terms {
            for i in 0..a.rows() {
                for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                    let (j, v) = (a.col()[p] as usize, a.values()[p]);
                    for (k, l) in (0..s * s).map(|e| (e / s, e % s)) {
                        let (to, from) = (i * s + k, j * s + l);
                        let (to, from) = if transposed { (from, to) } else { (to, from) };
                        y[to] += c[(k, l)] * v * x[from];
                    }
                }
            }
        }
        y
    }

    /// The blocks of a term in these block rows, and for each of its values the scalar entry.
    fn rows(&self, t: usize, numbers: &[u64], value: &dyn Fn(f64) -> f64) -> RowBlocks {
        let (a, b) = (&self.terms[t].1, self.block);
        let mut rows = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
        for &number in numbers {
            let scalar = number as usize * b..(number as usize + 1) * b;
            let mut columns: Vec<u64> = scalar
                .clone()
                .flat_map(|i| a.row_ptr()[i]..a.row_ptr()[i + 1])
                .map(|p| u64::from(a.col()[p]) / b as u64)
                .collect();
            columns.sort_unstable();
            columns.dedup();
            columns.reverse(); // any order is allowed
            for &column in &columns {
                for i in scalar.clone() {
                    for j in column as usize * b..(column as usize + 1) * b {
                        let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
                        let found = row.clone().find(|&p| a.col()[p] as usize == j);
                        rows.values.push(found.map_or(0.0, |p| value(a.values()[p])));
                    }
                }
            }
            rows.col.extend(columns);
            rows.row_ptr.push(rows.col.len());
        }
        rows
    }
}

/// −Δu on a grid with a coefficient, and convection of strength `wind`; nodes of `b` unknowns.
fn grid(side: usize, b: usize, wind: f64) -> Csr {
    let mut entries = Vec::new();
    for (i, j) in (0..side * side).map(|p| (p / side, p % side)) {
        let here = i * side + j;
        let mut put = |other: usize, v: f64| {
            for (c, d) in (0..b * b).map(|e| (e / b, e % b)) {
                let coupling = if c == d { 1.0 } else { 0.1 };
                entries.push(((here * b + c) as u32, (other * b + d) as u32, v * coupling));
            }
        };
        put(here, 4.5 + (i * j % 5) as f64);
        for (is_there, other, v) in [
            (i > 0, here.wrapping_sub(side), -1.0 - wind),
            (i + 1 < side, here + side, -1.0 + wind),
            (j > 0, here.wrapping_sub(1), -1.0 - wind / 2.0),
            (j + 1 < side, here + 1, -1.0 + wind / 2.0),
        ] {
            if is_there {
                put(other, v);
            }
        }
    }
    Csr::from_triplets(side * side * b, side * side * b, &entries).unwrap()
}

/// [A Bᵀ; B 0] with a definite A, and as many constraints as half of its unknowns.
fn saddle(m: usize) -> Csr {
    let n = m + m / 2;
    let mut entries = Vec::new();
    for i in 0..m as u32 {
        entries.push((i, i, 2.5));
        if i + 1 < m as u32 {
            entries.extend([(i, i + 1, -1.0), (i + 1, i, -1.0)]);
        }
    }
    for k in 0..m / 2 {
        for (i, v) in [(2 * k, 1.0), (2 * k + 1, -0.5)] {
            let (row, column) = ((m + k) as u32, i as u32);
            entries.extend([(row, column, v), (column, row, v)]);
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// A Laplacian without boundary values: constants are its null vector.
fn closed(side: usize) -> Csr {
    let mut entries = Vec::new();
    for (i, j) in (0..side * side).map(|p| (p / side, p % side)) {
        let here = (i * side + j) as u32;
        for (is_there, other) in [(i + 1 < side, here + side as u32), (j + 1 < side, here + 1)] {
            if is_there {
                entries.extend([
                    (here, other, -1.0),
                    (other, here, -1.0),
                    (here, here, 1.0),
                    (other, other, 1.0),
                ]);
            }
        }
    }
    Csr::from_triplets(side * side, side * side, &entries).unwrap()
}

fn systems() -> Vec<System> {
    const DEFINITE: &[&str] = &["Cholesky", "LDLᵀ without pivoting"];
    const INDEFINITE: &[&str] = &["LBLᵀ", "LDLᵀ", "LU"]; // own factors of small systems are LU
    const ANY: &[&str] = &["LU"];
    let c = Dense::new(2, 2, vec![2.0, 0.5, -0.25, 1.5]).unwrap();
    vec![
        System::one("definite", 1, grid(17, 1, 0.0), DEFINITE),
        System::one("more than small", 1, grid(45, 1, 0.0), DEFINITE),
        System::one("saddle point", 1, saddle(60), INDEFINITE),
        System::one("not symmetric", 1, grid(16, 1, 0.7), ANY),
        System::one("blocks of 2", 2, grid(12, 2, 0.3), ANY),
        System::one("blocks of 3", 3, grid(9, 3, 0.0), DEFINITE),
        System {
            name: "stages",
            block: 2,
            terms: vec![(Dense::identity(2), grid(7, 2, 0.0)), (c, grid(7, 2, 0.2))],
            kinds: ANY,
        },
        System::one("one unknown", 1, Csr::from_triplets(1, 1, &[(0, 0, 3.0)]).unwrap(), DEFINITE),
        System::one(
            "two unknowns",
            1,
            Csr::from_triplets(2, 2, &[(0, 1, 1.0), (1, 0, -2.0)]).unwrap(),
            &["LU", "LDLᵀ", "LBLᵀ"],
        ),
    ]
}

/// The block rows of a rank: scattered, or runs of which the second rank has none.
fn own(comm: &dyn Communicator, nodes: usize, scattered: bool) -> Vec<u64> {
    let (rank, size) = (comm.rank() as u64, comm.size() as u64);
    let owner = |i: u64| match scattered {
        true => mix(&[i, 11]) % size,
        false => Some(i * size / nodes as u64).filter(|q| *q != 1).unwrap_or(0),
    };
    (0..nodes as u64).filter(|&i| owner(i) == rank).collect()
}

/// The whole vector of which every rank has its own rows.
fn whole(comm: &dyn Communicator, rows: &[u64], run: usize, x: &[f64], nodes: usize) -> Result<Vec<f64>> {
    let mut all = vec![0.0; nodes * run];
    for (&row, x) in rows.iter().zip(x.chunks(run)) {
        all[row as usize * run..][..run].copy_from_slice(x);
    }
    comm.sum(&mut all)?;
    Ok(all)
}

fn taken(rows: &[u64], run: usize, whole: &[f64]) -> Vec<f64> {
    rows.iter().flat_map(|&row| &whole[row as usize * run..][..run]).copied().collect()
}

fn solution(n: usize) -> Vec<f64> {
    (0..n).map(|i| 1.0 + (number(&[i as u64, 5]).to_bits() % 1000) as f64 / 500.0).collect()
}

fn problem(comm: &Arc<dyn Communicator>, system: &System, rows: &[u64]) -> Result<Problem<'static>> {
    let term = |t: usize| (system.terms[t].0.clone(), system.rows(t, rows, &|v| v));
    let terms = (0..system.terms.len()).map(term).collect();
    Problem::distributed(comm.clone(), Rows { numbers: rows.to_vec(), block: system.block, terms })
}

/// Solves every system with its transpose, and again with new values. `over` is the way that is asked for,
/// and `way` begins the description of the one that is taken.
pub fn solves(comm: &Arc<dyn Communicator>, over: &str, way: &str) -> Result<()> {
    let options = format!("precond=lu:over={over} method=gmres rtol=1e-11 device=cpu threads=1");
    let options = options.parse()?;
    for (system, scattered) in systems().iter().flat_map(|s| [(s, true), (s, false)]) {
        let (n, run) = (system.unknowns(), system.block * system.stages());
        let case = format!("{}, {} ranks, over={over}, scattered: {scattered}", system.name, comm.size());
        let rows = own(&**comm, system.nodes(), scattered);
        let expected = solution(n);
        let mut solver = Solver::new(problem(comm, system, &rows)?, &options)?;
        let check = |b: &[f64], x: &[f64], transposed: bool, scale: f64, what: &str| -> Result<()> {
            let x = whole(&**comm, &rows, run, x, system.nodes())?;
            let product = system.multiply(transposed, &x);
            let size = b.iter().fold(0.0f64, |m, b| m.max(b.abs()));
            for (i, (b, ax)) in b.iter().zip(&product).enumerate() {
                let error = (b - scale * ax).abs();
                assert!(error <= 1e-9 * size, "{case}, {what}: row {i} differs by {error:e}");
            }
            Ok(())
        };
        for transposed in [false, true] {
            let b = system.multiply(transposed, &expected);
            let (own_b, mut x) = (taken(&rows, run, &b), vec![0.0; rows.len() * run]);
            let solved = match transposed {
                false => solver.solve(&own_b, &mut x)?,
                true => solver.solve_transposed(&own_b, &mut x)?,
            };
            assert_eq!(solved.outcome(), Outcome::Converged, "{case}");
            assert!(solved.history.iterations <= 3, "{case}: {} iterations", solved.history.iterations);
            let details = &solved.precond.details;
            assert!(details.iter().any(|d| d.starts_with(way)), "{case}: {details:?} has no {way}");
            let text = &solved.precond.text;
            let kinds = system.kinds.iter().map(|kind| format!("({kind})"));
            assert!(kinds.clone().any(|kind| text.contains(&kind)), "{case}: {text}");
            check(&b, &x, transposed, 1.0, if transposed { "transposed" } else { "solve" })?;
        }
        if system.terms.len() > 1 {
            continue;
        }
        // Same pattern, all values times 2, then once more.
        for scale in [2.0, 0.5] {
            solver.update_values(&system.rows(0, &rows, &|v| scale * v).values)?;
            let b = system.multiply(false, &expected);
            let (own_b, mut x) = (taken(&rows, run, &b), vec![0.0; rows.len() * run]);
            let solved = solver.solve(&own_b, &mut x)?;
            assert_eq!(solved.outcome(), Outcome::Converged, "{case}, new values");
            assert!(
                solved.history.iterations <= 3,
                "{case}, new values: {} iterations",
                solved.history.iterations
            );
            check(&b, &x, false, scale, "new values")?;
        }
    }
    loses_symmetry(comm, over)?;
    null_vectors(comm, over)?;
    singular(comm, over)
}

/// New values may have another symmetry.
fn loses_symmetry(comm: &Arc<dyn Communicator>, over: &str) -> Result<()> {
    let system = System::one("definite", 1, grid(14, 1, 0.0), &[]);
    let other = System::one("not symmetric", 1, grid(14, 1, 0.6), &[]);
    let rows = own(&**comm, system.nodes(), true);
    let options = format!("precond=lu:over={over} method=gmres rtol=1e-11 device=cpu threads=1");
    let mut solver = Solver::new(problem(comm, &system, &rows)?, &options.parse()?)?;
    for (round, system) in [&other, &system, &other].into_iter().enumerate() {
        solver.update_values(&system.rows(0, &rows, &|v| v).values)?;
        let expected = solution(system.unknowns());
        let b = taken(&rows, 1, &system.multiply(false, &expected));
        let mut x = vec![0.0; rows.len()];
        let solved = solver.solve(&b, &mut x)?;
        assert!(
            solved.outcome() == Outcome::Converged && solved.history.iterations <= 3,
            "{over}, round {round}"
        );
        for (x, expected) in x.iter().zip(taken(&rows, 1, &expected)) {
            assert!((x - expected).abs() <= 1e-8 * expected, "{over}, round {round}: {x} for {expected}");
        }
    }
    Ok(())
}

fn null_vectors(comm: &Arc<dyn Communicator>, over: &str) -> Result<()> {
    let system = System::one("closed", 1, closed(13), &[]);
    let rows = own(&**comm, system.nodes(), true);
    let problem = problem(comm, &system, &rows)?.with_null_vectors(vec![vec![1.0; rows.len()]])?;
    let options = format!("precond=lu:over={over} method=gmres rtol=1e-11 device=cpu threads=1");
    let mut solver = Solver::new(problem, &options.parse()?)?;
    let mut expected = solution(system.unknowns());
    let mean = expected.iter().sum::<f64>() / expected.len() as f64;
    expected.iter_mut().for_each(|x| *x -= mean);
    let b = taken(&rows, 1, &system.multiply(false, &expected));
    let mut x = vec![0.0; rows.len()];
    let solved = solver.solve(&b, &mut x)?;
    assert!(
        solved.outcome() == Outcome::Converged && solved.history.iterations <= 4,
        "{over}: {}",
        solved.history.iterations
    );
    for (x, expected) in x.iter().zip(taken(&rows, 1, &expected)) {
        assert!((x - expected).abs() <= 1e-8, "{over}, null vector: {x} for {expected}");
    }
    Ok(())
}

/// Rows 3 and 7 are equal. Every rank gets an error that says so.
fn singular(comm: &Arc<dyn Communicator>, over: &str) -> Result<()> {
    let a = grid(10, 1, 0.4);
    let row = |i: usize| (a.row_ptr()[i]..a.row_ptr()[i + 1]).map(|p| (a.col()[p], a.values()[p]));
    let of = |i: usize| if i == 7 { row(3).collect::<Vec<_>>() } else { row(i).collect() };
    let entries = (0..a.rows()).flat_map(|i| of(i).into_iter().map(move |(j, v)| (i as u32, j, v)));
    let a = Csr::from_triplets(a.rows(), a.rows(), &entries.collect::<Vec<_>>()).unwrap();
    let system = System::one("singular", 1, a, &[]);
    let rows = own(&**comm, system.nodes(), true);
    let options = format!("precond=lu:over={over} method=gmres device=cpu threads=1");
    let made = Solver::new(problem(comm, &system, &rows)?, &options.parse()?);
    let error = match made {
        Err(e) => e.to_string(),
        Ok(mut solver) => {
            let mut x = vec![0.0; rows.len()];
            let solved = solver.solve(&vec![1.0; rows.len()], &mut x).map(|s| s.outcome().to_string());
            solved.map_or_else(|e| e.to_string(), |outcome| format!("no error, but {outcome}"))
        }
    };
    assert!(error.contains("singular"), "over={over}, rank {}: {error}", comm.rank());
    assert!(error.contains("ildu"), "over={over}: no remedy in {error}");
    Ok(()) // after an error, a communicator is not used again
}

/// The bits of one application of the factors, which hold for any number of ranks.
#[allow(dead_code)] // by threads alone
pub fn bits(comm: &Arc<dyn Communicator>, over: &str) -> Result<Vec<u64>> {
    let system = System::one("not symmetric", 1, grid(45, 1, 0.2), &[]);
    let rows = own(&**comm, system.nodes(), true);
    let options = format!("precond=lu:over={over} method=gmres device=cpu threads=1");
    let mut solver = Solver::new(problem(comm, &system, &rows)?, &options.parse()?)?;
    let b = taken(&rows, 1, &system.multiply(false, &solution(system.unknowns())));
    let mut x = vec![0.0; rows.len()];
    solver.precondition(&b, &mut x)?;
    Ok(whole(&**comm, &rows, 1, &x, system.nodes())?.iter().map(|x| x.to_bits()).collect())
}
