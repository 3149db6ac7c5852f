!> The part of MPI's module mpi_f08 that ranks.f90 uses, on top of the C interface, for MPI libraries
!> without Fortran.
module mpi_f08
    use, intrinsic :: iso_c_binding, only: c_int
    implicit none
    private
    public :: MPI_Init_thread, MPI_Comm_rank, MPI_Comm_size, MPI_Finalize, MPI_Abort

    type, public :: MPI_Comm
        integer :: mpi_val = -1
    end type

    type(MPI_Comm), public, protected :: MPI_COMM_WORLD
    !> The constant of Fortran; the C code uses the library's own.
    integer, parameter, public :: MPI_THREAD_SERIALIZED = 2

    interface
        function by_c_init() bind(c) result(works)
            import :: c_int
            integer(c_int) :: works
        end function
        function by_c_world() bind(c) result(handle)
            import :: c_int
            integer(c_int) :: handle
        end function
        function by_c_rank() bind(c) result(rank)
            import :: c_int
            integer(c_int) :: rank
        end function
        function by_c_size() bind(c) result(size)
            import :: c_int
            integer(c_int) :: size
        end function
        subroutine by_c_finalize() bind(c)
        end subroutine
        subroutine by_c_abort(code) bind(c)
            import :: c_int
            integer(c_int), value :: code
        end subroutine
    end interface

contains

    subroutine MPI_Init_thread(required, provided)
        integer, intent(in) :: required
        integer, intent(out) :: provided
        provided = merge(required, -1, by_c_init() /= 0)
        MPI_COMM_WORLD%mpi_val = by_c_world()
    end subroutine

    subroutine MPI_Comm_rank(comm, rank)
        type(MPI_Comm), intent(in) :: comm
        integer, intent(out) :: rank
        rank = merge(by_c_rank(), -1, comm%mpi_val == MPI_COMM_WORLD%mpi_val)
    end subroutine

    subroutine MPI_Comm_size(comm, size)
        type(MPI_Comm), intent(in) :: comm
        integer, intent(out) :: size
        size = merge(by_c_size(), -1, comm%mpi_val == MPI_COMM_WORLD%mpi_val)
    end subroutine

    subroutine MPI_Finalize()
        call by_c_finalize()
    end subroutine

    subroutine MPI_Abort(comm, code)
        type(MPI_Comm), intent(in) :: comm
        integer, intent(in) :: code
        if (comm%mpi_val == MPI_COMM_WORLD%mpi_val) call by_c_abort(code)
    end subroutine
end module
