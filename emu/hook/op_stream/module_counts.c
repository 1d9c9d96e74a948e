/* Two open-addressing tables: of the step that lasts, and of the one before, which is told when the rank ends. */
#include "op_stream/module_counts.h"
#include "channel/channel.h"
#include "core/hash.h"
#include "core/run.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 1024 }; /* slots; a power of two */

typedef struct {
    struct ph_MODULE_COUNT *slots; /* one without launches is free */
    size_t capacity, used;
} table;

static struct {
    table lasting, whole;
    uint32_t steps;
} counts;

static struct ph_MODULE_COUNT *slot_of(const table *in, uint64_t key, uint32_t module, uint32_t backward) {
    size_t mask = in->capacity - 1, at = (size_t)ph_mix(key, (uint64_t)module << 1 | backward) & mask;
    for (;; at = (at + 1) & mask) {
        struct ph_MODULE_COUNT *slot = &in->slots[at];
        if (slot->launches == 0 || (slot->key == key && slot->module == module && slot->backward == backward))
            return slot;
    }
}

static void grow(table *it) {
    table old = *it;
    it->capacity = old.capacity ? old.capacity * 2 : FIRST_CAPACITY;
    it->slots = calloc(it->capacity, sizeof *it->slots);
    if (!it->slots) ph_die("out of host memory");
    for (size_t i = 0; i < old.capacity; i++)
        if (old.slots[i].launches)
            *slot_of(it, old.slots[i].key, old.slots[i].module, old.slots[i].backward) = old.slots[i];
    free(old.slots);
}

void ph_count_of_module(uint64_t key, uint64_t slowed_ns, uint16_t module, bool backward) {
    table *to = &counts.lasting;
    if (UNLIKELY(to->used * 2 >= to->capacity)) grow(to);
    struct ph_MODULE_COUNT *slot = slot_of(to, key, module, backward);
    if (UNLIKELY(slot->launches == 0)) {
        *slot = (struct ph_MODULE_COUNT){.key = key, .module = module, .backward = backward};
        to->used++;
    }
    slot->launches++;
    slot->slowed_ns += slowed_ns;
}

void ph_module_step_ends(void) {
    ph_record_lock();
    table whole = counts.lasting;
    counts.lasting = counts.whole;
    counts.whole = whole;
    if (counts.lasting.capacity)
        memset(counts.lasting.slots, 0, counts.lasting.capacity * sizeof *counts.lasting.slots);
    counts.lasting.used = 0;
    counts.steps++;
    ph_record_unlock();
}

/* ---- called by ctypes -------------------------------------------------------------------------------------------- */

/* Tells the counts of the last whole step, if there was one. */
PH_EXPORT void phantora_module_counts(void) {
    ph_record_lock();
    struct ph_MODULE_COUNTS record = {.step = counts.steps - 1};
    struct ph_MODULE_COUNT *told = counts.whole.used ? malloc(counts.whole.used * sizeof *told) : NULL;
    for (size_t i = 0; told && i < counts.whole.capacity; i++)
        if (counts.whole.slots[i].launches) told[record.entries++] = counts.whole.slots[i];
    ph_record_unlock();
    if (told) ph_emit_out_of_band(PH_KIND_MODULE_COUNTS, &record, sizeof record, told, record.entries * sizeof *told);
    free(told);
}

/* Tells which module a number stands for. `text`: a path, and a class on a second line. */
PH_EXPORT void phantora_module(uint32_t number, const char *text) {
    struct ph_MODULE record = {.number = number};
    ph_emit_out_of_band(PH_KIND_MODULE, &record, sizeof record, text, strlen(text));
}
