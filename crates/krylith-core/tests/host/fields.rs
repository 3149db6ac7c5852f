//! Preconditioners of coupled systems on the CPU.

use crate::conformance::{cpr, fields, fields_ranks, stages, vanka};

#[test]
fn splits_match_dense_algebra() {
    fields::splits_match_dense_algebra("cpu");
}

#[test]
fn schur_complements_match_dense_algebra() {
    fields::schur_complements_match_dense_algebra("cpu");
}

#[test]
fn matrices_are_renewed() {
    fields::matrices_are_renewed("cpu");
}

#[test]
fn cpr_matches_dense_algebra() {
    cpr::cpr_matches_dense_algebra("cpu");
}

#[test]
fn ranks_decouple_as_one() {
    cpr::ranks_decouple_as_one("cpu");
}

#[test]
fn wrong_matrices_are_named() {
    cpr::wrong_matrices_are_named("cpu");
}

#[test]
fn aux_matches_dense_algebra() {
    fields::aux_matches_dense_algebra("cpu");
}

#[test]
fn inner_solves_match_dense_algebra() {
    fields::inner_solves_match_dense_algebra("cpu");
}

#[test]
fn saddle_points_are_solved() {
    fields::saddle_points_are_solved("cpu");
}

#[test]
fn wrong_fields_are_named() {
    fields::wrong_fields_are_named("cpu");
}

#[test]
fn ranks_split_as_one() {
    fields_ranks::ranks_split_as_one("cpu");
}

#[test]
fn ranks_list_own_unknowns() {
    fields_ranks::ranks_list_own_unknowns("cpu");
}

#[test]
fn stages_match_dense_algebra() {
    stages::stages_match_dense_algebra("cpu");
}

#[test]
fn stages_take_any_preconditioner() {
    stages::stages_take_any_preconditioner("cpu");
}

#[test]
fn stages_of_stokes_are_solved() {
    stages::stages_of_stokes_are_solved("cpu");
}

#[test]
fn splits_of_stages_match_dense_algebra() {
    stages::splits_of_stages_match_dense_algebra("cpu");
}

#[test]
fn local_systems_match_dense_algebra() {
    vanka::local_systems_match_dense_algebra("cpu");
}

#[test]
fn ranks_have_local_systems_of_their_own() {
    vanka::ranks_have_local_systems_of_their_own("cpu");
}

#[test]
fn patches_solve_saddle_points() {
    vanka::patches_solve_saddle_points("cpu");
}

#[test]
fn levels_solve_saddle_points() {
    vanka::levels_solve_saddle_points("cpu");
}

#[test]
fn threads_do_not_matter_to_patches() {
    vanka::threads_do_not_matter();
}

#[test]
fn wrong_constraints_are_named() {
    vanka::wrong_constraints_are_named("cpu");
}
