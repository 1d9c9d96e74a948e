/*
 * Runtime: stream capture and graphs.
 */
#include "device/versions.h"
#include "op_stream/emit.h"
#include "core/alloc.h"
#include "threads/host.h"
#include "cudart/cudart.h"
#include "graphs/graph.h"
#include "streams/watch.h"

#include <stdlib.h>
#include <string.h>

static ph_graph *graph_of(void *handle) {
    ph_graph *graph = handle;
    return graph && graph->magic == GRAPH_MAGIC ? graph : NULL;
}

static ph_graph_exec *exec_of(void *handle) {
    ph_graph_exec *exec = handle;
    return exec && exec->magic == EXEC_MAGIC ? exec : NULL;
}

/* ---- capture ----------------------------------------------------------------------------------------------------- */

PH_EXPORT int cudaStreamBeginCapture(void *handle, int mode) {
    ph_host_call(PH_CALL_QUERY);
    ph_stream *stream = ph_stream_of(handle);
    return result(stream ? ph_capture_begin(stream, mode) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamEndCapture(void *handle, void **graph) {
    ph_host_call(PH_CALL_QUERY);
    *graph = NULL;
    ph_stream *stream = ph_stream_of(handle);
    return result(stream ? ph_capture_end(stream, (ph_graph **)graph) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaStreamIsCapturing(void *handle, int *status) {
    return result(ph_capture_info(handle, status, NULL, NULL, NULL, NULL, NULL));
}

PH_EXPORT int cudaStreamGetCaptureInfo_v3(void *handle, int *status, unsigned long long *id, void **graph,
                                          void ***dependencies, void **edges, size_t *n) {
    return result(ph_capture_info(handle, status, id, graph, dependencies, edges, n));
}

PH_EXPORT int cudaStreamGetCaptureInfo_v2(void *handle, int *status, unsigned long long *id, void **graph,
                                          void ***dependencies, size_t *n) {
    return result(ph_capture_info(handle, status, id, graph, dependencies, NULL, n));
}

/* Since CUDA 13 the plain name has the parameters of _v3; before, it had the first three only. */
PH_EXPORT int cudaStreamGetCaptureInfo(void *handle, int *status, unsigned long long *id, void **graph,
                                       void ***dependencies, void **edges, size_t *n) {
    if (ph_runtime_version() < 13000) return result(ph_capture_info(handle, status, id, NULL, NULL, NULL, NULL));
    return result(ph_capture_info(handle, status, id, graph, dependencies, edges, n));
}

PH_EXPORT int cudaThreadExchangeStreamCaptureMode(int *mode) {
    ph_watch_step();
    *mode = ph_thread_exchange_capture_mode(*mode);
    return CUDA_OK;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------ */

PH_EXPORT int cudaGraphCreate(void **graph, unsigned flags) {
    *graph = flags ? NULL : ph_graph_new(ph_self()->device);
    return result(*graph ? CUDA_OK : CUDA_INVALID_VALUE);
}

PH_EXPORT int cudaGraphDestroy(void *handle) {
    ph_graph *graph = graph_of(handle);
    if (!graph) return result(CUDA_INVALID_VALUE);
    ph_graph_release(graph);
    return CUDA_OK;
}

PH_EXPORT int cudaGraphGetNodes(void *handle, void **nodes, size_t *n) {
    ph_graph *graph = graph_of(handle);
    if (!graph) {
        *n = 0;
        return result(CUDA_INVALID_VALUE);
    }
    size_t given = 0;
    for (size_t i = 0; nodes && i < graph->nitems && given < *n; i++)
        if (ph_is_node(graph->items[i])) nodes[given++] = graph->items[i];
    for (size_t i = given; nodes && i < *n; i++) nodes[i] = NULL;
    *n = nodes ? given : graph->nnodes;
    return CUDA_OK;
}

PH_EXPORT int cudaGraphGetRootNodes(void *handle, void **nodes, size_t *n) {
    ph_graph *graph = graph_of(handle);
    size_t given = 0, capacity = nodes ? *n : SIZE_MAX;
    for (size_t i = 0; graph && i < graph->nitems && given < capacity; i++)
        if (ph_is_node(graph->items[i]) && graph->items[i]->nafter == 0) {
            if (nodes) nodes[given] = graph->items[i];
            given++;
        }
    *n = given;
    return result(graph ? CUDA_OK : CUDA_INVALID_VALUE);
}

static int dependencies(void *node, void **out, struct cudaGraphEdgeData *edges, size_t *n) {
    const ph_graph_item *item = node;
    if (!item) {
        *n = 0;
        return CUDA_INVALID_VALUE;
    }
    size_t given = out && *n < item->nafter ? *n : item->nafter;
    for (size_t i = 0; out && i < given; i++) out[i] = item->after[i];
    if (edges) memset(edges, 0, given * sizeof *edges);
    *n = given;
    return CUDA_OK;
}

/* Since CUDA 13 the edges' data come before the count. */
PH_EXPORT int cudaGraphNodeGetDependencies(void *node, void **out, void *third, size_t *fourth) {
    if (ph_runtime_version() < 13000) return result(dependencies(node, out, NULL, third));
    return result(dependencies(node, out, third, fourth));
}

PH_EXPORT int cudaGraphNodeGetDependencies_v2(void *node, void **out, struct cudaGraphEdgeData *edges, size_t *n) {
    return result(dependencies(node, out, edges, n));
}

PH_EXPORT int cudaGraphNodeGetType(void *node, int *type) {
    static const int types[] = {[ITEM_LAUNCH] = 0, [ITEM_COPY] = 1,         [ITEM_SET] = 2,       [ITEM_HOST] = 3,
                                [ITEM_CALL] = 0,   [ITEM_EVENT_RECORD] = 7, [ITEM_EVENT_WAIT] = 6};
    const ph_graph_item *item = node;
    *type = item && ph_is_node(item) ? types[item->kind] : 0;
    return result(item && ph_is_node(item) ? CUDA_OK : CUDA_INVALID_VALUE);
}

static int instantiate(void **out, void *handle) {
    ph_host_call(PH_CALL_ALLOC);
    *out = NULL;
    ph_graph *graph = graph_of(handle);
    if (!graph) return CUDA_INVALID_VALUE;
    ph_graph_exec *exec = ph_allocate(sizeof *exec);
    ph_stream **branches = ph_allocate((size_t)graph->nbranches * sizeof *branches);
    *exec = (ph_graph_exec){.magic = EXEC_MAGIC, .graph = graph, .branches = branches};
    graph->references++;
    *out = exec;
    return CUDA_OK;
}

PH_EXPORT int cudaGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
    (void)flags; /* automatic freeing, device launch, priorities: they concern nodes that captures here do not make */
    return result(instantiate(exec, graph));
}

PH_EXPORT int cudaGraphInstantiate(void **exec, void *graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(exec, graph, flags);
}

PH_EXPORT int cudaGraphExecDestroy(void *handle) {
    ph_graph_exec *exec = exec_of(handle);
    if (!exec) return result(CUDA_INVALID_VALUE);
    for (int branch = 1; branch < exec->graph->nbranches; branch++)
        if (exec->branches[branch]) ph_stream_destroy(exec->branches[branch]);
    if (exec->recording) {
        struct ph_RECORDING_DROP record = {.recording = exec->recording};
        ph_emit(PH_KIND_RECORDING_DROP, &record, sizeof record, NULL, 0);
    }
    ph_graph_release(exec->graph);
    exec->magic = 0;
    free(exec->branches);
    free(exec);
    return CUDA_OK;
}

PH_EXPORT int cudaGraphUpload(void *handle, void *stream) {
    ph_host_call(PH_CALL_LAUNCH);
    return result(exec_of(handle) && ph_stream_of(stream) ? CUDA_OK : CUDA_INVALID_VALUE);
}

PH_EXPORT int cudaGraphLaunch(void *handle, void *stream) {
    ph_host_call(PH_CALL_LAUNCH);
    ph_graph_exec *exec = exec_of(handle);
    ph_stream *on = ph_stream_of(stream);
    return result(exec && on ? ph_graph_launch(exec, on) : CUDA_INVALID_VALUE);
}

/* ---- user objects ------------------------------------------------------------------------------------------------ */

static ph_user_object *object_of(void *handle) {
    ph_user_object *object = handle;
    return object && object->magic == USER_OBJECT_MAGIC ? object : NULL;
}

PH_EXPORT int cudaUserObjectCreate(void **out, void *object, void (*destroy)(void *), unsigned references,
                                   unsigned flags) {
    *out = NULL;
    if (!destroy || references == 0 || flags != 1) /* the only flag, cudaUserObjectNoDestructorSync, is required */
        return result(CUDA_INVALID_VALUE);
    ph_user_object *made = ph_allocate(sizeof *made);
    *made = (ph_user_object){
        .magic = USER_OBJECT_MAGIC, .references = (int)references, .object = object, .destroy = destroy};
    *out = made;
    return CUDA_OK;
}

PH_EXPORT int cudaUserObjectRetain(void *handle, unsigned count) {
    ph_user_object *object = object_of(handle);
    if (!object || count == 0) return result(CUDA_INVALID_VALUE);
    object->references += (int)count;
    return CUDA_OK;
}

PH_EXPORT int cudaUserObjectRelease(void *handle, unsigned count) {
    return result(ph_user_object_release(object_of(handle), (int)count));
}

PH_EXPORT int cudaGraphRetainUserObject(void *handle, void *object_handle, unsigned count, unsigned flags) {
    enum { MOVE = 1 }; /* the graph takes the caller's references over */
    ph_graph *graph = graph_of(handle);
    ph_user_object *object = object_of(object_handle);
    if (!graph || !object || count == 0 || (flags & ~(unsigned)MOVE)) return result(CUDA_INVALID_VALUE);
    ph_owned *owned = ph_allocate(sizeof *owned);
    *owned = (ph_owned){.object = object, .count = (int)count, .next = graph->owned};
    graph->owned = owned;
    if (!(flags & MOVE)) object->references += (int)count;
    return CUDA_OK;
}

PH_EXPORT int cudaGraphReleaseUserObject(void *handle, void *object_handle, unsigned count) {
    ph_graph *graph = graph_of(handle);
    ph_user_object *object = object_of(object_handle);
    for (ph_owned **at = graph && object ? &graph->owned : NULL; at && *at; at = &(*at)->next) {
        ph_owned *owned = *at;
        if (owned->object != object || owned->count < (int)count) continue;
        owned->count -= (int)count;
        if (owned->count == 0) {
            *at = owned->next;
            free(owned);
        }
        return result(ph_user_object_release(object, (int)count));
    }
    return result(CUDA_INVALID_VALUE);
}

/* Graphs hold no memory: captures here make no allocation nodes. */
PH_EXPORT int cudaDeviceGetGraphMemAttribute(int device, int attribute, void *value) {
    memset(value, 0, sizeof(uint64_t));
    return result(!ph_device_exists(device)        ? CUDA_INVALID_DEVICE
                  : attribute < 0 || attribute > 3 ? CUDA_INVALID_VALUE
                                                   : CUDA_OK);
}

PH_EXPORT int cudaDeviceSetGraphMemAttribute(int device, int attribute, void *value) {
    (void)value; /* high-water marks can only be reset */
    return result(!ph_device_exists(device)          ? CUDA_INVALID_DEVICE
                  : attribute != 1 && attribute != 3 ? CUDA_INVALID_VALUE
                                                     : CUDA_OK);
}

PH_EXPORT int cudaDeviceGraphMemTrim(int device) {
    return result(ph_device_exists(device) ? CUDA_OK : CUDA_INVALID_DEVICE);
}
