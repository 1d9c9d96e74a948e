/*
 * Streams: their handles, and the order between a device's legacy default stream and its blocking streams.
 *
 * That order is CUDA's implicit one: work of the legacy default stream waits for all earlier work of the blocking
 * streams, and theirs for its. It becomes recordings and waits in the op stream, made only where there is work to wait
 * for: each stream counts the work that it was given, and remembers how much of the other side's it already waits for.
 */
#include "streams/stream.h"
#include "op_stream/emit.h"
#include "core/config.h"
#include "core/lock.h"
#include "cuda/types.h"
#include "threads/host.h"
#include "device/device.h"
#include "streams/capturing.h"
#include "core/run.h"
#include "threads/thread.h"
#include "streams/event.h"
#include "op_stream/segment.h"

#include <stdlib.h>

static struct {
    ph_stream *all,
        *retired; /* destroyed ones are kept for reuse and never freed, so that a stale handle is recognised */
    ph_stream *legacy[PH_MAX_DEVICES];
    uint32_t first_id, last_id; /* ids begin after the first */
} streams;
int ph_blocking_streams;

/* ---- handles ----------------------------------------------------------------------------------------------------- */

static void announce(ph_stream *stream) {
    struct ph_STREAM_CREATE record = {.stream = stream->id,
                                      .device = (uint32_t)stream->device + (stream->apart ? PH_DEVICE_APART : 0),
                                      .priority = stream->priority};
    ph_append(PH_KIND_STREAM_CREATE, ph_host_clock(), &record, sizeof record, NULL, 0);
}

/* Under the record lock. */
static ph_stream *make_one(int device, unsigned flags, int priority, bool legacy, bool apart) {
    ph_lock_needed(PH_LOCK_RECORDS);
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
        .apart = apart,
        .blocking = !legacy && !(flags & STREAM_NONBLOCKING),
        /* differs from `work` if the legacy default stream has been given work: this stream will wait for it */
        .legacy_seen = legacy || streams.legacy[device]->work == 0 ? 0 : UINT64_MAX,
        .next = streams.all,
    };
    if (streams.all) streams.all->before = stream;
    streams.all = stream;
    ph_blocking_streams += stream->blocking;
    if (ph_run.started) {
        ph_close_segments();
        announce(stream);
    }
    return stream;
}

static ph_stream *make(int device, unsigned flags, int priority, bool legacy) {
    return make_one(device, flags, priority, legacy, false);
}

int ph_streams_make_defaults(void) {
    bool made = true;
    ph_record_lock();
    for (int device = 0; device < ph_cfg.device_count && made; device++) {
        if (!streams.legacy[device]) streams.legacy[device] = make(device, 0, 0, true);
        made = streams.legacy[device] != NULL;
    }
    ph_record_unlock();
    return made ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

void ph_streams_number_from(uint32_t first) {
    for (ph_stream *stream = streams.all; stream; stream = stream->next) stream->id += first - streams.first_id;
    streams.last_id += first - streams.first_id;
    streams.first_id = first;
}

void ph_streams_announce(void) {
    ph_record_lock();
    for (uint32_t id = streams.first_id + 1; id <= streams.last_id;
         id++) /* the list has the newest first, but streams are announced by number */
        for (ph_stream *stream = streams.all; stream; stream = stream->next)
            if (stream->id == id) {
                announce(stream);
            }
    ph_record_unlock();
}

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

/* Under the record lock: later work of `behind` waits for all work that `ahead` has been given. */
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
    ph_context_use(device);
    ph_record_lock();
    *out = make(device, flags, clamped(priority), false);
    ph_record_unlock();
    return *out ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

int ph_stream_create_apart(int device, ph_stream **out) {
    ph_record_lock();
    *out = make_one(device, STREAM_NONBLOCKING, 0, false, true);
    ph_record_unlock();
    return *out ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

int ph_stream_destroy(ph_stream *stream) {
    if (stream->capture && !ph_capture_leave(stream)) return CUDA_CAPTURE_UNSUPPORTED;
    ph_record_lock();
    ph_close_segments();
    /* the legacy default stream's next work must still wait for what this stream has been given */
    if (ph_run.started && stream->blocking && stream->work != stream->seen_by_legacy)
        follow(streams.legacy[stream->device], stream);
    if (ph_run.started) {
        struct ph_STREAM_DESTROY record = {.stream = stream->id};
        ph_append(PH_KIND_STREAM_DESTROY, ph_host_clock(), &record, sizeof record, NULL, 0);
    }
    *(stream->before ? &stream->before->next : &streams.all) = stream->next;
    if (stream->next) stream->next->before = stream->before;
    ph_blocking_streams -= stream->blocking;
    stream->magic = 0;
    free(stream->segment.keys);
    stream->segment.keys = NULL;
    stream->next = streams.retired;
    streams.retired = stream;
    ph_record_unlock();
    return CUDA_OK;
}

/* ---- order with the legacy default stream ------------------------------------------------------------------------ */

/* Under the record lock: the legacy default stream waits for all work that its device's blocking streams have been
 * given.
 */
static void follow_blocking(ph_stream *legacy) {
    for (ph_stream *other = streams.all; other; other = other->next) {
        if (!other->blocking || other->device != legacy->device || other->work == other->seen_by_legacy) continue;
        follow(legacy, other);
        other->seen_by_legacy = other->work;
    }
}

void ph_order_with_blocking(ph_stream *stream) {
    if (!ph_run.started) return;
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

bool ph_device_was_used(int device) {
    bool used = false;
    ph_record_lock();
    for (const ph_stream *stream = streams.all; stream && !used; stream = stream->next)
        used = stream->device == device && !stream->apart && stream->work > 0;
    ph_record_unlock();
    return used;
}

bool ph_stream_was_used(const ph_stream *stream) {
    return stream->work > 0 || (stream->legacy && ph_blocking_streams > 0 && ph_device_was_used(stream->device));
}

uint32_t ph_stream_encompassed(const ph_stream *stream, uint32_t before) {
    if (LIKELY(!stream->legacy || ph_blocking_streams == 0) || !ph_run.started) return 0;
    uint32_t found = 0;
    ph_record_lock();
    for (const ph_stream *other = streams.all; other && !found; other = other->next)
        if (other->id < before && other->blocking && other->device == stream->device &&
            other->work != other->seen_by_legacy)
            found = other->id;
    ph_record_unlock();
    return found;
}
