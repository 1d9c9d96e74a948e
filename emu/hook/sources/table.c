/*
 * The sources of a range as bytes that any rank can read: a row for each piece, with the computation's text behind it.
 * What cannot be told is left out, and unknown there. A rank that reads a row finds the entry of the store by its
 * number, and knows by its key that it is still the same.
 */
#include "sources/table.h"
#include "core/alloc.h"
#include "sources/store.h"

#include <stdlib.h>
#include <string.h>

typedef struct row {
    uint64_t start, end, offset, source_nbytes, key[2];
    uint32_t kind, entry;
    uint64_t recipe_nbytes;
    unsigned char item[PH_LONGEST_ITEM];
    ph_remote remote;
} row;

static size_t padded(size_t nbytes) { return (nbytes + 7) & ~(size_t)7; }

unsigned char *ph_table_write(const ph_piece *pieces, size_t n, size_t *nbytes) {
    unsigned char *table = NULL;
    size_t used = 0, capacity = 0;
    for (size_t i = 0; i < n; i++) {
        ph_source_facts facts;
        if (!pieces[i].source || !ph_source_describe(pieces[i].source, &facts)) continue;
        row it = {.start = pieces[i].start,
                  .end = pieces[i].end,
                  .offset = pieces[i].offset,
                  .source_nbytes = facts.nbytes,
                  .kind = facts.kind,
                  .entry = facts.entry,
                  .recipe_nbytes = facts.recipe_nbytes,
                  .remote = facts.remote};
        memcpy(it.item, facts.item, sizeof it.item);
        if (facts.kind == PH_SOURCE_STORED) ph_store_key(facts.entry, it.key);
        size_t needed = used + sizeof it + padded(facts.recipe_nbytes);
        if (needed > capacity) table = ph_reallocate(table, capacity = 2 * needed);
        memcpy(table + used, &it, sizeof it);
        memset(table + used + sizeof it, 0, padded(facts.recipe_nbytes));
        if (facts.recipe_nbytes) memcpy(table + used + sizeof it, facts.recipe, facts.recipe_nbytes);
        used = needed;
    }
    *nbytes = used;
    return table;
}

static ph_source *source_of(const row *it, const unsigned char *recipe) {
    switch ((enum ph_source_kind)it->kind) {
    case PH_SOURCE_CONSTANT:
        return ph_source_constant(it->item, it->source_nbytes);
    case PH_SOURCE_STORED:
        return ph_store_acquire(it->entry, it->key) ? ph_source_stored(it->entry, it->source_nbytes) : NULL;
    case PH_SOURCE_COMPUTED:
        return ph_source_recipe(recipe, it->recipe_nbytes, it->source_nbytes);
    case PH_SOURCE_REMOTE:
        return ph_source_remote(&it->remote);
    }
    return NULL;
}

/* The row at `*at`, which moves on: whether it is another rank's, and its computation's text. False behind the last. */
PH_EXPORT int phantora_table_row(const unsigned char *table, uint64_t nbytes, uint64_t *at, int *remote,
                                 const unsigned char **recipe, uint64_t *recipe_nbytes) {
    row it;
    if (*at + sizeof it > nbytes) return 0;
    memcpy(&it, table + *at, sizeof it);
    *remote = it.kind == PH_SOURCE_REMOTE;
    *recipe = table + *at + sizeof it;
    *recipe_nbytes = it.recipe_nbytes;
    *at += sizeof it + padded(it.recipe_nbytes);
    return 1;
}

size_t ph_table_read(const unsigned char *table, size_t nbytes, ph_piece **out) {
    ph_piece *pieces = NULL;
    size_t n = 0, capacity = 0;
    for (size_t at = 0; at + sizeof(row) <= nbytes;) {
        row it;
        memcpy(&it, table + at, sizeof it);
        ph_source *source = source_of(&it, table + at + sizeof it);
        at += sizeof it + padded(it.recipe_nbytes);
        if (!source) continue;
        pieces = ph_room_for_one(pieces, n, &capacity, sizeof *pieces);
        pieces[n++] = (ph_piece){it.start, it.end, source, it.offset};
    }
    *out = pieces;
    return n;
}
