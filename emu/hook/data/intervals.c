/* See intervals.h. */
#include "data/intervals.h"
#include "core/alloc.h"

#include <stdlib.h>
#include <string.h>

enum { LEAF = 128 };

typedef struct ph_leaf {
    size_t n;
    ph_interval at[LEAF];
} ph_leaf;

ph_interval *ph_intervals_at(const ph_intervals *set, ph_cursor cursor) {
    return cursor.leaf < set->nleaves ? &set->leaves[cursor.leaf]->at[cursor.index] : NULL;
}

ph_cursor ph_intervals_next(const ph_intervals *set, ph_cursor cursor) {
    cursor.index++;
    return cursor.index < set->leaves[cursor.leaf]->n ? cursor : (ph_cursor){cursor.leaf + 1, 0};
}

ph_cursor ph_intervals_after(const ph_intervals *set, uintptr_t at) {
    size_t low = 0, high = set->nleaves;
    while (low < high) { /* the first leaf whose last interval ends after `at` */
        size_t middle = low + (high - low) / 2;
        const ph_leaf *leaf = set->leaves[middle];
        if (leaf->at[leaf->n - 1].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    ph_cursor cursor = {low, 0};
    if (low == set->nleaves) return cursor;
    const ph_leaf *leaf = set->leaves[low];
    for (high = leaf->n; cursor.index < high;) {
        size_t middle = cursor.index + (high - cursor.index) / 2;
        if (leaf->at[middle].end <= at)
            cursor.index = middle + 1;
        else
            high = middle;
    }
    return cursor;
}

static void add_leaf(ph_intervals *set, size_t where, ph_leaf *leaf) {
    set->leaves = ph_room_for_one(set->leaves, set->nleaves, &set->capacity, sizeof *set->leaves);
    memmove(set->leaves + where + 1, set->leaves + where, (set->nleaves - where) * sizeof *set->leaves);
    set->leaves[where] = leaf;
    set->nleaves++;
}

void ph_intervals_insert(ph_intervals *set, ph_cursor cursor, ph_interval interval) {
    if (cursor.leaf == set->nleaves) {
        if (cursor.leaf > 0)
            cursor = (ph_cursor){cursor.leaf - 1, set->leaves[cursor.leaf - 1]->n};
        else
            add_leaf(set, 0, ph_allocate(sizeof(ph_leaf)));
    }
    ph_leaf *leaf = set->leaves[cursor.leaf];
    if (leaf->n == LEAF) {
        ph_leaf *upper = ph_allocate(sizeof *upper);
        upper->n = LEAF / 2;
        leaf->n = LEAF - LEAF / 2;
        memcpy(upper->at, leaf->at + leaf->n, upper->n * sizeof *upper->at);
        add_leaf(set, cursor.leaf + 1, upper);
        if (cursor.index > leaf->n) {
            cursor.index -= leaf->n;
            leaf = upper;
        }
    }
    memmove(leaf->at + cursor.index + 1, leaf->at + cursor.index, (leaf->n - cursor.index) * sizeof *leaf->at);
    leaf->at[cursor.index] = interval;
    leaf->n++;
    set->n++;
}

void ph_intervals_erase(ph_intervals *set, ph_cursor cursor) {
    ph_leaf *leaf = set->leaves[cursor.leaf];
    set->n--;
    if (--leaf->n) {
        memmove(leaf->at + cursor.index, leaf->at + cursor.index + 1, (leaf->n - cursor.index) * sizeof *leaf->at);
        return;
    }
    free(leaf);
    set->nleaves--;
    memmove(set->leaves + cursor.leaf, set->leaves + cursor.leaf + 1,
            (set->nleaves - cursor.leaf) * sizeof *set->leaves);
}

void ph_intervals_add(ph_intervals *set, uintptr_t start, uintptr_t end) {
    if (start >= end) return;
    ph_cursor cursor = ph_intervals_after(set, start ? start - 1 : 0); /* also one that ends where this one starts */
    for (ph_interval *at; (at = ph_intervals_at(set, cursor)) && at->start <= end;) {
        if (at->start <= start && at->end >= end) return;
        if (at->start < start) start = at->start;
        if (at->end > end) end = at->end;
        ph_intervals_erase(set, cursor);
        cursor = ph_intervals_after(set, start ? start - 1 : 0);
    }
    ph_intervals_insert(set, cursor, (ph_interval){start, end});
}

void ph_intervals_cut(ph_intervals *set, uintptr_t start, uintptr_t end) {
    if (!set->n || start >= end) return;
    ph_cursor cursor = ph_intervals_after(set, start);
    for (ph_interval *at; (at = ph_intervals_at(set, cursor)) && at->start < end;) {
        ph_interval whole = *at;
        if (whole.start < start && whole.end > end) {
            at->end = start;
            ph_intervals_insert(set, ph_intervals_after(set, start), (ph_interval){end, whole.end});
            return;
        }
        if (whole.end > end) {
            at->start = end;
            return;
        }
        if (whole.start < start)
            at->end = start;
        else
            ph_intervals_erase(set, cursor);
        cursor = ph_intervals_after(set, start);
    }
}

bool ph_intervals_cover(const ph_intervals *set, uintptr_t start, uintptr_t end) {
    const ph_interval *at = ph_intervals_at(set, ph_intervals_after(set, start));
    return at && at->start <= start && at->end >= end;
}

bool ph_intervals_touch(const ph_intervals *set, uintptr_t start, uintptr_t end) {
    const ph_interval *at = ph_intervals_at(set, ph_intervals_after(set, start));
    return at && at->start < end;
}
