/*
 * graphs/: stream capture (capture, capture_nodes) and CUDA graphs (graph, replayed).
 * Comes in: calls on streams that are being captured; graph launches. Goes out: the items of a graph; at its launch the
 * same operations on streams and data as if they were called one by one.
 */
#ifndef PHANTORA_CAPTURE_H
#define PHANTORA_CAPTURE_H

#include "streams/capturing.h"

typedef struct ph_graph ph_graph;

int ph_capture_begin(ph_stream *stream, int mode);
int ph_capture_end(ph_stream *stream, ph_graph **out);
int ph_capture_info(void *handle, int *status, unsigned long long *id, void **graph, void ***dependencies, void **edges,
                    size_t *n);

/* Each adds an item to the graph of the stream's capture and returns true; false, and nothing done, if the stream is
 * not being captured. ph_capture_wait returns a status. */
bool ph_capture_copy(ph_stream *stream, const ph_cost *cost, void *dst, const void *src, size_t nbytes);
bool ph_capture_set(ph_stream *stream, const ph_cost *cost, void *dst, int value, size_t nbytes);
/* run(stream, arg) is called at each launch of the graph, release(arg) (which may be NULL) when the graph is freed. */
bool ph_capture_call(ph_stream *stream, void (*run)(ph_stream *stream, void *arg), void (*release)(void *arg),
                     void *arg);
/* Work on bytes that each launch of the graph repeats: no node of the graph, and it takes no time. */
bool ph_capture_data(ph_stream *stream, void (*run)(ph_stream *stream, void *arg), void (*release)(void *arg),
                     void *arg);
/* The launch that the capture has just recorded on the stream is priced again at each launch of the graph, by
 * price(what); NULL: it costs what it did in the capture. `what` is freed with the graph. */
void ph_capture_priced(ph_stream *stream, const ph_cost *(*price)(const void *what), void *what);
/* A launch on the stream writes to the range and is not executed: the bytes are unknown, and again at each launch of
 * the graph if the stream is being captured. */
void ph_overwrite_on(ph_stream *stream, const void *start, size_t nbytes);
/* Do the same with the flags of cudaEventRecordWithFlags and cudaStreamWaitEvent. */
int ph_event_record_flags(ph_event *event, ph_stream *stream, unsigned flags);
int ph_stream_wait_event_flags(ph_stream *stream, ph_event *event, unsigned flags);

/* Connects captures to streams/ and nvtx/. */
void ph_graphs_connect(void);

#endif
