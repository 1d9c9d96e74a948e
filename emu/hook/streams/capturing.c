/*
 * Which streams are members of a capture, and what a capture forbids.
 *
 * Which calls are forbidden, and whether they invalidate the capture, follows CUDA's programming guide ("Prohibited and
 * unhandled operations", "Invalidation") and the modes of cudaThreadExchangeStreamCaptureMode. Where these do not say
 * which calls are meant or which error they return, this code does what driver 580 did on an H100.
 */
#include "streams/capturing.h"
#include "core/lock.h"
#include "cuda/types.h"
#include "threads/thread.h"

#include <pthread.h>
#include <stdatomic.h>

struct ph_capture_functions ph_capture_functions;

static struct {
    ph_stream *members[256]; /* of all captures that are going on */
    int nmembers;
} captures;
PH_EXPORT atomic_int ph_captured_streams; /* equal to captures.nmembers, to be read without the lock */

/* ---- members ----------------------------------------------------------------------------------------------------- */

bool ph_capture_enlist(ph_stream *stream, ph_capture *capture, int branch) {
    ph_lock(PH_LOCK_CAPTURES);
    bool fits = captures.nmembers < (int)(sizeof captures.members / sizeof *captures.members);
    if (fits) {
        captures.members[captures.nmembers++] = stream;
        ph_captured_streams = captures.nmembers;
        stream->capture = capture;
        stream->branch = branch;
    }
    ph_unlock(PH_LOCK_CAPTURES);
    return fits;
}

bool ph_capture_running(const ph_event *event) {
    ph_lock(PH_LOCK_CAPTURES);
    bool found = false;
    for (int i = 0; i < captures.nmembers && !found; i++)
        found = captures.members[i]->capture == event->capture && event->capture->id == event->capture_id;
    ph_unlock(PH_LOCK_CAPTURES);
    return found;
}

ph_capture *ph_capture_of_thread(void) {
    ph_capture *found = NULL;
    ph_lock(PH_LOCK_CAPTURES);
    for (int i = 0; i < captures.nmembers; i++)
        if (pthread_equal(captures.members[i]->capture->thread, pthread_self())) found = captures.members[i]->capture;
    ph_unlock(PH_LOCK_CAPTURES);
    return found;
}

static bool in_capture(const ph_stream *member, const void *capture) { return member->capture == capture; }
static bool is_stream(const ph_stream *member, const void *stream) { return member == stream; }

static void remove_members(bool (*goes)(const ph_stream *member, const void *what), const void *what) {
    ph_lock(PH_LOCK_CAPTURES);
    int kept = 0;
    for (int i = 0; i < captures.nmembers; i++) {
        ph_stream *member = captures.members[i];
        if (goes(member, what))
            member->capture = NULL;
        else
            captures.members[kept++] = member;
    }
    ph_captured_streams = captures.nmembers = kept;
    ph_unlock(PH_LOCK_CAPTURES);
}

bool ph_capture_leave(ph_stream *stream) {
    if (stream->capture->origin == stream) return false;
    remove_members(is_stream, stream);
    return true;
}

void ph_capture_dismiss(const ph_capture *capture) { remove_members(in_capture, capture); }

/* ---- what a capture forbids -------------------------------------------------------------------------------------- */

/* Invalidates the captures of all members that the call concerns. Returns whether there are any. */
static bool invalidate_where(bool (*concerns)(const ph_stream *member, int device), int device) {
    ph_lock(PH_LOCK_CAPTURES);
    bool any = false;
    for (int i = 0; i < captures.nmembers; i++)
        if (concerns(captures.members[i], device)) any = captures.members[i]->capture->invalid = true;
    ph_unlock(PH_LOCK_CAPTURES);
    return any;
}

static bool blocking_on(const ph_stream *member, int device) { return member->blocking && member->device == device; }
static bool on(const ph_stream *member, int device) { return member->device == device; }

/* Does the member's capture forbid potentially unsafe calls on this thread? Depends on the modes of both. */
static bool unsafe_here(const ph_stream *member, int unused) {
    (void)unused;
    const ph_capture *capture = member->capture;
    if (pthread_equal(capture->thread, pthread_self())) return capture->mode != PH_CAPTURE_RELAXED;
    return capture->mode == PH_CAPTURE_GLOBAL && ph_self()->capture_mode == PH_CAPTURE_GLOBAL;
}

int ph_capture_admits(ph_stream *stream) {
    if (stream->capture) return stream->capture->invalid ? CUDA_CAPTURE_INVALIDATED : CUDA_OK;
    return stream->legacy && invalidate_where(blocking_on, stream->device) ? CUDA_CAPTURE_IMPLICIT : CUDA_OK;
}

/* Watching threads run in real time, so their calls must not invalidate captures. */
int ph_uncapturable(void) {
    if (LIKELY(!ph_captured_streams) || ph_self()->capture_mode == PH_CAPTURE_RELAXED || ph_thread_is_watcher())
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

void ph_capture_invalidate(ph_stream *stream) {
    if (stream->capture) stream->capture->invalid = true;
}
