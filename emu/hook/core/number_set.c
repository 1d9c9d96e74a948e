#include "core/number_set.h"
#include "core/alloc.h"

#include <stdlib.h>

enum { FIRST_CAPACITY = 256 };

/* The slot that has the number, or where it belongs. */
static uint64_t *slot_of(const ph_number_set *set, uint64_t number) {
    size_t mask = set->capacity - 1, at = number & mask;
    while (set->slots[at] && set->slots[at] != number) at = (at + 1) & mask;
    return &set->slots[at];
}

static void make_room(ph_number_set *set) {
    if (set->n * 2 < set->capacity) return;
    ph_number_set old = *set;
    set->capacity = old.capacity ? 2 * old.capacity : FIRST_CAPACITY;
    set->slots = ph_allocate(set->capacity * sizeof *set->slots);
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i]) *slot_of(set, old.slots[i]) = old.slots[i];
    free(old.slots);
}

bool ph_number_set_has(const ph_number_set *set, uint64_t number) {
    return set->capacity && *slot_of(set, number) == number;
}

bool ph_number_set_add(ph_number_set *set, uint64_t number) {
    make_room(set);
    uint64_t *slot = slot_of(set, number);
    if (*slot == number) return false;
    *slot = number;
    set->n++;
    return true;
}
