/* The rank's host clock: one for all of its threads. */
#ifndef PHANTORA_HOST_H
#define PHANTORA_HOST_H

#include "core/base.h"

typedef enum {
    PH_CALL_QUERY,
    PH_CALL_LAUNCH,
    PH_CALL_MEMCPY,
    PH_CALL_EVENT,
    PH_CALL_SYNC,
    PH_CALL_ALLOC,
    PH_CALL_LIBRARY,
    PH_CALL_NCCL
} ph_call_kind;

/* Every emulated call names its kind once; advances the host clock of this rank (not on threads of torch that only
 * watch). */
void ph_host_call(ph_call_kind kind);
void ph_host_op(void);
void ph_host_advance(uint64_t ns);
uint64_t ph_host_clock(void);
/* Is the calling thread's work not the program's on a cluster? See phantora_uncounted. */
bool ph_uncounted(void);
void ph_host_reset(void);
/* The virtual time last heard of, plus the host time since: never asks. */
uint64_t ph_clock_estimate(void);

#endif
