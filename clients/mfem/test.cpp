/// Solves small systems of MFEM with Krylith and with MFEM's own solvers, and compares the solutions.
///
///     c++ -std=c++17 test.cpp $(pkg-config --cflags --libs krylith) -I… -L… -lmfem && ./a.out

#include "krylith_mfem.hpp"

#include <iostream>
#include <sstream>

using namespace mfem;

static int failures = 0;

static void expect(bool right, const std::string &what) {
    std::cout << (right ? "ok    " : "WRONG ") << what << std::endl;
    failures += !right;
}

static void close(const Vector &x, const Vector &y, double most, const std::string &what) {
    Vector d(x);
    d -= y;
    const double found = d.Normlinf() / y.Normlinf();
    std::ostringstream said;
    said << what << ": " << found;
    expect(found <= most, said.str());
}

/// −∇·(c ∇u) = 1 with u = 0 on the boundary, on squares with elements of order 2.
struct Poisson {
    Mesh mesh = Mesh::MakeCartesian2D(16, 16, Element::QUADRILATERAL);
    H1_FECollection elements{2, 2};
    FiniteElementSpace space{&mesh, &elements};
    Array<int> boundary;
    GridFunction u{&space};
    LinearForm b{&space};
    Vector X, B; // parts of u and b

    void assemble(OperatorPtr &A, double c, AssemblyLevel level = AssemblyLevel::LEGACY) {
        ConstantCoefficient one(1), factor(c);
        space.GetBoundaryTrueDofs(boundary);
        b.AddDomainIntegrator(new DomainLFIntegrator(one));
        b.Assemble();
        a = std::make_unique<BilinearForm>(&space);
        a->SetAssemblyLevel(level);
        a->AddDomainIntegrator(new DiffusionIntegrator(factor));
        a->Assemble();
        u = 0.0;
        a->FormLinearSystem(boundary, u, b, A, X, B);
    }
    std::unique_ptr<BilinearForm> a;
};

static Vector by_cg(const Operator &A, const Vector &B) {
    CGSolver cg;
    cg.SetRelTol(1e-13);
    cg.SetMaxIter(5000);
    cg.SetOperator(A);
    Vector x(B.Size());
    x = 0.0;
    cg.Mult(B, x);
    return x;
}

static void poisson() {
    Poisson problem;
    OperatorPtr A;
    problem.assemble(A, 1);
    Vector x(problem.B.Size());
    x = 0.0;

    krylith::mfem::Solver solver("threads=1");
    solver.SetOperator(*A);
    solver.Mult(problem.B, x);
    const Vector right = by_cg(*A, problem.B);
    expect(solver.GetConverged() && solver.GetNumIterations() > 0, "Poisson converges");
    close(x, right, 1e-9, "Poisson");

    // The matrix is symmetric but for rounding, so that the transposed solve has the same solution.
    x = 7.0;
    solver.MultTranspose(problem.B, x);
    close(x, right, 1e-9, "Poisson, transposed");

    krylith::mfem::Solver again("method=cg precond=amg threads=1");
    again.iterative_mode = true;
    again.SetOperator(*A);
    x = right;
    again.SetRelTol(1e-10);
    again.Mult(problem.B, x);
    expect(again.GetNumIterations() == 0, "the initial guess is used in iterative mode");
    again.iterative_mode = false;
    again.Mult(problem.B, x);
    expect(again.GetNumIterations() > 0, "and not otherwise");
    again.SetMaxIter(1);
    again.Mult(problem.B, x);
    expect(!again.GetConverged(), "SetMaxIter ends a solve that has not converged");

    CGSolver own;
    krylith::mfem::Preconditioner amg("precond=amg threads=1");
    own.SetRelTol(1e-12);
    own.SetMaxIter(50);
    own.SetPreconditioner(amg);
    own.SetOperator(*A);
    x = 0.0;
    own.Mult(problem.B, x);
    expect(own.GetConverged(),
           "MFEM's CG converges with AMG after " + std::to_string(own.GetNumIterations()) + " iterations");
    close(x, right, 1e-9, "MFEM's CG with AMG");

    GSSmoother smoother;
    krylith::mfem::Solver with("method=cg rtol=1e-12 threads=1");
    with.SetPreconditioner(smoother);
    with.SetOperator(*A);
    with.Mult(problem.B, x);
    close(x, right, 1e-9, "Krylith's CG with MFEM's smoother");

    Poisson scaled;
    OperatorPtr twice;
    scaled.assemble(twice, 2);
    solver.SetOperator(*twice);
    solver.Mult(scaled.B, x);
    x *= 2.0;
    close(x, right, 1e-9, "new values of the same pattern");

    Poisson partial;
    OperatorPtr no_entries;
    partial.assemble(no_entries, 1, AssemblyLevel::PARTIAL);
    krylith::mfem::Solver free("method=cg threads=1");
    free.SetOperator(*no_entries);
    free.Mult(partial.B, x);
    close(x, by_cg(*no_entries, partial.B), 1e-9, "an operator without entries");
}

static void elasticity() {
    Mesh mesh = Mesh::MakeCartesian2D(24, 6, Element::QUADRILATERAL, false, 4, 1);
    H1_FECollection elements(1, 2);
    FiniteElementSpace space(&mesh, &elements, 2, Ordering::byVDIM);
    Array<int> marker(mesh.bdr_attributes.Max()), fixed;
    marker = 0;
    marker[3] = 1;
    space.GetEssentialTrueDofs(marker, fixed);
    ConstantCoefficient lambda(50), mu(50);
    Vector load(2);
    load = -1e-2;
    VectorConstantCoefficient force(load);
    LinearForm b(&space);
    b.AddDomainIntegrator(new VectorDomainLFIntegrator(force));
    b.Assemble();
    BilinearForm a(&space);
    a.AddDomainIntegrator(new ElasticityIntegrator(lambda, mu));
    a.Assemble();
    GridFunction u(&space);
    u = 0.0;
    SparseMatrix A;
    Vector X, B, x;
    a.FormLinearSystem(fixed, u, b, A, X, B);

    GridFunction nodes(&space);
    mesh.GetNodes(nodes);
    std::vector<double> points(nodes.GetData(), nodes.GetData() + nodes.Size());
    krylith::mfem::Solver solver("method=cg precond=amg threads=1");
    solver.SetBlockSize(2);
    solver.SetProblem(
        [&](krylith::Problem &problem) { problem.set_coordinates(2, points).set_near_null_vectors(); });
    solver.SetOperator(A);
    x.SetSize(B.Size());
    x = 0.0;
    solver.Mult(B, x);
    close(x, by_cg(A, B), 1e-8,
          "elasticity with rigid modes, " + std::to_string(solver.GetNumIterations()) + " iterations");
}

/// The mixed form of Darcy's equation, as in MFEM's example 5.
static void darcy() {
    Mesh mesh = Mesh::MakeCartesian2D(12, 12, Element::QUADRILATERAL);
    RT_FECollection fluxes(0, 2);
    L2_FECollection pressures(0, 2);
    FiniteElementSpace R(&mesh, &fluxes), W(&mesh, &pressures);
    Array<int> offsets({0, R.GetVSize(), R.GetVSize() + W.GetVSize()});
    BilinearForm m(&R);
    m.AddDomainIntegrator(new VectorFEMassIntegrator);
    m.Assemble();
    m.Finalize();
    MixedBilinearForm d(&R, &W);
    d.AddDomainIntegrator(new VectorFEDivergenceIntegrator);
    d.Assemble();
    d.Finalize();
    SparseMatrix &D = d.SpMat();
    TransposeOperator Dt(&D);
    BlockOperator A(offsets);
    A.SetBlock(0, 0, &m.SpMat());
    A.SetBlock(0, 1, &Dt, -1);
    A.SetBlock(1, 0, &D, -1);
    BlockVector b(offsets), x(offsets), y(offsets);
    b.GetBlock(0) = 0.0;
    b.GetBlock(1) = 1.0 / (12 * 12);

    MINRESSolver own;
    own.SetRelTol(1e-12);
    own.SetMaxIter(5000);
    own.SetOperator(A);
    y = 0.0;
    own.Mult(b, y);
    for (const std::string options :
         {"", "method=fgmres precond=split(b0:jacobi,b1:amg;schur=full,S=selfp)"}) {
        krylith::mfem::Solver solver(options + " rtol=1e-11 threads=1");
        solver.iterative_mode = false;
        solver.SetOperator(A);
        solver.Mult(b, x);
        close(x, y, 1e-6,
              "Darcy's equation, options \"" + options + "\", " + std::to_string(solver.GetNumIterations()) +
                  " iterations");
        solver.MultTranspose(b, x);
        close(x, y, 1e-6, "the same, transposed");
    }
}

static void errors() {
#ifdef MFEM_USE_EXCEPTIONS
    set_error_action(MFEM_ERROR_THROW);
    Poisson problem;
    OperatorPtr A;
    problem.assemble(A, 1);
    std::string said;
    try {
        krylith::mfem::Solver solver("precond=nothing");
        solver.SetOperator(*A);
    } catch (const ErrorException &error) {
        said = error.what();
    }
    expect(said.find("nothing") != std::string::npos, "an error of Krylith is an error of MFEM");
#endif
}

int main() {
    poisson();
    elasticity();
    darcy();
    errors();
    return failures;
}
