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

ph_interval *ph_intervals_at(const ph_intervals *set, ph_place place) {
    return place.leaf < set->nleaves ? &set->leaves[place.leaf]->at[place.index] : NULL;
}

ph_place ph_intervals_next(const ph_intervals *set, ph_place place) {
    place.index++;
    return place.index < set->leaves[place.leaf]->n ? place : (ph_place){place.leaf + 1, 0};
}

ph_place ph_intervals_after(const ph_intervals *set, uintptr_t at) {
    size_t low = 0, high = set->nleaves;
    while (low < high) { /* the first leaf whose last interval ends after `at` */
        size_t middle = low + (high - low) / 2;
        const ph_leaf *leaf = set->leaves[middle];
        if (leaf->at[leaf->n - 1].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    ph_place place = {low, 0};
    if (low == set->nleaves) return place;
    const ph_leaf *leaf = set->leaves[low];
    for (high = leaf->n; place.index < high;) {
        size_t middle = place.index + (high - place.index) / 2;
        if (leaf->at[middle].end <= at)
            place.index = middle + 1;
        else
            high = middle;
    }
    return place;
}

static void add_leaf(ph_intervals *set, size_t where, ph_leaf *leaf) {
    set->leaves = ph_room_for_one(set->leaves, set->nleaves, &set->capacity, sizeof *set->leaves);
    memmove(set->leaves + where + 1, set->leaves + where, (set->nleaves - where) * sizeof *set->leaves);
    set->leaves[where] = leaf;
    set->nleaves++;
}

void ph_intervals_insert(ph_intervals *set, ph_place place, ph_interval interval) {
    if (place.leaf == set->nleaves) {
        if (place.leaf > 0)
            place = (ph_place){place.leaf - 1, set->leaves[place.leaf - 1]->n};
        else
            add_leaf(set, 0, ph_allocate(sizeof(ph_leaf)));
    }
    ph_leaf *leaf = set->leaves[place.leaf];
    if (leaf->n == LEAF) {
        ph_leaf *upper = ph_allocate(sizeof *upper);
        upper->n = LEAF / 2;
        leaf->n = LEAF - LEAF / 2;
        memcpy(upper->at, leaf->at + leaf->n, upper->n * sizeof *upper->at);
        add_leaf(set, place.leaf + 1, upper);
        if (place.index > leaf->n) {
            place.index -= leaf->n;
            leaf = upper;
        }
    }
    memmove(leaf->at + place.index + 1, leaf->at + place.index, (leaf->n - place.index) * sizeof *leaf->at);
    leaf->at[place.index] = interval;
    leaf->n++;
    set->n++;
}

void ph_intervals_erase(ph_intervals *set, ph_place place) {
    ph_leaf *leaf = set->leaves[place.leaf];
    set->n--;
    if (--leaf->n) {
        memmove(leaf->at + place.index, leaf->at + place.index + 1, (leaf->n - place.index) * sizeof *leaf->at);
        return;
    }
    free(leaf);
    set->nleaves--;
    memmove(set->leaves + place.leaf, set->leaves + place.leaf + 1, (set->nleaves - place.leaf) * sizeof *set->leaves);
}

void ph_intervals_add(ph_intervals *set, uintptr_t start, uintptr_t end) {
    if (start >= end) return;
    ph_place place = ph_intervals_after(set, start ? start - 1 : 0); /* also one that ends where this one starts */
    for (ph_interval *at; (at = ph_intervals_at(set, place)) && at->start <= end;) {
        if (at->start <= start && at->end >= end) return;
        if (at->start < start) start = at->start;
        if (at->end > end) end = at->end;
        ph_intervals_erase(set, place);
        place = ph_intervals_after(set, start ? start - 1 : 0);
    }
    ph_intervals_insert(set, place, (ph_interval){start, end});
}

void ph_intervals_cut(ph_intervals *set, uintptr_t start, uintptr_t end) {
    if (!set->n || start >= end) return;
    ph_place place = ph_intervals_after(set, start);
    for (ph_interval *at; (at = ph_intervals_at(set, place)) && at->start < end;) {
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
            ph_intervals_erase(set, place);
        place = ph_intervals_after(set, start);
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
