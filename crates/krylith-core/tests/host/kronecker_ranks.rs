//! Kronecker sums whose M and L are distributed over ranks, against a dense reference.

use crate::common::{Random, dense, random_kronecker, solve};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::partition::{RowBlocks, Rows};
use krylith_core::{Field, Options, Problem, Result, Solver};
use std::sync::Arc;

/// How ranks give their rows.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Form {
    /// Scalar rows, in blocks of this size.
    Scalar(Option<usize>),
    /// Block rows in descending order, and each row from its last column to its first.
    Turned,
}

/// Block rows of a rank: runs of consecutive rows, given by their ends, descending if `turned`.
fn own_rows(ends: &[usize], rank: usize, turned: bool) -> Vec<u64> {
    let first = if rank == 0 { 0 } else { ends[rank - 1] };
    let run = first as u64..ends[rank] as u64;
    if turned { run.rev().collect() } else { run.collect() }
}

/// Own scalar rows of a matrix, all columns, with stored entries that are zero dropped.
fn scalar_rows(a: &Bsr, rows: &[u64]) -> Csr {
    let (whole, b) = (a.to_csr(), a.block());
    let mut triplets = Vec::new();
    for (local, &node) in rows.iter().enumerate() {
        for r in 0..b {
            let (col, values) = whole.row(node as usize * b + r);
            triplets.extend(col.iter().zip(values).map(|(&j, &v)| ((local * b + r) as u32, j, v)));
        }
    }
    Csr::from_triplets(rows.len() * b, a.columns(), &triplets).unwrap()
}

/// Own block rows of a matrix in the given order, each from its last column to its first.
fn turned_rows(a: &Bsr, rows: &[u64]) -> RowBlocks {
    let mut own = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
    for &i in rows {
        for p in (a.row_ptr()[i as usize]..a.row_ptr()[i as usize + 1]).rev() {
            own.col.push(u64::from(a.col()[p]));
            own.values.extend_from_slice(a.block_values(p));
        }
        own.row_ptr.push(own.col.len());
    }
    own
}

/// Own values of a matrix, in the order in which a rank gives them.
fn own_values(a: &Bsr, rows: &[u64], form: Form) -> Vec<f64> {
    match form {
        Form::Scalar(_) => scalar_rows(a, rows).values().to_vec(),
        Form::Turned => turned_rows(a, rows).values,
    }
}

fn distributed(comm: &Arc<dyn Communicator>, a: &Bsr, rows: &[u64], form: Form) -> Result<Problem<'static>> {
    match form {
        Form::Scalar(block) => Problem::distributed_csr(comm.clone(), &scalar_rows(a, rows), block),
        Form::Turned => {
            let terms = vec![(Dense::identity(1), turned_rows(a, rows))];
            let rows = Rows { numbers: rows.to_vec(), block: a.block(), terms };
            Problem::distributed(comm.clone(), rows)
        }
    }
}

/// The numbers of own rows in a vector of the whole system, `run` for each row.
fn own_part(v: &[f64], rows: &[u64], run: usize) -> Vec<f64> {
    rows.iter().flat_map(|&i| &v[i as usize * run..][..run]).copied().collect()
}

/// The sum with other values of M and L, which are no multiples of the old ones.
fn other_values(k: &KroneckerSum) -> KroneckerSum {
    let mut new = k.clone();
    new.m.values_mut().iter_mut().enumerate().for_each(|(e, v)| *v *= 1.0 + 0.05 * (e % 7) as f64);
    new.l.values_mut().iter_mut().enumerate().for_each(|(e, v)| *v *= 1.0 - 0.04 * (e % 5) as f64);
    new
}

/// Solves on ranks and compares with the dense solution. Then repeats this for new values, a new τ, and new
/// coefficients.
fn solves_as_the_dense_system(k: &KroneckerSum, ends: &[usize], form: Form, options: &str) {
    let what = format!("{} stages, rows to {ends:?}, {form:?}, {options}", k.stages());
    let options: Options = format!("{options} rtol=1e-12 device=cpu threads=1").parse().unwrap();
    let run = k.block() * k.stages();
    let b: Vec<f64> = (0..k.rows()).map(|i| (0.3 * i as f64).cos()).collect();
    let new = other_values(k);
    let later = KroneckerSum { tau: 0.4, ..new.clone() };
    let mut last = KroneckerSum { tau: 0.2, ..k.clone() };
    last.a[(0, 0)] += 0.5;
    last.b[(0, 0)] += 0.25;
    let exact = [k, &new, &later, &last].map(|k| solve(&dense(k), &b));
    let done = Team::run(ends.len(), |comm| {
        let comm: Arc<dyn Communicator> = comm;
        let rows = own_rows(ends, comm.rank(), form == Form::Turned);
        let [m, l] = [&k.m, &k.l].map(|a| distributed(&comm, a, &rows, form));
        let problem = Problem::kronecker_of(k.a.clone(), k.b.clone(), k.tau, &m?, &l?)?;
        assert_eq!(
            (problem.stages(), problem.unknowns(), problem.block()),
            (k.stages(), k.rows(), k.block())
        );
        let of = |c: u32| (c..k.m.rows() as u32).step_by(k.block()).collect::<Vec<u32>>();
        let problem = match k.block() {
            2 => problem.with_fields(vec![Field::new("u", of(0)), Field::new("p", of(1))])?,
            _ => problem,
        };
        let (own_b, mut errors) = (own_part(&b, &rows, run), Vec::new());
        let mut solver = Solver::new(problem, &options)?;
        for (step, exact) in exact.iter().enumerate() {
            let values = |a: &Bsr| own_values(a, &rows, form);
            match step {
                0 => {}
                1 => {
                    solver.update_term(0, &values(&new.m)[..])?;
                    solver.update_term(1, &values(&new.l)[..])?;
                }
                2 => solver.set_tau(later.tau)?,
                _ => {
                    let [m, l] = [&last.m, &last.l].map(values);
                    solver.update_kronecker(&last.a, &last.b, last.tau, &m[..], &l[..])?;
                }
            }
            let mut x = vec![0.0; own_b.len()];
            let solution = solver.solve(&own_b, &mut x)?;
            assert!(solution.converged(), "{what}, step {step}: {:?}", solution.history.outcome);
            let exact = own_part(exact, &rows, run);
            errors.push(x.iter().zip(&exact).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max));
        }
        Ok(errors)
    });
    for errors in done.unwrap_or_else(|e| panic!("{what}: {e}")) {
        assert!(errors.iter().all(|e| *e < 1e-9), "{what}: {errors:?}");
    }
}

#[test]
fn ranks_solve_the_sum_of_one() {
    let cuts: [&[usize]; 5] = [&[24], &[15, 24], &[5, 7, 24], &[11, 11, 24], &[0, 9, 24]];
    for (number, ends) in cuts.into_iter().enumerate() {
        for (b, s) in [(1, 2), (2, 2), (3, 1), (2, 3)] {
            let k = random_kronecker(&mut Random(17 + number as u64), b, s, 24, 2, false, true);
            for form in [Form::Scalar(Some(b)), Form::Scalar(None), Form::Turned] {
                // Without a block size, patterns of M and L may suit blocks of other sizes.
                if form != Form::Scalar(None) || b == 1 {
                    solves_as_the_dense_system(&k, ends, form, "method=gmres precond=jacobi");
                }
            }
        }
    }
}

#[test]
fn preconditioners_and_the_choice_of_auto_are_those_of_one_process() {
    let mut k = random_kronecker(&mut Random(3), 2, 2, 24, 2, false, true);
    // `stage` needs A or B that is lower triangular.
    (k.a[(0, 1)], k.a[(1, 0)], k.b[(0, 1)]) = (0.0, 0.0, 0.0);
    for options in [
        "",
        "precond=stage",
        "precond=stage(amg)",
        "precond=stage(ras)",
        "precond=stage(split(u: amg, p: ras; form=upper))",
        "precond=split(u: stage(jacobi), p: stage(ras); form=lower)",
        "precond=none method=bicgstab",
    ] {
        solves_as_the_dense_system(&k, &[9, 24], Form::Scalar(Some(2)), options);
    }
}

/// Runs `each` on ranks, and returns the errors, one for each rank.
fn errors_of<T>(ranks: usize, each: impl Fn(&Arc<dyn Communicator>) -> Result<T> + Sync) -> Vec<String> {
    let done = Team::run(ranks, |comm| {
        let comm: Arc<dyn Communicator> = comm;
        Ok(each(&comm).err().map(|e| e.to_string()))
    });
    done.unwrap().into_iter().map(|error| error.expect("an error on every rank")).collect()
}

#[test]
fn parts_that_do_not_fit_are_refused_on_every_rank() {
    let k = random_kronecker(&mut Random(5), 1, 2, 12, 2, false, true);
    let ends = [5, 12];
    let of = |comm: &Arc<dyn Communicator>, a: &Bsr, ends: &[usize], turned: bool| {
        let rows = own_rows(ends, comm.rank(), turned);
        distributed(comm, a, &rows, if turned { Form::Turned } else { Form::Scalar(Some(1)) })
    };
    let sum = |comm: &Arc<dyn Communicator>, a: Dense, b: Dense, tau: f64| {
        let (m, l) = (of(comm, &k.m, &ends, false)?, of(comm, &k.l, &ends, false)?);
        Problem::kronecker_of(a, b, tau, &m, &l)
    };
    let all_say = |errors: Vec<String>, text: &str| {
        assert!(errors.iter().all(|e| e.contains(text)), "expected {text}, got {errors:?}");
    };
    // Another number of stages, tau or coefficient on a rank.
    let errors = errors_of(2, |comm| {
        let unit = Dense::identity(2 + comm.rank());
        sum(comm, unit.clone(), unit, 0.5)
    });
    all_say(errors, "rank 1 has 3 stages; rank 0 has 2");
    let errors = errors_of(2, |comm| sum(comm, k.a.clone(), k.b.clone(), 0.5 + comm.rank() as f64));
    all_say(errors, "tau is 1.5 on rank 1, and 0.5 on rank 0");
    let errors = errors_of(2, |comm| {
        let mut a = k.a.clone();
        a[(1, 0)] += comm.rank() as f64;
        sum(comm, a, k.b.clone(), 0.5)
    });
    all_say(errors, "A or B of rank 1 differs");
    let tau = |rank: usize| if rank == 0 { f64::NAN } else { 1.0 };
    all_say(errors_of(2, |comm| sum(comm, k.a.clone(), k.b.clone(), tau(comm.rank()))), "tau is NaN");
    // Other rows of M than of L.
    let errors = errors_of(2, |comm| {
        let (m, l) = (of(comm, &k.m, &ends, false)?, of(comm, &k.l, &[6, 12], false)?);
        Problem::kronecker_of(k.a.clone(), k.b.clone(), k.tau, &m, &l)
    });
    all_say(errors, "the same rows on every rank");
    let errors = errors_of(2, |comm| {
        let (m, l) = (of(comm, &k.m, &ends, false)?, of(comm, &k.l, &ends, true)?);
        Problem::kronecker_of(k.a.clone(), k.b.clone(), k.tau, &m, &l)
    });
    all_say(errors, "the same rows in the same order");
    // One matrix over ranks and one whole; a sum of sums.
    let errors = errors_of(2, |comm| {
        let (m, l) = (of(comm, &k.m, &ends, false)?, Problem::bsr(&k.l)?);
        Problem::kronecker_of(k.a.clone(), k.b.clone(), k.tau, &m, &l)
    });
    all_say(errors, "M is distributed over ranks, and L is whole");
    let errors = errors_of(2, |comm| {
        let m = of(comm, &k.m, &ends, false)?;
        Problem::kronecker_of(k.a.clone(), k.b.clone(), k.tau, &m, &sum(comm, k.a.clone(), k.b.clone(), 0.5)?)
    });
    all_say(errors, "L of a Kronecker sum must be a problem of one matrix");
}

#[test]
fn updates_that_do_not_fit_are_refused_on_every_rank_and_change_nothing() {
    let k = random_kronecker(&mut Random(9), 2, 2, 12, 2, false, true);
    let (ends, form, run) = ([5, 12], Form::Scalar(Some(2)), 4);
    let options: Options = "method=gmres precond=jacobi rtol=1e-12 device=cpu threads=1".parse().unwrap();
    let b: Vec<f64> = (0..k.rows()).map(|i| 1.0 + (0.7 * i as f64).sin()).collect();
    let exact = solve(&dense(&k), &b);
    let done = Team::run(2, |comm| {
        let comm: Arc<dyn Communicator> = comm;
        let rank = comm.rank();
        let rows = own_rows(&ends, rank, false);
        let [m, l] = [&k.m, &k.l].map(|a| distributed(&comm, a, &rows, form));
        let mut solver =
            Solver::new(Problem::kronecker_of(k.a.clone(), k.b.clone(), k.tau, &m?, &l?)?, &options)?;
        let [m, l] = [&k.m, &k.l].map(|a| own_values(a, &rows, form));
        let mut said = Vec::new();
        let mut refused = |done: Result<()>| said.push(done.expect_err("refused").to_string());
        refused(solver.set_tau(if rank == 1 { f64::INFINITY } else { 0.5 }));
        refused(solver.set_tau(0.5 + rank as f64));
        let three = Dense::identity(2 + rank);
        refused(solver.update_kronecker(&three, &three, 0.5, &m[..], &l[..]));
        let mut other = k.a.clone();
        other[(0, 0)] += rank as f64;
        refused(solver.update_kronecker(&other, &k.b, 0.5, &m[..], &l[..]));
        refused(solver.update_kronecker(&k.a, &k.b, 0.5, &m[rank..], &l[..]));
        let mut wrong = l.clone();
        wrong[0] = if rank == 0 { f64::NAN } else { wrong[0] };
        refused(solver.update_kronecker(&k.a, &k.b, 0.5, &m[..], &wrong[..]));
        refused(solver.agreed(match rank {
            0 => Ok(()),
            _ => Err(krylith_core::Error::invalid("what a binding refuses")),
        }));
        let (own_b, exact) = (own_part(&b, &rows, run), own_part(&exact, &rows, run));
        let mut x = vec![0.0; own_b.len()];
        assert!(solver.solve(&own_b, &mut x)?.converged());
        Ok((said, x.iter().zip(&exact).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max)))
    });
    let expected = [
        "tau is inf",
        "tau is 1.5 on rank 1",
        "this solver has 2 stages",
        "A or B of rank 1",
        "expected one value per stored entry",
        "must be finite",
        "what a binding refuses",
    ];
    for (said, error) in done.unwrap() {
        assert!(said.iter().zip(expected).all(|(said, e)| said.contains(e)), "{said:?}");
        assert!(said.len() == expected.len() && error < 1e-9, "{error:e}");
    }
}
