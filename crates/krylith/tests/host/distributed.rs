//! The conformance tests of several ranks, on CPUs; ranks are threads here.

use crate::conformance::{cbcg, csr, dia, distributed, residual};
use krylith::comm::Communicator;
use krylith::device::cpu::{Cpu, Pool};
use std::sync::Arc;

fn share(comm: &Arc<dyn Communicator>, len: usize) -> krylith::Result<Cpu> {
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
