//! The conformance tests of several ranks, on CPUs; ranks are threads here.

use crate::conformance::{cbcg, csr, dia, distributed, residual};
use krylith_core::comm::{Communicator, Team};
use krylith_core::device::cpu::{Cpu, Pool};
use krylith_core::matrix::{Csr, Dense};
use krylith_core::partition::{RowBlocks, Rows};
use krylith_core::{Options, Problem, Solver};
use std::sync::Arc;

fn share(comm: &Arc<dyn Communicator>, len: usize) -> krylith_core::Result<Cpu> {
    Ok(Cpu::distributed(len, Arc::new(Pool::new(1)), comm.clone()))
}

#[test]
fn many_ranks_solve_as_one() {
    distributed::many_ranks_solve_as_one(&[1, 2, 3, 4, 5, 6, 7, 8], &share);
}

#[test]
fn cg_over_ranks_is_cg() {
    distributed::cg_over_ranks_is_cg(&[1, 2, 3, 8], &share);
}

#[test]
fn minres_over_ranks_is_minres() {
    distributed::minres_over_ranks_is_minres(&[1, 2, 3, 8], &share);
}

#[test]
fn ranks_share_diagonals() {
    dia::ranks_share_diagonals(&[1, 2, 3, 4], &share);
}

#[test]
fn scalar_rows_of_ranks() {
    csr::scalar_rows_of_ranks(&[1, 2, 3, 5, 8], &share);
}

#[test]
fn updates_reach_all_ranks() {
    distributed::updates_reach_all_ranks(&[1, 2, 5], &share);
}

#[test]
fn residuals_of_ranks_are_rounded_once() {
    residual::residuals_of_ranks_are_rounded_once(&[1, 2, 5], &share);
}

#[test]
fn cbcg_of_ranks() {
    cbcg::cbcg_of_ranks(&[2, 3, 4], &share);
}

/// Two fields at each of `nodes` nodes, with couplings to distant nodes too: columns of other ranks precede
/// and follow own ones.
fn fields(nodes: usize) -> Csr {
    let mut entries = Vec::new();
    for i in 0..nodes {
        for j in [i, (i + 1) % nodes, (i + nodes - 1) % nodes, (7 * i + 3) % nodes] {
            for (p, q) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let value = if (i, p) == (j, q) { 9.0 + (i as f64).sin() } else { -1.0 / (1 + p + q) as f64 };
                entries.push(((2 * i + p) as u32, (2 * j + q) as u32, value));
            }
        }
    }
    Csr::from_triplets(2 * nodes, 2 * nodes, &entries).unwrap()
}

/// Rows `from..to` of a matrix, all columns.
fn run(a: &Csr, from: usize, to: usize) -> Csr {
    let (first, last) = (a.row_ptr()[from], a.row_ptr()[to]);
    let row_ptr = a.row_ptr()[from..=to].iter().map(|p| p - first).collect();
    let (col, values) = (a.col()[first..last].to_vec(), a.values()[first..last].to_vec());
    Csr::new(to - from, a.columns(), row_ptr, col, values).unwrap()
}

#[test]
fn new_values_of_ranks_come_in_the_order_given() {
    let a = fields(60);
    let n = a.rows();
    let options: Options = "method=gmres precond=jacobi rtol=1e-12 device=cpu".parse().unwrap();
    let b: Vec<f64> = (0..n).map(|i| (0.3 * i as f64).cos()).collect();
    // New values that are no multiple of the old ones.
    let mut new = a.clone();
    new.values_mut().iter_mut().enumerate().for_each(|(e, v)| *v *= 1.0 + 0.05 * (e % 7) as f64);
    let mut exact = vec![0.0; n];
    Solver::new(&new, &options).unwrap().solve(&b, &mut exact).unwrap();
    for (block, scalar) in [(None, true), (Some(1), true), (Some(2), true), (Some(1), false)] {
        let parts = Team::run(3, |comm| {
            let comm: Arc<dyn Communicator> = comm.clone();
            let (from, to) = ([0, 36, 80][comm.rank()], [36, 80, n][comm.rank()]);
            let (own, fresh) = (run(&a, from, to), run(&new, from, to));
            let problem = if scalar {
                Problem::distributed_csr(comm, &own, block)?
            } else {
                // Each row from its last column to its first.
                let mut rows = RowBlocks { row_ptr: own.row_ptr().to_vec(), ..RowBlocks::default() };
                for i in 0..own.rows() {
                    rows.col.extend(own.row(i).0.iter().rev().map(|&j| u64::from(j)));
                    rows.values.extend(own.row(i).1.iter().rev());
                }
                let numbers = (from as u64..to as u64).collect();
                Problem::distributed(
                    comm,
                    Rows { numbers, block: 1, terms: vec![(Dense::identity(1), rows)] },
                )?
            };
            let found = problem.block();
            let mut solver = Solver::new(problem, &options)?;
            let values: Vec<f64> = match scalar {
                true => fresh.values().to_vec(),
                false => (0..own.rows()).flat_map(|i| fresh.row(i).1.iter().rev().copied()).collect(),
            };
            let mut x = vec![0.0; to - from];
            solver.update_values(&values)?;
            assert!(solver.solve(&b[from..to], &mut x)?.converged());
            assert!(solver.update_values(&values[1..]).is_err());
            Ok((found, x))
        });
        let (blocks, x): (Vec<usize>, Vec<Vec<f64>>) = parts.unwrap().into_iter().unzip();
        assert_eq!(blocks, [block.unwrap_or(2); 3]);
        let error = x.concat().iter().zip(&exact).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max);
        assert!(error < 1e-9, "{block:?}, scalar {scalar}: {error:e}");
    }
}

#[test]
fn runs_of_rows_that_do_not_fit_are_refused_on_every_rank() {
    let a = fields(20);
    let refused = |cuts: [usize; 3], columns: usize, block: usize| {
        let done = Team::run(2, |comm| {
            let mut own = run(&a, cuts[comm.rank()], cuts[comm.rank() + 1]);
            if columns > a.columns() && comm.rank() == 1 {
                let (p, j, v) = (own.row_ptr().to_vec(), own.col().to_vec(), own.values().to_vec());
                own = Csr::new(own.rows(), columns, p, j, v)?;
            }
            Ok(Problem::distributed_csr(comm.clone(), &own, Some(block)).err().map(|e| e.to_string()))
        });
        done.unwrap().into_iter().map(|error| error.expect("an error")).collect::<Vec<_>>()
    };
    let others = Team::run(2, |comm| {
        let own = run(&a, 20 * comm.rank(), 20 * comm.rank() + 20);
        let block = if comm.rank() == 0 { None } else { Some(2) };
        Ok(Problem::distributed_csr(comm.clone(), &own, block).err().map(|e| e.to_string()))
    });
    assert!(others.unwrap().iter().flatten().filter(|e| e.contains("different block sizes")).count() == 2);
    assert!(refused([0, 19, 40], 40, 2).iter().all(|e| e.contains("not a multiple")));
    assert!(refused([0, 20, 40], 40, 9).iter().all(|e| e.contains("block sizes are 1 to 8")));
    assert!(refused([0, 20, 40], 41, 1).iter().all(|e| e.contains("all ranks together have 40 rows")));
}
