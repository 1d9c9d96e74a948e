/*
 * Streams, and the op stream: launches of one stream fold into its open segment until something else is emitted.
 *
 * Before any record is appended all open segments are, in order of their first launch, so that instants never decrease.
 * A segment also ends after 256 launches. The fold is the one that records.def states.
 */
#include "streams/stream.h"
#include "channel/channel.h"
#include "core/counters.h"
#include "core/cuda_types.h"
#include "core/host.h"
#include "data/data.h"
#include "process/process.h"
#include "process/thread.h"
#include "streams/capture.h"
#include "streams/host_function.h"

#include <stdlib.h>

enum { SEGMENT_LAUNCHES = 256 };

static struct {
    ph_stream *all, *retired;          /* destroyed ones are reused, never freed: a stale handle is recognised */
    ph_stream *first_open, *last_open; /* open segments, in order of their first launch */
    ph_stream *legacy[PH_MAX_DEVICES];
    uint32_t last_id;
    int nblocking; /* blocking streams that are not legacy default streams */
} streams;

/* ---- handles ------------------------------------------------------------------------------------------------------
 */

static void announce(ph_stream *stream) {
    struct ph_STREAM_CREATE record = {
        .stream = stream->id, .device = (uint32_t)stream->device, .priority = stream->priority};
    ph_append(PH_KIND_STREAM_CREATE, ph_host_clock(), &record, sizeof record, NULL, 0);
}

/* Under the record lock. */
static ph_stream *make(int device, unsigned flags, int priority, bool legacy) {
    ph_stream *stream = streams.retired;
    if (stream)
        streams.retired = stream->next;
    else if (!(stream = malloc(sizeof *stream)))
        return NULL;
    *stream = (ph_stream){
        .magic = PH_STREAM_MAGIC,
        .id = ++streams.last_id,
        .device = device,
        .priority = priority,
        .flags = flags,
        .legacy = legacy,
        .blocking = !legacy && !(flags & STREAM_NONBLOCKING),
        /* waits for what the legacy default stream was given before this one was made, if anything */
        .legacy_seen = legacy || streams.legacy[device]->work == 0 ? 0 : UINT64_MAX,
        .next = streams.all,
    };
    streams.all = stream;
    streams.nblocking += stream->blocking;
    if (ph_run.started) {
        ph_close_segments();
        announce(stream);
    }
    return stream;
}

int ph_streams_make_defaults(void) {
    for (int device = 0; device < ph_cfg.device_count; device++)
        if (!streams.legacy[device] && !(streams.legacy[device] = make(device, 0, 0, true))) return CUDA_OUT_OF_MEMORY;
    return CUDA_OK;
}

void ph_streams_announce(void) {
    ph_record_lock();
    for (uint32_t id = 1; id <= streams.last_id; id++) /* the list is newest first, ids go out in order */
        for (ph_stream *stream = streams.all; stream; stream = stream->next)
            if (stream->id == id) {
                stream->launches = 0;
                announce(stream);
            }
    streams.first_open = streams.last_open = NULL;
    ph_record_unlock();
}

ph_stream *ph_default_stream(int device) { return streams.legacy[device]; }

static ph_stream *per_thread_stream(ph_thread *thread) {
    ph_stream **slot = &thread->default_streams[thread->device];
    if (!*slot) {
        ph_record_lock();
        *slot = make(thread->device, 0, 0, false);
        ph_record_unlock();
    }
    return *slot;
}

ph_stream *ph_stream_of(void *handle) {
    if ((uintptr_t)handle > 2) {
        ph_stream *stream = handle;
        return LIKELY(stream->magic == PH_STREAM_MAGIC) ? stream : NULL;
    }
    ph_thread *thread = ph_self();
    return handle == (void *)2 ? per_thread_stream(thread) : streams.legacy[thread->device];
}

uint32_t ph_stream_id(const ph_stream *stream) { return stream->id; }
int ph_stream_device(const ph_stream *stream) { return stream->device; }
bool ph_stream_capturing(const ph_stream *stream) { return stream->capture != NULL; }

/* Under the record lock: `behind` goes on when all that `ahead` has been given is done. */
static void follow(ph_stream *behind, ph_stream *ahead) {
    uint64_t recording = ph_record_on(ahead, 0);
    ph_recording_wait(behind, recording);
    ph_recording_drop(recording);
}

static int clamped(int priority) {
    if (priority < PH_GREATEST_PRIORITY) return PH_GREATEST_PRIORITY;
    return priority > PH_LEAST_PRIORITY ? PH_LEAST_PRIORITY : priority;
}

int ph_stream_create(int device, unsigned flags, int priority, ph_stream **out) {
    *out = NULL;
    int status = ph_device_usable();
    if (status) return status;
    ph_record_lock();
    ph_context_use(device);
    *out = make(device, flags, clamped(priority), false);
    ph_record_unlock();
    return *out ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

int ph_stream_destroy(ph_stream *stream) {
    if (stream->capture && !ph_capture_leave(stream)) return CUDA_CAPTURE_UNSUPPORTED;
    ph_record_lock();
    ph_close_segments();
    /* what it still has to do goes before the legacy default stream's next action */
    if (ph_run.started && stream->blocking && stream->work != stream->seen_by_legacy)
        follow(streams.legacy[stream->device], stream);
    if (ph_run.started) {
        struct ph_STREAM_DESTROY record = {.stream = stream->id};
        ph_append(PH_KIND_STREAM_DESTROY, ph_host_clock(), &record, sizeof record, NULL, 0);
    }
    ph_stream **at = &streams.all;
    while (*at != stream) at = &(*at)->next;
    *at = stream->next;
    streams.nblocking -= stream->blocking;
    stream->magic = 0;
    stream->next = streams.retired;
    streams.retired = stream;
    ph_record_unlock();
    return CUDA_OK;
}

/* ---- segments -------------------------------------------------------------------------------------------------------
 */

bool ph_segments_open(void) { return streams.first_open != NULL; }
uint64_t ph_launch_count(void) { return ph_counts.launches; }

void ph_close_segments(void) {
    for (ph_stream *stream = streams.first_open; stream; stream = stream->next_open) {
        struct ph_SEGMENT record = {.stream = stream->id,
                                    .launches = stream->queued,
                                    .solo_ns = stream->solo_ns,
                                    .contended_ns = stream->contended_ns,
                                    .tail_ns = stream->tail_ns};
        ph_append(PH_KIND_SEGMENT, stream->first_ns, &record, sizeof record, NULL, 0);
        stream->launches = 0;
    }
    streams.first_open = streams.last_open = NULL;
}

static void open_segment(ph_stream *stream, uint64_t now) {
    stream->first_ns = now;
    stream->solo_ns = stream->contended_ns = stream->tail_ns = 0;
    stream->queued = 0;
    stream->next_open = NULL;
    if (streams.last_open)
        streams.last_open->next_open = stream;
    else
        streams.first_open = stream;
    streams.last_open = stream;
    ph_channel_wake_for_segments();
}

static void fold(ph_stream *stream, const ph_cost *cost, bool queued) {
    uint64_t now = ph_host_clock();
    if (stream->launches == 0) open_segment(stream, now);
    /* tail = max over launches i of (h_i - h_1 + what follows from i on): the earlier ones grow by this launch */
    uint64_t begins_here = now - stream->first_ns;
    stream->tail_ns = (stream->tail_ns > begins_here ? stream->tail_ns : begins_here) + cost->solo_ns;
    stream->solo_ns += cost->solo_ns;
    stream->contended_ns += cost->contended_ns;
    stream->queued += queued;
    if (++stream->launches == SEGMENT_LAUNCHES) ph_close_segments();
}

/* Under the record lock: the legacy default stream waits for what its device's blocking streams have been given. */
static void follow_blocking(ph_stream *legacy) {
    for (ph_stream *other = streams.all; other; other = other->next) {
        if (!other->blocking || other->device != legacy->device || other->work == other->seen_by_legacy) continue;
        follow(legacy, other);
        other->seen_by_legacy = other->work;
    }
}

/* Legacy default stream: its work waits for all earlier work of the device's blocking streams, and theirs for its. */
void ph_order_default(ph_stream *stream) {
    stream->work++;
    if (LIKELY(streams.nblocking == 0) || !ph_run.started) return;
    ph_stream *legacy = streams.legacy[stream->device];
    if (stream->blocking && legacy->work != stream->legacy_seen) {
        follow(stream, legacy);
        stream->legacy_seen = legacy->work;
    } else if (stream->legacy)
        follow_blocking(stream);
}

void ph_stream_touch(ph_stream *stream) {
    ph_record_lock();
    ph_order_default(stream);
    ph_record_unlock();
}

void ph_launch(ph_stream *stream, const ph_cost *cost) {
    if (UNLIKELY(stream->capture != NULL) && ph_capture_launch(stream, cost)) return;
    ph_launch_now(stream, cost, true);
}

void ph_launch_now(ph_stream *stream, const ph_cost *cost, bool queued) {
    ph_record_lock();
    ph_counts.launches++;
    ph_counts.solo_ns[cost->source & 3] += cost->solo_ns;
    ph_counts.flops += cost->flops;
    if (LIKELY(ph_run.started)) {
        ph_order_default(stream);
        fold(stream, cost, queued);
    }
    ph_record_unlock();
}

void ph_stream_occupy(ph_stream *stream, uint64_t for_ns) {
    if (!ph_run.started) return;
    const ph_cost cost = {.solo_ns = for_ns, .contended_ns = for_ns};
    ph_record_lock();
    ph_order_default(stream);
    fold(stream, &cost, false);
    ph_record_unlock();
}

/* ---- waiting
 * ---------------------------------------------------------------------------------------------------------- */

static void wait_record(uint32_t scope, uint32_t stream, uint64_t recording) {
    if (ph_run.started && !ph_thread_is_watcher()) {
        struct ph_HOST_WAIT record = {.scope = scope, .stream = stream, .recording = recording};
        ph_emit_here(PH_KIND_HOST_WAIT, &record, sizeof record, NULL, 0);
    }
    ph_data_wait_host();
    ph_host_functions_wait();
}

/* Whoever looks at the legacy default stream, or waits for it, does so with the device's blocking streams as well; but
 * that orders nothing that comes later. The last of them that was made before number `before` and has work that the
 * legacy stream does not wait for; 0: none. */
static uint32_t encompassed(const ph_stream *stream, uint32_t before) {
    if (LIKELY(!stream->legacy || streams.nblocking == 0) || !ph_run.started) return 0;
    uint32_t found = 0;
    ph_record_lock();
    for (const ph_stream *other = streams.all; other && !found; other = other->next)
        if (other->id < before && other->blocking && other->device == stream->device &&
            other->work != other->seen_by_legacy)
            found = other->id;
    ph_record_unlock();
    return found;
}

/* May the host look at the stream, or wait for it? */
static int observable(ph_stream *stream) {
    int status = ph_stream_usable(stream);
    if (LIKELY(!ph_captured_streams) || status) return status;
    if (!stream->capture) return ph_uncapturable();
    ph_capture_invalidate(stream);
    return CUDA_CAPTURE_UNSUPPORTED;
}

void ph_stream_wait(ph_stream *stream) {
    for (uint32_t id = UINT32_MAX; (id = encompassed(stream, id));) wait_record(PH_SCOPE_STREAM, id, 0);
    wait_record(PH_SCOPE_STREAM, stream->id, 0);
}

int ph_stream_synchronize(ph_stream *stream) {
    int status = observable(stream);
    if (status == CUDA_OK) ph_stream_wait(stream);
    return status;
}

void ph_device_wait(int device) { wait_record(PH_SCOPE_DEVICE, (uint32_t)device, 0); }

int ph_device_synchronize(int device) {
    int status = ph_device_usable();
    if (status == CUDA_OK && UNLIKELY(ph_captured_streams)) status = ph_capture_encompassed(device);
    if (status == CUDA_OK) ph_device_wait(device);
    return status;
}

void ph_wait_recording(uint64_t recording) { wait_record(PH_SCOPE_EVENT, 0, recording); }

int ph_query(uint32_t scope, uint32_t stream, uint64_t recording) {
    if (ph_thread_is_watcher()) return CUDA_OK;
    if (ph_run.started && !ph_run.finished) {
        struct ph_QUERY question = {.recording = recording, .scope = scope, .stream = stream};
        struct ph_DONE answer = {0};
        ph_ask(PH_KIND_QUERY, &question, sizeof question, NULL, 0, &answer, sizeof answer);
        if (!answer.done) return CUDA_NOT_READY;
        ph_data_wait_host();
        ph_host_functions_wait();
    }
    return CUDA_OK;
}

int ph_stream_query(ph_stream *stream) {
    int status = observable(stream);
    for (uint32_t id = UINT32_MAX; status == CUDA_OK && (id = encompassed(stream, id));)
        status = ph_query(PH_SCOPE_STREAM, id, 0);
    return status ? status : ph_query(PH_SCOPE_STREAM, stream->id, 0);
}
