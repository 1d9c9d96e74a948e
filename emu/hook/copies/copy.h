/*
 * copies/: copies and sets (copy), and pinned host memory (host_memory), which makes them fast.
 * Comes in: calls of the API folders. Goes out: launches to streams/, bytes to data/.
 *
 * This header: their time on the stream, their bytes, and where the host waits for them.
 */
#ifndef PHANTORA_COPY_H
#define PHANTORA_COPY_H

#include "streams/stream.h"

int ph_copy(void *dst, const void *src, size_t nbytes, int kind, ph_stream *stream, bool async);
int ph_copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height, int kind,
               ph_stream *stream, bool async);
int ph_set(void *dst, int value, size_t nbytes, ph_stream *stream, bool async);
int ph_set_time(size_t nbytes, ph_stream *stream); /* a set's time without its bytes */

/* ---- host_memory.c: pinned host memory, allocated by the library or registered by the program ---------------------
 */
int ph_host_alloc(void **out, size_t nbytes);
int ph_host_free(void *p);
int ph_host_register(void *p, size_t nbytes);
int ph_host_unregister(void *p);

#endif
