/* Waits of the host for the device, and questions whether it is done. */
#ifndef PHANTORA_WAIT_H
#define PHANTORA_WAIT_H

#include "streams/event.h"
#include "streams/stream.h"

int ph_stream_synchronize(ph_stream *stream);
int ph_device_synchronize(int device);
/* These two ignore captures: for calls that wait as a part of what they do. */
void ph_stream_wait(ph_stream *stream);
void ph_device_wait(int device);
/* Waits for what the event has recorded last. */
void ph_recording_synchronize(const ph_event *event);
int ph_stream_query(ph_stream *stream);
/* Is the work of a stream, or up to a recording, done? CUDA_OK or CUDA_NOT_READY. */
int ph_query(uint32_t scope, uint32_t stream, uint64_t recording);
/* ... so long ago at least? */
int ph_query_since(uint64_t recording, uint64_t since_ns);
/* Answers callers that only want to know whether it is so: data that is on its way is not waited for. */
bool ph_done_since(uint64_t recording, uint64_t since_ns);
/* Work is known to be complete: whoever waits for it may go on. Returns CUDA_OK. */
int ph_found_done(void);
/* For a thread that only looks on: is the event done, as far as is known? */
bool ph_event_seems_done(const ph_event *event);

#endif
