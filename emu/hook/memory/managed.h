/* Managed memory: addresses that host and device use. */
#ifndef PHANTORA_MANAGED_H
#define PHANTORA_MANAGED_H

#include "core/base.h"

int ph_managed_alloc(void **out, size_t nbytes);
/* CUDA_INVALID_VALUE if no managed allocation begins there. */
int ph_managed_free(void *p);
/* The allocation that an address lies in. */
bool ph_managed_range(const void *p, void **start, size_t *nbytes);

#endif
