/*
 * Addresses of functions by name, for programs that ask the driver or the runtime for them.
 */
#define _GNU_SOURCE
#include "calls/lists.h"
#include "core/base.h"
#include "core/run.h"
#include "cuda/types.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The address of a hooked call by its name; NULL if the call is not hooked. */
static void *ph_symbol(const char *name) {
    for (size_t i = 0; i < ph_ncalls; i++)
        if (strcmp(ph_calls[i].name, name) == 0) return ph_calls[i].address;
    return NULL;
}

/* NVIDIA's headers define names of older versions as newer ones: cuMemAlloc means cuMemAlloc_v2. */
static void *versioned(const char *name) {
    static const char *const suffixes[] = {"_v3", "_v2", ""};
    char full[256];
    for (size_t i = 0; i < sizeof suffixes / sizeof *suffixes; i++) {
        snprintf(full, sizeof full, "%s%s", name, suffixes[i]);
        void *address = ph_symbol(full);
        if (address) return address;
    }
    return NULL;
}

enum { FOUND = 0, SYMBOL_NOT_FOUND = 1 };

static int find(const char *name, void **address, int *result) {
    if (!name || !address) return CUDA_INVALID_VALUE;
    *address = versioned(name);
    if (result) *result = *address ? FOUND : SYMBOL_NOT_FOUND;
    return CUDA_OK;
}

/* A launcher's script may start any program. One that has a CUDA runtime of its own, such as the Python of another
 * environment, finds this library by the loader's path, but no rank's process has loaded it: CUDA's own message would
 * say nothing of that. */
static void tell_program_is_no_rank(void) {
    static bool told;
    const char *python = getenv("PHANTORA_PYTHON");
    if (ph_run.in_place || !python || told) return;
    told = true;
    fprintf(stderr,
            "phantora-async: %s uses CUDA and is no rank: ranks are Python programs that %s runs. If it is the Python "
            "of another environment, name it: run --python PATH\n",
            program_invocation_name, python);
}

PH_EXPORT int cuGetProcAddress_v2(const char *name, void **address, int version, uint64_t flags, int *result) {
    (void)version, (void)flags;
    tell_program_is_no_rank();
    int status = find(name, address, result);
    return status == CUDA_OK && !*address ? CUDA_NOT_FOUND : status;
}

PH_EXPORT int cuGetProcAddress(const char *name, void **address, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, address, version, flags, NULL);
}

PH_EXPORT int cudaGetDriverEntryPoint(const char *name, void **address, unsigned long long flags, int *result) {
    (void)flags;
    return find(name, address, result);
}

PH_EXPORT int cudaGetDriverEntryPointByVersion(const char *name, void **address, unsigned version,
                                               unsigned long long flags, int *result) {
    (void)version, (void)flags;
    return find(name, address, result);
}
