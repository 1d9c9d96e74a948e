/*
 * costs/: how long a piece of GPU work takes. A signature's hash is looked up in the table that all ranks share; a new
 * one is asked of the coordinator. signature.h: their text. power.h: the clock under the power limit.
 * Comes in: what a launch is made of. Goes out: a ph_cost; COST questions.
 */
#ifndef PHANTORA_COST_H
#define PHANTORA_COST_H

#include "core/base.h"

typedef struct ph_cost {
    uint64_t key, solo_ns, contended_ns;
    double flops;
    uint32_t source, power, clocked, leaves; /* see COST_OF in records.def */
} ph_cost;

/* key: a 64-bit hash of everything that is in the signature, equal on all ranks, never 0. `describe` writes the
 * signature's text (signature.h). It is called only if neither this rank nor the shared table knows the key. */
typedef size_t (*ph_describe)(const void *what, char *text, size_t capacity);
const ph_cost *ph_cost_of(uint64_t key, ph_describe describe, const void *what);
int ph_cost_table_map(const char *path);

#endif
