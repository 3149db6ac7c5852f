! Coupled systems in Fortran: fields by text, and a matrix by name. The solution of the saddle point is known.
program fields
    use krylith
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    ! Velocities, pressures, and all unknowns.
    integer, parameter :: nu = 6, np = 3, n = nu + np
    integer(c_int32_t) :: row_ptr(n + 1), col(n * n), offsets(np + 1), diagonal(np)
    real(c_double) :: k(n, n), values(n * n), mass(np)
    type(krylith_problem) :: problem, none
    type(krylith_solver) :: solver
    character(:), allocatable :: text
    integer :: i, j, e, stat

    ! [A B; B^T 0] with A = -1 2 -1. Column i of B is the difference of the velocities 2i - 1 and 2i.
    k = 0
    do i = 1, nu
        k(i, i) = 2
        if (i < nu) k(i, i + 1) = -1
        if (i < nu) k(i + 1, i) = -1
    end do
    do i = 1, np
        k(2 * i - 1, nu + i) = -1
        k(2 * i, nu + i) = 1
        k(nu + i, :nu) = k(:nu, nu + i)
    end do
    e = 0
    do i = 1, n
        row_ptr(i) = e + 1
        do j = 1, n
            if (abs(k(i, j)) < 0.5d0) cycle
            e = e + 1
            col(e) = j
            values(e) = k(i, j)
        end do
    end do
    row_ptr(n + 1) = e + 1
    call problem%csr(row_ptr, col(:e), values(:e), block=1)

    call problem%set_fields("u[2]=0:6,p=6:")
    call solved("selfp")
    ! The mass matrix is the identity.
    mass = 1
    offsets = [(i, i = 1, np + 1)]
    diagonal = [(i, i = 1, np)]
    call problem%set_matrix("Mp", offsets, diagonal, mass)
    call solved("Mp")
    call problem%set_matrix("Mp", int(offsets - 1, c_int64_t), int(diagonal - 1, c_int64_t), mass, columns=np)
    call solved("Mp")
    call solver%create(problem, "precond=split(u: jacobi, p: jacobi; S=Mp) device=cpu")
    call solver%set_matrix("Mp", 2 * mass)
    call solver%set_matrix("Mp", mass(:2), stat=stat, errmsg=text)
    call refused("2 new values for the matrix `Mp`, which stores 3")

    call problem%set_field_near_null_vectors("u", reshape([(1d0, i = 1, nu), (1d0 * i, i = 1, nu)], [nu, 2]))
    call problem%set_field_near_null_vectors("v", reshape([1d0], [1, 1]), stat=stat, errmsg=text)
    call refused("the system has no field `v`")
    call problem%set_fields("u=0:5,p=6:", stat=stat, errmsg=text)
    call refused("1 of 9 unknowns belong to no field; the first is 5")
    call problem%set_fields("u=0:7,p=6:", stat=stat, errmsg=text)
    call refused("unknown 6 belongs to the fields `u` and `p`")
    call none%set_fields("u=0:6,p=6:", stat=stat, errmsg=text)
    call refused("problem is a null pointer")
    call problem%set_matrix("Mp", offsets, diagonal(:2), mass, stat=stat, errmsg=text)
    call refused("lengths")
    diagonal(2) = 77
    call problem%set_matrix("Mp", offsets, diagonal, mass, stat=stat, errmsg=text)
    call refused("matrix `Mp`")
    call problem%set_matrix("Mp", int(offsets, c_int64_t), [1_c_int64_t, 5000000000_c_int64_t, 3_c_int64_t], mass, &
        stat=stat, errmsg=text)
    call refused("does not fit 32 bits")
    call solved("Mp") ! errors leave the fields and the matrix as they are
    print "(a)", "module krylith: fields by text, and a matrix by name"

contains

    !> Solves for x_i = i, and checks the residual and the solution.
    subroutine solved(schur)
        character(*), intent(in) :: schur
        type(krylith_solver) :: solver
        type(krylith_solution) :: solution
        real(c_double) :: b(n), x(n), known(n)
        known = [(real(i, c_double), i = 1, n)]
        b = matmul(k, known)
        x = 0
        call solver%create(problem, "method=fgmres precond=split(u: jacobi, p: jacobi; schur=full, S=" // schur // &
            ") rtol=1e-11 device=cpu")
        call solver%solve(b, x, solution)
        call expect(solution%converged() .and. maxval(abs(x - known)) < 1d-8, "a solution with S=" // schur)
        call expect(norm2(b - matmul(k, x)) <= 1d-10 * norm2(b), "the residual with S=" // schur)
    end subroutine

    subroutine refused(words)
        character(*), intent(in) :: words
        call expect(stat == krylith_invalid .and. index(text, words) > 0, words)
    end subroutine

    subroutine expect(holds, what)
        logical, intent(in) :: holds
        character(*), intent(in) :: what
        if (holds) return
        write (error_unit, "(2a)") "does not hold: ", what
        error stop 1
    end subroutine
end program
