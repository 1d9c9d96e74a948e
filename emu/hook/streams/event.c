/*
 * Events of streams. Each cudaEventRecord makes a new recording on its stream. So an event can be recorded again
 * without changing waits for its earlier recording. What was recorded before the rank's start counts as completed.
 */
#include "streams/event.h"
#include "op_stream/clock.h"
#include "op_stream/emit.h"
#include "op_stream/trace.h"
#include "cuda/types.h"
#include "threads/host.h"
#include "device/device.h"
#include "streams/capturing.h"
#include "core/lock.h"
#include "core/run.h"
#include "threads/thread.h"
#include "op_stream/segment.h"
#include "streams/wait.h"
#include "streams/watch.h"
#include "threads/onlooker.h"

#include <stdlib.h>
#include <string.h>

enum { STREAMS = 64 };

static struct {
    uint64_t last_recording;
    ph_event *retired;
    /* By the stream's number modulo STREAMS: recordings on it before that position are known to be complete. */
    struct {
        uint32_t stream;
        uint64_t before;
    } complete[STREAMS];
} events; /* under the record lock */

int ph_event_create(unsigned flags, ph_event **out) {
    *out = NULL;
    int status = ph_device_usable();
    if (status) return status;
    ph_record_lock();
    ph_event *event = events.retired;
    if (event) events.retired = event->next_retired;
    ph_record_unlock();
    if (!event && !(event = malloc(sizeof *event))) return CUDA_OUT_OF_MEMORY;
    *event = (ph_event){.magic = PH_EVENT_MAGIC, .flags = flags, .device = ph_self()->device};
    *out = event;
    return CUDA_OK;
}

int ph_event_destroy(ph_event *event) {
    /* Out of band: the watchdog destroys events at times that depend on this machine, which must change neither clocks
     * nor segments. */
    struct ph_RECORDING_DROP record = {.recording = event->recording};
    if (event->recording && ph_run.started)
        ph_emit_out_of_band(PH_KIND_RECORDING_DROP, &record, sizeof record, NULL, 0);
    ph_watch_forget(event);
    ph_record_lock();
    event->magic = 0;
    event->next_retired = events.retired; /* kept for reuse and never freed, so that a stale handle is recognised */
    events.retired = event;
    ph_record_unlock();
    return CUDA_OK;
}

void ph_recordings_number_from(uint64_t first) {
    events.last_recording = first;
    memset(events.complete, 0, sizeof events.complete);
}

uint64_t ph_last_recording(void) { return events.last_recording; }

uint64_t ph_record_on(ph_stream *stream, uint64_t drop) {
    ph_lock_needed(PH_LOCK_RECORDS);
    ph_close_segments();
    struct ph_EVENT_RECORD record = {.stream = stream->id, .recording = ++events.last_recording, .drop = drop};
    ph_append(PH_KIND_EVENT_RECORD, ph_host_clock(), &record, sizeof record, NULL, 0);
    return record.recording;
}

void ph_recording_wait(ph_stream *stream, uint64_t recording) {
    ph_close_segments();
    struct ph_STREAM_WAIT record = {.stream = stream->id, .recording = recording};
    ph_append(PH_KIND_STREAM_WAIT, ph_host_clock(), &record, sizeof record, NULL, 0);
}

void ph_recording_drop(uint64_t recording) {
    ph_close_segments();
    struct ph_RECORDING_DROP record = {.recording = recording};
    ph_append(PH_KIND_RECORDING_DROP, ph_host_clock(), &record, sizeof record, NULL, 0);
}

int ph_event_record(ph_event *event, ph_stream *stream) {
    int status = ph_stream_usable(stream);
    if (status) return status;
    if (UNLIKELY(stream->capture != NULL)) {
        ph_capture_functions.event(stream, event);
        return CUDA_OK;
    }
    if (event->device != stream->device) return CUDA_INVALID_HANDLE;
    ph_record_lock();
    if (ph_run.started) {
        ph_order_default(stream);
        event->recording = ph_record_on(stream, event->recording);
        event->position = ph_position();
    }
    event->recorded = true;
    event->capture = NULL;
    event->stream_id = stream->id;
    event->traced = ph_trace_recorded(stream->id);
    event->host_ns = ph_host_clock();
    event->clock_ns = ph_clock_estimate();
    ph_watch_recorded(event, stream);
    ph_record_unlock();
    return CUDA_OK;
}

int ph_stream_wait_event(ph_stream *stream, ph_event *event) {
    int status = ph_stream_usable(stream);
    if (status) return status;
    if (UNLIKELY(stream->capture || event->capture)) return ph_capture_functions.wait(stream, event);
    if (!event->recording) return CUDA_OK; /* never recorded: nothing to wait for */
    ph_watch_waited(event);
    ph_record_lock();
    if (ph_run.started) {
        bool waits = event->stream_id != stream->id;
        if (waits && UNLIKELY(ph_tracing))
            ph_trace_sync(PH_TRACE_STREAM_WAIT, stream->id, event->recording, event->traced);
        ph_order_default(stream); /* also if the event is the stream's own, which needs no wait */
        if (waits) ph_recording_wait(stream, event->recording);
    }
    ph_record_unlock();
    return CUDA_OK;
}

/* May the host query the event, or wait for it? */
static int observable(ph_event *event) {
    if (UNLIKELY(event->capture != NULL)) return ph_captured_event(event, true);
    int status = ph_device_usable();
    return status ? status : ph_uncapturable();
}

/* Answers a thread that does not ask virtual time; CUDA_OK and `asks`: it does. */
static int seen(ph_event *event, bool *asks) {
    *asks = false;
    int status = observable(event);
    if (status || !event->recording) return status;
    if (ph_thread_is_watcher()) return ph_watch_done(event) ? CUDA_OK : CUDA_NOT_READY;
    if (UNLIKELY(ph_looks_on())) return ph_event_seems_done(event) ? CUDA_OK : CUDA_NOT_READY;
    *asks = true;
    return CUDA_OK;
}

/*
 * What is complete on a stream stays complete, and all that the stream was given before it. So one answer holds for
 * several events: PyTorch's allocator of pinned memory asks for each block that it may give away again, in their order.
 */
static bool known_complete(const ph_event *event) {
    ph_record_lock();
    size_t at = event->stream_id % STREAMS;
    bool known = events.complete[at].stream == event->stream_id && event->position < events.complete[at].before;
    ph_record_unlock();
    return known && !ph_run.mortal; /* a GPU that has died tells of nothing */
}

static void note_complete(uint32_t stream, uint64_t position) {
    ph_record_lock();
    size_t at = stream % STREAMS;
    if (events.complete[at].stream != stream || events.complete[at].before <= position) {
        events.complete[at].stream = stream;
        events.complete[at].before = position + 1;
    }
    ph_record_unlock();
}

int ph_event_query(ph_event *event) {
    bool asks;
    int status = seen(event, &asks);
    if (!asks) return status;
    if (known_complete(event)) return ph_found_done();
    uint32_t stream = event->stream_id;
    uint64_t position = event->position; /* another thread may record it again meanwhile */
    status = ph_query(PH_SCOPE_EVENT, 0, event->recording);
    if (status == CUDA_OK && ph_run.started && !ph_run.finished) note_complete(stream, position);
    return status;
}

int ph_event_query_late(ph_event *event) {
    bool asks;
    uint64_t worked_ns = ph_host_clock() - event->host_ns;
    int status = seen(event, &asks);
    if (!asks) return status;
    return ph_query_since(event->recording, worked_ns - worked_ns / 10 * PH_FASTEST_HOST_TENTHS);
}

int ph_event_synchronize(ph_event *event) {
    int status = observable(event);
    if (status || !event->recording) return status;
    ph_recording_synchronize(event);
    return CUDA_OK;
}

int ph_event_elapsed(float *ms, ph_event *start, ph_event *end) {
    *ms = 0;
    if (!start->recorded || !end->recorded || ((start->flags | end->flags) & EVENT_DISABLE_TIMING))
        return CUDA_INVALID_HANDLE;
    if (start->device != end->device) return CUDA_INVALID_HANDLE;
    if (start->capture || end->capture) return ph_captured_event(start->capture ? start : end, false);
    int status = ph_device_usable();
    if (status || ph_thread_is_watcher()) return status;
    if (!ph_run.started || ph_run.finished || !start->recording || !end->recording) {
        *ms = (float)((double)(int64_t)(end->host_ns - start->host_ns) / 1e6);
        return CUDA_OK;
    }
    struct ph_ELAPSED question = {.start_recording = start->recording, .end_recording = end->recording};
    struct ph_ELAPSED_NS answer = {0};
    ph_ask(PH_KIND_ELAPSED, &question, sizeof question, NULL, 0, &answer, sizeof answer);
    if (!answer.ready) return CUDA_NOT_READY;
    *ms = (float)((double)answer.elapsed_ns / 1e6);
    return CUDA_OK;
}
