/*
 * Programs that are compiled with a default stream per thread call these names. Their NULL stream is stream 2.
 */
#include "threads/host.h"
#include "cudart/cudart.h"
#include "kernels/kernel.h"
#include "copies/copy.h"

#define STREAM(handle) ((handle) ? (handle) : (void *)2)

extern int __cudaLaunchKernel(ph_kernel *, dim3, dim3, void **, size_t, void *);
extern int cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, void *);
extern int cudaLaunchKernelExC(const struct cudaLaunchConfig *, const void *, void **);
extern int cudaMemcpyAsync(void *, const void *, size_t, int, void *);
extern int cudaMemsetAsync(void *, int, size_t, void *);
extern int cudaStreamSynchronize(void *);
extern int cudaStreamQuery(void *);
extern int cudaStreamWaitEvent(void *, void *, unsigned);
extern int cudaStreamIsCapturing(void *, int *);
extern int cudaEventRecordWithFlags(void *, void *, unsigned);
extern int cudaLaunchHostFunc(void *, void (*)(void *), void *);
extern int cudaGraphLaunch(void *, void *);
extern int cudaStreamAddCallback(void *, void (*)(void *, int, void *), void *, unsigned);
extern int cudaStreamBeginCapture(void *, int);
extern int cudaStreamEndCapture(void *, void **);
extern int cudaMallocAsync(void **, size_t, void *);
extern int cudaFreeAsync(void *, void *), cudaMallocFromPoolAsync(void **, size_t, void *, void *);

PH_EXPORT int __cudaLaunchKernel_ptsz(ph_kernel *kernel, dim3 grid, dim3 block, void **args, size_t shared_nbytes,
                                      void *stream) {
    return __cudaLaunchKernel(kernel, grid, block, args, shared_nbytes, STREAM(stream));
}

PH_EXPORT int cudaLaunchKernel_ptsz(const void *function, dim3 grid, dim3 block, void **args, size_t shared_nbytes,
                                    void *stream) {
    return cudaLaunchKernel(function, grid, block, args, shared_nbytes, STREAM(stream));
}

PH_EXPORT int cudaLaunchKernelExC_ptsz(const struct cudaLaunchConfig *config, const void *function, void **args) {
    struct cudaLaunchConfig own = *config;
    own.stream = STREAM(own.stream);
    return cudaLaunchKernelExC(&own, function, args);
}

PH_EXPORT int cudaMemcpyAsync_ptsz(void *dst, const void *src, size_t nbytes, int kind, void *stream) {
    return cudaMemcpyAsync(dst, src, nbytes, kind, STREAM(stream));
}

/* Synchronous calls run in the thread's stream and wait as in the legacy default stream. */
PH_EXPORT int cudaMemcpy_ptds(void *dst, const void *src, size_t nbytes, int kind) {
    ph_host_call(PH_CALL_MEMCPY);
    return result(ph_copy(dst, src, nbytes, kind, ph_stream_of((void *)2), false));
}

PH_EXPORT int cudaMemsetAsync_ptsz(void *dst, int value, size_t nbytes, void *stream) {
    return cudaMemsetAsync(dst, value, nbytes, STREAM(stream));
}

PH_EXPORT int cudaMemset_ptds(void *dst, int value, size_t nbytes) {
    ph_host_call(PH_CALL_MEMSET);
    return result(ph_set(dst, value, nbytes, ph_stream_of((void *)2), false));
}
PH_EXPORT int cudaStreamSynchronize_ptsz(void *stream) { return cudaStreamSynchronize(STREAM(stream)); }
PH_EXPORT int cudaStreamQuery_ptsz(void *stream) { return cudaStreamQuery(STREAM(stream)); }
PH_EXPORT int cudaStreamIsCapturing_ptsz(void *stream, int *status) {
    return cudaStreamIsCapturing(STREAM(stream), status);
}

PH_EXPORT int cudaStreamWaitEvent_ptsz(void *stream, void *event, unsigned flags) {
    return cudaStreamWaitEvent(STREAM(stream), event, flags);
}

PH_EXPORT int cudaEventRecordWithFlags_ptsz(void *event, void *stream, unsigned flags) {
    return cudaEventRecordWithFlags(event, STREAM(stream), flags);
}
PH_EXPORT int cudaEventRecord_ptsz(void *event, void *stream) {
    return cudaEventRecordWithFlags(event, STREAM(stream), 0);
}

PH_EXPORT int cudaLaunchHostFunc_ptsz(void *stream, void (*function)(void *), void *arg) {
    return cudaLaunchHostFunc(STREAM(stream), function, arg);
}

PH_EXPORT int cudaStreamAddCallback_ptsz(void *stream, void (*function)(void *, int, void *), void *arg,
                                         unsigned flags) {
    return cudaStreamAddCallback(STREAM(stream), function, arg, flags);
}

PH_EXPORT int cudaStreamBeginCapture_ptsz(void *stream, int mode) {
    return cudaStreamBeginCapture(STREAM(stream), mode);
}
PH_EXPORT int cudaStreamEndCapture_ptsz(void *stream, void **graph) {
    return cudaStreamEndCapture(STREAM(stream), graph);
}
PH_EXPORT int cudaGraphLaunch_ptsz(void *exec, void *stream) { return cudaGraphLaunch(exec, STREAM(stream)); }
PH_EXPORT int cudaMallocAsync_ptsz(void **out, size_t nbytes, void *stream) {
    return cudaMallocAsync(out, nbytes, STREAM(stream));
}
PH_EXPORT int cudaMallocFromPoolAsync_ptsz(void **out, size_t nbytes, void *pool, void *stream) {
    return cudaMallocFromPoolAsync(out, nbytes, pool, STREAM(stream));
}
PH_EXPORT int cudaFreeAsync_ptsz(void *p, void *stream) { return cudaFreeAsync(p, STREAM(stream)); }
