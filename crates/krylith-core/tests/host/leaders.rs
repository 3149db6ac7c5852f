//! Ranks whose rows gather on some of them, `ranks_per_gpu`: the answer is that of a direct solve, and every
//! rank reports the same. Ranks are threads here, and devices are CPUs.

use crate::common::{
    Random, convection_diffusion, dense, distance, norm, random_kronecker, solve, written_out,
};
use crate::common::{random_bsr, times};
use crate::ranks::leaders::{self, Parts};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::options::RanksPerGpu;
use krylith_core::partition::{RowBlocks, Rows};
use krylith_core::{Error, Field, Options, Outcome, Problem, Progress, Solver, Stop};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

/// A matrix in blocks with a large diagonal, so that it is far from singular.
fn system(seed: u64, b: usize, nodes: usize) -> Bsr {
    let mut a = random_bsr(&mut Random(seed), b, nodes, nodes, 4, true);
    let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
    for i in 0..nodes {
        let p = (row_ptr[i]..row_ptr[i + 1]).find(|&p| col[p] as usize == i).unwrap();
        (0..b).for_each(|c| a.values_mut()[p * b * b + c * (b + 1)] += 6.0 * b as f64);
    }
    a
}

#[test]
fn any_number_of_ranks_in_any_groups() {
    for size in 1..=8 {
        for k in [1, 2, 3, 4, 8] {
            let b = 1 + (size + k) % 4;
            let a = system(7 * size as u64 + k as u64, b, 37);
            let n = a.rows();
            let rhs = Random(3).numbers(n);
            let exact = solve(&written_out(&a.to_csr()), &rhs);
            let parts = Parts::new(37, size);
            let text = format!("ranks_per_gpu={k} device=cpu rtol=1e-12 method=gmres precond=jacobi");
            let options: Options = text.parse().unwrap();
            let done = Team::run(size, |comm| {
                let rows = parts.rows(&a, comm.rank());
                let own = parts.vector(&rhs, b, comm.rank());
                let mut solver = Solver::new(Problem::distributed(comm, rows)?, &options)?;
                let mut x = vec![f64::NAN; own.len()];
                x.fill(0.0);
                let solution = solver.solve(&own, &mut x)?.clone();
                Ok((x, solution))
            })
            .unwrap();
            let case = format!("{size} ranks, {k} a group, blocks of {b}");
            let x = parts.whole(b, done.iter().map(|(x, _)| x));
            assert!(distance(&x, &exact) < 1e-10 * norm(&exact), "{case}");
            let first = &done[0].1;
            for (_, solution) in &done {
                assert_eq!(solution.outcome(), Outcome::Converged, "{case}");
                assert_eq!(solution.history.residuals, first.history.residuals, "{case}");
                assert_eq!(solution.device.reason, first.device.reason, "{case}");
                assert_eq!(solution.precond.text, first.precond.text, "{case}");
            }
            let leaders = if k == 1 { size } else { size.div_ceil(k) };
            assert_eq!(first.device.ranks, leaders, "{case}");
            assert_eq!(first.device.reason.contains("gather on rank"), leaders < size, "{case}");
        }
    }
}

#[test]
fn every_call_of_a_solver() {
    for (size, k) in [(4, 2), (5, 3), (3, 8)] {
        Team::run(size, |comm| leaders::every_call(&(comm as Arc<dyn Communicator>), k)).unwrap();
    }
}

#[test]
fn one_leader_solves_as_one_rank_does() {
    // With fields, coordinates, near-null vectors and a grid, the leader has the very system of one process.
    let a = convection_diffusion(12);
    let n = a.rows();
    let points: Vec<[f64; 3]> = (0..n).map(|i| [(i % 12) as f64, (i / 12) as f64, 0.0]).collect();
    let near = [vec![1.0; n], (0..n).map(|i| (i % 12) as f64).collect()];
    let rhs: Vec<f64> = (0..n).map(|i| (0.3 * i as f64).cos()).collect();
    for precond in [
        "amg",
        "ildu:rows=40,cut=geometric",
        "split(u: ildu, p: jacobi; schur=upper, S=selfp)",
        "ras:parts=3",
    ] {
        let text = format!("device=cpu rtol=1e-10 method=gmres precond={precond}");
        let fields = |own: std::ops::Range<usize>| {
            let of = |parity| own.clone().filter(|i| i % 2 == parity).map(|i| i as u32).collect::<Vec<_>>();
            vec![Field::new("u", of(0)), Field::new("p", of(1))]
        };
        let with = |problem: Problem<'static>, own: std::ops::Range<usize>| {
            let problem =
                problem.with_coordinates(points[own.clone()].to_vec())?.with_fields(fields(own.clone()))?;
            let vectors: Vec<_> = near.iter().map(|v| v[own.clone()].to_vec()).collect();
            problem.with_near_null_vectors(vectors)?.with_grid([12, 12, 1])
        };
        let (mut x, options) = (vec![0.0; n], text.parse::<Options>().unwrap());
        let whole = with(Problem::csr(&a).unwrap(), 0..n).unwrap();
        let mut solver = Solver::new(whole, &options).unwrap();
        let alone = solver.solve(&rhs, &mut x).unwrap().clone();
        assert!(alone.converged(), "{precond}");
        let cuts = [0, 10, 10, 100, n];
        let options = Options { ranks_per_gpu: Some(RanksPerGpu::Count(4)), ..options };
        let done = Team::run(4, |comm| {
            let own = cuts[comm.rank()]..cuts[comm.rank() + 1];
            let rows = leaders::run(&a, own.start, own.end);
            let problem = Problem::distributed_csr(comm, &rows, Some(1))?;
            let problem = match own.is_empty() {
                false => with(problem, own.clone())?,
                // A field needs unknowns: those of other ranks will do.
                true => {
                    let fields = fields(0..n);
                    let none = vec![Vec::new(); near.len()];
                    let problem = problem.with_coordinates(Vec::new())?.with_fields(fields)?;
                    problem.with_near_null_vectors(none)?.with_grid([12, 12, 1])?
                }
            };
            let mut x = vec![0.0; own.len()];
            let mut solver = Solver::new(problem, &options)?;
            let solution = solver.solve(&rhs[own], &mut x)?.clone();
            Ok((x, solution))
        })
        .unwrap();
        let together: Vec<f64> = done.iter().flat_map(|(x, _)| x.clone()).collect();
        assert!(distance(&together, &x) <= 1e-12 * norm(&x), "{precond}");
        for (_, solution) in &done {
            assert_eq!(solution.history.iterations, alone.history.iterations, "{precond}");
            assert_eq!(solution.precond.text, alone.precond.text, "{precond}");
        }
        let residual = times(&a, &x).iter().zip(&rhs).map(|(ax, b)| (b - ax).powi(2)).sum::<f64>().sqrt();
        assert!(residual < 1e-9 * norm(&rhs), "{precond}");
    }
}

#[test]
fn rigid_modes_of_ranks() {
    // Displacements of a chain of nodes in the plane; near-null vectors come from the coordinates of ranks.
    let a = system(5, 2, 40);
    let rhs = Random(9).numbers(a.rows());
    let exact = solve(&written_out(&a.to_csr()), &rhs);
    let parts = Parts::new(40, 4);
    let options: Options = "device=cpu precond=amg rtol=1e-12 ranks_per_gpu=2".parse().unwrap();
    let done = Team::run(4, |comm| {
        let (rank, rows) = (comm.rank(), parts.rows(&a, comm.rank()));
        let points: Vec<[f64; 3]> =
            rows.numbers.iter().map(|&i| [i as f64, (i * i % 7) as f64, 0.0]).collect();
        let problem = Problem::distributed(comm, rows)?.with_coordinates(points)?.with_rigid_modes()?;
        let mut x = vec![0.0; problem.own_len()];
        let own = parts.vector(&rhs, 2, rank);
        assert!(Solver::new(problem, &options)?.solve(&own, &mut x)?.converged());
        Ok(x)
    });
    let x = parts.whole(2, done.unwrap().iter());
    assert!(distance(&x, &exact) < 1e-9 * norm(&exact));
}

#[test]
fn null_vectors_of_ranks() {
    // A path with free ends: constants are null vectors, and x keeps the mean of x₀.
    let n = 23;
    let mut entries = Vec::new();
    for i in 0..n - 1 {
        entries.extend([(i, i, 1.0), (i + 1, i + 1, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0)]);
    }
    let mut sums = std::collections::BTreeMap::new();
    entries.iter().for_each(|&(i, j, v)| *sums.entry((i, j)).or_insert(0.0) += v);
    let entries: Vec<_> = sums.into_iter().map(|((i, j), v)| (i, j, v)).collect();
    let a = Csr::from_triplets(n as usize, n as usize, &entries).unwrap();
    let exact: Vec<f64> = (0..n).map(|i| f64::from(i) - f64::from(n - 1) / 2.0).collect();
    let rhs = times(&a, &exact);
    let options: Options = "device=cpu method=cg rtol=1e-12 ranks_per_gpu=3".parse().unwrap();
    let cuts = [0, 5, 11, 20, 23];
    let x = Team::run(4, |comm| {
        let own = cuts[comm.rank()]..cuts[comm.rank() + 1];
        let problem = Problem::distributed_csr(comm, &leaders::run(&a, own.start, own.end), Some(1))?;
        let problem = problem.with_null_vectors(vec![vec![1.0; own.len()]])?;
        let mut x = vec![0.0; own.len()];
        let solution = Solver::new(problem, &options)?.solve(&rhs[own], &mut x)?.clone();
        assert!(solution.converged() && solution.null_vectors == 1);
        Ok(x)
    });
    assert!(distance(&x.unwrap().concat(), &exact) < 1e-8);
}

#[test]
fn kronecker_sums_of_ranks() {
    let (s, b, nodes) = (2, 2, 24);
    let mut k = random_kronecker(&mut Random(4), b, s, nodes, 4, false, true);
    let parts = Parts::new(nodes, 4);
    let options: Options =
        "device=cpu method=gmres:restart=96 precond=jacobi rtol=1e-12 ranks_per_gpu=2".parse().unwrap();
    let rhs = Random(5).numbers(s * b * nodes);
    let mut taus = vec![k.tau, 0.25 * k.tau];
    let done = Team::run(4, |comm| {
        let rank = comm.rank();
        let comm: Arc<dyn Communicator> = comm;
        let [m, l] = [&k.m, &k.l].map(|a| Problem::distributed(comm.clone(), parts.rows(a, rank)).unwrap());
        let problem = Problem::kronecker_of(k.a.clone(), k.b.clone(), k.tau, &m, &l)?;
        let own = parts.vector(&rhs, s * b, rank);
        let mut solver = Solver::new(problem, &options)?;
        let mut all = Vec::new();
        for step in 0..3 {
            match step {
                0 => {}
                1 => solver.set_tau(taus[1])?,
                _ => {
                    let [m, l] = [&k.m, &k.l].map(|a| parts.rows(a, rank).terms.remove(0).1.values);
                    let m: Vec<f64> = m.iter().map(|v| 2.0 * v).collect();
                    solver.update_kronecker(&k.b, &k.a, taus[0], &m, &l)?;
                }
            }
            let mut x = vec![0.0; own.len()];
            assert!(solver.solve(&own, &mut x)?.converged(), "{step}");
            all.push(x);
        }
        Ok(all)
    })
    .unwrap();
    for step in 0..3 {
        let x = parts.whole(s * b, done.iter().map(|all| &all[step]));
        let sum = match step {
            0 => KroneckerSum::new(k.a.clone(), k.b.clone(), taus.remove(0), k.m.clone(), k.l.clone()),
            1 => KroneckerSum::new(k.a.clone(), k.b.clone(), taus.remove(0), k.m.clone(), k.l.clone()),
            _ => {
                k.m.values_mut().iter_mut().for_each(|v| *v *= 2.0);
                KroneckerSum::new(k.b.clone(), k.a.clone(), k.tau, k.m.clone(), k.l.clone())
            }
        };
        let exact = solve(&dense(&sum.unwrap()), &rhs);
        assert!(distance(&x, &exact) < 1e-9 * norm(&exact), "{step}: {:e}", distance(&x, &exact));
    }
}

#[test]
fn an_error_of_one_rank_is_that_of_all() {
    let a = system(1, 1, 30);
    let parts = Parts::new(30, 4);
    let options: Options = "device=cpu precond=jacobi ranks_per_gpu=2".parse().unwrap();
    let errors = |what: &'static str, words: &'static str| {
        let done = Team::run(4, |comm| {
            let rank = comm.rank();
            let mut solver = Solver::new(Problem::distributed(comm, parts.rows(&a, rank))?, &options)?;
            let mut own = parts.vector(&[1.0; 30], 1, rank);
            let mut x = own.clone();
            let mut values = parts.rows(&a, rank).terms.remove(0).1.values;
            let is_wrong = rank == 3;
            let e = match what {
                "nan" => {
                    if is_wrong {
                        own[1] = f64::NAN;
                    }
                    solver.solve(&own, &mut x).err()
                }
                "long" => {
                    if is_wrong {
                        own.push(1.0);
                    }
                    solver.solve(&own, &mut x).err()
                }
                "product" => {
                    if is_wrong {
                        x.pop();
                    }
                    solver.multiply(&own, &mut x).err()
                }
                "columns" => {
                    let count = if is_wrong { 3 } else { 2 };
                    let (b, mut x) = (own.repeat(count), x.repeat(count));
                    solver.request(&b, &mut x).columns().err()
                }
                "values" => {
                    if is_wrong {
                        values[0] = f64::INFINITY;
                    }
                    solver.update_values(&values).err()
                }
                _ => {
                    // All diagonal entries of the last rank become zero.
                    let rows = &parts.rows(&a, rank);
                    let blocks = &rows.terms[0].1;
                    for i in 0..rows.numbers.len() {
                        for p in blocks.row_ptr[i]..blocks.row_ptr[i + 1] {
                            if is_wrong && blocks.col[p] == rows.numbers[i] {
                                values[p] = 0.0;
                            }
                        }
                    }
                    solver.update_values(&values).err()
                }
            };
            let e = e.expect("an error").to_string();
            // The solver still works with right numbers.
            let own = parts.vector(&[1.0; 30], 1, rank);
            let values = parts.rows(&a, rank).terms.remove(0).1.values;
            solver.update_values(&values)?;
            assert!(solver.solve(&own, &mut vec![0.0; own.len()])?.converged(), "{what}");
            Ok(e)
        });
        for e in done.unwrap() {
            assert!(e.contains(words), "{what}: {e}");
        }
    };
    errors("nan", "b: entry");
    errors("long", "unknowns");
    errors("product", "unknowns");
    errors("columns", "rank 3 gives 3");
    errors("values", "must be finite");
    errors("singular", "diagonal block");
}

#[test]
fn a_set_up_that_fails_fails_on_every_rank() {
    let a =
        Csr::from_triplets(4, 4, &[(0, 0, 1.0), (1, 0, 1.0), (2, 2, 1.0), (3, 3, 1.0), (1, 2, 1.0)]).unwrap();
    let options: Options = "device=cpu precond=jacobi ranks_per_gpu=2".parse().unwrap();
    let errors = Team::run(4, |comm| {
        let rank = comm.rank();
        let problem = Problem::distributed_csr(comm, &leaders::run(&a, rank, rank + 1), Some(1))?;
        Ok(Solver::new(problem, &options).err().map(|e| (e.to_string(), e.exit_code())))
    });
    for e in errors.unwrap() {
        let (text, code) = e.expect("an error");
        assert!(text.contains("block row 1") && code == 2, "{text}");
    }
}

#[test]
fn functions_are_refused_by_name() {
    let a = system(1, 1, 8);
    let parts = Parts::new(8, 2);
    let options: Options = "device=cpu ranks_per_gpu=2".parse().unwrap();
    let done = Team::run(2, |comm| {
        let rows = parts.rows(&a, comm.rank());
        let mut solver = Solver::new(Problem::distributed(comm, rows)?, &options)?;
        let p = krylith_core::operator::FunctionOperator::on_host(|x, y| {
            y.copy_from_slice(x);
            Ok(())
        });
        let n = solver.problem().own_len();
        let e = solver.request(&vec![1.0; n], &mut vec![0.0; n]).preconditioner(&p).run().err();
        Ok(e.expect("an error").to_string())
    });
    assert!(done.unwrap().iter().all(|e| e.contains("solve on one device")));
}

#[test]
fn ranks_wait_longer_than_the_time_limit_for_a_solve() {
    let a = system(1, 1, 30);
    let parts = Parts::new(30, 2);
    let options: Options = "device=cpu precond=none rtol=1e-12 ranks_per_gpu=2".parse().unwrap();
    let team = Team::with_time_limit(2, Duration::from_millis(300)).unwrap();
    let done = Team::run_on(team, |comm| {
        let rank = comm.rank();
        let mut solver = Solver::new(Problem::distributed(comm, parts.rows(&a, rank))?, &options)?;
        let own = parts.vector(&[1.0; 30], 1, rank);
        let mut x = vec![0.0; own.len()];
        let mut calls = 0;
        let mut slow = |_: Progress| {
            calls += 1;
            if calls == 1 {
                std::thread::sleep(Duration::from_millis(900 * (1 - rank as u64)));
            }
            ControlFlow::Continue(())
        };
        let solution = solver.request(&own, &mut x).observer(&mut slow).run()?.clone();
        assert!(solution.converged());
        Ok(calls)
    });
    // The leader's observer sees the iterations, that of another rank the last.
    let calls = done.unwrap();
    assert!(calls[0] > 2 && calls[1] == 1, "{calls:?}");
}

#[test]
fn an_observer_of_the_leader_ends_the_solve_for_all() {
    let a = system(1, 1, 30);
    let parts = Parts::new(30, 3);
    let options: Options = "device=cpu precond=none rtol=1e-12 ranks_per_gpu=3".parse().unwrap();
    let outcomes = Team::run(3, |comm| {
        let rank = comm.rank();
        let mut solver = Solver::new(Problem::distributed(comm, parts.rows(&a, rank))?, &options)?;
        let own = parts.vector(&[1.0; 30], 1, rank);
        let mut stops = |_: Progress| ControlFlow::Break(());
        let outcome = solver.request(&own, &mut vec![0.0; own.len()]).observer(&mut stops).run()?.outcome();
        let stop = Stop { max_iters: 1, ..solver_stop() };
        let limited = solver.request(&own, &mut vec![0.0; own.len()]).stop(stop).run()?.outcome();
        solver.cancel_token().cancel();
        let cancelled = solver.solve(&own, &mut vec![0.0; own.len()])?.outcome();
        Ok([outcome, limited, cancelled])
    });
    let expected = [Outcome::Interrupted, Outcome::MaxIterations, Outcome::Interrupted];
    assert_eq!(outcomes.unwrap(), [expected; 3]);
}

fn solver_stop() -> Stop {
    Stop { rtol: 1e-12, ..Stop::default() }
}

#[test]
fn a_leader_that_panics_or_leaves_ends_the_wait() {
    let a = system(1, 1, 30);
    let parts = Parts::new(30, 4);
    let options: Options = "device=cpu precond=none rtol=1e-12 ranks_per_gpu=2".parse().unwrap();
    let failed = Team::run(4, |comm| {
        let rank = comm.rank();
        let mut solver = Solver::new(Problem::distributed(comm, parts.rows(&a, rank))?, &options)?;
        let own = parts.vector(&[1.0; 30], 1, rank);
        let mut panics = |_: Progress| -> ControlFlow<()> { panic!("no more of this") };
        let mut x = vec![0.0; own.len()];
        let request = solver.request(&own, &mut x);
        let request = if rank == 2 { request.observer(&mut panics) } else { request };
        let e = request.run().err().map(|e| e.to_string());
        let again = solver.solve(&own, &mut vec![0.0; own.len()]).err().map(|e| e.to_string());
        Ok([e, again])
    });
    for [first, again] in failed.unwrap() {
        assert!(first.as_ref().is_some_and(|e| e.contains("no more of this")), "{first:?}");
        assert!(again.as_ref().is_some_and(|e| e.contains("create a new solver")), "{again:?}");
    }
    let failed = Team::run(4, |comm| {
        let rank = comm.rank();
        let mut solver = Solver::new(Problem::distributed(comm, parts.rows(&a, rank))?, &options)?;
        if rank == 2 {
            return Err(Error::invalid("an element with a negative volume"));
        }
        let own = parts.vector(&[1.0; 30], 1, rank);
        solver.solve(&own, &mut vec![0.0; own.len()]).map(drop)
    });
    assert!(failed.unwrap_err().to_string().contains("negative volume"));
}

#[test]
fn auto_gathers_nothing_without_a_gpu() {
    let rows = |own: u64| Rows {
        numbers: vec![own],
        block: 1,
        terms: vec![(
            Dense::identity(1),
            RowBlocks { row_ptr: vec![0, 1], col: vec![own], values: vec![2.0] },
        )],
    };
    for text in ["ranks_per_gpu=auto device=cpu", "device=cpu", "ranks_per_gpu=1 device=cpu"] {
        let ranks = Team::run(2, |comm| {
            let problem = Problem::distributed(comm.clone(), rows(comm.rank() as u64))?;
            let mut solver = Solver::new(problem, &text.parse()?)?;
            Ok(solver.solve(&[2.0], &mut [0.0])?.device.ranks)
        });
        assert_eq!(ranks.unwrap(), [2, 2], "{text}");
    }
}
