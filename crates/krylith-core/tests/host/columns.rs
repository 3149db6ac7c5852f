//! Several right-hand sides on the CPU.

use crate::conformance::columns;

#[test]
fn methods_solve_columns() {
    columns::methods_solve_columns("cpu");
}

#[test]
fn preconditioners_solve_columns() {
    columns::preconditioners_solve_columns("cpu");
}

#[test]
fn columns_of_blocks() {
    columns::columns_of_blocks("cpu");
}

#[test]
fn columns_with_rigid_modes() {
    columns::columns_with_rigid_modes("cpu");
}

#[test]
fn columns_end_on_their_own() {
    columns::columns_end_on_their_own("cpu");
}

#[test]
fn ranks_solve_columns() {
    columns::ranks_solve_columns("cpu", 2);
    columns::ranks_solve_columns("cpu", 4);
}
