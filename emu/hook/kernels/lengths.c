/*
 * How long the sequences of an attention are, and how much it computes then. An attention with a cache of keys and
 * values is told where its lengths lie in memory: a graph's launches have the lengths of their time.
 *
 * A row is a tile of 128 queries of one sequence. Where the heads that share keys are joined, it is one of 128 pairs of
 * a query and such a head: a sequence that gets its next token then fills one row for all of them.
 */
#include "data/data.h"
#include "kernels/kernel.h"
#include "memory/memory.h"

#include <string.h>

enum { TILE = 128, MOST_SEQUENCES = 65536, KEPT_BITS = 5 };

/* Returns `n` integers that are known; NULL if they are not. */
static const int32_t *known_at(uint64_t address, uint64_t n) {
    const int32_t *values = (const int32_t *)(uintptr_t)address;
    if (!ph_is_device_pointer(values) || address % sizeof *values) return NULL;
    ph_data_wait(values, n * sizeof *values);
    return ph_data_known(values, n * sizeof *values) ? values : NULL;
}

/* The nearest number with 5 significant bits: lengths that differ little have one cost. */
static uint64_t rounded(uint64_t number) {
    int bits = 64 - __builtin_clzll(number | 1), shift = bits > KEPT_BITS ? bits - KEPT_BITS : 0;
    return (number + ((uint64_t)1 << shift >> 1)) >> shift << shift;
}

static int64_t tiles_of(int64_t n) { return (n + TILE - 1) / TILE; }

/* The sum of `count` consecutive numbers from `first` on, each limited to at least 0 and at most `most`. */
static int64_t limited_sum(int64_t first, int64_t count, int64_t most) {
    int64_t last = first + count - 1, least = first > 1 ? first : 1, inner = last < most ? last : most;
    int64_t ramp = inner >= least ? (least + inner) * (inner - least + 1) / 2 : 0;
    int64_t beyond = last - (least > most + 1 ? least : most + 1) + 1;
    return ramp + (beyond > 0 ? beyond : 0) * most;
}

static void add(ph_sequences *out, const ph_lengths *it, int64_t queries, int64_t keys) {
    bool all_before = it->before == UINT64_MAX, all_after = it->after == UINT64_MAX;
    int64_t ahead = keys - queries, joined = (int64_t)it->joined, rows = tiles_of(queries * joined);
    for (int64_t row = 0; row < rows; row++) {
        int64_t first = row * TILE / joined, last = ((row + 1) * TILE - 1) / joined;
        if (last >= queries) last = queries - 1;
        int64_t begin = all_before ? 0 : first + ahead - (int64_t)it->before;
        int64_t end = all_after ? keys : last + ahead + (int64_t)it->after + 1;
        begin = begin > 0 ? begin : 0;
        end = end < keys ? end : keys;
        int64_t visited = end > begin ? tiles_of(end) - begin / TILE : 0;
        out->tiles += (uint64_t)visited;
        if ((uint64_t)visited > out->longest) out->longest = (uint64_t)visited;
    }
    int64_t pairs = all_after ? queries * keys : limited_sum(ahead + (int64_t)it->after + 1, queries, keys);
    if (!all_before) pairs -= limited_sum(ahead - (int64_t)it->before, queries, keys);
    out->queries += (uint64_t)queries;
    out->keys += (uint64_t)keys;
    out->rows += (uint64_t)rows;
    out->columns += (uint64_t)tiles_of(keys);
    out->pairs += (uint64_t)pairs;
}

bool ph_sequences_of(const ph_lengths *it, ph_sequences *out) {
    uint64_t n = it->sequences;
    if (n == 0 || n > MOST_SEQUENCES || it->joined == 0) return false;
    const int32_t *keys = known_at(it->keys, n + it->key_ends), *ends = it->ends_q ? known_at(it->ends_q, n + 1) : NULL;
    if (!keys || (it->ends_q && !ends)) return false;
    *out = (ph_sequences){.sequences = n};
    for (uint64_t i = 0; i < n; i++) {
        int64_t queries = ends ? (int64_t)ends[i + 1] - ends[i] : (int64_t)it->each;
        int64_t has = it->key_ends ? (int64_t)keys[i + 1] - keys[i] : keys[i];
        if (queries > 0) add(out, it, queries, has > 0 ? has : 0);
    }
    uint64_t *fields[] = {&out->sequences, &out->queries, &out->keys,    &out->rows,
                          &out->columns,   &out->tiles,   &out->longest, &out->pairs};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) *fields[i] = rounded(*fields[i]);
    return true;
}

/* Says where the attention that the thread launches reads its lengths; fields: those of ph_lengths in order, NULL: it
 * launches none any more. */
PH_EXPORT void phantora_lengths(const uint64_t *fields) {
    static const uint64_t none[sizeof(ph_lengths) / sizeof *fields];
    memcpy(&ph_self()->lengths, fields ? fields : none, sizeof(ph_lengths));
}
