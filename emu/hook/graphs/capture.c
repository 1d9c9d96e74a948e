/*
 * Stream capture: begin and end.
 *
 * A stream that waits for an event of the capture becomes a member, as a branch of its own. When the capture ends, its
 * origin must have waited for every branch.
 */
#include "graphs/capture.h"
#include "core/alloc.h"
#include "cuda/types.h"
#include "graphs/graph.h"
#include "threads/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static atomic_uint_fast64_t last_id;

int ph_capture_begin(ph_stream *stream, int mode) {
    int status = ph_device_usable();
    if (status) return status;
    if (mode < PH_CAPTURE_GLOBAL || mode > PH_CAPTURE_RELAXED) return CUDA_INVALID_VALUE;
    if (stream->legacy) return CUDA_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ILLEGAL_STATE;
    ph_graph_capture *it = ph_allocate(sizeof *it);
    *it = (ph_graph_capture){.capture = {.id = ++last_id, .mode = mode, .origin = stream, .thread = pthread_self()},
                             .graph = ph_graph_new(stream->device),
                             .tails = ph_allocate(sizeof *it->tails)};
    return ph_capture_enlist(stream, &it->capture, 0) ? CUDA_OK : CUDA_CAPTURE_UNSUPPORTED;
}

static bool all_joined(const ph_graph_capture *capture) {
    /* Items depend on earlier ones only: one pass in reverse order reaches all that the origin has waited for. */
    for (size_t i = 0; i < capture->tails[0].n; i++) capture->tails[0].items[i]->reached = true;
    for (size_t i = capture->graph->nitems; i-- > 0;) {
        ph_graph_item *item = capture->graph->items[i];
        for (size_t j = 0; item->reached && j < item->nafter; j++) item->after[j]->reached = true;
    }
    for (size_t i = 0; i < capture->graph->nitems; i++)
        if (ph_is_node(capture->graph->items[i]) && !capture->graph->items[i]->reached) return false;
    return true;
}

static void free_capture(ph_graph_capture *capture) {
    ph_capture_dismiss(&capture->capture);
    for (int branch = 0; branch < capture->graph->nbranches; branch++) free(capture->tails[branch].items);
    free(capture->tails);
    free(capture);
}

int ph_capture_end(ph_stream *stream, ph_graph **out) {
    *out = NULL;
    ph_capture *capture = stream->capture;
    if (!capture) return CUDA_ILLEGAL_STATE;
    ph_graph_capture *kept = ph_graph_capture_of(stream);
    if (capture->origin != stream) {
        capture->invalid = true;
        return CUDA_CAPTURE_UNMATCHED;
    }
    bool wrong_thread = capture->mode != PH_CAPTURE_RELAXED && !pthread_equal(capture->thread, pthread_self());
    int status = wrong_thread       ? CUDA_CAPTURE_WRONG_THREAD
                 : capture->invalid ? CUDA_CAPTURE_INVALIDATED
                 : all_joined(kept) ? CUDA_OK
                                    : CUDA_CAPTURE_UNJOINED;
    if (status == CUDA_OK) *out = kept->graph;
    ph_graph *graph = kept->graph;
    free_capture(kept);
    if (status) ph_graph_release(graph);
    return status;
}

static int status_of(const ph_stream *stream) {
    return !stream->capture ? CAPTURE_NONE : stream->capture->invalid ? CAPTURE_INVALID : CAPTURE_ACTIVE;
}

int ph_capture_info(void *handle, int *status, unsigned long long *id, void **graph, void ***dependencies, void **edges,
                    size_t *n) {
    ph_stream *stream = ph_stream_of(handle);
    const ph_capture *capture = stream ? stream->capture : NULL;
    const ph_graph_capture *kept = capture ? ph_graph_capture_of(stream) : NULL;
    if (status) *status = stream ? status_of(stream) : CAPTURE_NONE;
    if (id) *id = capture ? capture->id : 0;
    if (graph) *graph = kept ? kept->graph : NULL;
    if (dependencies) *dependencies = kept ? (void **)kept->tails[stream->branch].items : NULL;
    if (edges) *edges = NULL;
    if (n) *n = kept ? kept->tails[stream->branch].n : 0;
    return stream ? CUDA_OK : CUDA_INVALID_HANDLE;
}
