/*
 * Driver: attributes of pointers.
 */
#include "threads/host.h"
#include "driver/driver.h"
#include "memory/pinned.h"
#include "memory/memory.h"

#include <string.h>

PH_EXPORT int cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *nbytes, CUdeviceptr address) {
    void *from = NULL;
    size_t size = 0;
    int status = ph_memory_range_of(pointer_of(address), &from, &size);
    if (start) *start = (CUdeviceptr)(uintptr_t)from;
    if (nbytes) *nbytes = size;
    return status ? CUDA_NOT_FOUND : CUDA_OK;
}

enum {
    POINTER_CONTEXT = 1,
    POINTER_TYPE = 2,
    POINTER_DEVICE = 3,
    POINTER_HOST = 4,
    POINTER_P2P_TOKENS = 5, /* deprecated, and an error here */
    POINTER_SYNC = 6,
    POINTER_ID = 7,
    POINTER_MANAGED = 8,
    POINTER_ORDINAL = 9,
    POINTER_IPC = 10,
    POINTER_START = 11,
    POINTER_NBYTES = 12,
    POINTER_MAPPED = 13,
    POINTER_HANDLES = 14,
    POINTER_RDMA = 15,
    POINTER_ACCESS = 16,
    POINTER_POOL = 17,
    POINTER_MAPPING_NBYTES = 18,
    POINTER_MAPPING_START = 19,
    POINTER_BLOCK_ID = 20,
    POINTER_LAST = 21
};

static size_t width_of(int attribute) {
    switch (attribute) {
    case POINTER_CONTEXT:
    case POINTER_DEVICE:
    case POINTER_HOST:
    case POINTER_ID:
    case POINTER_START:
    case POINTER_NBYTES:
    case POINTER_HANDLES:
    case POINTER_POOL:
    case POINTER_MAPPING_NBYTES:
    case POINTER_MAPPING_START:
    case POINTER_BLOCK_ID:
        return 8;
    case POINTER_TYPE:
    case POINTER_SYNC:
    case POINTER_ORDINAL:
    case POINTER_ACCESS:
        return 4;
    default:
        return 1; /* booleans */
    }
}

static int pointer_attribute(void *out, int attribute, const void *p) {
    int device = ph_memory_device_of(p);
    bool on_device = device >= 0, pinned = !on_device && ph_host_pinned(p);
    void *start = NULL, *current = NULL;
    size_t nbytes = 0;
    if (attribute < POINTER_CONTEXT || attribute > POINTER_LAST || attribute == POINTER_P2P_TOKENS)
        return CUDA_INVALID_VALUE;
    memset(out, 0, width_of(attribute));
    if (on_device)
        ph_memory_range_of(p, &start, &nbytes);
    else if (!ph_host_range_of(p, &start, &nbytes))
        return CUDA_INVALID_VALUE;
    if (attribute == POINTER_CONTEXT) cuDevicePrimaryCtxRetain(&current, on_device ? device : ph_self()->device);
    const uint64_t wide[POINTER_LAST + 1] = {
        [POINTER_CONTEXT] = (uintptr_t)current,
        [POINTER_TYPE] = on_device ? MEMORY_DEVICE : MEMORY_HOST,
        [POINTER_DEVICE] = (uintptr_t)p,
        [POINTER_HOST] = pinned ? (uintptr_t)p : 0,
        [POINTER_ID] = (uintptr_t)start,
        [POINTER_ORDINAL] = (uint64_t)(on_device ? device : ph_self()->device),
        [POINTER_START] = (uintptr_t)start,
        [POINTER_NBYTES] = nbytes,
        [POINTER_MAPPED] = 1,
        [POINTER_ACCESS] = cudaMemAccessFlagsProtReadWrite,
        [POINTER_MAPPING_NBYTES] = nbytes,
        [POINTER_MAPPING_START] = (uintptr_t)start,
        [POINTER_BLOCK_ID] = (uintptr_t)start,
    };
    if (attribute == POINTER_HOST && !pinned) return CUDA_INVALID_VALUE;
    memcpy(out, &wide[attribute], width_of(attribute));
    return CUDA_OK;
}

PH_EXPORT int cuPointerGetAttribute(void *out, int attribute, CUdeviceptr address) {
    ph_host_call(PH_CALL_QUERY);
    return pointer_attribute(out, attribute, pointer_of(address));
}

/* Unlike cuPointerGetAttribute this succeeds for any address: attributes that it does not have are 0. */
PH_EXPORT int cuPointerGetAttributes(unsigned n, const int *attributes, void **out, CUdeviceptr address) {
    ph_host_call(PH_CALL_QUERY);
    for (unsigned i = 0; i < n; i++)
        if (attributes[i] < POINTER_CONTEXT || attributes[i] > POINTER_LAST || attributes[i] == POINTER_P2P_TOKENS)
            return CUDA_INVALID_VALUE;
    for (unsigned i = 0; i < n; i++) {
        memset(out[i], 0, width_of(attributes[i]));
        pointer_attribute(out[i], attributes[i], pointer_of(address));
    }
    return CUDA_OK;
}
