/*
 * What emu/reads tells of values that the program reads and that nobody computed, and which operation should have
 * computed them: the one in which their bytes became unknown. Only messages name it.
 */
#include "channel/channel.h"
#include "core/hash.h"
#include "data/data.h"
#include "nvtx/nvtx.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { WRITERS = 1024 };

/* The latest place of each hash. A place that is lost, or taken for another one, costs a message a name. */
static struct {
    _Atomic(uintptr_t) start;
    _Atomic(const char *) operation;
} writers[WRITERS];

static size_t slot_of(uintptr_t start) { return ph_mix(1, start) % WRITERS; }

void ph_data_note_writer(const void *start) {
    const char *operation = ph_current_work();
    if (!operation) return;
    size_t slot = slot_of((uintptr_t)start);
    atomic_store_explicit(&writers[slot].start, (uintptr_t)start, memory_order_relaxed);
    atomic_store_explicit(&writers[slot].operation, operation, memory_order_relaxed);
}

static const char *writer_of(uintptr_t start) {
    size_t slot = slot_of(start);
    return start && atomic_load(&writers[slot].start) == start ? atomic_load(&writers[slot].operation) : NULL;
}

/* The operation's name; "" if it is not known. */
PH_EXPORT const char *phantora_data_writer(uint64_t address) {
    const char *operation = writer_of((uintptr_t)address);
    if (!operation) operation = writer_of(ph_data_block_start((const void *)(uintptr_t)address));
    return operation ? operation : "";
}

PH_EXPORT void phantora_stated_value(uint32_t number, uint64_t reads, uint64_t computed) {
    struct ph_STATED_VALUE record = {.number = number, .reads = reads, .computed = computed};
    ph_emit_out_of_band(PH_KIND_STATED_VALUE, &record, sizeof record, NULL, 0);
}

/* place: file:line; "" for checks for overflow. */
PH_EXPORT void phantora_decided(uint64_t reads, const char *place) {
    struct ph_DECIDED record = {.reads = reads};
    ph_emit_out_of_band(PH_KIND_DECIDED, &record, sizeof record, place, strlen(place));
}

/* text: six lines, see LOOP in records.def. */
PH_EXPORT void phantora_loop(uint64_t turns, uint32_t line, int stated, const char *text) {
    struct ph_LOOP record = {.turns = turns, .line = line, .stated = (uint32_t)stated};
    ph_emit_out_of_band(PH_KIND_LOOP, &record, sizeof record, text, strlen(text));
}
