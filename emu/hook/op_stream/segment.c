/*
 * Launches of one stream fold into its open segment. See SEGMENT in records.def for the fold's meaning.
 *
 * Before any other record is appended all open segments are, in order of their first launch, so that instants never
 * decrease. A segment also ends after 256 launches, and between kernels and copies that leave the GPU.
 */
#include "op_stream/segment.h"
#include "core/config.h"
#include "core/lock.h"
#include "op_stream/clock.h"
#include "op_stream/emit.h"
#include "op_stream/history.h"
#include "op_stream/trace.h"
#include "threads/host.h"

/* The open segments in order of their first launch. Under the record lock. */
static struct {
    ph_segment *first, *last;
} open;

bool ph_segments_open(void) { return open.first != NULL; }

void ph_close_segments(void) {
    ph_lock_needed(PH_LOCK_RECORDS);
    if (UNLIKELY(ph_cfg.history)) ph_history_close();
    for (ph_segment *it = open.first; it; it = it->next_open) {
        struct ph_SEGMENT record = {.stream = it->stream,
                                    .launches = it->queued,
                                    .solo_ns = it->solo_ns,
                                    .contended_ns = it->copies ? 0 : it->contended_ns,
                                    .tail_ns = it->tail_ns,
                                    .tail_work_ns = it->tail_work_ns};
        if (UNLIKELY(ph_cfg.segment_contents)) record.content = ph_content_of(it);
        ph_append(PH_KIND_SEGMENT, it->first_ns, &record, sizeof record, NULL, 0);
        ph_clock_launched(it->queued);
        it->launches = 0;
    }
    open.first = open.last = NULL;
}

/* Closes what the coordinator might ask for meanwhile, before waits whose real length is none of the program's. */
PH_EXPORT void phantora_close_segments(void) {
    ph_record_lock();
    ph_close_segments();
    ph_record_unlock();
}

static void open_segment(ph_segment *it, uint32_t stream, bool copies, uint64_t now) {
    it->stream = stream;
    it->copies = copies;
    it->first_ns = now;
    it->solo_ns = it->contended_ns = it->tail_ns = it->tail_work_ns = 0;
    it->queued = 0;
    it->next_open = NULL;
    if (open.last)
        open.last->next_open = it;
    else
        open.first = it;
    open.last = it;
}

void ph_fold(ph_segment *it, uint32_t stream, ph_folded launch) {
    ph_lock_needed(PH_LOCK_RECORDS);
    uint64_t now = ph_host_clock();
    if (it->launches && it->copies != launch.copies) ph_close_segments();
    if (it->launches == 0) open_segment(it, stream, launch.copies, now);
    if (UNLIKELY(ph_tracing)) ph_trace_launch(stream, launch.key, now, launch.solo_ns);
    /* tail_ns is the maximum over launches i of h_i - h_1 + sum of d_j for j >= i. This launch adds its duration to
     * each earlier launch's term, and a term of its own. */
    uint64_t launched_after = now - it->first_ns;
    if (launched_after > it->tail_ns) {
        it->tail_ns = launched_after;
        it->tail_work_ns = 0;
    }
    it->tail_ns += launch.solo_ns;
    it->tail_work_ns += launch.solo_ns;
    if (UNLIKELY(ph_cfg.segment_contents)) ph_content_add(it, launch.key);
    if (UNLIKELY(ph_cfg.history)) ph_history_launch(stream, launch.key, launch.queued);
    it->solo_ns += launch.solo_ns;
    it->contended_ns += launch.contended_ns;
    it->queued += launch.queued;
    if (++it->launches == PH_SEGMENT_LAUNCHES) ph_close_segments();
}
