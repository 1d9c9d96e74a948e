/* Blocks that are held for the same reason: the same site, module and purpose. */
#include "holders/holders.h"
#include "channel/channel.h"
#include "core/alloc.h"
#include "core/hash.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SINGLY = PH_MOST_HOLDER_GROUPS - PH_HELD_PURPOSES };

ph_holder_groups ph_holder_groups_make(size_t blocks) {
    size_t capacity = 64;
    while (capacity < 2 * blocks) capacity *= 2;
    return (ph_holder_groups){.slots = ph_allocate(capacity * sizeof(ph_holder_group)), .capacity = capacity};
}

/* Operations have a name for each set of sizes that they are called with. */
static bool same_op(const char *one, const char *other) {
    return one == other || (one && other && strcmp(one, other) == 0);
}

static ph_holder_group *slot_of(const ph_holder_groups *in, uint8_t held_as, uint16_t site, const char *op) {
    uint64_t key = ph_mix(held_as, site);
    size_t at = (op ? ph_hash(key, op, strlen(op)) : key) & (in->capacity - 1);
    for (;; at = (at + 1) & (in->capacity - 1)) {
        ph_holder_group *found = &in->slots[at];
        if (!found->blocks || (found->held_as == held_as && found->site == site && same_op(found->op, op)))
            return found;
    }
}

void ph_holder_groups_add(ph_holder_groups *to, uint64_t nbytes, uint8_t held_as, uint16_t site, const char *op) {
    ph_holder_group *slot = slot_of(to, held_as, site, op);
    if (!slot->blocks) {
        *slot = (ph_holder_group){.site = site, .held_as = held_as, .op = op};
        to->n++;
    }
    slot->nbytes += nbytes;
    slot->blocks++;
}

/* Equal ones in an order that is the same in every run. */
static int larger_first(const void *a, const void *b) {
    const ph_holder_group *one = a, *other = b;
    if (one->nbytes != other->nbytes) return one->nbytes < other->nbytes ? 1 : -1;
    if (one->held_as != other->held_as) return one->held_as < other->held_as ? -1 : 1;
    int order = strcmp(one->op ? one->op : "", other->op ? other->op : "");
    return order ? order : (one->site > other->site) - (one->site < other->site);
}

size_t ph_holder_groups_take(ph_holder_groups *from, ph_holder_group largest[PH_MOST_HOLDER_GROUPS]) {
    qsort(from->slots, from->capacity, sizeof *from->slots, larger_first);
    ph_holder_group rest[PH_HELD_PURPOSES] = {0};
    size_t n = 0;
    for (size_t i = 0; i < from->n; i++) {
        const ph_holder_group *one = &from->slots[i];
        if (i < SINGLY) {
            largest[n++] = *one;
        } else {
            rest[one->held_as].held_as = one->held_as;
            rest[one->held_as].nbytes += one->nbytes;
            rest[one->held_as].blocks += one->blocks;
        }
    }
    for (size_t i = 0; i < PH_HELD_PURPOSES; i++)
        if (rest[i].blocks) largest[n++] = rest[i];
    free(from->slots);
    return n;
}
