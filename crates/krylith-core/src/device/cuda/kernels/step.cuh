// A small step of a method, in the words of its own file (space/step.rs): the scalars, their arrays and the
// body.
//
// Macros, made from the step's declaration:
//   FIELDS     names of the scalars, those of the header first
//   ARRAYS     declarations of m and of the arrays
//   END        address behind the last array
//   FUNCTIONS  functions that the body calls
//   SCALARS, ITERATION  names of the scalars and of the iteration in the body
//   BODY       the statements
// and the constants that the body names. Parallel work runs in one thread block.

typedef unsigned long long usize;

// Flags and scalars in their order in memory, followed by the arrays.
struct MethodScalars {
    int halt, columns, reason, limit, completed, remaining, verified, batch;
    double FIELDS;
};

// The common subset of Rust and C++.
#define let auto
#define mut
#define one(...) do { if (threadIdx.x == 0) __VA_ARGS__ __syncthreads(); } while (0)
#define each(i, n, ...) do { for (usize i = threadIdx.x; i < (n); i += blockDim.x) __VA_ARGS__ __syncthreads(); } while (0)

__device__ inline usize at(int flag) { return flag; }
__device__ inline int flag(usize index) { return (int)index; }

FUNCTIONS

__device__ inline void small_step(MethodScalars* scalars, usize ITERATION) {
    ARRAYS
    if (blockDim.x > 1) {
        // A single thread would wait for every cache line of the state in turn: all threads load it at once,
        // and it is then in L1.
        for (const double* p = (const double*)scalars + threadIdx.x; p < END; p += blockDim.x)
            asm volatile("" ::"d"(*p));
        __syncthreads();
    }
    MethodScalars& SCALARS = *scalars;
    BODY
}

#undef let
#undef mut
#undef one
#undef each
