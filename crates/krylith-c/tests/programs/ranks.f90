! Problems distributed over MPI ranks, in Fortran: two unknowns at each node, in blocks of two.
program ranks
    use krylith
    use mpi_f08
    use, intrinsic :: iso_c_binding
    use, intrinsic :: iso_fortran_env, only: error_unit
    implicit none
    integer, parameter :: nodes = 30
    integer(c_int64_t) :: row_ptr(2 * nodes + 1), col(12 * nodes), first, n, i, j, e
    real(c_double) :: values(12 * nodes), b(2 * nodes), x(2 * nodes)
    type(krylith_problem) :: problem
    type(krylith_solver) :: solver
    type(krylith_solution) :: solution
    integer :: rank, size, provided, step

    call MPI_Init_thread(MPI_THREAD_SERIALIZED, provided)
    call MPI_Comm_rank(MPI_COMM_WORLD, rank)
    call MPI_Comm_size(MPI_COMM_WORLD, size)
    n = 2_c_int64_t * nodes * size
    first = 2_c_int64_t * nodes * rank

    ! Node k couples with k - 1 and k + 1 by [-1 -1/4; -1/4 -1], and with itself by [4 1; 1 4]; x = 1 solves for b.
    e = 0
    do i = first + 1, first + 2 * nodes
        row_ptr(i - first) = e + 1
        b(i - first) = 0
        do j = max(2 * ((i - 1) / 2) - 1, 1_c_int64_t), min(2 * ((i - 1) / 2) + 4, n)
            e = e + 1
            col(e) = j
            values(e) = merge(4d0, 1d0, i == j)
            if ((i - 1) / 2 /= (j - 1) / 2) values(e) = merge(-1d0, -0.25d0, mod(i, 2_c_int64_t) == mod(j, 2_c_int64_t))
            b(i - first) = b(i - first) + values(e)
        end do
    end do
    row_ptr(2 * nodes + 1) = e + 1

    call problem%distributed_csr(MPI_COMM_WORLD%mpi_val, n, row_ptr, col(:e), values(:e))
    if (problem%block() /= 2 .or. problem%unknowns() /= 2 * nodes) call fail("blocks of two")
    call solver%create(problem, "rtol=1e-12 device=cpu threads=1")
    do step = 1, 2
        call solver%update_values(step * values(:e))
        x = 0
        call solver%solve(b, x, solution)
        if (.not. solution%converged() .or. maxval(abs(x - 1d0 / step)) > 1d-9) call fail("a solution")
    end do
    call solver%free()
    call problem%free()
    if (rank == 0) print "(a, i0, a)", "rows of ", size, " ranks"
    call MPI_Finalize()

contains

    subroutine fail(what)
        character(*), intent(in) :: what
        write (error_unit, "(a, i0, 2a)") "rank ", rank, ": ", what
        call MPI_Abort(MPI_COMM_WORLD, 1)
    end subroutine
end program
