/* Arrays on a GPU: matrix, vectors and new values in the caller's memory and stream. Without a driver the
 * program prints that it is skipped. */
#define _GNU_SOURCE
#include "check.h"
#include <dlfcn.h>
#include <math.h>

typedef unsigned long long address;

/* Functions of the driver, loaded at run time, so that the program links without CUDA. */
static int (*init)(unsigned), (*device_get)(int *, int), (*retain)(void **, int), (*set_current)(void *);
static int (*allocate)(address *, size_t), (*release)(address), (*stream_create)(void **, unsigned);
static int (*to_device)(address, const void *, size_t, void *), (*to_host)(void *, address, size_t, void *), (*synchronize)(void *);
static int (*copy)(address, address, size_t, void *);

static int find(void) {
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);
    if (driver == NULL) return 0;
    const char *names[] = {"cuInit", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxSetCurrent", "cuMemAlloc_v2", "cuMemFree_v2",
                           "cuStreamCreate", "cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize", "cuMemcpyDtoDAsync_v2"};
    void *places[] = {&init, &device_get, &retain, &set_current, &allocate, &release, &stream_create, &to_device, &to_host, &synchronize, &copy};
    for (int i = 0; i < 11; i++) {
        void *found = dlsym(driver, names[i]);
        EXPECT(found != NULL);
        memcpy(places[i], &found, sizeof found);
    }
    int device;
    void *context;
    return init(0) == 0 && device_get(&device, 0) == 0 && retain(&context, device) == 0 && set_current(context) == 0;
}

static krylith_memory memory = {0, NULL};

static void *on_device(const void *from, size_t bytes) {
    address to = 0;
    EXPECT(allocate(&to, bytes) == 0 && to_device(to, from, bytes, memory.stream) == 0);
    return (void *)(uintptr_t)to;
}

enum { N = 4096 };

static int near(void *x, double factor) {
    static double host[N];
    EXPECT(to_host(host, (address)(uintptr_t)x, sizeof host, memory.stream) == 0 && synchronize(memory.stream) == 0);
    for (int i = 0; i < N; i++) /* (4 − shifts) 1 = 2 inside, 3 at the ends */
        if (fabs(host[i] - factor) > 1e-6) return 0;
    return 1;
}

/* The identity, as work of the stream. */
static int32_t same(void *user, int64_t n, const double *x, double *y, int32_t transposed, const krylith_memory *at) {
    (void)transposed;
    ++*(int *)user;
    if (at == NULL || at->gpu != 0 || at->stream == NULL) return 8;
    return copy((address)(uintptr_t)y, (address)(uintptr_t)x, (size_t)n * sizeof *x, at->stream);
}

/* The identity as P, called in each iteration or recorded, and as A without a matrix. */
static void operators(krylith_solver *solver, void *b, void *x, void *zero) {
    for (int capturable = 0; capturable <= 1; capturable++) {
        int calls = 0;
        krylith_solution solution;
        const krylith_operator identity = {same, &calls, 1, capturable};
        EXPECT(krylith_solver_set_operators(solver, NULL, &identity) == KRYLITH_OK);
        for (int solve = 0; solve <= 1; solve++) {
            calls = 0;
            EXPECT(copy((address)(uintptr_t)x, (address)(uintptr_t)zero, N * sizeof(double), memory.stream) == 0);
            EXPECT(krylith_solver_solve(solver, b, x, &memory, &solution) == KRYLITH_OK);
            EXPECT(solution.outcome == KRYLITH_CONVERGED && near(x, 1.0) && (capturable && solve ? calls == 0 : calls > 0));
        }
        krylith_solver *without = NULL;
        EXPECT(krylith_solver_without_matrix(N, "method=cg rtol=1e-10 device=cuda", &without) == KRYLITH_OK);
        EXPECT(krylith_solver_set_operators(without, &identity, NULL) == KRYLITH_OK);
        EXPECT(krylith_solver_solve(without, b, x, &memory, &solution) == KRYLITH_OK);
        EXPECT(solution.outcome == KRYLITH_CONVERGED && solution.iterations <= 1);
        krylith_solver_free(without);
    }
    EXPECT(krylith_solver_set_operators(solver, NULL, NULL) == KRYLITH_OK);
}

int main(void) {
    if (!find()) {
        printf("no NVIDIA driver: skipped\n");
        return EXIT_SUCCESS;
    }
    EXPECT(stream_create(&memory.stream, 1) == 0);
    static double values[3 * N], b[N], zero[N];
    static int32_t row_ptr[N + 1], col[3 * N];
    for (int base = 0; base <= 1; base++) {
        int32_t e = 0;
        for (int32_t i = 0; i < N; i++) {
            row_ptr[i] = e + base;
            b[i] = 0.0;
            for (int32_t j = i - 1; j <= i + 1; j++) {
                if (j < 0 || j >= N) continue;
                col[e] = j + base;
                b[i] += values[e++] = i == j ? 4.0 : -1.0;
            }
        }
        row_ptr[N] = e + base;
        void *p = on_device(row_ptr, sizeof row_ptr), *j = on_device(col, e * sizeof *col), *v = on_device(values, e * sizeof *values);
        void *f = on_device(b, sizeof b), *x = on_device(zero, sizeof zero), *y = on_device(zero, sizeof zero);
        krylith_problem *problem = NULL;
        krylith_solver *solver = NULL;
        krylith_solution solution;
        EXPECT(krylith_problem_csr(N, e, p, j, v, 1, &memory, &problem) == KRYLITH_OK);
        EXPECT(krylith_solver_new(problem, "rtol=1e-10 device=cuda", &solver) == KRYLITH_OK);
        EXPECT(krylith_solver_solve(solver, f, x, &memory, &solution) == KRYLITH_OK);
        EXPECT(solution.outcome == KRYLITH_CONVERGED && near(x, 1.0));
        EXPECT(krylith_solver_multiply(solver, x, y, &memory) == KRYLITH_OK);
        void *nothing = on_device(zero, sizeof zero);
        operators(solver, f, y, nothing);
        EXPECT(synchronize(memory.stream) == 0 && release((address)(uintptr_t)nothing) == 0);
        for (int k = 0; k < e; k++) values[k] *= 2.0;
        EXPECT(to_device((address)(uintptr_t)v, values, e * sizeof *values, memory.stream) == 0);
        EXPECT(krylith_solver_update_values(solver, 0, e, v, &memory) == KRYLITH_OK);
        EXPECT(krylith_solver_solve(solver, f, x, &memory, NULL) == KRYLITH_OK && near(x, 0.5));
        /* Wrong arrays on a GPU give the same error as on the host. */
        krylith_problem *none = NULL;
        col[7] = 9999;
        EXPECT(to_device((address)(uintptr_t)j, col, e * sizeof *col, memory.stream) == 0);
        REFUSED(krylith_problem_csr(N, e, p, j, v, 1, &memory, &none), KRYLITH_INVALID, base ? "column 9998" : "column 9999");
        REFUSED(krylith_solver_solve(solver, b, x, &memory, NULL), KRYLITH_INVALID, "does not know the address");
        krylith_solver_free(solver), krylith_problem_free(problem);
        void *all[] = {p, j, v, f, x, y};
        for (int k = 0; k < 6; k++) EXPECT(release((address)(uintptr_t)all[k]) == 0);
    }
    printf("arrays on a GPU\n");
    return EXIT_SUCCESS;
}
