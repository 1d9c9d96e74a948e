/*
 * The blocks of PyTorch's caching allocator (holders/allocator.c tells them). A block's bytes are unknown when it is
 * given out: whatever an earlier tensor left in them is not what the next kernel writes.
 */
#include "cuda/types.h"
#include "core/intervals.h"
#include "core/lock.h"
#include "data/data.h"
#include "memory/memory.h"

static ph_intervals blocks = PH_INTERVALS_OF(ph_interval);

static void given_out(const void *start, size_t nbytes) {
    uintptr_t from = (uintptr_t)start;
    ph_lock(PH_LOCK_BLOCKS);
    ph_intervals_cut(&blocks, from, from + nbytes); /* what is left of blocks whose end was not reported */
    ph_intervals_insert(&blocks, ph_intervals_after(&blocks, from), &(ph_interval){from, from + nbytes});
    ph_unlock(PH_LOCK_BLOCKS);
}

static void taken_back(const void *start) {
    ph_lock(PH_LOCK_BLOCKS);
    ph_cursor cursor = ph_intervals_after(&blocks, (uintptr_t)start);
    const ph_interval *at = ph_intervals_at(&blocks, cursor);
    if (at && at->start == (uintptr_t)start) ph_intervals_erase(&blocks, cursor);
    ph_unlock(PH_LOCK_BLOCKS);
}

uintptr_t ph_data_block_start(const void *address) {
    uintptr_t from = (uintptr_t)address;
    ph_lock(PH_LOCK_BLOCKS);
    const ph_interval *at = ph_intervals_at(&blocks, ph_intervals_after(&blocks, from));
    uintptr_t start = at && at->start <= from ? at->start : 0;
    ph_unlock(PH_LOCK_BLOCKS);
    return start;
}

size_t ph_data_block_rest(const void *address) {
    uintptr_t from = (uintptr_t)address;
    ph_lock(PH_LOCK_BLOCKS);
    const ph_interval *at = ph_intervals_at(&blocks, ph_intervals_after(&blocks, from));
    size_t rest = at && at->start <= from ? at->end - from : 0;
    ph_unlock(PH_LOCK_BLOCKS);
    void *start;
    size_t nbytes;
    if (rest || ph_memory_range_of(address, &start, &nbytes) != CUDA_OK) return rest;
    return (size_t)((unsigned char *)start + nbytes - (const unsigned char *)address);
}

void ph_data_block(const void *start, int64_t nbytes) {
    size_t size = (size_t)(nbytes < 0 ? -nbytes : nbytes);
    ph_data_overwrite(start, size);
    if (nbytes > 0)
        given_out(start, size);
    else
        taken_back(start);
}
