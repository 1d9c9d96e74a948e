/* The elements of a tensor as runs of bytes without gaps. */
#ifndef PHANTORA_STRIDED_H
#define PHANTORA_STRIDED_H

#include "core/base.h"

enum { PH_MAX_DIMS = 64 };

/* `inner` bytes at every combination of the outer dimensions, in the order of memory. */
typedef struct ph_runs {
    const char *start;
    size_t inner;
    int nouter;
    int64_t size[PH_MAX_DIMS], stride[PH_MAX_DIMS], at[PH_MAX_DIMS]; /* strides in bytes */
} ph_runs;

/* The first run; false if there are no elements. Strides count elements of `item` bytes. */
bool ph_runs_begin(ph_runs *r, uint64_t address, int64_t item, int ndims, const int64_t *sizes, const int64_t *strides);
/* The next one; false after the last. */
bool ph_runs_next(ph_runs *r);

#endif
