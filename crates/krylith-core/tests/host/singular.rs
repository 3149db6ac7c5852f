//! Singular systems on the CPU and on ranks.

use crate::conformance::singular;

const DEVICE: &str = "cpu threads=1";

#[test]
fn null_vectors_leave_the_least_squares_answer() {
    singular::null_vectors_leave_the_least_squares_answer(DEVICE);
}

#[test]
fn unknowns_of_empty_columns_keep_their_value() {
    singular::unknowns_of_empty_columns_keep_their_value(DEVICE);
}

#[test]
fn converged_is_said_of_the_x_that_comes_back() {
    singular::converged_is_said_of_the_x_that_comes_back(DEVICE);
}

#[test]
fn any_first_guess_gives_a_finite_x() {
    singular::any_first_guess_gives_a_finite_x(DEVICE);
}

#[test]
fn null_vectors_do_not_hide_the_limit_of_rounding() {
    singular::null_vectors_do_not_hide_the_limit_of_rounding(DEVICE);
}

#[test]
fn a_part_that_nothing_holds_is_found_after_an_attempt() {
    singular::a_part_that_nothing_holds_is_found_after_an_attempt(DEVICE);
}
