/* Sorted sets of disjoint address intervals, each with what its owner knows of it. Not thread-safe: the caller
 * serialises calls. */
#ifndef PHANTORA_INTERVALS_H
#define PHANTORA_INTERVALS_H

#include "core/base.h"

typedef struct ph_interval {
    uintptr_t start, end;
} ph_interval;

/* The intervals lie in leaves of bounded size, so that adding one moves few bytes however many there are. Each is the
 * beginning of an item: a set of items of a type T is PH_INTERVALS_OF(T) at first. */
typedef struct ph_intervals {
    size_t item_nbytes;
    struct ph_leaf **leaves;
    size_t nleaves, capacity;
    size_t n; /* intervals */
} ph_intervals;
#define PH_INTERVALS_OF(type) {.item_nbytes = sizeof(type)}

/* The position of an interval. It is invalid once the set has changed. */
typedef struct ph_cursor {
    size_t leaf, index;
} ph_cursor;

/* The first interval that ends after `at`, or the end of the set. */
ph_cursor ph_intervals_after(const ph_intervals *set, uintptr_t at);
/* Returns the item at the cursor; NULL at the end of the set. */
void *ph_intervals_at(const ph_intervals *set, ph_cursor cursor);
ph_cursor ph_intervals_next(const ph_intervals *set, ph_cursor cursor);

/* The item's interval must overlap no other one, and belong at the cursor. */
void ph_intervals_insert(ph_intervals *set, ph_cursor cursor, const void *item);
void ph_intervals_erase(ph_intervals *set, ph_cursor cursor);

/* Adds [start, end) and merges it with the intervals that it touches. Here and in the next one, items are intervals
 * alone. */
void ph_intervals_add(ph_intervals *set, uintptr_t start, uintptr_t end);
/* Removes [start, end) from all intervals. */
void ph_intervals_cut(ph_intervals *set, uintptr_t start, uintptr_t end);
bool ph_intervals_cover(const ph_intervals *set, uintptr_t start, uintptr_t end);
bool ph_intervals_touch(const ph_intervals *set, uintptr_t start, uintptr_t end);

#endif
