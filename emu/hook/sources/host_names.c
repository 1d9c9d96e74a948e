/*
 * Host memory that ranks map from the same file copy-on-write has a name (emu/weights gives it). As long as a process
 * has not written to such a range, equal names mean equal bytes: ranks that copy it to the device need not read it.
 *
 * The kernel's page table tells what has been written. The first and the last page may hold other bytes, too, and are
 * not mapped: what is in them is part of the key.
 */
#define _GNU_SOURCE
#include "sources/store.h"
#include "core/lock.h"
#include "core/alloc.h"
#include "core/hash.h"

#include <fcntl.h>
#include <unistd.h>

enum { PAGE = 4096, BATCH = 4096 };
#define PRESENT ((uint64_t)1 << 63)
#define SWAPPED ((uint64_t)1 << 62)
#define OF_FILE ((uint64_t)1 << 61)

typedef struct named {
    uint64_t start, nbytes, name[2];
} named;

static named *ranges;
static size_t n_ranges, capacity;

/* A name of 0 takes the range's name away. */
PH_EXPORT void phantora_name_host(uint64_t start, uint64_t nbytes, uint64_t low, uint64_t high) {
    size_t i = 0;
    ph_lock(PH_LOCK_HOST_NAMES);
    while (i < n_ranges && ranges[i].start != start) i++;
    if (!(low | high)) {
        if (i < n_ranges) ranges[i] = ranges[--n_ranges];
    } else {
        if (i == n_ranges) {
            ranges = ph_room_for_one(ranges, n_ranges, &capacity, sizeof *ranges);
            n_ranges++;
        }
        ranges[i] = (named){start, nbytes, {low, high}};
    }
    ph_unlock(PH_LOCK_HOST_NAMES);
}

/* Have whole pages from `first` to `last` no copy of this process's own? */
static bool unwritten(uint64_t first, uint64_t last) {
    uint64_t entries[BATCH];
    int table = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
    bool same = table >= 0;
    for (uint64_t page = first / PAGE; same && page < last / PAGE;) {
        uint64_t n = last / PAGE - page < BATCH ? last / PAGE - page : BATCH;
        same = pread(table, entries, n * sizeof *entries, (off_t)(page * sizeof *entries)) ==
               (ssize_t)(n * sizeof *entries);
        for (uint64_t i = 0; same && i < n; i++) same = !(entries[i] & (PRESENT | SWAPPED)) || (entries[i] & OF_FILE);
        page += n;
    }
    if (table >= 0) close(table);
    return same;
}

bool ph_host_name_key(const void *bytes, size_t nbytes, uint64_t key[2]) {
    uint64_t start = (uint64_t)(uintptr_t)bytes, end = start + nbytes;
    uint64_t first = (start + PAGE - 1) / PAGE * PAGE, last = end / PAGE * PAGE;
    bool found = false;
    ph_lock(PH_LOCK_HOST_NAMES);
    for (size_t i = 0; i < n_ranges && !found; i++) {
        found = ranges[i].start == start && ranges[i].nbytes == nbytes;
        if (found) key[0] = ranges[i].name[0], key[1] = ranges[i].name[1];
    }
    ph_unlock(PH_LOCK_HOST_NAMES);
    if (!found || first >= last || !unwritten(first, last)) return false;
    uint64_t edges =
        ph_mix(ph_hash(1, bytes, first - start), ph_hash(2, (const char *)bytes + (last - start), end - last));
    key[0] = ph_mix(key[0], edges);
    key[1] = ph_mix(key[1], edges + 1);
    return true;
}
