// CUDA's runtime functions for graphs.
#include <stdint.h>

#include "cuda_api.h"
#include "runtime.h"
#include "stream.h"

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, int mode) {
    if ((uintptr_t)stream <= 2) return runtime_fail(cudaErrorStreamCaptureUnsupported);
    return stream_begin_capture(stream, mode) ? cudaSuccess : runtime_fail(cudaErrorIllegalState);
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *graph) {
    if ((uintptr_t)stream <= 2) return runtime_fail(cudaErrorIllegalState);
    int error = stream_end_capture(stream, graph);
    return error ? runtime_fail((cudaError_t)error) : cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t stream, int *status) {
    *status = stream_capture_status(stream_of(stream));
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *made, cudaGraph_t graph,
                                 unsigned long long flags) {
    (void)flags;
    if (!graph) return runtime_fail(cudaErrorInvalidValue);
    *made = graph_make();
    graph_append(*made, graph);
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *made, cudaGraph_t graph,
                                          unsigned long long flags) {
    return cudaGraphInstantiate(made, graph, flags);
}
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t made, cudaGraph_t graph, void *result) {
    (void)result;
    if (!made || !graph) return runtime_fail(cudaErrorInvalidValue);
    if (!graph_assign(made, graph)) return runtime_fail(cudaErrorGraphExecUpdateFailure);
    return cudaSuccess;
}
cudaError_t cudaGraphCreate(cudaGraph_t *graph, unsigned flags) {
    (void)flags;
    *graph = graph_make();
    return cudaSuccess;
}
cudaError_t cudaGraphAddChildGraphNode(void **node, cudaGraph_t graph, const void *dependencies,
                                       size_t count, cudaGraph_t child) {
    (void)dependencies, (void)count;
    if (!graph || !child) return runtime_fail(cudaErrorInvalidValue);
    graph_append(graph, child);
    *node = graph;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t graph, cudaStream_t stream) {
    if (!graph) return runtime_fail(cudaErrorInvalidValue);
    graph_launch(graph, stream_of(stream));
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph) {
    if (graph) graph_release(graph);
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) { return cudaGraphExecDestroy(graph); }
