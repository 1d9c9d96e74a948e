/* One count for each signature launched since the last record, in an open-addressing table: no list of launches. */
#include "op_stream/launch_counts.h"
#include "op_stream/emit.h"
#include "threads/host.h"
#include "threads/sites.h"
#include "core/run.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1024 }; /* slots; a power of two */

static struct {
    struct ph_LAUNCH_COUNT *slots; /* a key of 0 marks a free one */
    size_t capacity, used;
} counts;

static struct ph_LAUNCH_COUNT *slot_of(uint64_t key) {
    size_t mask = counts.capacity - 1, at = key & mask;
    while (counts.slots[at].key != key && counts.slots[at].key != 0) at = (at + 1) & mask;
    return &counts.slots[at];
}

static void grow(void) {
    struct ph_LAUNCH_COUNT *old = counts.slots;
    size_t old_capacity = counts.capacity;
    counts.capacity = old_capacity ? old_capacity * 2 : FIRST_CAPACITY;
    counts.slots = calloc(counts.capacity, sizeof *counts.slots);
    if (!counts.slots) ph_die("out of host memory");
    for (size_t i = 0; i < old_capacity; i++)
        if (old[i].key) *slot_of(old[i].key) = old[i];
    free(old);
}

/* Signatures that were launched since the last record, as far as there is room: who finds one here need not look for
 * the site. It may forget one, whose site is then looked up again for nothing. */
enum { SEEN = 1 << 12 };
static _Atomic uint64_t seen[SEEN];

uint16_t ph_launch_site(uint64_t key) {
    _Atomic uint64_t *slot = &seen[key & (SEEN - 1)];
    if (LIKELY(atomic_load_explicit(slot, memory_order_relaxed) == key) || !ph_run.started) return 0;
    atomic_store_explicit(slot, key, memory_order_relaxed);
    return ph_site();
}

void ph_count_launch(uint64_t key, uint64_t slowed_ns, uint16_t site) {
    if (UNLIKELY(counts.used * 2 >= counts.capacity)) grow();
    struct ph_LAUNCH_COUNT *slot = slot_of(key);
    if (UNLIKELY(slot->key == 0)) {
        slot->key = key;
        slot->at_site = site;
        counts.used++;
    }
    slot->launches++;
    slot->slowed_ns += slowed_ns;
}

void ph_emit_launch_counts(void) {
    if (!counts.used) return;
    struct ph_LAUNCH_COUNTS record = {0};
    for (size_t i = 0; i < counts.capacity; i++)
        if (counts.slots[i].key) counts.slots[record.entries++] = counts.slots[i]; /* packed in front: never behind i */
    ph_append(PH_KIND_LAUNCH_COUNTS, ph_host_clock(), &record, sizeof record, counts.slots,
              record.entries * sizeof *counts.slots);
    memset(counts.slots, 0, counts.capacity * sizeof *counts.slots);
    counts.used = 0;
    for (size_t i = 0; i < SEEN; i++) atomic_store_explicit(&seen[i], 0, memory_order_relaxed);
}
