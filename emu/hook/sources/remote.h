/* The messages by which members of a collective tell each other about the sources of their inputs. See remote.c. */
#ifndef PHANTORA_REMOTE_H
#define PHANTORA_REMOTE_H

#include "sources/source_map.h"

/* The pieces of this member's input, `start` and `end` counted from its start. Before the record of the call. They are
 * kept for the others; the caller still owns them. `place`: this member, of a send: the receiver. */
void ph_remote_tell_later(const ph_remote *where); /* and then, at any time: */
void ph_remote_tell(const ph_remote *where, const ph_piece *pieces, size_t n);

/* The messages of the members about one member's output. */
typedef struct ph_told ph_told;
/* Blocks until all members whose inputs matter have made the call. */
ph_told *ph_remote_ask(const ph_remote *where);
/* Reads the output. Returns false if some bytes cannot be had: these are 0. */
bool ph_told_read(const ph_told *told, uint64_t offset, size_t nbytes, void *dst);
/* Adds what these bytes of the output refer to, whose first one is `at` to the list. */
void ph_told_list(const ph_told *told, uint64_t offset, size_t nbytes, uintptr_t at, ph_pieces *out);
void ph_told_free(ph_told *told);

#endif
