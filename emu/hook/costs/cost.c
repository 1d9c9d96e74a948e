/*
 * Durations by signature. They are looked up in the table that all ranks share, then among the answers that only this
 * rank has got; a signature that is in neither is asked.
 *
 * The question is out of band and closes no segment: this rank's op stream must not depend on whether another rank has
 * asked before.
 */
#define _GNU_SOURCE
#include "costs/cost.h"
#include "core/lock.h"
#include "op_stream/emit.h"
#include "core/alloc.h"
#include "core/interned.h"
#include "core/run.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(sizeof(ph_cost) == sizeof(struct ph_COST_ENTRY), "entries of the shared table are used as ph_cost");
_Static_assert(offsetof(ph_cost, flops) == offsetof(struct ph_COST_ENTRY, flops), "same layout");

static struct {
    const ph_cost *entries; /* shared, read only */
    uint64_t mask;
    ph_interned own;
} table;

/* Before the rank's start work takes no time; with PHANTORA_DETACHED it takes a fixed time. */
static const ph_cost untimed = {.key = 1},
                     fixed = {.key = 1, .solo_ns = 1000, .contended_ns = 1000, .source = PH_SOURCE_ROOFLINE};

int ph_cost_table_map(const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -errno;
    struct stat about;
    void *at = fstat(fd, &about) == 0 && (size_t)about.st_size >= sizeof(struct ph_COST_HEADER)
                   ? mmap(NULL, (size_t)about.st_size, PROT_READ, MAP_SHARED, fd, 0)
                   : MAP_FAILED;
    close(fd);
    if (at == MAP_FAILED) return -EINVAL;
    const struct ph_COST_HEADER *header = at;
    if (header->version != PH_RECORD_VERSION || header->entry_nbytes != sizeof(ph_cost) || header->capacity == 0 ||
        (header->capacity & (header->capacity - 1)) ||
        (size_t)about.st_size < sizeof *header + header->capacity * sizeof(ph_cost)) {
        munmap(at, (size_t)about.st_size);
        return -EPROTO;
    }
    table.entries = (const ph_cost *)(header + 1);
    table.mask = header->capacity - 1;
    return 0;
}

static const ph_cost *find_shared(uint64_t key) {
    if (!table.entries) return NULL;
    for (uint64_t slot = key & table.mask, probes = 0; probes <= table.mask; slot = (slot + 1) & table.mask, probes++) {
        uint64_t at = __atomic_load_n(&table.entries[slot].key, __ATOMIC_ACQUIRE);
        if (LIKELY(at == key)) return &table.entries[slot];
        if (at == 0) return NULL;
    }
    return NULL;
}

static const ph_cost *keep(const ph_cost *cost) {
    ph_lock(PH_LOCK_COSTS);
    const ph_cost *kept = ph_interned_get(&table.own, cost->key);
    if (!kept) {
        ph_cost *made = ph_allocate(sizeof *made);
        *made = *cost;
        ph_interned_put(&table.own, cost->key, made);
        kept = made;
    }
    ph_unlock(PH_LOCK_COSTS);
    return kept;
}

static const ph_cost *ask(uint64_t key, ph_describe describe, const void *what) {
    size_t capacity = 4096, n;
    char *text = ph_allocate(capacity);
    while ((n = describe(what, text, capacity)) >= capacity) {
        capacity = n + 1;
        text = ph_reallocate(text, capacity);
    }
    struct ph_COST question = {.key = key};
    struct ph_COST_OF answer = {0};
    ph_ask_out_of_band(PH_KIND_COST, &question, sizeof question, text, n, &answer, sizeof answer);
    free(text);
    const ph_cost *shared = find_shared(key);
    if (shared) return shared;
    ph_cost cost = {.key = key,
                    .solo_ns = answer.solo_ns,
                    .contended_ns = answer.contended_ns,
                    .flops = answer.flops,
                    .source = answer.source,
                    .power = answer.power,
                    .clocked = answer.clocked,
                    .leaves = answer.leaves};
    return keep(&cost);
}

const ph_cost *ph_cost_of(uint64_t key, ph_describe describe, const void *what) {
    const ph_cost *cost = find_shared(key);
    if (LIKELY(cost != NULL)) return cost;
    if (!ph_run.started || ph_run.finished) return ph_run.alone ? &fixed : &untimed;
    cost = ph_interned_get(&table.own, key);
    return cost ? cost : ask(key, describe, what);
}
