/*
 * Memory that grows from step to step. What is allocated at the ends of steps is compared, so that what a step needs
 * for a while does not count; and what each line and operation holds then with what it held STEPS ends before, so that
 * the one that grows is known, whatever else is allocated anew in every step.
 */
#include "core/alloc.h"
#include "holders/holders.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS = 3, ENDS = STEPS + 1, MANY_STEPS = 5, LEAST_NBYTES = 1 << 20, EQUAL_WITHIN = 50 /* a fiftieth */ };

struct ph_growth {
    uint32_t ends, growing; /* ends of steps so far; those in a row that had more than the one before */
    uint64_t live[ENDS];    /* end i is at i % ENDS */
    ph_holder_groups held[ENDS];
    ph_grown found;
};

ph_growth *ph_growth_make(void) { return ph_allocate(sizeof(ph_growth)); }

bool ph_growth_step(ph_growth *it, uint64_t live) {
    uint32_t now = it->ends++ % ENDS;
    uint64_t before = it->live[(now + STEPS) % ENDS];
    free(it->held[now].slots);
    it->held[now] = (ph_holder_groups){0};
    it->live[now] = live;
    it->growing = it->ends > 1 && live >= before + LEAST_NBYTES ? it->growing + 1 : 0;
    if (!it->growing) memset(&it->found, 0, sizeof it->found);
    return it->growing > 0 || it->ends == 1;
}

static const ph_holder_group *same(const ph_holder_groups *in, const ph_holder_group *one) {
    for (size_t i = 0; i < in->capacity; i++) {
        const ph_holder_group *it = &in->slots[i];
        bool op = it->op == one->op || (it->op && one->op && strcmp(it->op, one->op) == 0);
        if (it->blocks && it->site == one->site && op) return it;
    }
    return NULL;
}

void ph_growth_held(ph_growth *it, ph_holder_groups held) {
    uint32_t now = (it->ends - 1) % ENDS, then = it->ends % ENDS;
    it->held[now] = held;
    if (it->growing < STEPS) return;
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < STEPS; i++) {
        uint64_t by = it->live[(then + i + 1) % ENDS] - it->live[(then + i) % ENDS];
        least = by < least ? by : least;
        most = by > most ? by : most;
    }
    bool equal = most - least <= most / EQUAL_WITHIN;
    if (!equal && it->growing < MANY_STEPS) return;
    it->found = (ph_grown){.nbytes = (it->live[now] - it->live[then]) / STEPS, .steps = it->growing, .equal = equal};
    uint64_t largest = 0;
    for (size_t i = 0; i < held.capacity; i++) {
        const ph_holder_group *one = &held.slots[i], *was = one->blocks ? same(&it->held[then], one) : NULL;
        uint64_t before = was ? was->nbytes : 0;
        if (!one->blocks || one->nbytes <= before || one->nbytes - before <= largest) continue;
        largest = one->nbytes - before;
        it->found.site = one->site;
        it->found.op = one->op;
    }
}

ph_grown ph_growth_found(const ph_growth *it) { return it->found; }
