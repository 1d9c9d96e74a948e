/* The op stream: launches of one stream fold into its open segment until another record closes it. */
#ifndef PHANTORA_SEGMENT_H
#define PHANTORA_SEGMENT_H

#include "streams/stream.h"

/* One kernel or copy on the stream: folded into its open segment, or into the graph being captured. Counts a launch;
 * charging the host is up to the caller. */
void ph_launch(ph_stream *stream, const ph_cost *cost);
/* The same, whatever is being captured. queued: does it take a place of its own in the launch queue? */
void ph_launch_now(ph_stream *stream, const ph_cost *cost, bool queued);
/* The stream is busy for that time with something that is neither a kernel nor a copy. */
void ph_stream_occupy(ph_stream *stream, uint64_t for_ns);

/* Under the record lock: closes all open segments, in order of their first launch. */
void ph_close_segments(void);
bool ph_segments_open(void);
uint64_t ph_launch_count(void);

#endif
