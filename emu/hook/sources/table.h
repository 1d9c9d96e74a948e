/* The sources of a range as bytes that any rank can read. See table.c. */
#ifndef PHANTORA_TABLE_H
#define PHANTORA_TABLE_H

#include "sources/source_map.h"

/* `start` and `end` of the pieces count from the range's start. NULL if there is nothing to tell. The caller frees it.
 */
unsigned char *ph_table_write(const ph_piece *pieces, size_t n, size_t *nbytes);
/* The pieces that a table tells, in order, and their number; see ph_pieces_free. */
size_t ph_table_read(const unsigned char *table, size_t nbytes, ph_piece **out);

#endif
