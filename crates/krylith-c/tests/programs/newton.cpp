// Newton's method in C++: a system whose solution is known, and exceptions of its callbacks.
#include "check.h"
#include <cmath>
#include <krylith.hpp>

int main() {
    // x_i^3 = i + 1, coupled to nothing.
    const std::int64_t n = 8;
    std::vector<int> row_ptr, col;
    for (int i = 0; i <= n; i++) row_ptr.push_back(i);
    for (int i = 0; i < n; i++) col.push_back(i);
    const auto problem = krylith::Problem::csr(row_ptr, col, std::vector<double>(n), 1);
    krylith::Newton newton(problem, "rtol=1e-12", "device=cpu threads=1");
    const auto f = [](std::int64_t count, const double *x, double *to) {
        for (std::int64_t i = 0; i < count; i++) to[i] = x[i] * x[i] * x[i] - (i + 1.0);
    };
    const auto j = [](std::int64_t count, const double *x, std::int64_t, double *to) {
        for (std::int64_t i = 0; i < count; i++) to[i] = 3 * x[i] * x[i];
    };
    std::vector<double> x(n, 1.0);
    std::int64_t seen = -1;
    const auto result = newton.solve(f, j, x, [&](std::int64_t steps, double) { return seen = steps, true; });
    EXPECT(result.converged() && krylith::name(result.outcome) == "converged" && seen == result.steps);
    for (std::int64_t i = 0; i < n; i++) EXPECT(std::abs(x[i] - std::cbrt(i + 1.0)) < 1e-9);
    try {
        newton.solve([](std::int64_t, const double *, double *) { throw std::out_of_range("no such state"); }, j, x);
        EXPECT(false);
    } catch (const std::out_of_range &e) {
        EXPECT(std::string(e.what()) == "no such state");
    }
    try {
        newton.solve(nullptr, j, x);
        EXPECT(false);
    } catch (const krylith::InvalidInput &) {
    }
    return 0;
}
