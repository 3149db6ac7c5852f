! Newton's method in Fortran: x(i)**3 = i, by a Jacobian without coupling.
module cubes
    use, intrinsic :: iso_c_binding
    implicit none
contains
    integer(c_int32_t) function residual(user, n, x, y) bind(c)
        type(c_ptr), value :: user
        integer(c_int64_t), value :: n
        real(c_double), intent(in) :: x(n)
        real(c_double), intent(out) :: y(n)
        integer(c_int64_t) :: i
        residual = 0
        if (c_associated(user)) residual = 1
        y = [(x(i)**3 - i, i = 1, n)]
    end function
    integer(c_int32_t) function jacobian(user, n, x, entries, values) bind(c)
        type(c_ptr), value :: user
        integer(c_int64_t), value :: n, entries
        real(c_double), intent(in) :: x(n)
        real(c_double), intent(out) :: values(entries)
        jacobian = 0
        if (c_associated(user)) jacobian = 1
        values = 3 * x**2
    end function
end module

program newton
    use krylith
    use cubes
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    integer, parameter :: n = 6
    integer(c_int32_t) :: row_ptr(n + 1), col(n)
    real(c_double) :: values(n), x(n)
    type(krylith_problem) :: problem
    type(krylith_newton) :: method
    type(krylith_newton_result) :: found
    integer :: i, stat

    row_ptr = [(i, i = 1, n + 1)]
    col = [(i, i = 1, n)]
    values = 0
    call test()

contains

    subroutine test()
        character(:), allocatable :: text
        call problem%csr(row_ptr, col, values, block=1)
        call method%create(problem, "rtol=1e-12 much=1", stat=stat, errmsg=text)
        call expect(stat == krylith_invalid .and. index(text, "unknown key of Newton") > 0, "wrong options are refused")
        call method%create(problem, "rtol=1e-12", "device=cpu threads=1")
        x = 1
        call method%solve(residual, jacobian, x, found)
        call expect(found%converged() .and. found%steps > 1, "the solve converges")
        call expect(krylith_newton_outcome_name(found%outcome) == "converged", "its outcome has a name")
        call expect(all(abs(x**3 - [(i, i = 1, n)]) < 1d-9), "x is the solution")
        call method%solve(residual, jacobian, x(:n - 1), stat=stat, errmsg=text)
        call expect(stat == krylith_invalid, "a short x is refused")
    end subroutine

    subroutine expect(holds, what)
        logical, intent(in) :: holds
        character(*), intent(in) :: what
        if (holds) return
        write (error_unit, "(2a)") "not so: ", what
        error stop 1
    end subroutine
end program
