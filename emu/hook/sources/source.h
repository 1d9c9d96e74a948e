/*
 * sources/: where the bytes of device memory come from, for those that are not there. Large data moves no bytes: a
 * range of device memory refers to a source, from which the bytes are made when somebody reads them.
 *
 *   source.c       sources: a constant, bytes of the store, or what emu's Python side computes
 *   source_map.c   which range of device memory refers to which part of a source
 *   store.c        bytes that programs gave to the device, once for all ranks
 *
 * Comes in: copies and fills from data/, numbers of computations from emu/control. Goes out: bytes for data/.
 */
#ifndef PHANTORA_SOURCE_H
#define PHANTORA_SOURCE_H

#include "core/base.h"

/* Bytes that never change. They may be read on any thread. */
typedef struct ph_source ph_source;

/* `item` bytes again and again, 1 to 16 of them. */
ph_source *ph_source_constant(const void *item, size_t item_nbytes);
/* A copy of the bytes; NULL if there is no room. */
ph_source *ph_source_copy(const void *bytes, size_t nbytes);
/* What Python's function computes for this number, see phantora_source_given. `depth`: one more than that of the
 * sources that it is computed from; 0 for others. */
ph_source *ph_source_computed(uint64_t number, size_t nbytes, int depth);
int ph_source_depth(const ph_source *source); /* 0 once it has been computed */

ph_source *ph_source_hold(ph_source *source); /* one more reference */
void ph_source_release(ph_source *source);
/* Writes a part of the bytes to `dst`, in host or device memory. False if they cannot be had. */
bool ph_source_read(ph_source *source, uint64_t offset, size_t nbytes, void *dst);

#endif
