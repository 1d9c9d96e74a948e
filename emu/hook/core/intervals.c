/* See intervals.h. */
#include "core/intervals.h"
#include "core/alloc.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { LEAF = 128 };

typedef struct ph_leaf {
    size_t n;
    _Alignas(max_align_t) unsigned char items[];
} ph_leaf;

static unsigned char *item(const ph_intervals *set, ph_leaf *leaf, size_t index) {
    return leaf->items + index * set->item_nbytes;
}

static const ph_interval *interval(const ph_intervals *set, ph_leaf *leaf, size_t index) {
    return (const ph_interval *)(const void *)item(set, leaf, index);
}

/* Moves the items from `index` on, within their leaf. */
static void shift(const ph_intervals *set, ph_leaf *leaf, size_t to, size_t index) {
    memmove(item(set, leaf, to), item(set, leaf, index), (leaf->n - index) * set->item_nbytes);
}

void *ph_intervals_at(const ph_intervals *set, ph_cursor cursor) {
    return cursor.leaf < set->nleaves ? item(set, set->leaves[cursor.leaf], cursor.index) : NULL;
}

ph_cursor ph_intervals_next(const ph_intervals *set, ph_cursor cursor) {
    cursor.index++;
    return cursor.index < set->leaves[cursor.leaf]->n ? cursor : (ph_cursor){cursor.leaf + 1, 0};
}

ph_cursor ph_intervals_after(const ph_intervals *set, uintptr_t at) {
    size_t low = 0, high = set->nleaves;
    while (low < high) { /* the first leaf whose last interval ends after `at` */
        size_t middle = low + (high - low) / 2;
        ph_leaf *leaf = set->leaves[middle];
        if (interval(set, leaf, leaf->n - 1)->end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    ph_cursor cursor = {low, 0};
    if (low == set->nleaves) return cursor;
    ph_leaf *leaf = set->leaves[low];
    for (high = leaf->n; cursor.index < high;) {
        size_t middle = cursor.index + (high - cursor.index) / 2;
        if (interval(set, leaf, middle)->end <= at)
            cursor.index = middle + 1;
        else
            high = middle;
    }
    return cursor;
}

static ph_leaf *add_leaf(ph_intervals *set, size_t where) {
    ph_leaf *leaf = ph_allocate(sizeof *leaf + LEAF * set->item_nbytes);
    leaf->n = 0;
    set->leaves = ph_room_for_one(set->leaves, set->nleaves, &set->capacity, sizeof *set->leaves);
    memmove(set->leaves + where + 1, set->leaves + where, (set->nleaves - where) * sizeof *set->leaves);
    set->leaves[where] = leaf;
    set->nleaves++;
    return leaf;
}

void ph_intervals_insert(ph_intervals *set, ph_cursor cursor, const void *added) {
    if (cursor.leaf == set->nleaves) {
        if (cursor.leaf > 0)
            cursor = (ph_cursor){cursor.leaf - 1, set->leaves[cursor.leaf - 1]->n};
        else
            add_leaf(set, 0);
    }
    ph_leaf *leaf = set->leaves[cursor.leaf];
    if (leaf->n == LEAF) {
        ph_leaf *upper = add_leaf(set, cursor.leaf + 1);
        upper->n = LEAF / 2;
        leaf->n = LEAF - LEAF / 2;
        memcpy(item(set, upper, 0), item(set, leaf, leaf->n), upper->n * set->item_nbytes);
        if (cursor.index > leaf->n) {
            cursor.index -= leaf->n;
            leaf = upper;
        }
    }
    shift(set, leaf, cursor.index + 1, cursor.index);
    memcpy(item(set, leaf, cursor.index), added, set->item_nbytes);
    leaf->n++;
    set->n++;
}

void ph_intervals_erase(ph_intervals *set, ph_cursor cursor) {
    ph_leaf *leaf = set->leaves[cursor.leaf];
    set->n--;
    if (leaf->n > 1) {
        shift(set, leaf, cursor.index, cursor.index + 1);
        leaf->n--;
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
    ph_intervals_insert(set, cursor, &(ph_interval){start, end});
}

void ph_intervals_cut(ph_intervals *set, uintptr_t start, uintptr_t end) {
    if (!set->n || start >= end) return;
    ph_cursor cursor = ph_intervals_after(set, start);
    for (ph_interval *at; (at = ph_intervals_at(set, cursor)) && at->start < end;) {
        ph_interval whole = *at;
        if (whole.start < start && whole.end > end) {
            at->end = start;
            ph_intervals_insert(set, ph_intervals_after(set, start), &(ph_interval){end, whole.end});
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
