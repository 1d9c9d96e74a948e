/*
 * The op stream: launches of one stream fold into its open segment. See SEGMENT in records.def for the fold's meaning.
 *
 * A launch's duration is its cost at the GPU's clock and the gap to the next one: a stream starts a kernel some time
 * after the one before.
 *
 * Before any other record is appended all open segments are, in order of their first launch, so that instants never
 * decrease. A segment also ends after 256 launches.
 */
#include "streams/segment.h"
#include "channel/channel.h"
#include "core/config.h"
#include "core/counters.h"
#include "core/host.h"
#include "costs/launch_counts.h"
#include "costs/power.h"
#include "graphs/capture.h"
#include "process/process.h"
#include "process/thread.h"
#include "streams/content.h"
#include "trace/trace.h"

/* Streams with an open segment, in order of their first launch. Under the record lock. */
static struct {
    ph_stream *first, *last;
} open;

bool ph_segments_open(void) { return open.first != NULL; }
uint64_t ph_launch_count(void) { return ph_counts.launches; }

void ph_close_segments(void) {
    for (ph_stream *stream = open.first; stream; stream = stream->next_open) {
        struct ph_SEGMENT record = {.stream = stream->id,
                                    .launches = stream->queued,
                                    .solo_ns = stream->solo_ns,
                                    .contended_ns = stream->contended_ns,
                                    .tail_ns = stream->tail_ns,
                                    .tail_work_ns = stream->tail_work_ns};
        if (UNLIKELY(ph_cfg.segment_contents)) record.content = ph_content_of(stream);
        ph_append(PH_KIND_SEGMENT, stream->first_ns, &record, sizeof record, NULL, 0);
        stream->launches = 0;
    }
    open.first = open.last = NULL;
}

/* For waits whose real length is none of the program's: what the reader would close meanwhile is closed before. */
PH_EXPORT void phantora_close_segments(void) {
    ph_record_lock();
    ph_close_segments();
    ph_record_unlock();
}

static void open_segment(ph_stream *stream, uint64_t now) {
    stream->first_ns = now;
    stream->solo_ns = stream->contended_ns = stream->tail_ns = stream->tail_work_ns = 0;
    stream->queued = 0;
    stream->next_open = NULL;
    if (open.last)
        open.last->next_open = stream;
    else
        open.first = stream;
    open.last = stream;
    ph_channel_wake_for_segments();
}

static void fold(ph_stream *stream, uint64_t key, uint64_t solo_ns, uint64_t contended_ns, bool queued) {
    uint64_t now = ph_host_clock();
    if (stream->launches == 0) open_segment(stream, now);
    if (UNLIKELY(ph_tracing)) ph_trace_launch(stream->id, key, now, solo_ns);
    /* tail_ns is the maximum over launches i of h_i - h_1 + sum of d_j for j >= i. This launch adds its duration to
     * each earlier launch's term, and a term of its own. */
    uint64_t launched_after = now - stream->first_ns;
    if (launched_after > stream->tail_ns) {
        stream->tail_ns = launched_after;
        stream->tail_work_ns = 0;
    }
    stream->tail_ns += solo_ns;
    stream->tail_work_ns += solo_ns;
    if (UNLIKELY(ph_cfg.segment_contents)) ph_content_add(stream, key);
    stream->solo_ns += solo_ns;
    stream->contended_ns += contended_ns;
    stream->queued += queued;
    if (++stream->launches == PH_SEGMENT_LAUNCHES) ph_close_segments();
}

void ph_launch(ph_stream *stream, const ph_cost *cost) {
    if (UNLIKELY(stream->capture != NULL) && ph_capture_launch(stream, cost)) return;
    ph_launch_now(stream, cost, true);
}

void ph_launch_now(ph_stream *stream, const ph_cost *cost, bool queued) {
    if (UNLIKELY(ph_uncounted())) {
        ph_self()->uncounted_ns += cost->solo_ns;
        return;
    }
    ph_record_lock();
    ph_counts.launches++;
    ph_counts.flops += cost->flops;
    if (LIKELY(ph_run.started)) {
        ph_order_default(stream);
        uint64_t gap_ns = queued ? ph_cfg.launch_gap_ns : ph_cfg.graph_gap_ns;
        double more = ph_power_launch(stream->device, stream->id, cost, ph_host_clock(), gap_ns) - 1;
        uint64_t slowed_ns = (uint64_t)((double)cost->solo_ns * more);
        uint64_t contended_ns = cost->contended_ns + (uint64_t)((double)cost->contended_ns * more);
        ph_count_launch(cost, slowed_ns);
        fold(stream, cost->key, cost->solo_ns + slowed_ns + gap_ns, contended_ns + gap_ns, queued);
    }
    ph_record_unlock();
}

void ph_stream_occupy(ph_stream *stream, uint64_t for_ns) {
    if (!ph_run.started) return;
    ph_record_lock();
    ph_order_default(stream);
    fold(stream, 0, for_ns, for_ns, false);
    ph_record_unlock();
}
