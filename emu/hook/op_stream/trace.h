/*
 * What a rank does, for the run's trace (`run --trace`) and for the script's own profiler. Every launch, call
 * and range becomes an entry; the entries leave as TRACE records between the records of the op stream, which stays as
 * it is. The coordinator places them in virtual time. Comes in: launches from streams/, calls from core/, ranges from
 * nvtx/, collectives from nccl/, allocations from data/. Goes out: the records TRACE and TRACE_NAME.
 */
#ifndef PHANTORA_TRACE_H
#define PHANTORA_TRACE_H

#include "core/records.h"
#include "core/base.h"

/* Says who wants entries: 0 nobody, else the sum of these. Everyone else tests it before a call of this header. */
enum { PH_TRACE_RUN = 1, PH_TRACE_PROFILER = 2 };
extern uint32_t ph_tracing;

/* For a thread that does not hold the record lock. The range or allocation is the calling thread's. */
void ph_trace_range(bool begins, uint64_t key, const char *name, const char *sizes, int depth);
void ph_trace_memory(int device, uint64_t allocated, uint64_t reserved);
/* A kernel of NCCL: its NCCL_LAUNCH record follows. */
void ph_trace_nccl(uint32_t stream);
/* Under the record lock: what the calling thread's call waits for, before its record. number, recording, recorded: as
 * in TRACE entries; ph_trace_recorded: the last of them, of a recording made now. */
void ph_trace_sync(uint32_t what, uint32_t number, uint64_t recording, uint64_t recorded);
uint64_t ph_trace_recorded(uint32_t stream);
/* Under the record lock: a kernel or copy was folded into the stream's open segment, at that instant and for that time;
 * key 0: the stream is merely occupied. */
void ph_trace_launch(uint32_t stream, uint64_t key, uint64_t at_ns, uint64_t for_ns);

/* The rank has started; it has ended its next step. */
void ph_trace_start(void);
void ph_trace_step(void);

/* Functions by which the script's own profiler keeps, under the record lock, an entry with its number, and the call
 * that the next entry is of. cupti/profile.c sets them. */
typedef struct ph_profiler_functions {
    void (*note)(uint64_t number, const struct ph_TRACE_ENTRY *entry);
    void (*call)(uint32_t kind, const char *name);
} ph_profiler_functions;
extern ph_profiler_functions ph_profiler;
/* The script's own profiler begins or ends. Returns the number of the next entry. */
uint64_t ph_trace_profile(bool on);
/* Sends all entries so far. */
void ph_trace_until_now(void);

/* Under the record lock, before a record moves the rank's last instant: appends what has gathered. */
extern uint32_t ph_trace_gathered;
void ph_trace_flush(void);

#endif
