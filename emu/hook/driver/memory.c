/*
 * Driver: memory, copies, sets, virtual memory.
 */
#include "core/alloc.h"
#include "threads/host.h"
#include "op_stream/warn.h"
#include "data/data.h"
#include "driver/driver.h"
#include "graphs/capture.h"
#include "copies/copy.h"
#include "memory/pinned.h"
#include "memory/managed.h"
#include "memory/memory.h"
#include "memory/server_memory.h"
#include "memory/shared.h"
#include "memory/vmm.h"
#include "streams/wait.h"

#include <stdlib.h>
#include <string.h>

PH_EXPORT int cuMemAlloc_v2(CUdeviceptr *out, size_t nbytes) {
    ph_host_call(PH_CALL_ALLOC);
    void *p = NULL;
    int status = ph_uncapturable();
    if (status == CUDA_OK) status = nbytes ? ph_device_alloc(ph_self()->device, nbytes, &p) : CUDA_INVALID_VALUE;
    *out = (CUdeviceptr)(uintptr_t)p;
    ph_server_memory_tell();
    return status;
}

PH_EXPORT int cuMemAllocManaged(CUdeviceptr *out, size_t nbytes, unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_ALLOC);
    void *p = NULL;
    int status = ph_uncapturable();
    if (status == CUDA_OK) status = ph_managed_alloc(&p, nbytes);
    *out = (CUdeviceptr)(uintptr_t)p;
    return status;
}

PH_EXPORT int cuMemFree_v2(CUdeviceptr address) {
    ph_host_call(PH_CALL_ALLOC);
    int device = ph_memory_device_of(pointer_of(address)), status = ph_device_usable();
    if (status == CUDA_OK) status = ph_uncapturable();
    if (status || !address) return status;
    if (ph_managed_range(pointer_of(address), NULL, NULL)) {
        ph_device_wait(ph_self()->device);
        return ph_managed_free(pointer_of(address));
    }
    if (device < 0) return CUDA_INVALID_VALUE;
    ph_device_wait(device);
    status = ph_device_free(pointer_of(address));
    ph_server_memory_tell();
    return status;
}

PH_EXPORT int cuMemGetInfo_v2(size_t *free_nbytes, size_t *total_nbytes) {
    ph_host_call(PH_CALL_QUERY);
    ph_memory_info(ph_visible_gpu(ph_self()->device), free_nbytes, total_nbytes);
    return ph_device_usable();
}

PH_EXPORT int cuMemHostAlloc(void **out, size_t nbytes, unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_ALLOC);
    return ph_host_alloc(out, nbytes);
}
PH_EXPORT int cuMemAllocHost_v2(void **out, size_t nbytes) { return cuMemHostAlloc(out, nbytes, 0); }

PH_EXPORT int cuMemFreeHost(void *p) {
    ph_host_call(PH_CALL_ALLOC);
    return ph_host_free(p);
}

PH_EXPORT int cuMemHostRegister_v2(void *p, size_t nbytes, unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_ALLOC);
    return ph_host_register(p, nbytes);
}
PH_EXPORT int cuMemHostUnregister(void *p) { return ph_host_unregister(p); }

PH_EXPORT int cuMemHostGetDevicePointer_v2(CUdeviceptr *out, void *p, unsigned flags) {
    (void)flags;
    *out = ph_host_pinned(p) ? (CUdeviceptr)(uintptr_t)p : 0;
    return *out ? CUDA_OK : CUDA_INVALID_VALUE;
}

/* ---- copies and sets --------------------------------------------------------------------------------------------- */

static int copy(CUdeviceptr dst, CUdeviceptr src, size_t nbytes, void *stream, bool async) {
    ph_host_call(PH_CALL_MEMCPY);
    ph_stream *on = ph_stream_of(stream);
    return on ? ph_copy(pointer_of(dst), pointer_of(src), nbytes, COPY_DEFAULT, on, async) : CUDA_INVALID_HANDLE;
}

#define HOST(p) ((CUdeviceptr)(uintptr_t)(p))
PH_EXPORT int cuMemcpy(CUdeviceptr dst, CUdeviceptr src, size_t n) { return copy(dst, src, n, NULL, false); }
PH_EXPORT int cuMemcpyAsync(CUdeviceptr dst, CUdeviceptr src, size_t n, void *stream) {
    return copy(dst, src, n, stream, true);
}
PH_EXPORT int cuMemcpyHtoD_v2(CUdeviceptr dst, const void *src, size_t n) {
    return copy(dst, HOST(src), n, NULL, false);
}
PH_EXPORT int cuMemcpyDtoH_v2(void *dst, CUdeviceptr src, size_t n) { return copy(HOST(dst), src, n, NULL, false); }
PH_EXPORT int cuMemcpyDtoD_v2(CUdeviceptr dst, CUdeviceptr src, size_t n) { return copy(dst, src, n, NULL, false); }
PH_EXPORT int cuMemcpyHtoDAsync_v2(CUdeviceptr dst, const void *src, size_t n, void *stream) {
    return copy(dst, HOST(src), n, stream, true);
}
PH_EXPORT int cuMemcpyDtoHAsync_v2(void *dst, CUdeviceptr src, size_t n, void *stream) {
    return copy(HOST(dst), src, n, stream, true);
}
PH_EXPORT int cuMemcpyDtoDAsync_v2(CUdeviceptr dst, CUdeviceptr src, size_t n, void *stream) {
    return copy(dst, src, n, stream, true);
}

typedef struct pattern {
    unsigned char *dst;
    size_t n, width;
    uint32_t value;
} pattern;

static void repeat(void *arg) {
    pattern *p = arg;
    for (size_t i = 0; i < p->n; i++)
        memcpy(p->dst + i * p->width, &p->value, p->width); /* the low bytes: little-endian */
    ph_data_mark_known(p->dst, p->n * p->width);
    free(p);
}

static int set(CUdeviceptr dst, uint32_t value, size_t width, size_t n, void *stream, bool async) {
    ph_host_call(PH_CALL_MEMSET);
    ph_stream *on = ph_stream_of(stream);
    if (!on) return CUDA_INVALID_HANDLE;
    uint32_t spread = (value & 0xff) * 0x01010101u, mask = width == 4 ? UINT32_MAX : (1u << (8 * width)) - 1;
    if ((spread & mask) == (value & mask)) return ph_set(pointer_of(dst), (int)(value & 0xff), width * n, on, async);
    size_t nbytes = width * n;
    if (ph_stream_capturing(on))
        return ph_refuse("a set of 16 or 32 bit elements in a stream capture", CUDA_CAPTURE_UNSUPPORTED);
    int status = ph_set_time(nbytes, on);
    if (status || nbytes > ph_cfg.data_limit_nbytes) {
        ph_data_overwrite(pointer_of(dst), nbytes);
        return status;
    }
    pattern *p = ph_allocate(sizeof *p);
    *p = (pattern){pointer_of(dst), n, width, value};
    ph_range written = {pointer_of(dst), nbytes};
    ph_data_action(NULL, 0, &written, 1, repeat, p);
    return CUDA_OK;
}

PH_EXPORT int cuMemsetD8_v2(CUdeviceptr dst, unsigned char value, size_t n) {
    return set(dst, value, 1, n, NULL, false);
}
PH_EXPORT int cuMemsetD16_v2(CUdeviceptr dst, unsigned short value, size_t n) {
    return set(dst, value, 2, n, NULL, false);
}
PH_EXPORT int cuMemsetD32_v2(CUdeviceptr dst, unsigned value, size_t n) { return set(dst, value, 4, n, NULL, false); }
PH_EXPORT int cuMemsetD8Async(CUdeviceptr dst, unsigned char value, size_t n, void *stream) {
    return set(dst, value, 1, n, stream, true);
}
PH_EXPORT int cuMemsetD16Async(CUdeviceptr dst, unsigned short value, size_t n, void *stream) {
    return set(dst, value, 2, n, stream, true);
}
PH_EXPORT int cuMemsetD32Async(CUdeviceptr dst, unsigned value, size_t n, void *stream) {
    return set(dst, value, 4, n, stream, true);
}

/* A stream writes one word. */
PH_EXPORT int cuStreamWriteValue32_v2(void *stream, CUdeviceptr dst, uint32_t value, unsigned flags) {
    (void)flags;
    return set(dst, value, sizeof value, 1, stream, true);
}

PH_EXPORT int cuStreamWriteValue64_v2(void *stream, CUdeviceptr dst, uint64_t value, unsigned flags) {
    (void)flags;
    int status = set(dst, (uint32_t)value, sizeof(uint32_t), 1, stream, true);
    return status ? status : set(dst + sizeof(uint32_t), (uint32_t)(value >> 32), sizeof(uint32_t), 1, stream, true);
}

/* ---- virtual memory ---------------------------------------------------------------------------------------------- */

PH_EXPORT int cuMemGetAllocationGranularity(size_t *nbytes, const struct CUmemAllocationProp *properties, int option) {
    (void)option;
    *nbytes = PH_PAGE;
    return properties->location.type == cudaMemLocationTypeDevice && !ph_device_exists(properties->location.id)
               ? CUDA_INVALID_DEVICE
               : CUDA_OK;
}

PH_EXPORT int cuMemAddressReserve(CUdeviceptr *out, size_t nbytes, size_t alignment, CUdeviceptr wished,
                                  unsigned long long flags) {
    (void)wished;
    ph_host_call(PH_CALL_ALLOC);
    void *at = NULL;
    int status = flags ? CUDA_INVALID_VALUE : ph_vmm_reserve(&at, nbytes, alignment);
    *out = (CUdeviceptr)(uintptr_t)at;
    return status;
}

PH_EXPORT int cuMemAddressFree(CUdeviceptr address, size_t nbytes) {
    ph_host_call(PH_CALL_ALLOC);
    return ph_vmm_unreserve(pointer_of(address), nbytes);
}

PH_EXPORT int cuMemCreate(uint64_t *handle, size_t nbytes, const struct CUmemAllocationProp *properties,
                          unsigned long long flags) {
    ph_host_call(PH_CALL_ALLOC);
    *handle = 0;
    if (flags) return CUDA_INVALID_VALUE;
    /* Handles can be exported as file descriptors. Other kinds are refused, as drivers do where no fabric manager runs.
     */
    if (properties->requestedHandleTypes & ~cudaMemHandleTypePosixFileDescriptor) return CUDA_NOT_SUPPORTED;
    int status = ph_vmm_create(handle, nbytes, properties);
    ph_server_memory_tell();
    return status;
}

PH_EXPORT int cuMemRelease(uint64_t handle) {
    ph_host_call(PH_CALL_ALLOC);
    int status = ph_vmm_release(handle);
    ph_server_memory_tell();
    return status;
}

PH_EXPORT int cuMemMap(CUdeviceptr address, size_t nbytes, size_t offset, uint64_t handle, unsigned long long flags) {
    ph_host_call(PH_CALL_ALLOC);
    return flags ? CUDA_INVALID_VALUE : ph_vmm_map(pointer_of(address), nbytes, offset, handle);
}

PH_EXPORT int cuMemUnmap(CUdeviceptr address, size_t nbytes) {
    ph_host_call(PH_CALL_ALLOC);
    return ph_vmm_unmap(pointer_of(address), nbytes);
}

PH_EXPORT int cuMemSetAccess(CUdeviceptr address, size_t nbytes, const struct CUmemAccessDesc *access, size_t n) {
    ph_host_call(PH_CALL_ALLOC);
    for (size_t i = 0; i < n; i++)
        if (access[i].location.type == cudaMemLocationTypeDevice && !ph_device_exists(access[i].location.id))
            return CUDA_INVALID_DEVICE;
    return ph_vmm_set_access(pointer_of(address), nbytes);
}

PH_EXPORT int cuMemGetAllocationPropertiesFromHandle(struct CUmemAllocationProp *out, uint64_t handle) {
    return ph_vmm_properties(out, handle);
}

PH_EXPORT int cuMemRetainAllocationHandle(uint64_t *handle, void *address) { return ph_vmm_retain(handle, address); }

/* ---- memory of other processes ----------------------------------------------------------------------------------- */

/* A handle's file descriptor belongs to the program, which closes it. */
PH_EXPORT int cuMemExportToShareableHandle(void *out, uint64_t handle, int type, unsigned long long flags) {
    ph_host_call(PH_CALL_ALLOC);
    if (!out || flags) return CUDA_INVALID_VALUE;
    if (type != cudaMemHandleTypePosixFileDescriptor)
        return ph_refuse("cuMemExportToShareableHandle to other than a file descriptor", CUDA_NOT_SUPPORTED);
    ph_shared identity;
    int status = ph_vmm_export(handle, &identity);
    if (status) return status;
    int fd = ph_shared_export(&identity);
    memcpy(out, &fd, sizeof fd);
    return fd >= 0 ? CUDA_OK : CUDA_OUT_OF_MEMORY;
}

PH_EXPORT int cuMemImportFromShareableHandle(uint64_t *handle, void *os_handle, int type) {
    ph_host_call(PH_CALL_ALLOC);
    *handle = 0;
    if (type != cudaMemHandleTypePosixFileDescriptor)
        return ph_refuse("cuMemImportFromShareableHandle of other than a file descriptor", CUDA_NOT_SUPPORTED);
    ph_shared identity;
    if (!ph_shared_import((int)(intptr_t)os_handle, &identity)) return CUDA_INVALID_VALUE;
    return ph_vmm_import(handle, &identity, identity.nbytes);
}

PH_EXPORT int cuIpcGetMemHandle(ph_ipc_handle *out, CUdeviceptr address) {
    ph_host_call(PH_CALL_ALLOC);
    return out ? ph_ipc_get(out, pointer_of(address)) : CUDA_INVALID_VALUE;
}

PH_EXPORT int cuIpcOpenMemHandle_v2(CUdeviceptr *out, ph_ipc_handle handle, unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_ALLOC);
    void *at = NULL;
    int status = ph_ipc_open(&at, &handle);
    *out = (CUdeviceptr)(uintptr_t)at;
    return status;
}

PH_EXPORT int cuIpcCloseMemHandle(CUdeviceptr address) {
    ph_host_call(PH_CALL_ALLOC);
    return ph_ipc_close(pointer_of(address));
}
