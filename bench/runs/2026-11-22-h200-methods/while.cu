// What a WHILE node costs beside an unrolled graph: a body of n small dependent kernels, the last of which says whether to go on.
#include <cuda_runtime.h>
#include <cstdio>
#include <chrono>
#include <vector>
#include <algorithm>
#define OK(x) do { cudaError_t e = (x); if (e) { printf("%s: %s\n", #x, cudaGetErrorString(e)); return 1; } } while (0)
__global__ void work(double* v, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) v[i] = v[i] * 1.0000001 + 1e-9; }
__global__ void begin(int* left, int count) { *left = count; }
__global__ void decide(int* left, cudaGraphConditionalHandle h) { int l = --*left; cudaGraphSetConditional(h, l > 0); }
__global__ void count_down(int* left) { --*left; }
int main() {
    double* v; int* left; const int n = 1024; OK(cudaMalloc(&v, n * 8)); OK(cudaMalloc(&left, 4)); cudaStream_t s; OK(cudaStreamCreate(&s));
    auto clock = [&](cudaGraphExec_t g) { std::vector<double> t; for (int k = 0; k < 30; ++k) { cudaStreamSynchronize(s); auto a = std::chrono::steady_clock::now(); cudaGraphLaunch(g, s); cudaStreamSynchronize(s); t.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - a).count()); } std::sort(t.begin(), t.end()); return t[15]; };
    for (int body : {4, 10, 40}) for (int rounds : {8, 64}) {
        cudaGraph_t flat; OK(cudaStreamBeginCapture(s, cudaStreamCaptureModeRelaxed)); begin<<<1, 1, 0, s>>>(left, rounds);
        for (int r = 0; r < rounds; ++r) { for (int k = 0; k < body; ++k) work<<<4, 256, 0, s>>>(v, n); count_down<<<1, 1, 0, s>>>(left); }
        OK(cudaStreamEndCapture(s, &flat)); auto a = std::chrono::steady_clock::now(); cudaGraphExec_t fe; OK(cudaGraphInstantiate(&fe, flat, 0)); double make_flat = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - a).count();
        cudaGraph_t g; OK(cudaGraphCreate(&g, 0)); cudaGraphConditionalHandle h; OK(cudaGraphConditionalHandleCreate(&h, g, 1, cudaGraphCondAssignDefault));
        cudaGraphNode_t first; cudaKernelNodeParams kp = {}; int c = rounds; void* args[] = {&left, &c}; kp.func = (void*)begin; kp.gridDim = 1; kp.blockDim = 1; kp.kernelParams = args; OK(cudaGraphAddKernelNode(&first, g, nullptr, 0, &kp));
        cudaGraphNodeParams p = {}; p.type = cudaGraphNodeTypeConditional; p.conditional.handle = h; p.conditional.type = cudaGraphCondTypeWhile; p.conditional.size = 1; cudaGraphNode_t node;
#if CUDART_VERSION >= 13000
        OK(cudaGraphAddNode(&node, g, &first, nullptr, 1, &p));
#else
        OK(cudaGraphAddNode(&node, g, &first, 1, &p));
#endif
        cudaGraph_t inside = p.conditional.phGraph_out[0];
        OK(cudaStreamBeginCaptureToGraph(s, inside, nullptr, nullptr, 0, cudaStreamCaptureModeRelaxed)); for (int k = 0; k < body; ++k) work<<<4, 256, 0, s>>>(v, n); decide<<<1, 1, 0, s>>>(left, h); OK(cudaStreamEndCapture(s, &inside));
        a = std::chrono::steady_clock::now(); cudaGraphExec_t we; OK(cudaGraphInstantiate(&we, g, 0)); double make_while = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - a).count();
        double tf = clock(fe), tw = clock(we);
        printf("%2d kernels x %2d rounds: unrolled %8.1f us (%.2f a round), made in %8.1f us; while %8.1f us (%.2f a round), made in %7.1f us; while costs %+.2f us a round\n", body, rounds, tf, tf / rounds, make_flat, tw, tw / rounds, make_while, (tw - tf) / rounds);
    }
}
