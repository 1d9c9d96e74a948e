/*
 * Graphs: their items, the user objects that they own, and their launch.
 *
 * A launch gives every item to a stream: those of branch 0 to the stream of the launch, those of another branch to a
 * stream of the executable graph, ordered by the forks and joins of the capture. It costs the host one call and takes
 * one place in the launch queue.
 */
#include "graphs/graph.h"
#include "channel/channel.h"
#include "core/alloc.h"
#include "cuda/types.h"
#include "data/data.h"
#include "nvtx/nvtx.h"
#include "core/run.h"
#include "streams/host_function.h"
#include "streams/launch.h"

#include <stdlib.h>

ph_graph *ph_graph_new(int device) {
    ph_graph *graph = ph_allocate(sizeof *graph);
    graph->magic = GRAPH_MAGIC;
    graph->references = 1;
    graph->device = device;
    graph->nbranches = 1;
    return graph;
}

ph_graph_item *ph_graph_add(ph_graph *graph, enum ph_graph_item_kind kind, int branch) {
    graph->items = ph_room_for_one(graph->items, graph->nitems, &graph->capacity, sizeof *graph->items);
    ph_graph_item *item = ph_allocate(sizeof *item);
    *item = (ph_graph_item){.kind = kind, .branch = branch, .graph = graph};
    graph->items[graph->nitems++] = item;
    graph->nnodes += ph_is_node(item);
    return item;
}

int ph_user_object_release(ph_user_object *object, int count) {
    if (!object || object->magic != USER_OBJECT_MAGIC || count <= 0 || count > object->references)
        return CUDA_INVALID_VALUE;
    object->references -= count;
    if (object->references == 0) {
        object->magic = 0;
        object->destroy(object->object);
        free(object);
    }
    return CUDA_OK;
}

void ph_graph_release(ph_graph *graph) {
    if (--graph->references > 0) return;
    for (size_t i = 0; i < graph->nitems; i++) {
        ph_graph_item *item = graph->items[i];
        if ((item->kind == ITEM_CALL || item->kind == ITEM_DATA) && item->function) item->function(item->arg);
        if (item->price) free(item->arg);
        free(item->after);
        free(item);
    }
    while (graph->owned) {
        ph_owned *owned = graph->owned;
        graph->owned = owned->next;
        ph_user_object_release(owned->object, owned->count);
        free(owned);
    }
    graph->magic = 0;
    free(graph->items);
    free(graph);
}

static ph_stream *branch_stream(ph_graph_exec *exec, int branch, ph_stream *stream) {
    if (branch == 0) return stream;
    if (!exec->branches[branch] &&
        ph_stream_create(stream->device, STREAM_NONBLOCKING, 0, &exec->branches[branch]) != CUDA_OK)
        return stream;
    return exec->branches[branch];
}

/* Orders branches by recordings, which exist for this launch only. */
static void replay_order(const ph_graph_item *item, size_t index, ph_stream *stream, uint64_t *recordings) {
    if (!ph_run.started || (item->kind == ITEM_FORK && !item->joined)) return;
    ph_record_lock();
    if (item->kind == ITEM_FORK)
        recordings[index] = ph_record_on(stream, 0);
    else
        ph_recording_wait(stream, recordings[item->fork]);
    ph_record_unlock();
}

static void replay_node(const ph_graph_item *item, ph_stream *stream, bool queued) {
    const ph_cost *priced;
    switch (item->kind) {
    case ITEM_LAUNCH:
        priced = item->price ? item->price(item->arg) : NULL;
        ph_launch_now(stream, priced ? priced : item->cost, queued);
        break;
    case ITEM_COPY:
        ph_launch_now(stream, item->cost, queued);
        ph_data_copy(item->dst, item->src, item->nbytes);
        break;
    case ITEM_SET:
        ph_launch_now(stream, item->cost, queued);
        ph_data_set(item->dst, item->value, item->nbytes);
        break;
    case ITEM_HOST:
        ph_host_function(stream, item->function, item->arg);
        break;
    case ITEM_CALL:
        item->run(stream, item->arg);
        break;
    case ITEM_EVENT_RECORD:
        ph_event_record(item->event, stream);
        break;
    case ITEM_EVENT_WAIT:
        ph_stream_wait_event(stream, item->event);
        break;
    default:
        break;
    }
}

/* A launch runs after earlier work of its stream, and after the last launch of the same executable on any stream. */
static void begin_launch(const ph_graph_exec *exec, ph_stream *stream) {
    if (!ph_run.started) return;
    ph_record_lock();
    ph_order_default(stream);
    if (exec->recording && exec->stream_id != stream->id) ph_recording_wait(stream, exec->recording);
    ph_record_unlock();
}

static void end_launch(ph_graph_exec *exec, ph_stream *stream) {
    if (!ph_run.started) return;
    ph_record_lock();
    exec->recording = ph_record_on(stream, exec->recording);
    exec->stream_id = stream->id;
    ph_record_unlock();
}

int ph_graph_launch(ph_graph_exec *exec, ph_stream *stream) {
    int status = ph_stream_usable(stream);
    if (status) return status;
    if (ph_stream_capturing(stream)) {
        ph_capture_invalidate(stream);
        return CUDA_CAPTURE_UNSUPPORTED;
    }
    ph_graph_replayed();
    begin_launch(exec, stream);
    const ph_graph *graph = exec->graph;
    bool queued = true; /* only the first node on the launch's own stream takes a place */
    uint64_t *recordings = ph_allocate((graph->nitems + 1) * sizeof *recordings);
    for (size_t i = 0; i < graph->nitems; i++) {
        const ph_graph_item *item = graph->items[i];
        ph_stream *on = branch_stream(exec, item->branch, stream);
        if (ph_is_node(item)) {
            replay_node(item, on, queued && on == stream);
            queued = queued && on != stream;
        } else if (item->kind == ITEM_DATA)
            item->run(on, item->arg);
        else
            replay_order(item, i, on, recordings);
    }
    ph_record_lock();
    for (size_t i = 0; i < graph->nitems; i++)
        if (recordings[i]) {
            ph_close_segments();
            ph_recording_drop(recordings[i]);
        }
    ph_record_unlock();
    free(recordings);
    end_launch(exec, stream);
    return CUDA_OK;
}
