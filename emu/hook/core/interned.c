/* Tables by hashes: see interned.h. */
#include "core/interned.h"
#include "core/alloc.h"

enum { FIRST_CAPACITY = 256 };

static void add(ph_interned_slots *to, uint64_t key, const void *value) {
    size_t slot = key & to->mask;
    while (atomic_load_explicit(&to->at[slot].key, memory_order_relaxed)) slot = (slot + 1) & to->mask;
    to->at[slot].value = value;
    atomic_store_explicit(&to->at[slot].key, key, memory_order_release);
}

/* A table that was outgrown stays: readers may be in it. */
static ph_interned_slots *with_room(ph_interned *table) {
    ph_interned_slots *old = atomic_load(&table->slots);
    if (old && table->n * 2 <= old->mask) return old;
    size_t capacity = old ? (old->mask + 1) * 2 : FIRST_CAPACITY;
    ph_interned_slots *larger = ph_allocate(sizeof *larger + capacity * sizeof larger->at[0]);
    larger->mask = capacity - 1;
    for (size_t i = 0; old && i <= old->mask; i++) {
        uint64_t key = atomic_load_explicit(&old->at[i].key, memory_order_relaxed);
        if (key) add(larger, key, old->at[i].value);
    }
    atomic_store_explicit(&table->slots, larger, memory_order_release);
    return larger;
}

void ph_interned_put(ph_interned *table, uint64_t key, const void *value) {
    add(with_room(table), key, value);
    table->n++;
}
