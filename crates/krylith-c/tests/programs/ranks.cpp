// Problems distributed over MPI ranks, in C++: −u'' = 1 with u = 0 at both ends, whose solution is known.
#include <krylith.hpp>

#include <cmath>
#include <cstdio>
#define OMPI_SKIP_MPICXX // MPI's old names for C++ raise warnings
#define MPICH_SKIP_MPICXX
#include <mpi.h>

namespace {

const int per_rank = 50;

/// The communicator's Fortran handle, which is the same in all languages.
int number_of(MPI_Comm comm) {
#if MPI_VERSION >= 5
    return MPI_Comm_toint(comm);
#else
    return MPI_Comm_c2f(comm);
#endif
}

void solve(int rank, int size) {
    const std::int64_t first = static_cast<std::int64_t>(per_rank) * rank, n = static_cast<std::int64_t>(per_rank) * size;
    std::vector<std::int64_t> row_ptr{0}, col;
    std::vector<double> values, b(per_rank, 1.0), u(per_rank);
    for (std::int64_t i = first; i < first + per_rank; i++) {
        for (std::int64_t j = i - 1; j <= i + 1; j++) {
            if (j < 0 || j >= n) continue;
            col.push_back(j);
            values.push_back(i == j ? 2.0 : -1.0);
        }
        row_ptr.push_back(static_cast<std::int64_t>(col.size()));
    }
    const int comm = number_of(MPI_COMM_WORLD);
    krylith::Problem rows[] = {krylith::Problem::distributed_csr(comm, n, row_ptr, col, values),
                               krylith::Problem::distributed_bsr(comm, 1, {}, row_ptr, col, values)};
    for (krylith::Problem &problem : rows) {
        krylith::Solver solver(std::move(problem), "rtol=1e-12 device=cpu threads=1");
        if (!solver.solve(b, u).converged()) throw std::runtime_error("not converged");
        for (std::int64_t i = 0; i < per_rank; i++) {
            const double x = static_cast<double>(first + i + 1), exact = x * (static_cast<double>(n) + 1.0 - x) / 2.0;
            if (std::fabs(u[static_cast<std::size_t>(i)] - exact) > 1e-6 * exact) throw std::runtime_error("another solution");
        }
    }
    // A wrong argument on one rank is an error on all ranks.
    if (rank == 0) col[1] = -5;
    try {
        krylith::Problem::distributed_csr(comm, n, row_ptr, col, values);
    } catch (const krylith::Error &error) {
        if (std::string(error.what()).find("-5") != std::string::npos) return;
    }
    throw std::runtime_error("a column -5 of rank 0 was not refused");
}

} // namespace

int main(int argc, char **argv) {
    int provided = 0, rank = 0, size = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    try {
        solve(rank, size);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    if (rank == 0) std::printf("rows of %d ranks\n", size);
    return MPI_Finalize();
}
