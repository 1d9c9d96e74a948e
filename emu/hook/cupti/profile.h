/*
 * The script's own profiler: what it asks CUPTI for. Entries of the trace are kept here with the processor's
 * time stamp counter, by which PyTorch times its ops. The coordinator tells where each lies in virtual time; with that,
 * activities are told and time stamps become virtual time. Comes in: entries from op_stream/, answers. Goes out:
 * activities.
 */
#ifndef PHANTORA_PROFILE_H
#define PHANTORA_PROFILE_H

#include "core/records.h"
#include "core/base.h"

enum { PH_EXTERNAL_KINDS = 2 };
#define PH_VIRTUAL_TIME (1ull << 63) /* in place of a time stamp: Unix time that is virtual already */

/* One kernel, copy, fill or API call that is complete. */
typedef struct ph_activity {
    uint32_t what; /* PH_TRACE_LAUNCH, PH_TRACE_NCCL or PH_TRACE_CALL */
    uint32_t correlation, thread, device, stream;
    uint64_t start_ns, end_ns; /* virtual time */
    /* of a call */
    uint32_t kind;
    const char *name;
    uint64_t external[PH_EXTERNAL_KINDS]; /* 0: none */
    /* of GPU work */
    const struct ph_TRACED_WORK *work;
    const char *work_name;
} ph_activity;

/* Asks the coordinator. */
void ph_profile_update(void);
/* Hands out what is complete and was not handed out before. */
void ph_profile_collect(void (*take)(const ph_activity *activity, void *arg), void *arg);

/* CUPTI's external correlation of the calling thread. `kind`: 0 or 1. pop returns 0 if there is none. */
void ph_profile_push(int kind, uint64_t id);
uint64_t ph_profile_pop(int kind);

/* Gives op_stream/ and channel/ what they call here. */
void ph_profile_connect(void);

/* Virtual time as Unix time in nanoseconds; of a time stamp counter as far as entries tell. */
uint64_t ph_profile_unix(uint64_t virtual_ns);
uint64_t ph_profile_unix_of_tsc(uint64_t tsc);

#endif
