/*
 * streams/: CUDA's streams (stream), events (event) and host functions (host_function); what they are given (launch);
 * where the host waits (wait, watch); which of them are being captured, and what that forbids (capturing).
 * Comes in: launches and orders from the API folders. Goes out: launches to op_stream/; the records STREAM_CREATE,
 * STREAM_DESTROY, EVENT_RECORD, RECORDING_DROP, STREAM_WAIT and HOST_WAIT; the questions QUERY and ELAPSED.
 */
#ifndef PHANTORA_STREAM_H
#define PHANTORA_STREAM_H

#include "core/base.h"
#include "costs/cost.h"
#include "op_stream/segment.h"
#include "core/run.h"

enum { PH_STREAM_MAGIC = 0x5354524d, PH_GREATEST_PRIORITY = -5, PH_LEAST_PRIORITY = 0 };

typedef struct ph_stream ph_stream;
struct ph_stream {
    uint32_t magic;
    uint32_t id;
    int device, priority;
    unsigned flags;
    bool legacy;   /* the device's legacy default stream */
    bool blocking; /* is ordered with the legacy default stream */
    bool apart;    /* the library's own: waits for the device do not include it */
    ph_segment segment;
    /* order with the legacy default stream: how often this stream was given work; how much of the legacy default
     * stream's work this one waits for; how much of this one's work the legacy default stream waits for */
    uint64_t work, legacy_seen, seen_by_legacy;
    uint64_t looked_at_work, looked_at_ns; /* `work` when an onlooker last found more of it, and when that was */
    struct ph_capture *capture;
    int branch;
    ph_stream *next, *before; /* in the list of all streams */
};

/* The stream of a handle: NULL and 1 mean the legacy default stream, 2 the per-thread default stream. NULL if there is
 * no such stream. */
ph_stream *ph_stream_of(void *handle);
uint32_t ph_stream_id(const ph_stream *stream);
int ph_stream_device(const ph_stream *stream);
bool ph_stream_capturing(const ph_stream *stream);

int ph_streams_make_defaults(void);
void ph_streams_announce(void);
/* Adds `first` to all ids. Called before the announcement. */
void ph_streams_number_from(uint32_t first);
/* A priority out of range becomes the nearest one. */
int ph_stream_create(int device, unsigned flags, int priority, ph_stream **out);
/* A stream of the library's own, which no wait of the program includes. */
int ph_stream_create_apart(int device, ph_stream **out);
int ph_stream_destroy(ph_stream *stream);

/* To be called before a record that puts work on a stream (NCCL_LAUNCH): orders the stream with the legacy default
 * stream where CUDA does. */
void ph_stream_touch(ph_stream *stream);

/* Calls on the legacy default stream that wait or ask do so for the device's blocking streams as well; later work is
 * not ordered by that. Of those that were made before stream number `before` and have work that the legacy stream does
 * not wait for, the number of the last one; 0: none. */
uint32_t ph_stream_encompassed(const ph_stream *stream, uint32_t before);
/* Has the stream, or one that its wait includes, ever been given work? Has one of the device's? */
bool ph_stream_was_used(const ph_stream *stream);
bool ph_device_was_used(int device);

/* Blocking streams that are not legacy default streams. Under the record lock. */
extern int ph_blocking_streams;
void ph_order_with_blocking(ph_stream *stream);
/* Under the record lock, before the stream is given work: orders it with its device's legacy default stream where CUDA
 * does. */
static inline void ph_order_default(ph_stream *stream) {
    stream->work++;
    atomic_fetch_add_explicit(&ph_work_given, 1, memory_order_relaxed);
    if (UNLIKELY(ph_blocking_streams > 0)) ph_order_with_blocking(stream);
}

#endif
