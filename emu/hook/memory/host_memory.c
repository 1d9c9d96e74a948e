/*
 * Pinned host memory: ordinary memory whose ranges are remembered, because copies from and to it are faster and the
 * host does not wait for them.
 */
#include "memory/host_memory.h"
#include "core/alloc.h"
#include "core/cuda_types.h"
#include "core/warn.h"
#include "device/device.h"
#include "graphs/capture.h"
#include "memory/search.h"
#include "process/thread.h"
#include "streams/wait.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

typedef struct pinned {
    unsigned char *start;
    size_t nbytes;
    bool registered;
    int device; /* the current device when the range was pinned */
} pinned;

static struct {
    pthread_mutex_t lock;
    pinned *ranges; /* sorted by start */
    size_t n, capacity;
} host = {.lock = PTHREAD_MUTEX_INITIALIZER};

static ptrdiff_t at_or_below(const void *p) {
    return ph_last_at_or_below(host.ranges, host.n, sizeof *host.ranges, (uintptr_t)p);
}

static bool add(void *start, size_t nbytes, bool registered) {
    unsigned char *from = start;
    pthread_mutex_lock(&host.lock);
    ptrdiff_t before = at_or_below(start);
    size_t i = (size_t)(before + 1);
    bool overlaps = (before >= 0 && host.ranges[before].start + host.ranges[before].nbytes > from) ||
                    (i < host.n && host.ranges[i].start < from + nbytes);
    if (!overlaps) {
        host.ranges = ph_room_for_one(host.ranges, host.n, &host.capacity, sizeof *host.ranges);
        memmove(host.ranges + i + 1, host.ranges + i, (host.n++ - i) * sizeof *host.ranges);
        host.ranges[i] = (pinned){from, nbytes, registered, ph_self()->device};
    }
    pthread_mutex_unlock(&host.lock);
    return !overlaps;
}

static ptrdiff_t range_at(const void *start, bool registered) {
    ptrdiff_t i = at_or_below(start);
    return i >= 0 && host.ranges[i].start == start && host.ranges[i].registered == registered ? i : -1;
}

/* The device may be using the memory, so the host waits for the device first. CUDA does not document that; driver 580
 * did so on an H100, for registered memory, too. */
static bool remove_range(const void *start, bool registered) {
    pthread_mutex_lock(&host.lock);
    ptrdiff_t i = range_at(start, registered);
    int device = i < 0 ? -1 : host.ranges[i].device;
    pthread_mutex_unlock(&host.lock);
    if (device < 0) return false;
    ph_device_wait(device);
    pthread_mutex_lock(&host.lock);
    i = range_at(start, registered);
    if (i >= 0) memmove(host.ranges + i, host.ranges + i + 1, (--host.n - (size_t)i) * sizeof *host.ranges);
    pthread_mutex_unlock(&host.lock);
    return i >= 0;
}

int ph_host_alloc(void **out, size_t nbytes) {
    *out = NULL;
    int status = ph_device_usable();
    if (status == CUDA_OK) status = ph_uncapturable();
    if (status || nbytes == 0) return status;
    void *p;
    if (posix_memalign(&p, 4096, (nbytes + 4095) & ~(size_t)4095) != 0) return CUDA_OUT_OF_MEMORY;
    if (!add(p, nbytes, false))
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
    return add(p, nbytes, true) ? CUDA_OK : CUDA_HOST_ALREADY_REGISTERED;
}

int ph_host_unregister(void *p) {
    int status = ph_uncapturable();
    if (status) return status;
    return remove_range(p, true) ? CUDA_OK : CUDA_HOST_NOT_REGISTERED;
}

bool ph_host_range_of(const void *p, void **start, size_t *nbytes) {
    pthread_mutex_lock(&host.lock);
    ptrdiff_t i = at_or_below(p);
    bool found = i >= 0 && (size_t)((const unsigned char *)p - host.ranges[i].start) < host.ranges[i].nbytes;
    if (found && start) *start = host.ranges[i].start;
    if (found && nbytes) *nbytes = host.ranges[i].nbytes;
    pthread_mutex_unlock(&host.lock);
    return found;
}

bool ph_host_pinned(const void *p) { return ph_host_range_of(p, NULL, NULL); }
