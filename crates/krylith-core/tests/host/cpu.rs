//! The conformance tests on the CPU device.

use crate::common::{eager, eager_share};
use crate::conformance;
use krylith_core::device::cpu::Cpu;

/// Every check of `conformance`, on 1 and on 2 threads.
fn each(check: impl Fn(&dyn Fn(usize) -> Cpu)) {
    for threads in [1, 2] {
        check(&|n| eager(n, threads));
    }
}

#[test]
fn products_match_the_dense_kronecker_sum() {
    each(|space| conformance::products_match_the_dense_kronecker_sum(space));
}

#[test]
fn products_of_awkward_patterns() {
    each(|space| conformance::products_of_awkward_patterns(space));
}

#[test]
fn operators_keep_their_coefficients() {
    each(|space| conformance::operators_keep_their_coefficients(space));
}

#[test]
fn updates_equal_a_fresh_operator() {
    each(|space| conformance::updates_equal_a_fresh_operator(space));
}

#[test]
fn rounded_bases_reach_the_tolerance() {
    each(|space| conformance::rounded_bases_reach_the_tolerance(space));
}

#[test]
fn structure_changes_nothing() {
    each(|space| conformance::structure_changes_nothing(space));
}

#[test]
fn every_criterion_is_certified() {
    each(|space| conformance::criterion::every_criterion_is_certified(space));
}

#[test]
fn gmres_matches_a_direct_solve() {
    each(|space| conformance::gmres_matches_a_direct_solve(space));
}

#[test]
fn bicgstab_matches_a_direct_solve() {
    each(|space| conformance::bicgstab_matches_a_direct_solve(space));
}

#[test]
fn bicgstab_restarts_itself() {
    each(|space| conformance::bicgstab_restarts_itself(space));
}

#[test]
fn minres_minimises_over_the_krylov_space() {
    each(|space| conformance::minres::minres_minimises_over_the_krylov_space(space));
}

#[test]
fn minres_matches_a_direct_solve() {
    each(|space| conformance::minres::minres_matches_a_direct_solve(space));
}

#[test]
fn minres_copes_with_singular_systems() {
    each(|space| conformance::minres::minres_copes_with_singular_systems(space));
}

#[test]
fn minres_takes_diagonal_splits() {
    conformance::minres::minres_takes_diagonal_splits("cpu");
}

#[test]
fn minres_chooses_a_definite_preconditioner() {
    conformance::minres::minres_chooses_a_definite_preconditioner("cpu");
}

#[test]
fn fgmres_takes_preconditioners_that_vary() {
    each(|space| conformance::method::fgmres_takes_preconditioners_that_vary(space));
}

#[test]
fn fgmres_is_gmres_where_the_preconditioner_stays() {
    each(|space| conformance::method::fgmres_is_gmres_where_the_preconditioner_stays(space));
}

#[test]
fn every_method_reaches_every_outcome() {
    each(|space| conformance::method::every_method_reaches_every_outcome(space));
}

#[test]
fn scalar_rows_of_every_length() {
    each(|space| conformance::csr::scalar_rows_of_every_length(space));
    each(|space| conformance::csr::residuals_of_scalar_rows(space));
    each(|space| conformance::csr::scalar_rows_are_updated(space));
}

#[test]
fn rows_shared_by_threads_have_the_same_bits() {
    let of = |threads: usize| conformance::csr::rows_shared_by_threads(&|n| eager(n, threads));
    let one = of(1);
    for threads in [2, 3, 5] {
        assert!(of(threads) == one, "{threads} threads have other bits than one");
    }
}

#[test]
fn products_by_diagonals() {
    each(|space| conformance::dia::products_by_diagonals(space));
    each(|space| conformance::dia::products_by_diagonals_sum(space));
}

#[test]
fn residuals_and_updates_by_diagonals() {
    each(|space| conformance::dia::residuals_by_diagonals(space));
    each(|space| conformance::dia::diagonals_are_updated(space));
}

#[test]
fn passes_do_not_depend_on_threads() {
    each(|space| conformance::passes::passes_find_what_the_host_finds(space));
    conformance::passes::the_host_finds_what_is_there();
    each(|space| conformance::passes::random_numbers_are_those_of_the_host(space));
}

#[test]
fn residuals_are_rounded_once() {
    each(|space| conformance::residual::residuals_are_rounded_once(space));
}

#[test]
fn numbers_far_from_one_are_solved() {
    each(|space| conformance::residual::numbers_far_from_one_are_solved(space));
}

#[test]
fn the_limit_of_double_precision_is_named() {
    each(|space| conformance::residual::the_limit_of_double_precision_is_named(space));
}

#[test]
fn a_cycle_stops_when_it_is_done() {
    each(|space| conformance::residual::a_cycle_stops_when_it_is_done(space));
}

#[test]
fn operators_write_to_columns() {
    each(|space| conformance::method::operators_write_to_columns(space));
}

#[test]
fn cg_matches_a_direct_solve() {
    each(|space| conformance::method::cg_matches_a_direct_solve(space));
}

#[test]
fn cg_follows_the_textbook() {
    each(|space| conformance::method::cg_follows_the_textbook(space));
}

#[test]
fn methods_spare_costly_preconditioners() {
    each(|space| conformance::costly::methods_spare_costly_preconditioners(space));
}

#[test]
fn cg_takes_the_sums_of_operators() {
    each(|space| conformance::method::cg_takes_the_sums_of_operators(space));
}

#[test]
fn flexible_cg_keeps_directions_conjugate() {
    each(|space| conformance::method::flexible_cg_keeps_directions_conjugate(space));
}

#[test]
fn factors_match_the_textbook() {
    each(|space| conformance::ildu::factors_match_the_textbook(space));
}

#[test]
fn ildu_in_f32() {
    each(|space| conformance::factors_f32::ildu_in_f32(space));
}

#[test]
fn schwarz_in_f32() {
    each(|space| conformance::factors_f32::schwarz_in_f32(space));
}

#[test]
fn schwarz_columns_are_near_and_far() {
    each(|space| conformance::factors_f32::schwarz_near_and_far(space));
}

#[test]
fn preconditioners_of_solves_are_in_f32() {
    conformance::precond_precision::solves_in_f32("cpu");
}

#[test]
fn failures_in_f32_are_repeated_in_f64() {
    conformance::precond_precision::failures_are_repeated_in_f64("cpu");
}

#[test]
fn factors_are_refreshed() {
    each(|space| conformance::ildu::factors_are_refreshed(space));
}

#[test]
fn bad_pivots_are_named() {
    each(|space| conformance::ildu::bad_pivots_are_named(space));
}

#[test]
fn tiles_match_the_textbook() {
    each(|space| conformance::block_tiles::tiles_match_the_textbook(space));
}

#[test]
fn tiles_sum_what_they_pass() {
    each(|space| conformance::block_tiles::tiles_sum_what_they_pass(space));
}

#[test]
fn tiles_are_refreshed() {
    each(|space| conformance::block_tiles::tiles_are_refreshed(space));
}

#[test]
fn pivots_of_tiles_are_mended() {
    each(|space| conformance::block_tiles::pivots_of_tiles_are_mended(space));
}

#[test]
fn other_matrices_are_refused_by_tiles() {
    each(|space| conformance::block_tiles::other_matrices_are_refused_by_tiles(space));
}

#[test]
fn tiles_of_ranks_are_those_of_one() {
    let share = |comm: &std::sync::Arc<dyn krylith_core::comm::Communicator>, n: usize| {
        let pool = std::sync::Arc::new(krylith_core::device::cpu::Pool::eager(2));
        Ok(Cpu::distributed(n, pool, comm.clone()))
    };
    conformance::block_tiles::tiles_of_ranks(&[1, 2, 4, 5], &|n| eager(n, 2), &share);
    conformance::block_tiles::tiles_of_boxes_are_those_by_hand(&share);
}

#[test]
fn ranks_share_products_of_whole_vectors() {
    use krylith_core::comm::Communicator;
    use std::sync::Arc;
    let whole = |_: &Arc<dyn Communicator>, n: usize| Ok(eager(n, 1));
    let sizes = [1, 2, 3, 4, 5, 6, 7, 8];
    conformance::replicated::products_of_whole_vectors(&sizes, &whole);
    conformance::replicated::the_fastest_of_the_modes(&[1, 2, 4], &whole);
    conformance::replicated::cg_of_whole_vectors(&[1, 2, 3, 8], &whole, &eager_share);
    conformance::replicated::other_systems_are_refused::<Cpu>(3, &whole);
    conformance::replicated::a_rank_that_fails_ends_the_others::<Cpu>(3, &whole);
}

#[test]
fn compositions_match_dense_algebra() {
    each(|space| conformance::compose::compositions_match_dense_algebra(space));
}

#[test]
fn compositions_precondition() {
    each(|space| conformance::compose::compositions_precondition(space));
}

#[test]
fn factors_work_on_one_stage() {
    each(|space| conformance::compose::factors_work_on_one_stage(space));
}

#[test]
fn exact_stages_solve_with_p() {
    each(|space| conformance::compose::exact_stages_solve_with_p(space));
}

#[test]
fn stages_are_refreshed() {
    each(|space| conformance::compose::stages_are_refreshed(space));
}

#[test]
fn stages_precondition() {
    each(|space| conformance::compose::stages_precondition(space));
}

#[test]
fn results_do_not_depend_on_threads() {
    let histories: Vec<_> = [1, 2, 3].map(|t| conformance::history(&|n| eager(n, t))).into();
    assert_eq!(histories[0], histories[1]);
    assert_eq!(histories[0], histories[2]);
}

#[test]
fn lent_memory_gives_what_slices_give() {
    let lend = |n: usize| -> Box<dyn conformance::memory::Lender> { Box::new(vec![f64::NAN; n]) };
    each(|space| {
        conformance::memory::lent_values_equal_slices(space, &lend);
        conformance::memory::lent_values_are_checked(space, &lend);
        conformance::memory::lent_vectors_equal_slices(space, &lend);
    });
}

#[test]
fn blocks_match_plain_loops() {
    each(|space| conformance::cbcg::blocks_match_plain_loops(space));
}

#[test]
fn cbcg_converges_as_cg() {
    each(|space| conformance::cbcg::cbcg_converges_as_cg(space));
}

#[test]
fn cbcg_copes_with_hard_cases() {
    each(|space| conformance::cbcg::cbcg_copes_with_hard_cases(space));
}

#[test]
fn schwarz_is_the_sum_of_subdomain_solves() {
    each(|space| conformance::schwarz::schwarz_is_the_sum_of_subdomain_solves(space));
}

#[test]
fn schwarz_factors_match_the_textbook() {
    each(|space| conformance::schwarz::schwarz_factors_match_the_textbook(space));
}

#[test]
fn schwarz_sweeps_match_plain_loops() {
    each(|space| conformance::schwarz::sweeps_of_solves_match_plain_loops(space));
    each(|space| conformance::schwarz::sweeps_of_factors_match_plain_loops(space));
}

#[test]
fn sweeps_on_trial_give_way() {
    each(|space| conformance::schwarz::sweeps_on_trial_give_way(space));
}

#[test]
fn schwarz_sweeps_repeat_themselves() {
    each(|space| conformance::schwarz::deterministic_sweeps_repeat_themselves(space));
}

#[test]
fn schwarz_checks_its_factors() {
    each(|space| conformance::schwarz::schwarz_checks_its_factors(space));
}

#[test]
fn couplings_are_those_of_the_host() {
    each(|space| conformance::coarsening::couplings_are_those_of_the_host(space));
}

#[test]
fn galerkin_products_are_those_of_the_host() {
    each(|space| conformance::coarsening::galerkin_products_are_those_of_the_host(space));
}

#[test]
fn other_patterns_are_refused() {
    each(|space| conformance::coarsening::other_patterns_are_refused(space));
}

#[test]
fn restrictions_are_transposes() {
    each(|space| conformance::coarsening::restrictions_are_transposes(space));
}

#[test]
fn l1_blocks_are_those_of_the_host() {
    each(|space| conformance::coarsening::l1_blocks_are_those_of_the_host(space));
}

#[test]
fn incomplete_factors_are_transposed() {
    each(|space| conformance::factors_transposed::ildu_is_transposed(space));
    each(|space| conformance::factors_transposed::transposed_ildu_is_refreshed(space));
}

#[test]
fn overlapping_factors_are_transposed() {
    each(|space| conformance::factors_transposed::schwarz_is_transposed(space));
}

#[test]
fn tiles_are_transposed() {
    each(|space| conformance::factors_transposed::tiles_are_transposed(space));
}

#[test]
fn stages_are_transposed() {
    each(|space| conformance::factors_transposed::stages_are_transposed(space));
}

#[test]
fn adjoints_are_solved() {
    each(|space| conformance::factors_transposed::adjoints_are_solved(space));
}

#[test]
#[ignore = "measures transposed applications of incomplete factors on all threads"]
fn transposed_speed() {
    let threads = std::thread::available_parallelism().map_or(1, |n| n.get());
    conformance::factors_transposed::transposed_speed(&|n| Cpu::new(n, threads), 64);
}
