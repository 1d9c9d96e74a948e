/*
 * NCCL: who is in a communicator, as Python has told it.
 *
 * Elsewhere the coordinator learns it from the members' questions. In a folded run most members have no process and
 * ask nothing. So the questions of the others carry all members.
 */
#include "core/alloc.h"
#include "nccl/nccl.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Told of communicators that are not made yet, the latest first. Never removed: a rank makes few. */
typedef struct told {
    struct told *before;
    nccl_unique_id id;
    nccl_members members;
} told;

static _Atomic(told *) latest;
static _Thread_local nccl_members of_splits;

nccl_members nccl_copied(const uint32_t *ranks, uint32_t n) {
    nccl_members members = {.ranks = n ? ph_allocate(n * sizeof *ranks) : NULL, .n = n};
    if (n) memcpy(members.ranks, ranks, n * sizeof *ranks);
    return members;
}

/* The communicator with this unique id will have these world ranks as members, in its rank order. */
PH_EXPORT void phantora_comm_members(const void *id, const uint32_t *ranks, uint32_t n) {
    told *one = ph_allocate(sizeof *one);
    memcpy(one->id.internal, id, sizeof one->id.internal);
    one->members = nccl_copied(ranks, n);
    one->before = atomic_load(&latest);
    while (!atomic_compare_exchange_weak(&latest, &one->before, one)) {
    }
}

/* Names the members of the splits that this thread makes from now on: the payload of COMM_SPLIT; n = 0: none. */
PH_EXPORT void phantora_split_members(const uint32_t *ranks, uint32_t n) {
    free(of_splits.ranks);
    of_splits = nccl_copied(ranks, n);
}

nccl_members nccl_members_of(const nccl_unique_id *id) {
    for (told *one = atomic_load(&latest); one; one = one->before)
        if (!memcmp(one->id.internal, id->internal, sizeof id->internal)) return one->members;
    return (nccl_members){0};
}

nccl_members nccl_members_of_split(void) { return of_splits; }
