/*
 * What large tensors refer to, for emu's Python side. `taken` is a snapshot: the sources of a tensor's elements in the
 * order of memory, which stay readable whatever is written to the tensor afterwards.
 */
#include "core/alloc.h"
#include "data/data.h"
#include "data/strided.h"
#include "sources/source_map.h"
#include "sources/table.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_RUNS = 16384 };

typedef struct taken {
    ph_piece *pieces; /* `start` and `end` count from the first element's byte */
    size_t n, capacity, nbytes;
    unsigned char *raw; /* known bytes that lie in device memory, one after the other */
    size_t raw_nbytes, raw_capacity;
} taken;

static void add(taken *to, size_t nbytes, ph_source *source, uint64_t offset) {
    ph_piece *last = to->n ? &to->pieces[to->n - 1] : NULL;
    size_t at = to->nbytes;
    to->nbytes += nbytes;
    if (last && last->source == source && last->offset + (last->end - last->start) == offset) {
        last->end += nbytes;
        ph_source_release(source);
        return;
    }
    to->pieces = ph_room_for_one(to->pieces, to->n, &to->capacity, sizeof *to->pieces);
    to->pieces[to->n++] = (ph_piece){at, at + nbytes, source, offset};
}

static void add_raw(taken *to, const char *bytes, size_t nbytes) {
    if (to->raw_nbytes + nbytes > to->raw_capacity)
        to->raw = ph_reallocate(to->raw, to->raw_capacity = 2 * (to->raw_nbytes + nbytes));
    memcpy(to->raw + to->raw_nbytes, bytes, nbytes);
    add(to, nbytes, NULL, to->raw_nbytes);
    to->raw_nbytes += nbytes;
}

static void drop(taken *it) {
    ph_pieces_free(it->pieces, it->n);
    free(it->raw);
    free(it);
}

/* Takes a range. Returns false if a byte of it has no value. */
static bool take_range(taken *to, const char *start, size_t nbytes) {
    ph_piece *pieces;
    size_t n = ph_sources_list(start, nbytes, &pieces), i = 0;
    const char *at = start, *end = start + nbytes;
    for (; at < end; i++) {
        const char *next = i < n ? (const char *)pieces[i].start : end;
        if (next > at && !ph_data_known(at, (size_t)(next - at))) break;
        if (next > at) add_raw(to, at, (size_t)(next - at));
        at = next;
        if (i == n) continue;
        add(to, pieces[i].end - pieces[i].start, ph_source_hold(pieces[i].source), pieces[i].offset);
        at = (const char *)pieces[i].end;
    }
    ph_pieces_free(pieces, n);
    return at >= end;
}

static bool place_raw(taken *it) {
    if (!it->raw_nbytes) return true;
    ph_source *source = ph_source_copy(it->raw, it->raw_nbytes);
    if (!source) return false;
    for (size_t i = 0; i < it->n; i++)
        if (!it->pieces[i].source) it->pieces[i].source = ph_source_hold(source);
    ph_source_release(source);
    return true;
}

/* Returns how many runs the elements are; more than MAX_RUNS count as one more than these. */
static size_t count(const ph_runs *r) {
    size_t n = 1;
    for (int i = 0; i < r->nouter && n <= MAX_RUNS; i++) n *= (size_t)r->size[i];
    return n <= MAX_RUNS ? n : MAX_RUNS + 1;
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */

PH_EXPORT int phantora_data_pending(uint64_t address, uint64_t nbytes) {
    return ph_data_pending((const void *)(uintptr_t)address, nbytes);
}

PH_EXPORT uint64_t phantora_data_runs(int64_t item, int ndims, const int64_t *sizes, const int64_t *strides) {
    ph_runs r;
    return ph_runs_begin(&r, 0, item, ndims, sizes, strides) ? count(&r) : 0;
}

/* Takes a tensor's elements; returns a handle. 0 if an element has no value yet, or there are too many runs.
 * Dimensions of stride 0 count as one element. */
PH_EXPORT uint64_t phantora_take(uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                                 const int64_t *strides) {
    ph_runs r;
    if (!ph_runs_begin(&r, address, item, ndims, sizes, strides) || count(&r) > MAX_RUNS) return 0;
    taken *it = ph_allocate(sizeof *it);
    do {
        if (!ph_data_pending(r.start, r.inner) && take_range(it, r.start, r.inner)) continue;
        drop(it);
        return 0;
    } while (ph_runs_next(&r));
    if (place_raw(it)) return (uint64_t)(uintptr_t)it;
    drop(it);
    return 0;
}

/* A copy of bytes of the device, as far as they have values. */
PH_EXPORT void phantora_data_move(uint64_t dst, uint64_t src, uint64_t nbytes) {
    ph_data_copy((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, nbytes);
}

PH_EXPORT void phantora_taken_drop(uint64_t handle) { drop((taken *)(uintptr_t)handle); }

/* Writes what was taken in a form that other ranks can read; returns its length. */
PH_EXPORT uint64_t phantora_taken_table(uint64_t handle, unsigned char **out) {
    const taken *it = (taken *)(uintptr_t)handle;
    size_t nbytes;
    *out = ph_table_write(it->pieces, it->n, &nbytes);
    return nbytes;
}

PH_EXPORT void phantora_table_drop(unsigned char *table) { free(table); }

/* Takes what a table describes; returns a handle. 0 if a part of it has gone. */
PH_EXPORT uint64_t phantora_take_table(const unsigned char *table, uint64_t nbytes) {
    taken *it = ph_allocate(sizeof *it);
    it->n = ph_table_read(table, nbytes, &it->pieces);
    for (size_t i = 0; i < it->n; i++)
        if (it->pieces[i].start == it->nbytes) it->nbytes = it->pieces[i].end;
    if (it->n && it->pieces[it->n - 1].end == it->nbytes) return (uint64_t)(uintptr_t)it;
    drop(it);
    return 0;
}

PH_EXPORT int phantora_taken_depth(uint64_t handle) {
    const taken *it = (taken *)(uintptr_t)handle;
    int deepest = 0;
    for (size_t i = 0; i < it->n; i++)
        if (ph_source_depth(it->pieces[i].source) > deepest) deepest = ph_source_depth(it->pieces[i].source);
    return deepest;
}

/* Elements that are gone through before it can be read. */
PH_EXPORT uint64_t phantora_taken_work(uint64_t handle) {
    const taken *it = (taken *)(uintptr_t)handle;
    uint64_t work = 0;
    for (size_t i = 0; i < it->n; i++)
        if (i == 0 || it->pieces[i].source != it->pieces[i - 1].source) work += ph_source_work(it->pieces[i].source);
    return work;
}

/* Copies all bytes of what was taken to host memory. Returns 0 if they cannot be had. */
PH_EXPORT int phantora_taken_read(uint64_t handle, void *dst) {
    const taken *it = (taken *)(uintptr_t)handle;
    for (size_t i = 0; i < it->n; i++) {
        const ph_piece *piece = &it->pieces[i];
        if (!ph_source_read(piece->source, piece->offset, piece->end - piece->start, (char *)dst + piece->start))
            return 0;
    }
    return 1;
}

PH_EXPORT uint64_t phantora_taken_nbytes(uint64_t handle) { return ((taken *)(uintptr_t)handle)->nbytes; }

/* phantora_taken_read of some bytes from `offset` on. */
PH_EXPORT int phantora_taken_read_part(uint64_t handle, uint64_t offset, uint64_t nbytes, unsigned char *dst) {
    const taken *it = (taken *)(uintptr_t)handle;
    bool all = true;
    for (size_t i = 0; i < it->n; i++) {
        const ph_piece *piece = &it->pieces[i];
        uint64_t start = piece->start > offset ? piece->start : offset;
        uint64_t end = piece->end < offset + nbytes ? piece->end : offset + nbytes;
        if (start < end)
            all &= ph_source_read(piece->source, piece->offset + (start - piece->start), end - start,
                                  dst + (start - offset));
    }
    return all;
}

/* A launch that is not executed writes to the elements; where they are too many runs, the gaps between them count, too.
 */
PH_EXPORT void phantora_data_strided_overwrite(uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                                               const int64_t *strides) {
    ph_runs r;
    if (!ph_runs_begin(&r, address, item, ndims, sizes, strides)) return;
    size_t span = r.inner;
    for (int i = 0; i < r.nouter; i++) span += (size_t)((r.size[i] - 1) * r.stride[i]);
    if (count(&r) > MAX_RUNS) {
        ph_data_overwrite(r.start, span);
        return;
    }
    do {
        ph_data_overwrite(r.start, r.inner);
    } while (ph_runs_next(&r));
}

/* The elements refer to what was taken, in the order of memory. Returns 0 if they have another size or are too many
 * runs: then nothing has changed. */
PH_EXPORT int phantora_refer(uint64_t handle, uint64_t address, int64_t item, int ndims, const int64_t *sizes,
                             const int64_t *strides) {
    const taken *it = (taken *)(uintptr_t)handle;
    ph_runs r;
    if (!ph_runs_begin(&r, address, item, ndims, sizes, strides)) return 1;
    size_t runs = count(&r), i = 0;
    if (runs > MAX_RUNS || runs * r.inner != it->nbytes) return 0;
    uintptr_t at = 0;
    do {
        char *to = (char *)(uintptr_t)r.start;
        for (size_t left = r.inner; left;) {
            const ph_piece *piece = &it->pieces[i];
            size_t n = piece->end - at < left ? piece->end - at : left;
            ph_data_refer(to, ph_source_hold(piece->source), piece->offset + (at - piece->start), n);
            to += n;
            left -= n;
            at += n;
            if (at == piece->end) i++;
        }
    } while (ph_runs_next(&r));
    return 1;
}

/* The elements refer to one source: repetitions of `item_bytes`, or where that is NULL the computation of this number.
 */
PH_EXPORT int phantora_refer_source(const void *item_bytes, uint64_t number, int depth, uint64_t work, uint64_t address,
                                    int64_t item, int ndims, const int64_t *sizes, const int64_t *strides) {
    ph_runs r;
    if (!ph_runs_begin(&r, address, item, ndims, sizes, strides)) return 0;
    size_t runs = count(&r);
    if (runs > MAX_RUNS) return 0;
    ph_source *source = item_bytes ? ph_source_constant(item_bytes, (size_t)item)
                                   : ph_source_computed(number, runs * r.inner, depth, work);
    uint64_t offset = 0;
    do {
        ph_data_refer((char *)(uintptr_t)r.start, ph_source_hold(source), offset, r.inner);
        offset += r.inner;
    } while (ph_runs_next(&r));
    ph_source_release(source);
    return 1;
}
