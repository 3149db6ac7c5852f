/* The functions that mpi_f08.f90 calls, on top of the C interface of any MPI library. */
#include <mpi.h>

int by_c_init(void) {
    int provided = 0;
    const int code = MPI_Init_thread(0, 0, MPI_THREAD_SERIALIZED, &provided);
    return code == MPI_SUCCESS && provided >= MPI_THREAD_SERIALIZED;
}

int by_c_world(void) {
#if MPI_VERSION >= 5
    return MPI_Comm_toint(MPI_COMM_WORLD);
#else
    return MPI_Comm_c2f(MPI_COMM_WORLD);
#endif
}

int by_c_rank(void) {
    int rank = -1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int by_c_size(void) {
    int size = -1;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

void by_c_finalize(void) { MPI_Finalize(); }

void by_c_abort(int code) { MPI_Abort(MPI_COMM_WORLD, code); }
