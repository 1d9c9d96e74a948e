/* See alloc.h. */
#include "core/alloc.h"
#include "core/run.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 16 };

void *ph_allocate(size_t nbytes) {
    void *p = calloc(1, nbytes ? nbytes : 1);
    if (!p) ph_die("out of host memory: %zu bytes are needed", nbytes);
    return p;
}

void *ph_reallocate(void *old, size_t nbytes) {
    void *p = realloc(old, nbytes);
    if (!p) ph_die("out of host memory: %zu bytes are needed", nbytes);
    return p;
}

void *ph_room_for_one(void *array, size_t n, size_t *capacity, size_t item_nbytes) {
    if (n < *capacity) return array;
    *capacity = *capacity ? *capacity * 2 : FIRST_CAPACITY;
    return ph_reallocate(array, *capacity * item_nbytes);
}
