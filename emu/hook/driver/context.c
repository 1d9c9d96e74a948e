/*
 * Driver: initialisation, devices, contexts.
 */
#include "threads/host.h"
#include "driver/driver.h"
#include "op_stream/history.h"
#include "streams/wait.h"

#include <string.h>

typedef struct context {
    uint32_t magic;
    int device;
} context;
enum { CONTEXT_MAGIC = 0x43545854 };

static context contexts[PH_MAX_DEVICES];

static context *context_of(int device) {
    context *c = &contexts[device];
    c->magic = CONTEXT_MAGIC;
    c->device = device;
    return c;
}

static context *valid(void *handle) {
    context *c = handle;
    return c && c->magic == CONTEXT_MAGIC ? c : NULL;
}

PH_EXPORT int cuInit(unsigned flags) { return flags ? CUDA_INVALID_VALUE : ph_device_usable(); }

PH_EXPORT int cuDriverGetVersion(int *version) {
    *version = ph_cfg.driver_version;
    return CUDA_OK;
}

PH_EXPORT int cuDeviceGet(int *device, int ordinal) {
    *device = ordinal;
    return ph_device_exists(ordinal) ? ph_device_usable() : CUDA_INVALID_DEVICE;
}

PH_EXPORT int cuDeviceGetCount(int *count) {
    *count = ph_visible_count();
    return ph_device_usable();
}

PH_EXPORT int cuDeviceGetName(char *name, int capacity, int device) {
    PH_READS("name");
    if (!ph_device_exists(device) || capacity <= 0)
        return ph_device_exists(device) ? CUDA_INVALID_VALUE : CUDA_INVALID_DEVICE;
    strncpy(name, ph_cfg.device_name, (size_t)capacity - 1);
    name[capacity - 1] = 0;
    return CUDA_OK;
}

PH_EXPORT int cuDeviceGetUuid_v2(cudaUUID *uuid, int device) {
    memset(uuid, 0, sizeof *uuid);
    if (!ph_device_exists(device)) return CUDA_INVALID_DEVICE;
    ph_device_uuid(ph_visible_gpu(device), uuid->bytes);
    return CUDA_OK;
}
PH_EXPORT int cuDeviceGetUuid(cudaUUID *uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }

PH_EXPORT int cuDeviceTotalMem_v2(size_t *nbytes, int device) {
    PH_READS("total_memory");
    *nbytes = ph_cfg.memory_nbytes;
    return ph_device_exists(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

PH_EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device) {
    ph_history_binding_reads_attribute(__builtin_return_address(0), attribute);
    return ph_device_attr(attribute, device, value);
}

PH_EXPORT int cuDeviceComputeCapability(int *major, int *minor, int device) {
    PH_READS("capability");
    *major = ph_cfg.cc_major;
    *minor = ph_cfg.cc_minor;
    return ph_device_exists(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

PH_EXPORT int cuDeviceGetPCIBusId(char *text, int capacity, int device) {
    if (!ph_device_exists(device) || capacity < 13)
        return ph_device_exists(device) ? CUDA_INVALID_VALUE : CUDA_INVALID_DEVICE;
    ph_device_pci(ph_visible_gpu(device), text, (size_t)capacity);
    return CUDA_OK;
}

PH_EXPORT int cuDeviceGetByPCIBusId(int *device, const char *text) {
    int found = ph_visible_as(ph_device_of_pci(text));
    *device = found < 0 ? 0 : found;
    return found < 0 ? CUDA_INVALID_DEVICE : CUDA_OK;
}

PH_EXPORT int cuDeviceCanAccessPeer(int *can, int device, int peer) {
    bool exist = ph_device_exists(device) && ph_device_exists(peer);
    *can = exist && device != peer;
    return exist ? CUDA_OK : CUDA_INVALID_DEVICE;
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

PH_EXPORT int cuDevicePrimaryCtxRetain(void **out, int device) {
    *out = NULL;
    if (!ph_device_exists(device)) return CUDA_INVALID_DEVICE;
    ph_context_use(device);
    *out = context_of(device);
    return ph_device_usable();
}

PH_EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    return ph_device_exists(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

PH_EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active) {
    *flags = 0;
    *active = ph_device_exists(device) && ph_context_used(device);
    return ph_device_exists(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

PH_EXPORT int cuDevicePrimaryCtxSetFlags_v2(int device, unsigned flags) {
    (void)flags; /* how the host waits for the device: not modelled */
    return ph_device_exists(device) ? CUDA_OK : CUDA_INVALID_DEVICE;
}

PH_EXPORT int cuCtxGetCurrent(void **out) {
    int device = ph_self()->device;
    *out = ph_context_used(device) ? context_of(device) : NULL;
    return ph_device_usable();
}

PH_EXPORT int cuCtxSetCurrent(void *handle) {
    if (!handle) return CUDA_OK;
    context *c = valid(handle);
    if (!c) return CUDA_INVALID_CONTEXT;
    ph_context_use(c->device);
    ph_self()->device = c->device;
    return ph_device_usable();
}

PH_EXPORT int cuCtxPushCurrent_v2(void *handle) {
    ph_thread *thread = ph_self();
    context *c = valid(handle);
    if (!c || thread->npushed == PH_MAX_CONFIGS) return c ? CUDA_INVALID_VALUE : CUDA_INVALID_CONTEXT;
    thread->pushed[thread->npushed++] = thread->device;
    return cuCtxSetCurrent(handle);
}

PH_EXPORT int cuCtxPopCurrent_v2(void **out) {
    ph_thread *thread = ph_self();
    if (out) *out = context_of(thread->device);
    if (thread->npushed == 0) return CUDA_INVALID_CONTEXT;
    thread->device = thread->pushed[--thread->npushed];
    return CUDA_OK;
}

PH_EXPORT int cuCtxGetDevice(int *device) {
    *device = ph_self()->device;
    return CUDA_OK;
}

PH_EXPORT int cuCtxGetFlags(unsigned *flags) {
    *flags = 0;
    return CUDA_OK;
}

PH_EXPORT int cuCtxGetApiVersion(void *handle, unsigned *version) {
    *version = 3020;
    return handle && !valid(handle) ? CUDA_INVALID_CONTEXT : CUDA_OK;
}

PH_EXPORT int cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    if (least) *least = PH_LEAST_PRIORITY;
    if (greatest) *greatest = PH_GREATEST_PRIORITY;
    return CUDA_OK;
}

PH_EXPORT int cuCtxSynchronize(void) {
    ph_host_call(PH_CALL_SYNC);
    return ph_device_synchronize(ph_self()->device);
}

PH_EXPORT int cuCtxEnablePeerAccess(void *handle, unsigned flags) {
    context *c = valid(handle);
    return c ? ph_peer_enable(ph_self()->device, c->device, flags) : CUDA_INVALID_CONTEXT;
}

/* Tables of undocumented functions, which NVIDIA's libraries and tools ask for: there are none. Those that can do
 * without them go on, and the others say what they lack, so nothing is said here. */
PH_EXPORT int cuGetExportTable(const void **table, const cudaUUID *id) {
    (void)id;
    *table = NULL;
    return CUDA_NOT_FOUND;
}

/* The emulated driver writes no log, so the callback is never called. */
PH_EXPORT int cuLogsRegisterCallback(void *callback, void *user_data, void **handle) {
    (void)user_data;
    *handle = callback;
    return callback ? CUDA_OK : CUDA_INVALID_VALUE;
}

PH_EXPORT int cuLogsUnregisterCallback(void *handle) { return handle ? CUDA_OK : CUDA_INVALID_VALUE; }
PH_EXPORT int cudaLogsRegisterCallback(void *callback, void *user_data, void **handle) {
    return result(cuLogsRegisterCallback(callback, user_data, handle));
}
PH_EXPORT int cudaLogsUnregisterCallback(void *handle) { return result(cuLogsUnregisterCallback(handle)); }
