/* What a copy or a set does to bytes, at once. For the files of data/. */
#ifndef PHANTORA_MOVES_H
#define PHANTORA_MOVES_H

#include "sources/source.h"

void ph_move_set(void *dst, int value, size_t nbytes);
/* `large`: to the device, and too large to write bytes there. */
void ph_move_copy(void *dst, const void *src, size_t nbytes, bool large);
/* The range refers to the source, whose reference passes on, from an offset on; NULL: it becomes unknown. */
void ph_move_refer(void *dst, ph_source *source, uint64_t offset, size_t nbytes);

#endif
