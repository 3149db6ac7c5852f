! Calls every procedure of module krylith, and checks results with known solutions and errors by their texts.
! Programs of their own call those of fields (fields.f90) and of ranks (ranks.f90).
module functions
    use krylith
    use, intrinsic :: iso_c_binding
    implicit none
    integer :: told = 0
    integer :: most = huge(1)

contains

    integer(c_int32_t) function product_with(user, n, x, y) bind(c)
        type(c_ptr), value :: user
        integer(c_int64_t), value :: n
        real(c_double), intent(in) :: x(n)
        real(c_double), intent(out) :: y(n)
        y = 2 * x
        y(2:) = y(2:) - x(:n - 1)
        y(:n - 1) = y(:n - 1) - x(2:)
        product_with = merge(7, 0, c_associated(user))
    end function

    integer(c_int32_t) function apply(user, n, x, y, transposed, memory) bind(c)
        type(c_ptr), value :: user, x, y, memory
        integer(c_int64_t), value :: n
        integer(c_int32_t), value :: transposed
        real(c_double), pointer :: from(:), to(:)
        call c_f_pointer(x, from, [n])
        call c_f_pointer(y, to, [n])
        apply = product_with(user, n, from, to)
        if (c_associated(memory) .or. transposed < 0) apply = 1
    end function

    integer(c_int32_t) function half(user, n, x, y) bind(c)
        type(c_ptr), value :: user
        integer(c_int64_t), value :: n
        real(c_double), intent(in) :: x(n)
        real(c_double), intent(out) :: y(n)
        y = x / 2
        half = merge(7, 0, c_associated(user))
    end function

    integer(c_int32_t) function monitor(user, iteration, relative_residual) bind(c)
        type(c_ptr), value :: user
        integer(c_int64_t), value :: iteration
        real(c_double), value :: relative_residual
        told = told + 1
        monitor = merge(1, 0, iteration >= most .or. relative_residual < 0 .or. c_associated(user))
    end function
end module

program api_module
    use krylith
    use functions
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    integer, parameter :: n = 6
    integer(c_int32_t) :: row_ptr(n + 1), col(3 * n)
    real(c_double) :: values(3 * n), b(n), x(n), y(n), both(n, 2), answers(n, 2)
    type(krylith_problem) :: problem
    type(krylith_solver) :: solver
    type(krylith_solution) :: solution, solutions(2)
    character(:), allocatable :: text
    integer :: i, e, stat, base

    b = 1
    do base = 1, 0, -1
        e = 0
        do i = 1, n
            row_ptr(i) = e + base
            if (i > 1) call add(i - 1, -1d0)
            call add(i, 2d0)
            if (i < n) call add(i + 1, -1d0)
        end do
        row_ptr(n + 1) = e + base
        call problem%csr(row_ptr, col(:e), values(:e), block=1)
        call solved(problem, 1d0)
        call problem%csr(int(row_ptr, c_int64_t), int(col(:e), c_int64_t), values(:e), block=2)
        call expect(problem%block() == 2, "blocks of two")
        call solved(problem, 1d0)
        call problem%bsr(1, row_ptr, col(:e), reshape(values(:e), [1, 1, e]))
        call solved(problem, 1d0)
        call problem%bsr(1, int(row_ptr, c_int64_t), int(col(:e), c_int64_t), reshape(values(:e), [1, 1, e]))
        call solved(problem, 1d0)
    end do
    call solver_of_everything()
    call kronecker_sums()
    call operators_as_functions()
    call wrong_input()
    print "(a)", "module krylith: all procedures"

contains

    subroutine add(j, value)
        integer, intent(in) :: j
        real(c_double), intent(in) :: value
        e = e + 1
        col(e) = j - 1 + base
        values(e) = value
    end subroutine

    subroutine expect(holds, what)
        logical, intent(in) :: holds
        character(*), intent(in) :: what
        if (holds) return
        write (error_unit, "(2a)") "does not hold: ", what
        error stop 1
    end subroutine

    !> x_i = i (n + 1 - i) / 2 solves A x = 1 with the matrix -1 2 -1.
    logical function near(is, factor)
        real(c_double), intent(in) :: is(n), factor
        integer :: k
        near = all(abs(is - factor * [(k * (n + 1 - k) / 2d0, k = 1, n)]) < 1d-8)
    end function

    subroutine solved(problem, factor)
        type(krylith_problem), intent(in) :: problem
        real(c_double), intent(in) :: factor
        type(krylith_solver) :: own
        call own%create(problem, "rtol=1e-12 device=cpu")
        x = 0
        call own%solve(b, x, solution)
        call expect(solution%converged() .and. near(x, factor), "a solution")
    end subroutine

    subroutine solver_of_everything()
        real(c_double), allocatable :: all(:)
        call problem%set_grid(n, 1, 1)
        call problem%set_coordinates(reshape([(real(i, c_double), i = 1, 2 * n)], [2, n]))
        call problem%set_near_null_vectors(reshape(b, [n, 1]))
        call solver%create(problem, "method=cg precond=jacobi rtol=1e-12 device=cpu")
        call solver%set_monitor(monitor)
        x = 0
        call solver%solve(b, x, solution)
        call expect(solution%converged() .and. near(x, 1d0) .and. told > 1, "a solve that is watched")
        all = solver%residuals()
        call expect(size(all) == solution%iterations + 1 .and. abs(all(1) - 1) < 1d-12, "residuals")
        call expect(index(solver%summary(), "converged after") > 0 .and. len(solver%advice()) == 0, "the summary")
        call expect(krylith_outcome_name(solution%outcome) == "converged", "the outcome's name")
        most = 1
        x = 0
        call solver%solve(b, x, solution)
        call expect(solution%outcome == krylith_interrupted, "a monitor that ends the solve")
        call solver%set_monitor()
        both(:, 1) = 1
        both(:, 2) = 3
        answers = 0
        call solver%solve(both, answers, solutions)
        call expect(near(answers(:, 1), 1d0) .and. near(answers(:, 2), 3d0) .and. solutions(2)%converged(), "two columns")
        call solver%multiply(answers(:, 2), y)
        call expect(maxval(abs(y - 3)) < 1d-8, "a product")
        call solver%precondition(b, y)
        call expect(maxval(abs(y - 0.5d0)) < 1d-12, "a preconditioner")
        x = 0
        call solver%solve_transposed(b, x, solution)
        call expect(solution%converged() .and. near(x, 1d0), "a transposed solve")
        call solver%multiply_transposed(answers(:, 2), y)
        call expect(maxval(abs(y - 3)) < 1d-8, "a transposed product")
        call solver%precondition_transposed(b, y)
        call expect(maxval(abs(y - 0.5d0)) < 1d-12, "a transposed preconditioner")
        call solver%set_refresh("rebuild")
        call solver%update_values(2 * values(:e))
        call solver%solve(b, x, solution)
        call expect(near(x, 0.5d0), "new values")
        call solver%set_tolerance(rtol=1d-13, max_iters=1)
        x = 0
        call solver%solve(b, x, solution)
        call expect(solution%outcome == krylith_max_iterations .and. index(solver%advice(), "max_iters") > 0, "advice")
        call solver%cancel()
        call solver%free()
        call solver%free()
    end subroutine

    subroutine kronecker_sums()
        type(krylith_problem) :: m, l, both
        integer(c_int32_t) :: ptr(n + 1), one(n)
        real(c_double) :: u(2, n), f(2, n), a(2, 2), left(2), right(2), residual(2)
        integer :: k
        ptr = [(k, k = 1, n + 1)]
        one = [(k, k = 1, n)]
        call m%csr(ptr, one, b, block=1)
        call l%csr(row_ptr, col(:e), values(:e), block=1)
        a = reshape([2d0, 0d0, 1d0, 3d0], [2, 2]) ! [2 1; 0 3]
        call both%kronecker(a, reshape([1d0, 0d0, 0d0, 1d0], [2, 2]), 2d0, m, l)
        call expect(both%unknowns() == 2 * n, "unknowns of a sum")
        call solver%create(both, "rtol=1e-12 device=cpu")
        call solver%set_tau(0.25d0)
        call solver%update_values(2 * values(:e), term=2)
        call solver%update_kronecker(a, reshape([1d0, 0d0, 0d0, 1d0], [2, 2]), 0.5d0, b, values(:e))
        call solver%update_kronecker(a, a, 0.5d0, b, values(:e - 1), stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "new values") > 0, "too few values of L")
        f = 1
        u = 0
        block
            real(c_double) :: flat(2 * n)
            flat = 0
            call solver%solve(reshape(f, [2 * n]), flat, solution)
            u = reshape(flat, [2, n])
        end block
        do k = 1, n
            left = 0
            right = 0
            if (k > 1) left = u(:, k - 1)
            if (k < n) right = u(:, k + 1)
            residual = matmul(a, u(:, k)) + 0.5d0 * (2 * u(:, k) - left - right) - 1
            call expect(maxval(abs(residual)) < 1d-9, "a Kronecker sum")
        end do
        call both%kronecker(reshape(b, [3, 2]), a, 1d0, m, l, stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "square") > 0, "A that is not square")
    end subroutine

    subroutine operators_as_functions()
        integer, target :: anything
        type(krylith_solver) :: without
        x = 0
        call krylith_solve_functions(product_with, b, x, "method=cg rtol=1e-12", p=half, solution=solution)
        call expect(solution%converged() .and. near(x, 1d0), "operators as functions")
        call krylith_solve_functions(product_with, b, x, user=c_loc(anything), stat=stat, errmsg=text)
        call expect(stat == krylith_callback .and. index(text, "returned 7") > 0, "a function that fails")
        call without%create_without_matrix(int(n, c_int64_t), "method=cg rtol=1e-12")
        call without%set_operators(krylith_operator(apply=c_funloc(apply)))
        x = 0
        call without%solve(b, x, solution=solution)
        call expect(solution%converged() .and. near(x, 1d0), "an operator of a solver without a matrix")
        call without%set_operators(stat=stat)
        call without%solve(b, x, stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "no matrix") > 0, "a solver without A")
    end subroutine

    subroutine wrong_input()
        call problem%csr(row_ptr, col(:3), values(:e), stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "lengths") > 0, "arrays of other lengths")
        col(2) = 99
        call problem%csr(row_ptr, col(:e), values(:e), stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "column 99") > 0, "a column beyond the matrix")
        call solver%create(problem, stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "problem is a null pointer") > 0, "a problem that was not made")
        col(2) = 1
        call problem%csr(row_ptr, col(:e), values(:e), block=1, stat=stat)
        call expect(stat == krylith_ok, "a matrix")
        call problem%set_near_null_vectors(stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "rigid modes") > 0, "rigid modes without coordinates")
        call problem%set_null_vectors(reshape(b(:4), [4, 1]), stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "a vector has 4 numbers; expected 6") > 0, "a short vector")
        call problem%set_null_vectors(stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "constant") > 0, "constants that it maps to something")
        call solver%create(problem, "method=fast", stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "fast") > 0, "a method that is not there")
        call solver%create(problem, "device=cuda:99", stat=stat)
        call expect(stat == krylith_device, "a GPU that is not there")
        call solver%create(problem, "device=cpu")
        call solver%solve(b(:2), x, stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "b has 2 numbers; expected 6") > 0, "a short b")
        call solver%update_values(b, stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "6 new values") > 0, "too few values")
        call expect(krylith_version() /= "", "the version")
    end subroutine
end program
