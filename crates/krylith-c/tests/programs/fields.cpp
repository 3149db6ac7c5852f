// Coupled systems in C++: fields by text and by lists, and a matrix by name. The solution is known.
#include <krylith.hpp>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#define EXPECT(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            std::cerr << __FILE__ << ":" << __LINE__ << ": " #what " does not hold\n";                                 \
            std::exit(EXIT_FAILURE);                                                                                   \
        }                                                                                                              \
    } while (0)

namespace {

template <class F> void expect_refused(F call, const std::string &words) {
    try {
        call();
    } catch (const krylith::InvalidInput &e) {
        EXPECT(std::string(e.what()).find(words) != std::string::npos);
        return;
    }
    EXPECT(!"an exception");
}

// Velocities, pressures, and all unknowns.
constexpr int nu = 6, np = 3, n = nu + np;

/// [A B; Bᵀ 0] with A = −1 2 −1. Column k of B is the difference of the velocities 2k and 2k + 1.
double dense(int i, int j) {
    if (i < nu && j < nu) return i == j ? 2.0 : std::abs(i - j) == 1 ? -1.0 : 0.0;
    if (i >= nu && j >= nu) return 0.0;
    const int u = std::min(i, j), p = std::max(i, j) - nu;
    return u == 2 * p ? -1.0 : u == 2 * p + 1 ? 1.0 : 0.0;
}

krylith::Problem saddle() {
    std::vector<int> row_ptr{0}, col;
    std::vector<double> values;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < n; j++) {
            if (dense(i, j) == 0.0) continue;
            col.push_back(j);
            values.push_back(dense(i, j));
        }
        row_ptr.push_back(static_cast<int>(col.size()));
    }
    return krylith::Problem::csr(row_ptr, col, values, 1);
}

/// Solves for x_i = i + 1, and checks the residual and the solution.
void solves(const krylith::Problem &problem, const std::string &schur) {
    const std::string precond = "precond=split(u: jacobi, p: jacobi; schur=full, S=" + schur + ")";
    std::vector<double> b(n, 0.0), x(n, 0.0);
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++) b[i] += dense(i, j) * (j + 1);
    EXPECT(krylith::solve(problem, b, x, "method=fgmres " + precond + " rtol=1e-11 device=cpu").converged());
    double residual = 0.0, norm = 0.0;
    for (int i = 0; i < n; i++) {
        double r = b[i];
        for (int j = 0; j < n; j++) r -= dense(i, j) * x[j];
        residual += r * r, norm += b[i] * b[i];
        EXPECT(std::abs(x[i] - (i + 1)) < 1e-8);
    }
    EXPECT(std::sqrt(residual) <= 1e-10 * std::sqrt(norm));
}

/// Gives the mass matrix with indices of these types; it is the identity.
template <class I, class J> void set_mass(krylith::Problem &problem, int base) {
    std::vector<I> row_ptr;
    std::vector<J> col;
    for (int i = 0; i <= np; i++) row_ptr.push_back(static_cast<I>(i + base));
    for (int i = 0; i < np; i++) col.push_back(static_cast<J>(i + base));
    problem.set_matrix("Mp", row_ptr, col, std::vector<double>(np, 1.0));
}

} // namespace

int main() {
    auto problem = saddle();
    solves(problem.set_fields("u[2]=0:6,p=6:"), "selfp");
    solves(problem.set_fields({{"u", {0, 1, 2, 3, 4, 5}, 3}, {"p", {8, 7, 6}}}), "selfp");
    solves(problem.set_fields({{"u", {0, 1, 2, 3, 4, 5}, 1, {1, 1, 1, 1, 1, 1}}, {"p", {8, 7, 6}}}), "selfp");
    expect_refused([&] { problem.set_fields({{"u", {0, 1, 2, 3, 4, 5}, 1, {1, 1}}, {"p", {8, 7, 6}}}); }, "near_null_vectors");
    krylith::check_options("precond=amg then jacobi rtol=1e-8");
    expect_refused([] { krylith::check_options("precnod=amg"); }, "did you mean `precond`");
    const std::vector<krylith::Field> fields{{"u", {5, 4, 3, 2, 1, 0}}, {"p", {6, 7, 8}}};
    problem.set_fields(fields);
    set_mass<int, int>(problem, 0), solves(problem, "Mp");
    set_mass<long long, int>(problem, 1), solves(problem, "Mp");
    set_mass<std::size_t, unsigned>(problem, 0), solves(problem, "Mp");
    set_mass<std::int64_t, std::int64_t>(problem, 1), solves(problem, "Mp");

    krylith::Solver solver(problem, "precond=split(u: jacobi, p: jacobi; S=Mp) device=cpu");
    solver.set_matrix("Mp", std::vector<double>(np, 2.0));
    expect_refused([&] { solver.set_matrix("Mp", {1.0}); }, "1 new values for the matrix `Mp`, which stores 3");

    expect_refused([&] { problem.set_fields("u=0:5,p=6:"); }, "1 of 9 unknowns belong to no field; the first is 5");
    auto both = fields;
    both[1].unknowns[0] = 5;
    expect_refused([&] { problem.set_fields(both); }, "unknown 5 belongs to the fields `u` and `p`");
    const std::vector<int> row_ptr{0, 1}, one{0};
    const std::vector<double> value{1.0};
    expect_refused([&] { problem.set_matrix("Mp", std::vector<int>{}, one, value); }, "row_ptr is empty");
    expect_refused([&] { problem.set_matrix("Mp", row_ptr, row_ptr, value); }, "col has 2 numbers; expected 1");
    const std::vector<long long> far{5000000000};
    expect_refused([&] { problem.set_matrix("Mp", row_ptr, far, value); }, "col: 5000000000 is too large");
    expect_refused([&] { problem.set_matrix("Mp", row_ptr, std::vector<int>{1}, value); }, "column 1");
    problem.set_matrix("wide", row_ptr, std::vector<int>{1}, value, 2);
    expect_refused([&] { solves(problem, "wide"); }, "the matrix `wide` is 1×2");
    solves(problem, "Mp"); // errors leave the fields and the matrix as they are
    std::cout << "krylith.hpp: fields by text and by lists, and a matrix by name\n";
}
