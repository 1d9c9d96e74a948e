/*
 * The blocks of PyTorch's caching allocator. It reports every block that it gives out or takes back by the function
 * below, which libc10 defines; the definition here comes first. A block's bytes are unknown when it is given out:
 * whatever an earlier tensor left in them is not what the next kernel writes.
 */
#define _GNU_SOURCE
#include "core/cuda_types.h"
#include "core/warn.h"
#include "data/data.h"
#include "data/intervals.h"
#include "holders/holders.h"
#include "memory/memory.h"
#include "trace/trace.h"

#include <dlfcn.h>
#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ph_intervals blocks;

static void given_out(const void *start, size_t nbytes) {
    uintptr_t from = (uintptr_t)start;
    pthread_mutex_lock(&lock);
    ph_intervals_cut(&blocks, from, from + nbytes); /* what is left of blocks whose end was not reported */
    ph_intervals_insert(&blocks, ph_intervals_after(&blocks, from), (ph_interval){from, from + nbytes});
    pthread_mutex_unlock(&lock);
}

static void taken_back(const void *start) {
    pthread_mutex_lock(&lock);
    ph_place place = ph_intervals_after(&blocks, (uintptr_t)start);
    const ph_interval *at = ph_intervals_at(&blocks, place);
    if (at && at->start == (uintptr_t)start) ph_intervals_erase(&blocks, place);
    pthread_mutex_unlock(&lock);
}

uintptr_t ph_data_block_start(const void *address) {
    uintptr_t from = (uintptr_t)address;
    pthread_mutex_lock(&lock);
    const ph_interval *at = ph_intervals_at(&blocks, ph_intervals_after(&blocks, from));
    uintptr_t start = at && at->start <= from ? at->start : 0;
    pthread_mutex_unlock(&lock);
    return start;
}

size_t ph_data_block_rest(const void *address) {
    uintptr_t from = (uintptr_t)address;
    pthread_mutex_lock(&lock);
    const ph_interval *at = ph_intervals_at(&blocks, ph_intervals_after(&blocks, from));
    size_t rest = at && at->start <= from ? at->end - from : 0;
    pthread_mutex_unlock(&lock);
    void *start;
    size_t nbytes;
    if (rest || ph_memory_range_of(address, &start, &nbytes) != CUDA_OK) return rest;
    return (size_t)((unsigned char *)start + nbytes - (const unsigned char *)address);
}

void ph_data_block(const void *start, int64_t nbytes) {
    size_t size = (size_t)(nbytes < 0 ? -nbytes : nbytes);
    ph_data_overwrite(start, size);
    if (nbytes > 0)
        given_out(start, size);
    else
        taken_back(start);
}

/* libc10's own function of this name. */
static void *theirs(const char *name) {
    void *library = dlopen("libc10.so", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? dlsym(library, name) : NULL;
    if (!found) ph_die("libc10.so, which called the hook library, has no function %s", name);
    return found;
}

/* c10::reportMemoryUsageToProfiler(void*, int64_t, size_t, size_t, c10::Device) */
typedef void (*usage_function)(void *, int64_t, size_t, size_t, uint16_t);

PH_EXPORT void _ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE(void *start, int64_t nbytes, size_t allocated,
                                                                     size_t reserved, uint16_t device) {
    static _Atomic(usage_function) known;
    if (nbytes && ph_is_device_pointer(start)) {
        ph_data_block(start, nbytes);
        ph_holders_block(device >> 8, start, nbytes, reserved);
        if (UNLIKELY(ph_tracing)) ph_trace_memory(device >> 8, allocated, reserved);
    }
    usage_function report = known;
    if (!report) {
        void *found = theirs("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
        __builtin_memcpy(&report, &found, sizeof report);
        known = report;
    }
    report(start, nbytes, allocated, reserved, device);
}

/* c10::reportOutOfMemoryToProfiler(int64_t, size_t, size_t, c10::Device) */
typedef void (*failure_function)(int64_t, size_t, size_t, uint16_t);

PH_EXPORT void _ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE(int64_t nbytes, size_t allocated, size_t reserved,
                                                                   uint16_t device) {
    if (nbytes > 0) ph_holders_missing(device >> 8, (uint64_t)nbytes, reserved);
    void *found = theirs("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
    failure_function report;
    __builtin_memcpy(&report, &found, sizeof report);
    report(nbytes, allocated, reserved, device);
}
