/* The streams that are being captured, and what that forbids. What a capture records is up to graphs/. */
#ifndef PHANTORA_CAPTURING_H
#define PHANTORA_CAPTURING_H

#include "device/device.h"
#include "streams/event.h"

#include <pthread.h>
#include <stdatomic.h>

enum { PH_CAPTURE_GLOBAL = 0, PH_CAPTURE_RELAXED = 2 };

typedef struct ph_capture {
    uint64_t id;
    int mode;
    bool invalid;
    ph_stream *origin;
    pthread_t thread; /* that began it */
} ph_capture;

/* Functions that take the place of calls on a stream of a capture; `wait` also if only the event is of one. Set by
 * graphs/. */
extern struct ph_capture_functions {
    void (*launch)(ph_stream *stream, const ph_cost *cost);
    void (*event)(ph_stream *stream, ph_event *event);
    int (*wait)(ph_stream *stream, ph_event *event);
    void (*host_function)(ph_stream *stream, void (*function)(void *), void *arg);
} ph_capture_functions;

/* Makes the stream a member of the capture. False if there are too many. */
bool ph_capture_enlist(ph_stream *stream, ph_capture *capture, int branch);
/* The stream is about to be destroyed. False if it is the origin of its capture. */
bool ph_capture_leave(ph_stream *stream);
/* The capture has no members any more. */
void ph_capture_dismiss(const ph_capture *capture);
/* The latest of the captures that this thread has begun and that are going on, or NULL. */
ph_capture *ph_capture_of_thread(void);
/* Is the capture that the event was recorded in still going on? */
bool ph_capture_running(const ph_event *event);
void ph_capture_invalidate(ph_stream *stream);

/* The following functions return an error if a capture forbids the call, and invalidate the captures concerned. */
extern atomic_int ph_captured_streams; /* emu/control reads it, too */
/* Returns the status for calls that give work to the stream. */
int ph_capture_admits(ph_stream *stream);
/* Returns the status for potentially unsafe calls, which a capture cannot record: allocations, and waits for and
 * queries of work that is not captured. */
int ph_uncapturable(void);
/* Returns the status for calls that wait for all of a device. */
int ph_capture_encompassed(int device);
/* Returns the status for calls on an event whose last record is in a capture: never CUDA_OK. */
int ph_captured_event(ph_event *event, bool invalidate);
static inline int ph_stream_usable(ph_stream *stream) {
    int status = ph_device_usable();
    return LIKELY(!ph_captured_streams) || status ? status : ph_capture_admits(stream);
}

#endif
