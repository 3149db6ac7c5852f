//! Transposes on the CPU.

use crate::conformance::transposed;

#[test]
fn transposes_across_devices() {
    transposed::transposes_across_devices("cpu");
}

#[test]
fn transposes_of_blocks() {
    transposed::transposes_of_blocks("cpu");
}

#[test]
fn transposes_of_hierarchies() {
    transposed::transposes_of_hierarchies("cpu");
}

#[test]
fn transposes_of_coupled_systems() {
    transposed::transposes_of_coupled_systems("cpu");
}

#[test]
fn ranks_transpose_as_one() {
    transposed::ranks_transpose_as_one("cpu");
}

#[test]
fn transposed_systems_are_solved() {
    transposed::transposed_systems_are_solved("cpu");
}

#[test]
fn transposes_that_need_nothing_or_do_not_exist() {
    transposed::transposes_that_need_nothing_or_do_not_exist("cpu");
}
