/// krylith_mfem.hpp: Krylith as a solver and as a preconditioner of MFEM.
///
///     krylith::mfem::Solver solver("precond=amg rtol=1e-8"); // in place of CGSolver, GMRESSolver, UMFPackSolver
///     solver.SetOperator(*A);
///     solver.Mult(B, X);
///
/// A SparseMatrix, and a BlockOperator or BlockMatrix of them, become rows. Any other operator is applied as
/// it is, and the method is GMRES. The blocks of a BlockOperator are fields with the names b0, b1, …, for
/// options such as "precond=split(b0: amg, b1: jacobi; schur=full, S=selfp)". With MPI, a HypreParMatrix is
/// solved over its ranks.
///
/// An error calls mfem_error, as MFEM's own errors do. A solve that does not converge is none: GetConverged()
/// is false, and there is a warning if the print level asks for warnings.

#ifndef KRYLITH_MFEM_HPP
#define KRYLITH_MFEM_HPP

#include <krylith.hpp>
#include <mfem.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace krylith::mfem {

using ::mfem::mfem_error; // for MFEM's macros, which say mfem::mfem_error

namespace detail {

using ::mfem::SparseMatrix;

static_assert(std::is_same_v<decltype(std::declval<::mfem::Vector>().GetData()), double *>,
              "Krylith takes double precision, and this MFEM has single precision");

/// A matrix that is a block of another, from the given row and column on.
struct Block {
    const SparseMatrix *matrix;
    bool transposed;
    int row, column;
    double factor;

    bool same_place(const Block &other) const {
        return transposed == other.transposed && row == other.row && column == other.column;
    }
};

/// True if the products of the operator are those of the transposed matrix. MFEM's TransposeOperator does not
/// show the operator that it transposes.
inline bool is_transpose(const ::mfem::Operator &op, const SparseMatrix &matrix) {
    if (op.Height() != matrix.Width() || op.Width() != matrix.Height()) return false;
    ::mfem::Vector x(op.Width()), y(op.Height()), z(op.Height());
    for (int i = 0; i < x.Size(); i++) x(i) = 1 + std::sin(double(i));
    op.Mult(x, y);
    matrix.MultTranspose(x, z);
    z -= y;
    return z.Normlinf() <= 1e-12 * y.Normlinf();
}

/// Adds the blocks of a BlockOperator or BlockMatrix; false if one has no entries.
template <class Blocks> bool add_blocks(const Blocks &op, std::vector<Block> &to) {
    const int size = std::min(op.NumRowBlocks(), op.NumColBlocks());
    const auto sparse = [&](int i, int j) -> const SparseMatrix * {
        return op.IsZeroBlock(i, j) ? nullptr : dynamic_cast<const SparseMatrix *>(&op.GetBlock(i, j));
    };
    for (int i = 0; i < op.NumRowBlocks(); i++)
        for (int j = 0; j < op.NumColBlocks(); j++) {
            if (op.IsZeroBlock(i, j)) continue;
            double factor = 1;
            if constexpr (std::is_same_v<Blocks, ::mfem::BlockOperator>) factor = op.GetBlockCoef(i, j);
            const SparseMatrix *own = sparse(i, j), *mirrored = i < size && j < size ? sparse(j, i) : nullptr;
            if (!own && !(mirrored && is_transpose(op.GetBlock(i, j), *mirrored))) return false;
            to.push_back({own ? own : mirrored, !own, op.RowOffsets()[i], op.ColOffsets()[j], factor});
        }
    return true;
}

/// The rows of blocks, and where the values of the blocks are in them.
class Rows {
public:
    std::vector<std::int64_t> row_ptr, col;
    std::vector<double> values;

    /// Takes the values of blocks, and their patterns if these are new; true if they are not.
    bool take(int rows, const std::vector<Block> &blocks) {
        std::vector<int> pattern{rows};
        for (const Block &block : blocks) {
            const SparseMatrix &matrix = *block.matrix;
            MFEM_VERIFY(matrix.Finalized(), "Krylith: a matrix is not finalized");
            const int *i = matrix.HostReadI(), *j = matrix.HostReadJ();
            pattern.insert(pattern.end(), {block.row, block.column, int(block.transposed)});
            pattern.insert(pattern.end(), i, i + matrix.Height() + 1);
            pattern.insert(pattern.end(), j, j + i[matrix.Height()]);
        }
        const bool same = pattern == pattern_;
        if (!same) {
            pattern_ = std::move(pattern);
            lay_out(rows, blocks);
        }
        values.assign(col.size(), 0);
        std::size_t at = 0;
        for (const Block &block : blocks) {
            const double *from = block.matrix->HostReadData();
            for (int e = 0; e < block.matrix->NumNonZeroElems(); e++)
                values[static_cast<std::size_t>(place_[at++])] += block.factor * from[e];
        }
        return same;
    }

private:
    /// The offsets and columns of all blocks, to compare with.
    std::vector<int> pattern_;
    std::vector<std::int64_t> place_;

    void lay_out(int rows, const std::vector<Block> &blocks) {
        std::vector<std::pair<int, int>> entries;
        for (const Block &block : blocks) {
            const int *i = block.matrix->HostReadI(), *j = block.matrix->HostReadJ();
            for (int r = 0; r < block.matrix->Height(); r++)
                for (int e = i[r]; e < i[r + 1]; e++)
                    entries.emplace_back(block.row + (block.transposed ? j[e] : r),
                                         block.column + (block.transposed ? r : j[e]));
        }
        // MFEM does not sort the columns of a row, and Krylith wants them sorted.
        std::vector<std::pair<int, int>> sorted(entries);
        std::sort(sorted.begin(), sorted.end());
        sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
        row_ptr.assign(static_cast<std::size_t>(rows) + 1, 0);
        col.clear();
        for (const auto &entry : sorted) {
            row_ptr[static_cast<std::size_t>(entry.first) + 1]++;
            col.push_back(entry.second);
        }
        for (std::size_t r = 0; r + 1 < row_ptr.size(); r++) row_ptr[r + 1] += row_ptr[r];
        place_.clear();
        for (const auto &entry : entries) {
            const auto first = col.begin() + row_ptr[static_cast<std::size_t>(entry.first)];
            const auto last = col.begin() + row_ptr[static_cast<std::size_t>(entry.first) + 1];
            place_.push_back(std::lower_bound(first, last, entry.second) - col.begin());
        }
    }
};

/// An operator of MFEM as a function on host memory.
inline Operator function(const ::mfem::Operator &op) {
    const auto apply = [&op](std::int64_t n, const double *x, double *y, bool transposed,
                             const Memory *memory) {
        MFEM_VERIFY(!memory,
                    "Krylith: an operator of MFEM is applied on the host; add device=cpu to the options");
        const ::mfem::Vector from(const_cast<double *>(x), static_cast<int>(n));
        ::mfem::Vector to(y, static_cast<int>(n));
        transposed ? op.MultTranspose(from, to) : op.Mult(from, to);
    };
    return {apply, true, false};
}

/// A solver of Krylith for the operator that was given last.
class System {
public:
    explicit System(const std::string &options) : options_(options) {
        if (options.find("rtol=") == std::string::npos) options_ += " rtol=1e-12";
    }

    void set_problem(std::function<void(Problem &)> prepare) {
        prepare_ = std::move(prepare), solver_.reset();
    }
    void set_block(int block) { block_ = block, solver_.reset(); }

    /// Takes an operator; new values of the same pattern refresh the solver. True if its matrix is known.
    bool set(const ::mfem::Operator &op) {
        MFEM_VERIFY(op.Height() == op.Width(),
                    "Krylith: the operator is " << op.Height() << " by " << op.Width());
        std::vector<Block> blocks;
#ifdef MFEM_USE_MPI
        if (const auto *matrix = dynamic_cast<const ::mfem::HypreParMatrix *>(&op))
            return set_ranks(*matrix), true;
#endif
        if (const auto *matrix = dynamic_cast<const SparseMatrix *>(&op)) {
            set_rows(op.Height(), {{matrix, false, 0, 0, 1}}, nullptr);
        } else if (const auto *parts = dynamic_cast<const ::mfem::BlockOperator *>(&op);
                   parts && add_blocks(*parts, blocks)) {
            set_rows(op.Height(), blocks, &parts->RowOffsets());
        } else if (const auto *parts = dynamic_cast<const ::mfem::BlockMatrix *>(&op);
                   parts && add_blocks(*parts, blocks)) {
            set_rows(op.Height(), blocks, &parts->RowOffsets());
        } else {
            solver_ =
                std::make_unique<krylith::Solver>(krylith::Solver::without_matrix(op.Height(), options_));
            solver_->set_operators(function(op));
            rows_ = Rows();
            return false;
        }
        return true;
    }

    krylith::Solver &get() const {
        MFEM_VERIFY(solver_, "Krylith: SetOperator must come first");
        return *solver_;
    }

private:
    std::string options_;
    std::function<void(Problem &)> prepare_;
    int block_ = 0;
    Rows rows_;
    std::unique_ptr<krylith::Solver> solver_;

    void set_rows(int n, const std::vector<Block> &blocks, const ::mfem::Array<int> *offsets) {
        if (rows_.take(n, blocks) && solver_) return solver_->update_values(rows_.values);
        Problem problem = Problem::csr(rows_.row_ptr, rows_.col, rows_.values, offsets ? 1 : block_);
        if (offsets && offsets->Size() > 2) {
            std::string fields;
            for (int i = 0; i + 1 < offsets->Size(); i++)
                fields += (i ? ",b" : "b") + std::to_string(i) + "=" + std::to_string((*offsets)[i]) + ":" +
                          std::to_string((*offsets)[i + 1]);
            problem.set_fields(fields);
        }
        create(problem);
    }
    void create(Problem &problem) {
        if (prepare_) prepare_(problem);
        solver_ = std::make_unique<krylith::Solver>(problem, options_);
    }

#ifdef MFEM_USE_MPI
    /// Takes the rows of this rank. All ranks take the same way.
    void set_ranks(const ::mfem::HypreParMatrix &matrix) {
        SparseMatrix merged;
        const_cast<::mfem::HypreParMatrix &>(matrix).MergeDiagAndOffd(merged); // MFEM declares no const one
        int same = rows_.take(merged.Height(), {{&merged, false, 0, 0, 1}}) && solver_;
        MPI_Allreduce(MPI_IN_PLACE, &same, 1, MPI_INT, MPI_MIN, matrix.GetComm());
        if (same) return solver_->update_values(rows_.values);
        const int block =
            block_ > 0 ? block_ : 1; // a pattern of one rank may suggest another than that of the next
        Problem problem = Problem::distributed_csr(MPI_Comm_c2f(matrix.GetComm()), matrix.GetGlobalNumCols(),
                                                   rows_.row_ptr, rows_.col, rows_.values, block);
        create(problem);
    }
#endif
};

/// Calls a function, and turns an exception of Krylith into an error of MFEM.
template <class Call> auto guard(const Call &call) {
    try {
        return call();
    } catch (const Error &error) {
        const std::string what = error.what();
        MFEM_ABORT("Krylith: " << what);
        throw; // if mfem_error returns
    }
}

} // namespace detail

/// Solves A x = b. Takes the place of CGSolver, GMRESSolver and others, with their setters.
///
/// `options` are words of Krylith, such as "method=cg precond=amg rtol=1e-8 threads=1"; without rtol it is
/// 1e-12. The tolerance is that of ‖b − A x‖/‖b‖. SetRelTol, SetAbsTol and SetMaxIter replace those of the
/// options. As in MFEM's iterative solvers, iterative_mode is true, and x is the initial guess. In place of a
/// direct solver, set it to false.
class Solver : public ::mfem::IterativeSolver {
public:
    explicit Solver(const std::string &options = "") : system_(options) {
        rel_tol = abs_tol = -1; // as in the options
        max_iter = -1;
    }
    explicit Solver(const ::mfem::Operator &op, const std::string &options = "") : Solver(options) {
        SetOperator(op);
    }
#ifdef MFEM_USE_MPI
    explicit Solver(MPI_Comm comm, const std::string &options = "")
        : ::mfem::IterativeSolver(comm), system_(options) {
        rel_tol = abs_tol = -1;
        max_iter = -1;
    }
#endif

    /// Sets the number of unknowns of a node, which are consecutive; 0 chooses it from the pattern.
    void SetBlockSize(int block) { system_.set_block(block); }
    /// Sets a function that completes each new problem: coordinates, null vectors, named matrices.
    void SetProblem(std::function<void(Problem &)> prepare) { system_.set_problem(std::move(prepare)); }
    /// Takes the matrix. New values of the same pattern refresh the preconditioner.
    void SetOperator(const ::mfem::Operator &op) override {
        oper = &op;
        height = op.Height();
        width = op.Width();
        if (prec) prec->SetOperator(op);
        has_matrix_ = detail::guard([&] { return system_.set(op); });
        connect();
    }
    /// Takes a preconditioner of MFEM in place of that of the options. As in MFEM, it gets the operator if
    /// SetOperator comes later.
    void SetPreconditioner(::mfem::Solver &pr) override {
        prec = &pr;
        prec->iterative_mode = false;
        if (oper) connect();
    }

    /// Solves A x = b, with the initial guess x if iterative_mode is true, else from zero.
    void Mult(const ::mfem::Vector &b, ::mfem::Vector &x) const override { solve(b, x, false); }
    /// Solves Aᵀ x = b, with the transpose of the preconditioner.
    void MultTranspose(const ::mfem::Vector &b, ::mfem::Vector &x) const override { solve(b, x, true); }

    /// Returns the result of the last solve, such as `true_residual`.
    const Solution &GetSolution() const { return solution_; }
    /// Returns Krylith's solver, for its other functions.
    krylith::Solver &GetKrylith() const { return system_.get(); }

private:
    detail::System system_;
    bool has_matrix_ = false;
    mutable Solution solution_;

    void connect() {
        detail::guard([&] {
            const krylith::Operator none;
            const krylith::Operator a = has_matrix_ ? none : detail::function(*oper);
            if (prec || !has_matrix_) system_.get().set_operators(a, prec ? detail::function(*prec) : none);
        });
    }

    void solve(const ::mfem::Vector &b, ::mfem::Vector &x, bool transposed) const {
        MFEM_VERIFY(b.Size() == height && x.Size() == height, "Krylith: vectors of the wrong size");
        if (!iterative_mode) x = 0.0;
        krylith::Solver &solver = system_.get();
        detail::guard([&] {
            solver.set_tolerance(rel_tol, abs_tol, max_iter);
            const double *from = b.HostRead();
            double *to = x.HostReadWrite();
            solution_ = transposed ? solver.solve_transposed(from, to) : solver.solve(from, to);
        });
        converged = solution_.converged() || solution_.outcome == Outcome::rounding_limit;
        final_iter = static_cast<int>(solution_.iterations);
        initial_norm = Norm(b);
        final_norm = solution_.true_residual * initial_norm;
        report(solver);
    }

    void report(const krylith::Solver &solver) const {
        if (print_options.iterations) {
            const std::vector<double> residuals = solver.residuals();
            for (std::size_t i = 0; i < residuals.size(); i++)
                ::mfem::out << "   Iteration : " << i << "  ||r||/||b|| = " << residuals[i] << '\n';
        }
        if (print_options.summary || print_options.first_and_last) ::mfem::out << solver.summary();
        if (!converged && print_options.warnings) ::mfem::out << "Krylith: " << solver.advice() << '\n';
    }
};

/// Applies a preconditioner of Krylith, for a solver of MFEM: "amg", "ildu:fill=1" and the like after
/// `precond=`.
class Preconditioner : public ::mfem::Solver {
public:
    explicit Preconditioner(const std::string &options = "precond=amg") : system_(options) {}
    explicit Preconditioner(const ::mfem::Operator &op, const std::string &options = "precond=amg")
        : Preconditioner(options) {
        SetOperator(op);
    }

    void SetBlockSize(int block) { system_.set_block(block); }
    void SetProblem(std::function<void(Problem &)> prepare) { system_.set_problem(std::move(prepare)); }
    void SetOperator(const ::mfem::Operator &op) override {
        height = op.Height();
        width = op.Width();
        const bool has_matrix = detail::guard([&] { return system_.set(op); });
        MFEM_VERIFY(has_matrix, "Krylith: a preconditioner needs a matrix with entries");
    }
    void Mult(const ::mfem::Vector &x, ::mfem::Vector &y) const override {
        detail::guard([&] { system_.get().precondition(x.HostRead(), y.HostWrite()); });
    }
    void MultTranspose(const ::mfem::Vector &x, ::mfem::Vector &y) const override {
        detail::guard([&] { system_.get().precondition_transposed(x.HostRead(), y.HostWrite()); });
    }

private:
    detail::System system_;
};

} // namespace krylith::mfem

#endif // KRYLITH_MFEM_HPP
