/*
 * Entries gather under the record lock and leave in one TRACE record before the next record of the op stream. A TRACE
 * record has no instant of its own and closes no segment, so the op stream is the same with and without a trace.
 */
#define _GNU_SOURCE
#include "op_stream/trace.h"
#include "op_stream/emit.h"
#include "core/alloc.h"
#include "core/config.h"
#include "core/lock.h"
#include "threads/host.h"
#include "core/interned.h"
#include "core/run.h"
#include "threads/thread.h"
#include "op_stream/segment.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MANY_ENTRIES = 2048 };

uint32_t ph_tracing, ph_trace_gathered;
ph_profiler_functions ph_profiler;

static struct {
    struct ph_TRACE_ENTRY *entries;
    size_t capacity;
    uint32_t last_correlation;
    ph_number_set names;      /* keys of the names that were told */
    uint64_t steps, nentries; /* nentries: that have left or gathered */
} trace;

static uint32_t thread_number(ph_thread *thread) {
    static uint32_t others; /* the kernel's numbers of other threads differ from run to run */
    if (!thread->trace_number) {
        bool main = syscall(SYS_gettid) == getpid();
        thread->trace_number = (uint32_t)getpid() + (main ? 0 : ++others);
    }
    return thread->trace_number;
}

/* ---- under the record lock --------------------------------------------------------------------------------------- */

static struct ph_TRACE_ENTRY *entry(uint32_t what, uint64_t at_ns) {
    ph_lock_needed(PH_LOCK_RECORDS);
    trace.entries = ph_room_for_one(trace.entries, ph_trace_gathered, &trace.capacity, sizeof *trace.entries);
    struct ph_TRACE_ENTRY *it = &trace.entries[ph_trace_gathered++];
    ph_thread *thread = ph_self();
    *it = (struct ph_TRACE_ENTRY){
        .what = what, .thread = thread_number(thread), .at_ns = (int64_t)at_ns, .correlation = thread->correlation};
    if (ph_tracing & PH_TRACE_PROFILER) ph_profiler.note(trace.nentries, it);
    trace.nentries++;
    return it;
}

void ph_trace_flush(void) {
    uint32_t n = ph_trace_gathered;
    uint64_t base_ns = ph_last_instant();
    ph_trace_gathered = 0;
    for (uint32_t i = 0; i < n; i++) trace.entries[i].at_ns -= (int64_t)base_ns;
    struct ph_TRACE record = {
        .entries = n, .profiled = (ph_tracing & PH_TRACE_PROFILER) != 0, .first = trace.nentries - n};
    ph_append_out_of_band(PH_KIND_TRACE, &record, sizeof record, trace.entries, n * sizeof *trace.entries);
}

/* Entries behind an open segment must not leave before its record: the host may have waited at its first launch. */
static void flush_if_many(void) {
    if (ph_trace_gathered >= MANY_ENTRIES && !ph_segments_open()) ph_trace_flush();
}

static void tell_name(uint64_t key, const char *name, const char *sizes) {
    if (LIKELY(!ph_number_set_add(&trace.names, key))) return;
    size_t nname = strlen(name), nsizes = strlen(sizes);
    char *text = ph_allocate(nname + nsizes + 1);
    memcpy(text, name, nname);
    text[nname] = '\n';
    memcpy(text + nname + 1, sizes, nsizes);
    struct ph_TRACE_NAME record = {.key = key};
    ph_append_out_of_band(PH_KIND_TRACE_NAME, &record, sizeof record, text, nname + nsizes + 1);
    free(text);
}

void ph_trace_launch(uint32_t stream, uint64_t key, uint64_t at_ns, uint64_t for_ns) {
    struct ph_TRACE_ENTRY *it = entry(PH_TRACE_LAUNCH, at_ns);
    it->number = stream;
    it->key = key;
    it->value = for_ns;
}

void ph_trace_sync(uint32_t what, uint32_t number, uint64_t recording, uint64_t recorded) {
    if (ph_uncounted()) return;
    struct ph_TRACE_ENTRY *it = entry(what, ph_host_clock_now());
    it->number = number;
    it->key = recording;
    it->value = recorded;
}

uint64_t ph_trace_recorded(uint32_t stream) {
    ph_lock_needed(PH_LOCK_RECORDS);
    return stream | (ph_tracing && !ph_uncounted() ? (uint64_t)ph_self()->correlation << 32 : 0);
}

/* ---- for everyone else ------------------------------------------------------------------------------------------- */

static void call(uint32_t kind, const char *name, uint64_t start_ns, uint64_t end_ns) {
    ph_record_lock();
    ph_self()->correlation = ++trace.last_correlation;
    if (ph_tracing & PH_TRACE_PROFILER) ph_profiler.call(kind, name);
    uint64_t key = (uintptr_t)name;
    tell_name(key, name, "");
    struct ph_TRACE_ENTRY *it = entry(PH_TRACE_CALL, start_ns);
    it->key = key;
    it->value = end_ns - start_ns;
    it->number = kind;
    ph_record_unlock();
}

void ph_trace_range(bool begins, uint64_t key, const char *name, const char *sizes, int depth) {
    ph_record_lock();
    if (begins) tell_name(key, name, sizes);
    struct ph_TRACE_ENTRY *it = entry(begins ? PH_TRACE_RANGE : PH_TRACE_RANGE_END, ph_host_clock_now());
    it->key = key;
    it->number = (uint32_t)depth;
    flush_if_many();
    ph_record_unlock();
}

void ph_trace_memory(int device, uint64_t allocated, uint64_t reserved) {
    ph_record_lock();
    struct ph_TRACE_ENTRY *it = entry(PH_TRACE_MEMORY, ph_host_clock_now());
    it->number = (uint32_t)device;
    it->key = allocated;
    it->value = reserved;
    flush_if_many();
    ph_record_unlock();
}

void ph_trace_nccl(uint32_t stream) {
    ph_record_lock();
    entry(PH_TRACE_NCCL, ph_host_clock_now())->number = stream;
    ph_record_unlock();
}

/* ---- which part of the run --------------------------------------------------------------------------------------- */

/* Under the record lock. */
static void trace_for(uint32_t who, bool on) {
    ph_lock_needed(PH_LOCK_RECORDS);
    ph_tracing = (ph_tracing & ~who) | (on ? who : 0);
    ph_listens_to_calls = ph_tracing ? call : NULL;
}

/* The step that goes on now; the first begins with the run. Under the record lock. */
static void choose(void) {
    uint64_t step = trace.steps + 1;
    trace_for(PH_TRACE_RUN,
              ph_config_traces(ph_run.rank) && ph_cfg.trace_first_step <= step && step <= ph_cfg.trace_last_step);
}

void ph_trace_start(void) {
    ph_record_lock();
    choose();
    ph_record_unlock();
}

uint64_t ph_trace_profile(bool on) {
    ph_record_lock();
    if (ph_trace_gathered) ph_trace_flush();
    trace_for(PH_TRACE_PROFILER, on);
    uint64_t next = trace.nentries;
    ph_record_unlock();
    return next;
}

void ph_trace_until_now(void) {
    ph_record_lock();
    ph_close_segments();
    ph_trace_flush(); /* even without entries: calls before it have ended */
    ph_record_unlock();
}

void ph_trace_step(void) {
    ph_record_lock();
    trace.steps++;
    choose();
    ph_record_unlock();
}
