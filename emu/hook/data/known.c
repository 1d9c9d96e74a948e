/*
 * Which device bytes are known: written by something modelled.
 *
 * A sorted array of disjoint intervals. Neighbours are merged, so programs that fill tensors leave few intervals. When
 * the array is full the shortest intervals are forgotten. Then known bytes may count as unknown, never the other way
 * round.
 */
#include "data/data.h"
#include "memory/memory.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define CAPACITY 8192

typedef struct interval {
    uintptr_t start, end;
} interval;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static interval known[CAPACITY];
static atomic_size_t nknown;

/* First interval that ends at or after `at`. */
static size_t first_reaching(uintptr_t at) {
    size_t low = 0, high = nknown;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (known[middle].end < at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void replace(size_t first, size_t count, const interval *with, size_t nwith) {
    memmove(&known[first + nwith], &known[first + count], (nknown - first - count) * sizeof *known);
    if (nwith) memcpy(&known[first], with, nwith * sizeof *known);
    nknown = nknown - count + nwith;
}

/* Drops the shortest intervals until at most half of the array is used. */
static void shed(void) {
    uintptr_t limit = 64;
    for (;;) {
        size_t kept = 0;
        for (size_t i = 0; i < nknown; i++)
            if (known[i].end - known[i].start > limit) known[kept++] = known[i];
        nknown = kept;
        if (kept <= CAPACITY / 2) return;
        limit *= 4;
    }
}

void ph_data_mark_known(const void *start, size_t nbytes) {
    if (!nbytes || !ph_is_device_pointer(start)) return;
    pthread_mutex_lock(&lock);
    if (nknown + 2 > CAPACITY) shed();
    interval merged = {(uintptr_t)start, (uintptr_t)start + nbytes};
    size_t first = first_reaching(merged.start), last = first;
    while (last < nknown && known[last].start <= merged.end) {
        if (known[last].start < merged.start) merged.start = known[last].start;
        if (known[last].end > merged.end) merged.end = known[last].end;
        last++;
    }
    replace(first, last - first, &merged, 1);
    pthread_mutex_unlock(&lock);
}

void ph_data_forget(const void *start, size_t nbytes) {
    if (!nbytes || !nknown) return;
    uintptr_t from = (uintptr_t)start, to = from + nbytes;
    pthread_mutex_lock(&lock);
    if (nknown + 2 > CAPACITY) shed();
    size_t first = first_reaching(from + 1), last = first, nrest = 0;
    interval rest[2];
    while (last < nknown && known[last].start < to) {
        if (known[last].start < from) rest[nrest++] = (interval){known[last].start, from};
        if (known[last].end > to) rest[nrest++] = (interval){to, known[last].end};
        last++;
    }
    if (last > first) replace(first, last - first, rest, nrest);
    pthread_mutex_unlock(&lock);
}

bool ph_data_known(const void *start, size_t nbytes) {
    if (!nbytes || !ph_is_device_pointer(start))
        return true; /* all host memory is known: the program writes it itself */
    uintptr_t from = (uintptr_t)start;
    pthread_mutex_lock(&lock);
    size_t i = first_reaching(from + 1);
    bool inside = i < nknown && known[i].start <= from && known[i].end >= from + nbytes;
    pthread_mutex_unlock(&lock);
    return inside;
}

bool ph_data_known_any(const void *start, size_t nbytes) {
    if (!nbytes || !ph_is_device_pointer(start)) return true;
    if (!nknown) return false;
    uintptr_t from = (uintptr_t)start;
    pthread_mutex_lock(&lock);
    size_t i = first_reaching(from + 1);
    bool touched = i < nknown && known[i].start < from + nbytes;
    pthread_mutex_unlock(&lock);
    return touched;
}
