/*
 * Stream-ordered allocation (memory pools). Memory is taken when the call is made and given back when the free is
 * called, not in stream order: bytes are handled in program order anyway. A pool takes 32 MiB of the device at a time
 * and keeps what is given back up to its threshold, which PyTorch sets to all. Holes between allocations are not
 * modelled: real pools reserve more.
 */
#include "threads/host.h"
#include "core/alloc.h"
#include "core/lock.h"
#include "op_stream/warn.h"
#include "cudart/cudart.h"
#include "graphs/capture.h"
#include "memory/memory.h"
#include "memory/server_memory.h"
#include "memory/search.h"

#include <stdlib.h>
#include <string.h>

enum { LOCATION_DEVICE = 1, RELEASE_THRESHOLD = 4, RESERVED_NOW = 5, RESERVED_HIGH = 6, USED_NOW = 7, USED_HIGH = 8 };

typedef struct pool {
    struct pool *next; /* of those that the program has made */
    int device;
    bool destroyed;      /* it lives on until its last allocation is freed */
    int reuse[4];        /* attributes 1 to 3, which are only stored */
    uint64_t most, used; /* most: that may be allocated */
    uint64_t threshold, high;
    uint64_t reserved, reserved_high; /* of the device: used or kept */
} pool;

typedef struct allocation {
    uintptr_t begin;
    pool *of;
} allocation;

static struct {
    pool defaults[PH_MAX_DEVICES];
    pool *current[PH_MAX_DEVICES], *made; /* current: NULL: the default one */
    allocation *allocations;              /* sorted */
    size_t n, capacity;
} pools;

static void set_up(pool *p, int device, uint64_t most) {
    *p = (pool){.device = device, .reuse = {0, 1, 1, 1}, .most = most};
}

static pool *default_pool(int device) {
    pool *p = &pools.defaults[device];
    if (!p->most) set_up(p, device, UINT64_MAX);
    return p;
}

static pool *pool_of(void *handle) {
    pool *p = handle, *found = NULL;
    if (p >= pools.defaults && p < pools.defaults + PH_MAX_DEVICES) return p;
    ph_lock(PH_LOCK_POOLS);
    for (pool *one = pools.made; one && !found; one = one->next)
        if (one == p && !one->destroyed) found = one;
    ph_unlock(PH_LOCK_POOLS);
    return found;
}

static pool *current_pool(int device) { return pools.current[device] ? pools.current[device] : default_pool(device); }

PH_EXPORT int cudaDeviceGetDefaultMemPool(void **out, int device) {
    *out = ph_device_exists(device) ? default_pool(device) : NULL;
    return result(*out ? CUDA_OK : CUDA_INVALID_DEVICE);
}

PH_EXPORT int cudaDeviceGetMemPool(void **out, int device) {
    *out = ph_device_exists(device) ? current_pool(device) : NULL;
    return result(*out ? CUDA_OK : CUDA_INVALID_DEVICE);
}

/* Sets the pool that cudaMallocAsync takes memory from. */
PH_EXPORT int cudaDeviceSetMemPool(int device, void *handle) {
    pool *p = pool_of(handle);
    if (!ph_device_exists(device)) return result(CUDA_INVALID_DEVICE);
    if (!p || p->device != device) return result(CUDA_INVALID_VALUE);
    pools.current[device] = p;
    return result(CUDA_OK);
}

/* Pools of a device's memory. Handles of them for other processes are not emulated: the calls that export them refuse.
 */
PH_EXPORT int cudaMemPoolCreate(void **out, const struct cudaMemPoolProps *properties) {
    ph_host_call(PH_CALL_ALLOC);
    int status = ph_device_usable();
    if (status != CUDA_OK) return result(status);
    if (properties->location.type != LOCATION_DEVICE)
        return result(ph_refuse("cudaMemPoolCreate of host memory", CUDA_NOT_SUPPORTED));
    if (!ph_device_exists(properties->location.id)) return result(CUDA_INVALID_VALUE);
    pool *p = ph_allocate(sizeof *p);
    set_up(p, properties->location.id, properties->maxSize ? properties->maxSize : UINT64_MAX);
    ph_lock(PH_LOCK_POOLS);
    p->next = pools.made;
    pools.made = p;
    ph_unlock(PH_LOCK_POOLS);
    *out = p;
    return result(CUDA_OK);
}

#define RESERVED_AT_ONCE ((uint64_t)32 << 20)

/* The pool reserves so much now, or what is used if the device has no more. Under the lock. */
static void reserve(pool *p, uint64_t nbytes) {
    ph_memory_give(p->device, p->reserved - p->used);
    p->reserved = nbytes > p->used ? nbytes : p->used;
    if (ph_memory_take(p->device, p->reserved - p->used) != CUDA_OK) p->reserved = p->used;
    if (p->reserved > p->reserved_high) p->reserved_high = p->reserved;
}

/* The index of the allocation that begins there, -1 if there is none. Under the lock. */
static ptrdiff_t allocation_at(const void *start) {
    ptrdiff_t i = ph_last_at_or_below(pools.allocations, pools.n, sizeof(allocation), (uintptr_t)start);
    return i >= 0 && pools.allocations[i].begin == (uintptr_t)start ? i : -1;
}

/* Under the lock. */
static void use_more(pool *p, void *start, uint64_t nbytes) {
    p->used += nbytes;
    p->high = p->used > p->high ? p->used : p->high;
    size_t i = (size_t)(ph_last_at_or_below(pools.allocations, pools.n, sizeof(allocation), (uintptr_t)start) + 1);
    pools.allocations = ph_room_for_one(pools.allocations, pools.n, &pools.capacity, sizeof(allocation));
    memmove(pools.allocations + i + 1, pools.allocations + i, (pools.n++ - i) * sizeof(allocation));
    pools.allocations[i] = (allocation){(uintptr_t)start, p};
}

/* Frees a pool that is destroyed, once nothing of it is allocated. Called under the lock. */
static void release(pool *p) {
    reserve(p, 0);
    pool **at = &pools.made;
    while (*at != p) at = &(*at)->next;
    *at = p->next;
    free(p);
}

/* The current pool of a device is its default one again; what is still allocated can be used and freed. */
PH_EXPORT int cudaMemPoolDestroy(void *handle) {
    ph_host_call(PH_CALL_ALLOC);
    pool *p = pool_of(handle);
    if (!p || p == default_pool(p->device)) return result(CUDA_INVALID_VALUE);
    ph_lock(PH_LOCK_POOLS);
    if (pools.current[p->device] == p) pools.current[p->device] = NULL;
    p->destroyed = true;
    if (!p->used) release(p);
    ph_unlock(PH_LOCK_POOLS);
    return result(CUDA_OK);
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
    status = nbytes > p->most - p->used ? CUDA_OUT_OF_MEMORY : ph_device_alloc(p->device, nbytes, out);
    if (status == CUDA_OK && ph_memory_range_of(*out, &start, &taken) == CUDA_OK) {
        use_more(p, start, taken);
        p->reserved += taken;
    }
    uint64_t needs = (p->used + RESERVED_AT_ONCE - 1) / RESERVED_AT_ONCE * RESERVED_AT_ONCE;
    reserve(p, before > needs ? before : needs);
    ph_unlock(PH_LOCK_POOLS);
    ph_server_memory_tell();
    return result(status);
}

PH_EXPORT int cudaMallocAsync(void **out, size_t nbytes, void *stream) {
    return allocate(out, nbytes, current_pool(ph_self()->device), stream);
}

PH_EXPORT int cudaMallocFromPoolAsync(void **out, size_t nbytes, void *handle, void *stream) {
    return allocate(out, nbytes, pool_of(handle), stream);
}

int cudart_free(void *p) {
    void *start;
    size_t taken = 0;
    int status = ph_memory_range_of(p, &start, &taken);
    if (status != CUDA_OK) return status;
    ph_lock(PH_LOCK_POOLS);
    ptrdiff_t i = allocation_at(p);
    status = ph_device_free(p);
    if (status == CUDA_OK && i >= 0) {
        pool *own = pools.allocations[i].of;
        memmove(pools.allocations + i, pools.allocations + i + 1, (--pools.n - (size_t)i) * sizeof(allocation));
        uint64_t kept = own->reserved;
        own->used -= taken;
        own->reserved -= taken;
        reserve(own, kept < own->threshold ? kept : own->threshold);
        if (own->destroyed && !own->used) release(own);
    }
    ph_unlock(PH_LOCK_POOLS);
    return status;
}

PH_EXPORT int cudaFreeAsync(void *p, void *stream) {
    ph_host_call(PH_CALL_ALLOC);
    ph_stream *on = ph_stream_of(stream);
    if (!on) return result(CUDA_INVALID_HANDLE);
    if (ph_stream_capturing(on))
        return result(ph_refuse("cudaFreeAsync in a stream capture", CUDA_CAPTURE_UNSUPPORTED));
    if (!p) return CUDA_OK;
    int status = ph_memory_device_of(p) < 0 ? CUDA_INVALID_VALUE : cudart_free(p);
    ph_server_memory_tell();
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
