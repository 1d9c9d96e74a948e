/*
 * A training loop repeats its segments, so the contents that differ are few. Each gets a number, the hash of its keys
 * in their order, and is told when it occurs first. Both functions are called under the record lock.
 */
#include "op_stream/segment.h"
#include "channel/channel.h"
#include "core/alloc.h"
#include "core/interned.h"

#include <stdlib.h>

enum { MOST_CONTENTS = 1 << 16 };

static ph_number_set told;

void ph_content_add(ph_segment *segment, uint64_t key) {
    if (!segment->keys) segment->keys = ph_allocate(PH_SEGMENT_LAUNCHES * sizeof *segment->keys);
    segment->keys[segment->launches] = key;
}

static uint64_t number_of(const uint64_t *keys, uint32_t n) {
    uint64_t hash = 14695981039346656037u;
    for (uint32_t i = 0; i < n; i++) {
        hash = (hash ^ keys[i]) * 1099511628211u;
        hash ^= hash >> 29;
    }
    return hash ? hash : 1;
}

static int by_value(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Sorts the keys. */
static void tell(uint64_t number, uint64_t *keys, uint32_t n) {
    struct ph_SEGMENT_COST costs[PH_SEGMENT_LAUNCHES];
    uint32_t entries = 0;
    qsort(keys, n, sizeof *keys, by_value);
    for (uint32_t i = 0; i < n; i++) {
        if (!entries || costs[entries - 1].key != keys[i]) costs[entries++] = (struct ph_SEGMENT_COST){.key = keys[i]};
        costs[entries - 1].launches++;
    }
    struct ph_SEGMENT_CONTENT record = {.content = number, .entries = entries};
    ph_append_out_of_band(PH_KIND_SEGMENT_CONTENT, &record, sizeof record, costs, entries * sizeof *costs);
}

uint64_t ph_content_of(const ph_segment *segment) {
    uint64_t number = number_of(segment->keys, segment->launches);
    if (ph_number_set_has(&told, number)) return number;
    if (told.n >= MOST_CONTENTS) return 0;
    ph_number_set_add(&told, number);
    tell(number, segment->keys, segment->launches);
    return number;
}
