/* Blocks of device memory that are held for the same reason: by category, line of the script and operation. */
#ifndef PHANTORA_HOLDER_GROUPS_H
#define PHANTORA_HOLDER_GROUPS_H

#include <stddef.h>
#include <stdint.h>

enum { PH_MOST_HOLDER_GROUPS = 64 };

typedef struct {
    uint64_t nbytes;
    uint32_t blocks;
    uint16_t site;
    uint8_t held_as;
    const char *op; /* NULL: none */
} ph_holder_group;

typedef struct {
    ph_holder_group *slots; /* open addressing; a slot without blocks is free */
    size_t capacity, n;
} ph_holder_groups;

/* No groups yet, with room for those of so many blocks. */
ph_holder_groups ph_holder_groups_make(size_t blocks);
/* Adds one block. `op` must stay where it is. */
void ph_holder_groups_add(ph_holder_groups *to, uint64_t nbytes, uint8_t held_as, uint16_t site, const char *op);
/* The largest first. Those that are too many are added up, one group for each category. Returns how many there are, and
 * frees the groups. */
size_t ph_holder_groups_take(ph_holder_groups *from, ph_holder_group largest[PH_MOST_HOLDER_GROUPS]);

#endif
