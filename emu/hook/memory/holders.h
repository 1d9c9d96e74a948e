/* Who holds device memory when most of it is allocated. */
#ifndef PHANTORA_HOLDERS_H
#define PHANTORA_HOLDERS_H

#include "core/base.h"

/* PyTorch's allocator has given out (nbytes > 0) or taken back a block; it holds `reserved` bytes now. */
void ph_holders_block(int device, const void *start, int64_t nbytes, uint64_t reserved);
/* It found no memory for so many bytes, even without its cache. */
void ph_holders_missing(int device, uint64_t nbytes, uint64_t reserved);

#endif
