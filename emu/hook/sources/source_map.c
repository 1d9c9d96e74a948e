/*
 * See source_map.h. The pieces are sorted and do not overlap: a parameter or a part of one each, so thousands.
 * References are given back without the lock, because the store may be called then.
 */
#include "sources/source_map.h"
#include "core/lock.h"
#include "core/alloc.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct {
    ph_piece *pieces;
    atomic_size_t n; /* may be read without the lock */
    size_t capacity;
} map;

PH_EXPORT _Atomic(uint64_t) ph_data_marks;

/* Under the lock: the first piece that ends after `at`. */
static size_t after(uintptr_t at) {
    size_t low = 0, high = map.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (map.pieces[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert(size_t where, ph_piece piece) {
    map.pieces = ph_room_for_one(map.pieces, map.n, &map.capacity, sizeof *map.pieces);
    memmove(map.pieces + where + 1, map.pieces + where, (map.n - where) * sizeof piece);
    map.pieces[where] = piece;
    map.n++;
}

/* Under the lock. Returns the sources to be released, `n` of them. */
static ph_source **cut(uintptr_t from, uintptr_t to, size_t *n) {
    size_t first = after(from), last = first;
    *n = 0;
    if (first < map.n && map.pieces[first].start < from) {
        ph_piece *at = &map.pieces[first];
        if (at->end > to) { /* a hole in its middle */
            ph_piece rest = {to, at->end, ph_source_hold(at->source), at->offset + (to - at->start)};
            at->end = from;
            insert(first + 1, rest);
            return NULL;
        }
        at->end = from;
        last = ++first;
    }
    while (last < map.n && map.pieces[last].end <= to) last++;
    if (last < map.n && map.pieces[last].start < to) {
        map.pieces[last].offset += to - map.pieces[last].start;
        map.pieces[last].start = to;
    }
    if (first == last) return NULL;
    ph_source **released = ph_allocate((last - first) * sizeof *released);
    for (size_t i = first; i < last; i++) released[(*n)++] = map.pieces[i].source;
    memmove(map.pieces + first, map.pieces + last, (map.n - last) * sizeof *map.pieces);
    map.n -= last - first;
    return released;
}

static void release_all(ph_source **released, size_t n) {
    for (size_t i = 0; i < n; i++) ph_source_release(released[i]);
    free(released);
}

void ph_sources_cut(const void *start, size_t nbytes) {
    size_t n;
    if (!nbytes || !map.n) return;
    ph_lock(PH_LOCK_SOURCE_MAP);
    ph_source **released = cut((uintptr_t)start, (uintptr_t)start + nbytes, &n);
    ph_unlock(PH_LOCK_SOURCE_MAP);
    release_all(released, n);
}

void ph_sources_put(const void *start, size_t nbytes, ph_source *source, uint64_t offset) {
    ph_data_marks++;
    size_t n;
    uintptr_t from = (uintptr_t)start;
    ph_lock(PH_LOCK_SOURCE_MAP);
    ph_source **released = cut(from, from + nbytes, &n);
    size_t where = after(from);
    ph_piece *before = where ? &map.pieces[where - 1] : NULL;
    bool continued = before && before->end == from && before->source == source &&
                     before->offset + (before->end - before->start) == offset;
    if (continued)
        before->end += nbytes;
    else
        insert(where, (ph_piece){from, from + nbytes, source, offset});
    ph_unlock(PH_LOCK_SOURCE_MAP);
    if (continued) ph_source_release(source);
    release_all(released, n);
}

size_t ph_sources_list(const void *start, size_t nbytes, ph_piece **out) {
    uintptr_t from = (uintptr_t)start, to = from + nbytes;
    *out = NULL;
    if (!nbytes || !map.n) return 0;
    ph_lock(PH_LOCK_SOURCE_MAP);
    size_t first = after(from), last = first, n;
    while (last < map.n && map.pieces[last].start < to) last++;
    n = last - first;
    if (n) {
        *out = ph_allocate(n * sizeof **out);
        memcpy(*out, map.pieces + first, n * sizeof **out);
        for (size_t i = 0; i < n; i++) ph_source_hold((*out)[i].source);
    }
    ph_unlock(PH_LOCK_SOURCE_MAP);
    if (n && (*out)[0].start < from) {
        (*out)[0].offset += from - (*out)[0].start;
        (*out)[0].start = from;
    }
    if (n && (*out)[n - 1].end > to) (*out)[n - 1].end = to;
    return n;
}

void ph_pieces_free(ph_piece *pieces, size_t n) {
    for (size_t i = 0; i < n; i++) ph_source_release(pieces[i].source);
    free(pieces);
}

void ph_pieces_add(ph_pieces *to, ph_piece piece) {
    to->all = ph_room_for_one(to->all, to->n, &to->capacity, sizeof *to->all);
    to->all[to->n++] = piece;
}

bool ph_pieces_resolve(const ph_piece *pieces, size_t n, ph_pieces *out) {
    bool whole = true;
    for (size_t i = 0; i < n; i++) {
        size_t first = out->n;
        uintptr_t at = pieces[i].start;
        ph_source_list(pieces[i].source, pieces[i].offset, pieces[i].end - at, at, out);
        for (size_t j = first; j < out->n; at = out->all[j++].end) whole &= out->all[j].start == at;
        whole &= at == pieces[i].end;
    }
    return whole;
}

bool ph_sources_touch(const void *start, size_t nbytes) {
    if (!nbytes || !map.n) return false;
    ph_lock(PH_LOCK_SOURCE_MAP);
    size_t first = after((uintptr_t)start);
    bool found = first < map.n && map.pieces[first].start < (uintptr_t)start + nbytes;
    ph_unlock(PH_LOCK_SOURCE_MAP);
    return found;
}
