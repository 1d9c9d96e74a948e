/*
 * graphs/: stream capture (capture, capture_nodes) and CUDA graphs (graph, replayed).
 * Comes in: calls on streams that are being captured; graph launches. Goes out: the items of a graph; at its launch the
 * same operations on streams and data as if they were called one by one.
 */
#ifndef PHANTORA_CAPTURE_H
#define PHANTORA_CAPTURE_H

#include "device/device.h"
#include "streams/event.h"

#include <stdatomic.h>

typedef struct ph_graph ph_graph;

int ph_capture_begin(ph_stream *stream, int mode);
int ph_capture_end(ph_stream *stream, ph_graph **out);
int ph_capture_info(void *handle, int *status, unsigned long long *id, void **graph, void ***dependencies, void **edges,
                    size_t *n);
void ph_capture_invalidate(ph_stream *stream);
/* The stream is about to be destroyed. False if it is the origin of its capture. */
bool ph_capture_leave(ph_stream *stream);

/* Each adds an item to the graph of the stream's capture and returns true; false, and nothing done, if the stream is
 * not being captured. ph_capture_wait returns a status. */
bool ph_capture_launch(ph_stream *stream, const ph_cost *cost);
bool ph_capture_copy(ph_stream *stream, const ph_cost *cost, void *dst, const void *src, size_t nbytes);
bool ph_capture_set(ph_stream *stream, const ph_cost *cost, void *dst, int value, size_t nbytes);
bool ph_capture_event(ph_stream *stream, ph_event *event);
bool ph_capture_host_function(ph_stream *stream, void (*function)(void *), void *arg);
int ph_capture_wait(ph_stream *stream, ph_event *event);
/* run(stream, arg) is called at each launch of the graph, release(arg) (which may be NULL) when the graph is freed. */
bool ph_capture_call(ph_stream *stream, void (*run)(ph_stream *stream, void *arg), void (*release)(void *arg),
                     void *arg);
/* The same for work on bytes, which is no node of the graph and takes no time. */
bool ph_capture_data(ph_stream *stream, void (*run)(ph_stream *stream, void *arg), void (*release)(void *arg),
                     void *arg);
/* A launch on the stream writes to the range and is not executed: the bytes are unknown, and again at each launch of
 * the graph if the stream is being captured. */
void ph_overwrite_on(ph_stream *stream, const void *start, size_t nbytes);
/* An optimizer's step has ended on this thread. True if it is being captured: then each launch of the graph ends a
 * step. `name` must stay valid. */
bool ph_capture_step(const char *name);

/* With the flags of cudaEventRecordWithFlags and cudaStreamWaitEvent. */
int ph_event_record_flags(ph_event *event, ph_stream *stream, unsigned flags);
int ph_stream_wait_event_flags(ph_stream *stream, ph_event *event, unsigned flags);

/* The following functions return an error if a capture forbids the call, and invalidate the captures concerned. */
extern atomic_int ph_captured_streams; /* emu/control reads it, too */
/* For calls that give work to the stream. */
int ph_capture_admits(ph_stream *stream);
/* For potentially unsafe calls, which a capture cannot record: allocations, and waits for and queries of work that is
 * not captured. */
int ph_uncapturable(void);
/* For calls that wait for all of a device. */
int ph_capture_encompassed(int device);
/* For calls on an event whose last record is in a capture: never CUDA_OK. */
int ph_captured_event(ph_event *event, bool invalidate);
static inline int ph_stream_usable(ph_stream *stream) {
    int status = ph_device_usable();
    return LIKELY(!ph_captured_streams) || status ? status : ph_capture_admits(stream);
}

#endif
