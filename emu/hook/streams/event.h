/* Events, and their recordings: each cudaEventRecord makes a new one. */
#ifndef PHANTORA_EVENT_H
#define PHANTORA_EVENT_H

#include "streams/stream.h"

enum { PH_EVENT_MAGIC = 0x45564e54 };

typedef struct ph_event ph_event;
struct ph_event {
    uint32_t magic;
    unsigned flags;
    uint64_t recording;         /* 0: never recorded since the rank's start */
    bool recorded;              /* at any time, also before the start */
    uint64_t host_ns, clock_ns; /* when it was recorded: by the host clock, and by ph_clock_estimate */
    int device;
    uint32_t stream_id;
    uint64_t position;          /* ph_position of the last recording */
    uint64_t traced;            /* ph_trace_recorded of the last recording */
    struct ph_capture *capture; /* if its last record is in a capture: which, and the FORK item's index */
    uint64_t capture_id;
    int capture_slot;
    ph_event *next_retired;
    struct ph_watch *watch;           /* if a watchdog queries it; these fields are watch.c's */
    bool watch_visible, watch_waited; /* the watchdog may see it done; a stream of the program waits for it */
    bool watch_first;                 /* the collective is the first one on one of its blocks */
    uint64_t watch_host_waits;        /* of the host for the GPU until the record */
    ph_event *watch_next;
};

int ph_event_create(unsigned flags, ph_event **out);
int ph_event_destroy(ph_event *event);
int ph_event_record(ph_event *event, ph_stream *stream);
int ph_stream_wait_event(ph_stream *stream, ph_event *event);
int ph_event_query(ph_event *event);
/* Answers an allocator, which gives a block away when its event is complete. So that memory is what it is at most,
 * the host took the least time since the record that hosts of its kind take. */
int ph_event_query_late(ph_event *event);
int ph_event_synchronize(ph_event *event);
int ph_event_elapsed(float *ms, ph_event *start, ph_event *end);

/* Under the record lock: makes a recording on the stream (dropping another one, if not 0); makes a stream wait for one;
 * drops one. */
uint64_t ph_record_on(ph_stream *stream, uint64_t drop);
void ph_recordings_number_from(uint64_t first);
/* Under the record lock. */
uint64_t ph_last_recording(void);
void ph_recording_wait(ph_stream *stream, uint64_t recording);
void ph_recording_drop(uint64_t recording);

#endif
