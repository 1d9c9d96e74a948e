/* Kernels and copies on a stream. */
#ifndef PHANTORA_LAUNCH_H
#define PHANTORA_LAUNCH_H

#include "streams/stream.h"

/* A kernel or library call on the stream, by its signature: `key`, `describe` and `what` as ph_cost_of takes them. Its
 * cost is looked up, and it is launched. Charging the host is up to the caller. */
void ph_launch_work(ph_stream *stream, uint64_t key, ph_describe describe, const void *what);
/* One kernel or copy of this cost on the stream: folded into its open segment, or into the graph being captured. Counts
 * a launch; charging the host is up to the caller. */
void ph_launch(ph_stream *stream, const ph_cost *cost);
/* ph_launch that is executed now, also while the stream is being captured. queued: does it take a place of its own in
 * the launch queue? */
void ph_launch_now(ph_stream *stream, const ph_cost *cost, bool queued);
/* The stream is busy for that time with something that is neither a kernel nor a copy. */
void ph_stream_occupy(ph_stream *stream, uint64_t for_ns);

#endif
