/*
 * Records enter the batch that gathers.
 */
#include "channel/channel.h"
#include "core/lock.h"
#include "channel/internal.h"
#include "core/alloc.h"
#include "core/run.h"

#include <string.h>

struct ph_channel ph_channel = {.fd = -1, .wake = -1};

void ph_record_lock(void) { ph_lock(PH_LOCK_RECORDS); }

void ph_record_unlock(void) {
    size_t gathered = ph_channel.gathering.n;
    ph_unlock(PH_LOCK_RECORDS);
    if (UNLIKELY(gathered >= PH_BATCH_NBYTES)) ph_send_if_full(gathered);
}

void ph_record_unlock_and_send(void) {
    ph_unlock(PH_LOCK_RECORDS);
    ph_send_now();
}

unsigned char *ph_buffer_room(ph_buffer *buffer, size_t nbytes) {
    if (buffer->n + nbytes > buffer->capacity) {
        size_t capacity = buffer->capacity ? buffer->capacity : 2 * PH_BATCH_NBYTES;
        while (capacity < buffer->n + nbytes) capacity *= 2;
        buffer->bytes = ph_reallocate(buffer->bytes, capacity);
        buffer->capacity = capacity;
    }
    return buffer->bytes + buffer->n;
}

void ph_batch_append(uint16_t kind, uint16_t site, uint64_t host_ns, const void *fields, size_t fields_nbytes,
                     const void *payload, size_t payload_nbytes) {
    ph_lock_needed(PH_LOCK_RECORDS);
    if (!ph_channel.open || (UNLIKELY(ph_channel.ended) && !ph_record_is_marked(kind, "PROMISED"))) return;
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

void ph_append_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                           size_t payload_nbytes) {
    ph_batch_append(kind, 0, 0, fields, fields_nbytes, payload, payload_nbytes);
}

void ph_emit_out_of_band(uint16_t kind, const void *fields, size_t fields_nbytes, const void *payload,
                         size_t payload_nbytes) {
    ph_record_lock();
    ph_append_out_of_band(kind, fields, fields_nbytes, payload, payload_nbytes);
    ph_record_unlock();
}
