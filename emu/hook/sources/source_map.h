/* The map of device memory: which range refers to which part of a source. */
#ifndef PHANTORA_SOURCE_MAP_H
#define PHANTORA_SOURCE_MAP_H

#include "sources/source.h"

/* Counts how often bytes of device memory have become known or assumed, came to refer to a source, or will when a
 * pending write is done. */
extern _Atomic(uint64_t) ph_data_marks;

typedef struct ph_piece {
    uintptr_t start, end;
    ph_source *source;
    uint64_t offset; /* of `start` in the source */
} ph_piece;

typedef struct ph_pieces {
    ph_piece *all;
    size_t n, capacity;
} ph_pieces;
void ph_pieces_add(ph_pieces *to, ph_piece piece); /* whose reference passes on */
/* Gives these bytes without references to collectives; false: some refer to nothing then. */
bool ph_pieces_resolve(const ph_piece *pieces, size_t n, ph_pieces *out);

/* From now on the range refers to the source, whose reference passes to the map, from this offset on. */
void ph_sources_put(const void *start, size_t nbytes, ph_source *source, uint64_t offset);
/* The range refers to nothing any more. One atomic load if nothing refers to any source. */
void ph_sources_cut(const void *start, size_t nbytes);
/* The pieces of the range, in order, and their number. Each has a reference: see ph_pieces_free. */
size_t ph_sources_list(const void *start, size_t nbytes, ph_piece **out);
void ph_pieces_free(ph_piece *pieces, size_t n);
/* Does a part of the range refer to a source? One atomic load if nothing does. */
bool ph_sources_touch(const void *start, size_t nbytes);

/* ---- host_pages.c: host memory whose pages are filled when somebody reads them ---- */
/* The range gets the bytes that these pieces, which cover it in order, refer to: at once only where it shares a page
 * with others. False if this memory or this machine does not allow it; then the range's bytes are undefined. */
bool ph_host_pages_give(unsigned char *dst, size_t nbytes, const ph_piece *pieces, size_t n);
/* Lists the parts of the range that nobody has read or written since, in order, as ph_sources_list. */
size_t ph_host_pages_list(const void *start, size_t nbytes, ph_piece **out);
/* Counts reads of such pages whose values could not be had. */
void ph_host_pages_count(void);
/* Are called around a fork, under the library's locks. */
void ph_host_pages_before_fork(void);
void ph_host_pages_in_child(void);

#endif
