! A Kronecker sum whose M and L are distributed over MPI ranks, in Fortran. The right-hand side is made for x = 1.
program ranks_kronecker
    use krylith
    use mpi_f08
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    integer, parameter :: nodes = 30, most = nodes + 1
    integer(c_int64_t) :: row_ptr(most + 1), col(3 * most), first, n, i, j, e
    real(c_double) :: m(3 * most), l(3 * most), sums(2, most), f(2 * most), x(2 * most), a(2, 2), b(2, 2), tau
    type(krylith_problem) :: of_m, of_l, both
    type(krylith_solver) :: solver
    type(krylith_solution) :: solution
    character(:), allocatable :: text
    integer :: rank, size, provided, own, step, stat

    call MPI_Init_thread(MPI_THREAD_SERIALIZED, provided)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, size)
    ! The last rank has one row more than the others.
    own = merge(most, nodes, rank == size - 1)
    n = int(nodes, c_int64_t) * size + 1
    first = int(nodes, c_int64_t) * rank

    e = 0
    sums = 0
    do i = 1, own
        row_ptr(i) = e + 1
        do j = max(first + i - 1, 1_c_int64_t), min(first + i + 1, n)
            e = e + 1
            col(e) = j
            m(e) = merge(4d0, 1d0, j == first + i)
            l(e) = merge(2.5d0, -1d0, j == first + i)
            sums(:, i) = sums(:, i) + [m(e), l(e)]
        end do
    end do
    row_ptr(own + 1) = e + 1

    a = reshape([2d0, 0.5d0, 0d0, 1d0], [2, 2])
    b = reshape([5d0, 9d0, -1d0, 3d0], [2, 2]) / 12
    tau = 0.5d0
    call of_m%distributed_csr(MPI_COMM_WORLD%mpi_val, n, row_ptr(:own + 1), col(:e), m(:e), 1)
    call of_l%distributed_csr(MPI_COMM_WORLD%mpi_val, n, row_ptr(:own + 1), col(:e), l(:e), 1)
    call both%kronecker(a, b, tau, of_m, of_l)
    if (both%unknowns() /= 2 * own .or. both%block() /= 1) call fail("two stages of this rank's rows")
    call solver%create(both, "rtol=1e-12 device=cpu threads=1")
    do step = 1, 3
        if (step == 2) then
            tau = 0.25d0
            call solver%set_tau(tau)
        else if (step == 3) then
            a(1, 2) = 0.125d0
            tau = 1
            sums(2, :) = 2 * sums(2, :)
            call solver%update_kronecker(a, b, tau, m(:e), 2 * l(:e))
        end if
        do i = 1, own
            f(2 * i - 1:2 * i) = sum(a, 2) * sums(1, i) + tau * sum(b, 2) * sums(2, i)
        end do
        x = 0
        call solver%solve(f(:2 * own), x(:2 * own), solution)
        if (.not. solution%converged() .or. maxval(abs(x(:2 * own) - 1)) > 1d-9) call fail("a solution")
    end do
    ! Another time step on one rank is an error on all ranks.
    call solver%set_tau(merge(0.75d0, 0.5d0, rank == size - 1), stat=stat, errmsg=text)
    if (stat == 0) call fail("another time step on a rank")
    if (index(text, "tau is 0.75 on rank") == 0) call fail(text)
    call solver%free()
    if (rank == 0) print "(a, i0, a)", "a Kronecker sum of ", size, " ranks"
    call MPI_Finalize()

contains

    subroutine fail(what)
        character(*), intent(in) :: what
        write (error_unit, "(a, i0, 2a)") "rank ", rank, ": ", what
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine
end program
