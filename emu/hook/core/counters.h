/* What this rank has done so far: the totals of a COUNTERS record. */
#ifndef PHANTORA_COUNTERS_H
#define PHANTORA_COUNTERS_H

#include "core/base.h"

#include <stdatomic.h>

typedef struct ph_counters {
    atomic_uint_fast64_t api_calls, ops, unmodelled_reads, refused_calls;
    /* under the record lock */
    uint64_t launches;
    double flops;
} ph_counters;
extern ph_counters ph_counts;

void ph_emit_counters(void);
/* The program was given device memory that nothing modelled wrote. */
void ph_count_unmodelled_read(void);

#endif
