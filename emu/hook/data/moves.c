/*
 * What a copy or a set does: to bytes, to what is known of them and to the sources that they refer to.
 *
 * Two rules keep a rank's private memory small. A zero fill gives whole pages back to the kernel instead of writing
 * them. Nothing is written over bytes that are equal already: reading a page that was never written maps the kernel's
 * shared page of zeros, writing it would take a page. Copies to the device of more than the limit write no bytes: their
 * destination refers to what the source refers to, or to a copy of its bytes in the store.
 */
#include "data/action.h"
#include "core/alloc.h"
#include "core/config.h"
#include "core/run.h"
#include "data/data.h"
#include "memory/memory.h"
#include "memory/pinned.h"
#include "sources/source_map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE ((uintptr_t)4096)
#define DROPPED_PAGES ((size_t)256 << 10) /* from this size on, host memory is zeroed by giving its pages back */

static bool is_filled(const unsigned char *bytes, unsigned char value, size_t nbytes) {
    return nbytes == 0 || (bytes[0] == value && memcmp(bytes, bytes + 1, nbytes - 1) == 0);
}

static void fill(void *dst, int value, size_t nbytes) {
    if (!is_filled(dst, (unsigned char)value, nbytes)) memset(dst, value, nbytes);
}

static void zero_device(unsigned char *dst, size_t nbytes) {
    unsigned char *from = (unsigned char *)(((uintptr_t)dst + PAGE - 1) & ~(PAGE - 1));
    unsigned char *to = (unsigned char *)(((uintptr_t)dst + nbytes) & ~(PAGE - 1));
    if (from >= to || madvise(from, (size_t)(to - from), MADV_DONTNEED) != 0) {
        fill(dst, 0, nbytes);
        return;
    }
    fill(dst, 0, (size_t)(from - dst));
    fill(to, 0, (size_t)(dst + nbytes - to));
}

void ph_move_refer(void *dst, ph_source *source, uint64_t offset, size_t nbytes) {
    ph_data_forget(dst, nbytes);
    if (source) ph_sources_put(dst, nbytes, source, offset);
}

void ph_move_set(void *dst, int value, size_t nbytes) {
    unsigned char byte = (unsigned char)value;
    if (!ph_is_device_pointer(dst)) {
        memset(dst, value, nbytes);
        return;
    }
    if (byte == 0) zero_device(dst, nbytes);
    if (nbytes > ph_cfg.data_limit_nbytes) {
        ph_move_refer(dst, ph_source_constant(&byte, 1), 0, nbytes);
        return;
    }
    if (byte) fill(dst, value, nbytes);
    ph_data_mark_known(dst, nbytes);
}

void ph_data_settle(const void *start, size_t nbytes) {
    ph_piece *pieces;
    size_t n = ph_sources_list(start, nbytes, &pieces);
    for (size_t i = 0; i < n; i++) {
        void *at = (void *)pieces[i].start;
        size_t length = pieces[i].end - pieces[i].start;
        if (ph_source_read(pieces[i].source, pieces[i].offset, length, at))
            ph_data_mark_known(at, length);
        else
            ph_data_forget(at, length);
    }
    ph_pieces_free(pieces, n);
}

static size_t length_of(const ph_piece *pieces, size_t n) {
    size_t total = 0;
    for (size_t i = 0; i < n; i++) total += pieces[i].end - pieces[i].start;
    return total;
}

static size_t readable_bytes(const void *start, size_t nbytes, bool assumed) {
    const char *at = start, *end = at + nbytes;
    size_t total = 0;
    for (ph_range piece; at < end && ph_data_next_readable(at, (size_t)(end - at), &piece);) {
        at = (char *)piece.start + piece.nbytes;
        if (assumed || ph_data_known(piece.start, piece.nbytes)) total += piece.nbytes;
    }
    return total;
}

size_t ph_data_unknown(const void *start, size_t nbytes, bool assumed) {
    if (ph_data_known(start, nbytes)) return 0;
    ph_piece *pieces;
    size_t n = ph_sources_list(start, nbytes, &pieces), referring = length_of(pieces, n);
    ph_pieces_free(pieces, n);
    return nbytes - referring - readable_bytes(start, nbytes, !assumed);
}

/* MADV_FREE is an error for memory that is shared or belongs to a file; there, dropped pages would not read as 0. */
static void zero_host(unsigned char *dst, size_t nbytes) {
    unsigned char *from = (unsigned char *)(((uintptr_t)dst + PAGE - 1) & ~(PAGE - 1));
    unsigned char *to = (unsigned char *)(((uintptr_t)dst + nbytes) & ~(PAGE - 1));
    if (nbytes < DROPPED_PAGES || madvise(from, (size_t)(to - from), MADV_FREE) != 0 ||
        madvise(from, (size_t)(to - from), MADV_DONTNEED) != 0) {
        memset(dst, 0, nbytes);
        return;
    }
    memset(dst, 0, (size_t)(from - dst));
    memset(to, 0, (size_t)(dst + nbytes - to));
}

/* Host memory that is filled when somebody reads it. */
static bool give_later(unsigned char *dst, const unsigned char *src, size_t nbytes, const ph_piece *pieces, size_t n) {
    ph_pieces found = {0};
    if (length_of(pieces, n) != nbytes || ph_host_pinned(dst)) return false;
    bool given = ph_pieces_resolve(pieces, n, &found);
    for (size_t i = 0; i < found.n; i++) {
        found.all[i].start -= (uintptr_t)src;
        found.all[i].end -= (uintptr_t)src;
    }
    given = given && ph_host_pages_give(dst, nbytes, found.all, found.n);
    ph_pieces_free(found.all, found.n);
    return given;
}

/* Bytes that are neither known nor assumed and refer to no source read as 0. Those that are assumed are counted, too.
 */
static void read_out(unsigned char *dst, const unsigned char *src, size_t nbytes) {
    if (ph_data_known(src, nbytes)) {
        memmove(dst, src, nbytes);
        return;
    }
    ph_piece *pieces;
    size_t n = ph_sources_list(src, nbytes, &pieces);
    if (give_later(dst, src, nbytes, pieces, n)) {
        ph_pieces_free(pieces, n);
        return;
    }
    size_t referring = length_of(pieces, n);
    bool complete = referring + readable_bytes(src, nbytes, true) == nbytes;
    bool computed = referring + readable_bytes(src, nbytes, false) == nbytes;
    ph_range piece;
    if (!complete) zero_host(dst, nbytes);
    for (size_t at = 0; ph_data_next_readable(src + at, nbytes - at, &piece);) {
        at = (size_t)((unsigned char *)piece.start - src);
        memcpy(dst + at, piece.start, piece.nbytes);
        at += piece.nbytes;
    }
    for (size_t i = 0; i < n; i++) {
        unsigned char *to = dst + (pieces[i].start - (uintptr_t)src);
        size_t length = pieces[i].end - pieces[i].start;
        if (ph_source_read(pieces[i].source, pieces[i].offset, length, to)) continue;
        memset(to, 0, length);
        computed = false;
    }
    ph_pieces_free(pieces, n);
    if (computed) return;
    ph_count_unmodelled_read();
    int64_t count = ph_count_read();
    if (count >= 0 && (nbytes == sizeof(int32_t) || nbytes == sizeof count)) memcpy(dst, &count, nbytes);
}

/* Gives the new place the states of the old one: known, assumed or unknown. The bytes are there already. */
static void copy_states(unsigned char *dst, const unsigned char *src, size_t nbytes) {
    ph_range piece;
    ph_data_forget(dst, nbytes);
    for (size_t at = 0; ph_data_next_readable(src + at, nbytes - at, &piece);) {
        at = (size_t)((unsigned char *)piece.start - src);
        if (ph_data_known(piece.start, piece.nbytes))
            ph_data_mark_known(dst + at, piece.nbytes);
        else
            ph_data_mark_assumed(dst + at, piece.nbytes);
        at += piece.nbytes;
    }
}

/* The bytes themselves move, if any of them is worth it. */
static void move_bytes(unsigned char *dst, const unsigned char *src, size_t nbytes) {
    ph_range piece;
    bool known = ph_data_known(src, nbytes);
    if (!known && !ph_data_next_readable(src, nbytes, &piece)) {
        ph_data_forget(dst, nbytes);
        return;
    }
    if (memcmp(dst, src, nbytes) != 0) memmove(dst, src, nbytes);
    if (known) {
        bool chosen = ph_data_chosen(src, nbytes);
        ph_data_mark_known(dst, nbytes);
        if (chosen) ph_data_mark_chosen(dst, nbytes);
    } else
        copy_states(dst, src, nbytes);
}

/* Moves a large range: known bytes that lie in device memory are put into the store. */
static void move_large(unsigned char *dst, const unsigned char *src, size_t nbytes) {
    typedef struct run {
        size_t at, nbytes;
        ph_source *source; /* NULL: there was no room */
    } run;
    run *runs = NULL;
    size_t n = 0, capacity = 0;
    ph_range piece;
    for (size_t at = 0; ph_data_next_readable(src + at, nbytes - at, &piece); at += piece.nbytes) {
        at = (size_t)((unsigned char *)piece.start - src);
        if (!ph_data_known(piece.start, piece.nbytes)) continue;
        runs = ph_room_for_one(runs, n, &capacity, sizeof *runs);
        runs[n++] = (run){at, piece.nbytes, ph_source_copy(piece.start, piece.nbytes)};
    }
    ph_data_forget(dst, nbytes);
    for (size_t i = 0; i < n; i++)
        if (runs[i].source) ph_sources_put(dst + runs[i].at, runs[i].nbytes, runs[i].source, 0);
    free(runs);
}

bool ph_data_refer_all(void *start, size_t nbytes) {
    ph_range piece;
    unsigned char *at = start, *end = at + nbytes;
    while (at < end && ph_data_next_readable(at, (size_t)(end - at), &piece)) {
        at = (unsigned char *)piece.start + piece.nbytes;
        ph_source *source = ph_data_known(piece.start, piece.nbytes) ? ph_source_copy(piece.start, piece.nbytes) : NULL;
        if (source) ph_move_refer(piece.start, source, 0, piece.nbytes);
    }
    return ph_sources_touch(start, nbytes);
}

void ph_move_from_host(void *dst, const void *src, size_t nbytes, void refer(void *, ph_source *, uint64_t, size_t)) {
    ph_piece *pieces;
    size_t n = ph_host_pages_list(src, nbytes, &pieces), at = 0;
    unsigned char *to = dst;
    const unsigned char *from = src;
    for (size_t i = 0; i <= n; i++) {
        size_t next = i < n ? pieces[i].start - (uintptr_t)src : nbytes;
        if (next > at) refer(to + at, ph_source_copy(from + at, next - at), 0, next - at);
        if (i == n) break;
        at = pieces[i].end - (uintptr_t)src;
        refer(to + next, ph_source_hold(pieces[i].source), pieces[i].offset, at - next);
    }
    ph_pieces_free(pieces, n);
}

void ph_move_copy(void *dst, const void *src, size_t nbytes, bool large) {
    if (!ph_is_device_pointer(dst)) {
        if (ph_is_device_pointer(src))
            read_out(dst, src, nbytes);
        else
            memmove(dst, src, nbytes);
        return;
    }
    if (large && !ph_is_device_pointer(src)) {
        ph_move_from_host(dst, src, nbytes, ph_move_refer);
        return;
    }
    ph_piece *pieces;
    size_t n = ph_sources_list(src, nbytes, &pieces);
    (large ? move_large : move_bytes)(dst, src, nbytes);
    for (size_t i = 0; i < n; i++) {
        unsigned char *to = (unsigned char *)dst + (pieces[i].start - (uintptr_t)src);
        ph_sources_put(to, pieces[i].end - pieces[i].start, ph_source_hold(pieces[i].source), pieces[i].offset);
    }
    ph_pieces_free(pieces, n);
}
