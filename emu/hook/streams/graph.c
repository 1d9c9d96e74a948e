/*
 * Graphs: their steps, what they own, and their launch. A launch gives every step to the stream it was captured for:
 * the origin's to the stream of the launch, a side branch's to a stream of the executable's own, ordered by the forks
 * and joins of the capture. The host pays for one call, and the launch queue holds it as one.
 */
#include "streams/graph.h"
#include "channel/channel.h"
#include "core/cuda_types.h"
#include "core/warn.h"
#include "data/data.h"
#include "nvtx/nvtx.h"
#include "process/process.h"
#include "streams/host_function.h"

#include <stdlib.h>

ph_graph *ph_graph_new(int device) {
    ph_graph *graph = calloc(1, sizeof *graph);
    if (!graph) ph_die("out of host memory");
    graph->magic = GRAPH_MAGIC;
    graph->references = 1;
    graph->device = device;
    graph->nbranches = 1;
    return graph;
}

ph_step *ph_graph_add(ph_graph *graph, enum ph_step_kind kind, int branch) {
    if (graph->nsteps == graph->capacity) {
        graph->capacity = graph->capacity ? graph->capacity * 2 : 64;
        graph->steps = realloc(graph->steps, graph->capacity * sizeof *graph->steps);
    }
    ph_step *step = calloc(1, sizeof *step);
    if (!graph->steps || !step) ph_die("out of host memory");
    *step = (ph_step){.kind = kind, .branch = branch, .graph = graph};
    graph->steps[graph->nsteps++] = step;
    graph->nnodes += ph_is_node(step);
    return step;
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
    for (size_t i = 0; i < graph->nsteps; i++) {
        ph_step *step = graph->steps[i];
        if (step->kind == STEP_CALL && step->function) step->function(step->arg);
        free(step->after);
        free(step);
    }
    while (graph->owned) {
        ph_owned *owned = graph->owned;
        graph->owned = owned->next;
        ph_user_object_release(owned->object, owned->count);
        free(owned);
    }
    graph->magic = 0;
    free(graph->steps);
    free(graph);
}

static ph_stream *branch_stream(ph_graph_exec *exec, int branch, ph_stream *stream) {
    if (branch == 0) return stream;
    if (!exec->branches[branch] &&
        ph_stream_create(stream->device, STREAM_NONBLOCKING, 0, &exec->branches[branch]) != CUDA_OK)
        return stream;
    return exec->branches[branch];
}

/* A side branch is ordered by recordings, which live as long as this launch. */
static void replay_order(const ph_step *step, size_t index, ph_stream *stream, uint64_t *recordings) {
    if (!ph_run.started || (step->kind == STEP_FORK && !step->joined)) return;
    ph_record_lock();
    if (step->kind == STEP_FORK)
        recordings[index] = ph_record_on(stream, 0);
    else
        ph_recording_wait(stream, recordings[step->fork]);
    ph_record_unlock();
}

static void replay_node(const ph_step *step, ph_stream *stream, bool queued) {
    switch (step->kind) {
    case STEP_LAUNCH:
        ph_launch_now(stream, step->cost, queued);
        break;
    case STEP_COPY:
        ph_launch_now(stream, step->cost, queued);
        ph_data_copy(step->dst, step->src, step->nbytes);
        break;
    case STEP_SET:
        ph_launch_now(stream, step->cost, queued);
        ph_data_set(step->dst, step->value, step->nbytes);
        break;
    case STEP_HOST:
        ph_host_function(stream, step->function, step->arg);
        break;
    case STEP_CALL:
        step->run(stream, step->arg);
        break;
    case STEP_EVENT_RECORD:
        ph_event_record(step->event, stream);
        break;
    case STEP_EVENT_WAIT:
        ph_stream_wait_event(stream, step->event);
        break;
    default:
        break;
    }
}

/* Behind the stream's work and behind the executable's last launch, whichever stream that was given to. */
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
    bool queued = true; /* the first node that is given to the stream itself stands for all */
    uint64_t *recordings = calloc(graph->nsteps + 1, sizeof *recordings);
    if (!recordings) ph_die("out of host memory");
    for (size_t i = 0; i < graph->nsteps; i++) {
        const ph_step *step = graph->steps[i];
        ph_stream *on = branch_stream(exec, step->branch, stream);
        if (ph_is_node(step)) {
            replay_node(step, on, queued && on == stream);
            queued = queued && on != stream;
        } else
            replay_order(step, i, on, recordings);
    }
    ph_record_lock();
    for (size_t i = 0; i < graph->nsteps; i++)
        if (recordings[i]) {
            ph_close_segments();
            ph_recording_drop(recordings[i]);
        }
    ph_record_unlock();
    free(recordings);
    end_launch(exec, stream);
    return CUDA_OK;
}
