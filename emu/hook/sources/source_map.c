/*
 * See source_map.h. The pieces are sorted and do not overlap: a parameter or a part of one each, so thousands, and more
 * where a script writes to a large tensor in strips. References are given back without the lock, because the store may
 * be called then.
 */
#include "sources/source_map.h"
#include "core/alloc.h"
#include "core/intervals.h"
#include "core/lock.h"

#include <stdatomic.h>
#include <stdlib.h>

static ph_intervals map = PH_INTERVALS_OF(ph_piece);
static atomic_size_t n_pieces; /* may be read without the lock */

PH_EXPORT _Atomic(uint64_t) ph_data_marks;

typedef struct released {
    ph_source **all;
    size_t n, capacity;
} released;

static ph_piece *piece_at(ph_cursor cursor) { return ph_intervals_at(&map, cursor); }

/* Under the lock. Returns the sources to be released. */
static released cut(uintptr_t from, uintptr_t to) {
    released out = {0};
    ph_cursor cursor = ph_intervals_after(&map, from);
    for (ph_piece *at; (at = piece_at(cursor)) && at->start < to; cursor = ph_intervals_after(&map, from)) {
        if (at->start < from) {
            ph_piece rest = {to, at->end, at->source, at->offset + (to - at->start)};
            at->end = from;
            if (rest.end <= to) continue;
            ph_source_hold(rest.source); /* a hole in its middle */
            ph_intervals_insert(&map, ph_intervals_after(&map, from), &rest);
            break;
        }
        if (at->end > to) {
            at->offset += to - at->start;
            at->start = to;
            break;
        }
        out.all = ph_room_for_one(out.all, out.n, &out.capacity, sizeof *out.all);
        out.all[out.n++] = at->source;
        ph_intervals_erase(&map, cursor);
    }
    n_pieces = map.n;
    return out;
}

static void release_all(released all) {
    for (size_t i = 0; i < all.n; i++) ph_source_release(all.all[i]);
    free(all.all);
}

void ph_sources_cut(const void *start, size_t nbytes) {
    if (!nbytes || !n_pieces) return;
    ph_lock(PH_LOCK_SOURCE_MAP);
    released released = cut((uintptr_t)start, (uintptr_t)start + nbytes);
    ph_unlock(PH_LOCK_SOURCE_MAP);
    release_all(released);
}

void ph_sources_put(const void *start, size_t nbytes, ph_source *source, uint64_t offset) {
    ph_data_marks++;
    uintptr_t from = (uintptr_t)start;
    ph_lock(PH_LOCK_SOURCE_MAP);
    released released = cut(from, from + nbytes);
    ph_piece *before = piece_at(ph_intervals_after(&map, from - 1));
    bool continued = before && before->end == from && before->source == source &&
                     before->offset + (before->end - before->start) == offset;
    if (continued)
        before->end += nbytes;
    else
        ph_intervals_insert(&map, ph_intervals_after(&map, from), &(ph_piece){from, from + nbytes, source, offset});
    n_pieces = map.n;
    ph_unlock(PH_LOCK_SOURCE_MAP);
    if (continued) ph_source_release(source);
    release_all(released);
}

size_t ph_sources_list(const void *start, size_t nbytes, ph_piece **out) {
    uintptr_t from = (uintptr_t)start, to = from + nbytes;
    ph_pieces found = {0};
    *out = NULL;
    if (!nbytes || !n_pieces) return 0;
    ph_lock(PH_LOCK_SOURCE_MAP);
    ph_cursor cursor = ph_intervals_after(&map, from);
    for (ph_piece *at; (at = piece_at(cursor)) && at->start < to; cursor = ph_intervals_next(&map, cursor)) {
        ph_source_hold(at->source);
        ph_pieces_add(&found, *at);
    }
    ph_unlock(PH_LOCK_SOURCE_MAP);
    *out = found.all;
    size_t n = found.n;
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
    if (!nbytes || !n_pieces) return false;
    ph_lock(PH_LOCK_SOURCE_MAP);
    bool found = ph_intervals_touch(&map, (uintptr_t)start, (uintptr_t)start + nbytes);
    ph_unlock(PH_LOCK_SOURCE_MAP);
    return found;
}
