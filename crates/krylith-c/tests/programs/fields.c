/* Coupled systems: fields by text and by lists, and a matrix by name. The solution of the saddle point is known. */
#include "check.h"
#include <math.h>

/* Velocities, pressures, and all unknowns. */
enum { U = 6, P = 3, N = U + P };

/* [A B; Bᵀ 0] with A = −1 2 −1. Column k of B is the difference of the velocities 2k and 2k + 1. */
static double dense(int i, int j) {
    if (i < U && j < U) return i == j ? 2.0 : abs(i - j) == 1 ? -1.0 : 0.0;
    if (i >= U && j >= U) return 0.0;
    const int u = i < j ? i : j, p = (i < j ? j : i) - U;
    return u == 2 * p ? -1.0 : u == 2 * p + 1 ? 1.0 : 0.0;
}

static krylith_problem *saddle(void) {
    int32_t row_ptr[N + 1] = {0}, col[N * N], entries = 0;
    double values[N * N];
    for (int i = 0; i < N; i++) {
        for (int j = 0; j < N; j++) {
            if (dense(i, j) == 0.0) continue;
            col[entries] = j;
            values[entries++] = dense(i, j);
        }
        row_ptr[i + 1] = entries;
    }
    krylith_problem *problem = NULL;
    EXPECT(krylith_problem_csr(N, entries, row_ptr, col, values, 1, NULL, &problem) == KRYLITH_OK);
    return problem;
}

/* Solves for x_i = i + 1, and checks the residual and the solution. */
static void solves(const krylith_problem *problem, const char *options) {
    double b[N], x[N] = {0}, residual = 0.0, norm = 0.0;
    krylith_solution solution;
    for (int i = 0; i < N; i++) {
        b[i] = 0.0;
        for (int j = 0; j < N; j++) b[i] += dense(i, j) * (j + 1);
    }
    EXPECT(krylith_solve(problem, options, b, x, NULL, &solution) == KRYLITH_OK);
    EXPECT(solution.outcome == KRYLITH_CONVERGED);
    for (int i = 0; i < N; i++) {
        double r = b[i];
        for (int j = 0; j < N; j++) r -= dense(i, j) * x[j];
        residual += r * r, norm += b[i] * b[i];
        EXPECT(fabs(x[i] - (i + 1)) < 1e-8);
    }
    EXPECT(residual <= 1e-20 * norm);
}

static const char *SELFP = "method=fgmres precond=split(u: jacobi, p: jacobi; schur=full, S=selfp) rtol=1e-11 device=cpu";
static const char *MASS = "method=fgmres precond=split(u: jacobi, p: jacobi; schur=full, S=Mp) rtol=1e-11 device=cpu";

/* With S=Mp and twice the mass matrix, the pressures of P⁻¹x are half as large. */
static void renews(const krylith_problem *problem) {
    krylith_solver *solver = NULL;
    const double twice[] = {2, 2, 2}, damaged[] = {1, NAN, 1};
    double x[N], before[N], after[N], values[N * N];
    int64_t entries = 0;
    for (int i = 0; i < N; i++) {
        x[i] = 1.0;
        for (int j = 0; j < N; j++) {
            if (dense(i, j) != 0.0) values[entries++] = dense(i, j);
        }
    }
    EXPECT(krylith_solver_new(problem, "precond=split(u: jacobi, p: jacobi; schur=upper, S=Mp) device=cpu", &solver) == KRYLITH_OK);
    EXPECT(krylith_solver_precondition(solver, x, before, NULL) == KRYLITH_OK);
    EXPECT(krylith_solver_set_matrix(solver, "Mp", P, twice) == KRYLITH_OK);
    EXPECT(krylith_solver_update_values(solver, 0, entries, values, NULL) == KRYLITH_OK);
    EXPECT(krylith_solver_precondition(solver, x, after, NULL) == KRYLITH_OK);
    for (int i = U; i < N; i++) EXPECT(before[i] != 0.0 && fabs(before[i] - 2.0 * after[i]) < 1e-14);
    REFUSED(krylith_solver_set_matrix(solver, "Mq", P, twice), KRYLITH_INVALID, "no matrix has the name `Mq`");
    REFUSED(krylith_solver_set_matrix(solver, "Mp", 2, twice), KRYLITH_INVALID, "2 new values for the matrix `Mp`, which stores 3");
    REFUSED(krylith_solver_set_matrix(solver, "Mp", P, damaged), KRYLITH_INVALID, "matrix `Mp`");
    REFUSED(krylith_solver_set_matrix(solver, NULL, P, twice), KRYLITH_INVALID, "name is a null pointer");
    REFUSED(krylith_solver_set_matrix(solver, "Mp", P, NULL), KRYLITH_INVALID, "values is a null pointer");
    REFUSED(krylith_solver_set_matrix(solver, "Mp", -1, twice), KRYLITH_INVALID, "count is -1");
    REFUSED(krylith_solver_set_matrix(NULL, "Mp", P, twice), KRYLITH_INVALID, "solver is a null pointer");
    krylith_solver_free(solver);
}

/* The near-null vectors of a field are its columns on the coarse level: they change what AMG applies. */
static void near_null_vectors_of_a_field(void) {
    krylith_problem *problem = saddle();
    krylith_solver *solver = NULL;
    const char *options = "precond=split(u: amg:coarsen=smoothed,coarsest=2, p: jacobi; schur=upper, S=selfp) device=cpu";
    const double waves[] = {1, -1, 1, -1, 1, -1, 1, 1, 1, 1, 1, NAN};
    double x[N], y[3][N];
    for (int i = 0; i < N; i++) x[i] = i + 1.0;
    REFUSED(krylith_problem_set_field_near_null_vectors(problem, "u", 1, waves), KRYLITH_INVALID, "no field `u`");
    EXPECT(krylith_problem_set_fields(problem, "u=0:6,p=6:") == KRYLITH_OK);
    for (int k = 0; k < 3; k++) {
        EXPECT(krylith_problem_set_field_near_null_vectors(problem, "U", k == 1, waves) == KRYLITH_OK);
        EXPECT(krylith_solver_new(problem, options, &solver) == KRYLITH_OK);
        EXPECT(krylith_solver_precondition(solver, x, y[k], NULL) == KRYLITH_OK);
        krylith_solver_free(solver);
    }
    double changed = 0.0;
    for (int i = 0; i < U; i++) {
        changed += fabs(y[1][i] - y[0][i]);
        EXPECT(y[2][i] == y[0][i]); /* without them again */
    }
    EXPECT(changed > 1e-3);
    REFUSED(krylith_problem_set_field_near_null_vectors(problem, "v", 1, waves), KRYLITH_INVALID, "no field `v`");
    REFUSED(krylith_problem_set_field_near_null_vectors(problem, NULL, 1, waves), KRYLITH_INVALID, "field is a null pointer");
    REFUSED(krylith_problem_set_field_near_null_vectors(problem, "u", -1, waves), KRYLITH_INVALID, "count is -1");
    REFUSED(krylith_problem_set_field_near_null_vectors(problem, "u", 1, NULL), KRYLITH_INVALID, "vectors is a null pointer");
    REFUSED(krylith_problem_set_field_near_null_vectors(NULL, "u", 1, waves), KRYLITH_INVALID, "problem is a null pointer");
    krylith_problem_free(problem);
}

static void options_by_themselves(void) {
    EXPECT(krylith_check_options("precond=jacobi then amg method=gmres:restart=7") == KRYLITH_OK);
    EXPECT(krylith_check_options(NULL) == KRYLITH_OK);
    REFUSED(krylith_check_options("precnod=amg"), KRYLITH_INVALID, "did you mean `precond`");
    REFUSED(krylith_check_options("precond=agm"), KRYLITH_INVALID, "agm");
    REFUSED(krylith_check_options("threads=many"), KRYLITH_INVALID, "threads=many");
}

static void fields_by_text(void) {
    krylith_problem *problem = saddle();
    krylith_solver *solver = NULL;
    REFUSED(krylith_solver_new(problem, SELFP, &solver), KRYLITH_INVALID, "the system has no fields");
    EXPECT(krylith_problem_set_fields(problem, "u=0:6,p=6:") == KRYLITH_OK);
    solves(problem, SELFP);
    EXPECT(krylith_problem_set_fields(problem, "p=6:,u[2]=0:6:2+1:6:2") == KRYLITH_OK);
    solves(problem, SELFP);
    REFUSED(krylith_problem_set_fields(problem, "u=0:6,p=7:"), KRYLITH_INVALID,
            "1 of 9 unknowns belong to no field; the first is 6");
    REFUSED(krylith_problem_set_fields(problem, "u=0:7,p=6:"), KRYLITH_INVALID, "unknown 6 belongs to the fields `u` and `p`");
    REFUSED(krylith_problem_set_fields(problem, "u=0:60,p=6:"), KRYLITH_INVALID, "`0:60` is not within the 9 unknowns");
    REFUSED(krylith_problem_set_fields(problem, ""), KRYLITH_INVALID, "`=` is missing");
    REFUSED(krylith_problem_set_fields(problem, NULL), KRYLITH_INVALID, "text is a null pointer");
    REFUSED(krylith_problem_set_fields(NULL, "u=0:6,p=6:"), KRYLITH_INVALID, "problem is a null pointer");
    solves(problem, SELFP); /* errors leave the fields as they are */
    krylith_problem_free(problem);
}

static void fields_by_lists(void) {
    krylith_problem *problem = saddle();
    krylith_solver *solver = NULL;
    const char *names[] = {"u", "p"}, *nameless[] = {"u", NULL}, *twice[] = {"u", "U"};
    const int64_t lengths[] = {U, P}, negative[] = {U, -3};
    int64_t velocities[] = {5, 4, 3, 2, 1, 0}, pressures[] = {6, 7, 8};
    const int64_t *unknowns[] = {velocities, pressures}, *missing[] = {velocities, NULL};
    const int32_t blocks[] = {3, 1}, wrong[] = {4, 1}, none[] = {-1, 1};
    const int64_t row_ptr[] = {0, 1, 2, 3}, from_one[] = {1, 2, 3, 4};
    const int32_t col[] = {0, 1, 2}, col_from_one[] = {1, 2, 3}, far[] = {0, 1, 77};
    const double mass[] = {1, 1, 1}, damaged[] = {1, NAN, 1};

    EXPECT(krylith_problem_set_field_lists(problem, 2, names, lengths, unknowns, NULL) == KRYLITH_OK);
    solves(problem, SELFP);
    EXPECT(krylith_problem_set_field_lists(problem, 2, names, lengths, unknowns, blocks) == KRYLITH_OK);
    REFUSED(krylith_solver_new(problem, MASS, &solver), KRYLITH_INVALID, "no matrix has the name `mp`");
    EXPECT(krylith_problem_set_matrix(problem, "Mp", P, P, P, row_ptr, col, mass) == KRYLITH_OK);
    solves(problem, MASS);
    EXPECT(krylith_problem_set_matrix(problem, "Mp", P, P, P, from_one, col_from_one, mass) == KRYLITH_OK);
    solves(problem, MASS);
    renews(problem);

    REFUSED(krylith_problem_set_field_lists(NULL, 2, names, lengths, unknowns, NULL), KRYLITH_INVALID, "problem is a null pointer");
    REFUSED(krylith_problem_set_field_lists(problem, -1, names, lengths, unknowns, NULL), KRYLITH_INVALID, "count is -1");
    REFUSED(krylith_problem_set_field_lists(problem, 2, NULL, lengths, unknowns, NULL), KRYLITH_INVALID, "names is a null pointer");
    REFUSED(krylith_problem_set_field_lists(problem, 2, nameless, lengths, unknowns, NULL), KRYLITH_INVALID,
            "names[1] is a null pointer");
    REFUSED(krylith_problem_set_field_lists(problem, 2, twice, lengths, unknowns, NULL), KRYLITH_INVALID,
            "two fields have the name `u`");
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, NULL, unknowns, NULL), KRYLITH_INVALID, "lengths is a null pointer");
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, negative, unknowns, NULL), KRYLITH_INVALID, "lengths[1] is -3");
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, lengths, NULL, NULL), KRYLITH_INVALID, "unknowns is a null pointer");
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, lengths, missing, NULL), KRYLITH_INVALID,
            "unknowns[1] is a null pointer");
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, lengths, unknowns, wrong), KRYLITH_INVALID,
            "6 unknowns, which do not form blocks of 4");
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, lengths, unknowns, none), KRYLITH_INVALID, "blocks[0] is -1");
    pressures[1] = 5;
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, lengths, unknowns, NULL), KRYLITH_INVALID,
            "unknown 5 belongs to the fields `u` and `p`");
    pressures[1] = 9;
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, lengths, unknowns, NULL), KRYLITH_INVALID,
            "field `p` has the unknown 9, but the system has 9");
    pressures[1] = -4;
    REFUSED(krylith_problem_set_field_lists(problem, 2, names, lengths, unknowns, NULL), KRYLITH_INVALID, "unknowns[1][1] is -4");

    REFUSED(krylith_problem_set_matrix(problem, NULL, P, P, P, row_ptr, col, mass), KRYLITH_INVALID, "name is a null pointer");
    REFUSED(krylith_problem_set_matrix(NULL, "Mp", P, P, P, row_ptr, col, mass), KRYLITH_INVALID, "problem is a null pointer");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", -3, P, P, row_ptr, col, mass), KRYLITH_INVALID, "rows is -3");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", P, -1, P, row_ptr, col, mass), KRYLITH_INVALID, "columns is -1");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", P, P, -2, row_ptr, col, mass), KRYLITH_INVALID, "entries is -2");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", P, P, P, NULL, col, mass), KRYLITH_INVALID, "row_ptr is a null pointer");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", P, P, P, row_ptr, NULL, mass), KRYLITH_INVALID, "col is a null pointer");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", P, P, P, row_ptr, col, NULL), KRYLITH_INVALID, "values is a null pointer");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", P, P, P, row_ptr, far, mass), KRYLITH_INVALID, "matrix `Mp`");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", P, P, P, row_ptr, far, mass), KRYLITH_INVALID, "column 77");
    REFUSED(krylith_problem_set_matrix(problem, "Mp", P, P, P, row_ptr, col, damaged), KRYLITH_INVALID, "matrix `Mp`");
    solves(problem, MASS); /* errors leave the fields and the matrix as they are */

    EXPECT(krylith_problem_set_field_lists(problem, 0, NULL, NULL, NULL, NULL) == KRYLITH_OK);
    REFUSED(krylith_solver_new(problem, MASS, &solver), KRYLITH_INVALID, "the system has no fields");
    EXPECT(solver == NULL);
    krylith_problem_free(problem);
}

int main(void) {
    fields_by_text();
    fields_by_lists();
    near_null_vectors_of_a_field();
    options_by_themselves();
    printf("krylith.h: fields by text and by lists, and a matrix by name\n");
    return EXIT_SUCCESS;
}
