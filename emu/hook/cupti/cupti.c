/*
 * cupti/: torch.profiler asks CUPTI what ran on the GPU. Activities come from trace/, where they lie in virtual time;
 * here they become CUPTI's records, in the buffers that the profiler lends. The real library is never called, because
 * it reads the real driver's memory. Comes in: PyTorch's profiler. Goes out: activity records.
 *
 * Callbacks (cuptiSubscribe) are never called. Flushing asks the coordinator for all that has ended by now.
 */
#include "device/versions.h"
#include "core/lock.h"
#include "cupti/cupti.h"
#include "core/config.h"
#include "threads/host.h"
#include "op_stream/warn.h"
#include "cupti/profile.h"
#include "op_stream/trace.h"

#include <string.h>
#include <unistd.h>

typedef void (*request_function)(uint8_t **buffer, size_t *nbytes, size_t *max_records);
typedef void (*complete_function)(void *context, uint32_t stream, uint8_t *buffer, size_t nbytes, size_t valid_nbytes);

enum { RECORD_ROOM = 64 }; /* behind a kernel's record: later versions of it are longer */

static struct {
    request_function request;
    complete_function complete;
    uint64_t enabled, wanted; /* bits by kind; wanted: enabled since all was flushed */
    bool converted;           /* the profiler turns time stamps into Unix time itself */
    uint8_t *buffer;
    size_t nbytes, used;
} cupti;

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static void request(void) {
    size_t max_records = 0;
    if (cupti.buffer || !cupti.request) return;
    cupti.request(&cupti.buffer, &cupti.nbytes, &max_records);
    cupti.used = 0;
}

static void complete(void) {
    if (cupti.buffer && cupti.complete) cupti.complete(NULL, 0, cupti.buffer, cupti.nbytes, cupti.used);
    cupti.buffer = NULL;
}

static size_t size_of(uint32_t kind) {
    switch (kind) {
    case KIND_MEMCPY:
        return sizeof(CUpti_ActivityMemcpy5);
    case KIND_MEMSET:
        return sizeof(CUpti_ActivityMemset4);
    case KIND_CONCURRENT_KERNEL:
        return sizeof(CUpti_ActivityKernel9) + RECORD_ROOM;
    case KIND_DRIVER:
    case KIND_RUNTIME:
        return sizeof(CUpti_ActivityAPI);
    default:
        return sizeof(CUpti_ActivityExternalCorrelation);
    }
}

static void add(uint32_t kind, const void *record, size_t nbytes) {
    size_t size = size_of(kind);
    if (!(cupti.wanted >> kind & 1)) return;
    if (cupti.buffer && cupti.used + size > cupti.nbytes) complete();
    request();
    if (!cupti.buffer || cupti.used + size > cupti.nbytes) return; /* the profiler takes no more */
    memset(cupti.buffer + cupti.used, 0, size);
    memcpy(cupti.buffer + cupti.used, record, nbytes);
    cupti.used += size;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

static uint64_t stamp(uint64_t virtual_ns) {
    return ph_profile_unix(virtual_ns) | (cupti.converted ? PH_VIRTUAL_TIME : 0);
}

/* cbid: NVIDIA's numbers in cupti_runtime_cbid.h and cupti_driver_cbid.h. */
static const struct api {
    const char *name;
    uint32_t cbid;
} runtime_calls[] = {
    {"cudaMalloc", 20},
    {"cudaFree", 22},
    {"cudaMallocHost", 25},
    {"cudaFreeHost", 26},
    {"cudaHostAlloc", 27},
    {"cudaMemcpy", 31},
    {"cudaMemcpyAsync", 41},
    {"cudaMemcpy2DAsync", 44},
    {"cudaMemset", 49},
    {"cudaMemsetAsync", 51},
    {"cudaStreamSynchronize", 131},
    {"cudaEventRecord", 135},
    {"cudaEventSynchronize", 137},
    {"cudaStreamWaitEvent", 147},
    {"cudaDeviceSynchronize", 165},
    {"cudaLaunchKernel", 211},
    {"cudaLaunchCooperativeKernel", 269},
    {"cudaGraphLaunch", 311},
    {"cudaEventRecordWithFlags", 370},
    {"cudaMallocAsync", 373},
    {"cudaLaunchKernelExC", 430},
};
enum { CBID_LAUNCH = 211, CBID_MEMCPY = 41, CBID_MEMSET = 51, CBID_EVENT = 135, CBID_SYNC = 131, CBID_MALLOC = 20 };
enum { CBID_DRIVER_LAUNCH = 307, CBID_DRIVER_LAUNCH_EX = 652 };
static const struct api driver_calls[] = {{"cuLaunchKernel", CBID_DRIVER_LAUNCH},
                                          {"cuLaunchKernelEx", CBID_DRIVER_LAUNCH_EX}};

static void name_call(const ph_activity *it, CUpti_ActivityAPI *record) {
    record->kind = KIND_RUNTIME;
    for (size_t i = 0; i < sizeof runtime_calls / sizeof *runtime_calls; i++)
        if (strcmp(it->name, runtime_calls[i].name) == 0) {
            record->cbid = runtime_calls[i].cbid;
            return;
        }
    /* A call that the table lacks gets the number of a call of its kind. */
    switch (it->kind) {
    case PH_CALL_LIBRARY:
    case PH_CALL_RECURRENT_KERNEL:
    case PH_CALL_NCCL:
    case PH_CALL_HOT_NCCL:
        record->kind = KIND_DRIVER;
        record->cbid = CBID_DRIVER_LAUNCH_EX;
        return;
    case PH_CALL_LAUNCH:
    case PH_CALL_HOT_LAUNCH:
        if (strncmp(it->name, "cuLaunchKernel", 14) == 0) {
            record->kind = KIND_DRIVER;
            record->cbid = strcmp(it->name, "cuLaunchKernel") == 0 ? CBID_DRIVER_LAUNCH : CBID_DRIVER_LAUNCH_EX;
        } else
            record->cbid = CBID_LAUNCH;
        return;
    case PH_CALL_MEMCPY:
        record->cbid = CBID_MEMCPY;
        return;
    case PH_CALL_MEMSET:
        record->cbid = CBID_MEMSET;
        return;
    case PH_CALL_EVENT:
        record->cbid = CBID_EVENT;
        return;
    case PH_CALL_SYNC:
        record->cbid = CBID_SYNC;
        return;
    default:
        record->cbid = CBID_MALLOC;
    }
}

static void add_call(const ph_activity *it) {
    /* Such a call is no call of CUDA's, which is all that CUPTI sees. */
    if (it->kind == PH_CALL_LIBRARY_QUERY || it->kind == PH_CALL_NCCL_CALL) return;
    CUpti_ActivityAPI record = {.start = stamp(it->start_ns),
                                .end = stamp(it->end_ns),
                                .processId = (uint32_t)getpid(),
                                .threadId = it->thread,
                                .correlationId = it->correlation};
    name_call(it, &record);
    add(record.kind, &record, sizeof record);
    for (int kind = 0; kind < PH_EXTERNAL_KINDS; kind++) {
        CUpti_ActivityExternalCorrelation link = {.kind = KIND_EXTERNAL_CORRELATION,
                                                  .externalKind = kind ? EXTERNAL_CUSTOM1 : EXTERNAL_CUSTOM0,
                                                  .externalId = it->external[kind],
                                                  .correlationId = it->correlation};
        if (it->external[kind]) add(KIND_EXTERNAL_CORRELATION, &link, sizeof link);
    }
}

static void add_kernel(const ph_activity *it) {
    const struct ph_TRACED_WORK *work = it->work;
    CUpti_ActivityKernel9 record = {.kind = KIND_CONCURRENT_KERNEL,
                                    .start = stamp(it->start_ns),
                                    .end = stamp(it->end_ns),
                                    .completed = stamp(it->end_ns),
                                    .deviceId = it->device,
                                    .contextId = it->device + 1,
                                    .streamId = it->stream,
                                    .gridX = (int32_t)work->grid_x,
                                    .gridY = (int32_t)work->grid_y,
                                    .gridZ = (int32_t)work->grid_z,
                                    .blockX = (int32_t)work->block_x,
                                    .blockY = (int32_t)work->block_y,
                                    .blockZ = (int32_t)work->block_z,
                                    .dynamicSharedMemory = (int32_t)work->shared_nbytes,
                                    .correlationId = it->correlation,
                                    .name = it->work_name};
    add(record.kind, &record, sizeof record);
}

static void add_copy(const ph_activity *it) {
    static const struct {
        const char *text;
        uint8_t kind, from, to;
    } ways[] = {{"HtoD", COPY_KIND_HTOD, 0, MEMORY_DEVICE},
                {"DtoH", COPY_KIND_DTOH, MEMORY_DEVICE, 0},
                {"HtoH", COPY_KIND_HTOH, 0, 0},
                {"PtoP", COPY_KIND_PTOP, MEMORY_DEVICE, MEMORY_DEVICE},
                {"DtoD", COPY_KIND_DTOD, MEMORY_DEVICE, MEMORY_DEVICE}};
    uint8_t host = strstr(it->work_name, "Pinned") ? MEMORY_PINNED : MEMORY_PAGEABLE;
    CUpti_ActivityMemcpy5 record = {.kind = KIND_MEMCPY,
                                    .bytes = it->work->moved_nbytes,
                                    .start = stamp(it->start_ns),
                                    .end = stamp(it->end_ns),
                                    .deviceId = it->device,
                                    .contextId = it->device + 1,
                                    .streamId = it->stream,
                                    .correlationId = it->correlation};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (strstr(it->work_name, ways[i].text)) {
            record.copyKind = ways[i].kind;
            record.srcKind = ways[i].from ? ways[i].from : host;
            record.dstKind = ways[i].to ? ways[i].to : host;
        }
    add(record.kind, &record, sizeof record);
}

static void add_fill(const ph_activity *it) {
    CUpti_ActivityMemset4 record = {.kind = KIND_MEMSET,
                                    .bytes = it->work->moved_nbytes,
                                    .start = stamp(it->start_ns),
                                    .end = stamp(it->end_ns),
                                    .deviceId = it->device,
                                    .contextId = it->device + 1,
                                    .streamId = it->stream,
                                    .correlationId = it->correlation,
                                    .memoryKind = MEMORY_DEVICE};
    add(record.kind, &record, sizeof record);
}

static void add_activity(const ph_activity *it, void *unused) {
    (void)unused;
    if (it->what == PH_TRACE_CALL)
        add_call(it);
    else if (it->work->work == PH_TRACED_COPY)
        add_copy(it);
    else if (it->work->work == PH_TRACED_FILL)
        add_fill(it);
    else
        add_kernel(it);
}

/* ---- the interface ----------------------------------------------------------------------------------------------- */

PH_EXPORT int cuptiGetResultString(int result, const char **text) {
    if (!text) return CUPTI_INVALID_PARAMETER;
    *text = result == CUPTI_OK              ? "CUPTI_SUCCESS"
            : result == CUPTI_NOT_SUPPORTED ? "CUPTI_ERROR_NOT_SUPPORTED (emulated GPU)"
                                            : "CUPTI_ERROR_UNKNOWN";
    return CUPTI_OK;
}

/* From CUDA 13 on, the API's version is that of CUDA and a digit more. */
PH_EXPORT int cuptiGetVersion(uint32_t *version) {
    if (!version) return CUPTI_INVALID_PARAMETER;
    enum { CUDA_12_8 = 12080, FIRST_NAMED_AFTER_CUDA = 13000, OF_CUDA_12_6 = 24, OF_CUDA_12_8 = 26 };
    int runtime = ph_runtime_version();
    *version = runtime >= FIRST_NAMED_AFTER_CUDA ? (uint32_t)runtime * 10 + 1
               : runtime >= CUDA_12_8            ? OF_CUDA_12_8
                                                 : OF_CUDA_12_6;
    return CUPTI_OK;
}

/* Names the calls that name_call has. */
PH_EXPORT int cuptiGetCallbackName(int domain, uint32_t id, const char **name) {
    enum { DRIVER_API = 1, RUNTIME_API };
    if (!name) return CUPTI_INVALID_PARAMETER;
    const struct api *known = domain == RUNTIME_API ? runtime_calls : driver_calls;
    size_t count = domain == RUNTIME_API  ? sizeof runtime_calls / sizeof *runtime_calls
                   : domain == DRIVER_API ? sizeof driver_calls / sizeof *driver_calls
                                          : 0;
    for (size_t i = 0; i < count; i++)
        if (known[i].cbid == id) {
            *name = known[i].name;
            return CUPTI_OK;
        }
    *name = "unknown";
    return CUPTI_INVALID_PARAMETER;
}

PH_EXPORT int cuptiSubscribe(void **subscriber, void *callback, void *user_data) {
    (void)callback, (void)user_data;
    if (!subscriber) return CUPTI_INVALID_PARAMETER;
    *subscriber = &cupti;
    return CUPTI_OK;
}

PH_EXPORT int cuptiActivityRegisterCallbacks(request_function requested, complete_function completed) {
    if (!requested || !completed) return CUPTI_INVALID_PARAMETER;
    cupti.request = requested;
    cupti.complete = completed;
    return CUPTI_OK;
}

/* The profiler's own clock: it will convert what it gets. */
PH_EXPORT int cuptiActivityRegisterTimestampCallback(uint64_t (*clock)(void)) {
    cupti.converted = clock != NULL;
    return CUPTI_OK;
}

PH_EXPORT int cuptiActivityEnable(uint32_t kind) {
    switch (kind) {
    case KIND_KERNEL:
        kind = KIND_CONCURRENT_KERNEL;
        break;
    case KIND_MEMCPY:
    case KIND_MEMSET:
    case KIND_DRIVER:
    case KIND_RUNTIME:
    case KIND_CONCURRENT_KERNEL:
    case KIND_EXTERNAL_CORRELATION:
        break;
    case KIND_OVERHEAD: /* there is none */
        return CUPTI_OK;
    default:
        return ph_refuse("cuptiActivityEnable of this kind of activity", CUPTI_NOT_SUPPORTED);
    }
    ph_lock(PH_LOCK_CUPTI);
    cupti.enabled |= 1ull << kind;
    cupti.wanted |= 1ull << kind;
    request();
    ph_unlock(PH_LOCK_CUPTI);
    return CUPTI_OK;
}

PH_EXPORT int cuptiActivityDisable(uint32_t kind) {
    if (kind >= 64) return CUPTI_INVALID_PARAMETER;
    ph_lock(PH_LOCK_CUPTI);
    cupti.enabled &= ~(1ull << (kind == KIND_KERNEL ? KIND_CONCURRENT_KERNEL : kind));
    ph_unlock(PH_LOCK_CUPTI);
    return CUPTI_OK;
}

PH_EXPORT int cuptiActivityFlushAll(uint32_t flags) {
    (void)flags;
    ph_profile_update();
    ph_lock(PH_LOCK_CUPTI);
    ph_profile_collect(add_activity, NULL);
    complete();
    cupti.wanted = cupti.enabled;
    if (cupti.enabled) request(); /* the profiler flushes only while it has lent a buffer */
    ph_unlock(PH_LOCK_CUPTI);
    return CUPTI_OK;
}

PH_EXPORT int cuptiActivityGetNextRecord(uint8_t *buffer, size_t nbytes, uint8_t **record) {
    if (!buffer || !record) return CUPTI_INVALID_PARAMETER;
    uint32_t kind = 0;
    if (*record) memcpy(&kind, *record, sizeof kind);
    uint8_t *next = *record ? *record + size_of(kind) : buffer;
    if (next >= buffer + nbytes) return CUPTI_MAX_LIMIT_REACHED;
    *record = next;
    return CUPTI_OK;
}

PH_EXPORT int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    if (!dropped) return CUPTI_INVALID_PARAMETER;
    *dropped = 0;
    return CUPTI_OK;
}

static int external_kind(uint32_t kind) { return kind == EXTERNAL_CUSTOM0 ? 0 : kind == EXTERNAL_CUSTOM1 ? 1 : -1; }

PH_EXPORT int cuptiActivityPushExternalCorrelationId(uint32_t kind, uint64_t id) {
    if (external_kind(kind) < 0) return CUPTI_INVALID_PARAMETER;
    ph_profile_push(external_kind(kind), id);
    return CUPTI_OK;
}

PH_EXPORT int cuptiActivityPopExternalCorrelationId(uint32_t kind, uint64_t *last) {
    if (external_kind(kind) < 0) return CUPTI_INVALID_PARAMETER;
    uint64_t id = ph_profile_pop(external_kind(kind));
    if (last) *last = id;
    return id ? CUPTI_OK : CUPTI_QUEUE_EMPTY;
}
