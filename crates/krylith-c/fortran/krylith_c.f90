!> Interfaces to the functions of krylith.h. Programs use the module krylith instead.
module krylith_c
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none

    !> The status of a call: the values of `stat`.
    enum, bind(c)
        enumerator :: krylith_ok = 0, krylith_invalid = 1, krylith_device = 2, krylith_memory_full = 3, krylith_callback = 4, &
            krylith_internal = 5, krylith_cancelled = 6
    end enum

    !> The result of a solve, in the layout of C.
    type, bind(c) :: c_solution
        integer(c_int) :: outcome
        integer(c_int64_t) :: iterations, restarts
        real(c_double) :: true_residual, target, setup_seconds, solve_seconds, criterion_value
        integer(c_int) :: criterion
    end type

    !> The result of a Newton solve, in the layout of C.
    type, bind(c) :: c_newton_result
        integer(c_int) :: outcome
        integer(c_int64_t) :: steps, iterations
        real(c_double) :: first_norm, norm, target
        real(c_double) :: residual_seconds, jacobian_seconds, setup_seconds, solve_seconds
    end type

    interface
        type(c_ptr) function c_last_error() bind(c, name="krylith_last_error")
            import :: c_ptr
        end function
        integer(c_int) function c_reject(text) bind(c, name="krylith_reject")
            import :: c_int, c_char
            character(kind=c_char), intent(in) :: text(*)
        end function
        type(c_ptr) function c_version() bind(c, name="krylith_version")
            import :: c_ptr
        end function
        type(c_ptr) function c_outcome_name(outcome) bind(c, name="krylith_outcome_name")
            import :: c_ptr, c_int32_t
            integer(c_int32_t), value :: outcome
        end function
        integer(c_int) function c_csr(rows, entries, row_ptr, col, values, block, memory, problem) &
            bind(c, name="krylith_problem_csr")
            import :: c_int, c_int32_t, c_int64_t, c_ptr
            integer(c_int64_t), value :: rows, entries
            type(c_ptr), value :: row_ptr, col, values, memory
            integer(c_int32_t), value :: block
            type(c_ptr), intent(inout) :: problem
        end function
        integer(c_int) function c_csr64(rows, entries, row_ptr, col, values, block, memory, problem) &
            bind(c, name="krylith_problem_csr64")
            import :: c_int, c_int32_t, c_int64_t, c_ptr
            integer(c_int64_t), value :: rows, entries
            type(c_ptr), value :: row_ptr, col, values, memory
            integer(c_int32_t), value :: block
            type(c_ptr), intent(inout) :: problem
        end function
        integer(c_int) function c_bsr(block, rows, blocks, row_ptr, col, values, memory, problem) &
            bind(c, name="krylith_problem_bsr")
            import :: c_int, c_int32_t, c_int64_t, c_ptr
            integer(c_int32_t), value :: block
            integer(c_int64_t), value :: rows, blocks
            type(c_ptr), value :: row_ptr, col, values, memory
            type(c_ptr), intent(inout) :: problem
        end function
        integer(c_int) function c_bsr64(block, rows, blocks, row_ptr, col, values, memory, problem) &
            bind(c, name="krylith_problem_bsr64")
            import :: c_int, c_int32_t, c_int64_t, c_ptr
            integer(c_int32_t), value :: block
            integer(c_int64_t), value :: rows, blocks
            type(c_ptr), value :: row_ptr, col, values, memory
            type(c_ptr), intent(inout) :: problem
        end function
        integer(c_int) function c_kronecker(stages, a, b, tau, m, l, problem) bind(c, name="krylith_problem_kronecker")
            import :: c_int, c_int32_t, c_double, c_ptr
            integer(c_int32_t), value :: stages
            real(c_double), intent(in) :: a(*), b(*)
            real(c_double), value :: tau
            type(c_ptr), value :: m, l
            type(c_ptr), intent(inout) :: problem
        end function
        integer(c_int) function c_distributed_csr(comm, rows, columns, entries, row_ptr, col, values, block, problem) &
            bind(c, name="krylith_problem_distributed_csr")
            import :: c_int, c_int32_t, c_int64_t, c_double, c_ptr
            integer(c_int32_t), value :: comm, block
            integer(c_int64_t), value :: rows, columns, entries
            integer(c_int64_t), intent(in) :: row_ptr(*), col(*)
            real(c_double), intent(in) :: values(*)
            type(c_ptr), intent(inout) :: problem
        end function
        integer(c_int) function c_distributed_bsr(comm, block, rows, blocks, numbers, row_ptr, col, values, problem) &
            bind(c, name="krylith_problem_distributed_bsr")
            import :: c_int, c_int32_t, c_int64_t, c_double, c_ptr
            integer(c_int32_t), value :: comm, block
            integer(c_int64_t), value :: rows, blocks
            type(c_ptr), value :: numbers
            integer(c_int64_t), intent(in) :: row_ptr(*), col(*)
            real(c_double), intent(in) :: values(*)
            type(c_ptr), intent(inout) :: problem
        end function
        integer(c_int) function c_set_coordinates(problem, dimensions, nodes, points) &
            bind(c, name="krylith_problem_set_coordinates")
            import :: c_int, c_int32_t, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: problem
            integer(c_int32_t), value :: dimensions
            integer(c_int64_t), value :: nodes
            real(c_double), intent(in) :: points(*)
        end function
        integer(c_int) function c_set_grid(problem, nx, ny, nz) bind(c, name="krylith_problem_set_grid")
            import :: c_int, c_int64_t, c_ptr
            type(c_ptr), value :: problem
            integer(c_int64_t), value :: nx, ny, nz
        end function
        integer(c_int) function c_set_null_vectors(problem, count, vectors) bind(c, name="krylith_problem_set_null_vectors")
            import :: c_int, c_int32_t, c_ptr
            type(c_ptr), value :: problem, vectors
            integer(c_int32_t), value :: count
        end function
        integer(c_int) function c_set_near_null_vectors(problem, count, vectors) &
            bind(c, name="krylith_problem_set_near_null_vectors")
            import :: c_int, c_int32_t, c_ptr
            type(c_ptr), value :: problem, vectors
            integer(c_int32_t), value :: count
        end function
        integer(c_int) function c_set_fields(problem, text) bind(c, name="krylith_problem_set_fields")
            import :: c_int, c_char, c_ptr
            type(c_ptr), value :: problem
            character(kind=c_char), intent(in) :: text(*)
        end function
        integer(c_int) function c_set_field_near_null_vectors(problem, field, count, vectors) &
            bind(c, name="krylith_problem_set_field_near_null_vectors")
            import :: c_int, c_int32_t, c_char, c_double, c_ptr
            type(c_ptr), value :: problem
            character(kind=c_char), intent(in) :: field(*)
            integer(c_int32_t), value :: count
            real(c_double), intent(in) :: vectors(*)
        end function
        integer(c_int) function c_set_matrix(problem, name, rows, columns, entries, row_ptr, col, values) &
            bind(c, name="krylith_problem_set_matrix")
            import :: c_int, c_int32_t, c_int64_t, c_char, c_double, c_ptr
            type(c_ptr), value :: problem
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), value :: rows, columns, entries
            integer(c_int64_t), intent(in) :: row_ptr(*)
            integer(c_int32_t), intent(in) :: col(*)
            real(c_double), intent(in) :: values(*)
        end function
        integer(c_int64_t) function c_unknowns(problem) bind(c, name="krylith_problem_unknowns")
            import :: c_int64_t, c_ptr
            type(c_ptr), value :: problem
        end function
        integer(c_int32_t) function c_block(problem) bind(c, name="krylith_problem_block")
            import :: c_int32_t, c_ptr
            type(c_ptr), value :: problem
        end function
        subroutine c_problem_free(problem) bind(c, name="krylith_problem_free")
            import :: c_ptr
            type(c_ptr), value :: problem
        end subroutine
        integer(c_int) function c_solver_new(problem, options, solver) bind(c, name="krylith_solver_new")
            import :: c_int, c_char, c_ptr
            type(c_ptr), value :: problem
            character(kind=c_char), intent(in) :: options(*)
            type(c_ptr), intent(inout) :: solver
        end function
        integer(c_int) function c_solve_columns(solver, columns, b, x, memory, solutions) &
            bind(c, name="krylith_solver_solve_columns")
            import :: c_int, c_int32_t, c_ptr, c_solution
            type(c_ptr), value :: solver, b, x, memory
            integer(c_int32_t), value :: columns
            type(c_solution), intent(out) :: solutions(*)
        end function
        integer(c_int) function c_solve_transposed(solver, b, x, memory, solution) &
            bind(c, name="krylith_solver_solve_transposed")
            import :: c_int, c_ptr, c_solution
            type(c_ptr), value :: solver, b, x, memory
            type(c_solution), intent(out) :: solution
        end function
        integer(c_int) function c_update_values(solver, term, count, values, memory) &
            bind(c, name="krylith_solver_update_values")
            import :: c_int, c_int32_t, c_int64_t, c_ptr
            type(c_ptr), value :: solver, values, memory
            integer(c_int32_t), value :: term
            integer(c_int64_t), value :: count
        end function
        integer(c_int) function c_update_kronecker(solver, stages, a, b, tau, m_count, m, l_count, l, memory) &
            bind(c, name="krylith_solver_update_kronecker")
            import :: c_int, c_int32_t, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: solver, memory
            integer(c_int32_t), value :: stages
            real(c_double), intent(in) :: a(*), b(*), m(*), l(*)
            real(c_double), value :: tau
            integer(c_int64_t), value :: m_count, l_count
        end function
        integer(c_int) function c_solver_set_matrix(solver, name, count, values) bind(c, name="krylith_solver_set_matrix")
            import :: c_int, c_int64_t, c_char, c_double, c_ptr
            type(c_ptr), value :: solver
            character(kind=c_char), intent(in) :: name(*)
            integer(c_int64_t), value :: count
            real(c_double), intent(in) :: values(*)
        end function
        integer(c_int) function c_set_tau(solver, tau) bind(c, name="krylith_solver_set_tau")
            import :: c_int, c_double, c_ptr
            type(c_ptr), value :: solver
            real(c_double), value :: tau
        end function
        integer(c_int) function c_set_refresh(solver, refresh) bind(c, name="krylith_solver_set_refresh")
            import :: c_int, c_char, c_ptr
            type(c_ptr), value :: solver
            character(kind=c_char), intent(in) :: refresh(*)
        end function
        integer(c_int) function c_set_tolerance(solver, rtol, atol, max_iters) bind(c, name="krylith_solver_set_tolerance")
            import :: c_int, c_int64_t, c_double, c_ptr
            type(c_ptr), value :: solver
            real(c_double), value :: rtol, atol
            integer(c_int64_t), value :: max_iters
        end function
        integer(c_int) function c_set_monitor(solver, monitor, user) bind(c, name="krylith_solver_set_monitor")
            import :: c_int, c_ptr, c_funptr
            type(c_ptr), value :: solver, user
            type(c_funptr), value :: monitor
        end function
        integer(c_int) function c_without_matrix(n, options, solver) bind(c, name="krylith_solver_without_matrix")
            import :: c_int, c_int64_t, c_char, c_ptr
            integer(c_int64_t), value :: n
            character(kind=c_char), intent(in) :: options(*)
            type(c_ptr), intent(inout) :: solver
        end function
        integer(c_int) function c_set_operators(solver, a, p) bind(c, name="krylith_solver_set_operators")
            import :: c_int, c_ptr
            type(c_ptr), value :: solver, a, p
        end function
        integer(c_int) function c_set_product(newton, product, user) bind(c, name="krylith_newton_set_product")
            import :: c_int, c_ptr, c_funptr
            type(c_ptr), value :: newton, user
            type(c_funptr), value :: product
        end function
        integer(c_int) function c_multiply(solver, x, y, memory) bind(c, name="krylith_solver_multiply")
            import :: c_int, c_ptr
            type(c_ptr), value :: solver, x, y, memory
        end function
        integer(c_int) function c_precondition(solver, x, y, memory) bind(c, name="krylith_solver_precondition")
            import :: c_int, c_ptr
            type(c_ptr), value :: solver, x, y, memory
        end function
        integer(c_int) function c_multiply_transposed(solver, x, y, memory) &
            bind(c, name="krylith_solver_multiply_transposed")
            import :: c_int, c_ptr
            type(c_ptr), value :: solver, x, y, memory
        end function
        integer(c_int) function c_precondition_transposed(solver, x, y, memory) &
            bind(c, name="krylith_solver_precondition_transposed")
            import :: c_int, c_ptr
            type(c_ptr), value :: solver, x, y, memory
        end function
        subroutine c_cancel(solver) bind(c, name="krylith_solver_cancel")
            import :: c_ptr
            type(c_ptr), value :: solver
        end subroutine
        integer(c_int) function c_residuals(solver, room, residuals, count) bind(c, name="krylith_solver_residuals")
            import :: c_int, c_int64_t, c_ptr, c_double
            type(c_ptr), value :: solver
            integer(c_int64_t), value :: room
            real(c_double), intent(inout) :: residuals(*)
            integer(c_int64_t), intent(out) :: count
        end function
        type(c_ptr) function c_summary(solver) bind(c, name="krylith_solver_summary")
            import :: c_ptr
            type(c_ptr), value :: solver
        end function
        type(c_ptr) function c_advice(solver) bind(c, name="krylith_solver_advice")
            import :: c_ptr
            type(c_ptr), value :: solver
        end function
        subroutine c_solver_free(solver) bind(c, name="krylith_solver_free")
            import :: c_ptr
            type(c_ptr), value :: solver
        end subroutine
        integer(c_int) function c_solve_functions(n, a, a_user, p, p_user, b, x, options, monitor, monitor_user, solution) &
            bind(c, name="krylith_solve_functions")
            import :: c_int, c_int64_t, c_char, c_double, c_ptr, c_funptr, c_solution
            integer(c_int64_t), value :: n
            type(c_funptr), value :: a, p, monitor
            type(c_ptr), value :: a_user, p_user, monitor_user
            real(c_double), intent(in) :: b(*)
            real(c_double), intent(inout) :: x(*)
            character(kind=c_char), intent(in) :: options(*)
            type(c_solution), intent(out) :: solution
        end function
        integer(c_size_t) function c_strlen(text) bind(c, name="strlen")
            import :: c_size_t, c_ptr
            type(c_ptr), value :: text
        end function
        integer(c_int) function c_newton_new(problem, options, linear, newton) bind(c, name="krylith_newton_new")
            import :: c_int, c_char, c_ptr
            type(c_ptr), value :: problem
            character(kind=c_char), intent(in) :: options(*), linear(*)
            type(c_ptr), intent(inout) :: newton
        end function
        integer(c_int) function c_newton_solve(newton, residual, jacobian, user, x, monitor, result) &
            bind(c, name="krylith_newton_solve")
            import :: c_int, c_double, c_ptr, c_funptr, c_newton_result
            type(c_ptr), value :: newton, user
            type(c_funptr), value :: residual, jacobian, monitor
            real(c_double), intent(inout) :: x(*)
            type(c_newton_result), intent(out) :: result
        end function
        subroutine c_newton_cancel(newton) bind(c, name="krylith_newton_cancel")
            import :: c_ptr
            type(c_ptr), value :: newton
        end subroutine
        subroutine c_newton_free(newton) bind(c, name="krylith_newton_free")
            import :: c_ptr
            type(c_ptr), value :: newton
        end subroutine
        type(c_ptr) function c_newton_outcome_name(outcome) bind(c, name="krylith_newton_outcome_name")
            import :: c_ptr, c_int32_t
            integer(c_int32_t), value :: outcome
        end function
    end interface

contains

    function given(user) result(address)
        type(c_ptr), intent(in), optional :: user
        type(c_ptr) :: address
        address = c_null_ptr
        if (present(user)) address = user
    end function

    integer(c_int32_t) function chosen(block)
        integer, intent(in), optional :: block
        chosen = 0
        if (present(block)) chosen = int(block, c_int32_t)
    end function

    !> Converts a text to C: it ends with a zero.
    function to_c(text) result(to)
        character(*), intent(in) :: text
        character(kind=c_char) :: to(len(text) + 1)
        integer :: i
        do i = 1, len(text)
            to(i) = text(i:i)
        end do
        to(len(text) + 1) = c_null_char
    end function

    function from_c(address) result(text)
        type(c_ptr), intent(in) :: address
        character(:), allocatable :: text
        character(kind=c_char), pointer :: from(:)
        integer :: i
        call c_f_pointer(address, from, [c_strlen(address)])
        allocate (character(size(from)) :: text)
        do i = 1, size(from)
            text(i:i) = from(i)
        end do
    end function

    ! `errmsg` is set in the procedure that the program calls: gfortran 12 loses the length of a deferred-length
    ! argument that is passed on.

    !> Returns the status of a matrix whose arrays have these lengths.
    integer(c_int) function fits(pointers, columns, values, numbers)
        integer, intent(in) :: pointers, columns, values, numbers
        fits = krylith_ok
        if (pointers < 1 .or. int(columns, c_int64_t) * numbers /= values) &
            fits = refused("the lengths of row_ptr, col and values do not agree")
    end function

    !> Returns the status of an array with `is` numbers that needs `wanted`.
    integer(c_int) function same(is, wanted, what)
        integer(c_int64_t), intent(in) :: is, wanted
        character(*), intent(in) :: what
        character(40) :: numbers(2)
        same = krylith_ok
        if (is == wanted) return
        write (numbers, "(i0)") is, wanted
        same = refused(what // " has " // trim(numbers(1)) // " numbers; expected " // trim(numbers(2)))
    end function

    !> Keeps an error text for `reason`, and returns the status of a wrong argument.
    integer(c_int) function refused(text)
        character(*), intent(in) :: text
        refused = c_reject(to_c(text))
    end function

    !> Hands a status to the caller, and returns true if it is an error. Ends the program if there is no `stat`.
    logical function failed(status, stat)
        integer(c_int), intent(in) :: status
        integer, intent(out), optional :: stat
        if (present(stat)) stat = int(status)
        failed = status /= krylith_ok
        if (present(stat) .or. .not. failed) return
        write (error_unit, "(2a)") "krylith: ", reason()
        error stop 1
    end function

    !> Returns the error text of the last failure of this thread.
    function reason() result(text)
        character(:), allocatable :: text
        text = from_c(c_last_error())
    end function
end module
