//! Calls of a solver whose rows gather on leaders, for the ranks of any communicator.

use crate::common::{Random, distance, norm, solve, written_out};
use krylith_core::comm::Communicator;
use krylith_core::matrix::{Bsr, Csr, Dense};
use krylith_core::partition::{RowBlocks, Rows, contiguous};
use krylith_core::{Options, Problem, Progress, Result, Solver};
use std::ops::ControlFlow;
use std::sync::Arc;

/// Rows of nodes that are dealt to ranks in an odd way: every third rank has none, the others have unequal
/// numbers, and the numbers of a rank do not ascend.
pub struct Parts(Vec<Vec<u64>>);

impl Parts {
    pub fn new(nodes: usize, size: usize) -> Self {
        let mut parts = vec![Vec::new(); size];
        for i in (0..nodes).rev() {
            let rank = (i * i + i / 5) % size;
            parts[if rank % 3 == 1 && size > 2 { 0 } else { rank }].push(i as u64);
        }
        Self(parts)
    }

    /// The rows of a rank, with blocks in the reverse order of columns.
    pub fn rows(&self, a: &Bsr, rank: usize) -> Rows {
        let bb = a.block() * a.block();
        let mut blocks = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
        for &i in &self.0[rank] {
            for p in (a.row_ptr()[i as usize]..a.row_ptr()[i as usize + 1]).rev() {
                blocks.col.push(u64::from(a.col()[p]));
                blocks.values.extend_from_slice(&a.values()[p * bb..(p + 1) * bb]);
            }
            blocks.row_ptr.push(blocks.col.len());
        }
        Rows { numbers: self.0[rank].clone(), block: a.block(), terms: vec![(Dense::identity(1), blocks)] }
    }

    /// A rank's part of a vector with `run` numbers for each node.
    pub fn vector(&self, whole: &[f64], run: usize, rank: usize) -> Vec<f64> {
        self.0[rank].iter().flat_map(|&i| whole[i as usize * run..][..run].iter().copied()).collect()
    }

    /// The whole vector from the parts of all ranks.
    pub fn whole<'v>(&self, run: usize, parts: impl Iterator<Item = &'v Vec<f64>>) -> Vec<f64> {
        let mut whole = vec![f64::NAN; run * self.0.iter().map(Vec::len).sum::<usize>()];
        for (numbers, part) in self.0.iter().zip(parts) {
            for (&i, values) in numbers.iter().zip(part.chunks(run)) {
                whole[i as usize * run..][..run].copy_from_slice(values);
            }
        }
        whole
    }
}

/// Rows `from..to` of a matrix, all columns.
pub fn run(a: &Csr, from: usize, to: usize) -> Csr {
    let (first, last) = (a.row_ptr()[from], a.row_ptr()[to]);
    let row_ptr = a.row_ptr()[from..=to].iter().map(|p| p - first).collect();
    Csr::new(to - from, a.columns(), row_ptr, a.col()[first..last].to_vec(), a.values()[first..last].to_vec())
        .unwrap()
}

/// Solves, updates and applies with groups of `k` ranks, and compares with dense matrices.
pub fn every_call(comm: &Arc<dyn Communicator>, k: usize) -> Result<()> {
    let (rank, nodes, b) = (comm.rank(), 29, 2);
    let mut rng = Random(11);
    // Blocks on five diagonals, all of whose numbers are random.
    let mut blocks = RowBlocks::default();
    let mut row_ptr = vec![0];
    for i in 0..nodes {
        let mut columns = [0, 1, 2, 7, 19].map(|d| ((i + d) % nodes) as u32);
        columns.sort_unstable();
        blocks.col.extend(columns.map(u64::from));
        row_ptr.push(blocks.col.len());
        for j in columns {
            let diagonal = if j as usize == i { 9.0 } else { 0.0 };
            blocks.values.extend((0..4).map(|e| rng.number() + if e % 3 == 0 { diagonal } else { 0.0 }));
        }
    }
    let col = blocks.col.iter().map(|&j| j as u32).collect();
    let mut a = Bsr::new(b, nodes, nodes, row_ptr, col, blocks.values)?;
    let parts = Parts::new(nodes, comm.size());
    let rhs = [0, 1, 2].map(|_| rng.numbers(b * nodes));
    let own = rhs.each_ref().map(|v| parts.vector(v, b, rank));
    let close = |x: &[f64], exact: &[f64], what: &str| {
        let exact = parts.vector(exact, b, rank);
        assert!(distance(x, &exact) <= 1e-9 * (1.0 + norm(&exact)), "{what} on rank {rank}");
    };
    let dense = |a: &Bsr| written_out(&a.to_csr());
    let transposed = |a: &Bsr| crate::common::transpose(&dense(a));

    let text = format!("device=cpu method=gmres:restart=60 precond=ildu rtol=1e-12 ranks_per_gpu={k}");
    let options: Options = text.parse()?;
    let problem = Problem::distributed(comm.clone(), parts.rows(&a, rank))?;
    let mut solver = Solver::new(problem, &options)?;
    let mut x = vec![0.0; own[0].len()];
    for step in 0..3 {
        // Twice with other values.
        if step > 0 {
            a.values_mut()
                .iter_mut()
                .enumerate()
                .for_each(|(e, v)| *v *= 1.0 + 0.03 * ((e + step) % 5) as f64);
            solver.update_values(&parts.rows(&a, rank).terms[0].1.values)?;
        }
        x.fill(0.0);
        assert!(solver.solve(&own[0], &mut x)?.converged());
        close(&x, &solve(&dense(&a), &rhs[0]), "x");
        // From the answer, no iteration is left.
        assert_eq!(solver.solve(&own[0], &mut x)?.history.iterations, 0);
        x.fill(0.0);
        assert!(solver.solve_transposed(&own[1], &mut x)?.converged());
        close(&x, &solve(&transposed(&a), &rhs[1]), "x of the transpose");
        let mut all = vec![0.0; 3 * x.len()];
        let solutions = solver.request(&own.concat(), &mut all).columns()?;
        assert!(solutions.len() == 3 && solutions.iter().all(|one| one.converged()));
        for (k, x) in (0..3).zip(all.chunks(x.len().max(1))) {
            close(x, &solve(&dense(&a), &rhs[k]), "a column");
        }
        solver.multiply(&own[2], &mut x)?;
        close(&x, &crate::common::multiply(&dense(&a), &rhs[2]), "A x");
        solver.multiply_transposed(&own[2], &mut x)?;
        close(&x, &crate::common::multiply(&transposed(&a), &rhs[2]), "Aᵀ x");
        solver.precondition(&own[2], &mut x)?;
        assert!(x.iter().all(|v| v.is_finite()));
    }
    Ok(())
}

/// Solves with groups of `k` ranks. The leader of the last group calls `meanwhile` after its first iteration.
pub fn slow(comm: &Arc<dyn Communicator>, k: usize, meanwhile: &(dyn Fn() + Sync)) -> Result<()> {
    let (rank, size, n) = (comm.rank(), comm.size(), 40);
    let mut entries = Vec::new();
    let own = n * rank / size..n * (rank + 1) / size;
    for i in own.clone() {
        for j in i.saturating_sub(1)..(i + 2).min(n) {
            entries.push(((i - own.start) as u32, j as u32, if i == j { 2.1 } else { -1.0 }));
        }
    }
    let a = Csr::from_triplets(own.len(), n, &entries)?;
    let options: Options = format!("device=cpu precond=none rtol=1e-12 ranks_per_gpu={k}").parse()?;
    let mut solver = Solver::new(Problem::distributed_csr(comm.clone(), &a, Some(1))?, &options)?;
    let last = contiguous(size, size.div_ceil(k) - 1, size.div_ceil(k)).start;
    let mut calls = 0;
    let mut observer = |_: Progress| {
        calls += 1;
        if calls == 2 && rank == last {
            meanwhile();
        }
        ControlFlow::Continue(())
    };
    let (b, mut x) = (vec![0.1; own.len()], vec![0.0; own.len()]);
    assert!(solver.request(&b, &mut x).observer(&mut observer).run()?.converged());
    Ok(())
}
