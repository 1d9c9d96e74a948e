/*
 * Runtime: streams, events, host functions.
 */
#include "core/alloc.h"
#include "threads/host.h"
#include "cudart/cudart.h"
#include "graphs/capture.h"
#include "op_stream/history.h"
#include "streams/host_function.h"
#include "streams/wait.h"

#include <stdlib.h>

static int create(void **out, unsigned flags, int priority) {
    ph_host_call(PH_CALL_QUERY);
    if (flags & ~(unsigned)STREAM_NONBLOCKING) {
        *out = NULL;
        return result(CUDA_INVALID_VALUE);
    }
    return result(ph_stream_create(ph_self()->device, flags, priority, (ph_stream **)out));
}

PH_EXPORT int cudaStreamCreate(void **out) { return create(out, 0, 0); }
PH_EXPORT int cudaStreamCreateWithFlags(void **out, unsigned flags) { return create(out, flags, 0); }
PH_EXPORT int cudaStreamCreateWithPriority(void **out, unsigned flags, int priority) {
    return create(out, flags, priority);
}

PH_EXPORT int cudaStreamDestroy(void *handle) {
    ph_host_call(PH_CALL_QUERY);
    ph_stream *stream = ph_stream_of(handle);
    return result(stream && (uintptr_t)handle > 2 ? ph_stream_destroy(stream) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamGetPriority(void *handle, int *priority) {
    ph_stream *stream = ph_stream_of(handle);
    *priority = stream ? stream->priority : 0;
    return result(stream ? CUDA_OK : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamGetFlags(void *handle, unsigned *flags) {
    ph_stream *stream = ph_stream_of(handle);
    *flags = stream ? stream->flags : 0;
    return result(stream ? CUDA_OK : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamGetId(void *handle, unsigned long long *id) {
    ph_stream *stream = ph_stream_of(handle);
    *id = stream ? stream->id : 0;
    return result(stream ? CUDA_OK : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamGetDevice(void *handle, int *device) {
    ph_stream *stream = ph_stream_of(handle);
    *device = stream ? stream->device : 0;
    return result(stream ? CUDA_OK : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamSynchronize(void *handle) {
    ph_host_call(PH_CALL_SYNC);
    ph_stream *stream = ph_stream_of(handle);
    return result(stream ? ph_stream_synchronize(stream) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamQuery(void *handle) {
    ph_host_call(PH_CALL_QUERY);
    ph_stream *stream = ph_stream_of(handle);
    return result(stream ? ph_stream_query(stream) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamWaitEvent(void *handle, void *event_handle, unsigned flags) {
    ph_host_call(PH_CALL_EVENT);
    ph_stream *stream = ph_stream_of(handle);
    ph_event *event = event_of(event_handle);
    if (!stream || !event) return result(CUDA_INVALID_HANDLE);
    return result(ph_stream_wait_event_flags(stream, event, flags));
}

/* ---- host functions ---------------------------------------------------------------------------------------------- */

PH_EXPORT int cudaLaunchHostFunc(void *handle, void (*function)(void *), void *arg) {
    ph_host_call(PH_CALL_LAUNCH);
    ph_stream *stream = ph_stream_of(handle);
    if (!stream || !function) return result(stream ? CUDA_INVALID_VALUE : CUDA_INVALID_HANDLE);
    return result(ph_host_function_launch(stream, function, arg));
}

typedef struct stream_callback {
    void (*function)(void *stream, int status, void *arg);
    void *stream, *arg;
} stream_callback;

static void call_back(void *arg) {
    stream_callback *callback = arg;
    callback->function(callback->stream, CUDA_OK, callback->arg);
    free(callback);
}

PH_EXPORT int cudaStreamAddCallback(void *handle, void (*function)(void *, int, void *), void *arg, unsigned flags) {
    ph_host_call(PH_CALL_LAUNCH);
    ph_stream *stream = ph_stream_of(handle);
    if (!stream || !function || flags) return result(stream ? CUDA_INVALID_VALUE : CUDA_INVALID_HANDLE);
    int status = ph_stream_usable(stream);
    if (status) return result(status);
    if (ph_stream_capturing(stream)) {
        ph_capture_invalidate(stream);
        return result(CUDA_CAPTURE_UNSUPPORTED);
    }
    stream_callback *callback = ph_allocate(sizeof *callback);
    *callback = (stream_callback){function, handle, arg};
    ph_host_function(stream, call_back, callback);
    return CUDA_OK;
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* Creating and destroying events costs no host time, because how often PyTorch does so depends on its cache of events,
 * which the watchdog fills in real time. */
PH_EXPORT int cudaEventCreateWithFlags(void **out, unsigned flags) {
    return result(ph_event_create(flags, (ph_event **)out));
}

PH_EXPORT int cudaEventCreate(void **out) { return cudaEventCreateWithFlags(out, 0); }

PH_EXPORT int cudaEventDestroy(void *handle) {
    ph_event *event = event_of(handle);
    return result(event ? ph_event_destroy(event) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaEventRecordWithFlags(void *handle, void *stream_handle, unsigned flags) {
    ph_host_call(PH_CALL_EVENT);
    ph_event *event = event_of(handle);
    ph_stream *stream = ph_stream_of(stream_handle);
    if (!event || !stream) return result(CUDA_INVALID_HANDLE);
    return result(ph_event_record_flags(event, stream, flags));
}

PH_EXPORT int cudaEventRecord(void *handle, void *stream) { return cudaEventRecordWithFlags(handle, stream, 0); }

/* PyTorch's own C++ code asks: its allocator whether memory can be used again, its process groups whether work is done.
 * How often depends on the answers, which differ between ranks that do the same: so it takes no host time. */
PH_EXPORT int cudaEventQuery(void *handle) {
    if (!ph_history_is_torchs(__builtin_return_address(0))) ph_host_call(PH_CALL_QUERY);
    ph_event *event = event_of(handle);
    if (!event) return result(CUDA_INVALID_HANDLE);
    bool late = ph_is_allocator(__builtin_return_address(0));
    return result(late ? ph_event_query_late(event) : ph_event_query(event));
}

PH_EXPORT int cudaEventSynchronize(void *handle) {
    ph_host_call(PH_CALL_SYNC);
    ph_event *event = event_of(handle);
    return result(event ? ph_event_synchronize(event) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaEventElapsedTime(float *ms, void *start, void *end) {
    ph_host_call(PH_CALL_QUERY);
    *ms = 0;
    return result(event_of(start) && event_of(end) ? ph_event_elapsed(ms, start, end) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaEventElapsedTime_v2(float *ms, void *start, void *end) {
    return cudaEventElapsedTime(ms, start, end);
}
