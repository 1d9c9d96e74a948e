/*
 * Stream capture: what is given to a captured stream becomes a step of a graph. A stream that waits for an event of the
 * capture joins it as a branch; at the end every branch must have been joined by the origin again.
 */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    uint64_t last_id;
    ph_stream *members[256]; /* streams that are being captured now */
    int nmembers;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- dependencies
 * -------------------------------------------------------------------------------------------------------- */

static void set_tails(ph_tails *tails, ph_step *const *steps, size_t n) {
    ph_step **copy = n ? malloc(n * sizeof *copy) : NULL;
    if (n && !copy) ph_die("out of host memory");
    if (n) memcpy(copy, steps, n * sizeof *copy);
    free(tails->steps);
    *tails = (ph_tails){copy, n};
}

static void add_tails(ph_tails *tails, ph_step *const *steps, size_t n) {
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < tails->n && tails->steps[at] != steps[i]) at++;
        if (at < tails->n) continue;
        tails->steps = realloc(tails->steps, (tails->n + 1) * sizeof *tails->steps);
        if (!tails->steps) ph_die("out of host memory");
        tails->steps[tails->n++] = steps[i];
    }
}

static void depend(ph_step *step, const ph_tails *tails) {
    ph_tails copy = {0};
    set_tails(&copy, tails->steps, tails->n);
    step->after = copy.steps;
    step->nafter = copy.n;
}

static ph_step *add_node(ph_stream *stream, enum ph_step_kind kind) {
    ph_capture *capture = stream->capture;
    ph_step *step = ph_graph_add(capture->graph, kind, stream->branch);
    depend(step, &capture->tails[stream->branch]);
    set_tails(&capture->tails[stream->branch], &step, 1);
    return step;
}

/* ---- steps
 * ----------------------------------------------------------------------------------------------------------------- */

bool ph_capture_launch(ph_stream *stream, const ph_cost *cost) {
    add_node(stream, STEP_LAUNCH)->cost = cost;
    return true;
}

bool ph_capture_copy(ph_stream *stream, const ph_cost *cost, void *dst, const void *src, size_t nbytes) {
    ph_step *step = add_node(stream, STEP_COPY);
    step->cost = cost;
    step->dst = dst;
    step->src = src;
    step->nbytes = nbytes;
    return true;
}

bool ph_capture_set(ph_stream *stream, const ph_cost *cost, void *dst, int value, size_t nbytes) {
    ph_step *step = add_node(stream, STEP_SET);
    step->cost = cost;
    step->dst = dst;
    step->value = value;
    step->nbytes = nbytes;
    return true;
}

bool ph_capture_host_function(ph_stream *stream, void (*function)(void *), void *arg) {
    if (!stream->capture) return false;
    ph_step *step = add_node(stream, STEP_HOST);
    step->function = function;
    step->arg = arg;
    return true;
}

bool ph_capture_call(ph_stream *stream, void (*run)(ph_stream *, void *), void (*release)(void *), void *arg) {
    if (!stream->capture) return false;
    ph_step *step = add_node(stream, STEP_CALL);
    step->run = run;
    step->function = release;
    step->arg = arg;
    return true;
}

/* cudaEventRecordExternal and cudaEventWaitExternal: the event itself, at each launch of the graph. */
bool ph_capture_event_node(ph_stream *stream, enum ph_step_kind kind, ph_event *event) {
    if (!stream->capture) return false;
    add_node(stream, kind)->event = event;
    return true;
}

/* ---- events within a capture
 * ------------------------------------------------------------------------------------------------ */

bool ph_capture_event(ph_stream *stream, ph_event *event) {
    ph_capture *capture = stream->capture;
    ph_step *fork = ph_graph_add(capture->graph, STEP_FORK, stream->branch);
    depend(fork, &capture->tails[stream->branch]);
    event->capture = capture;
    event->capture_id = capture->id;
    event->capture_slot = (int)capture->graph->nsteps - 1;
    event->recorded = true;
    return true;
}

static bool running(const ph_event *event) {
    pthread_mutex_lock(&captures.lock);
    bool found = false;
    for (int i = 0; i < captures.nmembers && !found; i++)
        found = captures.members[i]->capture == event->capture && event->capture->id == event->capture_id;
    pthread_mutex_unlock(&captures.lock);
    return found;
}

static bool enlist(ph_stream *stream, ph_capture *capture, int branch) {
    pthread_mutex_lock(&captures.lock);
    bool fits = captures.nmembers < (int)(sizeof captures.members / sizeof *captures.members);
    if (fits) {
        captures.members[captures.nmembers++] = stream;
        stream->capture = capture;
        stream->branch = branch;
    }
    pthread_mutex_unlock(&captures.lock);
    return fits;
}

static int join_capture(ph_stream *stream, ph_capture *capture) {
    int branch = capture->graph->nbranches++;
    capture->tails = realloc(capture->tails, (size_t)capture->graph->nbranches * sizeof *capture->tails);
    if (!capture->tails) ph_die("out of host memory");
    capture->tails[branch] = (ph_tails){0};
    return enlist(stream, capture, branch) ? CUDA_OK : CUDA_CAPTURE_UNSUPPORTED;
}

/* Answers false if neither side is part of a capture that still runs. */
bool ph_capture_wait(ph_stream *stream, ph_event *event, int *status) {
    if (event->capture && !running(event))
        event->capture = NULL; /* its capture has ended: the event stands for nothing now */
    if (!event->capture) {
        *status = stream->capture ? (event->mark ? CUDA_CAPTURE_ISOLATION : CUDA_OK) : CUDA_OK;
        return stream->capture != NULL;
    }
    ph_capture *capture = event->capture;
    if (stream->capture && stream->capture != capture) {
        *status = CUDA_CAPTURE_MERGE;
        return true;
    }
    if (stream->legacy) {
        *status = CUDA_CAPTURE_IMPLICIT;
        return true;
    }
    *status = stream->capture ? CUDA_OK : join_capture(stream, capture);
    if (*status) return true;
    ph_step *fork = capture->graph->steps[event->capture_slot];
    if (fork->branch != stream->branch) {
        ph_graph_add(capture->graph, STEP_JOIN, stream->branch)->fork = event->capture_slot;
        fork->joined = true;
    }
    add_tails(&capture->tails[stream->branch], fork->after, fork->nafter);
    return true;
}

/* ---- begin and end
 * -------------------------------------------------------------------------------------------------------------- */

int ph_capture_begin(ph_stream *stream, int mode) {
    int status = ph_device_usable();
    if (status) return status;
    if (mode < 0 || mode > 2) return CUDA_INVALID_VALUE;
    if (stream->legacy) return CUDA_CAPTURE_UNSUPPORTED;
    if (stream->capture) return 401; /* cudaErrorIllegalState */
    ph_capture *capture = calloc(1, sizeof *capture);
    ph_tails *tails = calloc(1, sizeof *tails);
    if (!capture || !tails) ph_die("out of host memory");
    *capture = (ph_capture){.id = __atomic_add_fetch(&captures.last_id, 1, __ATOMIC_RELAXED),
                            .mode = mode,
                            .graph = ph_graph_new(stream->device),
                            .origin = stream,
                            .tails = tails,
                            .thread = pthread_self()};
    return enlist(stream, capture, 0) ? CUDA_OK : CUDA_CAPTURE_UNSUPPORTED;
}

void ph_capture_invalidate(ph_stream *stream) {
    if (stream->capture) stream->capture->invalid = true;
}

static bool all_joined(const ph_capture *capture) {
    /* dependencies point backwards: one pass in reverse order marks all that the origin has waited for */
    for (size_t i = 0; i < capture->tails[0].n; i++) capture->tails[0].steps[i]->reached = true;
    for (size_t i = capture->graph->nsteps; i-- > 0;) {
        ph_step *step = capture->graph->steps[i];
        for (size_t j = 0; step->reached && j < step->nafter; j++) step->after[j]->reached = true;
    }
    for (size_t i = 0; i < capture->graph->nsteps; i++)
        if (ph_is_node(capture->graph->steps[i]) && !capture->graph->steps[i]->reached) return false;
    return true;
}

static void dissolve(ph_capture *capture) {
    pthread_mutex_lock(&captures.lock);
    int kept = 0;
    for (int i = 0; i < captures.nmembers; i++) {
        ph_stream *member = captures.members[i];
        if (member->capture == capture)
            member->capture = NULL;
        else
            captures.members[kept++] = member;
    }
    captures.nmembers = kept;
    pthread_mutex_unlock(&captures.lock);
    for (int branch = 0; branch < capture->graph->nbranches; branch++) free(capture->tails[branch].steps);
    free(capture->tails);
    free(capture);
}

int ph_capture_end(ph_stream *stream, ph_graph **out) {
    *out = NULL;
    ph_capture *capture = stream->capture;
    if (!capture) return 401; /* cudaErrorIllegalState */
    if (capture->origin != stream) return CUDA_CAPTURE_UNMATCHED;
    if (capture->mode != 2 && !pthread_equal(capture->thread, pthread_self())) return CUDA_CAPTURE_WRONG_THREAD;
    int status = capture->invalid ? CUDA_CAPTURE_INVALIDATED : all_joined(capture) ? CUDA_OK : CUDA_CAPTURE_UNJOINED;
    if (status == CUDA_OK) *out = capture->graph;
    ph_graph *graph = capture->graph;
    dissolve(capture);
    if (status) ph_graph_release(graph);
    return status;
}
