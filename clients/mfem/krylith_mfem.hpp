/// krylith_mfem.hpp: Krylith as a solver and as a preconditioner of MFEM.
///
///     krylith::mfem::Solver solver("precond=amg rtol=1e-8");   // in place of CGSolver, GMRESSolver, UMFPackSolver
///     solver.SetOperator(*A);
///     solver.Mult(B, X);
///
/// An operator with entries (SparseMatrix, or a BlockOperator or BlockMatrix of them) becomes rows. Any other
/// operator is applied as it is, and the method is GMRES. The blocks of a BlockOperator are fields with the names
/// b0, b1, … for options such as "precond=split(b0: amg, b1: jacobi; S=selfp)". With MPI, a HypreParMatrix is
/// solved over the ranks of its communicator.
///
/// An error calls mfem_error, as MFEM's own errors do. A solve that does not converge is a warning if the print
/// level asks for warnings; GetConverged() is then false.

#ifndef KRYLITH_MFEM_HPP
#define KRYLITH_MFEM_HPP

#include <krylith.hpp>
#include <mfem.hpp>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace krylith::mfem {

namespace detail {

static_assert(std::is_same_v<decltype(std::declval<::mfem::Vector>().GetData()), double *>,
              "Krylith solves in double precision; MFEM was built for single precision");

/// A matrix that is a block of another, from the given row and column on.
struct Block {
    const ::mfem::SparseMatrix *matrix;
    bool transposed;
    int row, column;
    double factor;

    bool operator==(const Block &other) const {
        return transposed == other.transposed && row == other.row && column == other.column;
    }
};

/// True if both operators give the same product, so that one is the transpose of the matrix of the other.
inline bool is_transpose(const ::mfem::Operator &op, const ::mfem::SparseMatrix &matrix) {
    if (op.Height() != matrix.Width() || op.Width() != matrix.Height()) return false;
    ::mfem::Vector x(op.Width()), y(op.Height()), z(op.Height());
    for (int i = 0; i < x.Size(); i++) x(i) = 1 + std::sin(double(i));
    op.Mult(x, y);
    matrix.MultTranspose(x, z);
    z -= y;
    return z.Normlinf() <= 1e-12 * y.Normlinf();
}

/// Adds the blocks of a BlockOperator or BlockMatrix; false if one has no entries.
template <class Blocks> bool add_blocks(const Blocks &op, std::vector<Block> &to, std::vector<int> &offsets) {
    offsets.assign(op.RowOffsets().begin(), op.RowOffsets().end());
    const auto sparse = [&](int i, int j) -> const ::mfem::SparseMatrix * {
        return op.IsZeroBlock(i, j) ? nullptr : dynamic_cast<const ::mfem::SparseMatrix *>(&op.GetBlock(i, j));
    };
    for (int i = 0; i < op.NumRowBlocks(); i++)
        for (int j = 0; j < op.NumColBlocks(); j++) {
            if (op.IsZeroBlock(i, j)) continue;
            double factor = 1;
            if constexpr (std::is_same_v<Blocks, ::mfem::BlockOperator>) factor = op.GetBlockCoef(i, j);
            const auto *own = sparse(i, j), *mirrored = i < op.NumColBlocks() && j < op.NumRowBlocks() ? sparse(j, i) : nullptr;
            const bool transposed = !own && mirrored && is_transpose(op.GetBlock(i, j), *mirrored);
            if (!own && !transposed) return false;
            to.push_back({own ? own : mirrored, transposed, op.RowOffsets()[i], op.ColOffsets()[j], factor});
        }
    return true;
}

/// The rows of an operator, and how its values get there.
class Rows {
public:
    std::vector<std::int64_t> row_ptr, col;
    std::vector<double> values;
    /// Where the fields begin, and where the last ends; empty for a matrix without blocks.
    std::vector<int> offsets;
    /// The rows and columns of the whole matrix, if this is a part of it.
    std::int64_t columns = 0;

    /// Reads an operator; false if it has no entries. Sets `same` if the pattern is the one before.
    bool read(const ::mfem::Operator &op, bool &same) {
        std::vector<Block> blocks;
        std::vector<int> starts;
        if (const auto *matrix = dynamic_cast<const ::mfem::SparseMatrix *>(&op))
            blocks.push_back({matrix, false, 0, 0, 1});
        else if (const auto *b = dynamic_cast<const ::mfem::BlockOperator *>(&op)) {
            if (!add_blocks(*b, blocks, starts)) return false;
        } else if (const auto *b = dynamic_cast<const ::mfem::BlockMatrix *>(&op)) {
            if (!add_blocks(*b, blocks, starts)) return false;
        } else
            return false;
        for (const Block &block : blocks) MFEM_VERIFY(block.matrix->Finalized(), "Krylith: a matrix is not finalized");
        same = take(op.Height(), blocks, starts);
        columns = op.Width();
        return true;
    }

protected:
    /// Takes blocks; true if their patterns are those before.
    bool take(int rows, const std::vector<Block> &blocks, const std::vector<int> &starts) {
        std::vector<int> pattern;
        for (const Block &block : blocks) {
            const int *i = block.matrix->HostReadI(), *j = block.matrix->HostReadJ(), height = block.matrix->Height();
            pattern.insert(pattern.end(), i, i + height + 1);
            pattern.insert(pattern.end(), j, j + i[height]);
        }
        const bool same = blocks == blocks_ && starts == offsets && pattern == pattern_;
        if (!same) {
            offsets = starts;
            pattern_ = std::move(pattern);
            lay_out(rows, blocks);
        }
        blocks_ = blocks;
        values.assign(col.size(), 0);
        std::size_t at = 0;
        for (const Block &block : blocks) {
            const double *from = block.matrix->HostReadData();
            for (int e = 0; e < block.matrix->HostReadI()[block.matrix->Height()]; e++)
                values[static_cast<std::size_t>(place_[at++])] += block.factor * from[e];
        }
        return same;
    }

private:
    std::vector<Block> blocks_;
    std::vector<int> pattern_;
    std::vector<std::int64_t> place_;

    void lay_out(int rows, const std::vector<Block> &blocks) {
        std::vector<std::pair<int, int>> entries;
        for (const Block &block : blocks) {
            const int *i = block.matrix->HostReadI(), *j = block.matrix->HostReadJ();
            for (int r = 0; r < block.matrix->Height(); r++)
                for (int e = i[r]; e < i[r + 1]; e++)
                    entries.emplace_back(block.row + (block.transposed ? j[e] : r), block.column + (block.transposed ? r : j[e]));
        }
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

/// An operator of MFEM as a function.
inline Operator function(const ::mfem::Operator &op) {
    const auto apply = [&op](std::int64_t n, const double *x, double *y, bool transposed, const Memory *) {
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

    void set_problem(std::function<void(Problem &)> prepare) { prepare_ = std::move(prepare), solver_.reset(); }
    void set_block(int block) { block_ = block, solver_.reset(); }

    /// Takes an operator; new values of the same pattern refresh the solver.
    void set(const ::mfem::Operator &op) {
        MFEM_VERIFY(op.Height() == op.Width(), "Krylith: the operator is " << op.Height() << " × " << op.Width());
        bool same = false;
#ifdef MFEM_USE_MPI
        if (const auto *matrix = dynamic_cast<const ::mfem::HypreParMatrix *>(&op)) return set_parallel(*matrix);
#endif
        if (rows_.read(op, same)) {
            if (solver_ && same) return solver_->update_values(rows_.values);
            const int block = rows_.offsets.empty() ? block_ : 1;
            Problem problem = Problem::csr(rows_.row_ptr, rows_.col, rows_.values, block);
            if (!rows_.offsets.empty()) problem.set_fields(fields());
            if (prepare_) prepare_(problem);
            solver_ = std::make_unique<krylith::Solver>(problem, options_);
        } else {
            solver_ = std::make_unique<krylith::Solver>(krylith::Solver::without_matrix(op.Height(), options_));
            solver_->set_operators(function(op));
        }
        function_ = rows_.values.empty() ? &op : nullptr;
    }
    krylith::Solver &get() const {
        MFEM_VERIFY(solver_, "Krylith: SetOperator comes before Mult");
        return *solver_;
    }

private:
    std::string options_;
    std::function<void(Problem &)> prepare_;
    int block_ = 0;
    Rows rows_;
    std::unique_ptr<krylith::Solver> solver_;
};

} // namespace detail

} // namespace krylith::mfem

#endif // KRYLITH_MFEM_HPP
