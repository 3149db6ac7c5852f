//! Direct factors of one rank, and of matrices whose rows are distributed over threads.

use crate::conformance;
use crate::ranks::direct;
use krylith_core::comm::{Communicator, Team};
use std::sync::Arc;

#[test]
fn one_rank_solves_by_every_form() {
    conformance::direct::all("cpu");
}

#[test]
fn ranks_solve_by_factors_on_the_first() {
    for size in [1, 2, 4, 8] {
        Team::run(size, |comm| {
            let comm: Arc<dyn Communicator> = comm;
            let way = if size == 1 { "" } else { "own factors on rank 0: as lu:over=one asks" };
            direct::solves(&comm, "one", way)
        })
        .unwrap_or_else(|e| panic!("{size} ranks: {e}"));
        Team::run(size, |comm| {
            let comm: Arc<dyn Communicator> = comm;
            let of = |why| if size == 1 { "" } else { why };
            direct::solves(&comm, "auto", of("own factors on rank 0: the ranks are threads of one process"))
        })
        .unwrap_or_else(|e| panic!("{size} ranks: {e}"));
    }
}

#[test]
fn threads_have_no_mumps() {
    for size in [1, 3] {
        Team::run(size, |comm| {
            let comm: Arc<dyn Communicator> = comm;
            let e = direct::solves(&comm, "mumps", "").unwrap_err().to_string();
            assert!(e.contains("lu:over=mumps") && e.contains("lu:over=one"), "{e}");
            Ok(())
        })
        .unwrap_or_else(|e| panic!("{size} ranks: {e}"));
    }
}

/// The factors on the first rank are those of one rank, whatever the number of ranks.
#[test]
fn the_number_of_ranks_changes_no_bit_of_the_factors() {
    let bits = |size| {
        let of =
            |comm: Arc<krylith_core::comm::TeamRank>| direct::bits(&(comm as Arc<dyn Communicator>), "one");
        Team::run(size, of).unwrap_or_else(|e| panic!("{size} ranks: {e}"))
    };
    let one = bits(1);
    for size in [2, 5] {
        assert!(bits(size).iter().all(|bits| *bits == one[0]), "{size} ranks");
    }
}
