/* See pinned.h. */
#include "memory/pinned.h"
#include "core/lock.h"
#include "core/alloc.h"
#include "memory/search.h"
#include "threads/thread.h"

#include <string.h>

typedef struct pinned {
    unsigned char *start;
    size_t nbytes;
    bool registered;
    int device; /* the current device when the range was pinned */
} pinned;

static struct {
    pinned *ranges; /* sorted by start */
    size_t n, capacity;
} host;

static ptrdiff_t at_or_below(const void *p) {
    return ph_last_at_or_below(host.ranges, host.n, sizeof *host.ranges, (uintptr_t)p);
}

bool ph_pinned_add(void *start, size_t nbytes, bool registered) {
    unsigned char *from = start;
    ph_lock(PH_LOCK_PINNED);
    ptrdiff_t before = at_or_below(start);
    size_t i = (size_t)(before + 1);
    bool overlaps = (before >= 0 && host.ranges[before].start + host.ranges[before].nbytes > from) ||
                    (i < host.n && host.ranges[i].start < from + nbytes);
    if (!overlaps) {
        host.ranges = ph_room_for_one(host.ranges, host.n, &host.capacity, sizeof *host.ranges);
        memmove(host.ranges + i + 1, host.ranges + i, (host.n++ - i) * sizeof *host.ranges);
        host.ranges[i] = (pinned){from, nbytes, registered, ph_self()->device};
    }
    ph_unlock(PH_LOCK_PINNED);
    return !overlaps;
}

static ptrdiff_t range_at(const void *start, bool registered) {
    ptrdiff_t i = at_or_below(start);
    return i >= 0 && host.ranges[i].start == start && host.ranges[i].registered == registered ? i : -1;
}

int ph_pinned_device(const void *start, bool registered) {
    ph_lock(PH_LOCK_PINNED);
    ptrdiff_t i = range_at(start, registered);
    int device = i < 0 ? -1 : host.ranges[i].device;
    ph_unlock(PH_LOCK_PINNED);
    return device;
}

bool ph_pinned_remove(const void *start, bool registered) {
    ph_lock(PH_LOCK_PINNED);
    ptrdiff_t i = range_at(start, registered);
    if (i >= 0) memmove(host.ranges + i, host.ranges + i + 1, (--host.n - (size_t)i) * sizeof *host.ranges);
    ph_unlock(PH_LOCK_PINNED);
    return i >= 0;
}

bool ph_host_range_of(const void *p, void **start, size_t *nbytes) {
    ph_lock(PH_LOCK_PINNED);
    ptrdiff_t i = at_or_below(p);
    bool found = i >= 0 && (size_t)((const unsigned char *)p - host.ranges[i].start) < host.ranges[i].nbytes;
    if (found && start) *start = host.ranges[i].start;
    if (found && nbytes) *nbytes = host.ranges[i].nbytes;
    ph_unlock(PH_LOCK_PINNED);
    return found;
}

PH_EXPORT uint64_t phantora_host_range(uint64_t address, uint64_t *start) {
    void *first = NULL;
    size_t nbytes = 0;
    if (!ph_host_range_of((const void *)(uintptr_t)address, &first, &nbytes)) return 0;
    *start = (uint64_t)(uintptr_t)first;
    return nbytes;
}

bool ph_host_pinned(const void *p) { return ph_host_range_of(p, NULL, NULL); }
