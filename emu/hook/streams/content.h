/* What a segment consists of, for a run that wants to know: the keys of its launches, told once for each combination.
 */
#ifndef PHANTORA_CONTENT_H
#define PHANTORA_CONTENT_H

#include "streams/stream.h"

/* A segment has at most so many launches. */
enum { PH_SEGMENT_LAUNCHES = 256 };

/* Under the record lock. Launch number `stream->launches` of the stream's open segment has this key. */
void ph_content_add(ph_stream *stream, uint64_t key);
/* Under the record lock: the number of the open segment's content, which has been told; 0: too many are different. */
uint64_t ph_content_of(const ph_stream *stream);

#endif
