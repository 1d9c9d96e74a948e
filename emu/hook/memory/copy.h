/* Copies and sets: their time on the stream, their bytes, and where the host waits for them. */
#ifndef PHANTORA_COPY_H
#define PHANTORA_COPY_H

#include "streams/stream.h"

int ph_copy(void *dst, const void *src, size_t nbytes, int kind, ph_stream *stream, bool async);
int ph_copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height, int kind,
               ph_stream *stream, bool async);
int ph_set(void *dst, int value, size_t nbytes, ph_stream *stream, bool async);
int ph_set_time(size_t nbytes, ph_stream *stream); /* a set's time without its bytes */

#endif
