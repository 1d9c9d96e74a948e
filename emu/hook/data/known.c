/*
 * What is known of device bytes.
 *
 *   known    something modelled wrote them: they are what a GPU's would be
 *   assumed  they follow from values that nobody computed, which count as finite numbers or zeros: a program may read
 *            them, and is told
 *   unknown  all others, whatever they hold
 *
 * Some known bytes follow from a choice by the routing policy, which the program made by itself: they are noted, too.
 *
 * Bytes that refer to a source (sources/) are none of these until ph_data_settle has made them known.
 *
 * Bytes of a block that PyTorch's allocator gives out are unknown (blocks.c), so what a launch writes to a new tensor
 * is unknown unless it is computed. If the sets grow too large, the shortest intervals become unknown.
 */
#include "data/data.h"
#include "core/intervals.h"
#include "core/lock.h"
#include "memory/memory.h"
#include "sources/source_map.h"

#include <stdatomic.h>

#define CAPACITY ((size_t)1 << 17)

static ph_intervals known = PH_INTERVALS_OF(ph_interval), assumed = PH_INTERVALS_OF(ph_interval),
                    chosen = PH_INTERVALS_OF(ph_interval);
static atomic_size_t n; /* intervals in both, to be read without the lock */

/* Drops the shortest intervals until at most half of the capacity is used. */
static void shed(ph_intervals *set) {
    for (uintptr_t limit = 64; set->n > CAPACITY / 2; limit *= 4)
        for (ph_cursor cursor = {0, 0}; ph_intervals_at(set, cursor);) {
            const ph_interval *at = ph_intervals_at(set, cursor);
            if (at->end - at->start > limit) {
                cursor = ph_intervals_next(set, cursor);
                continue;
            }
            uintptr_t end = at->end;
            ph_intervals_erase(set, cursor);
            cursor = ph_intervals_after(set, end);
        }
}

static void mark(ph_intervals *set, ph_intervals *other, const void *start, size_t nbytes) {
    if (!nbytes || !ph_is_device_pointer(start)) return;
    ph_data_marks++;
    uintptr_t from = (uintptr_t)start;
    ph_sources_cut(start, nbytes);
    ph_lock(PH_LOCK_KNOWN);
    if (set->n >= CAPACITY) shed(set);
    ph_intervals_add(set, from, from + nbytes);
    ph_intervals_cut(other, from, from + nbytes);
    if (chosen.n) ph_intervals_cut(&chosen, from, from + nbytes);
    n = known.n + assumed.n;
    ph_unlock(PH_LOCK_KNOWN);
}

void ph_data_mark_known(const void *start, size_t nbytes) { mark(&known, &assumed, start, nbytes); }
void ph_data_mark_assumed(const void *start, size_t nbytes) { mark(&assumed, &known, start, nbytes); }

void ph_data_forget(const void *start, size_t nbytes) {
    ph_sources_cut(start, nbytes);
    if (!nbytes || !n) return;
    uintptr_t from = (uintptr_t)start;
    ph_lock(PH_LOCK_KNOWN);
    ph_intervals_cut(&known, from, from + nbytes);
    ph_intervals_cut(&assumed, from, from + nbytes);
    if (chosen.n) ph_intervals_cut(&chosen, from, from + nbytes);
    n = known.n + assumed.n;
    ph_unlock(PH_LOCK_KNOWN);
}

static bool ask(const ph_intervals *set, bool (*question)(const ph_intervals *, uintptr_t, uintptr_t),
                const void *start, size_t nbytes) {
    if (!nbytes || !ph_is_device_pointer(start))
        return true; /* all host memory is known: the program writes it itself */
    if (!n) return false;
    ph_lock(PH_LOCK_KNOWN);
    bool answer = question(set, (uintptr_t)start, (uintptr_t)start + nbytes);
    ph_unlock(PH_LOCK_KNOWN);
    return answer;
}

bool ph_data_known(const void *start, size_t nbytes) { return ask(&known, ph_intervals_cover, start, nbytes); }
bool ph_data_known_any(const void *start, size_t nbytes) { return ask(&known, ph_intervals_touch, start, nbytes); }
bool ph_data_assumed(const void *start, size_t nbytes) { return ask(&assumed, ph_intervals_cover, start, nbytes); }

void ph_data_mark_chosen(const void *start, size_t nbytes) {
    if (!nbytes || !ph_is_device_pointer(start)) return;
    ph_lock(PH_LOCK_KNOWN);
    if (chosen.n >= CAPACITY) shed(&chosen);
    ph_intervals_add(&chosen, (uintptr_t)start, (uintptr_t)start + nbytes);
    ph_unlock(PH_LOCK_KNOWN);
}

bool ph_data_chosen(const void *start, size_t nbytes) {
    if (!chosen.n || !ph_is_device_pointer(start)) return false;
    return ask(&chosen, ph_intervals_touch, start, nbytes);
}

PH_EXPORT void phantora_data_mark_chosen(uint64_t address, uint64_t nbytes) {
    ph_data_mark_chosen((const void *)(uintptr_t)address, nbytes);
}

PH_EXPORT int phantora_data_chosen(uint64_t address, uint64_t nbytes) {
    return ph_data_chosen((const void *)(uintptr_t)address, nbytes);
}

bool ph_data_next_readable(const void *start, size_t nbytes, ph_range *out) {
    if (!nbytes || !n) return false;
    uintptr_t from = (uintptr_t)start, to = from + nbytes;
    ph_interval best = {to, to};
    const ph_intervals *sets[] = {&known, &assumed};
    ph_lock(PH_LOCK_KNOWN);
    for (int i = 0; i < 2; i++) {
        const ph_interval *at = ph_intervals_at(sets[i], ph_intervals_after(sets[i], from));
        if (!at || at->start >= best.start) continue;
        best.start = at->start > from ? at->start : from;
        best.end = at->end < to ? at->end : to;
    }
    ph_unlock(PH_LOCK_KNOWN);
    *out = (ph_range){(void *)best.start, best.end - best.start};
    return best.start < to;
}
