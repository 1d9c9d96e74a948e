/*
 * holders/: who holds device memory when most of it is allocated (holders), block by block, as PyTorch's allocator
 * reports them (allocator), and in groups that are held for the same reason (groups). Comes in: blocks that PyTorch's
 * allocator gives out and takes back; which tensors Python has. Goes out: the record MEMORY_HELD.
 */
#ifndef PHANTORA_HOLDERS_H
#define PHANTORA_HOLDERS_H

#include "core/base.h"

/* PyTorch's allocator has given out (nbytes > 0) or taken back a block; it holds `reserved` bytes now. */
void ph_holders_block(int device, const void *start, int64_t nbytes, uint64_t reserved);
/* It found no memory for so many bytes, even without its cache. */
void ph_holders_missing(int device, uint64_t nbytes, uint64_t reserved);

/* ---- groups.c: blocks that are held for the same reason, by category, line of the script and operation ------------
 */
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
