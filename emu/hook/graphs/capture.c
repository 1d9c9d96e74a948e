/*
 * Stream capture: begin and end, the streams that are members of a capture, and what a capture forbids.
 *
 * A stream that waits for an event of the capture becomes a member, as a branch of its own. When the capture ends, its
 * origin must have waited for every branch.
 *
 * Which calls are forbidden, and whether they invalidate the capture, follows CUDA's programming guide ("Prohibited and
 * unhandled operations", "Invalidation") and the modes of cudaThreadExchangeStreamCaptureMode. Where these do not say
 * which calls are meant or which error they return, this code does what driver 580 did on an H100.
 */
#include "graphs/capture.h"
#include "core/alloc.h"
#include "core/cuda_types.h"
#include "graphs/graph.h"
#include "process/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    uint64_t last_id;
    ph_stream *members[256]; /* of all captures that are going on */
    int nmembers;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};
PH_EXPORT atomic_int ph_captured_streams; /* equal to captures.nmembers, to be read without the lock */

enum { MODE_GLOBAL = 0, MODE_RELAXED = 2 };

/* ---- members ----------------------------------------------------------------------------------------------------- */

bool ph_capture_enlist(ph_stream *stream, ph_capture *capture, int branch) {
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

bool ph_capture_running(const ph_event *event) {
    pthread_mutex_lock(&captures.lock);
    bool found = false;
    for (int i = 0; i < captures.nmembers && !found; i++)
        found = captures.members[i]->capture == event->capture && event->capture->id == event->capture_id;
    pthread_mutex_unlock(&captures.lock);
    return found;
}

ph_capture *ph_capture_of_thread(void) {
    ph_capture *found = NULL;
    pthread_mutex_lock(&captures.lock);
    for (int i = 0; i < captures.nmembers; i++)
        if (pthread_equal(captures.members[i]->capture->thread, pthread_self())) found = captures.members[i]->capture;
    pthread_mutex_unlock(&captures.lock);
    return found;
}

/* ---- what a capture forbids -------------------------------------------------------------------------------------- */

/* Invalidates the captures of all members that the call concerns. Returns whether there are any. */
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

/* Does the member's capture forbid potentially unsafe calls on this thread? Depends on the modes of both. */
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

/* Watching threads run in real time, so their calls must not invalidate captures. */
int ph_uncapturable(void) {
    if (LIKELY(!ph_captured_streams) || ph_self()->capture_mode == MODE_RELAXED || ph_thread_is_watcher())
        return CUDA_OK;
    return invalidate_where(unsafe_here, 0) ? CUDA_CAPTURE_UNSUPPORTED : CUDA_OK;
}

int ph_capture_encompassed(int device) {
    return !ph_thread_is_watcher() && invalidate_where(on, device) ? CUDA_CAPTURE_UNSUPPORTED : CUDA_OK;
}

/* The driver returns an invalid value for an event whose capture has ended. */
int ph_captured_event(ph_event *event, bool invalidate) {
    if (!ph_capture_running(event)) return CUDA_INVALID_VALUE;
    if (invalidate) event->capture->invalid = true;
    return CUDA_CAPTURED_EVENT;
}

/* ---- begin and end ----------------------------------------------------------------------------------------------- */

int ph_capture_begin(ph_stream *stream, int mode) {
    int status = ph_device_usable();
    if (status) return status;
    if (mode < MODE_GLOBAL || mode > MODE_RELAXED) return CUDA_INVALID_VALUE;
    if (stream->legacy) return CUDA_CAPTURE_UNSUPPORTED;
    if (stream->capture) return CUDA_ILLEGAL_STATE;
    ph_capture *capture = ph_allocate(sizeof *capture);
    ph_tails *tails = ph_allocate(sizeof *tails);
    *capture = (ph_capture){.id = __atomic_add_fetch(&captures.last_id, 1, __ATOMIC_RELAXED),
                            .mode = mode,
                            .graph = ph_graph_new(stream->device),
                            .origin = stream,
                            .tails = tails,
                            .thread = pthread_self()};
    return ph_capture_enlist(stream, capture, 0) ? CUDA_OK : CUDA_CAPTURE_UNSUPPORTED;
}

void ph_capture_invalidate(ph_stream *stream) {
    if (stream->capture) stream->capture->invalid = true;
}

static bool all_joined(const ph_capture *capture) {
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

static bool in_capture(const ph_stream *member, const void *capture) { return member->capture == capture; }
static bool is_stream(const ph_stream *member, const void *stream) { return member == stream; }

static void remove_members(bool (*goes)(const ph_stream *member, const void *what), const void *what) {
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
    remove_members(is_stream, stream);
    return true;
}

static void free_capture(ph_capture *capture) {
    remove_members(in_capture, capture);
    for (int branch = 0; branch < capture->graph->nbranches; branch++) free(capture->tails[branch].items);
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
    free_capture(capture);
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
    if (dependencies) *dependencies = capture ? (void **)capture->tails[stream->branch].items : NULL;
    if (edges) *edges = NULL;
    if (n) *n = capture ? capture->tails[stream->branch].n : 0;
    return stream ? CUDA_OK : CUDA_INVALID_HANDLE;
}
