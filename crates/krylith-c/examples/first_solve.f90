! A first solve: -u'' = 1 between two ends at zero, then the same with a coefficient that changes, as in a time loop.
!
!     gfortran $(pkg-config --cflags krylith) krylith_c.f90 krylith.f90 first_solve.f90 $(pkg-config --libs krylith) -o first_solve
!
! The two source files of the module are in the folder of krylith.h.
program first_solve
    use krylith
    use, intrinsic :: iso_c_binding
    implicit none
    integer, parameter :: n = 1000
    integer(c_int32_t) :: row_ptr(n + 1), col(3 * n)
    real(c_double) :: values(3 * n), b(n), u(n)
    type(krylith_problem) :: problem
    type(krylith_solver) :: solver
    type(krylith_solution) :: solution
    integer :: i, j, e, step

    e = 0
    do i = 1, n
        row_ptr(i) = e + 1 ! rows and columns count from 1
        do j = max(i - 1, 1), min(i + 1, n)
            e = e + 1
            col(e) = j
            values(e) = merge(2d0, -1d0, i == j)
        end do
    end do
    row_ptr(n + 1) = e + 1
    b = 1d0 / (n + 1d0)**2
    u = 0

    call problem%csr(row_ptr, col(:e), values(:e))
    call solver%create(problem, "rtol=1e-10")
    call solver%solve(b, u, solution)
    print "(a)", solver%summary()
    print "(a, f8.6, a)", "u(1/2) = ", (u(n / 2) + u(n / 2 + 1)) / 2, ", which is 1/8"

    do step = 1, 3
        values = 2 * values
        call solver%update_values(values(:e)) ! what the pattern determines is kept
        call solver%solve(b, u, solution)
        print "(a, i0, 3a, f8.6)", "step ", step, ": ", krylith_outcome_name(solution%outcome), ", u(1/2) = ", &
            (u(n / 2) + u(n / 2 + 1)) / 2
    end do
    if (.not. solution%converged()) error stop 1
end program
