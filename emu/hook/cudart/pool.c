/*
 * Stream-ordered allocation (memory pools). Memory is taken when the call is made and given back when the free is
 * called, not in stream order: bytes are handled in program order anyway. A pool takes 32 MiB of the device at a time
 * and keeps what is given back up to its threshold, which PyTorch sets to all. Holes between allocations are not
 * modelled: real pools reserve more.
 */
#include "threads/host.h"
#include "core/lock.h"
#include "op_stream/warn.h"
#include "cudart/cudart.h"
#include "graphs/capture.h"
#include "memory/memory.h"

#include <string.h>

enum {
    POOL_MAGIC = 0x504f4f4c,
    RELEASE_THRESHOLD = 4,
    RESERVED_NOW = 5,
    RESERVED_HIGH = 6,
    USED_NOW = 7,
    USED_HIGH = 8
};

typedef struct pool {
    uint32_t magic;
    int device;
    int reuse[4]; /* attributes 1 to 3, which are only stored */
    uint64_t threshold, used, high;
    uint64_t reserved, reserved_high; /* of the device: used or kept */
} pool;

static struct {
    pool defaults[PH_MAX_DEVICES];
} pools;

static pool *default_pool(int device) {
    pool *p = &pools.defaults[device];
    if (p->magic != POOL_MAGIC) *p = (pool){.magic = POOL_MAGIC, .device = device, .reuse = {0, 1, 1, 1}};
    return p;
}

static pool *pool_of(void *handle) {
    pool *p = handle;
    return p && p->magic == POOL_MAGIC ? p : NULL;
}

PH_EXPORT int cudaDeviceGetDefaultMemPool(void **out, int device) {
    *out = ph_device_exists(device) ? default_pool(device) : NULL;
    return result(*out ? CUDA_OK : CUDA_INVALID_DEVICE);
}

PH_EXPORT int cudaDeviceGetMemPool(void **out, int device) { return cudaDeviceGetDefaultMemPool(out, device); }

#define RESERVED_AT_ONCE ((uint64_t)32 << 20)

/* The pool reserves so much now, or what is used if the device has no more. Under the lock. */
static void reserve(pool *p, uint64_t nbytes) {
    ph_memory_give(p->device, p->reserved - p->used);
    p->reserved = nbytes > p->used ? nbytes : p->used;
    if (ph_memory_take(p->device, p->reserved - p->used) != CUDA_OK) p->reserved = p->used;
    if (p->reserved > p->reserved_high) p->reserved_high = p->reserved;
}

/* Under the lock. */
static void use_more(pool *p, uint64_t nbytes) {
    p->used += nbytes;
    p->high = p->used > p->high ? p->used : p->high;
}

static int allocate(void **out, size_t nbytes, pool *p, void *stream) {
    ph_host_call(PH_CALL_ALLOC);
    *out = NULL;
    ph_stream *on = ph_stream_of(stream);
    if (!p || !on) return result(CUDA_INVALID_HANDLE);
    if (ph_stream_capturing(on))
        return result(ph_refuse("cudaMallocAsync in a stream capture", CUDA_CAPTURE_UNSUPPORTED));
    int status = ph_uncapturable();
    if (status != CUDA_OK) return result(status);
    void *start;
    size_t taken = 0;
    ph_lock(PH_LOCK_POOLS);
    uint64_t before = p->reserved;
    reserve(p, p->used); /* what is kept is there for this */
    status = ph_device_alloc(p->device, nbytes, out);
    if (status == CUDA_OK && ph_memory_range_of(*out, &start, &taken) == CUDA_OK) {
        use_more(p, taken);
        p->reserved += taken;
    }
    uint64_t needs = (p->used + RESERVED_AT_ONCE - 1) / RESERVED_AT_ONCE * RESERVED_AT_ONCE;
    reserve(p, before > needs ? before : needs);
    ph_unlock(PH_LOCK_POOLS);
    return result(status);
}

PH_EXPORT int cudaMallocAsync(void **out, size_t nbytes, void *stream) {
    return allocate(out, nbytes, default_pool(ph_self()->device), stream);
}

PH_EXPORT int cudaMallocFromPoolAsync(void **out, size_t nbytes, void *handle, void *stream) {
    return allocate(out, nbytes, pool_of(handle), stream);
}

PH_EXPORT int cudaFreeAsync(void *p, void *stream) {
    ph_host_call(PH_CALL_ALLOC);
    ph_stream *on = ph_stream_of(stream);
    if (!on) return result(CUDA_INVALID_HANDLE);
    if (ph_stream_capturing(on))
        return result(ph_refuse("cudaFreeAsync in a stream capture", CUDA_CAPTURE_UNSUPPORTED));
    int device = ph_memory_device_of(p);
    void *start;
    size_t taken = 0;
    if (!p) return CUDA_OK;
    if (device < 0 || ph_memory_range_of(p, &start, &taken) != CUDA_OK) return result(CUDA_INVALID_VALUE);
    ph_lock(PH_LOCK_POOLS);
    pool *own = default_pool(device);
    int status = ph_device_free(p);
    if (status == CUDA_OK && taken <= own->used) { /* not of cudaMalloc */
        uint64_t kept = own->reserved;
        own->used -= taken;
        own->reserved -= taken;
        reserve(own, kept < own->threshold ? kept : own->threshold);
    }
    ph_unlock(PH_LOCK_POOLS);
    return result(status);
}

PH_EXPORT int cudaMemPoolGetAttribute(void *handle, int attribute, void *value) {
    pool *p = pool_of(handle);
    if (!p || attribute < 1 || attribute > USED_HIGH) return result(CUDA_INVALID_VALUE);
    if (attribute < RELEASE_THRESHOLD)
        memcpy(value, &p->reuse[attribute], sizeof(int));
    else {
        uint64_t wide = attribute == RELEASE_THRESHOLD ? p->threshold
                        : attribute == RESERVED_HIGH   ? p->reserved_high
                        : attribute == RESERVED_NOW    ? p->reserved
                        : attribute == USED_HIGH       ? p->high
                                                       : p->used;
        memcpy(value, &wide, sizeof wide);
    }
    return CUDA_OK;
}

PH_EXPORT int cudaMemPoolSetAttribute(void *handle, int attribute, void *value) {
    pool *p = pool_of(handle);
    if (!p || attribute < 1 || attribute > USED_HIGH || attribute == RESERVED_NOW || attribute == USED_NOW)
        return result(CUDA_INVALID_VALUE);
    if (attribute < RELEASE_THRESHOLD)
        memcpy(&p->reuse[attribute], value, sizeof(int));
    else if (attribute == RELEASE_THRESHOLD)
        memcpy(&p->threshold, value, sizeof p->threshold);
    else if (attribute == RESERVED_HIGH) /* high-water marks can only be reset */
        p->reserved_high = p->reserved;
    else
        p->high = p->used;
    return CUDA_OK;
}

PH_EXPORT int cudaMemPoolTrimTo(void *handle, size_t keep) {
    pool *p = pool_of(handle);
    if (!p) return result(CUDA_INVALID_VALUE);
    ph_lock(PH_LOCK_POOLS);
    if (keep < p->reserved) reserve(p, keep);
    ph_unlock(PH_LOCK_POOLS);
    return CUDA_OK;
}

PH_EXPORT int cudaMemPoolSetAccess(void *handle, const struct CUmemAccessDesc *access, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!ph_device_exists(access[i].location.id)) return result(CUDA_INVALID_DEVICE);
    return result(pool_of(handle) ? CUDA_OK : CUDA_INVALID_VALUE);
}

PH_EXPORT int cudaMemPoolGetAccess(int *flags, void *handle, struct cudaMemLocation *location) {
    *flags = pool_of(handle) && ph_device_exists(location->id) ? cudaMemAccessFlagsProtReadWrite : 0;
    return result(*flags ? CUDA_OK : CUDA_INVALID_VALUE);
}
