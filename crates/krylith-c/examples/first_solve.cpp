// A first solve: −u'' = 1 between two ends at zero, then the same with a coefficient that changes, as in a time loop.
//
//     c++ -std=c++17 first_solve.cpp $(pkg-config --cflags --libs krylith) -o first_solve
#include <krylith.hpp>

#include <cstdio>
#include <iostream>

int main() try {
    const int n = 1000;
    std::vector<int> row_ptr{0}, col;
    std::vector<double> values, b(n, 1.0 / ((n + 1.0) * (n + 1.0))), u(n);
    for (int i = 0; i < n; i++) {
        for (int j = i - 1; j <= i + 1; j++) {
            if (j < 0 || j >= n) continue;
            col.push_back(j);
            values.push_back(i == j ? 2.0 : -1.0);
        }
        row_ptr.push_back(static_cast<int>(col.size()));
    }

    krylith::Solver solver(krylith::Problem::csr(row_ptr, col, values), "rtol=1e-10");
    krylith::Solution solution = solver.solve(b, u);
    std::cout << solver.summary();
    std::printf("u(1/2) = %.6f, which is 1/8\n", (u[n / 2 - 1] + u[n / 2]) / 2);

    for (int step = 1; step <= 3; step++) {
        for (double &v : values) v *= 2.0;
        solver.update_values(values); // what the pattern determines is kept
        solution = solver.solve(b, u);
        std::printf("step %d: %s, u(1/2) = %.6f\n", step, krylith::name(solution.outcome).c_str(), (u[n / 2 - 1] + u[n / 2]) / 2);
    }
    return solution.converged() ? 0 : 1;
} catch (const krylith::Error &error) {
    std::cerr << error.what() << '\n';
    return 1;
}
