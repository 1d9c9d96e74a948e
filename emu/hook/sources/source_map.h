/* Which range of device memory refers to which part of a source. */
#ifndef PHANTORA_SOURCE_MAP_H
#define PHANTORA_SOURCE_MAP_H

#include "sources/source.h"

/* How often bytes of device memory have become known or assumed, came to refer to a source, or will when a pending
 * write is done. */
extern _Atomic(uint64_t) ph_data_marks;

typedef struct ph_piece {
    uintptr_t start, end;
    ph_source *source;
    uint64_t offset; /* of `start` in the source */
} ph_piece;

/* From now on the range refers to the source, whose reference passes to the map, from this offset on. */
void ph_sources_put(const void *start, size_t nbytes, ph_source *source, uint64_t offset);
/* The range refers to nothing any more. One atomic load if nothing refers to any source. */
void ph_sources_cut(const void *start, size_t nbytes);
/* The pieces of the range, in order, and their number. Each has a reference: see ph_pieces_free. */
size_t ph_sources_list(const void *start, size_t nbytes, ph_piece **out);
void ph_pieces_free(ph_piece *pieces, size_t n);
/* Does a part of the range refer to a source? One atomic load if nothing does. */
bool ph_sources_touch(const void *start, size_t nbytes);

#endif
