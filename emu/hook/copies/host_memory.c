/*
 * Pinned host memory: ordinary memory whose ranges are remembered (memory/pinned.c), because copies from and to it are
 * faster and the host does not wait for them.
 */
#include "copies/copy.h"
#include "core/run.h"
#include "cuda/types.h"
#include "device/device.h"
#include "memory/pinned.h"
#include "streams/capturing.h"
#include "streams/wait.h"

#include <stdlib.h>

/* The device may be using the memory, so the host waits for the device first. CUDA does not document that; driver 580
 * did so on an H100, for registered memory, too. */
static bool remove_range(const void *start, bool registered) {
    int device = ph_pinned_device(start, registered);
    if (device < 0) return false;
    ph_device_wait(device);
    return ph_pinned_remove(start, registered);
}

int ph_host_alloc(void **out, size_t nbytes) {
    *out = NULL;
    int status = ph_device_usable();
    if (status == CUDA_OK) status = ph_uncapturable();
    if (status || nbytes == 0) return status;
    void *p;
    if (posix_memalign(&p, 4096, (nbytes + 4095) & ~(size_t)4095) != 0) return CUDA_OUT_OF_MEMORY;
    if (!ph_pinned_add(p, nbytes, false))
        ph_die("new pinned memory at %p overlaps a range that the program registered with CUDA and then freed", p);
    *out = p;
    return CUDA_OK;
}

int ph_host_free(void *p) {
    int status = ph_uncapturable();
    if (status || !p) return status;
    if (!remove_range(p, false)) return CUDA_INVALID_VALUE;
    free(p);
    return CUDA_OK;
}

int ph_host_register(void *p, size_t nbytes) {
    int status = ph_uncapturable();
    if (status) return status;
    if (!p || nbytes == 0) return CUDA_INVALID_VALUE;
    return ph_pinned_add(p, nbytes, true) ? CUDA_OK : CUDA_HOST_ALREADY_REGISTERED;
}

int ph_host_unregister(void *p) {
    int status = ph_uncapturable();
    if (status) return status;
    return remove_range(p, true) ? CUDA_OK : CUDA_HOST_NOT_REGISTERED;
}
