!> The functions of krylith.h for Fortran 2018. Compile this file and krylith_c.f90 with the compiler of the
!> program: a compiler cannot read the module files of another one.
!>
!>     use krylith
!>     type(krylith_problem) :: problem
!>     type(krylith_solver) :: solver
!>     type(krylith_solution) :: solution
!>     call problem%csr(row_ptr, col, values)      ! rows and columns count from 1, or from 0
!>     call solver%create(problem, "rtol=1e-8")
!>     call solver%solve(b, x, solution)
!>     if (.not. solution%converged()) print *, solver%advice()
!> A call that fails prints the error text and ends the program, unless it has `stat`; `errmsg` then holds the
!> text. Objects free their handles when they go out of scope; they must not be assigned. The library uses
!> arrays only during a call; with `memory` they are on a GPU.
module krylith
    use, intrinsic :: iso_c_binding
    use krylith_c
    implicit none
    private

    public :: krylith_problem, krylith_solver, krylith_solution, krylith_memory
    public :: krylith_function, krylith_monitor, krylith_solve_functions
    public :: krylith_apply, krylith_operator, krylith_product
    public :: krylith_newton, krylith_newton_result, krylith_jacobian, krylith_newton_outcome_name
    public :: krylith_newton_converged, krylith_newton_max_steps, krylith_newton_line_search
    public :: krylith_newton_linear_solve, krylith_newton_not_finite, krylith_newton_interrupted
    public :: krylith_version, krylith_outcome_name
    public :: krylith_ok, krylith_invalid, krylith_device, krylith_memory_full, krylith_callback, krylith_internal
    public :: krylith_cancelled
    public :: krylith_converged, krylith_max_iterations, krylith_breakdown, krylith_stagnated, krylith_rounding_limit
    public :: krylith_inconsistent, krylith_diverged, krylith_not_finite, krylith_interrupted
    public :: krylith_criterion_residual, krylith_criterion_rows, krylith_criterion_backward

    !> How a solve ended.
    enum, bind(c)
        enumerator :: krylith_converged = 0, krylith_max_iterations = 1, krylith_breakdown = 2, krylith_stagnated = 3, &
            krylith_rounding_limit = 4, krylith_inconsistent = 5, krylith_diverged = 6, &
            krylith_not_finite = 7, krylith_interrupted = 8
    end enum

    !> The criterion of convergence.
    enum, bind(c)
        enumerator :: krylith_criterion_residual = 0, krylith_criterion_rows = 1, krylith_criterion_backward = 2
    end enum

    !> How a Newton solve ended.
    enum, bind(c)
        enumerator :: krylith_newton_converged = 0, krylith_newton_max_steps = 1, krylith_newton_line_search = 2, &
            krylith_newton_linear_solve = 3, krylith_newton_not_finite = 4, krylith_newton_interrupted = 5
    end enum

    !> The location of the arrays of a call: the number of the GPU, from 0, and the CUDA stream that the
    !> caller uses.
    type, bind(c) :: krylith_memory
        integer(c_int32_t) :: gpu = -1
        type(c_ptr) :: stream = c_null_ptr
    end type

    !> The result of a solve.
    type :: krylith_solution
        integer :: outcome = krylith_interrupted
        integer(c_int64_t) :: iterations = 0
        !> Number of restarts of the method from the recomputed residual.
        integer(c_int64_t) :: restarts = 0
        !> The relative residual |b - A x| / |b|, recomputed from x.
        real(c_double) :: true_residual = 0
        !> The largest value of the criterion that counts as converged: of the relative residual, by default.
        real(c_double) :: target = 0
        real(c_double) :: setup_seconds = 0
        real(c_double) :: solve_seconds = 0
        !> The value of the criterion, recomputed from x: by default the relative residual.
        real(c_double) :: criterion_value = 0
        !> The criterion of convergence, which the option `criterion` names.
        integer :: criterion = krylith_criterion_residual
    contains
        procedure :: converged => solution_converged
    end type

    !> A system without its right-hand side.
    type :: krylith_problem
        private
        type(c_ptr) :: handle = c_null_ptr
    contains
        !> (row_ptr, col, values [, block, memory, stat, errmsg]): a scalar matrix in CSR format, with indices
        !> of 32 or 64 bits. `block` is the number of unknowns of a node; without it, the block size that
        !> suits the pattern is chosen.
        generic :: csr => csr32, csr64
        !> (block, row_ptr, col, values [, memory, stat, errmsg]): a matrix of square blocks in BSR format;
        !> values(j, i, e) is row i, column j of block e.
        generic :: bsr => bsr32, bsr64
        !> (a, b, tau, m, l [, stat, errmsg]): the sum of the Kronecker products of A with M and of tau B with
        !> L. M and L may be distributed, with the same rows on each rank; all ranks then call this with the
        !> same a, b and tau.
        procedure :: kronecker
        !> (comm, columns, row_ptr, col, values [, block, stat, errmsg]): this rank's rows of a distributed
        !> matrix that has `columns` columns; each rank holds consecutive rows, in the order of the ranks.
        !> comm is comm%mpi_val of module mpi_f08.
        procedure :: distributed_csr
        !> (comm, block, row_ptr, col, values [, numbers, stat, errmsg]): this rank's block rows of a
        !> distributed matrix. Without `numbers`, each rank holds consecutive block rows, in the order of the
        !> ranks.
        procedure :: distributed_bsr
        !> (points [, stat, errmsg]): points(:, i) has the coordinates of node i.
        procedure :: set_coordinates
        !> (nx, ny, nz [, stat, errmsg]): the nodes form a grid, numbered with x fastest.
        procedure :: set_grid
        !> ([vectors, stat, errmsg]): vectors(:, k) is a null vector; without vectors, the constant vectors
        !> that the matrix maps to zero.
        procedure :: set_null_vectors
        !> ([vectors, stat, errmsg]): vectors(:, k) is a near-null vector; without vectors, the rigid modes of
        !> an elastic body.
        procedure :: set_near_null_vectors
        !> (text [, stat, errmsg]): the fields of a coupled system, such as "u[3]=0:90000,p=90000:". In this
        !> text, unknowns count from 0.
        procedure :: set_fields
        !> (field, vectors [, stat, errmsg]): vectors(:, k) is a near-null vector of the block of one field.
        procedure :: set_field_near_null_vectors
        !> (name, row_ptr, col, values [, columns, stat, errmsg]): a matrix in CSR format that preconditioners
        !> refer to by name, with indices of 32 or 64 bits; without `columns` it is square.
        generic :: set_matrix => matrix32, matrix64
        !> Returns the number of unknowns that this process holds.
        procedure :: unknowns => problem_unknowns
        !> Returns the number of unknowns of a node.
        procedure :: block => problem_block
        !> Frees the problem; solvers created from it remain valid.
        procedure :: free => problem_free
        procedure, private :: csr32, csr64, bsr32, bsr64, matrix32, matrix64
        final :: problem_final
    end type

    !> A problem on its device, ready for many solves.
    type :: krylith_solver
        private
        type(c_ptr) :: handle = c_null_ptr
        integer(c_int64_t) :: n = 0
    contains
        !> (problem [, options, stat, errmsg]): options is a list of key=value words, such as
        !> "method=gmres precond=ildu rtol=1e-8 device=cpu".
        procedure :: create => solver_create
        !> (b, x [, solution, memory, stat, errmsg]): solves with the initial guess x, and overwrites x with
        !> the best solution found. For several right-hand sides, b(:, k) and x(:, k) belong together.
        generic :: solve => solve_one, solve_columns
        !> (b, x [, solution, memory, stat, errmsg]): solves A^T x = b from the set-up for A.
        procedure :: solve_transposed
        !> (values [, term, memory, stat, errmsg]): new values, in the order in which the matrix was given;
        !> term 2 is L of a Kronecker sum.
        procedure :: update_values
        !> (a, b, tau, m, l [, stat, errmsg]): a new Kronecker sum with the same number of stages, and the
        !> values m and l. If one part is rejected, nothing changes.
        procedure :: update_kronecker
        !> (name, values [, stat, errmsg]): new values of a matrix that preconditioners refer to by name, in the
        !> order in which it was given. They take effect with the next update_values or set_tau.
        procedure :: set_matrix => solver_set_matrix
        !> (tau [, stat, errmsg])
        procedure :: set_tau
        !> (refresh [, stat, errmsg]): "keep", "refresh" or "rebuild" the preconditioner when values change.
        procedure :: set_refresh
        !> ([rtol, atol, max_iters, stat, errmsg]): the tolerances and the iteration limit of later solves.
        procedure :: set_tolerance
        !> ([monitor, user, stat, errmsg]): a bind(c) function that later solves call with their progress;
        !> without it, no function is called.
        procedure :: set_monitor
        !> (n [, options, stat, errmsg]): a solver of n unknowns without a matrix, whose A set_operators sets.
        procedure :: create_without_matrix
        !> ([a, p, stat, errmsg]): operators that later solves use. a replaces the matrix, which then only
        !> preconditions, and p replaces P^-1. Without them, there are none.
        procedure :: set_operators
        !> (x, y [, memory, stat, errmsg]): y = A x.
        procedure :: multiply
        !> (x, y [, memory, stat, errmsg]): y = P^-1 x.
        procedure :: precondition
        !> (x, y [, memory, stat, errmsg]): y = A^T x.
        procedure :: multiply_transposed
        !> (x, y [, memory, stat, errmsg]): y = P^-T x.
        procedure :: precondition_transposed
        !> Ends the solve that another thread runs.
        procedure :: cancel => solver_cancel
        !> Returns the relative residuals of the last solve.
        procedure :: residuals => solver_residuals
        !> Returns a table of the last solve, as the krylith command prints it.
        procedure :: summary => solver_summary
        !> Returns why the last solve did not converge and what to try; the text is empty if it converged.
        procedure :: advice => solver_advice
        procedure :: free => solver_free
        procedure, private :: solve_one, solve_columns
        final :: solver_final
    end type

    !> A linear map as a function of the program, for set_operators.
    type, bind(c) :: krylith_operator
        !> c_funloc of a krylith_apply.
        type(c_funptr) :: apply = c_null_funptr
        !> The pointer that is passed to the function.
        type(c_ptr) :: user = c_null_ptr
        !> Not 0 if the function can apply the transpose.
        integer(c_int32_t) :: has_transpose = 0
        !> Not 0 if all work of a function on a GPU is in the stream, and is the same for every x.
        integer(c_int32_t) :: capturable = 0
    end type

    !> The result of a Newton solve.
    type :: krylith_newton_result
        integer :: outcome = krylith_newton_interrupted
        integer(c_int64_t) :: steps = 0
        !> Iterations of all linear solves.
        integer(c_int64_t) :: iterations = 0
        !> The norms of F at the initial guess and at the end, and the largest norm that counts as converged.
        real(c_double) :: first_norm = 0
        real(c_double) :: norm = 0
        real(c_double) :: target = 0
        !> Seconds in F, in the Jacobian, in set-ups of the linear solver, and in its solves.
        real(c_double) :: residual_seconds = 0
        real(c_double) :: jacobian_seconds = 0
        real(c_double) :: setup_seconds = 0
        real(c_double) :: solve_seconds = 0
    contains
        procedure :: converged => newton_converged
    end type

    !> Newton's method for F(x) = 0, ready for many solves such as time steps.
    type :: krylith_newton
        private
        type(c_ptr) :: handle = c_null_ptr
        integer(c_int64_t) :: n = 0
    contains
        !> (problem [, options, linear, stat, errmsg]): the problem has the pattern of the Jacobian; its values
        !> are ignored. options is a list of key=value words, such as "rtol=1e-10 max_steps=20 forcing=ew", and
        !> linear has the options of the linear solves.
        procedure :: create => newton_create
        !> (residual, jacobian, x [, result, user, monitor, stat, errmsg]): solves from the initial guess x,
        !> and overwrites x with the best x found. The monitor receives the number of finished steps and the
        !> norm of F.
        procedure :: solve => newton_solve
        !> ([product, user, stat, errmsg]): the product with the Jacobian for later solves, whose jacobian then
        !> only preconditions; without it, the matrix is the Jacobian.
        procedure :: set_product
        !> Ends the solve that another thread runs.
        procedure :: cancel => newton_cancel
        procedure :: free => newton_free
        final :: newton_final
    end type

    abstract interface
        !> Applies an operator to x and writes the n numbers of the result to y. Returns 0; any other number
        !> ends the solve.
        integer(c_int32_t) function krylith_function(user, n, x, y) bind(c)
            import :: c_ptr, c_int64_t, c_double, c_int32_t
            type(c_ptr), value :: user
            integer(c_int64_t), value :: n
            real(c_double), intent(in) :: x(n)
            real(c_double), intent(out) :: y(n)
        end function
        !> Computes the values of the Jacobian at x, in the order in which the matrix was given. Returns 0; any
        !> other number ends the solve.
        !> Applies an operator to x, or its transpose if `transposed` is not 0, and writes the n numbers of the
        !> result to y. `memory` is c_null_ptr for addresses of the host. Otherwise it is the address of a
        !> krylith_memory, and the function puts its work in that stream. Returns 0, as krylith_function.
        integer(c_int32_t) function krylith_apply(user, n, x, y, transposed, memory) bind(c)
            import :: c_ptr, c_int64_t, c_int32_t
            type(c_ptr), value :: user, x, y, memory
            integer(c_int64_t), value :: n
            integer(c_int32_t), value :: transposed
        end function

        !> Writes the product of the Jacobian at x with v to y. Returns 0, as krylith_function.
        integer(c_int32_t) function krylith_product(user, n, x, v, y) bind(c)
            import :: c_ptr, c_int64_t, c_double, c_int32_t
            type(c_ptr), value :: user
            integer(c_int64_t), value :: n
            real(c_double), intent(in) :: x(n), v(n)
            real(c_double), intent(inout) :: y(n)
        end function

        integer(c_int32_t) function krylith_jacobian(user, n, x, entries, values) bind(c)
            import :: c_ptr, c_int64_t, c_double, c_int32_t
            type(c_ptr), value :: user
            integer(c_int64_t), value :: n, entries
            real(c_double), intent(in) :: x(n)
            real(c_double), intent(out) :: values(entries)
        end function
        !> Receives the iteration and the relative residual. Returns 0 to continue; any other number ends the
        !> solve.
        integer(c_int32_t) function krylith_monitor(user, iteration, relative_residual) bind(c)
            import :: c_ptr, c_int64_t, c_double, c_int32_t
            type(c_ptr), value :: user
            integer(c_int64_t), value :: iteration
            real(c_double), value :: relative_residual
        end function
    end interface

contains

    !> Returns the version of the library.
    function krylith_version() result(text)
        character(:), allocatable :: text
        text = from_c(c_version())
    end function

    !> Returns the name of an outcome, such as "converged".
    function krylith_outcome_name(outcome) result(text)
        integer, intent(in) :: outcome
        character(:), allocatable :: text
        text = from_c(c_outcome_name(int(outcome, c_int32_t)))
    end function

    !> Returns the name of an outcome of Newton's method, such as "line-search".
    function krylith_newton_outcome_name(outcome) result(text)
        integer, intent(in) :: outcome
        character(:), allocatable :: text
        text = from_c(c_newton_outcome_name(int(outcome, c_int32_t)))
    end function

    logical function newton_converged(self)
        class(krylith_newton_result), intent(in) :: self
        newton_converged = self%outcome == krylith_newton_converged
    end function

    logical function solution_converged(self)
        class(krylith_solution), intent(in) :: self
        solution_converged = self%outcome == krylith_converged
    end function

    subroutine csr32(self, row_ptr, col, values, block, memory, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        integer(c_int32_t), intent(in), target, contiguous :: row_ptr(:), col(:)
        real(c_double), intent(in), target, contiguous :: values(:)
        integer, intent(in), optional :: block
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        call self%free()
        status = fits(size(row_ptr), size(col), size(values), 1)
        if (status == krylith_ok) &
            status = c_csr(size(row_ptr) - 1_c_int64_t, size(values, kind=c_int64_t), c_loc(row_ptr), c_loc(col), c_loc(values), &
            chosen(block), place(memory), self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine csr64(self, row_ptr, col, values, block, memory, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        integer(c_int64_t), intent(in), target, contiguous :: row_ptr(:), col(:)
        real(c_double), intent(in), target, contiguous :: values(:)
        integer, intent(in), optional :: block
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        call self%free()
        status = fits(size(row_ptr), size(col), size(values), 1)
        if (status == krylith_ok) &
            status = c_csr64(size(row_ptr) - 1_c_int64_t, size(values, kind=c_int64_t), c_loc(row_ptr), c_loc(col), c_loc(values), &
            chosen(block), place(memory), self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine bsr32(self, block, row_ptr, col, values, memory, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        integer, intent(in) :: block
        integer(c_int32_t), intent(in), target, contiguous :: row_ptr(:), col(:)
        real(c_double), intent(in), target, contiguous :: values(:, :, :)
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        call self%free()
        status = fits(size(row_ptr), size(col), size(values), block * block)
        if (status == krylith_ok) &
            status = c_bsr(int(block, c_int32_t), size(row_ptr) - 1_c_int64_t, size(col, kind=c_int64_t), c_loc(row_ptr), &
            c_loc(col), c_loc(values), place(memory), self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine bsr64(self, block, row_ptr, col, values, memory, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        integer, intent(in) :: block
        integer(c_int64_t), intent(in), target, contiguous :: row_ptr(:), col(:)
        real(c_double), intent(in), target, contiguous :: values(:, :, :)
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        call self%free()
        status = fits(size(row_ptr), size(col), size(values), block * block)
        if (status == krylith_ok) &
            status = c_bsr64(int(block, c_int32_t), size(row_ptr) - 1_c_int64_t, size(col, kind=c_int64_t), c_loc(row_ptr), &
            c_loc(col), c_loc(values), place(memory), self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine kronecker(self, a, b, tau, m, l, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        real(c_double), intent(in) :: a(:, :), b(:, :)
        real(c_double), intent(in) :: tau
        type(krylith_problem), intent(in) :: m, l
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        call self%free()
        status = krylith_ok
        if (any(shape(a) /= size(a, 1)) .or. any(shape(b) /= size(a, 1))) &
            status = refused("A and B of a Kronecker sum must be square and of the same order")
        if (status == krylith_ok) &
            status = c_kronecker(int(size(a, 1), c_int32_t), pack(transpose(a), .true.), pack(transpose(b), .true.), tau, &
            m%handle, l%handle, self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine distributed_csr(self, comm, columns, row_ptr, col, values, block, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        integer, intent(in) :: comm
        integer(c_int64_t), intent(in) :: columns
        integer(c_int64_t), intent(in), contiguous :: row_ptr(:), col(:)
        real(c_double), intent(in), contiguous :: values(:)
        integer, intent(in), optional :: block
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        call self%free()
        status = fits(size(row_ptr), size(col), size(values), 1)
        if (status == krylith_ok) &
            status = c_distributed_csr(int(comm, c_int32_t), size(row_ptr) - 1_c_int64_t, columns, size(values, kind=c_int64_t), &
            row_ptr, col, values, chosen(block), self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine distributed_bsr(self, comm, block, row_ptr, col, values, numbers, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        integer, intent(in) :: comm, block
        integer(c_int64_t), intent(in), contiguous :: row_ptr(:), col(:)
        real(c_double), intent(in), contiguous :: values(:, :, :)
        integer(c_int64_t), intent(in), target, contiguous, optional :: numbers(:)
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        type(c_ptr) :: own
        call self%free()
        status = fits(size(row_ptr), size(col), size(values), block * block)
        own = c_null_ptr
        if (present(numbers)) then
            if (status == krylith_ok) status = same(size(numbers, kind=c_int64_t), size(row_ptr) - 1_c_int64_t, "numbers")
            own = c_loc(numbers)
        end if
        if (status == krylith_ok) &
            status = c_distributed_bsr(int(comm, c_int32_t), int(block, c_int32_t), size(row_ptr) - 1_c_int64_t, &
            size(col, kind=c_int64_t), own, row_ptr, col, values, self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_coordinates(self, points, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        real(c_double), intent(in), contiguous :: points(:, :)
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = c_set_coordinates(self%handle, int(size(points, 1), c_int32_t), size(points, 2, kind=c_int64_t), points)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_grid(self, nx, ny, nz, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        integer, intent(in) :: nx, ny, nz
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = c_set_grid(self%handle, int(nx, c_int64_t), int(ny, c_int64_t), int(nz, c_int64_t))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_null_vectors(self, vectors, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        real(c_double), intent(in), target, contiguous, optional :: vectors(:, :)
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        type(c_ptr) :: from
        integer(c_int32_t) :: count
        status = columns_of(self, vectors, from, count)
        if (status == krylith_ok) &
            status = c_set_null_vectors(self%handle, count, from)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_near_null_vectors(self, vectors, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        real(c_double), intent(in), target, contiguous, optional :: vectors(:, :)
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        type(c_ptr) :: from
        integer(c_int32_t) :: count
        status = columns_of(self, vectors, from, count)
        if (status == krylith_ok) &
            status = c_set_near_null_vectors(self%handle, count, from)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_fields(self, text, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        character(*), intent(in) :: text
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = c_set_fields(self%handle, to_c(trim(text)))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_field_near_null_vectors(self, field, vectors, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        character(*), intent(in) :: field
        real(c_double), intent(in), contiguous :: vectors(:, :)
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = c_set_field_near_null_vectors(self%handle, to_c(trim(field)), int(size(vectors, 2), c_int32_t), vectors)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine matrix32(self, name, row_ptr, col, values, columns, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        character(*), intent(in) :: name
        integer(c_int32_t), intent(in), contiguous :: row_ptr(:), col(:)
        real(c_double), intent(in), contiguous :: values(:)
        integer, intent(in), optional :: columns
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        integer(c_int64_t) :: across
        status = fits(size(row_ptr), size(col), size(values), 1)
        across = size(row_ptr) - 1_c_int64_t
        if (present(columns)) across = columns
        if (status == krylith_ok) &
            status = c_set_matrix(self%handle, to_c(trim(name)), size(row_ptr) - 1_c_int64_t, across, &
            size(values, kind=c_int64_t), int(row_ptr, c_int64_t), col, values)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine matrix64(self, name, row_ptr, col, values, columns, stat, errmsg)
        class(krylith_problem), intent(inout) :: self
        character(*), intent(in) :: name
        integer(c_int64_t), intent(in), contiguous :: row_ptr(:), col(:)
        real(c_double), intent(in), contiguous :: values(:)
        integer, intent(in), optional :: columns
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        integer(c_int64_t) :: across
        status = fits(size(row_ptr), size(col), size(values), 1)
        if (status == krylith_ok .and. any(abs(col) > huge(1_c_int32_t))) &
            status = refused("col: a column does not fit 32 bits")
        across = size(row_ptr) - 1_c_int64_t
        if (present(columns)) across = columns
        if (status == krylith_ok) &
            status = c_set_matrix(self%handle, to_c(trim(name)), size(row_ptr) - 1_c_int64_t, across, &
            size(values, kind=c_int64_t), row_ptr, int(col, c_int32_t), values)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    integer(c_int) function columns_of(self, vectors, from, count)
        class(krylith_problem), intent(in) :: self
        real(c_double), intent(in), target, contiguous, optional :: vectors(:, :)
        type(c_ptr), intent(out) :: from
        integer(c_int32_t), intent(out) :: count
        from = c_null_ptr
        count = 0
        columns_of = krylith_ok
        if (.not. present(vectors)) return
        columns_of = same(size(vectors, 1, kind=c_int64_t), self%unknowns(), "a vector")
        from = c_loc(vectors)
        count = int(size(vectors, 2), c_int32_t)
    end function

    integer(c_int64_t) function problem_unknowns(self)
        class(krylith_problem), intent(in) :: self
        problem_unknowns = c_unknowns(self%handle)
    end function

    integer function problem_block(self)
        class(krylith_problem), intent(in) :: self
        problem_block = int(c_block(self%handle))
    end function

    subroutine problem_free(self)
        class(krylith_problem), intent(inout) :: self
        call c_problem_free(self%handle)
        self%handle = c_null_ptr
    end subroutine

    subroutine problem_final(self)
        type(krylith_problem), intent(inout) :: self
        call self%free()
    end subroutine

    subroutine solver_create(self, problem, options, stat, errmsg)
        class(krylith_solver), intent(inout) :: self
        type(krylith_problem), intent(in) :: problem
        character(*), intent(in), optional :: options
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        character(:), allocatable :: text
        call self%free()
        text = ""
        if (present(options)) text = options
        self%n = problem%unknowns()
        status = c_solver_new(problem%handle, to_c(text), self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine solve_one(self, b, x, solution, memory, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), target, contiguous :: b(:)
        real(c_double), intent(inout), target, contiguous :: x(:)
        type(krylith_solution), intent(out), optional :: solution
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        type(c_solution) :: told(1)
        integer(c_int) :: status
        status = same(size(b, kind=c_int64_t), self%n, "b")
        if (status == krylith_ok) status = same(size(x, kind=c_int64_t), self%n, "x")
        if (status == krylith_ok) &
            status = c_solve_columns(self%handle, 1_c_int32_t, c_loc(b), c_loc(x), place(memory), told)
        if (status == krylith_ok .and. present(solution)) solution = from_told(told(1))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine solve_transposed(self, b, x, solution, memory, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), target, contiguous :: b(:)
        real(c_double), intent(inout), target, contiguous :: x(:)
        type(krylith_solution), intent(out), optional :: solution
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        type(c_solution) :: told
        integer(c_int) :: status
        status = same(size(b, kind=c_int64_t), self%n, "b")
        if (status == krylith_ok) status = same(size(x, kind=c_int64_t), self%n, "x")
        if (status == krylith_ok) &
            status = c_solve_transposed(self%handle, c_loc(b), c_loc(x), place(memory), told)
        if (status == krylith_ok .and. present(solution)) solution = from_told(told)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine solve_columns(self, b, x, solution, memory, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), target, contiguous :: b(:, :)
        real(c_double), intent(inout), target, contiguous :: x(:, :)
        type(krylith_solution), intent(out), optional :: solution(size(b, 2))
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        type(c_solution) :: told(size(b, 2))
        integer(c_int) :: status
        integer :: k
        status = same(size(b, 1, kind=c_int64_t), self%n, "a column of b")
        if (status == krylith_ok) status = same(size(x, 1, kind=c_int64_t), self%n, "a column of x")
        if (status == krylith_ok .and. size(x, 2) /= size(b, 2)) &
            status = refused("b and x must have the same number of columns")
        if (status == krylith_ok) &
            status = c_solve_columns(self%handle, int(size(b, 2), c_int32_t), c_loc(b), c_loc(x), place(memory), told)
        if (status == krylith_ok .and. present(solution)) then
            do k = 1, size(b, 2)
                solution(k) = from_told(told(k))
            end do
        end if
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine update_values(self, values, term, memory, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), target, contiguous :: values(..)
        integer, intent(in), optional :: term
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        integer(c_int32_t) :: which
        which = 0
        if (present(term)) which = int(term - 1, c_int32_t)
        status = c_update_values(self%handle, which, size(values, kind=c_int64_t), c_loc(values), place(memory))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine update_kronecker(self, a, b, tau, m, l, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in) :: a(:, :), b(:, :), tau
        real(c_double), intent(in), contiguous :: m(:), l(:)
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = krylith_ok
        if (any(shape(a) /= size(a, 1)) .or. any(shape(b) /= size(a, 1))) &
            status = refused("A and B of a Kronecker sum must be square and of the same order")
        if (status == krylith_ok) &
            status = c_update_kronecker(self%handle, int(size(a, 1), c_int32_t), pack(transpose(a), .true.), &
            pack(transpose(b), .true.), tau, size(m, kind=c_int64_t), m, size(l, kind=c_int64_t), l, c_null_ptr)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine solver_set_matrix(self, name, values, stat, errmsg)
        class(krylith_solver), intent(inout) :: self
        character(*), intent(in) :: name
        real(c_double), intent(in), contiguous :: values(:)
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = c_solver_set_matrix(self%handle, to_c(trim(name)), size(values, kind=c_int64_t), values)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_tau(self, tau, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in) :: tau
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = c_set_tau(self%handle, tau)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_refresh(self, refresh, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        character(*), intent(in) :: refresh
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = c_set_refresh(self%handle, to_c(trim(refresh)))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_tolerance(self, rtol, atol, max_iters, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), optional :: rtol, atol
        integer, intent(in), optional :: max_iters
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        real(c_double) :: relative, absolute
        integer(c_int64_t) :: limit
        relative = -1
        absolute = -1
        limit = -1
        if (present(rtol)) relative = rtol
        if (present(atol)) absolute = atol
        if (present(max_iters)) limit = max_iters
        status = c_set_tolerance(self%handle, relative, absolute, limit)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_monitor(self, monitor, user, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        procedure(krylith_monitor), optional :: monitor
        type(c_ptr), intent(in), optional :: user
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        type(c_funptr) :: call
        call = c_null_funptr
        if (present(monitor)) call = c_funloc(monitor)
        status = c_set_monitor(self%handle, call, given(user))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine create_without_matrix(self, n, options, stat, errmsg)
        class(krylith_solver), intent(inout) :: self
        integer(c_int64_t), intent(in) :: n
        character(*), intent(in), optional :: options
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        character(:), allocatable :: text
        call self%free()
        text = ""
        if (present(options)) text = options
        self%n = n
        status = c_without_matrix(n, to_c(text), self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_operators(self, a, p, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        type(krylith_operator), intent(in), optional, target :: a, p
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        type(c_ptr) :: map, inverse
        map = c_null_ptr
        if (present(a)) map = c_loc(a)
        inverse = c_null_ptr
        if (present(p)) inverse = c_loc(p)
        status = c_set_operators(self%handle, map, inverse)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine multiply(self, x, y, memory, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), target, contiguous :: x(:)
        real(c_double), intent(inout), target, contiguous :: y(:)
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = same(size(x, kind=c_int64_t), self%n, "x")
        if (status == krylith_ok) status = same(size(y, kind=c_int64_t), self%n, "y")
        if (status == krylith_ok) &
            status = c_multiply(self%handle, c_loc(x), c_loc(y), place(memory))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine multiply_transposed(self, x, y, memory, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), target, contiguous :: x(:)
        real(c_double), intent(inout), target, contiguous :: y(:)
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = same(size(x, kind=c_int64_t), self%n, "x")
        if (status == krylith_ok) status = same(size(y, kind=c_int64_t), self%n, "y")
        if (status == krylith_ok) &
            status = c_multiply_transposed(self%handle, c_loc(x), c_loc(y), place(memory))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine precondition(self, x, y, memory, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), target, contiguous :: x(:)
        real(c_double), intent(inout), target, contiguous :: y(:)
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = same(size(x, kind=c_int64_t), self%n, "x")
        if (status == krylith_ok) status = same(size(y, kind=c_int64_t), self%n, "y")
        if (status == krylith_ok) &
            status = c_precondition(self%handle, c_loc(x), c_loc(y), place(memory))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine precondition_transposed(self, x, y, memory, stat, errmsg)
        class(krylith_solver), intent(in) :: self
        real(c_double), intent(in), target, contiguous :: x(:)
        real(c_double), intent(inout), target, contiguous :: y(:)
        type(krylith_memory), intent(in), optional, target :: memory
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        status = same(size(x, kind=c_int64_t), self%n, "x")
        if (status == krylith_ok) status = same(size(y, kind=c_int64_t), self%n, "y")
        if (status == krylith_ok) &
            status = c_precondition_transposed(self%handle, c_loc(x), c_loc(y), place(memory))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine solver_cancel(self)
        class(krylith_solver), intent(in) :: self
        call c_cancel(self%handle)
    end subroutine

    function solver_residuals(self) result(all)
        class(krylith_solver), intent(in) :: self
        real(c_double), allocatable :: all(:)
        real(c_double) :: none(1)
        integer(c_int64_t) :: room, count
        if (failed(c_residuals(self%handle, 0_c_int64_t, none, room))) return
        allocate (all(room))
        if (failed(c_residuals(self%handle, room, all, count))) return
    end function

    function solver_summary(self) result(text)
        class(krylith_solver), intent(in) :: self
        character(:), allocatable :: text
        text = from_c(c_summary(self%handle))
    end function

    function solver_advice(self) result(text)
        class(krylith_solver), intent(in) :: self
        character(:), allocatable :: text
        text = from_c(c_advice(self%handle))
    end function

    subroutine solver_free(self)
        class(krylith_solver), intent(inout) :: self
        call c_solver_free(self%handle)
        self%handle = c_null_ptr
    end subroutine

    subroutine solver_final(self)
        type(krylith_solver), intent(inout) :: self
        call self%free()
    end subroutine

    !> Solves A x = b with the initial guess x, where A is a function instead of a stored matrix. If `p` is
    !> present, it applies P^-1.
    subroutine krylith_solve_functions(a, b, x, options, p, user, solution, monitor, stat, errmsg)
        procedure(krylith_function) :: a
        real(c_double), intent(in), contiguous :: b(:)
        real(c_double), intent(inout), contiguous :: x(:)
        character(*), intent(in), optional :: options
        procedure(krylith_function), optional :: p
        !> The pointer that is passed to all functions.
        type(c_ptr), intent(in), optional :: user
        type(krylith_solution), intent(out), optional :: solution
        procedure(krylith_monitor), optional :: monitor
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        type(c_solution) :: told
        type(c_funptr) :: inverse, tell
        type(c_ptr) :: them
        integer(c_int) :: status
        character(:), allocatable :: text
        status = same(size(x, kind=c_int64_t), size(b, kind=c_int64_t), "x")
        text = ""
        if (present(options)) text = options
        inverse = c_null_funptr
        if (present(p)) inverse = c_funloc(p)
        tell = c_null_funptr
        if (present(monitor)) tell = c_funloc(monitor)
        them = given(user)
        if (status == krylith_ok) &
            status = c_solve_functions(size(b, kind=c_int64_t), c_funloc(a), them, inverse, them, b, x, to_c(text), tell, &
            them, told)
        if (status == krylith_ok .and. present(solution)) solution = from_told(told)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine newton_create(self, problem, options, linear, stat, errmsg)
        class(krylith_newton), intent(inout) :: self
        type(krylith_problem), intent(in) :: problem
        character(*), intent(in), optional :: options, linear
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        integer(c_int) :: status
        character(:), allocatable :: own, of_linear
        call self%free()
        own = ""
        of_linear = ""
        if (present(options)) own = options
        if (present(linear)) of_linear = linear
        self%n = problem%unknowns()
        status = c_newton_new(problem%handle, to_c(own), to_c(of_linear), self%handle)
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine newton_solve(self, residual, jacobian, x, result, user, monitor, stat, errmsg)
        class(krylith_newton), intent(in) :: self
        procedure(krylith_function) :: residual
        procedure(krylith_jacobian) :: jacobian
        real(c_double), intent(inout), contiguous :: x(:)
        type(krylith_newton_result), intent(out), optional :: result
        !> The pointer that is passed to all functions.
        type(c_ptr), intent(in), optional :: user
        procedure(krylith_monitor), optional :: monitor
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        type(c_newton_result) :: told
        type(c_funptr) :: tell
        integer(c_int) :: status
        status = same(size(x, kind=c_int64_t), self%n, "x")
        tell = c_null_funptr
        if (present(monitor)) tell = c_funloc(monitor)
        if (status == krylith_ok) &
            status = c_newton_solve(self%handle, c_funloc(residual), c_funloc(jacobian), given(user), x, tell, told)
        if (status == krylith_ok .and. present(result)) then
            result = krylith_newton_result(int(told%outcome), told%steps, told%iterations, told%first_norm, told%norm, &
                told%target, told%residual_seconds, told%jacobian_seconds, told%setup_seconds, told%solve_seconds)
        end if
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine set_product(self, product, user, stat, errmsg)
        class(krylith_newton), intent(in) :: self
        procedure(krylith_product), optional :: product
        type(c_ptr), intent(in), optional :: user
        integer, intent(out), optional :: stat
        character(:), allocatable, intent(out), optional :: errmsg
        type(c_funptr) :: call
        integer(c_int) :: status
        call = c_null_funptr
        if (present(product)) call = c_funloc(product)
        status = c_set_product(self%handle, call, given(user))
        if (failed(status, stat) .and. present(errmsg)) errmsg = reason()
    end subroutine

    subroutine newton_cancel(self)
        class(krylith_newton), intent(in) :: self
        call c_newton_cancel(self%handle)
    end subroutine

    subroutine newton_free(self)
        class(krylith_newton), intent(inout) :: self
        call c_newton_free(self%handle)
        self%handle = c_null_ptr
    end subroutine

    subroutine newton_final(self)
        type(krylith_newton), intent(inout) :: self
        call self%free()
    end subroutine

    ! Between Fortran and C

    function from_told(told) result(solution)
        type(c_solution), intent(in) :: told
        type(krylith_solution) :: solution
        solution = krylith_solution(int(told%outcome), told%iterations, told%restarts, told%true_residual, told%target, &
            told%setup_seconds, told%solve_seconds, told%criterion_value, int(told%criterion))
    end function

    function place(memory) result(address)
        type(krylith_memory), intent(in), optional, target :: memory
        type(c_ptr) :: address
        address = c_null_ptr
        if (present(memory)) address = c_loc(memory)
    end function

end module
