/// krylith.hpp: the functions of krylith.h for C++17. Objects free their handles, errors are exceptions,
/// arrays are containers or pointers.
///
///     krylith::Problem problem = krylith::Problem::csr(row_ptr, col, values); // vectors of integers
///     krylith::Solver solver(problem, "rtol=1e-8");
///     krylith::Solution solution = solver.solve(b, x);
///     if (!solution.converged()) std::cerr << solver.advice() << '\n';

#ifndef KRYLITH_HPP
#define KRYLITH_HPP

#include "krylith.h"

#include <cstddef>
#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace krylith {

/// The base class of exceptions; `what()` is the error text of the library.
class Error : public std::runtime_error {
public:
    Error(krylith_status status, const std::string &what) : std::runtime_error(what), status_(status) {}
    krylith_status status() const { return status_; }

private:
    krylith_status status_;
};
/// An argument, an option or a matrix is wrong.
class InvalidInput : public Error { using Error::Error; };
/// A device, a library or another rank is missing or has failed.
class DeviceError : public Error { using Error::Error; };
/// Not enough memory on the host or a GPU.
class OutOfMemory : public Error { using Error::Error; };

/// Turns a status into an exception.
inline void check(krylith_status status) {
    switch (status) {
    case KRYLITH_OK: return;
    case KRYLITH_INVALID: throw InvalidInput(status, krylith_last_error());
    case KRYLITH_DEVICE: throw DeviceError(status, krylith_last_error());
    case KRYLITH_MEMORY: throw OutOfMemory(status, krylith_last_error());
    default: throw Error(status, krylith_last_error());
    }
}

/// How a solve ended.
enum class Outcome {
    converged = KRYLITH_CONVERGED,
    max_iterations = KRYLITH_MAX_ITERATIONS,
    breakdown = KRYLITH_BREAKDOWN,
    stagnated = KRYLITH_STAGNATED,
    rounding_limit = KRYLITH_ROUNDING_LIMIT,
    inconsistent = KRYLITH_INCONSISTENT,
    diverged = KRYLITH_DIVERGED,
    not_finite = KRYLITH_NOT_FINITE,
    interrupted = KRYLITH_INTERRUPTED,
};

/// The criterion of convergence.
enum class Criterion {
    residual = KRYLITH_CRITERION_RESIDUAL,
    rows = KRYLITH_CRITERION_ROWS,
    backward = KRYLITH_CRITERION_BACKWARD,
};

/// Checks the name and the value of each option of a text; throws what is wrong.
inline void check_options(const std::string &options) { check(krylith_check_options(options.c_str())); }

inline std::string name(Outcome outcome) { return krylith_outcome_name(static_cast<int32_t>(outcome)); }

/// The result of a solve.
struct Solution {
    Outcome outcome = Outcome::interrupted;
    std::int64_t iterations = 0;
    /// Number of restarts of the method from the recomputed residual.
    std::int64_t restarts = 0;
    /// The relative residual ‖b − A x‖ / ‖b‖, recomputed from x.
    double true_residual = 0;
    /// The largest value of the criterion that counts as converged: of the relative residual, by default.
    double target = 0;
    /// Seconds of set-up since the previous solve, and seconds of iterations.
    double setup_seconds = 0, solve_seconds = 0;
    /// The value of the criterion, recomputed from x: by default the relative residual.
    double criterion_value = 0;
    /// The criterion of convergence, which the option `criterion` names.
    Criterion criterion = Criterion::residual;

    Solution() = default;
    explicit Solution(const krylith_solution &from)
        : outcome(static_cast<Outcome>(from.outcome)), iterations(from.iterations), restarts(from.restarts),
          true_residual(from.true_residual), target(from.target), setup_seconds(from.setup_seconds),
          solve_seconds(from.solve_seconds), criterion_value(from.criterion_value),
          criterion(static_cast<Criterion>(from.criterion)) {}
    bool converged() const { return outcome == Outcome::converged; }
};

/// The location of arrays: `Memory{0, stream}` is GPU 0, with the stream that the caller uses.
using Memory = krylith_memory;

namespace detail {

template <class T> constexpr bool whole = std::is_integral_v<T> && (sizeof(T) == 4 || sizeof(T) == 8);

template <class T> const auto *fixed(const T *p) {
    static_assert(whole<T>, "indices must be integers of 32 or 64 bits");
    if constexpr (sizeof(T) == 4) return reinterpret_cast<const std::int32_t *>(p);
    else return reinterpret_cast<const std::int64_t *>(p);
}

inline krylith_status csr(std::int64_t n, std::int64_t e, const std::int32_t *p, const std::int32_t *j, const double *v, int block,
                          const Memory *memory, krylith_problem **to) {
    return krylith_problem_csr(n, e, p, j, v, block, memory, to);
}
inline krylith_status csr(std::int64_t n, std::int64_t e, const std::int64_t *p, const std::int64_t *j, const double *v, int block,
                          const Memory *memory, krylith_problem **to) {
    return krylith_problem_csr64(n, e, p, j, v, block, memory, to);
}
inline krylith_status csr(std::int64_t n, std::int64_t e, const std::int64_t *p, const std::int32_t *j, const double *v, int block,
                          const Memory *memory, krylith_problem **to) {
    return krylith_problem_csr64_32(n, e, p, j, v, block, memory, to);
}
inline krylith_status bsr(int block, std::int64_t n, std::int64_t e, const std::int32_t *p, const std::int32_t *j, const double *v,
                          const Memory *memory, krylith_problem **to) {
    return krylith_problem_bsr(block, n, e, p, j, v, memory, to);
}
inline krylith_status bsr(int block, std::int64_t n, std::int64_t e, const std::int64_t *p, const std::int64_t *j, const double *v,
                          const Memory *memory, krylith_problem **to) {
    return krylith_problem_bsr64(block, n, e, p, j, v, memory, to);
}

[[noreturn]] inline void wrong(const std::string &what) { throw InvalidInput(KRYLITH_INVALID, what); }

inline void same(std::int64_t is, std::int64_t wanted, const char *what) {
    if (is != wanted) wrong(std::string(what) + " has " + std::to_string(is) + " numbers; expected " + std::to_string(wanted));
}

template <class C> std::int64_t size(const C &c) { return static_cast<std::int64_t>(std::size(c)); }

/// Copies indices to another width.
template <class To, class C> std::vector<To> indices(const C &from, const char *what) {
    std::vector<To> to;
    to.reserve(std::size(from));
    for (const auto i : from) {
        static_assert(whole<std::decay_t<decltype(i)>>, "indices must be integers of 32 or 64 bits");
        to.push_back(static_cast<To>(i));
        if (static_cast<std::decay_t<decltype(i)>>(to.back()) != i) wrong(std::string(what) + ": " + std::to_string(i) + " is too large");
    }
    return to;
}

/// Returns the number of stages; `a` and `b` must be stages × stages.
inline int stages(const std::vector<double> &a, const std::vector<double> &b) {
    std::int64_t s = 0;
    while (s * s < detail::size(a)) s++;
    same(detail::size(a), s * s, "A");
    same(detail::size(b), s * s, "B");
    return static_cast<int>(s);
}

/// A callback, and the exception that it threw. Exceptions do not pass through the library.
template <class Signature> struct Called {
    std::function<Signature> call;
    std::exception_ptr thrown;
};

} // namespace detail

/// A named part of the unknowns, such as the pressure, for preconditioners of coupled systems.
struct Field {
    std::string name;
    /// The numbers of its unknowns, from 0.
    std::vector<std::int64_t> unknowns;
    /// The number of unknowns of a node, which are consecutive in `unknowns`.
    int block = 1;
    /// Near-null vectors of the block of the field, one after the other, in the order of `unknowns`.
    std::vector<double> near_null_vectors = {};
};

/// A system without its right-hand side.
class Problem {
public:
    /// Creates a problem from a scalar matrix in CSR format, in contiguous containers such as std::vector.
    /// `block` is the number of unknowns of a node; 0 chooses the block size that suits the pattern.
    template <class I, class J, class V> static Problem csr(const I &row_ptr, const J &col, const V &values, int block = 0) {
        if (std::size(row_ptr) == 0) detail::wrong("row_ptr is empty; expected one number more than there are rows");
        detail::same(detail::size(col), detail::size(values), "col");
        return csr(detail::size(row_ptr) - 1, detail::size(values), std::data(row_ptr), std::data(col), std::data(values), block);
    }

    /// Does the same with pointers, to host memory unless `memory` names a GPU.
    template <class I, class J>
    static Problem csr(std::int64_t rows, std::int64_t entries, const I *row_ptr, const J *col, const double *values, int block = 0,
                       const Memory *memory = nullptr) {
        krylith_problem *made = nullptr;
        check(detail::csr(rows, entries, detail::fixed(row_ptr), detail::fixed(col), values, block, memory, &made));
        return Problem(made);
    }

    /// Creates a problem from a matrix of square blocks in BSR format; the numbers of a block are stored row
    /// by row.
    template <class I, class J, class V>
    static Problem bsr(int block, const I &row_ptr, const J &col, const V &values) {
        if (std::size(row_ptr) == 0) detail::wrong("row_ptr is empty; expected one number more than there are block rows");
        detail::same(detail::size(values), detail::size(col) * block * block, "values");
        return bsr(block, detail::size(row_ptr) - 1, detail::size(col), std::data(row_ptr), std::data(col), std::data(values));
    }

    /// Does the same with pointers, to host memory unless `memory` names a GPU.
    template <class I, class J>
    static Problem bsr(int block, std::int64_t block_rows, std::int64_t blocks, const I *row_ptr, const J *col, const double *values,
                       const Memory *memory = nullptr) {
        krylith_problem *made = nullptr;
        check(detail::bsr(block, block_rows, blocks, detail::fixed(row_ptr), detail::fixed(col), values, memory, &made));
        return Problem(made);
    }

    /// Creates the problem A⊗M + τB⊗L; A and B are stages × stages, row by row. M and L may be distributed,
    /// with the same rows on each rank; all ranks then call this with the same A, B and τ.
    static Problem kronecker(const std::vector<double> &a, const std::vector<double> &b, double tau, const Problem &m, const Problem &l) {
        const int stages = detail::stages(a, b);
        krylith_problem *made = nullptr;
        check(krylith_problem_kronecker(stages, a.data(), b.data(), tau, m.get(), l.get(), &made));
        return Problem(made);
    }

    /// Creates a problem from this rank's rows of a distributed scalar matrix; each rank holds consecutive
    /// rows, in the order of the ranks. `comm` is MPI_Comm_c2f of the communicator, and `columns` the number
    /// of columns of the whole matrix.
    static Problem distributed_csr(int comm, std::int64_t columns, const std::vector<std::int64_t> &row_ptr,
                                   const std::vector<std::int64_t> &col, const std::vector<double> &values, int block = 0) {
        if (row_ptr.empty()) detail::wrong("row_ptr is empty; expected one number more than there are rows");
        detail::same(detail::size(col), detail::size(values), "col");
        krylith_problem *made = nullptr;
        check(krylith_problem_distributed_csr(comm, detail::size(row_ptr) - 1, columns, detail::size(values), row_ptr.data(), col.data(),
                                              values.data(), block, &made));
        return Problem(made);
    }

    /// Creates a problem from this rank's block rows of a distributed matrix. If `numbers` is empty, each
    /// rank holds consecutive block rows, in the order of the ranks.
    static Problem distributed_bsr(int comm, int block, const std::vector<std::int64_t> &numbers, const std::vector<std::int64_t> &row_ptr,
                                   const std::vector<std::int64_t> &col, const std::vector<double> &values) {
        if (row_ptr.empty()) detail::wrong("row_ptr is empty; expected one number more than there are block rows");
        detail::same(detail::size(values), detail::size(col) * block * block, "values");
        if (!numbers.empty()) detail::same(detail::size(numbers), detail::size(row_ptr) - 1, "numbers");
        krylith_problem *made = nullptr;
        check(krylith_problem_distributed_bsr(comm, block, detail::size(row_ptr) - 1, detail::size(col),
                                              numbers.empty() ? nullptr : numbers.data(), row_ptr.data(), col.data(), values.data(), &made));
        return Problem(made);
    }

    /// Sets the coordinates of the nodes, `dimensions` numbers for each node.
    template <class V> Problem &set_coordinates(int dimensions, const V &points) {
        const auto nodes = detail::size(points) / (dimensions > 0 ? dimensions : 1);
        check(krylith_problem_set_coordinates(get(), dimensions, nodes, std::data(points)));
        return *this;
    }
    /// Declares that the nodes form a grid, numbered with x fastest.
    Problem &set_grid(std::int64_t nx, std::int64_t ny, std::int64_t nz = 1) {
        check(krylith_problem_set_grid(get(), nx, ny, nz));
        return *this;
    }
    /// Sets null vectors, stored one after the other; an empty argument means the constant vectors that the
    /// matrix maps to zero.
    Problem &set_null_vectors(const std::vector<double> &vectors = {}) {
        check(krylith_problem_set_null_vectors(get(), count(vectors), vectors.empty() ? nullptr : vectors.data()));
        return *this;
    }
    /// Sets near-null vectors; an empty argument means the rigid modes of an elastic body.
    Problem &set_near_null_vectors(const std::vector<double> &vectors = {}) {
        check(krylith_problem_set_near_null_vectors(get(), count(vectors), vectors.empty() ? nullptr : vectors.data()));
        return *this;
    }
    /// Sets the fields by a text, such as "u[3]=0:90000,p=90000:".
    Problem &set_fields(const std::string &text) {
        check(krylith_problem_set_fields(get(), text.c_str()));
        return *this;
    }
    /// Sets the fields by lists of their unknowns. Each unknown belongs to one field.
    Problem &set_fields(const std::vector<Field> &fields) {
        std::vector<const char *> names;
        std::vector<std::int64_t> lengths;
        std::vector<const std::int64_t *> unknowns;
        std::vector<std::int32_t> blocks;
        for (const Field &field : fields) {
            names.push_back(field.name.c_str());
            lengths.push_back(detail::size(field.unknowns));
            unknowns.push_back(field.unknowns.data());
            blocks.push_back(field.block);
        }
        const auto count = static_cast<std::int32_t>(fields.size());
        check(krylith_problem_set_field_lists(get(), count, names.data(), lengths.data(), unknowns.data(), blocks.data()));
        for (const Field &field : fields) {
            if (!field.near_null_vectors.empty()) set_field_near_null_vectors(field);
        }
        return *this;
    }
    /// Sets a matrix in CSR format that preconditioners refer to by name; 0 columns mean a square matrix.
    template <class I, class J, class V>
    Problem &set_matrix(const std::string &name, const I &row_ptr, const J &col, const V &values, std::int64_t columns = 0) {
        if (std::size(row_ptr) == 0) detail::wrong("row_ptr is empty; expected one number more than there are rows");
        detail::same(detail::size(col), detail::size(values), "col");
        const auto offsets = detail::indices<std::int64_t>(row_ptr, "row_ptr");
        const auto numbers = detail::indices<std::int32_t>(col, "col");
        const std::int64_t rows = detail::size(offsets) - 1;
        check(krylith_problem_set_matrix(get(), name.c_str(), rows, columns == 0 ? rows : columns, detail::size(values),
                                         offsets.data(), numbers.data(), std::data(values)));
        return *this;
    }

    /// Returns the number of unknowns that this process holds.
    std::int64_t unknowns() const { return krylith_problem_unknowns(get()); }
    /// Returns the number of unknowns of a node.
    int block() const { return krylith_problem_block(get()); }
    /// Returns the handle, for functions of krylith.h.
    krylith_problem *get() const { return handle_.get(); }

private:
    struct Free {
        void operator()(krylith_problem *p) const { krylith_problem_free(p); }
    };
    explicit Problem(krylith_problem *made) : handle_(made) {}
    void set_field_near_null_vectors(const Field &field) {
        const auto n = detail::size(field.unknowns), numbers = detail::size(field.near_null_vectors);
        if (n > 0 && numbers % n != 0)
            detail::wrong("near_null_vectors: expected a multiple of " + std::to_string(n) + " numbers, found " + std::to_string(numbers));
        const auto count = static_cast<std::int32_t>(n > 0 ? numbers / n : 0);
        check(krylith_problem_set_field_near_null_vectors(get(), field.name.c_str(), count, field.near_null_vectors.data()));
    }
    int count(const std::vector<double> &vectors) const {
        const auto n = unknowns();
        if (n > 0 && detail::size(vectors) % n != 0)
            detail::wrong("vectors: expected a multiple of " + std::to_string(n) + " numbers, found " + std::to_string(vectors.size()));
        return n > 0 ? static_cast<int>(detail::size(vectors) / n) : 0;
    }
    std::unique_ptr<krylith_problem, Free> handle_;
};

/// A linear map as a function. It writes A x, or Aᵀ x if `transposed`, to y; both have n numbers. If `memory` is
/// a null pointer, they are on the host. Otherwise they are on its GPU, and the function puts its work in its
/// stream, without a wait. It runs on a thread of the solver while the caller waits.
struct Operator {
    std::function<void(std::int64_t n, const double *x, double *y, bool transposed, const Memory *memory)> apply;
    /// True if the function can apply Aᵀ.
    bool has_transpose = false;
    /// True if all of its work is in the stream, and is the same for every x. It is then recorded with the rest
    /// of the iteration, and not called in each iteration.
    bool capturable = false;
};

/// A problem on its device, ready for many solves. Calls of several threads on the same solver wait for each
/// other.
class Solver {
public:
    /// Creates a solver. `options` is a list of key=value words, such as "method=gmres precond=ildu rtol=1e-8
    /// device=cpu".
    explicit Solver(const Problem &problem, const std::string &options = "") : unknowns_(problem.unknowns()) {
        krylith_solver *made = nullptr;
        check(krylith_solver_new(problem.get(), options.c_str(), &made));
        handle_.reset(made);
    }

    /// Solves A x = b with the initial guess x, and overwrites x with the best solution found. Rethrows an
    /// exception of the monitor.
    template <class B, class X> Solution solve(const B &b, X &x) {
        same(b, "b"), same(x, "x");
        return solve(std::data(b), std::data(x));
    }
    /// Does the same with pointers, to host memory unless `memory` names a GPU.
    Solution solve(const double *b, double *x, const Memory *memory = nullptr) {
        krylith_solution solution{};
        done(krylith_solver_solve(get(), b, x, memory, &solution));
        return Solution(solution);
    }
    /// Solves Aᵀ x = b from the set-up for A, with the transpose of its preconditioner.
    template <class B, class X> Solution solve_transposed(const B &b, X &x) {
        same(b, "b"), same(x, "x");
        return solve_transposed(std::data(b), std::data(x));
    }
    Solution solve_transposed(const double *b, double *x, const Memory *memory = nullptr) {
        krylith_solution solution{};
        done(krylith_solver_solve_transposed(get(), b, x, memory, &solution));
        return Solution(solution);
    }
    /// Solves for right-hand sides that are stored one after the other, as are their solutions.
    std::vector<Solution> solve_columns(int columns, const double *b, double *x, const Memory *memory = nullptr) {
        std::vector<krylith_solution> solutions(columns > 0 ? static_cast<std::size_t>(columns) : 0);
        done(krylith_solver_solve_columns(get(), columns, b, x, memory, solutions.data()));
        return {solutions.begin(), solutions.end()};
    }

    /// Sets new values with the same pattern, in the order in which the matrix was given; `term` is 1 for L
    /// of A⊗M + τB⊗L.
    template <class V> void update_values(const V &values, int term = 0) {
        update_values(detail::size(values), std::data(values), term);
    }
    void update_values(std::int64_t count, const double *values, int term = 0, const Memory *memory = nullptr) {
        check(krylith_solver_update_values(get(), term, count, values, memory));
    }
    /// Sets new A, B, τ, M and L of A⊗M + τB⊗L; the number of stages stays the same. If one part is rejected,
    /// nothing changes. A and B are stages × stages, row by row; `m` and `l` hold values as for
    /// `update_values`. The ranks of a distributed sum call this together.
    void update_kronecker(const std::vector<double> &a, const std::vector<double> &b, double tau, const std::vector<double> &m,
                          const std::vector<double> &l) {
        const int stages = detail::stages(a, b);
        check(krylith_solver_update_kronecker(get(), stages, a.data(), b.data(), tau, detail::size(m), m.data(), detail::size(l),
                                              l.data(), nullptr));
    }
    /// Gives a matrix that preconditioners refer to by name new values, in the order in which it was given. They
    /// take effect with the next `update_values` or `set_tau`.
    void set_matrix(const std::string &name, const std::vector<double> &values) {
        check(krylith_solver_set_matrix(get(), name.c_str(), detail::size(values), values.data()));
    }
    /// Sets a new τ of A⊗M + τB⊗L.
    void set_tau(double tau) { check(krylith_solver_set_tau(get(), tau)); }
    /// Sets what happens to the preconditioner when values change: "keep", "refresh" or "rebuild".
    void set_refresh(const std::string &refresh) { check(krylith_solver_set_refresh(get(), refresh.c_str())); }
    /// Sets the tolerances and the iteration limit of later solves; a negative number keeps the value of the
    /// options.
    void set_tolerance(double rtol, double atol = -1, std::int64_t max_iters = -1) {
        check(krylith_solver_set_tolerance(get(), rtol, atol, max_iters));
    }
    /// Sets a callback that receives the iteration and the relative residual; it ends the solve by returning
    /// false. It runs on a thread of the solver while the caller waits.
    void set_monitor(std::function<bool(std::int64_t, double)> monitor) {
        auto called = std::make_unique<Monitor>(Monitor{std::move(monitor), nullptr});
        const krylith_monitor call = called->call ? tell : nullptr;
        check(krylith_solver_set_monitor(get(), call, called.get()));
        monitor_ = std::move(called);
    }

    /// Creates a solver of n unknowns without a matrix, whose A is an operator that `set_operators` sets.
    static Solver without_matrix(std::int64_t n, const std::string &options = "") {
        krylith_solver *made = nullptr;
        check(krylith_solver_without_matrix(n, options.c_str(), &made));
        return Solver(made, n);
    }
    /// Sets operators that later solves use: `a` instead of the matrix, which then only preconditions, and `p` as
    /// P⁻¹. An operator without a function is none. Their exceptions end the solve, which rethrows them.
    void set_operators(Operator a, Operator p = {}) {
        auto called = std::make_unique<std::array<Map, 2>>(std::array<Map, 2>{Map{a, nullptr}, Map{p, nullptr}});
        krylith_operator given[2];
        for (int i = 0; i < 2; i++) {
            Map &map = (*called)[static_cast<std::size_t>(i)];
            given[i] = {apply, &map, map.of.has_transpose ? 1 : 0, map.of.capturable ? 1 : 0};
        }
        check(krylith_solver_set_operators(get(), a.apply ? &given[0] : nullptr, p.apply ? &given[1] : nullptr));
        maps_ = std::move(called);
    }

    /// Computes y ← A x.
    template <class X, class Y> void multiply(const X &x, Y &y) {
        same(x, "x"), same(y, "y");
        multiply(std::data(x), std::data(y));
    }
    void multiply(const double *x, double *y, const Memory *memory = nullptr) {
        check(krylith_solver_multiply(get(), x, y, memory));
    }
    /// Computes y ← Aᵀ x.
    template <class X, class Y> void multiply_transposed(const X &x, Y &y) {
        same(x, "x"), same(y, "y");
        multiply_transposed(std::data(x), std::data(y));
    }
    void multiply_transposed(const double *x, double *y, const Memory *memory = nullptr) {
        check(krylith_solver_multiply_transposed(get(), x, y, memory));
    }
    /// Computes y ← P⁻¹ x.
    template <class X, class Y> void precondition(const X &x, Y &y) {
        same(x, "x"), same(y, "y");
        precondition(std::data(x), std::data(y));
    }
    void precondition(const double *x, double *y, const Memory *memory = nullptr) {
        check(krylith_solver_precondition(get(), x, y, memory));
    }
    /// Computes y ← P⁻ᵀ x.
    template <class X, class Y> void precondition_transposed(const X &x, Y &y) {
        same(x, "x"), same(y, "y");
        precondition_transposed(std::data(x), std::data(y));
    }
    void precondition_transposed(const double *x, double *y, const Memory *memory = nullptr) {
        check(krylith_solver_precondition_transposed(get(), x, y, memory));
    }
    /// Ends the solve that another thread runs.
    void cancel() { krylith_solver_cancel(get()); }

    /// Returns the relative residuals of the last solve.
    std::vector<double> residuals() const {
        std::int64_t count = 0;
        check(krylith_solver_residuals(get(), 0, nullptr, &count));
        std::vector<double> all(static_cast<std::size_t>(count));
        check(krylith_solver_residuals(get(), count, all.data(), &count));
        return all;
    }
    /// Returns a table of the last solve, as the krylith command prints it.
    std::string summary() const { return krylith_solver_summary(get()); }
    /// Returns why the last solve did not converge and what to try; the text is empty if it converged.
    std::string advice() const { return krylith_solver_advice(get()); }
    /// Returns the handle, for functions of krylith.h.
    krylith_solver *get() const { return handle_.get(); }

private:
    struct Free {
        void operator()(krylith_solver *p) const { krylith_solver_free(p); }
    };
    using Monitor = detail::Called<bool(std::int64_t, double)>;
    static std::int32_t tell(void *user, std::int64_t iteration, double residual) {
        auto &monitor = *static_cast<Monitor *>(user);
        try {
            return monitor.call(iteration, residual) ? 0 : 1;
        } catch (...) {
            monitor.thrown = std::current_exception();
            return 1;
        }
    }
    /// An operator, and the exception that it threw.
    struct Map {
        Operator of;
        std::exception_ptr thrown;
    };
    static std::int32_t apply(void *user, std::int64_t n, const double *x, double *y, std::int32_t transposed, const Memory *memory) {
        auto &map = *static_cast<Map *>(user);
        try {
            map.of.apply(n, x, y, transposed != 0, memory);
            return 0;
        } catch (...) {
            map.thrown = std::current_exception();
            return 1;
        }
    }
    Solver(krylith_solver *made, std::int64_t n) : unknowns_(n), handle_(made) {}
    void done(krylith_status status) {
        if (maps_)
            for (Map &map : *maps_)
                if (map.thrown) std::rethrow_exception(std::exchange(map.thrown, nullptr));
        if (monitor_ && monitor_->thrown) std::rethrow_exception(std::exchange(monitor_->thrown, nullptr));
        check(status);
    }
    template <class V> void same(const V &v, const char *what) const { detail::same(detail::size(v), unknowns_, what); }

    std::int64_t unknowns_;
    std::unique_ptr<Monitor> monitor_; // outlives the solver that calls it
    std::unique_ptr<std::array<Map, 2>> maps_; // likewise
    std::unique_ptr<krylith_solver, Free> handle_;
};

/// Solves A x = b in one call; `x` holds the initial guess, and then the solution.
template <class B, class X> Solution solve(const Problem &problem, const B &b, X &x, const std::string &options = "") {
    return Solver(problem, options).solve(b, x);
}

/// A callback that applies an operator to x and writes the result to y; both have n numbers.
using Function = std::function<void(std::int64_t n, const double *x, double *y)>;

/// Solves A x = b with the initial guess x, where A and P⁻¹ are callbacks instead of stored matrices.
/// Rethrows their exceptions.
template <class B, class X>
Solution solve_functions(Function a, const B &b, X &x, const std::string &options = "", Function p = nullptr) {
    using Called = detail::Called<void(std::int64_t, const double *, double *)>;
    detail::same(detail::size(b), detail::size(x), "b");
    Called product{std::move(a), nullptr}, inverse{std::move(p), nullptr};
    const krylith_function call = [](void *user, std::int64_t n, const double *from, double *to) -> std::int32_t {
        auto &called = *static_cast<Called *>(user);
        try {
            called.call(n, from, to);
            return 0;
        } catch (...) {
            called.thrown = std::current_exception();
            return 1;
        }
    };
    krylith_solution solution{};
    const krylith_status status =
        krylith_solve_functions(detail::size(b), product.call ? call : nullptr, &product, inverse.call ? call : nullptr, &inverse,
                                std::data(b), std::data(x), options.c_str(), nullptr, nullptr, &solution);
    for (auto &thrown : {product.thrown, inverse.thrown})
        if (thrown) std::rethrow_exception(thrown);
    check(status);
    return Solution(solution);
}

/// How a Newton solve ended.
enum class NewtonOutcome {
    converged = KRYLITH_NEWTON_CONVERGED,
    max_steps = KRYLITH_NEWTON_MAX_STEPS,
    line_search = KRYLITH_NEWTON_LINE_SEARCH,
    linear_solve = KRYLITH_NEWTON_LINEAR_SOLVE,
    not_finite = KRYLITH_NEWTON_NOT_FINITE,
    interrupted = KRYLITH_NEWTON_INTERRUPTED,
};

inline std::string name(NewtonOutcome outcome) { return krylith_newton_outcome_name(static_cast<int32_t>(outcome)); }

/// The result of a Newton solve.
struct NewtonResult {
    NewtonOutcome outcome = NewtonOutcome::interrupted;
    std::int64_t steps = 0;
    /// Iterations of all linear solves.
    std::int64_t iterations = 0;
    /// The norms of F at the initial guess and at the end, and the largest norm that counts as converged.
    double first_norm = 0, norm = 0, target = 0;
    /// Seconds in F, in the Jacobian, in set-ups of the linear solver, and in its solves.
    double residual_seconds = 0, jacobian_seconds = 0, setup_seconds = 0, solve_seconds = 0;

    NewtonResult() = default;
    explicit NewtonResult(const krylith_newton_result &from)
        : outcome(static_cast<NewtonOutcome>(from.outcome)), steps(from.steps), iterations(from.iterations),
          first_norm(from.first_norm), norm(from.norm), target(from.target), residual_seconds(from.residual_seconds),
          jacobian_seconds(from.jacobian_seconds), setup_seconds(from.setup_seconds), solve_seconds(from.solve_seconds) {}
    bool converged() const { return outcome == NewtonOutcome::converged; }
};

/// A callback that computes the values of the Jacobian at x, in the order in which the matrix was given.
using Jacobian = std::function<void(std::int64_t n, const double *x, std::int64_t entries, double *values)>;

/// Newton's method for F(x) = 0, ready for many solves such as time steps.
class Newton {
public:
    /// Creates the method. `problem` has the pattern of the Jacobian; its values are ignored. `options` is a
    /// list of key=value words, such as "rtol=1e-10 max_steps=20 forcing=ew", and `linear` has the options of
    /// the linear solves.
    explicit Newton(const Problem &problem, const std::string &options = "", const std::string &linear = "")
        : unknowns_(problem.unknowns()) {
        krylith_newton *made = nullptr;
        check(krylith_newton_new(problem.get(), options.c_str(), linear.c_str(), &made));
        handle_.reset(made);
    }

    /// Solves F(x) = 0; `x` holds the initial guess, and then the best x found. `monitor` receives the number
    /// of finished steps and the norm of F; it ends the solve by returning false. Rethrows the exceptions of
    /// the callbacks.
    template <class X>
    NewtonResult solve(Function residual, Jacobian jacobian, X &x, std::function<bool(std::int64_t, double)> monitor = nullptr) {
        detail::same(detail::size(x), unknowns_, "x");
        if (!residual || !jacobian) detail::wrong("a Newton solve needs a residual and a Jacobian");
        Calls calls{std::move(residual), std::move(jacobian), std::move(monitor), nullptr};
        krylith_newton_result result{};
        const krylith_status status = krylith_newton_solve(get(), Calls::f, Calls::j, &calls, std::data(x),
                                                           calls.monitor ? Calls::tell : nullptr, &result);
        if (calls.thrown) std::rethrow_exception(calls.thrown);
        if (product_ && product_->thrown) std::rethrow_exception(std::exchange(product_->thrown, nullptr));
        check(status);
        return NewtonResult(result);
    }
    /// Sets the product y ← J(x) v with the Jacobian for later solves, whose Jacobian then only preconditions. Without
    /// a function, the Jacobian is the matrix again. The product runs on a thread of the linear solver.
    void set_product(std::function<void(std::int64_t n, const double *x, const double *v, double *y)> product) {
        auto called = std::make_unique<Product>(Product{std::move(product), nullptr});
        check(krylith_newton_set_product(get(), called->call ? multiply : nullptr, called.get()));
        product_ = std::move(called);
    }
    /// Ends the solve that another thread runs.
    void cancel() { krylith_newton_cancel(get()); }
    /// Returns the handle, for functions of krylith.h.
    krylith_newton *get() const { return handle_.get(); }

private:
    struct Free {
        void operator()(krylith_newton *p) const { krylith_newton_free(p); }
    };
    using Product = detail::Called<void(std::int64_t, const double *, const double *, double *)>;
    static std::int32_t multiply(void *user, std::int64_t n, const double *x, const double *v, double *y) {
        auto &product = *static_cast<Product *>(user);
        try {
            product.call(n, x, v, y);
            return 0;
        } catch (...) {
            product.thrown = std::current_exception();
            return 1;
        }
    }
    /// The callbacks of one solve, and the exception that one of them threw.
    struct Calls {
        Function residual;
        Jacobian jacobian;
        std::function<bool(std::int64_t, double)> monitor;
        std::exception_ptr thrown;

        template <class Work> std::int32_t run(Work work) {
            try {
                return work();
            } catch (...) {
                thrown = std::current_exception();
                return 1;
            }
        }
        static std::int32_t f(void *user, std::int64_t n, const double *x, double *to) {
            auto &calls = *static_cast<Calls *>(user);
            return calls.run([&] { return calls.residual(n, x, to), 0; });
        }
        static std::int32_t j(void *user, std::int64_t n, const double *x, std::int64_t entries, double *to) {
            auto &calls = *static_cast<Calls *>(user);
            return calls.run([&] { return calls.jacobian(n, x, entries, to), 0; });
        }
        static std::int32_t tell(void *user, std::int64_t steps, double norm) {
            auto &calls = *static_cast<Calls *>(user);
            return calls.run([&] { return calls.monitor(steps, norm) ? 0 : 1; });
        }
    };

    std::int64_t unknowns_;
    std::unique_ptr<Product> product_; // outlives the handle that calls it
    std::unique_ptr<krylith_newton, Free> handle_;
};

} // namespace krylith

#endif // KRYLITH_HPP
