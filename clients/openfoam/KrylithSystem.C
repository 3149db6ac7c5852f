/* SPDX-License-Identifier: GPL-3.0-or-later */

#include "KrylithSystem.H"
#include "cyclicLduInterfaceField.H"
#include "processorLduInterfaceField.H"
#include "globalIndex.H"

#ifndef KRYLITH_FOAM_WITHOUT_MPI
    // The C++ interface of MPI is gone from MPI 3.
    #ifndef OMPI_SKIP_MPICXX
    #define OMPI_SKIP_MPICXX
    #endif
    #ifndef MPICH_SKIP_MPICXX
    #define MPICH_SKIP_MPICXX
    #endif
    #include <mpi.h>
#endif

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <numeric>

namespace Foam
{
    defineTypeNameAndDebug(KrylithSystem, 0);

    // OpenFOAM's own operations are templates in some versions only.
    struct larger
    {
        template<class T> T operator()(const T& a, const T& b) const { return a > b ? a : b; }
    };
    struct smaller
    {
        template<class T> T operator()(const T& a, const T& b) const { return a < b ? a : b; }
    };

    // OpenFOAM makes operations on infinities and NaNs fatal. Krylith computes with them and looks at the
    // result; its threads inherit the setting of the thread that starts them.
    class untrapped
    {
        std::fenv_t saved_;

    public:

        untrapped() { std::feholdexcept(&saved_); }
        ~untrapped() { std::fesetenv(&saved_); }
    };

    static void check(const krylith_status status)
    {
        if (status != KRYLITH_OK)
        {
            FatalErrorInFunction << krylith_last_error() << exit(FatalError);
        }
    }
}


Foam::KrylithSystem::KrylithSystem(const IOobject& io, const std::string& options)
:
    regIOobject(io),
    spread(2),
    options_(options),
    solver_(nullptr),
    sign_(1),
    singular_(0),
    age_(0)
{}


Foam::KrylithSystem::~KrylithSystem()
{
    const untrapped traps;
    krylith_solver_free(solver_);
}


bool Foam::KrylithSystem::constantsVanish(const lduMatrix& matrix) const
{
    const std::int64_t n = matrix.lduAddr().size();
    bool vanish = matrix.symmetric();
    for (std::int64_t row = 0; vanish && row < n; row++)
    {
        const auto first = newValues_.begin() + rowPtr_[row], last = newValues_.begin() + rowPtr_[row + 1];
        const double sum = std::accumulate(first, last, 0.0);
        vanish = std::abs(sum) <= 1e-12*std::abs(newValues_[place_[row]]);
    }
    return vanish;
}


bool Foam::KrylithSystem::samePattern
(
    const lduMatrix& matrix,
    const lduInterfaceFieldPtrsList& interfaces
) const
{
    const lduAddressing& addr = matrix.lduAddr();
    if
    (
        !solver_
     || label(rowPtr_.size()) != addr.size() + 1
     || lower_ != addr.lowerAddr()
     || upper_ != addr.upperAddr()
     || cells_.size() != interfaces.size()
    )
    {
        return false;
    }
    forAll(interfaces, i)
    {
        const bool same =
            interfaces.set(i) ? cells_[i] == addr.patchAddr(i) : cells_[i].empty();
        if (!same)
        {
            return false;
        }
    }
    return true;
}


void Foam::KrylithSystem::layOut
(
    const lduMatrix& matrix,
    const lduInterfaceFieldPtrsList& interfaces
)
{
    const lduAddressing& addr = matrix.lduAddr();
    const label n = addr.size();
    lower_ = addr.lowerAddr();
    upper_ = addr.upperAddr();
    cells_.setSize(interfaces.size());

    const globalIndex numbers(n);
    labelList own(n);
    forAll(own, celli)
    {
        own[celli] = numbers.toGlobal(celli);
    }

    // The numbers of the cells on the other side of each interface.
    List<labelList> across(interfaces.size());
    const label nRequests = Pstream::nRequests();
    forAll(interfaces, i)
    {
        cells_[i].clear();
        if (!interfaces.set(i))
        {
            continue;
        }
        if
        (
            !isA<cyclicLduInterfaceField>(interfaces[i])
         && !isA<processorLduInterfaceField>(interfaces[i])
        )
        {
            FatalErrorInFunction
                << "An interface is of type " << interfaces[i].interfaceFieldType()
                << ", whose coefficients have no rows of their own." << nl
                << "Krylith solves matrices with cyclic and processor interfaces;"
                << " use a solver of OpenFOAM for this field." << exit(FatalError);
        }
        cells_[i] = addr.patchAddr(i);
        interfaces[i].interface().initInternalFieldTransfer(Pstream::commsTypes::nonBlocking, own);
    }
    Pstream::waitRequests(nRequests);
    forAll(interfaces, i)
    {
        if (interfaces.set(i))
        {
            across[i] =
                interfaces[i].interface().internalFieldTransfer(Pstream::commsTypes::nonBlocking, own)();
        }
    }

    // Rows and columns of the coefficients, in the order of `place_`.
    std::vector<std::pair<label, std::int64_t>> entries;
    forAll(own, celli)
    {
        entries.emplace_back(celli, own[celli]);
    }
    forAll(upper_, facei)
    {
        entries.emplace_back(lower_[facei], own[upper_[facei]]);
    }
    forAll(upper_, facei)
    {
        entries.emplace_back(upper_[facei], own[lower_[facei]]);
    }
    forAll(cells_, i)
    {
        forAll(cells_[i], facei)
        {
            entries.emplace_back(cells_[i][facei], across[i][facei]);
        }
    }

    // An interface may couple cells that share a face, so an entry can have several coefficients.
    rowPtr_.assign(n + 1, 0);
    for (const auto& entry : entries)
    {
        rowPtr_[entry.first + 1]++;
    }
    for (label celli = 0; celli < n; celli++)
    {
        rowPtr_[celli + 1] += rowPtr_[celli];
    }
    std::vector<std::int64_t> all(entries.size()), end(rowPtr_.begin(), rowPtr_.end() - 1);
    for (const auto& entry : entries)
    {
        all[end[entry.first]++] = entry.second;
    }
    col_.clear();
    std::int64_t begin = 0;
    for (label celli = 0; celli < n; celli++)
    {
        const auto first = all.begin() + begin, last = all.begin() + rowPtr_[celli + 1];
        begin = rowPtr_[celli + 1];
        std::sort(first, last);
        col_.insert(col_.end(), first, std::unique(first, last));
        rowPtr_[celli + 1] = std::int64_t(col_.size());
    }
    place_.clear();
    for (const auto& entry : entries)
    {
        const auto first = col_.begin() + rowPtr_[entry.first];
        const auto last = col_.begin() + rowPtr_[entry.first + 1];
        place_.push_back(std::lower_bound(first, last, entry.second) - col_.begin());
    }
    b_.resize(n);
    x_.resize(n);
}


void Foam::KrylithSystem::gather
(
    const lduMatrix& matrix,
    const interfaceCoeffs& interfaceBouCoeffs,
    const lduInterfaceFieldPtrsList& interfaces,
    const direction cmpt
)
{
    // A Laplacian of OpenFOAM has negative eigenvalues; Krylith solves its negative.
    sign_ = 1;
    if (matrix.symmetric())
    {
        sign_ = gSum(matrix.diag(), matrix.mesh().comm()) < 0 ? -1 : 1;
    }
    newValues_.assign(col_.size(), 0);
    std::size_t at = 0;
    for (const scalarField* field : {&matrix.diag(), &matrix.upper(), &matrix.lower()})
    {
        forAll(*field, i)
        {
            newValues_[place_[at++]] += sign_*(*field)[i];
        }
    }
    forAll(cells_, i)
    {
        if (!interfaces.set(i))
        {
            continue;
        }
        // Interfaces that rotate scale the components of vectors and tensors.
        solveScalarField scale(cells_[i].size(), solveScalar(1));
        if (isA<cyclicLduInterfaceField>(interfaces[i]))
        {
            refCast<const cyclicLduInterfaceField>(interfaces[i]).transformCoupleField(scale, cmpt);
        }
        else
        {
            refCast<const processorLduInterfaceField>(interfaces[i]).transformCoupleField(scale, cmpt);
        }
        forAll(cells_[i], facei)
        {
            newValues_[place_[at++]] -= sign_*interfaceBouCoeffs[i][facei]*scale[facei];
        }
    }
}


void Foam::KrylithSystem::create(const lduMatrix& matrix)
{
    krylith_solver_free(solver_);
    solver_ = nullptr;
    values_ = newValues_;
    const std::int64_t n = matrix.lduAddr().size(), entries = std::int64_t(values_.size());
    krylith_problem* problem = nullptr;
    const untrapped traps;
    if (Pstream::parRun())
    {
#ifdef KRYLITH_FOAM_WITHOUT_MPI
        FatalErrorInFunction
            << "This libKrylithFoam was compiled without MPI and solves in serial runs only."
            << exit(FatalError);
#else
        // The first communicator of OpenFOAM is that of all processes.
        if (matrix.mesh().comm() != 0)
        {
            FatalErrorInFunction
                << "Krylith solves on the communicator of all processors only." << exit(FatalError);
        }
        int threads = 0;
        MPI_Query_thread(&threads);
        if (threads < MPI_THREAD_SERIALIZED)
        {
            FatalErrorInFunction
                << "Krylith calls MPI from a thread of its own, and OpenFOAM started MPI for one thread."
                << nl << "Preload this library: mpirun -x LD_PRELOAD=libKrylithFoam.so … -parallel"
                << exit(FatalError);
        }
        const std::int64_t columns = globalIndex(label(n)).size();
        check
        (
            krylith_problem_distributed_csr
            (
                MPI_Comm_c2f(MPI_COMM_WORLD), n, columns, entries, rowPtr_.data(), col_.data(), values_.data(),
                1, &problem
            )
        );
#endif
    }
    else
    {
        check
        (
            krylith_problem_csr64
            (
                n, entries, rowPtr_.data(), col_.data(), values_.data(), 1, nullptr, &problem
            )
        );
    }
    if (singular_)
    {
        // Otherwise a solve may shift the field by a constant.
        check(krylith_problem_set_null_vectors(problem, 0, nullptr));
    }
    const krylith_status status = krylith_solver_new(problem, options_.c_str(), &solver_);
    krylith_problem_free(problem);
    check(status);
    age_ = 0;
}


void Foam::KrylithSystem::checkProduct
(
    const lduMatrix& matrix,
    const interfaceCoeffs& interfaceBouCoeffs,
    const lduInterfaceFieldPtrsList& interfaces,
    const direction cmpt
)
{
    const label n = matrix.lduAddr().size();
    solveScalarField x(n), y(n);
    forAll(x, celli)
    {
        x[celli] = 1 + std::sin(scalar(celli));
        x_[celli] = x[celli];
    }
    matrix.Amul(y, x, interfaceBouCoeffs, interfaces, cmpt);
    const untrapped traps;
    check(krylith_solver_multiply(solver_, x_.data(), b_.data(), nullptr));
    scalar wrong = 0, most = 0;
    forAll(y, celli)
    {
        wrong = max(wrong, scalar(mag(y[celli] - sign_*b_[celli])));
        most = max(most, scalar(mag(y[celli])));
    }
    reduce(wrong, larger());
    reduce(most, larger());
    if (wrong > (sizeof(scalar) == 4 ? 1e-4 : 1e-10)*most)
    {
        FatalErrorInFunction
            << "The rows for Krylith differ from the matrix of OpenFOAM by " << wrong << " of " << most << "."
            << nl << "A boundary condition couples cells in a way that Krylith does not know;"
            << " use a solver of OpenFOAM for this field." << exit(FatalError);
    }
}


void Foam::KrylithSystem::update
(
    const lduMatrix& matrix,
    const interfaceCoeffs& interfaceBouCoeffs,
    const lduInterfaceFieldPtrsList& interfaces,
    const direction cmpt,
    const word& refresh,
    const label rebuildEvery
)
{
    // All processors take the same way.
    label same = samePattern(matrix, interfaces);
    reduce(same, smaller());
    if (!same)
    {
        layOut(matrix, interfaces);
    }
    gather(matrix, interfaceBouCoeffs, interfaces, cmpt);
    label vanish = constantsVanish(matrix);
    reduce(vanish, smaller());
    label equal = same && newValues_ == values_;
    reduce(equal, smaller());

    if (!same || vanish != singular_)
    {
        singular_ = vanish;
        create(matrix);
        checkProduct(matrix, interfaceBouCoeffs, interfaces, cmpt);
    }
    else if (!equal)
    {
        const char* how = refresh.c_str();
        age_++;
        if (refresh == "rebuild" || (rebuildEvery > 0 && age_ >= rebuildEvery))
        {
            how = "rebuild";
            age_ = 0;
        }
        const untrapped traps;
        check(krylith_solver_set_refresh(solver_, how));
        values_.swap(newValues_);
        const std::int64_t entries = std::int64_t(values_.size());
        check(krylith_solver_update_values(solver_, 0, entries, values_.data(), nullptr));
    }
}


bool Foam::KrylithSystem::rebuild()
{
    if (age_ == 0)
    {
        return false;
    }
    age_ = 0;
    const untrapped traps;
    check(krylith_solver_set_refresh(solver_, "rebuild"));
    check(krylith_solver_update_values(solver_, 0, std::int64_t(values_.size()), values_.data(), nullptr));
    return true;
}


namespace
{
    struct limits
    {
        Foam::label least;
        double rtol;
    };
}


std::int32_t Foam::KrylithSystem::monitor(void* user, std::int64_t iteration, double residual)
{
    const limits& wanted = *static_cast<limits*>(user);
    return iteration >= wanted.least && residual <= wanted.rtol;
}


Foam::KrylithSystem::result Foam::KrylithSystem::solve
(
    const solveScalarField& b,
    solveScalarField& x,
    const double rtol,
    const label minIter,
    const label maxIter
)
{
    forAll(b, celli)
    {
        b_[celli] = sign_*b[celli];
    }
    std::fill(x_.begin(), x_.end(), 0.0);
    const untrapped traps;

    // Krylith ends at its tolerance; only a monitor makes it run longer.
    limits wanted = {minIter, rtol};
    check(krylith_solver_set_monitor(solver_, minIter > 0 ? monitor : nullptr, &wanted));
    check(krylith_solver_set_tolerance(solver_, minIter > 0 ? 1e-16 : rtol, 0, maxIter));
    krylith_solution solution;
    check(krylith_solver_solve(solver_, b_.data(), x_.data(), nullptr, &solution));
    check(krylith_solver_set_monitor(solver_, nullptr, nullptr));

    forAll(x, celli)
    {
        x[celli] = x_[celli];
    }
    return
    {
        label(solution.iterations),
        solution.true_residual,
        solution.outcome == KRYLITH_CONVERGED || solution.outcome == KRYLITH_INTERRUPTED,
        krylith_outcome_name(solution.outcome)
    };
}
