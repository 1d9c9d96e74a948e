/* The COUNTERS record: sent at the end of every step and of the rank. */
#include "core/counters.h"
#include "channel/channel.h"
#include "core/host.h"
#include "costs/launch_counts.h"
#include "streams/segment.h"

#include <stdatomic.h>

ph_counters ph_counts;

void ph_emit_counters(void) {
    ph_record_lock();
    struct ph_COUNTERS totals = {
        .launches = ph_counts.launches,
        .flops = ph_counts.flops,
        .host_work_ns = ph_host_clock(),
        .api_calls = atomic_load(&ph_counts.api_calls),
        .ops = atomic_load(&ph_counts.ops),
        .unmodelled_reads = atomic_load(&ph_counts.unmodelled_reads),
        .refused_calls = atomic_load(&ph_counts.refused_calls),
    };
    ph_close_segments();
    ph_emit_launch_counts();
    ph_append(PH_KIND_COUNTERS, ph_host_clock(), &totals, sizeof totals, NULL, 0);
    ph_record_unlock();
}

static _Thread_local bool discarded;

/* What the calling thread reads from now on, until `on` is 0, decides nothing in the program: it is not counted. */
PH_EXPORT void phantora_reads_discarded(int on) { discarded = on != 0; }

void ph_count_unmodelled_read(void) {
    if (!discarded) atomic_fetch_add_explicit(&ph_counts.unmodelled_reads, 1, memory_order_relaxed);
}

PH_EXPORT uint64_t phantora_unmodelled_reads(void) { return atomic_load(&ph_counts.unmodelled_reads); }
