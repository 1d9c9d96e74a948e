/*
 * See launch.h. A launch's duration is its cost at the GPU's clock and the gap to the next one: a stream starts a
 * kernel some time after the one before.
 */
#include "streams/launch.h"
#include "channel/channel.h"
#include "core/config.h"
#include "core/run.h"
#include "costs/power.h"
#include "op_stream/launch_counts.h"
#include "op_stream/module_counts.h"
#include "streams/capturing.h"
#include "threads/host.h"
#include "threads/modules.h"
#include "threads/thread.h"

void ph_launch_work(ph_stream *stream, uint64_t key, ph_describe describe, const void *what) {
    ph_launch(stream, ph_cost_of(key, describe, what));
}

void ph_launch(ph_stream *stream, const ph_cost *cost) {
    if (UNLIKELY(stream->capture != NULL))
        ph_capture_functions.launch(stream, cost);
    else
        ph_launch_now(stream, cost, true);
}

void ph_launch_now(ph_stream *stream, const ph_cost *cost, bool queued) {
    if (UNLIKELY(ph_uncounted())) {
        ph_self()->uncounted_ns += cost->solo_ns;
        return;
    }
    uint16_t site = ph_launch_site(cost->key);
    bool backward;
    uint16_t module = ph_module(&backward);
    ph_record_lock();
    ph_counts.launches++;
    ph_counts.flops += cost->flops;
    if (LIKELY(ph_run.started)) {
        ph_order_default(stream);
        uint64_t gap_ns = queued ? ph_cfg.launch_gap_ns : ph_cfg.graph_gap_ns;
        double more = ph_power_launch(stream->device, stream->id, cost, ph_host_clock(), gap_ns) - 1;
        uint64_t slowed_ns = (uint64_t)((double)cost->solo_ns * more);
        uint64_t contended_ns = cost->contended_ns + (uint64_t)((double)cost->contended_ns * more);
        ph_count_launch(cost->key, slowed_ns, site);
        if (ph_modules_known) ph_count_of_module(cost->key, slowed_ns, module, backward);
        ph_folded it = {.key = cost->key,
                        .solo_ns = cost->solo_ns + slowed_ns + gap_ns,
                        .contended_ns = contended_ns + gap_ns,
                        .queued = queued,
                        .copies = cost->leaves};
        ph_fold(&stream->segment, stream->id, it);
    }
    ph_record_unlock();
}

void ph_stream_occupy(ph_stream *stream, uint64_t for_ns) {
    if (!ph_run.started) return;
    ph_record_lock();
    ph_order_default(stream);
    ph_fold(&stream->segment, stream->id, (ph_folded){.solo_ns = for_ns, .contended_ns = for_ns});
    ph_record_unlock();
}
