/*
 * op_stream/: what a rank states, in order. Facts and questions, with their instants (emit); launches of one stream
 * fold into its open segment (segment), whose contents may be told (content); how often each signature was launched
 * (launch_counts); virtual time, asked for (clock); messages to the user (warn); entries for traces (trace).
 * Comes in: launches and records of all folders above. Goes out: these records, with instants, to channel/; the records
 * SEGMENT, SEGMENT_CONTENT, LAUNCH_COUNTS, COUNTERS, HOST_ADVANCE, WARNING, TRACE and TRACE_NAME, the question
 * CLOCK_READ.
 *
 * This header: launches of one stream fold into its open segment until another record closes it.
 */
#ifndef PHANTORA_SEGMENT_H
#define PHANTORA_SEGMENT_H

#include "core/base.h"

/* A segment has at most so many launches. */
enum { PH_SEGMENT_LAUNCHES = 256 };

/* The open segment of a stream, under the record lock. */
typedef struct ph_segment {
    uint32_t launches; /* 0: none is open */
    uint32_t stream;
    uint32_t queued; /* places that the launches take in the launch queue */
    bool copies;     /* from or to the host or another GPU; a segment has either these or other work */
    uint64_t first_ns, solo_ns, contended_ns, tail_ns, tail_work_ns; /* see SEGMENT in records.def */
    uint64_t *keys;                                                  /* of its launches, if the run wants to know */
    struct ph_segment *next_open;
} ph_segment;

/* Under the record lock: a kernel or copy on the stream. queued: does it take a place of its own in the launch queue?
 * key 0: the stream is merely occupied. */
typedef struct ph_folded {
    uint64_t key, solo_ns, contended_ns;
    bool queued, copies;
} ph_folded;
void ph_fold(ph_segment *segment, uint32_t stream, ph_folded launch);
/* Under the record lock: closes all open segments, in order of their first launch. */
void ph_close_segments(void);
bool ph_segments_open(void);

/* ---- content.c: what segments consist of, for a run that wants to know. Under the record lock -------------------- */
/* Launch number `segment->launches` of the open segment has this key. */
void ph_content_add(ph_segment *segment, uint64_t key);
/* The number of the open segment's content: the keys of its launches, told once for each combination; 0: too many are
 * different. */
uint64_t ph_content_of(const ph_segment *segment);

#endif
