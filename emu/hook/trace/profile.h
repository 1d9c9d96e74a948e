/*
 * The script's own profiler: what it asks CUPTI for. Entries of the trace are kept here with the processor's time stamp
 * counter, by which PyTorch times its ops. The coordinator tells where each lies in virtual time; with that, activities
 * are told and time stamps become virtual time.
 */
#ifndef PHANTORA_PROFILE_H
#define PHANTORA_PROFILE_H

#include "channel/records.h"
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

/* Asks the coordinator, and hands out what is complete and was not handed out before. */
void ph_profile_collect(void (*take)(const ph_activity *activity, void *arg), void *arg);

/* CUPTI's external correlation of the calling thread. `kind`: 0 or 1. pop returns 0 if there is none. */
void ph_profile_push(int kind, uint64_t id);
uint64_t ph_profile_pop(int kind);

/* Under the record lock. */
void ph_profile_note(uint64_t number, const struct ph_TRACE_ENTRY *entry);
void ph_profile_call(uint32_t kind, const char *name);

/* On the reader: what the coordinator tells. */
void ph_profile_traced(const unsigned char *body, size_t nbytes);
void ph_profile_work(const unsigned char *body, size_t nbytes);

/* Virtual time as Unix time in nanoseconds; of a time stamp counter as far as entries tell. */
uint64_t ph_profile_unix(uint64_t virtual_ns);
uint64_t ph_profile_unix_of_tsc(uint64_t tsc);

#endif
