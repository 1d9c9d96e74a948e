/*
 * What a capture records: the items of its graph, what each depends on, and how a stream joins a capture by waiting for
 * one of its events. `tails` are the items that the next one of a branch depends on.
 */
#include "core/alloc.h"
#include "core/run.h"
#include "cuda/types.h"
#include "data/data.h"
#include "graphs/graph.h"
#include "nvtx/nvtx.h"

#include <stdlib.h>
#include <string.h>

/* ---- dependencies ------------------------------------------------------------------------------------------------ */

static void set_tails(ph_tails *tails, ph_graph_item *const *items, size_t n) {
    ph_graph_item **copy = n ? ph_allocate(n * sizeof *copy) : NULL;
    if (n) memcpy(copy, items, n * sizeof *copy);
    free(tails->items);
    *tails = (ph_tails){copy, n};
}

static void add_tails(ph_tails *tails, ph_graph_item *const *items, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < tails->n && tails->items[at] != items[i]) at++;
        if (at < tails->n) continue;
        tails->items = ph_reallocate(tails->items, (tails->n + 1) * sizeof *tails->items);
        tails->items[tails->n++] = items[i];
    }
}

static void depend(ph_graph_item *item, const ph_tails *tails) {
    ph_tails copy = {0};
    set_tails(&copy, tails->items, tails->n);
    item->after = copy.items;
    item->nafter = copy.n;
}

static ph_graph_item *add_node(ph_stream *stream, enum ph_graph_item_kind kind) {
    ph_graph_capture *capture = ph_graph_capture_of(stream);
    ph_graph_item *item = ph_graph_add(capture->graph, kind, stream->branch);
    depend(item, &capture->tails[stream->branch]);
    set_tails(&capture->tails[stream->branch], &item, 1);
    return item;
}

/* ---- items ------------------------------------------------------------------------------------------------------- */

static void capture_launch(ph_stream *stream, const ph_cost *cost) { add_node(stream, ITEM_LAUNCH)->cost = cost; }

void ph_capture_priced(ph_stream *stream, const ph_cost *(*price)(const void *), void *what) {
    const ph_graph_capture *capture = ph_graph_capture_of(stream);
    ph_graph_item *item = capture->graph->items[capture->graph->nitems - 1];
    item->price = price;
    item->arg = what;
}

bool ph_capture_copy(ph_stream *stream, const ph_cost *cost, void *dst, const void *src, size_t nbytes) {
    ph_graph_item *item = add_node(stream, ITEM_COPY);
    item->cost = cost;
    item->dst = dst;
    item->src = src;
    item->nbytes = nbytes;
    return true;
}

bool ph_capture_set(ph_stream *stream, const ph_cost *cost, void *dst, int value, size_t nbytes) {
    ph_graph_item *item = add_node(stream, ITEM_SET);
    item->cost = cost;
    item->dst = dst;
    item->value = value;
    item->nbytes = nbytes;
    return true;
}

static void capture_host_function(ph_stream *stream, void (*function)(void *), void *arg) {
    ph_graph_item *item = add_node(stream, ITEM_HOST);
    item->function = function;
    item->arg = arg;
}

bool ph_capture_call(ph_stream *stream, void (*run)(ph_stream *, void *), void (*release)(void *), void *arg) {
    if (!stream->capture) return false;
    ph_graph_item *item = add_node(stream, ITEM_CALL);
    item->run = run;
    item->function = release;
    item->arg = arg;
    return true;
}

bool ph_capture_data(ph_stream *stream, void (*run)(ph_stream *, void *), void (*release)(void *), void *arg) {
    if (!stream->capture) return false;
    ph_graph_item *item = ph_graph_add(ph_graph_capture_of(stream)->graph, ITEM_DATA, stream->branch);
    item->run = run;
    item->function = release;
    item->arg = arg;
    return true;
}

static void overwrite_again(ph_stream *stream, void *arg) {
    (void)stream;
    const ph_range *written = arg;
    ph_data_overwrite(written->start, written->nbytes);
}

void ph_overwrite_on(ph_stream *stream, const void *start, size_t nbytes) {
    if (UNLIKELY(stream && stream->capture)) {
        ph_range *written = ph_allocate(sizeof *written);
        *written = (ph_range){(void *)(uintptr_t)start, nbytes};
        ph_capture_data(stream, overwrite_again, free, written);
    }
    ph_data_overwrite(start, nbytes);
}

/* cudaEventRecordExternal and cudaEventWaitExternal: each launch of the graph records the event, or waits for it. */
static int add_external(ph_stream *stream, enum ph_graph_item_kind kind, ph_event *event) {
    int status = ph_stream_usable(stream);
    if (status) return status;
    if (!stream->capture) return CUDA_ILLEGAL_STATE;
    add_node(stream, kind)->event = event;
    return CUDA_OK;
}

enum { EXTERNAL = 1 };

int ph_event_record_flags(ph_event *event, ph_stream *stream, unsigned flags) {
    if (flags & ~(unsigned)EXTERNAL) return CUDA_INVALID_VALUE;
    return flags ? add_external(stream, ITEM_EVENT_RECORD, event) : ph_event_record(event, stream);
}

int ph_stream_wait_event_flags(ph_stream *stream, ph_event *event, unsigned flags) {
    if (flags & ~(unsigned)EXTERNAL) return CUDA_INVALID_VALUE;
    return flags ? add_external(stream, ITEM_EVENT_WAIT, event) : ph_stream_wait_event(stream, event);
}

/* ---- events within a capture ------------------------------------------------------------------------------------- */

static void capture_event(ph_stream *stream, ph_event *event) {
    ph_graph_capture *capture = ph_graph_capture_of(stream);
    ph_graph_item *fork = ph_graph_add(capture->graph, ITEM_FORK, stream->branch);
    depend(fork, &capture->tails[stream->branch]);
    event->capture = &capture->capture;
    event->capture_id = capture->capture.id;
    event->capture_slot = (int)capture->graph->nitems - 1;
    event->recorded = true;
}

static int join_capture(ph_stream *stream, ph_graph_capture *capture) {
    int branch = capture->graph->nbranches++;
    capture->tails = ph_reallocate(capture->tails, (size_t)capture->graph->nbranches * sizeof *capture->tails);
    capture->tails[branch] = (ph_tails){0};
    return ph_capture_enlist(stream, &capture->capture, branch) ? CUDA_OK : CUDA_CAPTURE_UNSUPPORTED;
}

/* Refuses a wait that cannot be captured: invalidates the captures of both sides. */
static int refuse_wait(ph_stream *stream, ph_capture *capture, int status) {
    ph_capture_invalidate(stream);
    if (capture) capture->invalid = true;
    return status;
}

/* Called if the stream is being captured, or if the last record of the event is in a capture. */
static int capture_wait(ph_stream *stream, ph_event *event) {
    ph_capture *capture = event->capture;
    if (!capture) return event->recording ? refuse_wait(stream, NULL, CUDA_CAPTURE_ISOLATION) : CUDA_OK;
    if (!ph_capture_running(event)) return CUDA_INVALID_VALUE;
    if (capture->invalid) return CUDA_CAPTURE_INVALIDATED;
    if (stream->legacy) return refuse_wait(stream, capture, CUDA_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != capture) return refuse_wait(stream, capture, CUDA_CAPTURE_MERGE);
    ph_graph_capture *kept = (ph_graph_capture *)capture;
    int status = stream->capture ? CUDA_OK : join_capture(stream, kept);
    if (status) return status;
    ph_graph_item *fork = kept->graph->items[event->capture_slot];
    if (fork->branch != stream->branch) {
        ph_graph_add(kept->graph, ITEM_JOIN, stream->branch)->fork = event->capture_slot;
        fork->joined = true;
    }
    add_tails(&kept->tails[stream->branch], fork->after, fork->nafter);
    return CUDA_OK;
}

void ph_graphs_connect(void) {
    PH_CONNECT(ph_capture_functions.launch, capture_launch);
    PH_CONNECT(ph_capture_functions.event, capture_event);
    PH_CONNECT(ph_capture_functions.wait, capture_wait);
    PH_CONNECT(ph_capture_functions.host_function, capture_host_function);
    PH_CONNECT(ph_step_captured, ph_capture_step);
}
