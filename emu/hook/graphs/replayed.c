/*
 * What a launch of a graph does besides the GPU's work: it computes the control tensors that were to be computed while
 * the graph was captured (emu/control/captured.py), and ends the training step whose optimizer was captured.
 *
 * These items are no nodes of the graph. They happen in the order of the capture, as data does everywhere.
 */
#include "core/alloc.h"
#include "data/data.h"
#include "graphs/graph.h"
#include "nvtx/nvtx.h"

#include <stdlib.h>
#include <string.h>

typedef struct computed {
    void (*run)(uint64_t);
    uint64_t arg;
    int nreads, nwrites;
    uint64_t ranges[]; /* address and bytes of each */
} computed;

static void replay_computed(ph_stream *stream, void *arg) {
    (void)stream;
    const computed *it = arg;
    phantora_data_action(it->ranges, it->nreads, it->ranges + 2 * it->nreads, it->nwrites, it->run, it->arg);
}

/* Does the same as phantora_data_action, but at each launch of the graph that is being captured on the stream.
 * Returns 0, and does nothing, if none is. `run` must stay callable. */
PH_EXPORT int phantora_capture_action(uint64_t stream_handle, const uint64_t *reads, int nreads, const uint64_t *writes,
                                      int nwrites, void (*run)(uint64_t), uint64_t arg) {
    ph_stream *stream = ph_captured_streams ? ph_stream_of((void *)(uintptr_t)stream_handle) : NULL;
    if (!stream || !stream->capture) return 0;
    computed *it = ph_allocate(sizeof *it + 2 * (size_t)(nreads + nwrites) * sizeof *it->ranges);
    *it = (computed){.run = run, .arg = arg, .nreads = nreads, .nwrites = nwrites};
    memcpy(it->ranges, reads, 2 * (size_t)nreads * sizeof *reads);
    memcpy(it->ranges + 2 * nreads, writes, 2 * (size_t)nwrites * sizeof *writes);
    ph_graph_item *item = ph_graph_add(ph_graph_capture_of(stream)->graph, ITEM_DATA, stream->branch);
    item->run = replay_computed;
    item->function = free;
    item->arg = it;
    return 1;
}

/* A launch on the stream that is not executed writes to the ranges (address and bytes of each): ph_overwrite_on. */
PH_EXPORT void phantora_overwrite_on(uint64_t stream_handle, const uint64_t *ranges, int n) {
    ph_stream *stream = ph_stream_of((void *)(uintptr_t)stream_handle);
    for (int i = 0; i < n; i++) ph_overwrite_on(stream, (const void *)(uintptr_t)ranges[2 * i], ranges[2 * i + 1]);
}

static void replay_step(ph_stream *stream, void *name) {
    (void)stream;
    ph_step_replayed(name);
}

bool ph_capture_step(const char *name) {
    ph_capture *capture = ph_captured_streams ? ph_capture_of_thread() : NULL;
    if (!capture) return false;
    ph_graph_item *item = ph_graph_add(((ph_graph_capture *)capture)->graph, ITEM_DATA, 0);
    item->run = replay_step;
    item->arg = (void *)(uintptr_t)name;
    return true;
}
