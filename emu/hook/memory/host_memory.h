/* Pinned host memory: allocated by the library or registered by the program. */
#ifndef PHANTORA_HOST_MEMORY_H
#define PHANTORA_HOST_MEMORY_H

#include "core/base.h"

int ph_host_alloc(void **out, size_t nbytes);
int ph_host_free(void *p);
int ph_host_register(void *p, size_t nbytes);
int ph_host_unregister(void *p);
bool ph_host_range_of(const void *p, void **start, size_t *nbytes);
bool ph_host_pinned(const void *p);

#endif
