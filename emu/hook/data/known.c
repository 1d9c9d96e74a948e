/*
 * What is known of device bytes.
 *
 *   known    something modelled wrote them: they are what a GPU's would be
 *   assumed  they follow from values that nobody computed, which count as finite numbers or zeros: a program may read
 *            them, and is told
 *   unknown  all others, whatever they hold
 *
 * Bytes that refer to a source (sources/) are none of these until ph_data_settle has made them known.
 *
 * Bytes of a block that PyTorch's allocator gives out are unknown (blocks.c), so what a launch writes to a new tensor
 * is unknown unless it is computed. If the sets grow too large, the shortest intervals become unknown.
 */
#include "data/data.h"
#include "data/intervals.h"
#include "memory/memory.h"
#include "sources/source_map.h"

#include <pthread.h>
#include <stdatomic.h>

#define CAPACITY ((size_t)1 << 17)

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static ph_intervals known, assumed;
static atomic_size_t n; /* intervals in both, to be read without the lock */

/* Drops the shortest intervals until at most half of the capacity is used. */
static void shed(ph_intervals *set) {
    for (uintptr_t limit = 64; set->n > CAPACITY / 2; limit *= 4)
        for (ph_place place = {0, 0}; ph_intervals_at(set, place);) {
            const ph_interval *at = ph_intervals_at(set, place);
            if (at->end - at->start > limit) {
                place = ph_intervals_next(set, place);
                continue;
            }
            uintptr_t end = at->end;
            ph_intervals_erase(set, place);
            place = ph_intervals_after(set, end);
        }
}

PH_EXPORT _Atomic(uint64_t) ph_data_marks;

static void mark(ph_intervals *set, ph_intervals *other, const void *start, size_t nbytes) {
    if (!nbytes || !ph_is_device_pointer(start)) return;
    ph_data_marks++;
    uintptr_t from = (uintptr_t)start;
    ph_sources_cut(start, nbytes);
    pthread_mutex_lock(&lock);
    if (set->n >= CAPACITY) shed(set);
    ph_intervals_add(set, from, from + nbytes);
    ph_intervals_cut(other, from, from + nbytes);
    n = known.n + assumed.n;
    pthread_mutex_unlock(&lock);
}

void ph_data_mark_known(const void *start, size_t nbytes) { mark(&known, &assumed, start, nbytes); }
void ph_data_mark_assumed(const void *start, size_t nbytes) { mark(&assumed, &known, start, nbytes); }

void ph_data_forget(const void *start, size_t nbytes) {
    ph_sources_cut(start, nbytes);
    if (!nbytes || !n) return;
    uintptr_t from = (uintptr_t)start;
    pthread_mutex_lock(&lock);
    ph_intervals_cut(&known, from, from + nbytes);
    ph_intervals_cut(&assumed, from, from + nbytes);
    n = known.n + assumed.n;
    pthread_mutex_unlock(&lock);
}

static bool ask(const ph_intervals *set, bool (*question)(const ph_intervals *, uintptr_t, uintptr_t),
                const void *start, size_t nbytes) {
    if (!nbytes || !ph_is_device_pointer(start))
        return true; /* all host memory is known: the program writes it itself */
    if (!n) return false;
    pthread_mutex_lock(&lock);
    bool answer = question(set, (uintptr_t)start, (uintptr_t)start + nbytes);
    pthread_mutex_unlock(&lock);
    return answer;
}

bool ph_data_known(const void *start, size_t nbytes) { return ask(&known, ph_intervals_cover, start, nbytes); }
bool ph_data_known_any(const void *start, size_t nbytes) { return ask(&known, ph_intervals_touch, start, nbytes); }
bool ph_data_assumed(const void *start, size_t nbytes) { return ask(&assumed, ph_intervals_cover, start, nbytes); }

bool ph_data_next_readable(const void *start, size_t nbytes, ph_range *out) {
    if (!nbytes || !n) return false;
    uintptr_t from = (uintptr_t)start, to = from + nbytes;
    ph_interval best = {to, to};
    const ph_intervals *sets[] = {&known, &assumed};
    pthread_mutex_lock(&lock);
    for (int i = 0; i < 2; i++) {
        const ph_interval *at = ph_intervals_at(sets[i], ph_intervals_after(sets[i], from));
        if (!at || at->start >= best.start) continue;
        best.start = at->start > from ? at->start : from;
        best.end = at->end < to ? at->end : to;
    }
    pthread_mutex_unlock(&lock);
    *out = (ph_range){(void *)best.start, best.end - best.start};
    return best.start < to;
}
