/*
 * Runtime: memory, copies and sets, pointers, variables of modules.
 */
#include "device/versions.h"
#include "threads/host.h"
#include "cudart/cudart.h"
#include "graphs/capture.h"
#include "kernels/registry.h"
#include "copies/copy.h"
#include "memory/pinned.h"
#include "memory/managed.h"
#include "memory/memory.h"
#include "memory/server_memory.h"
#include "streams/wait.h"

#include <string.h>

PH_EXPORT int cudaMalloc(void **out, size_t nbytes) {
    ph_host_call(PH_CALL_ALLOC);
    *out = NULL;
    int status = ph_uncapturable();
    if (status == CUDA_OK) status = ph_device_alloc(ph_self()->device, nbytes, out);
    ph_server_memory_tell();
    return result(status);
}

/* Waits for the device: CUDA documents that cudaFree may synchronise, and caching allocators rely on it. */
PH_EXPORT int cudaFree(void *p) {
    ph_host_call(PH_CALL_ALLOC);
    int status = ph_device_usable();
    if (status == CUDA_OK) status = ph_uncapturable();
    if (status || !p) return result(status);
    if (ph_managed_range(p, NULL, NULL)) {
        ph_device_wait(ph_self()->device);
        return result(ph_managed_free(p));
    }
    int device = ph_memory_device_of(p);
    if (device < 0) return result(CUDA_INVALID_VALUE);
    ph_device_wait(device);
    status = cudart_free(p);
    ph_server_memory_tell();
    return result(status);
}

PH_EXPORT int cudaMemGetInfo(size_t *free_nbytes, size_t *total_nbytes) {
    ph_host_call(PH_CALL_QUERY);
    ph_memory_info(ph_visible_gpu(ph_self()->device), free_nbytes, total_nbytes);
    return result(ph_device_usable());
}

PH_EXPORT int cudaHostAlloc(void **out, size_t nbytes, unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_ALLOC);
    return result(ph_host_alloc(out, nbytes));
}

PH_EXPORT int cudaMallocHost(void **out, size_t nbytes) { return cudaHostAlloc(out, nbytes, 0); }

PH_EXPORT int cudaFreeHost(void *p) {
    ph_host_call(PH_CALL_ALLOC);
    return result(ph_host_free(p));
}

PH_EXPORT int cudaHostRegister(void *p, size_t nbytes, unsigned flags) {
    (void)flags;
    ph_host_call(PH_CALL_ALLOC);
    return result(ph_host_register(p, nbytes));
}

PH_EXPORT int cudaHostUnregister(void *p) {
    ph_host_call(PH_CALL_ALLOC);
    return result(ph_host_unregister(p));
}

PH_EXPORT int cudaHostGetDevicePointer(void **device, void *host, unsigned flags) {
    (void)flags;
    bool pinned = ph_host_pinned(host);
    *device = pinned ? host : NULL;
    return result(pinned ? CUDA_OK : CUDA_INVALID_VALUE);
}

PH_EXPORT int cudaHostGetFlags(unsigned *flags, void *host) {
    *flags = 0;
    return result(ph_host_pinned(host) ? CUDA_OK : CUDA_INVALID_VALUE);
}

PH_EXPORT int cudaPointerGetAttributes(struct cudaPointerAttributes *out, const void *p) {
    ph_host_call(PH_CALL_QUERY);
    bool managed = ph_managed_range(p, NULL, NULL);
    int device = managed ? ph_self()->device : ph_memory_device_of(p), type = managed             ? MEMORY_MANAGED
                                                                              : device >= 0       ? MEMORY_DEVICE
                                                                              : ph_host_pinned(p) ? MEMORY_HOST
                                                                                                  : MEMORY_UNREGISTERED;
    memset(out, 0, ph_runtime_version() >= 13000 ? sizeof *out : offsetof(struct cudaPointerAttributes, reserved));
    out->type = type;
    out->device = device >= 0 ? device : type == MEMORY_HOST ? ph_self()->device : -2; /* cudaInvalidDeviceId */
    out->devicePointer = type != MEMORY_UNREGISTERED ? (void *)(uintptr_t)p : NULL;
    out->hostPointer = type != MEMORY_DEVICE ? (void *)(uintptr_t)p : NULL;
    return result(ph_device_usable());
}

/* ---- copies and sets --------------------------------------------------------------------------------------------- */

static int copy(void *dst, const void *src, size_t nbytes, int kind, void *stream, bool async) {
    ph_host_call(PH_CALL_MEMCPY);
    ph_stream *on = ph_stream_of(stream);
    return result(on ? ph_copy(dst, src, nbytes, kind, on, async) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaMemcpy(void *dst, const void *src, size_t nbytes, int kind) {
    return copy(dst, src, nbytes, kind, NULL, false);
}

PH_EXPORT int cudaMemcpyAsync(void *dst, const void *src, size_t nbytes, int kind, void *stream) {
    return copy(dst, src, nbytes, kind, stream, true);
}

PH_EXPORT int cudaMemcpyPeer(void *dst, int to, const void *src, int from, size_t nbytes) {
    return ph_device_exists(to) && ph_device_exists(from) ? copy(dst, src, nbytes, COPY_DEFAULT, NULL, false)
                                                          : result(CUDA_INVALID_DEVICE);
}

PH_EXPORT int cudaMemcpyPeerAsync(void *dst, int to, const void *src, int from, size_t nbytes, void *stream) {
    return ph_device_exists(to) && ph_device_exists(from) ? copy(dst, src, nbytes, COPY_DEFAULT, stream, true)
                                                          : result(CUDA_INVALID_DEVICE);
}

static int copy_2d(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
                   int kind, void *stream, bool async) {
    ph_host_call(PH_CALL_MEMCPY);
    ph_stream *on = ph_stream_of(stream);
    return result(on ? ph_copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, on, async)
                     : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaMemcpy2D(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width, size_t height,
                           int kind) {
    return copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, NULL, false);
}

PH_EXPORT int cudaMemcpy2DAsync(void *dst, size_t dst_pitch, const void *src, size_t src_pitch, size_t width,
                                size_t height, int kind, void *stream) {
    return copy_2d(dst, dst_pitch, src, src_pitch, width, height, kind, stream, true);
}

static int set(void *dst, int value, size_t nbytes, void *stream, bool async) {
    ph_host_call(PH_CALL_MEMSET);
    ph_stream *on = ph_stream_of(stream);
    return result(on ? ph_set(dst, value, nbytes, on, async) : CUDA_INVALID_HANDLE);
}

PH_EXPORT int cudaMemset(void *dst, int value, size_t nbytes) { return set(dst, value, nbytes, NULL, false); }
PH_EXPORT int cudaMemsetAsync(void *dst, int value, size_t nbytes, void *stream) {
    return set(dst, value, nbytes, stream, true);
}

/* ---- variables of modules ---------------------------------------------------------------------------------------- */

PH_EXPORT int cudaGetSymbolAddress(void **address, const void *symbol) {
    size_t nbytes;
    return result(ph_variable_of(symbol, address, &nbytes));
}

PH_EXPORT int cudaGetSymbolSize(size_t *nbytes, const void *symbol) {
    void *address;
    return result(ph_variable_of(symbol, &address, nbytes));
}

static int within(const void *symbol, size_t offset, size_t nbytes, char **at) {
    void *address;
    size_t size;
    int status = ph_variable_of(symbol, &address, &size);
    *at = (char *)address + offset;
    return status ? status : offset > size || nbytes > size - offset ? CUDA_INVALID_VALUE : CUDA_OK;
}

PH_EXPORT int cudaMemcpyToSymbolAsync(const void *symbol, const void *src, size_t nbytes, size_t offset, int kind,
                                      void *stream) {
    char *at;
    int status = within(symbol, offset, nbytes, &at);
    return status ? result(status) : copy(at, src, nbytes, kind, stream, true);
}

PH_EXPORT int cudaMemcpyToSymbol(const void *symbol, const void *src, size_t nbytes, size_t offset, int kind) {
    char *at;
    int status = within(symbol, offset, nbytes, &at);
    return status ? result(status) : copy(at, src, nbytes, kind, NULL, false);
}

PH_EXPORT int cudaMemcpyFromSymbol(void *dst, const void *symbol, size_t nbytes, size_t offset, int kind) {
    char *at;
    int status = within(symbol, offset, nbytes, &at);
    return status ? result(status) : copy(dst, at, nbytes, kind, NULL, false);
}
