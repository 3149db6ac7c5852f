// Calls every function of krylith.hpp, and checks known solutions, and exceptions of errors and of callbacks. Programs
// of their own call those of fields (fields.cpp) and of ranks (ranks.cpp).
#include <krylith.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <numeric>

#define EXPECT(what)                                                                                                   \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            std::cerr << __FILE__ << ":" << __LINE__ << ": " #what " does not hold\n";                                 \
            std::exit(EXIT_FAILURE);                                                                                   \
        }                                                                                                              \
    } while (0)

template <class E, class F> void expect_throw(F call, const std::string &words) {
    try {
        call();
    } catch (const E &e) {
        EXPECT(std::string(e.what()).find(words) != std::string::npos);
        return;
    }
    EXPECT(!"an exception");
}

constexpr int n = 6;

template <class I, class J> struct Matrix {
    std::vector<I> row_ptr{0};
    std::vector<J> col;
    std::vector<double> values;
    Matrix() {
        for (int i = 0; i < n; i++) {
            for (int j = std::max(i - 1, 0); j <= std::min(i + 1, n - 1); j++) {
                col.push_back(static_cast<J>(j));
                values.push_back(i == j ? 2.0 : -1.0);
            }
            row_ptr.push_back(static_cast<I>(col.size()));
        }
    }
};

template <class X> bool near(const X &x, double factor = 1.0) {
    for (int i = 0; i < n; i++)
        if (std::abs(x[i] - factor * (i + 1) * (n - i) / 2.0) > 1e-8) return false;
    return true;
}

template <class I, class J> void solves() {
    const Matrix<I, J> a;
    const std::vector<double> b(n, 1.0);
    std::array<double, n> x{};
    const auto problem = krylith::Problem::csr(a.row_ptr, a.col, a.values, 1);
    EXPECT(problem.unknowns() == n && problem.block() == 1);
    EXPECT(krylith::solve(problem, b, x, "rtol=1e-12 device=cpu").converged() && near(x));
}

int main() {
    solves<int, int>();
    solves<long, long>();
    solves<long long, int>();
    solves<std::size_t, unsigned>();
    const Matrix<int, int> a;
    const std::vector<double> b(n, 1.0);
    std::vector<double> x(n), y(n);

    auto problem = krylith::Problem::bsr(1, a.row_ptr, a.col, a.values);
    problem.set_grid(n, 1).set_coordinates(2, std::vector<double>(2 * n));
    krylith::Solver solver(problem, "method=cg precond=jacobi rtol=1e-12 device=cpu");
    std::vector<double> seen;
    solver.set_monitor([&](std::int64_t, double residual) { return seen.push_back(residual), true; });
    krylith::Solver moved = std::move(solver); // the monitor goes along
    const auto solution = moved.solve(b, x);
    EXPECT(solution.converged() && near(x) && seen.size() > 1 && moved.residuals().size() >= seen.size());
    EXPECT(moved.summary().find("converged") != std::string::npos && moved.advice().empty());
    EXPECT(krylith::name(solution.outcome) == "converged");

    // A monitor that throws ends the solve; the next solve is not affected.
    moved.set_monitor([](std::int64_t i, double) -> bool { return i < 1 ? true : throw std::runtime_error("seen enough"); });
    std::fill(x.begin(), x.end(), 0.0);
    expect_throw<std::runtime_error>([&] { moved.solve(b, x); }, "seen enough");
    moved.set_monitor(nullptr);
    EXPECT(moved.solve(b, x).converged() && near(x));

    moved.multiply(x, y);
    for (double v : y) EXPECT(std::abs(v - 1.0) < 1e-8);
    moved.precondition(b, y);
    for (double v : y) EXPECT(std::abs(v - 0.5) < 1e-12);
    std::fill(x.begin(), x.end(), 0.0);
    EXPECT(moved.solve_transposed(b, x).converged() && near(x)); // the matrix is symmetric
    moved.multiply_transposed(x, y);
    for (double v : y) EXPECT(std::abs(v - 1.0) < 1e-8);
    moved.precondition_transposed(b, y);
    for (double v : y) EXPECT(std::abs(v - 0.5) < 1e-12);
    auto twice = a.values;
    for (double &v : twice) v *= 2;
    moved.set_refresh("keep");
    moved.update_values(twice);
    EXPECT(moved.solve(b, x).converged() && near(x, 0.5));
    std::vector<double> both(2 * n, 1.0), answers(2 * n);
    const auto solutions = moved.solve_columns(2, both.data(), answers.data());
    EXPECT(solutions.size() == 2 && solutions[1].converged() && near(answers, 0.5));
    moved.set_tolerance(1e-13, -1, 1);
    std::fill(x.begin(), x.end(), 0.0);
    EXPECT(moved.solve(b, x).outcome == krylith::Outcome::max_iterations && !moved.advice().empty());
    moved.cancel();

    // (A ⊗ I + τ I ⊗ L) u = 1 with one stage: (3 + 0.5 L) u = 1.
    std::vector<int> ptr(n + 1);
    std::iota(ptr.begin(), ptr.end(), 0);
    const auto identity = krylith::Problem::csr(ptr, std::vector<int>(ptr.begin(), ptr.end() - 1), b, 1);
    const auto laplacian = krylith::Problem::csr(a.row_ptr, a.col, a.values, 1);
    krylith::Solver stages(krylith::Problem::kronecker({3.0}, {1.0}, 2.0, identity, laplacian), "rtol=1e-12 device=cpu");
    stages.update_kronecker({4.0}, {1.0}, 1.0, std::vector<double>(n, 1.0), a.values);
    stages.update_kronecker({3.0}, {1.0}, 2.0, std::vector<double>(n, 1.0), a.values);
    expect_throw<krylith::InvalidInput>([&] { stages.update_kronecker({3.0}, {1.0}, 1.0, {1.0}, a.values); }, "1 new values");
    stages.set_tau(0.5);
    EXPECT(stages.solve(b, x).converged());
    for (int i = 0; i < n; i++) {
        const double left = i > 0 ? x[i - 1] : 0, right = i < n - 1 ? x[i + 1] : 0;
        EXPECT(std::abs(3 * x[i] + 0.5 * (2 * x[i] - left - right) - 1.0) < 1e-9);
    }

    // Operators as functions.
    krylith::Function product = [](std::int64_t m, const double *from, double *to) {
        for (std::int64_t i = 0; i < m; i++) to[i] = 2 * from[i] - (i > 0 ? from[i - 1] : 0) - (i < m - 1 ? from[i + 1] : 0);
    };
    krylith::Function half = [](std::int64_t m, const double *from, double *to) {
        for (std::int64_t i = 0; i < m; i++) to[i] = from[i] / 2;
    };
    std::fill(x.begin(), x.end(), 0.0);
    EXPECT(krylith::solve_functions(product, b, x, "method=cg rtol=1e-12", half).converged() && near(x));
    krylith::Function broken = [](std::int64_t, const double *, double *) { throw std::out_of_range("beyond the mesh"); };
    expect_throw<std::out_of_range>([&] { krylith::solve_functions(broken, b, x); }, "beyond the mesh");
    expect_throw<krylith::InvalidInput>([&] { krylith::solve_functions(nullptr, b, x); }, "null pointer");

    // Operators of a solver, without a matrix and beside one.
    krylith::Operator map{[&](std::int64_t m, const double *from, double *to, bool, const krylith::Memory *memory) {
        if (memory) throw std::logic_error("vectors on a GPU");
        product(m, from, to);
    }, true};
    krylith::Solver without = krylith::Solver::without_matrix(n, "method=cg rtol=1e-12");
    without.set_operators(map, {[&](std::int64_t m, const double *from, double *to, bool, const krylith::Memory *) { half(m, from, to); }});
    std::fill(x.begin(), x.end(), 0.0);
    EXPECT(without.solve(b, x).converged() && near(x));
    krylith::Solver beside(problem, "precond=ildu device=cpu rtol=1e-12");
    beside.set_operators(map);
    std::fill(x.begin(), x.end(), 0.0);
    EXPECT(beside.solve_transposed(b, x).converged() && near(x));
    beside.set_operators({[](std::int64_t, const double *, double *, bool, const krylith::Memory *) { throw std::out_of_range("of the map"); }});
    std::fill(x.begin(), x.end(), 0.0);
    expect_throw<std::out_of_range>([&] { beside.solve(b, x); }, "of the map");

    // Wrong input.
    expect_throw<krylith::InvalidInput>([&] { krylith::Problem::csr(std::vector<int>{}, a.col, a.values); }, "row_ptr is empty");
    expect_throw<krylith::InvalidInput>([&] { krylith::Problem::csr(a.row_ptr, a.col, b); }, "col has");
    expect_throw<krylith::InvalidInput>([&] { krylith::Problem::bsr(2, a.row_ptr, a.col, a.values); }, "values has");
    expect_throw<krylith::InvalidInput>([&] { problem.set_null_vectors({1.0}); }, "expected a multiple of 6 numbers");
    expect_throw<krylith::InvalidInput>([&] { problem.set_near_null_vectors(); }, "rigid modes");
    expect_throw<krylith::InvalidInput>([&] { krylith::Solver(problem, "method=fast"); }, "fast");
    expect_throw<krylith::DeviceError>([&] { krylith::Solver(problem, "device=cuda:99"); }, "cuda");
    expect_throw<krylith::InvalidInput>([&] { moved.solve(std::vector<double>(3), x); }, "b has 3 numbers; expected 6");
    expect_throw<krylith::Error>([&] { moved.update_values(b); }, "6 new values");
    std::cout << "krylith.hpp: all functions\n";
}
