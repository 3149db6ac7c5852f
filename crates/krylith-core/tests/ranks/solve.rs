//! A solve that every rank of any communicator can do, and what its answer looks like in a line.

use krylith_core::comm::{Communicator, gather};
use krylith_core::device::cpu::{Cpu, Pool};
use krylith_core::matrix::Csr;
use krylith_core::method::{Cg, CgForm, CgOptions, Method, Minres};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::partition::{Partition, split};
use krylith_core::precond::BlockJacobi;
use krylith_core::{Outcome, Precision, Result, Stop};
use std::sync::Arc;

/// Points of the grid in one direction.
const SIDE: usize = 12;

/// −Δu on a grid, with a coefficient that varies from row to row.
fn matrix() -> Csr {
    let at = |i: usize, j: usize, k: usize| ((k * SIDE + j) * SIDE + i) as u32;
    let mut entries = Vec::new();
    for (k, j, i) in (0..SIDE.pow(3)).map(|p| (p / SIDE / SIDE, p / SIDE % SIDE, p % SIDE)) {
        entries.push((at(i, j, k), at(i, j, k), 6.1 + (i * j % 5) as f64));
        for (here, other) in [(i, at(i + 1, j, k)), (j, at(i, j + 1, k)), (k, at(i, j, k + 1))] {
            if here + 1 < SIDE {
                entries.extend([(at(i, j, k), other, -1.0), (other, at(i, j, k), -1.0)]);
            }
        }
    }
    Csr::from_triplets(SIDE.pow(3), SIDE.pow(3), &entries).unwrap()
}

/// Solves by MINRES and by CG in every form, with a slab per rank, and returns a line that contains every bit
/// of solutions and histories.
pub fn answer(comm: &Arc<dyn Communicator>) -> Result<String> {
    let terms = Terms::csr(&matrix())?;
    let n = terms.block_rows();
    let owner = (0..n).map(|i| (i * comm.size() / n) as u32).collect();
    let part = &split(&terms, &Partition::new(owner, comm.size())?)?[comm.rank()];
    let space = Cpu::distributed(part.rows.len(), Arc::new(Pool::new(1)), comm.clone());
    let a = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
    let jacobi = BlockJacobi::new(&space, &part.terms, Precision::F64)?;
    let b: Vec<f64> = part.rows.iter().map(|&i| 1.0 + (i as f64 * 0.7).sin()).collect();
    let mut line = String::new();
    let mut methods: Vec<(String, Box<dyn Method<Cpu>>)> =
        vec![("minres".into(), Box::new(Minres::new(&space, ())?))];
    for form in [CgForm::Textbook, CgForm::OneReduction, CgForm::Flexible, CgForm::Pipelined] {
        methods.push((form.to_string(), Box::new(Cg::new(&space, CgOptions { form })?)));
    }
    for (name, mut method) in methods {
        let mut x = vec![0.0; b.len()];
        let stop = Stop { rtol: 1e-10, ..Stop::default() };
        let p: &dyn LinearOperator<Cpu> = &jacobi;
        let history = method.solve(&space, &a, Some(p), &b, &mut x, &stop, &mut ())?.clone();
        assert_eq!(history.outcome, Outcome::Converged, "{name}");
        let bits: Vec<u8> = x.iter().chain(&history.residuals).flat_map(|x| x.to_le_bytes()).collect();
        let hash = |seed: u64, byte: &u8| (seed ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let all = gather(&**comm, &bits)?.concat().iter().fold(0xcbf2_9ce4_8422_2325, hash);
        line += &format!("{name}: {} iterations, bits {all:016x}; ", history.iterations);
    }
    Ok(line)
}
