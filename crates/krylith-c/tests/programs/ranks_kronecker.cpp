// A⊗M + τB⊗L whose M and L are distributed over MPI ranks, in C++. The right-hand side is made for x = 1.
#include <krylith.hpp>

#include <cmath>
#include <cstdio>
#define OMPI_SKIP_MPICXX // MPI's old names for C++ raise warnings
#define MPICH_SKIP_MPICXX
#include <mpi.h>

namespace {

int number_of(MPI_Comm comm) {
#if MPI_VERSION >= 5
    return MPI_Comm_toint(comm);
#else
    return MPI_Comm_c2f(comm);
#endif
}

/// This rank's rows of a tridiagonal matrix.
struct Rows {
    std::vector<std::int64_t> row_ptr{0}, col;
    std::vector<double> values, sums;

    Rows(std::int64_t first, std::int64_t own, std::int64_t n, double diagonal, double beside) {
        for (std::int64_t i = first; i < first + own; i++) {
            double sum = 0.0;
            for (std::int64_t j = i - 1; j <= i + 1; j++) {
                if (j < 0 || j >= n) continue;
                col.push_back(j);
                values.push_back(i == j ? diagonal : beside);
                sum += values.back();
            }
            row_ptr.push_back(static_cast<std::int64_t>(col.size()));
            sums.push_back(sum);
        }
    }
};

void expect_ones(krylith::Solver &solver, const std::vector<double> &a, const std::vector<double> &b, double tau, const Rows &m,
                 const Rows &l) {
    std::vector<double> f, x(2 * m.sums.size(), 0.0);
    for (std::size_t i = 0; i < m.sums.size(); i++) {
        for (std::size_t k = 0; k < 4; k += 2) f.push_back((a[k] + a[k + 1]) * m.sums[i] + tau * (b[k] + b[k + 1]) * l.sums[i]);
    }
    if (!solver.solve(f, x).converged()) throw std::runtime_error("not converged");
    for (double value : x) {
        if (std::fabs(value - 1.0) > 1e-9) throw std::runtime_error("another solution");
    }
}

void solve(int rank, int size) {
    const std::int64_t own = 20 + 5 * rank, first = 20 * rank + 5 * rank * (rank - 1) / 2, n = 20 * size + 5 * size * (size - 1) / 2;
    const std::vector<double> a{2.0, 0.0, 0.5, 1.0}, b{5.0 / 12, -1.0 / 12, 3.0 / 4, 1.0 / 4};
    const Rows m(first, own, n, 4.0, 1.0), l(first, own, n, 2.5, -1.0);
    const int comm = number_of(MPI_COMM_WORLD);
    const krylith::Problem of_m = krylith::Problem::distributed_csr(comm, n, m.row_ptr, m.col, m.values, 1);
    const krylith::Problem of_l = krylith::Problem::distributed_csr(comm, n, l.row_ptr, l.col, l.values, 1);
    krylith::Solver solver(krylith::Problem::kronecker(a, b, 0.5, of_m, of_l), "rtol=1e-12 device=cpu threads=1");
    expect_ones(solver, a, b, 0.5, m, l);
    solver.set_tau(0.25);
    expect_ones(solver, a, b, 0.25, m, l);
    const Rows other(first, own, n, 3.0, -0.75);
    solver.update_kronecker(b, a, 2.0, m.values, other.values);
    expect_ones(solver, b, a, 2.0, m, other);
    // Another time step on one rank is an error on all ranks.
    try {
        krylith::Problem::kronecker(a, b, rank + 1 == size ? 0.75 : 0.5, of_m, of_l);
    } catch (const krylith::Error &error) {
        if (std::string(error.what()).find("tau is 0.75 on rank") != std::string::npos) return;
    }
    throw std::runtime_error("another tau of the last rank was not refused");
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
    if (rank == 0) std::printf("a Kronecker sum of %d ranks\n", size);
    return MPI_Finalize();
}
