/*
 * holders/: who holds device memory when most of it is allocated (holders), block by block and in groups that are held
 * for the same reason (groups).
 * Comes in: blocks that PyTorch's allocator gives out and takes back; which tensors Python has. Goes out: the record
 * MEMORY_HELD.
 */
#ifndef PHANTORA_HOLDERS_H
#define PHANTORA_HOLDERS_H

#include "core/base.h"

/* PyTorch's allocator has given out (nbytes > 0) or taken back a block; it holds `reserved` bytes now. */
void ph_holders_block(int device, const void *start, int64_t nbytes, uint64_t reserved);
/* It found no memory for so many bytes, even without its cache. */
void ph_holders_missing(int device, uint64_t nbytes, uint64_t reserved);

#endif
