/* Ranges of pinned host memory: allocated by the library, or registered by the program. */
#ifndef PHANTORA_PINNED_H
#define PHANTORA_PINNED_H

#include "core/base.h"

/* Adds a range. Returns false if it overlaps another range. */
bool ph_pinned_add(void *start, size_t nbytes, bool registered);
/* The current device of the thread that added the range which begins there; -1: there is none. */
int ph_pinned_device(const void *start, bool registered);
bool ph_pinned_remove(const void *start, bool registered);

bool ph_host_range_of(const void *p, void **start, size_t *nbytes);
bool ph_host_pinned(const void *p);

/* For emu's Python side: the range that holds the address. Returns its bytes, and its start in *start; 0: no range
 * does. */
uint64_t phantora_host_range(uint64_t address, uint64_t *start);

#endif
