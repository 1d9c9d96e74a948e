/*
 * streams/: CUDA's streams, events, captures, graphs and host functions; and the op stream: launches of one stream fold
 * into its open segment until another record closes it.
 * Comes in: launches and orders from the API folders. Goes out: the records STREAM_*, SEGMENT, EVENT_RECORD,
 * RECORDING_DROP, HOST_WAIT; the questions QUERY and ELAPSED.
 */
#ifndef PHANTORA_STREAM_H
#define PHANTORA_STREAM_H

#include "core/base.h"
#include "costs/cost.h"

enum { PH_STREAM_MAGIC = 0x5354524d, PH_GREATEST_PRIORITY = -5, PH_LEAST_PRIORITY = 0 };

typedef struct ph_stream ph_stream;
struct ph_stream {
    uint32_t magic;
    uint32_t id;
    int device, priority;
    unsigned flags;
    bool legacy;   /* the device's legacy default stream */
    bool blocking; /* waits for it, and it for this one */
    /* the open segment, empty if launches is 0; under the record lock. queued: how many of them the launch queue holds
     */
    uint32_t launches, queued;
    uint64_t first_ns, solo_ns, contended_ns, tail_ns;
    ph_stream *next_open;
    /* implicit ordering with the legacy default stream: counts of things given to either */
    uint64_t work, legacy_seen, seen_by_legacy;
    /* capture */
    struct ph_capture *capture;
    int branch;
    ph_stream *next; /* all streams alive */
};

/* NULL and 1: legacy default stream; 2: per-thread default stream; else a handle. Unknown handles: NULL. */
ph_stream *ph_stream_of(void *handle);
uint32_t ph_stream_id(const ph_stream *stream);
int ph_stream_device(const ph_stream *stream);
bool ph_stream_capturing(const ph_stream *stream);

int ph_streams_make_defaults(void);
void ph_streams_announce(void);
ph_stream *ph_default_stream(int device);
/* A priority out of range becomes the nearest one. */
int ph_stream_create(int device, unsigned flags, int priority, ph_stream **out);
int ph_stream_destroy(ph_stream *stream);

/* One kernel or copy on the stream: folded into its open segment, or into the graph being captured. Counts a launch;
 * host cost is the caller's. */
void ph_launch(ph_stream *stream, const ph_cost *cost);
/* Not captured. queued: does it take a place of its own in the launch queue? */
void ph_launch_now(ph_stream *stream, const ph_cost *cost, bool queued);
/* Time that a stream takes for something that is no kernel and no copy. */
void ph_stream_occupy(ph_stream *stream, uint64_t for_ns);
/* Before a record of your own that puts work on a stream (NCCL_LAUNCH): orders the stream with the legacy default
 * stream where CUDA does. */
void ph_stream_touch(ph_stream *stream);

int ph_stream_synchronize(ph_stream *stream);
/* The host waits, whatever is being captured: for calls that wait as a part of what they do. */
void ph_stream_wait(ph_stream *stream);
int ph_device_synchronize(int device);
void ph_device_wait(int device);
int ph_stream_query(ph_stream *stream);
/* Asks whether a stream's work or a recording is done: CUDA_OK or CUDA_NOT_READY. */
int ph_query(uint32_t scope, uint32_t stream, uint64_t recording);
void ph_wait_recording(uint64_t recording);

/* Under the record lock: closes all open segments, in order of their first launch. */
void ph_close_segments(void);
bool ph_segments_open(void);
uint64_t ph_launch_count(void);
/* Under the record lock: orders the stream with its device's legacy default stream where CUDA does. */
void ph_order_default(ph_stream *stream);

#endif
