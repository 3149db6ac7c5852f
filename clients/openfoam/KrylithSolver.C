/* SPDX-License-Identifier: GPL-3.0-or-later */

#include "KrylithSolver.H"
#include "addToRunTimeSelectionTable.H"

#include <cmath>
#include <functional>

namespace Foam
{
    defineTypeNameAndDebug(KrylithSolver, 0);

    lduMatrix::solver::addsymMatrixConstructorToTable<KrylithSolver>
        addKrylithSolverSymMatrixConstructorToTable_;

    lduMatrix::solver::addasymMatrixConstructorToTable<KrylithSolver>
        addKrylithSolverAsymMatrixConstructorToTable_;
}


Foam::KrylithSolver::KrylithSolver
(
    const word& fieldName,
    const lduMatrix& matrix,
    const interfaceCoeffs& interfaceBouCoeffs,
    const interfaceCoeffs& interfaceIntCoeffs,
    const lduInterfaceFieldPtrsList& interfaces,
    const dictionary& solverControls
)
:
    lduMatrix::solver
    (
        fieldName,
        matrix,
        interfaceBouCoeffs,
        interfaceIntCoeffs,
        interfaces,
        solverControls
    )
{}


std::string Foam::KrylithSolver::options() const
{
    std::string text =
        matrix_.symmetric()
      ? "method=cg precond=amg:coarsest=100"
      : "method=gmres precond=ildu:cut=whole";
    if (controlDict_.found("krylith"))
    {
        text = string(controlDict_.lookup("krylith"));
    }
    // A run of OpenFOAM has a core for each process.
    if (text.find("threads=") == std::string::npos)
    {
        text += " threads=1";
    }
    return text;
}


Foam::KrylithSystem& Foam::KrylithSolver::system() const
{
    // The components of a vector share a system, as their matrices are mostly the same.
    std::string field = fieldName_;
    while (field.size() > 1 && field.back() >= 'x' && field.back() <= 'z')
    {
        field.pop_back();
    }
    const std::string text = options();
    const word name
    (
        "Krylith:" + field + (matrix_.symmetric() ? ":sym:" : ":asym:")
      + std::to_string(std::hash<std::string>()(text))
    );

    const objectRegistry* db = dynamic_cast<const objectRegistry*>(&matrix_.mesh());
    if (!db)
    {
        FatalErrorInFunction
            << "Krylith solves on meshes, not on levels of an agglomeration." << exit(FatalError);
    }
    if (db->foundObject<KrylithSystem>(name))
    {
        return const_cast<KrylithSystem&>(db->lookupObject<KrylithSystem>(name));
    }
    const IOobject io(name, "constant", *db, IOobject::NO_READ, IOobject::NO_WRITE);
    return regIOobject::store(new KrylithSystem(io, text));
}


Foam::solverPerformance Foam::KrylithSolver::solveIn
(
    solveScalarField& psi,
    const solveScalarField& source,
    const direction cmpt
) const
{
    solverPerformance perf(typeName, fieldName_);
    const label comm = matrix_.mesh().comm();
    const label nCells = psi.size();

    solveScalarField product(nCells), work(nCells);
    matrix_.Amul(product, psi, interfaceBouCoeffs_, interfaces_, cmpt);
    solveScalarField residual(source - product);
    const solveScalar norm = this->normFactor(psi, source, product, work);

    perf.initialResidual() = gSumMag(residual, comm)/norm;
    perf.finalResidual() = perf.initialResidual();
    if (minIter_ <= 0 && perf.checkConvergence(tolerance_, relTol_))
    {
        return perf;
    }

    const word refresh(controlDict_.lookupOrDefault<word>("refresh", "refresh"));
    if (refresh != "keep" && refresh != "refresh" && refresh != "rebuild")
    {
        FatalIOErrorInFunction(controlDict_)
            << "refresh is " << refresh << "; expected keep, refresh or rebuild" << exit(FatalIOError);
    }

    KrylithSystem& krylith = system();
    krylith.update
    (
        matrix_, interfaceBouCoeffs_, interfaces_, cmpt, refresh,
        controlDict_.lookupOrDefault<label>("rebuildEvery", 0)
    );

    // OpenFOAM ends a solve by the 1-norm and Krylith by the 2-norm. A solve of the correction whose 2-norm
    // proves too large is followed by another.
    const scalar wanted = max(tolerance_, relTol_*perf.initialResidual());
    while
    (
        perf.nIterations() < minIter_
     || (perf.nIterations() < maxIter_ && !perf.checkConvergence(tolerance_, relTol_))
    )
    {
        const scalar before = perf.finalResidual();
        const scalar reduction = wanted/max(before, solverPerformance::small_);
        const double rtol = min(max(0.9*reduction/krylith.spread, 1e-14), 0.9);
        const KrylithSystem::result result = krylith.solve
        (
            residual, work, rtol, minIter_ - perf.nIterations(), maxIter_ - perf.nIterations()
        );
        psi += work;
        matrix_.Amul(product, psi, interfaceBouCoeffs_, interfaces_, cmpt);
        residual = source - product;
        perf.finalResidual() = gSumMag(residual, comm)/norm;
        perf.nIterations() += max(result.iterations, label(1));
        if (debug)
        {
            Info<< typeName << ": " << fieldName_ << " " << result.outcome << " after " << result.iterations
                << " iterations, rtol " << rtol << ", residual " << result.residual << ", in OpenFOAM's norm "
                << perf.finalResidual() << endl;
        }
        const double spread = perf.finalResidual()/max(before*result.residual, 1e-300);
        krylith.spread = max(min(max(spread, (spread + krylith.spread)/2), 1e3), 0.5);
        if (!result.converged || !(perf.finalResidual() < before))
        {
            // The preconditioner may be that of a matrix long ago.
            if (krylith.rebuild())
            {
                continue;
            }
            if (!perf.checkConvergence(tolerance_, relTol_) && perf.nIterations() < maxIter_)
            {
                WarningInFunction
                    << fieldName_ << ": " << result.outcome << ". " << krylith.advice() << endl;
            }
            break;
        }
    }
    perf.checkConvergence(tolerance_, relTol_);
    return perf;
}


Foam::solverPerformance Foam::KrylithSolver::solve
(
    scalarField& psi,
    const scalarField& source,
    const direction cmpt
) const
{
#if __has_include("PrecisionAdaptor.H")
    PrecisionAdaptor<solveScalar, scalar> psiAdaptor(psi);
    ConstPrecisionAdaptor<solveScalar, scalar> sourceAdaptor(source);
    return solveIn(psiAdaptor.ref(), sourceAdaptor(), cmpt);
#else
    return solveIn(psi, source, cmpt);
#endif
}
