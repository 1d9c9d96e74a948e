/*
 * Launches of one stream fold into its open segment. See SEGMENT in records.def for the fold's meaning.
 *
 * Before any other record is appended all open segments are, in order of their first launch, so that instants never
 * decrease. A segment also ends after 256 launches.
 */
#include "op_stream/segment.h"
#include "core/config.h"
#include "core/lock.h"
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
                                    .contended_ns = it->contended_ns,
                                    .tail_ns = it->tail_ns,
                                    .tail_work_ns = it->tail_work_ns};
        if (UNLIKELY(ph_cfg.segment_contents)) record.content = ph_content_of(it);
        ph_append(PH_KIND_SEGMENT, it->first_ns, &record, sizeof record, NULL, 0);
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

static void open_segment(ph_segment *it, uint32_t stream, uint64_t now) {
    it->stream = stream;
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

void ph_fold(ph_segment *it, uint32_t stream, uint64_t key, uint64_t solo_ns, uint64_t contended_ns, bool queued) {
    ph_lock_needed(PH_LOCK_RECORDS);
    uint64_t now = ph_host_clock();
    if (it->launches == 0) open_segment(it, stream, now);
    if (UNLIKELY(ph_tracing)) ph_trace_launch(stream, key, now, solo_ns);
    /* tail_ns is the maximum over launches i of h_i - h_1 + sum of d_j for j >= i. This launch adds its duration to
     * each earlier launch's term, and a term of its own. */
    uint64_t launched_after = now - it->first_ns;
    if (launched_after > it->tail_ns) {
        it->tail_ns = launched_after;
        it->tail_work_ns = 0;
    }
    it->tail_ns += solo_ns;
    it->tail_work_ns += solo_ns;
    if (UNLIKELY(ph_cfg.segment_contents)) ph_content_add(it, key);
    if (UNLIKELY(ph_cfg.history)) ph_history_launch(stream, key, queued);
    it->solo_ns += solo_ns;
    it->contended_ns += contended_ns;
    it->queued += queued;
    if (++it->launches == PH_SEGMENT_LAUNCHES) ph_close_segments();
}
