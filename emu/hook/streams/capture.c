/*
 * Stream capture: what is given to a captured stream becomes a step of a graph. A stream that waits for an event of the
 * capture joins it as a branch; at the end every branch must have been joined by the origin again.
 *
 * What is forbidden meanwhile, and what that leaves of the capture, follows the programming guide ("Prohibited and
 * unhandled operations", "Invalidation") and the modes of cudaThreadExchangeStreamCaptureMode. Where they leave open
 * which calls are meant, and with which error, it is what driver 580 does on an H100.
 */
#include "streams/capture.h"
#include "core/cuda_types.h"
#include "core/warn.h"
#include "process/thread.h"
#include "streams/graph.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct {
    pthread_mutex_t lock;
    uint64_t last_id;
    ph_stream *members[256]; /* streams that are being captured now */
    int nmembers;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};
atomic_int ph_captured_streams; /* as many: read without the lock */

enum { MODE_GLOBAL = 0, MODE_RELAXED = 2 };

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
static int add_external(ph_stream *stream, enum ph_step_kind kind, ph_event *event) {
    int status = ph_stream_usable(stream);
    if (status) return status;
    if (!stream->capture) return CUDA_ILLEGAL_STATE;
    add_node(stream, kind)->event = event;
    return CUDA_OK;
}

enum { EXTERNAL = 1 };

int ph_event_record_flags(ph_event *event, ph_stream *stream, unsigned flags) {
    if (flags & ~(unsigned)EXTERNAL) return CUDA_INVALID_VALUE;
    return flags ? add_external(stream, STEP_EVENT_RECORD, event) : ph_event_record(event, stream);
}

int ph_stream_wait_event_flags(ph_stream *stream, ph_event *event, unsigned flags) {
    if (flags & ~(unsigned)EXTERNAL) return CUDA_INVALID_VALUE;
    return flags ? add_external(stream, STEP_EVENT_WAIT, event) : ph_stream_wait_event(stream, event);
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

/* An event of a capture that has ended stands for nothing; the driver calls it an invalid value. */
int ph_captured_event(ph_event *event, bool invalidate) {
    if (!running(event)) return CUDA_INVALID_VALUE;
    if (invalidate) event->capture->invalid = true;
    return CUDA_CAPTURED_EVENT;
}

static bool enlist(ph_stream *stream, ph_capture *capture, int branch) {
    pthread_mutex_lock(&captures.lock);
    bool fits = captures.nmembers < (int)(sizeof captures.members / sizeof *captures.members);
    if (fits) {
        captures.members[captures.nmembers++] = stream;
        ph_captured_streams = captures.nmembers;
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

/* A wait that no capture can hold: both sides' captures are lost. */
static int refuse_wait(ph_stream *stream, ph_capture *capture, int status) {
    ph_capture_invalidate(stream);
    if (capture) capture->invalid = true;
    return status;
}

/* The stream or the event is part of a capture, or the event was. */
int ph_capture_wait(ph_stream *stream, ph_event *event) {
    ph_capture *capture = event->capture;
    if (!capture) return event->recording ? refuse_wait(stream, NULL, CUDA_CAPTURE_ISOLATION) : CUDA_OK;
    if (!running(event)) return CUDA_INVALID_VALUE;
    if (capture->invalid) return CUDA_CAPTURE_INVALIDATED;
    if (stream->legacy) return refuse_wait(stream, capture, CUDA_CAPTURE_IMPLICIT);
    if (stream->capture && stream->capture != capture) return refuse_wait(stream, capture, CUDA_CAPTURE_MERGE);
    int status = stream->capture ? CUDA_OK : join_capture(stream, capture);
    if (status) return status;
    ph_step *fork = capture->graph->steps[event->capture_slot];
    if (fork->branch != stream->branch) {
        ph_graph_add(capture->graph, STEP_JOIN, stream->branch)->fork = event->capture_slot;
        fork->joined = true;
    }
    add_tails(&capture->tails[stream->branch], fork->after, fork->nafter);
    return CUDA_OK;
}

/* ---- what a capture forbids
 * --------------------------------------------------------------------------------------------------- */

/* Invalidates the captures of all members for which that is so, and says whether there were any. */
static bool invalidate_where(bool (*concerns)(const ph_stream *member, int device), int device) {
    pthread_mutex_lock(&captures.lock);
    bool any = false;
    for (int i = 0; i < captures.nmembers; i++)
        if (concerns(captures.members[i], device)) any = captures.members[i]->capture->invalid = true;
    pthread_mutex_unlock(&captures.lock);
    return any;
}

static bool blocking_on(const ph_stream *member, int device) { return member->blocking && member->device == device; }
static bool on(const ph_stream *member, int device) { return member->device == device; }

/* By the captures' modes and the calling thread's own. */
static bool unsafe_here(const ph_stream *member, int unused) {
    (void)unused;
    const ph_capture *capture = member->capture;
    if (pthread_equal(capture->thread, pthread_self())) return capture->mode != MODE_RELAXED;
    return capture->mode == MODE_GLOBAL && ph_self()->capture_mode == MODE_GLOBAL;
}

int ph_capture_admits(ph_stream *stream) {
    if (stream->capture) return stream->capture->invalid ? CUDA_CAPTURE_INVALIDATED : CUDA_OK;
    return stream->legacy && invalidate_where(blocking_on, stream->device) ? CUDA_CAPTURE_IMPLICIT : CUDA_OK;
}

/* When watching threads look is up to this machine: they harm no capture. */
int ph_uncapturable(void) {
    if (LIKELY(!ph_captured_streams) || ph_self()->capture_mode == MODE_RELAXED || ph_thread_is_watcher())
        return CUDA_OK;
    return invalidate_where(unsafe_here, 0) ? CUDA_CAPTURE_UNSUPPORTED : CUDA_OK;
}

int ph_capture_encompassed(int device) {
    return !ph_thread_is_watcher() && invalidate_where(on, device) ? CUDA_CAPTURE_UNSUPPORTED : CUDA_OK;
}

/* ---- begin and end
 * -------------------------------------------------------------------------------------------------------------- */

int ph_capture_begin(ph_stream *stream, int mode) {
    int status = ph_device_usable();
    if (status) return status;
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED) return CUDA_INVALID_VALUE;
    if (stream->legacy) return CUDA_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ILLEGAL_STATE;
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

static bool in_capture(const ph_stream *member, const void *capture) { return member->capture == capture; }
static bool is_stream(const ph_stream *member, const void *stream) { return member == stream; }

static void discharge(bool (*goes)(const ph_stream *member, const void *what), const void *what) {
    pthread_mutex_lock(&captures.lock);
    int kept = 0;
    for (int i = 0; i < captures.nmembers; i++) {
        ph_stream *member = captures.members[i];
        if (goes(member, what))
            member->capture = NULL;
        else
            captures.members[kept++] = member;
    }
    ph_captured_streams = captures.nmembers = kept;
    pthread_mutex_unlock(&captures.lock);
}

bool ph_capture_leave(ph_stream *stream) {
    if (stream->capture->origin == stream) return false;
    discharge(is_stream, stream);
    return true;
}

static void dissolve(ph_capture *capture) {
    discharge(in_capture, capture);
    for (int branch = 0; branch < capture->graph->nbranches; branch++) free(capture->tails[branch].steps);
    free(capture->tails);
    free(capture);
}

int ph_capture_end(ph_stream *stream, ph_graph **out) {
    *out = NULL;
    ph_capture *capture = stream->capture;
    if (!capture) return CUDA_ILLEGAL_STATE;
    if (capture->origin != stream) {
        capture->invalid = true;
        return CUDA_CAPTURE_UNMATCHED;
    }
    bool wrong_thread = capture->mode != MODE_RELAXED && !pthread_equal(capture->thread, pthread_self());
    int status = wrong_thread          ? CUDA_CAPTURE_WRONG_THREAD
                 : capture->invalid    ? CUDA_CAPTURE_INVALIDATED
                 : all_joined(capture) ? CUDA_OK
                                       : CUDA_CAPTURE_UNJOINED;
    if (status == CUDA_OK) *out = capture->graph;
    ph_graph *graph = capture->graph;
    dissolve(capture);
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
    if (status) *status = stream ? status_of(stream) : CAPTURE_NONE;
    if (id) *id = capture ? capture->id : 0;
    if (graph) *graph = capture ? capture->graph : NULL;
    if (dependencies) *dependencies = capture ? (void **)capture->tails[stream->branch].steps : NULL;
    if (edges) *edges = NULL;
    if (n) *n = capture ? capture->tails[stream->branch].n : 0;
    return stream ? CUDA_OK : CUDA_INVALID_HANDLE;
}
