/// Solves a HypreParMatrix with Krylith over its ranks, and compares the solution with that of MFEM's CG.
///
///     mpicxx -std=c++17 test_ranks.cpp $(pkg-config --cflags --libs krylith) -I… -L… -lmfem -lHYPRE
///     mpirun -np 3 ./a.out

#include "krylith_mfem.hpp"

#include <iostream>

using namespace mfem;

/// −∇·(c ∇u) = 1 with u = 0 on the boundary. Each rank has a strip of the elements.
struct Poisson {
    Poisson(MPI_Comm comm, int ranks, double c)
        : serial(Mesh::MakeCartesian2D(16, 16, Element::QUADRILATERAL)), part(parts(ranks)),
          mesh(comm, serial, part.data()), elements(2, 2), space(&mesh, &elements), b(&space), a(&space),
          u(&space) {
        ConstantCoefficient one(1), factor(c);
        Array<int> boundary;
        space.GetBoundaryTrueDofs(boundary);
        b.AddDomainIntegrator(new DomainLFIntegrator(one));
        b.Assemble();
        a.AddDomainIntegrator(new DiffusionIntegrator(factor));
        a.Assemble();
        u = 0.0;
        a.FormLinearSystem(boundary, u, b, A, X, B);
    }
    std::vector<int> parts(int ranks) {
        std::vector<int> of(static_cast<std::size_t>(serial.GetNE()));
        for (std::size_t i = 0; i < of.size(); i++) of[i] = static_cast<int>(i) * ranks / serial.GetNE();
        return of;
    }
    Mesh serial;
    std::vector<int> part;
    ParMesh mesh;
    H1_FECollection elements;
    ParFiniteElementSpace space;
    ParLinearForm b;
    ParBilinearForm a;
    ParGridFunction u;
    HypreParMatrix A;
    Vector X, B;
};

int main(int argc, char **argv) {
    int given = 0, ranks = 1, rank = 0, wrong = 0;
    // Krylith calls MPI from a thread of its own.
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &given);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    Hypre::Init();
    {
        krylith::mfem::Solver solver(MPI_COMM_WORLD, "method=cg precond=amg threads=1");
        for (const double c : {1.0, 2.0}) {
            Poisson problem(MPI_COMM_WORLD, ranks, c);
            CGSolver own(MPI_COMM_WORLD);
            own.SetRelTol(1e-13);
            own.SetMaxIter(1000);
            own.SetOperator(problem.A);
            Vector right(problem.B.Size()), x(problem.B.Size());
            right = x = 0.0;
            own.Mult(problem.B, right);
            solver.SetOperator(problem.A);
            solver.Mult(problem.B, x);
            x -= right;
            const double found =
                std::sqrt(InnerProduct(MPI_COMM_WORLD, x, x) / InnerProduct(MPI_COMM_WORLD, right, right));
            const bool ok = solver.GetConverged() && found < 1e-9;
            if (rank == 0)
                std::cout << (ok ? "ok    " : "WRONG ") << ranks << " ranks, c = " << c << ": " << found
                          << '\n';
            wrong += !ok;
        }
    }
    MPI_Finalize();
    return wrong;
}
