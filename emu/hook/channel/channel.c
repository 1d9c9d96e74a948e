/*
 * Records and questions enter the channel here: they are appended to the batch that gathers, stamped with the host time
 * since the previous record.
 */
#include "channel/channel.h"
#include "channel/internal.h"
#include "core/alloc.h"
#include "core/host.h"
#include "core/warn.h"
#include "process/python.h"
#include "process/sites.h"
#include "streams/segment.h"
#include "trace/trace.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

struct ph_channel ph_channel = {
    .records = PTHREAD_MUTEX_INITIALIZER, .send = PTHREAD_MUTEX_INITIALIZER, .fd = -1, .wake = -1};

void ph_record_lock(void) { pthread_mutex_lock(&ph_channel.records); }

void ph_record_unlock(void) {
    size_t gathered = ph_channel.gathering.n;
    pthread_mutex_unlock(&ph_channel.records);
    if (UNLIKELY(gathered >= PH_BATCH_NBYTES)) ph_send_if_full(gathered);
}

/* ---- the batch --------------------------------------------------------------------------------------------------- */

unsigned char *ph_buffer_room(ph_buffer *buffer, size_t nbytes) {
    if (buffer->n + nbytes > buffer->capacity) {
        size_t capacity = buffer->capacity ? buffer->capacity : 2 * PH_BATCH_NBYTES;
        while (capacity < buffer->n + nbytes) capacity *= 2;
        buffer->bytes = ph_reallocate(buffer->bytes, capacity);
        buffer->capacity = capacity;
    }
    return buffer->bytes + buffer->n;
}

/* What other ranks wait for, and what may therefore follow BYE. */
static bool is_promised(uint16_t kind) { return kind == PH_KIND_NCCL_DATA || kind == PH_KIND_NCCL_SOURCES; }

/* Under the record lock. */
static void append(uint16_t kind, uint16_t site, uint64_t host_ns, const void *fields, size_t fields_nbytes,
                   const void *payload, size_t payload_nbytes) {
    if (!ph_channel.open || (UNLIKELY(ph_channel.ended) && !is_promised(kind))) return;
    if (UNLIKELY(!ph_record_fits(kind, fields_nbytes + payload_nbytes)))
        ph_die("record %u: %zu bytes of fields and %zu of payload are not what records.def says", kind, fields_nbytes,
               payload_nbytes);
    size_t exact = sizeof(struct ph_header) + fields_nbytes + payload_nbytes, padded = (exact + 7) & ~(size_t)7;
    struct ph_header header = {.kind = kind, .site = site, .nbytes = (uint32_t)exact, .last = host_ns};
    unsigned char *at = ph_buffer_room(&ph_channel.gathering, padded);
    memcpy(at, &header, sizeof header);
    if (fields_nbytes) memcpy(at + sizeof header, fields, fields_nbytes);
    if (payload_nbytes) memcpy(at + sizeof header + fields_nbytes, payload, payload_nbytes);
    memset(at + exact, 0, padded - exact);
    ph_channel.gathering.n += padded;
    if (!ph_channel.armed) ph_reader_wake();
}

/* Under the record lock. */
static void append_at(uint16_t kind, uint16_t site, uint64_t at_ns, const void *fields, size_t fields_nbytes,
                      const void *payload, size_t payload_nbytes) {
    if (UNLIKELY(ph_trace_gathered)) ph_trace_flush();
    if (at_ns < ph_channel.last_instant)
        ph_die("record %u is %llu ns earlier than the record before it", kind,
               (unsigned long long)(ph_channel.last_instant - at_ns));
    append(kind, site, at_ns - ph_channel.last_instant, fields, fields_nbytes, payload, payload_nbytes);
    ph_channel.last_instant = at_ns;
}

void ph_append(uint16_t kind, uint64_t at_ns, const void *fields, size_t fields_nbytes, const void *payload,
               size_t payload_nbytes) {
    append_at(kind, 0, at_ns, fields, fields_nbytes, payload, payload_nbytes);
}

void ph_append_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                           size_t payload_nbytes) {
    append(kind, 0, 0, fields, fields_nbytes, payload, payload_nbytes);
}

uint64_t ph_last_instant(void) { return ph_channel.last_instant; }

void ph_channel_wake_for_segments(void) {
    if (ph_channel.open && !ph_channel.armed) ph_reader_wake();
}

/* ---- facts ------------------------------------------------------------------------------------------------------- */

static void emit(uint16_t kind, uint16_t site, const void *fields, size_t fields_nbytes, const void *payload,
                 size_t payload_nbytes) {
    ph_record_lock();
    ph_close_segments();
    append_at(kind, site, ph_host_clock(), fields, fields_nbytes, payload, payload_nbytes);
    ph_record_unlock();
}

void ph_emit(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes) {
    emit(kind, 0, fields, fields_nbytes, payload, payload_nbytes);
}

void ph_emit_here(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes) {
    emit(kind, ph_site(), fields, fields_nbytes, payload, payload_nbytes);
}

void ph_emit_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                         size_t payload_nbytes) {
    ph_record_lock();
    append(kind, 0, 0, fields, fields_nbytes, payload, payload_nbytes);
    ph_record_unlock();
}

void ph_flush(void) {
    if (!ph_channel.open) return;
    ph_record_lock();
    ph_close_segments();
    pthread_mutex_unlock(&ph_channel.records);
    ph_send_now();
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* Sends the question that has just been appended and waits for its answer. Called with the record lock, which it
 * releases. */
static void wait_for_answer(ph_waiter *waiter) {
    pthread_mutex_unlock(&ph_channel.records);
    ph_send_now();
    void *interpreter = ph_python_release();
    ph_waiter_wait(waiter);
    ph_python_restore(interpreter);
}

void ph_ask(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes, void *reply,
            size_t reply_nbytes) {
    memset(reply, 0, reply_nbytes);
    if (!ph_channel.open) return;
    ph_waiter waiter = {.reply = reply, .nbytes = reply_nbytes};
    uint64_t qid = ph_waiter_add(&waiter);
    memcpy(fields, &qid, sizeof qid);
    uint16_t site = ph_site();
    ph_record_lock();
    ph_close_segments();
    append_at(kind, site, ph_host_clock(), fields, fields_nbytes, payload, payload_nbytes);
    wait_for_answer(&waiter);
}

void ph_ask_out_of_band(uint16_t kind, void *fields, size_t fields_nbytes, const void *payload, size_t payload_nbytes,
                        void *reply, size_t reply_nbytes) {
    memset(reply, 0, reply_nbytes);
    if (!ph_channel.open) return;
    ph_waiter waiter = {.reply = reply, .nbytes = reply_nbytes};
    uint64_t qid = ph_waiter_add(&waiter);
    memcpy(fields, &qid, sizeof qid);
    ph_record_lock();
    append(kind, 0, 0, fields, fields_nbytes, payload, payload_nbytes);
    atomic_fetch_add(&ph_channel.asking_out_of_band, 1);
    wait_for_answer(&waiter);
    atomic_fetch_sub(&ph_channel.asking_out_of_band, 1);
}
