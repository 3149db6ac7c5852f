/* SPDX-License-Identifier: GPL-3.0-or-later */

// OpenFOAM starts MPI for calls from one thread. Krylith calls MPI from a thread of its own while OpenFOAM
// waits. If this library is preloaded, these functions take the place of MPI's and ask for that.

#ifndef KRYLITH_FOAM_WITHOUT_MPI

#ifndef OMPI_SKIP_MPICXX
#define OMPI_SKIP_MPICXX
#endif
#ifndef MPICH_SKIP_MPICXX
#define MPICH_SKIP_MPICXX
#endif
#include <mpi.h>

extern "C" int MPI_Init_thread(int* argc, char*** argv, int required, int* provided)
{
    return PMPI_Init_thread
    (
        argc, argv, required < MPI_THREAD_SERIALIZED ? MPI_THREAD_SERIALIZED : required, provided
    );
}

extern "C" int MPI_Init(int* argc, char*** argv)
{
    int provided;
    return PMPI_Init_thread(argc, argv, MPI_THREAD_SERIALIZED, &provided);
}

#endif
