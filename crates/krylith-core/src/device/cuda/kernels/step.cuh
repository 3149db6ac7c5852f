// A small step of a method, in the words of its own file (space/step.rs): the scalars, their arrays and the text.
//
// Macros, made from the step's declaration:
//   FIELDS     names of the scalars, those of the header first      ARRAYS   declarations of m and of the arrays
//   END        behind the last array                                FUNCTIONS  what the text calls
//   SCALARS, ITERATION  what the text calls them                    BODY     the statements
// and the constants that the text names. What runs in parallel runs in one block of threads.

typedef unsigned long long usize;

// Flags and scalars as they lie in memory, with the arrays behind them.
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
        // One thread would wait for every line of the state in turn: all ask for it at once, and it is found in L1.
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
