/*
 * driver/: the CUDA driver's entry points, thin over the same functions as the runtime's. They keep no last error.
 * Every context is the primary context of a device.
 *
 *   context.c stream.c memory.c multicast.c pointer.c launch.c   by what the calls are about
 *
 * Comes in: calls. Goes out: as in cudart/.
 */
#ifndef PHANTORA_DRIVER_H
#define PHANTORA_DRIVER_H

#include "cudart/cudart.h"
#include "kernels/kernel.h"

typedef uint64_t CUdeviceptr;

int cuDevicePrimaryCtxRetain(void **out, int device);

static inline void *pointer_of(CUdeviceptr address) { return (void *)(uintptr_t)address; }

static inline ph_kernel *kernel_of(void *handle) {
    ph_kernel *kernel = handle;
    return kernel && kernel->magic == PH_KERNEL_MAGIC ? kernel : NULL;
}

#endif
