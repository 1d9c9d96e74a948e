/* The driver's entry points keep no last error; contexts are the devices' primary ones. */
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
