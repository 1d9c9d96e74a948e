/* Host memory that must be there: an emulated call has no error for its lack, so the process ends with a message. */
#ifndef PHANTORA_ALLOC_H
#define PHANTORA_ALLOC_H

#include <stddef.h>

void *ph_allocate(size_t nbytes); /* filled with zeros */
void *ph_reallocate(void *old, size_t nbytes);
/* An array of n items: returns it with room for one more, doubled where it was full. */
void *ph_room_for_one(void *array, size_t n, size_t *capacity, size_t item_nbytes);

#endif
