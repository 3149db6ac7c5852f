//! Vectors of several ranks that every rank gathers: products with a 0/1 matrix whose columns are own nodes
//! and, as ghosts, all others.

use super::distributed::{MakeShare, partitions};
use crate::common::Random;
use krylith_core::Precision;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Dense};
use krylith_core::operator::{Format, LinearOperator, PointBlock, Terms};
use krylith_core::partition::{Halo, split};
use krylith_core::precond::Coarsen;
use std::borrow::Cow;
use std::sync::Arc;

/// The blocks that take node `own[i]` to its row, in a matrix of `n` rows.
fn gathering(
    n: usize,
    block: usize,
    stages: usize,
    local: impl Fn(u64) -> u32,
    halo: Halo,
) -> Terms<'static> {
    let mut values = vec![0.0; n * block * block];
    for node in values.chunks_exact_mut(block * block) {
        (0..block).for_each(|c| node[c * block + c] = 1.0);
    }
    let col = (0..n as u64).map(local).collect();
    let a = Bsr::new(block, n, halo.own + halo.ghosts, (0..=n).collect(), col, values).unwrap();
    Terms::new(vec![(Dense::identity(stages), Cow::Owned(a))]).unwrap().with_halo(Some(Arc::new(halo)))
}

/// Every rank gets the whole vector, in the order of the whole, again and again.
pub fn ranks_gather_vectors<S: Coarsen>(sizes: &[usize], share: MakeShare<S>) {
    for (n, block, stages) in [(1, 1, 1), (700, 1, 1), (90, 3, 1), (60, 1, 3), (40, 2, 2), (31, 5, 1)] {
        let (order, diagonal) = (block * stages, vec![1.0; n]);
        let whole = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), diagonal).unwrap();
        for &ranks in sizes.iter().filter(|&&ranks| ranks > 1) {
            for (what, partition) in partitions(n, ranks) {
                let parts = split(&Terms::bsr(&whole), &partition).unwrap();
                let found = Team::run(ranks, |comm| {
                    let rows = &parts[comm.rank()].rows;
                    let comm: Arc<dyn Communicator> = comm;
                    let (halo, numbering) = Halo::build(&*comm, rows, 0..n as u64)?;
                    let space = share(&comm, rows.len() * order)?;
                    let local = |g: u64| numbering.local(g).unwrap();
                    let terms = gathering(n, block, stages, local, halo);
                    let w = match order {
                        1 => PointBlock::with_format(&space, &terms, Precision::F64, Format::Csr)?,
                        _ => PointBlock::new(&space, &terms, Precision::F64, false)?,
                    };
                    let all = space.beside(n * order)?;
                    let (mut x, mut y) = (space.vector()?, all.vector()?);
                    let mut results = Vec::new();
                    for seed in 0..5 {
                        let numbers = Random(seed).numbers(n * order);
                        let own: Vec<f64> = rows
                            .iter()
                            .flat_map(|&g| &numbers[g as usize * order..][..order])
                            .copied()
                            .collect();
                        space.write(&own, &mut x)?;
                        w.apply(&space, &x, &mut y)?;
                        let mut out = vec![0.0; n * order];
                        all.read(&y, &mut out)?;
                        results.push(out == numbers);
                    }
                    Ok(results)
                });
                for (rank, results) in found.unwrap().into_iter().enumerate() {
                    assert_eq!(
                        results, [true; 5],
                        "rank {rank} of {ranks}, {what}, {n} nodes, blocks of {block}, {stages} stages"
                    );
                }
            }
        }
    }
}
