/*
 * Pointers by 64-bit keys, which are hashes of what they stand for and never 0. A table only grows, so readers need no
 * lock. Sets of numbers likewise. One that is all zeros is empty.
 */
#ifndef PHANTORA_INTERNED_H
#define PHANTORA_INTERNED_H

#include "core/base.h"

#include <stdatomic.h>

typedef struct ph_interned_slot {
    atomic_uint_fast64_t key; /* 0: free */
    const void *value;        /* written before the key */
} ph_interned_slot;

typedef struct ph_interned_slots {
    size_t mask;
    ph_interned_slot at[];
} ph_interned_slots;

typedef struct ph_interned {
    _Atomic(ph_interned_slots *) slots; /* open addressing, at most half full */
    size_t n;
} ph_interned;

/* Returns the key's value; NULL if the table does not have the key. May be called at any time, on any thread. */
static inline const void *ph_interned_get(const ph_interned *table, uint64_t key) {
    const ph_interned_slots *in = atomic_load_explicit(&table->slots, memory_order_acquire);
    for (size_t slot = in ? key & in->mask : 0; in; slot = (slot + 1) & in->mask) {
        uint64_t found = atomic_load_explicit(&in->at[slot].key, memory_order_acquire);
        if (LIKELY(found == key)) return in->at[slot].value;
        if (found == 0) break;
    }
    return NULL;
}

/* The table does not have the key. The caller serialises all calls for the table. */
void ph_interned_put(ph_interned *table, uint64_t key, const void *value);

/* The keys alone. 0 counts as a number that every set has. */
typedef ph_interned ph_number_set;

static inline bool ph_number_set_has(const ph_number_set *set, uint64_t number) {
    return number == 0 || ph_interned_get(set, number) != NULL;
}
/* Returns false if the set had the number before. The caller serialises the calls. */
static inline bool ph_number_set_add(ph_number_set *set, uint64_t number) {
    if (LIKELY(ph_number_set_has(set, number))) return false;
    ph_interned_put(set, number, set);
    return true;
}

#endif
