/*
 * What PyTorch's caching allocator reports: every block that it gives out or takes back, and every failure, by
 * functions that libc10 defines. The definitions here come first.
 */
#define _GNU_SOURCE
#include "core/run.h"
#include "../private/symbols.h"
#include "data/data.h"
#include "holders/holders.h"
#include "memory/memory.h"
#include "op_stream/trace.h"
#include "threads/host.h"

#include <dlfcn.h>

/* libc10's own function of this name. */
static void *theirs(enum ph_symbol symbol) {
    const char *name = ph_symbol_name(symbol);
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
    if (nbytes && !ph_run.timed && ph_is_device_pointer(start)) {
        if (nbytes < 0) ph_host_programs_work(PH_WORK_FREED_BLOCK, 1);
        ph_data_block(start, nbytes);
        ph_holders_block(device >> 8, start, nbytes, reserved);
        if (UNLIKELY(ph_tracing)) ph_trace_memory(device >> 8, allocated, reserved);
    }
    usage_function report = known;
    if (!report) {
        void *found = theirs(PH_SYMBOL_MEMORY_USED);
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
    void *found = theirs(PH_SYMBOL_MEMORY_MISSING);
    failure_function report;
    __builtin_memcpy(&report, &found, sizeof report);
    report(nbytes, allocated, reserved, device);
}
