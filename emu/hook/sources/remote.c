/*
 * Large collectives move references, too. A member whose input refers to sources writes their table into the store and
 * names it to the coordinator; the others' outputs refer to the collective. Nobody reads a table before somebody reads
 * values: then the rank asks the coordinator for the members' tables, which waits until they have made the call.
 *
 * A member keeps what it has told for as long as the store has room. A table that has gone is unknown to those that ask
 * later.
 */
#include "sources/remote.h"
#include "core/lock.h"
#include "op_stream/emit.h"
#include "core/alloc.h"
#include "sources/store.h"
#include "sources/table.h"

#include <stdlib.h>
#include <string.h>

typedef struct kept {
    struct kept *next;
    uint32_t entry;
    size_t n;
    ph_piece *pieces;
} kept;
static struct {
    kept *first, **end;
} told_by_us = {.end = &told_by_us.first};

static void keep(uint32_t entry, const ph_piece *pieces, size_t n) {
    kept *it = ph_allocate(sizeof *it), *dropped = NULL, **end = &dropped;
    *it = (kept){.entry = entry, .n = n, .pieces = ph_allocate(n * sizeof *pieces)};
    memcpy(it->pieces, pieces, n * sizeof *pieces);
    for (size_t i = 0; i < n; i++) ph_source_hold(pieces[i].source);
    ph_store_totals totals = ph_store_counts();
    ph_lock(PH_LOCK_TOLD);
    *told_by_us.end = it;
    told_by_us.end = &it->next;
    if (totals.used > totals.budget / 2) { /* the oldest go */
        *end = told_by_us.first;
        told_by_us.first = (*end)->next;
        if (!told_by_us.first) told_by_us.end = &told_by_us.first;
        (*end)->next = NULL;
    }
    ph_unlock(PH_LOCK_TOLD);
    if (!dropped) return;
    ph_store_release(dropped->entry);
    ph_pieces_free(dropped->pieces, dropped->n);
    free(dropped);
}

static void name(const ph_remote *where, uint32_t entry) {
    struct ph_NCCL_SOURCES record = {.comm = where->comm,
                                     .seq = where->seq,
                                     .op = where->op,
                                     .root = where->root,
                                     .place = where->place,
                                     .entry = entry};
    uint64_t key[2] = {0};
    if (entry && entry != UINT32_MAX) ph_store_key(entry, key);
    record.key_low = key[0];
    record.key_high = key[1];
    ph_emit_out_of_band(PH_KIND_NCCL_SOURCES, &record, sizeof record, NULL, 0);
}

void ph_remote_tell_later(const ph_remote *where) { name(where, UINT32_MAX); }

void ph_remote_tell(const ph_remote *where, const ph_piece *pieces, size_t n) {
    size_t nbytes;
    unsigned char *table = ph_table_write(pieces, n, &nbytes);
    uint32_t entry = table ? ph_store_add(table, nbytes) : 0;
    free(table);
    name(where, entry);
    if (entry) keep(entry, pieces, n);
}

/* ---- reading ----------------------------------------------------------------------------------------------------- */
typedef struct part {                /* of the output: what one member gives */
    uint64_t start, skipped, nbytes; /* `skipped` bytes of its input come before */
    size_t n;
    ph_piece *pieces;
} part;
struct ph_told {
    size_t nparts;
    part parts[];
};

static size_t read_table(const struct ph_SOURCE_TABLE *named, ph_piece **out) {
    const uint64_t key[2] = {named->key_low, named->key_high};
    *out = NULL;
    if (!named->entry || !ph_store_acquire(named->entry, key)) return 0;
    size_t nbytes = ph_store_nbytes(named->entry), n = 0;
    unsigned char *table = ph_allocate(nbytes + 1);
    if (ph_store_read(named->entry, 0, nbytes, table)) n = ph_table_read(table, nbytes, out);
    free(table);
    ph_store_release(named->entry);
    return n;
}

static bool all_give(uint32_t op) {
    return op == PH_NCCL_ALL_GATHER || op == PH_NCCL_GATHER || op == PH_NCCL_ALL_TO_ALL;
}

ph_told *ph_remote_ask(const ph_remote *where) {
    size_t n = all_give(where->op) ? where->nranks : 1;
    bool cut = where->op == PH_NCCL_ALL_TO_ALL || where->op == PH_NCCL_SCATTER;
    struct ph_SOURCES_OF question = {
        .comm = where->comm, .seq = where->seq, .op = where->op, .root = where->root, .place = where->place};
    size_t reply_nbytes = sizeof(struct ph_SOURCES) + n * sizeof(struct ph_SOURCE_TABLE);
    unsigned char *reply = ph_allocate(reply_nbytes);
    ph_ask_out_of_band(PH_KIND_SOURCES_OF, &question, sizeof question, NULL, 0, reply, reply_nbytes);
    ph_told *told = ph_allocate(sizeof *told + n * sizeof(part));
    told->nparts = n;
    for (size_t i = 0; i < n; i++) {
        struct ph_SOURCE_TABLE named;
        memcpy(&named, reply + sizeof(struct ph_SOURCES) + i * sizeof named, sizeof named);
        part *it = &told->parts[i];
        *it = (part){i * where->block, cut ? where->place * where->block : 0, where->block, 0, NULL};
        it->n = read_table(&named, &it->pieces);
    }
    free(reply);
    return told;
}

/* Lists what a member gives of the output's bytes from `offset` to `end`. */
static void list_part(const part *it, uint64_t offset, uint64_t end, uintptr_t at, ph_pieces *out) {
    for (size_t j = 0; j < it->n; j++) {
        const ph_piece *piece = &it->pieces[j];
        uint64_t from = it->skipped > piece->start ? it->skipped : piece->start;
        uint64_t to = it->skipped + it->nbytes < piece->end ? it->skipped + it->nbytes : piece->end;
        if (from >= to) continue;
        uint64_t start = from - it->skipped + it->start, stop = to - it->skipped + it->start; /* in the output */
        if (start < offset) {
            from += offset - start;
            start = offset;
        }
        if (stop > end) stop = end;
        if (start >= stop) continue;
        ph_source_list(piece->source, piece->offset + (from - piece->start), stop - start, at + (start - offset), out);
    }
}

void ph_told_list(const ph_told *told, uint64_t offset, size_t nbytes, uintptr_t at, ph_pieces *out) {
    for (size_t i = 0; i < told->nparts; i++) list_part(&told->parts[i], offset, offset + nbytes, at, out);
}

bool ph_told_read(const ph_told *told, uint64_t offset, size_t nbytes, void *dst) {
    ph_pieces found = {0};
    uint64_t had = 0;
    bool all = true;
    memset(dst, 0, nbytes);
    ph_told_list(told, offset, nbytes, 0, &found);
    for (size_t i = 0; i < found.n; i++) {
        const ph_piece *piece = &found.all[i];
        had += piece->end - piece->start;
        all &= ph_source_read(piece->source, piece->offset, piece->end - piece->start,
                              (unsigned char *)dst + piece->start);
    }
    ph_pieces_free(found.all, found.n);
    return all && had == nbytes;
}

void ph_told_free(ph_told *told) {
    for (size_t i = 0; i < told->nparts; i++) ph_pieces_free(told->parts[i].pieces, told->parts[i].n);
    free(told);
}
