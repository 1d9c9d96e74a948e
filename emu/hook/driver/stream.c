/*
 * Driver: streams, events, capture.
 */
#include "threads/host.h"
#include "driver/driver.h"
#include "graphs/capture.h"
#include "streams/wait.h"
#include "streams/watch.h"

PH_EXPORT int cuStreamCreateWithPriority(void **out, unsigned flags, int priority) {
    ph_host_call(PH_CALL_QUERY);
    return ph_stream_create(ph_self()->device, flags & STREAM_NONBLOCKING, priority, (ph_stream **)out);
}
PH_EXPORT int cuStreamCreate(void **out, unsigned flags) { return cuStreamCreateWithPriority(out, flags, 0); }

PH_EXPORT int cuStreamDestroy_v2(void *handle) {
    ph_stream *stream = ph_stream_of(handle);
    return stream && (uintptr_t)handle > 2 ? ph_stream_destroy(stream) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuStreamSynchronize(void *handle) {
    ph_host_call(PH_CALL_SYNC);
    ph_stream *stream = ph_stream_of(handle);
    return stream ? ph_stream_synchronize(stream) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuStreamQuery(void *handle) {
    ph_host_call(PH_CALL_QUERY);
    ph_stream *stream = ph_stream_of(handle);
    return stream ? ph_stream_query(stream) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuStreamWaitEvent(void *handle, void *event_handle, unsigned flags) {
    ph_host_call(PH_CALL_EVENT);
    ph_stream *stream = ph_stream_of(handle);
    ph_event *event = event_of(event_handle);
    if (!stream || !event) return CUDA_INVALID_HANDLE;
    return ph_stream_wait_event_flags(stream, event, flags);
}

PH_EXPORT int cuStreamGetPriority(void *handle, int *priority) {
    ph_stream *stream = ph_stream_of(handle);
    *priority = stream ? stream->priority : 0;
    return stream ? CUDA_OK : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuStreamGetFlags(void *handle, unsigned *flags) {
    ph_stream *stream = ph_stream_of(handle);
    *flags = stream ? stream->flags : 0;
    return stream ? CUDA_OK : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuStreamGetId(void *handle, unsigned long long *id) {
    ph_stream *stream = ph_stream_of(handle);
    *id = stream ? stream->id : 0;
    return stream ? CUDA_OK : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuStreamGetCtx(void *handle, void **context) {
    ph_stream *stream = ph_stream_of(handle);
    *context = NULL;
    return stream ? cuDevicePrimaryCtxRetain(context, stream->device) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuStreamIsCapturing(void *handle, int *status) {
    return ph_capture_info(handle, status, NULL, NULL, NULL, NULL, NULL);
}

PH_EXPORT int cuStreamGetCaptureInfo_v2(void *handle, int *status, unsigned long long *id, void **graph,
                                        void ***dependencies, size_t *n) {
    return ph_capture_info(handle, status, id, graph, dependencies, NULL, n);
}

PH_EXPORT int cuStreamBeginCapture_v2(void *handle, int mode) {
    ph_stream *stream = ph_stream_of(handle);
    return stream ? ph_capture_begin(stream, mode) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuStreamEndCapture(void *handle, void **graph) {
    *graph = NULL;
    ph_stream *stream = ph_stream_of(handle);
    return stream ? ph_capture_end(stream, (ph_graph **)graph) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuThreadExchangeStreamCaptureMode(int *mode) {
    ph_watch_step();
    *mode = ph_thread_exchange_capture_mode(*mode);
    return CUDA_OK;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

PH_EXPORT int cuEventCreate(void **out, unsigned flags) { return ph_event_create(flags, (ph_event **)out); }

PH_EXPORT int cuEventDestroy_v2(void *handle) {
    ph_event *event = event_of(handle);
    return event ? ph_event_destroy(event) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuEventRecordWithFlags(void *handle, void *stream_handle, unsigned flags) {
    ph_host_call(PH_CALL_EVENT);
    ph_event *event = event_of(handle);
    ph_stream *stream = ph_stream_of(stream_handle);
    if (!event || !stream) return CUDA_INVALID_HANDLE;
    return ph_event_record_flags(event, stream, flags);
}
PH_EXPORT int cuEventRecord(void *handle, void *stream) { return cuEventRecordWithFlags(handle, stream, 0); }

PH_EXPORT int cuEventQuery(void *handle) {
    ph_host_call(PH_CALL_QUERY);
    ph_event *event = event_of(handle);
    return event ? ph_event_query(event) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuEventSynchronize(void *handle) {
    ph_host_call(PH_CALL_SYNC);
    ph_event *event = event_of(handle);
    return event ? ph_event_synchronize(event) : CUDA_INVALID_HANDLE;
}

PH_EXPORT int cuEventElapsedTime_v2(float *ms, void *start, void *end) {
    *ms = 0;
    return event_of(start) && event_of(end) ? ph_event_elapsed(ms, event_of(start), event_of(end))
                                            : CUDA_INVALID_HANDLE;
}
PH_EXPORT int cuEventElapsedTime(float *ms, void *start, void *end) { return cuEventElapsedTime_v2(ms, start, end); }
